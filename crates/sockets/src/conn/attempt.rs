//! A connect in progress: what SDP and TCP have answered, and what follows from that.

use std::net::SocketAddr;
use std::time::Duration;

use weft_os::clock::Moment;

use super::waiter::ConnectWaiter;
use crate::fabric::Fabric;
use crate::near::{self, TcpUse};
use crate::strict;

/// How long the connect by TCP waits for the answer by SDP where that comes first.
const SDP_FIRST_LIMIT: Duration = Duration::from_millis(500);

/// The result of a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// SDP carries the connection.
    Sdp,
    /// TCP, for this reason; an empty one if TCP itself has failed.
    Tcp(&'static str),
    /// Neither, for this reason: TCP is forbidden.
    Neither(&'static str),
}

/// State of the connect by TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TcpLeg {
    Idle,
    Calling,
    Up { since: Moment, took: Duration, is_near: bool },
    Failed,
}

/// State of the connect by SDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SdpLeg {
    Asked,
    Agreed,
    Refused(&'static str),
}

/// How far a connect is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptProgress {
    /// Parts of the connection are missing.
    Preparing,
    /// TCP, SDP or both have not answered.
    Waiting,
    Decided(Decision),
}

/// A connect in progress: the answers so far, and the time limits.
pub struct ConnectAttempt {
    /// The address of the peer.
    pub remote: SocketAddr,
    /// The fabric that carries SDP.
    pub fabric: Fabric,
    tcp_use: TcpUse,
    /// Least time for the answer by SDP.
    limit: Duration,
    began: Moment,
    tcp: TcpLeg,
    sdp: SdpLeg,
    progress: AttemptProgress,
    /// The thread of the application that waits for the decision.
    waiter: Option<ConnectWaiter>,
    /// stderr has a line that says why the peer is not reached.
    is_reported: bool,
}

impl ConnectAttempt {
    /// A connect to `remote` that begins at `now`. `limit` is the least time for the answer by SDP.
    pub fn new(
        remote: SocketAddr,
        fabric: Fabric,
        tcp_use: TcpUse,
        limit: Duration,
        now: Moment,
    ) -> Self {
        Self {
            remote,
            fabric: Fabric {
                sdp_first: fabric.sdp_first || tcp_use == TcpUse::Forbidden,
                ..fabric
            },
            tcp_use,
            limit,
            began: now,
            tcp: TcpLeg::Idle,
            sdp: SdpLeg::Asked,
            progress: AttemptProgress::Preparing,
            waiter: None,
            is_reported: false,
        }
    }

    /// All parts of the connection are there. `waiter` is woken by the decision.
    pub fn begin_waiting(&mut self, waiter: Option<ConnectWaiter>) {
        self.waiter = waiter;
        self.progress = AttemptProgress::Waiting;
    }

    /// No thread waits any more; the application polls its socket.
    pub fn stop_waiting(&mut self) {
        self.waiter = None;
    }

    /// The thread that waits for the decision, or has not taken it.
    pub fn waiter(&self) -> Option<&ConnectWaiter> {
        self.waiter.as_ref()
    }

    /// Whether a decision can be made, and is not.
    pub fn is_waiting(&self) -> bool {
        self.progress == AttemptProgress::Waiting
    }

    /// The decision; none before it is made.
    pub fn decision(&self) -> Option<Decision> {
        match self.progress {
            AttemptProgress::Decided(decision) => Some(decision),
            AttemptProgress::Preparing | AttemptProgress::Waiting => None,
        }
    }

    /// The connect has come to this.
    pub fn decide(&mut self, decision: Decision) {
        self.progress = AttemptProgress::Decided(decision);
    }

    /// The connect by TCP begins at `now`.
    pub fn call_tcp(&mut self, now: Moment) {
        (self.tcp, self.began) = (TcpLeg::Calling, now);
    }

    /// The connect by TCP has succeeded at `now`. `rtt` is the kernel's, if it has measured one.
    pub fn end_tcp(&mut self, now: Moment, rtt: Option<Duration>) {
        let is_near = rtt.is_some_and(|rtt| rtt < near::NEAR_RTT);
        self.tcp = TcpLeg::Up { since: now, took: now - self.began, is_near };
    }

    /// The connect by TCP has failed.
    pub fn fail_tcp(&mut self) {
        self.tcp = TcpLeg::Failed;
    }

    /// Whether the peer is near and nothing asks for SDP.
    pub fn is_for_tcp(&self) -> bool {
        let is_near = matches!(self.tcp, TcpLeg::Up { is_near: true, .. });
        is_near && self.tcp_use == TcpUse::WhereNear
    }

    /// Whether the connect by TCP awaits its answer.
    pub fn is_calling_tcp(&self) -> bool {
        self.tcp == TcpLeg::Calling
    }

