//! Timers of a connection (S-20, S-21).

use super::{ConnectionState, PendingReply, ShuttleConnection};
use crate::error::ConnectionEnd;
use crate::path::Path;

/// Unanswered Closes after which the peer is taken to be gone.
pub(super) const CLOSES_MAX: u32 = 6;
/// Keep-alive after 1/3 of the idle timeout: two may be lost, and address translators forget silent
/// flows.
const KEEP_ALIVE_DIVISOR: u64 = 3;
/// Longest silence before a keep-alive, 10 s.
const KEEP_ALIVE_NS_MAX: u64 = 10_000_000_000;
/// Part of that silence by which the responder waits longer: a Ping of the initiator and its
/// acknowledgement show both ends that the other is there, and two would wake both twice.
const RESPONDER_WAIT_PART: u64 = 4;

impl ShuttleConnection {
    /// Time at which [`ShuttleConnection::handle_timeout`] and then
    /// [`ShuttleConnection::poll_transmit`] are due.
    pub fn poll_timeout(&self) -> Option<u64> {
        match &self.state {
            ConnectionState::Requesting { began_ns, next_ns, doubt, .. } => {
                let over_ns = began_ns.saturating_add(self.config.handshake_ns);
                let doubt_ns = doubt.map_or(over_ns, |(at_ns, _)| at_ns);
                Some((*next_ns).min(over_ns).min(doubt_ns))
            }
            ConnectionState::Open { reply: Some(reply) } => Some(reply.until_ns),
            ConnectionState::Open { reply: None } => self.open_timeout(),
            ConnectionState::Closing { next_ns, .. } => {
                let challenge_ns = self.challenge_ns(&self.paths[0]);
                Some(challenge_ns.map_or(*next_ns, |at_ns| at_ns.min(*next_ns)))
            }
            ConnectionState::Ended { .. } => None,
        }
    }

    fn challenge_ns(&self, path: &Path) -> Option<u64> {
        path.challenge?.due_ns(self.challenge_octets_least())
    }

    fn open_timeout(&self) -> Option<u64> {
        let mut due_ns = u64::MAX;
        let mut or = |at_ns: Option<u64>| due_ns = due_ns.min(at_ns.unwrap_or(u64::MAX));
        for path in &self.paths {
            or(path.recovery.timeout_ns());
            or(path.arrivals.due_ns());
            or(self.challenge_ns(path));
        }
        or(self.streams.due_ns());
        or(self.send_at_ns);
        or(self.silence_ns());
        or(self.keep_alive_ns());
        (due_ns < u64::MAX).then_some(due_ns)
    }

    fn silence_ns(&self) -> Option<u64> {
        let idle_ns = self.session.as_ref().filter(|_| !self.is_watched)?.idle_ns;
        Some(self.heard_ns.saturating_add(idle_ns))
    }

    fn keep_alive_ns(&self) -> Option<u64> {
        let keeps = self.config.keep_alive && !self.is_watched;
        let idle_ns = self.session.as_ref().filter(|_| keeps)?.idle_ns;
        let wait_ns = (idle_ns / KEEP_ALIVE_DIVISOR).min(KEEP_ALIVE_NS_MAX).min(self.calm_ns);
        let longer_ns = if self.initiator { 0 } else { wait_ns / RESPONDER_WAIT_PART };
        Some(self.heard_ns.max(self.pinged_ns).saturating_add(wait_ns + longer_ns))
    }

    /// A keep-alive was sent or received: the next one of this end comes after twice the silence.
    pub(super) fn note_keep_alive(&mut self) {
        self.calm_ns = self.calm_ns.saturating_mul(2).min(KEEP_ALIVE_NS_MAX);
    }

    /// Handles expired timers.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        match self.state {
            ConnectionState::Requesting { began_ns, doubt, .. } => {
                if let Some((_, end)) = doubt.filter(|(at_ns, _)| *at_ns <= now_ns) {
                    self.end(now_ns, end);
                } else if now_ns >= began_ns.saturating_add(self.config.handshake_ns) {
                    self.withdraw(now_ns, ConnectionEnd::NoAnswer);
                }
            }
            ConnectionState::Open { reply: Some(PendingReply { until_ns, close, .. }) } => {
                if now_ns >= until_ns {
                    self.end(
                        now_ns,
                        close.map_or(ConnectionEnd::NoAnswer, |_| ConnectionEnd::Local),
                    );
                }
            }
            ConnectionState::Open { reply: None } => self.handle_open_timeout(now_ns),
            ConnectionState::Closing { next_ns, tries, .. } => {
                if next_ns <= now_ns && tries == CLOSES_MAX {
                    self.end(now_ns, ConnectionEnd::Silence);
                }
            }
            ConnectionState::Ended { .. } => {}
        }
    }

    fn handle_open_timeout(&mut self, now_ns: u64) {
        if self.silence_ns().is_some_and(|at| at <= now_ns) {
            self.end(now_ns, ConnectionEnd::Silence);
            return;
        }
        if self.keep_alive_ns().is_some_and(|at| at <= now_ns) {
            self.pinged_ns = now_ns;
            self.note_keep_alive();
            self.ask();
        }
        for at in 0..self.paths.len() {
            self.paths[at].handle_timeout(now_ns, &mut self.outcome);
            // The segments in flight here are also sent on the other paths (S-74).
            let silent = std::mem::take(&mut self.outcome.silent);
            if silent && self.paths.iter().any(Path::is_well) {
                self.paths[at].recovery.give_back(&mut self.outcome);
            }
        }
        self.apply_outcome(now_ns);
        self.schedule_queries(now_ns);
    }

    /// Schedules queries for streams that wait for the peer's frontier.
    pub(super) fn schedule_queries(&mut self, now_ns: u64) {
        let wait_ns = self.paths[self.lead()].recovery.probe_timeout_ns();
        self.streams.schedule_queries(now_ns, wait_ns);
    }
}
