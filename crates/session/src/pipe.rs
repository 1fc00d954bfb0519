//! A channel through ssh's standard streams, for where UDP is blocked.
//!
//! Each message is a frame: its kind, three zero bytes, its length (32 bits, little-endian), its
//! bytes. ssh's own flow control holds the sender back.
//!
//! Invariant: a frame is written whole under a lock, and no more than one message is read ahead of
//! who takes them, so memory is bounded by two messages.
//!
//! Order: [`PipeLink::new`]; then any calls; [`PipeLink::finish`].

use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use weft_sync::{Condvar, Mutex};

use crate::MESSAGE_MAX;
use crate::channel::ChannelTraffic;

const DATA: u8 = 0;
const CLOSE: u8 = 1;
const HEADER: usize = 8;

#[derive(Default)]
struct PipeState {
    failure: Option<String>,
    is_closed_by_peer: bool,
}

pub(crate) struct PipeLink {
    output: Mutex<Box<dyn Write + Send>>,
    input: Mutex<Box<dyn Read + Send>>,
    state: Mutex<PipeState>,
    changed: Condvar,
    pub traffic: Arc<ChannelTraffic>,
}

impl PipeLink {
    pub fn new(input: Box<dyn Read + Send>, output: Box<dyn Write + Send>) -> Arc<Self> {
        Arc::new(Self {
            output: Mutex::new(output),
            input: Mutex::new(input),
            state: Mutex::default(),
            changed: Condvar::default(),
            traffic: Arc::default(),
        })
    }

    pub fn send(&self, parts: &[&[u8]]) -> Result<()> {
        self.check()?;
        let len: usize = parts.iter().map(|part| part.len()).sum();
        ensure!(len <= MESSAGE_MAX, "a message of {len} bytes is too long");
        self.write_frame(DATA, parts, len).inspect_err(|error| self.fail(&format!("{error:#}")))?;
        self.traffic.count_sent(len);
        self.traffic.count_delivered(len);
        Ok(())
    }

    fn write_frame(&self, kind: u8, parts: &[&[u8]], len: usize) -> Result<()> {
        let mut header = [0; HEADER];
        header[0] = kind;
        header[4..].copy_from_slice(&u32::try_from(len)?.to_le_bytes());
        let mut output = self.output.lock();
        let written = output
            .write_all(&header)
            .and_then(|()| parts.iter().try_for_each(|part| output.write_all(part)))
            .and_then(|()| output.flush());
        written.context("writing to ssh")
    }

    pub fn recv(&self) -> Result<Option<Vec<u8>>> {
        let mut input = self.input.lock();
        // Whoever had the input before may have read the end.
        if self.state.lock().is_closed_by_peer {
            return Ok(None);
        }
        self.check()?;
        let frame =
            read_frame(&mut *input).inspect_err(|error| self.fail(&format!("{error:#}")))?;
        match &frame {
            Some(bytes) => self.traffic.count_received(bytes.len()),
            None => {
                self.state.lock().is_closed_by_peer = true;
                self.changed.notify_all();
            }
        }
        Ok(frame)
    }

    /// Says that nothing follows, and drops what comes until the peer says so too, for `limit` at
    /// most. Reading may take longer, so another thread does it.
    pub fn finish(self: &Arc<Self>, limit: Duration) -> Result<()> {
        self.write_frame(CLOSE, &[], 0)?;
        let link = Arc::clone(self);
        let drain = move || while matches!(link.recv(), Ok(Some(_))) {};
        thread::Builder::new().name("weft-drain".into()).spawn(drain).context("a thread")?;
        let is_open = |state: &mut PipeState| !state.is_closed_by_peer && state.failure.is_none();
        let state = self.changed.wait_timeout_while(self.state.lock(), limit, is_open);
        match (state.is_closed_by_peer, &state.failure) {
            (true, _) => Ok(()),
            (false, Some(reason)) => bail!("{reason}"),
            (false, None) => bail!("the far end did not finish in time"),
        }
    }

    /// Says that nothing follows, and reads nothing more.
    pub fn leave(&self) {
        let _ = self.write_frame(CLOSE, &[], 0);
        self.fail("the channel is finished");
    }

    pub fn fail(&self, reason: &str) {
        self.state.lock().failure.get_or_insert_with(|| reason.to_owned());
        self.changed.notify_all();
    }

    fn check(&self) -> Result<()> {
        match &self.state.lock().failure {
            Some(reason) => Err(anyhow!("{reason}")),
            None => Ok(()),
        }
    }
}

fn read_frame(input: &mut dyn Read) -> Result<Option<Vec<u8>>> {
    let mut header = [0; HEADER];
    input.read_exact(&mut header).context("the far end is gone: reading from ssh")?;
    let [kind, 0, 0, 0, length @ ..] = header else {
        bail!("what came through ssh is no message");
    };
    let len = u32::from_le_bytes(length) as usize;
    ensure!(len <= MESSAGE_MAX, "a message of {len} bytes came through ssh");
    let mut bytes = vec![0; len];
    input.read_exact(&mut bytes).context("the far end is gone: reading from ssh")?;
    match kind {
        DATA => Ok(Some(bytes)),
        CLOSE => Ok(None),
        _ => bail!("a message of unknown kind came through ssh"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in() {
        let (read, write) = std::io::pipe().unwrap();
        let (back_read, back_write) = std::io::pipe().unwrap();
        let near = PipeLink::new(Box::new(back_read), Box::new(write));
        let far = PipeLink::new(Box::new(read), Box::new(back_write));
        near.send(&[b"one ", b"two"]).unwrap();
        near.send(&[]).unwrap();
        assert_eq!(far.recv().unwrap().unwrap(), b"one two");
        assert_eq!(far.recv().unwrap().unwrap(), b"");
        let ending = std::thread::spawn(move || near.finish(Duration::from_secs(5)));
        assert!(far.recv().unwrap().is_none());
        far.finish(Duration::from_secs(5)).unwrap();
        ending.join().unwrap().unwrap();
    }

    #[test]
    fn a_peer_that_does_not_end_is_given_up() {
        let ((read, _write), (_back_read, back_write)) =
            (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let link = PipeLink::new(Box::new(read), Box::new(back_write));
        let error = link.finish(Duration::from_millis(1)).unwrap_err();
        assert!(error.to_string().contains("in time"), "{error}");
    }

    #[test]
    fn frames_that_are_none_are_refused() {
        let lengths = [u32::MAX.to_le_bytes(), 1_u32.to_le_bytes()];
        for (kind, length) in [(DATA, lengths[0]), (9, lengths[1])] {
            let mut frame = vec![kind, 0, 0, 0];
            frame.extend(length);
            frame.push(0);
            let link = PipeLink::new(Box::new(std::io::Cursor::new(frame)), Box::new(Vec::new()));
            link.recv().unwrap_err();
            link.recv().unwrap_err();
            link.send(&[b"x"]).unwrap_err();
        }
    }
}
