//! What happens outside of the loop, until the loop takes it.
//!
//! Invariant: messages of the peer that wait take `MESSAGES_MAX` bytes and one message at most:
//! who brings more waits. Other events are as few as the descriptors of this process.
//!
//! Two ends that both wait until the other takes a message must not wait for each other. So a loop
//! reads no stream while an eighth of the limit waits (`EventSender::is_behind`). If the peer
//! waits, too, what comes is what the channel holds already, and answers, grants and resets: these
//! are short, nothing answers them, and the rest of the limit has room for all.
//!
//! Order: [`EventSender::send`] and `bring` by any thread; `next` by the loop; `close` when that is
//! gone.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use weft_sync::{Condvar, Mutex};

/// Bytes of messages that wait for the loop, at most: an eighth, and what the memory of a channel
/// over UDP may hold, 256 MiB.
pub(crate) const MESSAGES_MAX: usize = 320 << 20;
/// Part of that which waits when the loop reads no streams any more.
const BEHIND_PART: usize = 8;

/// What happens outside of the loop.
pub enum LoopEvent {
    /// A message of the peer.
    Message(Vec<u8>),
    /// The channel is over, with a reason if it has failed.
    ChannelEnd(Option<String>),
    /// A connection was made for a stream of the peer's.
    Connected {
        /// Number of the stream.
        id: u64,
        /// The connection.
        outcome: io::Result<TcpStream>,
    },
    /// A connection was taken for a forward.
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
}

impl LoopEvent {
    /// Bytes of memory that it takes if it is a message; short ones take most in the queue.
    fn octets(&self) -> usize {
        match self {
            Self::Message(bytes) => bytes.len() + 2 * size_of::<Self>(),
            _ => 0,
        }
    }
}

#[derive(Default)]
struct WaitingEvents {
    events: VecDeque<LoopEvent>,
    /// Of the messages among them.
    octets: usize,
    /// Somebody waits for room.
    is_awaited: bool,
    is_closed: bool,
}

struct EventQueue {
    waiting: Mutex<WaitingEvents>,
    has_room: Condvar,
    wake: OwnedFd,
    max_octets: usize,
}

/// Gives events to a loop, from any thread.
#[derive(Clone)]
pub struct EventSender(Arc<EventQueue>);

impl EventSender {
    /// To a queue whose loop `wake` wakes, which is an `eventfd`. Messages may take `max_octets`.
    pub(crate) fn new(wake: OwnedFd, max_octets: usize) -> Self {
        let (waiting, has_room) = (Mutex::default(), Condvar::new());
        Self(Arc::new(EventQueue { waiting, has_room, wake, max_octets }))
    }

    /// Gives an event. It is dropped if the loop is gone.
    pub fn send(&self, event: LoopEvent) {
        let mut waiting = self.0.waiting.lock();
        if waiting.is_closed {
            return;
        }
        waiting.octets += event.octets();
        waiting.events.push_back(event);
        drop(waiting);
        // It fails only if the loop is woken already.
        let _ = rustix::io::write(&self.0.wake, &1_u64.to_ne_bytes());
    }

    /// Gives a message of the peer, and waits first while there is no room for it.
    pub(crate) fn bring(&self, message: Vec<u8>) {
        let is_full = |waiting: &mut WaitingEvents| {
            waiting.is_awaited = waiting.octets >= self.0.max_octets && !waiting.is_closed;
            waiting.is_awaited
        };
        drop(self.0.has_room.wait_while(self.0.waiting.lock(), is_full));
        self.send(LoopEvent::Message(message));
    }

    /// Whether so much waits that the loop should send nothing but answers.
    pub(crate) fn is_behind(&self) -> bool {
        self.0.waiting.lock().octets >= self.0.max_octets / BEHIND_PART
    }

    /// How many events wait. What is given after this call wakes the loop again.
    pub(crate) fn rest(&self) -> usize {
        let mut count = [0; 8];
        // Only how often it was rung.
        let _ = rustix::io::read(&self.0.wake, &mut count);
        self.0.waiting.lock().events.len()
    }

    /// Takes the event that has waited longest.
    pub(crate) fn next(&self) -> Option<LoopEvent> {
        let mut waiting = self.0.waiting.lock();
        let event = waiting.events.pop_front()?;
        waiting.octets -= event.octets();
        if waiting.is_awaited {
            self.0.has_room.notify_all();
        }
        Some(event)
    }

    /// The loop is gone: nothing waits for it any more.
    pub(crate) fn close(&self) {
        let mut waiting = self.0.waiting.lock();
        *waiting = WaitingEvents { is_closed: true, ..WaitingEvents::default() };
        self.0.has_room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::event::{EventfdFlags, eventfd};
    use weft_testkit::{LIMIT, now};

    use super::*;

    const MESSAGE: usize = 1000;
    const COUNT: usize = 100;

    fn queue() -> EventSender {
        EventSender::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap(), 10 * MESSAGE)
    }

    fn until(happened: impl Fn() -> bool) {
        let deadline = now() + LIMIT;
        while !happened() {
            assert!(now() < deadline, "it does not happen");
            thread::yield_now();
        }
    }

    fn bring_all(queue: &EventSender) {
        (0..COUNT).for_each(|_| queue.bring(vec![0; MESSAGE]));
    }

    #[test]
    fn who_brings_more_than_may_wait_waits_for_the_loop() {
        let queue = queue();
        thread::scope(|scope| {
            let bringing = scope.spawn(|| bring_all(&queue));
            until(|| queue.0.waiting.lock().is_awaited || bringing.is_finished());
            assert!(!bringing.is_finished());
            assert!(queue.0.waiting.lock().octets <= 11 * MESSAGE && queue.is_behind());
            let mut taken = 0;
            while taken < COUNT {
                taken += usize::from(queue.next().is_some());
            }
        });
        assert!(queue.next().is_none() && !queue.is_behind());
    }

    #[test]
    fn who_waits_goes_on_when_the_loop_is_gone() {
        let queue = queue();
        thread::scope(|scope| {
            scope.spawn(|| bring_all(&queue));
            until(|| queue.0.waiting.lock().is_awaited);
            queue.close();
        });
        assert!(queue.next().is_none());
    }
}
