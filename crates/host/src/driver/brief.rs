//! Brief steps: a thread that polls or posts moves what a lane carries, and nothing else.
//!
//! A step sees to all that may have come about on a connection: timers, events, the socket beside a
//! lane, what the reactor is to watch for, notices. Of a connection by a lane that a thread polls,
//! nearly every step has none of it, and all of it together takes longer than a short message does.
//!
//! It makes no call of the C library in which a thread can be cancelled.
//!
//! Invariant: a brief step that counts as [`Brief::Done`] leaves nothing that a whole one would
//! have done now. One that has moved something and does not leaves a mark ([`AckDue::Pending`]), by
//! which the next look at the connection becomes a whole step.
//!
//! Order of calls: [`Driver::step_briefly`] under the lock of the connection, with no flag of work
//! left; then the flags that others have left meanwhile, or a whole step.

use std::time::Duration;

use weft_os::clock::{Moment, moment_at, ns_at};
use weft_rnic::{Conn, Sending, earliest};

use super::lane::LaneLink;
use super::phase::Phase;
use super::transport::{AckDue, Core};
use super::{AnySocket, Driver};

/// So long after a brief step a whole one comes at the latest, which counts what was done: a count
/// that other processes see is written too seldom to slow down what it counts.
const UNCOUNTED: Duration = Duration::from_millis(10);

/// What came of a brief step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brief {
    /// There was nothing to do.
    Nothing,
    /// All that there was to do.
    Done,
    /// A whole step is to follow, or to find out whether there is anything to do.
    Whole,
}

impl Driver {
    /// Moves what is in the lane of a connection that a thread polls, and what is to be sent if it
    /// `sends` or something has arrived.
    pub fn step_briefly(&mut self, sends: bool, now: Moment) -> Brief {
        if !self.core.is_plain(now) {
            return Brief::Whole;
        }
        let link = match &mut self.socket {
            AnySocket::Lane(socket) => socket.plain_link(),
            AnySocket::Shuttle(socket) => socket.plain_link(sends),
            AnySocket::Tcp(_) | AnySocket::Ud(_) | AnySocket::None => None,
        };
        match link {
            Some(link) => link.exchange(&mut self.core, sends, now),
            None => Brief::Whole,
        }
    }
}

impl Core {
    /// Whether a step finds nothing but segments: a thread polls, nothing is due or waits, and
    /// nobody traces what is done.
    fn is_plain(&self, now: Moment) -> bool {
        self.schedule.leased
            && !self.schedule.blocked
            && self.phase == Phase::Open
            && self.reply == AckDue::None
            && !self.is_due(now)
            && !self.has_stopped()
            && !self.waits_for_recv()
            && self.host.events().trace().is_none()
    }
}

impl LaneLink {
    /// Moves segments both ways.
    fn exchange(&mut self, core: &mut Core, sends: bool, now: Moment) -> Brief {
        if self.lane.is_bell_due() {
            return Brief::Whole;
        }
        let has_news = self.lane.has_arrivals() || self.lane.has_acks();
        let received = has_news && self.receive_once(core, now);
        let sends = sends || received && core.conn.as_ref().is_some_and(Conn::may_send);
        let is_sent = !sends || self.send_once(core, now);
        let is_over = self.is_over() || self.is_abandoned();
        let flowing = core.conn.as_ref().filter(|conn| is_sent && !is_over && conn.is_flowing());
        let Some(conn) = flowing else {
            // What it was about is not there to be found any more, but something follows from it.
            if received || sends {
                core.reply = AckDue::Pending;
            }
            return Brief::Whole;
        };
        if !received && !sends {
            return Brief::Nothing;
        }
        let ack_due = conn.lane_ack_due_ns().map(moment_at);
        core.due = earliest([core.due, ack_due, Some(now + UNCOUNTED)]);
        Brief::Done
    }

    /// Sends what there is; whether that was all, and the lane is of use.
    fn send_once(&mut self, core: &mut Core, now: Moment) -> bool {
        let sent = core.conn.as_mut().map(|conn| conn.transmit_to(&mut *self.lane, ns_at(now)));
        sent.is_some_and(|outcome| outcome == Sending::Done)
    }
}