    /// Whether the connect by TCP has failed.
    pub fn has_tcp_failed(&self) -> bool {
        self.tcp == TcpLeg::Failed
    }

    /// The peer has agreed to SDP.
    pub fn agree(&mut self) {
        self.sdp = SdpLeg::Agreed;
    }

    /// The peer has refused SDP, or has left. `is_reported` says that stderr has a line about it.
    pub fn refuse(&mut self, why: &'static str, is_reported: bool) {
        self.sdp = SdpLeg::Refused(why);
        self.is_reported |= is_reported;
    }

    /// Whether the peer has agreed to SDP.
    pub fn has_agreed(&self) -> bool {
        self.sdp == SdpLeg::Agreed
    }

    /// Whether the peer has refused SDP, or has left.
    pub fn is_refused(&self) -> bool {
        matches!(self.sdp, SdpLeg::Refused(_))
    }

    /// Whether the peer may still answer by SDP.
    pub fn is_unanswered(&self) -> bool {
        self.sdp == SdpLeg::Asked && self.tcp != TcpLeg::Failed
    }

    /// Whether stderr has a line that says why the peer is not reached.
    pub fn is_reported(&self) -> bool {
        self.is_reported
    }

    /// The decision at `now`, or the time of the next look at it, if time alone changes it.
    pub fn judge(&self, now: Moment) -> Result<Decision, Option<Moment>> {
        let first =
            if self.tcp_use == TcpUse::Forbidden { strict::ANSWER_LIMIT } else { SDP_FIRST_LIMIT };
        let until = match (self.tcp, self.sdp) {
            (TcpLeg::Failed, _) => return Ok(Decision::Tcp("")),
            _ if self.is_for_tcp() => return Ok(Decision::Tcp(near::NEAR)),
            (_, SdpLeg::Refused(why)) => return self.once_it_can_be_polled(self.without_sdp(why)),
            (TcpLeg::Up { .. }, SdpLeg::Agreed) => return Ok(Decision::Sdp),
            // The answer may take another of TCP's round trips.
            (TcpLeg::Up { since, took, .. }, SdpLeg::Asked) => since + took.max(self.limit),
            (TcpLeg::Idle, _) => self.began + first.max(self.limit),
            (TcpLeg::Calling, _) => return Err(None),
        };
        if now < until {
            return Err(Some(until));
        }
        self.once_it_can_be_polled(self.without_sdp("it does not answer"))
    }

    /// Makes `decision`, or waits for the answer by TCP if it is for that and no thread waits for
    /// the decision. A thread that sleeps in `poll` or `select` is woken when the TCP socket is put
    /// back. It looks at that socket then, but would not be woken by its events.
    fn once_it_can_be_polled(&self, decision: Decision) -> Result<Decision, Option<Moment>> {
        let has_answered = matches!(self.tcp, TcpLeg::Up { .. } | TcpLeg::Failed);
        let is_for_tcp = matches!(decision, Decision::Tcp(_));
        if is_for_tcp && !has_answered && self.waiter.is_none() {
            return Err(None);
        }
        Ok(decision)
    }

    /// Whether the connect by TCP has to begin at `now`: the peer has agreed to SDP, or TCP takes
    /// its place.
    pub fn is_tcp_due(&self, now: Moment) -> bool {
        self.tcp == TcpLeg::Idle && (self.has_agreed() || self.judge(now) == Err(None))
    }

    fn without_sdp(&self, why: &'static str) -> Decision {
        match self.tcp_use {
            TcpUse::Forbidden => Decision::Neither(why),
            TcpUse::Fallback | TcpUse::WhereNear => Decision::Tcp(why),
        }
    }

    /// When a silent peer is to be reported, which cannot be reached by TCP.
    pub fn report_due(&self) -> Option<Moment> {
        let silent =
            self.tcp_use == TcpUse::Forbidden && !self.is_reported && self.sdp != SdpLeg::Agreed;
        silent.then(|| self.began + strict::REPORTED_AFTER)
    }

