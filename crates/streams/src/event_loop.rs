//! Moves bytes between descriptors and the channel, in one thread.
//!
//! Invariant: no descriptor blocks, and no stream waits for another: a stream is read only while
//! its peer has room for it, and what has come for it waits within its window.
//!
//! Order: [`EventLoop::new`], [`EventLoop::add`] for streams that are there from the start,
//! [`EventLoop::run`]. Events of other threads come by [`EventSender`].

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use weft_session::{ChannelSender, MessageChannel, parse_message, send_message};

use crate::event_queue::{EventSender, LoopEvent, MESSAGES_MAX};
use crate::messages::{DATA_MAX, StreamMessage};
use crate::stream::{LoopStream, StreamFds, socket_fds};
use crate::window::BUDGET;

/// The token of what wakes the loop.
const WAKE: u64 = u64::MAX;

/// What is asked of whoever owns a loop.
pub trait LoopOwner {
    /// An event that is no byte of a stream. Whether the loop goes on.
    ///
    /// # Errors
    /// The loop ends.
    fn handle(&mut self, streams: &mut EventLoop, event: OwnerEvent) -> Result<bool>;
}

/// What the owner hears of.
pub enum OwnerEvent {
    /// A message that is not about the bytes of a stream.
    Message(StreamMessage),
    /// A connection was taken here.
    Accepted {
        /// Which forward, counted from 0.
        forward: u32,
        /// The connection.
        connection: TcpStream,
    },
    /// The command has ended.
    Exited {
        /// Its status, as a shell has it.
        status: u8,
    },
    /// A stream is over.
    StreamOver,
    /// The peer says nothing more, and takes what is said until it is told the same.
    PeerDone,
}

/// The loop.
pub struct EventLoop {
    epoll: OwnedFd,
    events: EventSender,
    to: ChannelSender,
    streams: HashMap<u64, LoopStream>,
    budget: u64,
    /// Streams that ended since the owner was told.
    over: usize,
}

