//! Connections in the hands of whoever drives them: what arrives, what leaves, and what follows.
//!
//! A [`Drive`] is a connection with its socket: [`stream`] over TCP, [`datagram`] over UDP; or, as
//! [`mirror`], none at all.
//!
//! Order of calls: [`Drive::register`] once; then [`Drive::work`] with what there is to do, then
//! [`Drive::conclude`], whose [`Notices`] are told in their order, once the lock is gone.

pub(crate) mod cm_hook;
pub(crate) mod datagram;
pub(crate) mod mirror;
pub(crate) mod stream;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use weft_reactor::{Source, Token};
use weft_rnic::shuttle::{End, Route};
use weft_rnic::wire::capability::Capabilities;
use weft_rnic::{Established, RetryLimits};
use weft_verbs::{Qp, Wake};

use crate::device_kind::Personality;
use crate::engine::Engine;
use crate::tally::{Tally, Work};

/// What there is to do on a connection.
pub(crate) mod todo {
    /// Something is to be sent.
    pub const SEND: u8 = 1;
    /// Something may have arrived.
    pub const RECEIVE: u8 = 2;
    /// A timer may be due.
    pub const TIME: u8 = 4;
    /// The socket has room again.
    pub const WRITABLE: u8 = 8;
    /// A receive was posted that a message waits for.
    pub const POSTED: u8 = 16;
}

/// Learns what becomes of a connection.
pub trait LinkWatcher: Send + Sync {
    /// The first message of the peer arrived; at once for an initiator. Over TCP only.
    fn established(&self);
    /// How the handshake ended. Over Shuttle only.
    fn answered(&self, _answer: Answer) {}
    /// The connection is over, after it was established. Called once.
    fn disconnected(&self);
}

/// How the handshake of a connection over Shuttle ended.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The peer granted the connection, or has shown that it knows that it was granted.
    Granted(Established),
    /// The peer refused it.
    Refused {
        /// Why.
        reason: u16,
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// The peer's host says that nobody takes Requests there.
    Nobody,
    /// It came to nothing.
    None(End),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(_) => f.write_str("established"),
            Self::Refused { reason, .. } => write!(f, "refused by the peer, reason {reason}"),
            Self::Nobody => f.write_str("the peer's host says that nobody is there"),
            Self::None(end) => write!(f, "{end}"),
        }
    }
}

/// Whose turn it is on a connection.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// A polling thread looks after it, and the engine does not.
    pub leased: bool,
    /// That thread polls in a loop: what is only to be acknowledged may wait for its next call,
    /// which likely brings something to send with it.
    pub patient: bool,
    /// The socket takes no more for now.
    pub blocked: bool,
    /// When the engine calls next.
    pub timer: Option<Instant>,
    /// What of its work is in the tally.
    pub noted: Work,
}

impl Turn {
    /// Wants the engine to call at `due` at the latest; whether it must be told.
    fn wants(&mut self, due: Instant) -> bool {
        let sooner = self.timer.is_none_or(|timer| due < timer);
        if sooner {
            self.timer = Some(due);
        }
        sooner
    }

    /// Has `source` called at `due` at the latest.
    pub fn set_timer(&mut self, due: Instant, source: &Weak<dyn Source>) {
        if self.wants(due) {
            Engine::get().set_timer(due, Weak::clone(source));
        }
    }

    /// The engine calls. It also does so for timers that sooner ones have replaced: were those
    /// taken for the one that counts, each would bring another, and they would be ever more.
    pub fn heed_timer(&mut self, now: Instant) {
        self.timer = self.timer.filter(|timer| *timer > now);
    }
}

