//! How a Shuttle connection ends: by this side, by the peer, by a fault, or by silence.

use weft_rdmap::StreamFault;
use weft_shuttle::{ConnectionEnd, ShuttleEvent};
use weft_verbs::{Qp, QpFailure, QpState, QpType, WcStatus};
use weft_wire::terminate::{Terminate, TerminateCode};

use super::{STREAM, ShuttleQp};
use crate::event::{ConnEvent, Established, WhenClosed};

/// A close that has a Terminate code for its reason says so by this bit; 0 is an orderly one.
const TERMINATED: u64 = 1 << 16;

impl ShuttleQp {
    /// Refuses a request of the peer once it has the responses to those before. They need not be
    /// placed: the peer may hold them, with a request of this side that it refuses itself.
    pub(super) fn refuse_when_answered(&mut self, now_ns: u64) {
        if self.lane.is_some() || !self.rdmap.is_refusing() {
            return;
        }
        self.refused_since_ns.get_or_insert(now_ns);
        if self.rdmap.has_responses() {
            return;
        }
        let taken = self.connection.taken(STREAM);
        let last = *self.refused_after.get_or_insert(taken);
        if self.connection.has_arrived(STREAM, last) {
            self.refuse(now_ns);
        }
    }

    pub(super) fn refuse(&mut self, now_ns: u64) {
        if let Some(fault) = self.rdmap.take_refused() {
            self.fail(now_ns, fault);
        }
    }

    /// The peer is known to be gone.
    pub fn handle_unreachable(&mut self, now_ns: u64) {
        self.connection.handle_unreachable(now_ns);
        self.take_events(now_ns);
    }

    /// Ends the connection in good order: what is not acknowledged is flushed.
    pub fn close(&mut self, now_ns: u64) {
        if !self.rdmap.is_dead() {
            self.qp.failure().note(QpFailure::Disconnected);
        }
        self.fail(now_ns, StreamFault::Closed);
        // One that nobody has answered is over, and nothing is due any more that would find it so.
        self.take_events(now_ns);
    }

    pub(super) fn fail(&mut self, now_ns: u64, fault: StreamFault) {
        if self.rdmap.is_dead() {
            return;
        }
        self.held = false;
        // The application may use its memory otherwise once its requests are flushed.
        self.burst.restart();
        self.rdmap.fail(&self.qp, fault);
        let reason = self.rdmap.reason().map_or(0, |code| TERMINATED | u64::from(code.to_word()));
        self.connection.close(now_ns, reason);
    }

    pub(super) fn take_events(&mut self, now_ns: u64) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                ShuttleEvent::Established { private_data, ord, ird } => {
                    let established = Established { private_data, ord, ird };
                    self.events.push_back(ConnEvent::Established(established));
                }
                ShuttleEvent::Rejected { private_data } => self.refused = private_data,
                ShuttleEvent::PathValidated { path, route } => {
                    self.events.push_back(ConnEvent::PathFound { path, route });
                }
                ShuttleEvent::Ended(end) => self.handle_end(now_ns, end),
            }
        }
    }

    fn note_end(&mut self, end: ConnectionEnd) {
        self.end = Some(end);
        let private_data = std::mem::take(&mut self.refused);
        self.events.push_back(ConnEvent::Ended { end, private_data });
    }

    fn handle_end(&mut self, now_ns: u64, end: ConnectionEnd) {
        self.note_end(end);
        // A message without a receive is not for one that is posted later, nor is what follows it.
        if std::mem::take(&mut self.held) {
            self.lane = None;
        }
        // A refusal by the peer has a request of this side, which is to say so.
        let is_refused = matches!(end, ConnectionEnd::Peer(reason) if reason & TERMINATED != 0);
        if !is_refused {
            self.refuse(now_ns);
        }
        match end {
            ConnectionEnd::Peer(reason) if reason & TERMINATED != 0 => {
                let code = TerminateCode::from_word(reason as u16);
                self.fail(now_ns, StreamFault::Terminated(Terminate::bare(code)));
            }
            ConnectionEnd::Peer(_) | ConnectionEnd::Local
                if self.when_closed == WhenClosed::Fail =>
            {
                self.fail(now_ns, StreamFault::Closed);
            }
            ConnectionEnd::Peer(_) if self.qp.kind() != QpType::Uc => self.left_ns = Some(now_ns),
            _ => self.look_for_orphans(now_ns),
        }
    }

    /// A request that can never be delivered fails; without one the queue pair is none the wiser.
    /// Of ends that cannot agree the owner hears first.
    pub(super) fn look_for_orphans(&mut self, now_ns: u64) {
        let told = !matches!(
            self.end,
            None | Some(ConnectionEnd::Stranger | ConnectionEnd::NothingInCommon)
        );
        let gone = told && !self.rdmap.is_dead();
        let due = self.left_ns.is_none() || self.orphans_due_ns().is_some_and(|at| at <= now_ns);
        if gone && due && self.qp.state() != QpState::Err && !self.qp.sq().is_idle() {
            self.give_up(now_ns);
        }
    }

    /// The peer is gone: what is reliable fails, of the rest nobody hears.
    pub(super) fn give_up(&mut self, now_ns: u64) {
        if self.qp.kind() != QpType::Uc {
            self.fail(now_ns, StreamFault::Unreachable);
            return;
        }
        if self.end.is_none() {
            self.note_end(ConnectionEnd::Silence);
        }
        self.burst.restart();
        self.connection.close(now_ns, 0);
        self.qp.sq().let_go(self.qp.num(), self.qp.send_cq());
    }
}

/// Fails a queue pair whose peer never came to a connection: its oldest request says so. Of what is
/// unreliable nobody hears.
pub fn give_up(qp: &Qp) {
    let mut sq = qp.sq();
    if qp.kind() == QpType::Uc {
        sq.let_go(qp.num(), qp.send_cq());
        return;
    }
    let tail = sq.tail();
    qp.failure().note(QpFailure::Unreachable);
    sq.fail(tail, qp.num(), qp.send_cq(), WcStatus::RetryExcErr, 0);
    drop(sq);
    qp.fail(None);
}
