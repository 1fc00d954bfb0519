//! How long the requests of a queue pair wait for a peer that is silent, and for one that posts no
//! receive.
//!
//! InfiniBand counts repetitions: a packet that nobody acknowledges leaves again after the timeout,
//! and one that found no receive after the time that its answer named. Shuttle repeats as the path
//! asks for, so what is kept of the counts is the time that they take together.
//!
//! A message without a receive waits for one (`weft_rdmap::Placed::Held`). iWARP has no "receiver
//! not ready", but applications written for InfiniBand rely on it: over TCP the stream is not read
//! for a second, then the Terminate of RFC 5041 reports that there was no buffer; SDP needs no such
//! limit and has none. Over Shuttle the message waits as long as `rnr_retry` allows, and responses
//! pass it (S-35, S-38).

use weft_rdmap::RnrWait;
use weft_shuttle::cc::Rtt;
use weft_verbs::QpAttr;

/// A peer on this network is given at least this long: its process may wait for a processor.
const LOCAL_NS: u64 = 2_000_000_000;
/// One on a long path, or one that has never answered: applications choose their timeouts for a
/// machine room, and long paths have outages.
const FAR_NS: u64 = 10_000_000_000;
/// A shorter round trip is a local network.
const LOCAL_RTT_NS: u64 = 1_000_000;
/// The count of repetitions without a receive that means for ever.
const FOR_EVER: u8 = 7;

/// The time in nanoseconds that a silent peer is given at least.
pub(crate) fn patience_ns(rtt: Option<Rtt>) -> u64 {
    let is_local = rtt.is_some_and(|rtt| rtt.min_ns < LOCAL_RTT_NS);
    if is_local { LOCAL_NS } else { FAR_NS }
}

/// How long a peer may be silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryLimits {
    /// Acknowledgement timeout: 4.096 us times two to the power of this; 0 is for ever.
    pub timeout_exp: u8,
    /// How often what is not acknowledged is repeated.
    pub retry_cnt: u8,
    /// A request does not fail earlier than after so many nanoseconds, whatever the counts say.
    pub least_ns: u64,
}

impl RetryLimits {
    /// The time in nanoseconds on a path with the round trip `rtt`, if that is known; `None` is for
    /// ever.
    pub fn limit_ns(&self, rtt: Option<Rtt>) -> Option<u64> {
        if self.timeout_exp == 0 {
            return None;
        }
        Some(self.tries_ns().max(patience_ns(rtt)).max(self.least_ns))
    }

    /// The time in nanoseconds after which a request fails whose peer has said that it is gone.
    /// It would have been repeated until then, and applications count on that: one that has enough
    /// completions ends while requests of its peer are under way that neither needs any more.
    pub fn grace_ns(&self) -> u64 {
        match self.timeout_exp {
            0 => LOCAL_NS,
            _ => self.tries_ns().min(LOCAL_NS),
        }
    }

    fn tries_ns(&self) -> u64 {
        (4096 << self.timeout_exp.min(31)) * (u64::from(self.retry_cnt) + 1)
    }
}

/// What the requests of a connection wait for.
#[derive(Debug, Default)]
pub(crate) struct RetryTimers {
    pub limits: RetryLimits,
    /// Since when there are requests that are not complete.
    busy_since_ns: Option<u64>,
    /// The request that waits for a receive of the peer, and since when.
    rnr: Option<(u32, u64)>,
}

impl RetryTimers {
    /// Notes whether there are requests that are not complete.
    pub fn note_work(&mut self, now_ns: u64, busy: bool) {
        self.busy_since_ns = busy.then(|| self.busy_since_ns.unwrap_or(now_ns));
    }

    /// Nobody ran at this end for the last `for_ns`, which no request has waited for.
    pub fn handle_stop(&mut self, for_ns: u64) {
        let later = |at_ns: u64| at_ns.saturating_add(for_ns);
        self.busy_since_ns = self.busy_since_ns.map(later);
        self.rnr = self.rnr.map(|(seq, since_ns)| (seq, later(since_ns)));
    }

    /// When a peer that has done nothing for this end since `since_ns` counts as gone, if a request
    /// waits for it.
    pub fn silence_due_ns(&self, since_ns: u64, rtt: Option<Rtt>) -> Option<u64> {
        Some(self.busy_since_ns?.max(since_ns) + self.limits.limit_ns(rtt)?)
    }

    /// When the requests fail of which the peer has said at `ended_ns` that they are in vain.
    pub fn orphans_due_ns(&self, ended_ns: u64) -> Option<u64> {
        Some(self.busy_since_ns?.max(ended_ns) + self.limits.grace_ns())
    }

    /// Notes which request waits for a receive.
    pub fn note_rnr_wait(&mut self, now_ns: u64, short: Option<RnrWait>) {
        let since = |seq| match self.rnr {
            Some(known) if known.0 == seq => known,
            _ => (seq, now_ns),
        };
        self.rnr = short.map(|short| since(short.seq));
    }

