//! A channel through ssh's standard streams, for where UDP is blocked.
//!
//! Each message is a frame: its kind, three zero bytes, its length (32 bits, little-endian), its
//! bytes. ssh's own flow control holds the sender back.
//!
//! One thread reads and one writes, because nothing else could be told to whoever does: that this
//! side gives up. A peer that reads nothing thus holds up no call that is to end.
//!
//! Invariant: one frame is written at a time, and no more than two messages are read ahead of who
//! takes them, so memory is bounded by four messages.
//!
//! Order: [`PipeLink::new`]; then any calls; [`PipeLink::finish`].

use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use weft_os::clock;
use weft_sync::{Condvar, Mutex, MutexGuard};

use crate::channel::ChannelTraffic;
use crate::{END_LIMIT, MESSAGE_MAX};

const DATA: u8 = 0;
const CLOSE: u8 = 1;
const HEADER: usize = 8;

#[derive(Default)]
struct PipeState {
    /// Nobody has taken it yet.
    arrived: Option<Vec<u8>>,
    /// The frame that is to be written, until the thread that writes has taken it.
    leaving: Option<Vec<u8>>,
    /// Frames that were given to that thread, and how many of them it has written.
    given: u64,
    written: u64,
    failure: Option<String>,
    is_closed_by_peer: bool,
}

impl PipeState {
    /// Whether nothing more can arrive.
    fn is_over(&self) -> bool {
        self.is_closed_by_peer || self.failure.is_some()
    }

    /// Whether a frame is not written yet.
    fn is_writing(&self) -> bool {
        self.written < self.given
    }
}

/// What the threads that read and write share with the others.
#[derive(Default)]
struct PipeShared {
    state: Mutex<PipeState>,
    changed: Condvar,
}

pub(crate) struct PipeLink {
    shared: Arc<PipeShared>,
    pub traffic: Arc<ChannelTraffic>,
}

impl PipeLink {
    pub fn new(mut input: Box<dyn Read + Send>, mut output: Box<dyn Write + Send>) -> Arc<Self> {
        let shared = Arc::new(PipeShared::default());
        let (reader, writer) = (Arc::clone(&shared), Arc::clone(&shared));
        // They are not waited for: what they do ends with the process at the other side.
        shared.start(move || while reader.take_in(read_frame(&mut *input)) {});
        shared.start(move || while writer.write_out(&mut *output) {});
        Arc::new(Self { shared, traffic: Arc::default() })
    }

    pub fn send(&self, parts: &[&[u8]]) -> Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        ensure!(len <= MESSAGE_MAX, "a message of {len} bytes is too long");
        let PipeShared { state, changed } = &*self.shared;
        let is_taken = |state: &mut PipeState| state.is_writing() && state.failure.is_none();
        let mut state = changed.wait_while(state.lock(), is_taken);
        let number = self.shared.give(&mut state, DATA, parts, len)?;
        let waits = |state: &mut PipeState| state.written < number && state.failure.is_none();
        let state = changed.wait_while(state, waits);
        if state.written < number {
            bail!("{}", state.failure.as_deref().unwrap_or_default());
        }
        drop(state);
        self.traffic.count_sent(len);
        self.traffic.count_delivered(len);
        Ok(())
    }

    pub fn recv(&self) -> Result<Option<Vec<u8>>> {
        let PipeShared { state, changed } = &*self.shared;
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
        let began = clock::now();
        let state = self.say_the_end(limit)?;
        let is_open = |state: &mut PipeState| {
            self.shared.drop_arrived(state);
            !state.is_over() || (state.is_writing() && state.failure.is_none())
        };
        let left = limit.saturating_sub(began.elapsed());
        let state = self.shared.changed.wait_timeout_while(state, left, is_open);
        match (state.is_closed_by_peer, &state.failure) {
            (true, _) => Ok(()),
            (false, Some(reason)) => bail!("{reason}"),
            (false, None) => bail!("the far end did not finish in time"),
        }
    }

    /// Says that nothing follows, and reads nothing more.
    pub fn leave(&self) {
        if let Ok(state) = self.say_the_end(END_LIMIT) {
            let waits = |state: &mut PipeState| state.is_writing() && state.failure.is_none();
            drop(self.shared.changed.wait_timeout_while(state, END_LIMIT, waits));
        }
        self.fail("the channel is finished");
    }

    /// Gives the last frame to the thread that writes, once it has written those before.
    fn say_the_end(&self, limit: Duration) -> Result<MutexGuard<'_, PipeState>> {
        let PipeShared { state, changed } = &*self.shared;
        let is_taken = |state: &mut PipeState| {
            self.shared.drop_arrived(state);
            state.is_writing() && state.failure.is_none()
        };
        let mut state = changed.wait_timeout_while(state.lock(), limit, is_taken);
        let is_late = state.is_writing() && state.failure.is_none();
        ensure!(!is_late, "the far end did not finish in time");
        self.shared.give(&mut state, CLOSE, &[], 0)?;
        Ok(state)
    }

    pub fn fail(&self, reason: &str) {
        self.shared.fail(reason);
    }
}