    /// stderr has a line that says why the peer is not reached.
    pub fn set_reported(&mut self) {
        self.is_reported = true;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::conn::waiter::SocketBefore;
    use crate::sys;
    use near::NEAR_RTT;

    const LIMIT: Duration = Duration::from_millis(50);
    const TOOK: Duration = Duration::from_millis(80);

    fn attempt(tcp_use: TcpUse) -> (ConnectAttempt, Moment) {
        let now = weft_os::clock::now();
        let remote = SocketAddr::from(([192, 0, 2, 1], 80));
        (ConnectAttempt::new(remote, Fabric::new(true), tcp_use, LIMIT, now), now)
    }

    #[test]
    fn both_answers_make_it_sdp() {
        let (mut attempt, began) = attempt(TcpUse::Fallback);
        attempt.agree();
        assert_eq!(attempt.judge(began), Err(Some(began + SDP_FIRST_LIMIT)));
        attempt.call_tcp(began);
        assert_eq!(attempt.judge(began), Err(None));
        attempt.end_tcp(began + TOOK, Some(NEAR_RTT / 2));
        assert_eq!(attempt.judge(began + TOOK), Ok(Decision::Sdp));
    }

    #[test]
    fn a_peer_that_is_near_is_left_to_tcp_where_nothing_asks_for_sdp() {
        for (tcp_use, rtt, decision) in [
            (TcpUse::WhereNear, Some(NEAR_RTT / 2), Decision::Tcp(near::NEAR)),
            (TcpUse::WhereNear, Some(NEAR_RTT), Decision::Sdp),
            (TcpUse::WhereNear, None, Decision::Sdp),
            (TcpUse::Forbidden, Some(NEAR_RTT / 2), Decision::Sdp),
        ] {
            let (mut attempt, began) = attempt(tcp_use);
            attempt.call_tcp(began);
            attempt.agree();
            attempt.end_tcp(began + TOOK, rtt);
            assert_eq!(attempt.judge(began + TOOK), Ok(decision), "{tcp_use:?} {rtt:?}");
        }
    }

    #[test]
    fn a_late_answer_leaves_the_connection_to_tcp() {
        let (mut attempt, began) = attempt(TcpUse::Fallback);
        attempt.call_tcp(began);
        attempt.end_tcp(began + TOOK, Some(NEAR_RTT / 2));
        assert_eq!(attempt.judge(began + TOOK), Err(Some(began + TOOK + TOOK)));
        let late = attempt.judge(began + TOOK + TOOK);
        assert_eq!(late, Ok(Decision::Tcp("it does not answer")));
        assert!(attempt.is_unanswered());
    }

    #[test]
    fn a_refusal_counts_after_an_agreement_too() {
        let (mut attempt, began) = attempt(TcpUse::Fallback);
        attempt.agree();
        attempt.call_tcp(began);
        attempt.end_tcp(began, None);
        attempt.refuse("SDP has failed", false);
        assert_eq!(attempt.judge(began), Ok(Decision::Tcp("SDP has failed")));
        attempt.fail_tcp();
        assert_eq!(attempt.judge(began), Ok(Decision::Tcp("")));
    }

    #[test]
    fn an_application_that_polls_has_its_tcp_socket_once_that_has_answered() {
        for refused in [false, true] {
            let (mut attempt, began) = attempt(TcpUse::Fallback);
            let later = if refused { began } else { began + SDP_FIRST_LIMIT };
            if refused {
                attempt.refuse("it does not take SDP", false);
            }
            assert_eq!(attempt.judge(later), Err(None));
            assert!(attempt.is_tcp_due(later));
            attempt.call_tcp(later);
            assert!(attempt.judge(later) == Err(None) && !attempt.is_tcp_due(later));
            attempt.end_tcp(later + TOOK, None);
            let decision = attempt.judge(later + TOOK + TOOK);
            assert!(matches!(decision, Ok(Decision::Tcp(_))), "{refused}");
        }
    }

    #[test]
    fn a_thread_that_waits_leaves_the_call_by_tcp_to_the_kernel() {
        let (mut attempt, began) = attempt(TcpUse::Fallback);
        let tcp = sys::tcp_socket(true).unwrap();
        let before = SocketBefore::of(tcp.as_raw_fd()).unwrap();
        attempt.begin_waiting(Some(ConnectWaiter::new(sys::event().unwrap(), before, false)));
        attempt.refuse("it does not take SDP", false);
        assert_eq!(attempt.judge(began), Ok(Decision::Tcp("it does not take SDP")));
        attempt.call_tcp(began);
        assert_eq!(attempt.judge(began), Ok(Decision::Tcp("it does not take SDP")));
    }

    #[test]
    fn where_tcp_is_forbidden_nothing_takes_its_place() {
        let (mut attempt, began) = attempt(TcpUse::Forbidden);
        assert_eq!(attempt.report_due(), Some(began + strict::REPORTED_AFTER));
        assert_eq!(attempt.judge(began), Err(Some(began + strict::ANSWER_LIMIT)));
        let silent = attempt.judge(began + strict::ANSWER_LIMIT);
        assert_eq!(silent, Ok(Decision::Neither("it does not answer")));
        attempt.refuse("it does not take SDP", true);
        assert_eq!(attempt.judge(began), Ok(Decision::Neither("it does not take SDP")));
        assert_eq!(attempt.report_due(), None);
    }
}