    /// When `short` has waited for as long as `attrs` say. Each repetition would have taken a round
    /// trip too.
    pub fn rnr_due_ns(&self, short: RnrWait, attrs: &QpAttr, rtt: Option<Rtt>) -> Option<u64> {
        let (_, since_ns) = self.rnr.filter(|_| attrs.rnr_retry < FOR_EVER)?;
        let round_ns = rtt.map_or(0, |rtt| rtt.smoothed_ns);
        let once_ns = 1000 * u64::from(short.wait_us) + round_ns;
        Some(since_ns + once_ns * (u64::from(attrs.rnr_retry) + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn rtt(ns: u64) -> Option<Rtt> {
        Some(Rtt { latest_ns: ns, smoothed_ns: ns, var_ns: 0, min_ns: ns })
    }

    #[test]
    fn the_limit_is_the_timeout_times_the_tries_and_no_less_than_the_path_asks_for() {
        let limits = |timeout_exp, retry_cnt| RetryLimits {
            timeout_exp,
            retry_cnt,
            ..RetryLimits::default()
        };
        let limit = |timeout_exp, retry_cnt, rtt| limits(timeout_exp, retry_cnt).limit_ns(rtt);
        let slow = RetryLimits { least_ns: 60_000 * MS, ..limits(14, 7) };
        assert_eq!(slow.limit_ns(rtt(MS / 10)), Some(60_000 * MS));
        assert_eq!(limit(0, 7, rtt(MS / 10)), None);
        assert_eq!(limit(20, 2, rtt(MS / 10)), Some((4096 << 20) * 3));
        assert_eq!(limit(14, 7, rtt(MS / 10)), Some(LOCAL_NS));
        assert_eq!(limit(14, 7, rtt(70 * MS)), Some(FAR_NS));
        assert_eq!(limit(14, 7, None), Some(FAR_NS));
        assert_eq!(limit(31, 7, None), Some((4096 << 31) * 8));
    }

    #[test]
    fn a_request_to_a_peer_that_has_left_fails_when_its_repetitions_would_have_ended() {
        let limits = |timeout_exp, retry_cnt| RetryLimits {
            timeout_exp,
            retry_cnt,
            ..RetryLimits::default()
        };
        let grace = |timeout_exp, retry_cnt| limits(timeout_exp, retry_cnt).grace_ns();
        assert_eq!(grace(14, 7), (4096 << 14) * 8);
        assert_eq!(grace(0, 7), LOCAL_NS);
        assert_eq!(grace(20, 2), LOCAL_NS);
        let limits = limits(14, 0);
        let mut retry_timers = RetryTimers { limits, ..RetryTimers::default() };
        assert_eq!(retry_timers.orphans_due_ns(MS), None);
        retry_timers.note_work(2 * MS, true);
        assert_eq!(retry_timers.orphans_due_ns(MS), Some(2 * MS + (4096 << 14)));
        assert_eq!(retry_timers.orphans_due_ns(3 * MS), Some(3 * MS + (4096 << 14)));
    }

    #[test]
    fn the_time_in_which_a_process_was_stopped_does_not_count() {
        let limits = RetryLimits { timeout_exp: 20, ..RetryLimits::default() };
        let mut retry_timers = RetryTimers { limits, ..RetryTimers::default() };
        let limit = limits.limit_ns(None).unwrap();
        retry_timers.handle_stop(MS);
        assert_eq!(retry_timers.silence_due_ns(500, None), None);
        retry_timers.note_work(500, true);
        retry_timers.note_work(600, true);
        assert_eq!(retry_timers.silence_due_ns(500, None), Some(500 + limit));
        retry_timers.handle_stop(2 * limit);
        assert_eq!(retry_timers.silence_due_ns(500, None), Some(500 + 3 * limit));
    }

    #[test]
    fn a_message_waits_for_its_receive_as_often_as_was_allowed() {
        let mut retry_timers = RetryTimers::default();
        let short = RnrWait { seq: 9, wait_us: 640 };
        let attrs = |rnr_retry| QpAttr { rnr_retry, ..QpAttr::default() };
        retry_timers.note_rnr_wait(5 * MS, Some(short));
        retry_timers.note_rnr_wait(6 * MS, Some(short));
        let due = |retry_timers: &RetryTimers, retries| {
            retry_timers.rnr_due_ns(short, &attrs(retries), rtt(MS))
        };
        assert_eq!(due(&retry_timers, 0), Some(5 * MS + 1_640_000));
        assert_eq!(due(&retry_timers, 3), Some(5 * MS + 4 * 1_640_000));
        assert_eq!(due(&retry_timers, 7), None);
        retry_timers.note_rnr_wait(7 * MS, Some(RnrWait { seq: 10, wait_us: 640 }));
        assert_eq!(due(&retry_timers, 0), Some(7 * MS + 1_640_000));
        retry_timers.note_rnr_wait(8 * MS, None);
        assert_eq!(due(&retry_timers, 0), None);
    }
}