/// A connection and its socket.
pub(crate) trait Drive: Send {
    /// Has the engine watch the socket for `source`.
    fn register(&mut self, source: Arc<dyn Source>);
    /// Who does what below the verbs, once there is a connection.
    fn capabilities(&self) -> Option<Capabilities>;
    /// Which device it belongs to, and what was done on it so far.
    fn work_done(&self) -> (Personality, Work);
    /// Its queue pair.
    fn qp(&self) -> &Arc<Qp>;
    /// Puts the bad wire of the queue pair `number` before its socket, if it has one.
    fn spoil(&mut self, number: u32);
    /// Has the peer vanish, as far as this side can tell.
    fn lose_peer(&mut self);
    /// Says what the program set for its requests: how many Reads and Atomics may be outstanding,
    /// and how long a request waits for a peer that does not answer.
    fn set_requester(&mut self, _ord: u16, _patience: RetryLimits) {}
    /// Has messages wait for their receives without end; over TCP.
    fn wait_for_recv_forever(&mut self) {}
    /// Whose turn it is.
    fn turn(&mut self) -> &mut Turn;
    /// Whether nothing is left of the connection.
    fn is_over(&self) -> bool;
    /// What a polling thread should do.
    fn look(&self) -> u8;
    /// Whether something has arrived that nobody has received.
    fn has_arrivals(&self) -> bool;
    /// Whether something waits for the next call of the thread that polls, to leave with it.
    fn has_unsaid(&self) -> bool {
        false
    }
    /// Takes a datagram that reached another socket than its own; over Shuttle.
    fn hear(&mut self, _from: (Route, bool), _datagram: &mut [u8]) {}
    /// Does what `work` says.
    fn work(&mut self, work: u8, now: Instant);
    /// Receives; whether there was nothing, so that nothing follows from it either.
    fn finds_nothing(&mut self, now: Instant) -> bool;
    /// Goes to another queue pair before anything was sent, to be registered anew; over Shuttle.
    fn rebind(&mut self, _qp: Arc<Qp>, _waker: Weak<dyn Wake>) {}
    /// Ends the connection in good order.
    fn disconnect(&mut self);
    /// Ends the connection without waiting for the peer.
    fn abandon(&mut self);
    /// Adds what was done since the last call to the tally.
    fn note_work(&mut self, tally: &Tally) {
        let (personality, done) = self.work_done();
        tally.note_since(personality, done, &mut self.turn().noted);
    }
    /// Draws the conclusions: what to tell, whom to watch for, when to wake.
    fn conclude(&mut self, now: Instant, this: &Weak<dyn Source>) -> Notices;
    /// Sees to it that what was completed reaches the peer although the process ends.
    fn flush_at_exit(&mut self, until: Instant);
}

/// What to tell the watcher once the lock is gone, in this order.
#[derive(Default)]
pub(crate) struct Notices {
    pub established: Option<Arc<dyn LinkWatcher>>,
    pub answered: Option<(Arc<dyn LinkWatcher>, Answer)>,
    pub disconnected: Option<Arc<dyn LinkWatcher>>,
    pub finished: Option<Token>,
    /// The connection, of which nothing is left: its socket is closed once the engine has let go
    /// of it.
    pub over: Option<Box<dyn Drive>>,
}

impl Notices {
    pub fn are_none(&self) -> bool {
        let Self { established, answered, disconnected, finished, over } = self;
        let told = established.is_some() || answered.is_some() || disconnected.is_some();
        !told && finished.is_none() && over.is_none()
    }

    /// Tells them, but for the end of `over`, which this gives.
    pub fn tell(self) -> Option<Box<dyn Drive>> {
        if let Some(watcher) = self.established {
            watcher.established();
        }
        if let Some((watcher, answer)) = self.answered {
            watcher.answered(answer);
        }
        if let Some(watcher) = self.disconnected {
            watcher.disconnected();
        }
        if let Some(token) = self.finished {
            Engine::get().remove(token);
        }
        self.over
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timers_that_sooner_ones_replace_do_not_become_more() {
        let (start, ms) = (weft_os::clock::now(), Duration::from_millis);
        let (mut turn, mut engine) = (Turn::default(), Vec::new());
        for step in 0..1000 {
            let now = start + ms(step);
            let (due, later): (Vec<_>, Vec<_>) = engine.into_iter().partition(|at| *at <= now);
            engine = later;
            // It always wants to be called in 10 ms, and after each call in 2 ms for once.
            for _ in due {
                turn.heed_timer(now);
                engine.extend(turn.wants(now + ms(10)).then_some(now + ms(10)));
            }
            engine.extend(turn.wants(now + ms(2)).then_some(now + ms(2)));
            assert!(turn.timer.is_some_and(|at| engine.contains(&at)));
            assert!(engine.len() <= 12, "{} timers at {step} ms", engine.len());
        }
    }
}
