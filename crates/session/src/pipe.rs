//! A channel through ssh's standard streams, for where UDP is blocked.
//!
//! Each message is a frame: its kind, three zero bytes, its length (32 bits, little-endian), its
//! bytes. ssh's own flow control holds the sender back.
//!
//! A thread reads, because nothing else could be told to whoever reads: that this side gives up.
//!
//! Invariant: a frame is written whole under a lock, and no more than two messages are read ahead
//! of who takes them, so memory is bounded by three messages.
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
    /// Nobody has taken it yet.
    arrived: Option<Vec<u8>>,
    failure: Option<String>,
    is_closed_by_peer: bool,
}

impl PipeState {
    /// Whether nothing more can arrive.
    fn is_over(&self) -> bool {
        self.is_closed_by_peer || self.failure.is_some()
    }
}

/// What the thread that reads shares with the others.
#[derive(Default)]
struct PipeIncoming {
    state: Mutex<PipeState>,
    changed: Condvar,
}

pub(crate) struct PipeLink {
    output: Mutex<Box<dyn Write + Send>>,
    incoming: Arc<PipeIncoming>,
    pub traffic: Arc<ChannelTraffic>,
}

impl PipeLink {
    pub fn new(mut input: Box<dyn Read + Send>, output: Box<dyn Write + Send>) -> Arc<Self> {
        let incoming = Arc::new(PipeIncoming::default());
        let reader = Arc::clone(&incoming);
        // It is not waited for: a read ends with the process at the other side.
        let spawned = thread::Builder::new()
            .name("weft-ssh".into())
            .spawn(move || while reader.take_in(read_frame(&mut *input)) {});
        if let Err(error) = spawned {
            incoming.fail(&format!("no thread is left: {error}"));
        }
        Arc::new(Self { output: Mutex::new(output), incoming, traffic: Arc::default() })
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
        let PipeIncoming { state, changed } = &*self.incoming;
        let waits = |state: &mut PipeState| state.arrived.is_none() && !state.is_over();
        let mut state = changed.wait_while(state.lock(), waits);
        if let Some(bytes) = state.arrived.take() {
            drop(state);
            changed.notify_all();
            self.traffic.count_received(bytes.len());
            return Ok(Some(bytes));
        }
        match &state.failure {
            Some(reason) if !state.is_closed_by_peer => Err(anyhow!("{reason}")),
            _ => Ok(None),
        }
    }

    /// Says that nothing follows, and drops what comes until the peer says so too, for `limit` at
    /// most.
    pub fn finish(&self, limit: Duration) -> Result<()> {
        self.write_frame(CLOSE, &[], 0)?;
        let PipeIncoming { state, changed } = &*self.incoming;
        // What arrives is dropped, and the thread that reads goes on.
        let is_open = |state: &mut PipeState| {
            if state.arrived.take().is_some() {
                changed.notify_all();
            }
            !state.is_over()
        };
        let state = changed.wait_timeout_while(state.lock(), limit, is_open);
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
        self.incoming.fail(reason);
    }

    fn check(&self) -> Result<()> {
        match &self.incoming.state.lock().failure {
            Some(reason) => Err(anyhow!("{reason}")),
            None => Ok(()),
        }
    }
}

impl Drop for PipeLink {
    fn drop(&mut self) {
        self.fail("the channel is gone");
    }
}

impl PipeIncoming {
    fn fail(&self, reason: &str) {
        self.state.lock().failure.get_or_insert_with(|| reason.to_owned());
        self.changed.notify_all();
    }

    /// Keeps what was read, once what was read before is taken; whether to read on.
    fn take_in(&self, frame: Result<Option<Vec<u8>>>) -> bool {
        let waits = |state: &mut PipeState| state.arrived.is_some() && state.failure.is_none();
        let mut state = self.changed.wait_while(self.state.lock(), waits);
        if state.failure.is_some() {
            return false;
        }
        match frame {
            Ok(Some(bytes)) => state.arrived = Some(bytes),
            Ok(None) => state.is_closed_by_peer = true,
            Err(error) => state.failure = Some(format!("{error:#}")),
        }
        let goes_on = !state.is_over();
        drop(state);
        self.changed.notify_all();
        goes_on
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

    /// Its peer says nothing, and waits for what somebody else has to say.
    #[test]
    fn who_waits_for_a_message_hears_that_this_side_gives_up() {
        let ((read, _write), (_back_read, back_write)) =
            (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let link = PipeLink::new(Box::new(read), Box::new(back_write));
        let waiting = thread::spawn({
            let link = Arc::clone(&link);
            move || link.recv()
        });
        link.fail("another host is gone");
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "another host is gone");
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