impl Drop for PipeLink {
    fn drop(&mut self) {
        self.fail("the channel is gone");
    }
}

impl PipeShared {
    fn start(&self, work: impl FnOnce() + Send + 'static) {
        let spawned = thread::Builder::new().name("weft-ssh".into()).spawn(work);
        if let Err(error) = spawned {
            self.fail(&format!("no thread is left: {error}"));
        }
    }

    /// Gives a frame to the thread that writes, which is idle; the frame's number.
    fn give(&self, state: &mut PipeState, kind: u8, parts: &[&[u8]], len: usize) -> Result<u64> {
        if let Some(reason) = &state.failure {
            bail!("{reason}");
        }
        let mut frame = Vec::with_capacity(HEADER + len);
        frame.extend([kind, 0, 0, 0]);
        frame.extend(u32::try_from(len)?.to_le_bytes());
        parts.iter().for_each(|part| frame.extend_from_slice(part));
        state.leaving = Some(frame);
        state.given += 1;
        self.changed.notify_all();
        Ok(state.given)
    }

    /// Writes the next frame; whether another may follow.
    fn write_out(&self, output: &mut dyn Write) -> bool {
        let is_idle = |state: &mut PipeState| state.leaving.is_none() && state.failure.is_none();
        let frame = self.changed.wait_while(self.state.lock(), is_idle).leaving.take();
        let Some(frame) = frame else { return false };
        match output.write_all(&frame).and_then(|()| output.flush()) {
            Ok(()) => self.state.lock().written += 1,
            Err(error) => self.fail(&format!("writing to ssh: {error}")),
        }
        self.changed.notify_all();
        true
    }

    /// What has arrived is not wanted, and the thread that reads goes on.
    fn drop_arrived(&self, state: &mut PipeState) {
        if state.arrived.take().is_some() {
            self.changed.notify_all();
        }
    }

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

    /// More than a pipe holds is never read.
    #[test]
    fn who_waits_for_room_hears_that_this_side_gives_up() {
        let ((read, _write), (_back_read, back_write)) =
            (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let link = PipeLink::new(Box::new(read), Box::new(back_write));
        let sending = thread::spawn({
            let link = Arc::clone(&link);
            move || while link.send(&[&[7; MESSAGE_MAX]]).is_ok() {}
        });
        let began = |state: &mut PipeState| !state.is_writing();
        drop(link.shared.changed.wait_while(link.shared.state.lock(), began));
        let error = link.finish(Duration::from_millis(1)).unwrap_err();
        assert!(error.to_string().contains("in time"), "{error}");
        link.fail("what it says is nonsense");
        sending.join().unwrap();
        link.leave();
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