impl EventLoop {
    /// A loop over `channel`, which this reads from now on.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub fn new(channel: &MessageChannel) -> Result<Self> {
        Self::within(channel, MESSAGES_MAX)
    }

    /// A loop for which messages of `max_octets` may wait.
    fn within(channel: &MessageChannel, max_octets: usize) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = eventfd(0, flags).map_err(io::Error::from)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)
            .map_err(io::Error::from)?;
        let events = EventSender::new(wake, max_octets);
        let (mut incoming, sender) = (channel.receiver(), events.clone());
        let read = move || {
            let end = loop {
                match incoming
                    .recv()
                    .and_then(|message| message.map(weft_session::Message::into_bytes).transpose())
                {
                    Ok(Some(bytes)) => sender.bring(bytes),
                    Ok(None) => break None,
                    Err(error) => break Some(format!("{error:#}")),
                }
            };
            sender.send(LoopEvent::ChannelEnd(end));
        };
        thread::Builder::new().name("weft-streams".into()).spawn(read).context("a thread")?;
        let (streams, budget, over) = (HashMap::new(), BUDGET, 0);
        Ok(Self { epoll, events, to: channel.sender(), streams, budget, over })
    }

    /// Where other threads send events.
    pub fn events(&self) -> EventSender {
        self.events.clone()
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The channel has failed.
    pub fn say(&self, message: &StreamMessage) -> Result<()> {
        send_message(&self.to, message, &[])
    }

    /// Whether a stream is not over yet.
    pub fn has(&self, id: u64) -> bool {
        self.streams.contains_key(&id)
    }

    /// Whether more may come for a stream: the peer has neither ended nor broken it.
    pub fn may_come(&self, id: u64) -> bool {
        self.streams.get(&id).is_some_and(|stream| !stream.has_end)
    }

    /// How many streams there are.
    pub fn count(&self) -> usize {
        self.streams.len()
    }

    /// Adds a stream. Without descriptors it waits to be connected.
    ///
    /// # Errors
    /// The system refuses.
    pub fn add(&mut self, id: u64, fds: Option<StreamFds>) -> Result<()> {
        let is_connecting = fds.is_none();
        let stream = LoopStream::new(fds);
        ensure!(self.streams.insert(id, stream).is_none(), "the far end opened a stream twice");
        if is_connecting { Ok(()) } else { self.settle(id) }
    }

    /// Runs until the owner says that it is over. The channel's end is an error. The descriptors
    /// of streams that are not over stay open as long as the loop exists.
    ///
    /// # Errors
    /// The channel has failed, or the owner says so.
    pub fn run(&mut self, owner: &mut dyn LoopOwner) -> Result<()> {
        let mut ready = Vec::with_capacity(256);
        let mut bytes = Vec::with_capacity(DATA_MAX);
        loop {
            ready.clear();
            let waited = epoll::wait(&self.epoll, spare_capacity(&mut ready), None::<&Timespec>);
            match waited {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno)).context("waiting"),
            }
            for event in &ready {
                match event.data.u64() {
                    WAKE => {
                        if !self.take_events(owner)? {
                            return Ok(());
                        }
                    }
                    token if token & 1 == 0 => self.read(token >> 1, &mut bytes)?,
                    token => self.write(token >> 1)?,
                }
            }
            while self.over > 0 {
                self.over -= 1;
                if !owner.handle(self, OwnerEvent::StreamOver)? {
                    return Ok(());
                }
            }
        }
    }

    fn take_events(&mut self, owner: &mut dyn LoopOwner) -> Result<bool> {
        // No more than those, so that what comes meanwhile does not keep it from its streams.
        for _ in 0..self.events.rest() {
            let Some(event) = self.events.next() else { break };
            let goes_on = match event {
                LoopEvent::ChannelEnd(Some(why)) => bail!(why),
                LoopEvent::ChannelEnd(None) => owner.handle(self, OwnerEvent::PeerDone)?,
                LoopEvent::Connected { id, outcome } => {
                    self.connected(id, outcome)?;
                    true
                }
                LoopEvent::Accepted { forward, connection } => {
                    owner.handle(self, OwnerEvent::Accepted { forward, connection })?
                }
                LoopEvent::Exited { status } => {
                    owner.handle(self, OwnerEvent::Exited { status })?
                }
                LoopEvent::Message(bytes) => self.take_message(&bytes, owner)?,
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn take_message(&mut self, bytes: &[u8], owner: &mut dyn LoopOwner) -> Result<bool> {
        let (message, payload) = parse_message::<StreamMessage>(bytes)?;
        match message {
            StreamMessage::Data { id, is_short } => {
                let Some(stream) = self.streams.get_mut(&id) else { return Ok(true) };
                let is_granted = stream.receive.arrived(payload.len() as u64, is_short);
                // Without bytes it would wait for its turn and count for nothing.
                let is_sound = is_granted && !payload.is_empty() && !stream.has_end;
                ensure!(is_sound, "the far end sent more than it may");
                stream.waiting.push_back(payload.to_vec());
                self.write(id)?;
            }
            StreamMessage::Grant { id, limit } => {
                let Some(stream) = self.streams.get_mut(&id) else { return Ok(true) };
                stream.send.grant(limit);
                self.settle(id)?;
            }
            StreamMessage::End { id } => {
                let Some(stream) = self.streams.get_mut(&id) else { return Ok(true) };
                stream.has_end = true;
                self.write(id)?;
            }
            StreamMessage::Reset { id } => self.handle_reset(id)?,
            other => return owner.handle(self, OwnerEvent::Message(other)),
        }
        Ok(true)
    }

    fn connected(&mut self, id: u64, outcome: io::Result<TcpStream>) -> Result<()> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        match outcome.and_then(socket_fds) {
            Ok(fds) => {
                (stream.fds, stream.is_connecting) = (fds, false);
                self.write(id)
            }
            Err(_) => self.reset(id),
        }
    }

    /// Reads what a stream has and its peer has room for, if messages do not wait for too long.
    fn read(&mut self, id: u64, bytes: &mut Vec<u8>) -> Result<()> {
        if self.events.is_behind() {
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let room = stream.send.room().min(DATA_MAX as u64) as usize;
        if let Some(input) = stream.fds.input.as_ref().filter(|_| room > 0) {
            bytes.resize(room, 0);
            match rustix::io::read(input, &mut bytes[..]) {
                Ok(0) if stream.is_reset() => return self.reset(id),
                Ok(0) => {
                    stream.end_input(&self.epoll);
                    self.say(&StreamMessage::End { id })?;
                }
                Ok(count) => {
                    let is_short = stream.send.sent(count as u64);
                    let head = StreamMessage::Data { id, is_short };
                    send_message(&self.to, &head, &bytes[..count])?;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return self.reset(id),
            }
        }
        self.settle(id)
    }

    /// Writes what has come for a stream, as far as it goes.
    fn write(&mut self, id: u64) -> Result<()> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let mut granted = None;
        while let Some(outcome) = stream.write_first() {
            match outcome {
                Ok(count) => {
                    stream.wrote(count);
                    let limit = stream.receive.consumed(count as u64, &mut self.budget);
                    granted = limit.or(granted);
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => stream.fail_output(&self.epoll, errno),
            }
        }
        if let Some(limit) = granted {
            self.say(&StreamMessage::Grant { id, limit })?;
        }
        self.settle(id)
    }

    /// Watches what a stream waits for, and ends what of it is over.
    fn settle(&mut self, id: u64) -> Result<()> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if stream.is_connecting {
            return Ok(());
        }
        if stream.has_end && stream.waiting.is_empty() {
            stream.end_output(&self.epoll);
        }
        stream.watch(&self.epoll, id)?;
        match (stream.is_over(), stream.failure) {
            (false, _) => {}
            (true, None) => self.cut(id),
            (true, Some(_)) => self.reset(id)?,
        }
        Ok(())
    }

    /// Takes what a stream is written to out of the loop; `None` if it has ended.
    pub fn take_output(&mut self, id: u64) -> Option<OwnedFd> {
        self.streams.get_mut(&id)?.take_output(&self.epoll)
    }

    /// Ends a stream that broke here.
    fn reset(&mut self, id: u64) -> Result<()> {
        self.cut(id);
        self.say(&StreamMessage::Reset { id })
    }

    /// The peer has ended a stream that broke there. What came before a proper end is whole, and is
    /// written first; only what would go the other way is for nobody. A connection that is not made
    /// yet would be for nobody at all.
    fn handle_reset(&mut self, id: u64) -> Result<()> {
        match self.streams.get_mut(&id) {
            Some(stream) if stream.has_end && stream.failure.is_none() && !stream.is_connecting => {
                stream.end_input(&self.epoll);
                self.settle(id)
            }
            _ => {
                self.cut(id);
                Ok(())
            }
        }
    }

    /// Ends a stream at once. Who has the other end of a socket sees a reset, unless both
    /// directions have ended.
    pub fn cut(&mut self, id: u64) {
        if let Some(stream) = self.streams.remove(&id) {
            self.budget += stream.receive.borrowed();
            for fd in [&stream.fds.input, &stream.fds.output].into_iter().flatten() {
                // What is not watched cannot be unwatched.
                let _ = epoll::delete(&self.epoll, fd);
            }
            self.over += 1;
        }
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        self.events.close();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::stream::reset_when_closed;

    /// Two ends that are joined in this process.
    fn joined() -> (MessageChannel, MessageChannel) {
        let (near_in, far_out) = io::pipe().unwrap();
        let (far_in, near_out) = io::pipe().unwrap();
        (MessageChannel::through(near_in, near_out), MessageChannel::through(far_in, far_out))
    }

    /// A connection, and the other end of it, set up as forwards do.
    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (reset_when_closed(here).unwrap(), listener.accept().unwrap().0)
    }

    struct UntilPeerDone;

    impl LoopOwner for UntilPeerDone {
        fn handle(&mut self, _: &mut EventLoop, event: OwnerEvent) -> Result<bool> {
            Ok(!matches!(event, OwnerEvent::PeerDone))
        }
    }

    /// Bytes of messages that may wait in a test: less than the windows of [`STREAMS`] streams.
    const FEW: usize = 4 * DATA_MAX;
    const STREAMS: u64 = 16;

    /// Until all streams are over.
    struct UntilAllOver;

    impl LoopOwner for UntilAllOver {
        fn handle(&mut self, streams: &mut EventLoop, _: OwnerEvent) -> Result<bool> {
            Ok(streams.count() > 0)
        }
    }

    /// Sends from half of the streams and takes what comes for the others; gives how much came.
    fn exchange(channel: &MessageChannel, sends_even: bool) -> usize {
        let mut streams = EventLoop::within(channel, FEW).unwrap();
        thread::scope(|scope| {
            let mut taking = Vec::new();
            for id in 0..STREAMS {
                let (mut here, there) = UnixStream::pair().unwrap();
                there.set_nonblocking(true).unwrap();
                let there = Some(OwnedFd::from(there));
                let is_sent = (id % 2 == 0) == sends_even;
                let fds = match is_sent {
                    true => StreamFds { input: there, ..StreamFds::default() },
                    false => StreamFds { output: there, ..StreamFds::default() },
                };
                streams.add(id, Some(fds)).unwrap();
                match is_sent {
                    true => drop(scope.spawn(move || here.write_all(&[7; 4 * FEW]).unwrap())),
                    false => taking.push(scope.spawn(move || io::copy(&mut here, &mut io::sink()))),
                }
            }
            streams.run(&mut UntilAllOver).unwrap();
            taking.into_iter().map(|it| it.join().unwrap().unwrap() as usize).sum()
        })
    }

    #[test]
    fn two_ends_that_both_send_more_than_may_wait_go_on() {
        let (near, far) = joined();
        let far = thread::spawn(move || exchange(&far, false));
        let whole = STREAMS as usize / 2 * 4 * FEW;
        assert_eq!((exchange(&near, true), far.join().unwrap()), (whole, whole));
    }

    #[test]
    fn data_without_bytes_is_refused() {
        let (near, far) = joined();
        let mut streams = EventLoop::new(&near).unwrap();
        // What comes for it waits.
        streams.add(0, None).unwrap();
        send_message(&far.sender(), &DATA, &[1]).unwrap();
        send_message(&far.sender(), &DATA, &[]).unwrap();
        let _ = far.finish(Duration::ZERO);
        let error = streams.run(&mut UntilPeerDone).unwrap_err();
        assert_eq!(error.to_string(), "the far end sent more than it may");
    }

    /// Until a stream is over. Has the peer end its direction when it is told to.
    struct UntilStreamOver<'a>(&'a TcpStream);

    impl LoopOwner for UntilStreamOver<'_> {
        fn handle(&mut self, _: &mut EventLoop, event: OwnerEvent) -> Result<bool> {
            if matches!(event, OwnerEvent::Message(StreamMessage::Ready)) {
                self.0.shutdown(Shutdown::Write)?;
            }
            Ok(!matches!(event, OwnerEvent::StreamOver))
        }
    }

    const DATA: StreamMessage = StreamMessage::Data { id: 0, is_short: false };
    const END: StreamMessage = StreamMessage::End { id: 0 };
    /// Bytes of which the kernel keeps some, since nobody reads them.
    static SAID: [u8; 200_000] = [7; 200_000];

    /// Has a connection take [`SAID`] and end in both directions; gives what its peer reads then.
    fn taken(feed: fn(&MessageChannel)) -> io::Result<Vec<u8>> {
        let (here, mut there) = connection();
        let (near, far) = joined();
        let mut streams = EventLoop::new(&near).unwrap();
        streams.add(0, Some(socket_fds(here).unwrap())).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| feed(&far));
            streams.run(&mut UntilStreamOver(&there)).unwrap();
        });
        let mut bytes = Vec::new();
        there.read_to_end(&mut bytes).map(|_| bytes)
    }

    fn say(to: &MessageChannel, message: &StreamMessage) {
        let bytes: &[u8] = if *message == DATA { &SAID } else { &[] };
        send_message(&to.sender(), message, bytes).unwrap();
    }

    fn heard(from: &MessageChannel) -> StreamMessage {
        let message = from.receiver().recv().unwrap().unwrap().into_bytes().unwrap();
        parse_message(&message).unwrap().0
    }

    #[test]
    fn a_connection_whose_directions_have_both_ended_loses_nothing() {
        let input_first = taken(|far| {
            say(far, &StreamMessage::Ready);
            assert_eq!(heard(far), END);
            say(far, &DATA);
            say(far, &END);
        });
        let output_first = taken(|far| {
            say(far, &DATA);
            say(far, &END);
            say(far, &StreamMessage::Ready);
        });
        // Who has sent all wants nothing more.
        let output_only = taken(|far| {
            say(far, &DATA);
            say(far, &END);
            say(far, &StreamMessage::Reset { id: 0 });
        });
        for taken in [input_first, output_first, output_only] {
            assert!(taken.unwrap() == SAID);
        }
    }

    /// Gives the loop a connection when it is told to, and waits until the stream is over.
    struct Connecting(EventSender, Option<TcpStream>);

    impl LoopOwner for Connecting {
        fn handle(&mut self, _: &mut EventLoop, event: OwnerEvent) -> Result<bool> {
            if matches!(event, OwnerEvent::Message(StreamMessage::Ready)) {
                let outcome = Ok(self.1.take().unwrap());
                self.0.send(LoopEvent::Connected { id: 0, outcome });
            }
            Ok(!matches!(event, OwnerEvent::StreamOver))
        }
    }

    /// What is said of a connection that fails as soon as it is written, since its peer has said
    /// `reply` and is gone without reading all.
    fn said_of_early_reply(reply: &[u8], ends: bool) -> Vec<(StreamMessage, usize)> {
        let (mut here, mut there) = connection();
        here.write_all(b"unread").unwrap();
        there.peek(&mut [0]).unwrap();
        there.write_all(reply).unwrap();
        if ends {
            there.shutdown(Shutdown::Write).unwrap();
        }
        drop(there);
        // The reset is here.
        poll(&mut [PollFd::new(&here, PollFlags::empty())], None).unwrap();
        let (near, far) = joined();
        let mut streams = EventLoop::new(&near).unwrap();
        streams.add(0, None).unwrap();
        // So it is written before it is read.
        say(&far, &DATA);
        say(&far, &StreamMessage::Ready);
        let mut owner = Connecting(streams.events(), Some(here));
        streams.run(&mut owner).unwrap();
        let mut said = Vec::new();
        while !matches!(said.last(), Some((StreamMessage::Reset { .. }, _))) {
            let message = far.receiver().recv().unwrap().unwrap().into_bytes().unwrap();
            let (message, bytes) = parse_message(&message).unwrap();
            said.push((message, bytes.len()));
        }
        said.retain(|(message, _)| !matches!(message, StreamMessage::Grant { .. }));
        said
    }

    #[test]
    fn a_reply_that_came_before_a_write_failed_is_passed_on() {
        let (reply, reset) = ((DATA, 3), (StreamMessage::Reset { id: 0 }, 0));
        assert_eq!(said_of_early_reply(b"413", false), [reply.clone(), reset.clone()]);
        // Its end is one only if the peer has ended it.
        assert_eq!(said_of_early_reply(b"413", true), [reply, (END, 0), reset]);
    }
}
