//! Receiver side of a path: which packets arrived, and when the sender is told.
//!
//! An acknowledgement is due one interval after the previous one, however many packets came; at
//! once if the last one is older than the interval; and if the sender asks, at once or with the
//! application's answer ([`crate::reply_habit`]). Each covers the newest
//! packets as far as the datagram has room, then older runs in rotation; newly arrived packets that
//! found no room follow at once in further acknowledgements (S-40 to S-44).

use weft_wire::shuttle::PathId;
use weft_wire::shuttle::frame::{Ack, Ranges};

use crate::recovery::PN_WINDOW;
use crate::reply_habit::{REPLY_WAIT_NS, ReplyHabit};
use crate::window::{Seen, SeenWindow};

/// Most bytes of data whose acknowledgement answers leave without: one datagram, because the
/// smallest window of a sender has two.
const UNTOLD_OCTETS_MAX: usize = 1200;

/// How soon an acknowledgement is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckPace {
    /// So many nanoseconds after the previous one.
    Interval(u64),
    /// With the answer to what has arrived, if one is likely; else now.
    WithReply,
    /// Now.
    Now,
}

/// Packet numbers received on a path, and the state of their acknowledgement.
#[derive(Debug)]
pub(crate) struct Arrivals {
    seen: SeenWindow,
    largest: Option<u64>,
    largest_at_ns: u64,
    due_ns: Option<u64>,
    /// An answer has told the peer what is owed, which may wait for the next one.
    is_held: bool,
    /// The last acknowledgement did not have to leave on its own after it was held.
    may_hold: bool,
    /// Bytes of data packets since the last acknowledgement.
    untold_octets: usize,
    sent_ns: Option<u64>,
    replies: ReplyHabit,
    /// The next report continues with the older runs from this number down.
    turn: Option<u64>,
    /// Largest packet number covered by the previous acknowledgement.
    told: Option<u64>,
    /// New packets not yet reported for want of room: runs from the first number down to above the
    /// second.
    news: Option<(u64, Option<u64>)>,
    /// When what is owed since the report that the news is left of would be due.
    later_due_ns: Option<u64>,
    pub(crate) marked: u64,
    pub(crate) dropped: u64,
    /// Buffer in which ranges are encoded.
    room: Vec<u8>,
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        Self {
            seen: SeenWindow::new(PN_WINDOW),
            largest: None,
            largest_at_ns: 0,
            due_ns: None,
            is_held: false,
            may_hold: true,
            untold_octets: 0,
            sent_ns: None,
            replies: ReplyHabit::default(),
            turn: None,
            told: None,
            news: None,
            later_due_ns: None,
            marked: 0,
            dropped: 0,
            room: Vec::new(),
        }
    }

    /// Heap memory in use, in bytes.
    pub(crate) fn kept_octets(&self) -> usize {
        self.seen.kept_octets()
    }

    /// Expected next packet number, from which truncated numbers are widened.
    pub(crate) fn near(&self) -> u64 {
        self.largest.map_or(0, |largest| largest + 1)
    }

    /// Whether packet `pn` is a duplicate or lies beyond the receive window.
    pub(crate) fn is_stale(&self, pn: u64) -> bool {
        self.seen.contains(pn) || pn - self.seen.frontier() >= self.seen.limit()
    }

    /// Records the arrival of packet `pn`, which must not be stale.
    pub(crate) fn handle_packet(&mut self, now_ns: u64, pn: u64) {
        let seen = self.seen.insert(pn);
        debug_assert_eq!(seen, Seen::New);
        if self.largest.is_none_or(|largest| pn > largest) {
            self.largest = Some(pn);
            self.largest_at_ns = now_ns;
        }
    }

    /// Raises the floor: the sender no longer tracks packets below `pn`. Limited to what has
    /// arrived, whatever the sender says.
    pub(crate) fn handle_floor(&mut self, pn: u64) {
        if let Some(largest) = self.largest {
            self.seen.raise(pn.min(largest + 1));
        }
    }

    /// Schedules an acknowledgement, unless one is due sooner.
    pub(crate) fn owe(&mut self, now_ns: u64, pace: AckPace) {
        let at_ns = match pace {
            AckPace::Interval(interval_ns) => {
                self.sent_ns.map_or(now_ns, |sent_ns| (sent_ns + interval_ns).max(now_ns))
            }
            AckPace::WithReply => self.replies.handle_asked(now_ns),
            AckPace::Now => now_ns,
        };
        let is_held = std::mem::take(&mut self.is_held) && pace == AckPace::WithReply;
        let before_ns = match is_held {
            true => self.sent_ns.map(|sent_ns| (sent_ns + 2 * REPLY_WAIT_NS).max(now_ns)),
            false => self.due_ns,
        };
        self.due_ns = Some(before_ns.map_or(at_ns, |due_ns| due_ns.min(at_ns)));
        self.later_due_ns = self.due_ns;
    }

    /// Notes that data leaves on this path: an acknowledgement that waits for that is due. If the
    /// data tells the peer all that was placed (`is_told`), the acknowledgement only serves the
    /// path: then answers leave without one until [`REPLY_WAIT_NS`] or [`UNTOLD_OCTETS_MAX`] after
    /// the last that left with an answer.
    pub(crate) fn handle_data_sent(&mut self, now_ns: u64, is_told: bool) {
        let waits_until_ns = self.replies.waits_until_ns();
        if self.replies.handle_data(now_ns)
            && let Some(due_ns) = &mut self.due_ns
        {
            let is_recent = self.sent_ns.is_some_and(|sent_ns| now_ns < sent_ns + REPLY_WAIT_NS);
            self.is_held = is_told
                && is_recent
                && std::mem::replace(&mut self.may_hold, true)
                && self.untold_octets <= UNTOLD_OCTETS_MAX
                && waits_until_ns == Some(*due_ns);
            if !self.is_held {
                *due_ns = (*due_ns).min(now_ns);
            }
        }
    }

    /// Counts the bytes of a data packet.
    pub(crate) fn handle_octets(&mut self, octets: usize) {
        self.untold_octets = self.untold_octets.saturating_add(octets);
    }

    /// Time at which an acknowledgement is due, if one is owed.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Calls `put` with the acknowledgement frames that are due, whose ranges take about `limit`
    /// bytes together. Nothing is owed afterwards unless new packets found no room.
    pub(crate) fn report(
        &mut self,
        now_ns: u64,
        path: PathId,
        limit: usize,
        mut put: impl FnMut(Ack<'_>),
    ) {
        // Held for an answer that did not come: answers are too far apart for that.
        self.may_hold &= !std::mem::take(&mut self.is_held);
        (self.due_ns, self.untold_octets) = (None, 0);
        self.sent_ns = Some(now_ns);
        self.replies.handle_reported(now_ns);
        let Some(largest) = self.largest else { return };
        let mut tell = |top, limit| {
            // When everything has arrived the newest run lies below the frontier.
            let (ranges, lowest) = match top == largest && largest < self.seen.frontier() {
                true => Ranges::encode([(largest, largest)], limit, &mut self.room)?,
                false => Ranges::encode(self.seen.runs_down(top), limit, &mut self.room)?,
            };
            put(Ack {
                path,
                largest,
                floor: self.seen.frontier(),
                delay_us: now_ns.saturating_sub(self.largest_at_ns) / 1000,
                arrived_us: (self.largest_at_ns / 1000) as u32,
                marked: self.marked,
                dropped: self.dropped,
                ranges,
            });
            lowest.checked_sub(1)
        };
        let (below, told) = if let Some((top, told)) = self.news {
            (tell(top, limit), told)
        } else {
            let below = tell(largest, limit * 2 / 3);
            let older = below.map(|below| self.turn.unwrap_or(below).min(below));
            self.turn = older.and_then(|top| tell(top, limit / 3));
            self.later_due_ns = None;
            (below, self.told.replace(largest))
        };
        let is_left = |below: &u64| {
            let next = self.seen.runs_down(*below).next();
            next.is_some_and(|(_, last)| told.is_none_or(|told| last > told))
        };
        self.news = below.filter(is_left).map(|below| (below, told));
        self.due_ns = match self.news {
            Some(_) => Some(now_ns),
            None => self.later_due_ns.take(),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn report(arrivals: &mut Arrivals, limit: usize) -> (u64, BTreeSet<u64>, usize) {
        let (mut floor, mut numbers, mut frames) = (0, BTreeSet::new(), 0);
        arrivals.report(5_000_000, PathId(0), limit, |ack| {
            assert_eq!(ack.delay_us, 4000);
            floor = ack.floor;
            frames += 1;
            numbers.extend(ack.ranges.iter().flat_map(|(first, last)| first..=last));
        });
        (floor, numbers, frames)
    }

    fn report_at(arrivals: &mut Arrivals, now_ns: u64) {
        arrivals.report(now_ns, PathId(0), 99, |_| {});
    }

    #[test]
    fn one_run_is_told_in_few_octets() {
        let mut arrivals = Arrivals::new();
        (0..5000).for_each(|pn| arrivals.handle_packet(1_000_000, pn));
        let (floor, numbers, frames) = report(&mut arrivals, 9);
        assert_eq!((floor, frames), (5000, 1));
        assert!(numbers.contains(&4999));
    }

    /// S-41.
    #[test]
    fn older_runs_take_turns() {
        let mut arrivals = Arrivals::new();
        let odd = |pn: &u64| pn % 2 == 1;
        (1..2000).filter(odd).for_each(|pn| arrivals.handle_packet(1_000_000, pn));
        let mut told = BTreeSet::new();
        let mut reports = 0;
        // The first report is all news, and goes on in packets of its own.
        while told.len() < 1000 || arrivals.due_ns().is_some() {
            let (_, numbers, frames) = report(&mut arrivals, 300);
            assert_eq!(frames == 1, reports > 0);
            told.extend(numbers);
            reports += 1;
        }
        assert!(reports < 9, "{reports}");
        (told, reports) = (BTreeSet::new(), 0);
        while told.len() < 1000 {
            let (floor, numbers, frames) = report(&mut arrivals, 300);
            // A turn that has come to its end begins anew with the next report.
            assert!(floor == 0 && (1..=2).contains(&frames));
            assert!(numbers.contains(&1999));
            told.extend(numbers);
            reports += 1;
        }
        assert!(told.iter().all(odd));
        assert!(reports < 25, "{reports}");
    }

    /// S-41.
    #[test]
    fn all_news_is_told_before_the_next_interval() {
        let mut arrivals = Arrivals::new();
        for round in 0..3 {
            let mut news: BTreeSet<u64> = (0..2000).map(|i| round * 6000 + 3 * i + 1).collect();
            news.iter().for_each(|pn| arrivals.handle_packet(1_000_000, *pn));
            arrivals.owe(5_000_000, AckPace::Now);
            while arrivals.due_ns().is_some() {
                report(&mut arrivals, 900).1.iter().for_each(|pn| _ = news.remove(pn));
            }
            assert!(news.is_empty(), "{round}: {}", news.len());
        }
    }

    #[test]
    fn what_comes_while_news_is_told_is_told_after_it() {
        let mut arrivals = Arrivals::new();
        (0..2000).for_each(|i| arrivals.handle_packet(1_000_000, 3 * i + 1));
        arrivals.owe(5_000_000, AckPace::Now);
        report(&mut arrivals, 900);
        assert!(arrivals.news.is_some());
        arrivals.handle_packet(1_000_000, 7000);
        arrivals.owe(5_000_000, AckPace::Now);
        let mut told = BTreeSet::new();
        for _ in 0..100 {
            if arrivals.due_ns().is_some() {
                told.extend(report(&mut arrivals, 900).1);
            }
        }
        assert!(arrivals.due_ns().is_none() && told.contains(&7000));
    }

    #[test]
    fn a_floor_ends_the_holes_below_it() {
        let mut arrivals = Arrivals::new();
        [3, 4, 9].into_iter().for_each(|pn| arrivals.handle_packet(1_000_000, pn));
        arrivals.handle_floor(3);
        assert_eq!(report(&mut arrivals, 99).0, 5);
        assert!(arrivals.is_stale(1) && arrivals.is_stale(9) && !arrivals.is_stale(5));
        arrivals.handle_floor(u64::MAX);
        assert_eq!(report(&mut arrivals, 99).0, 10);
        assert!(arrivals.is_stale(10 + PN_WINDOW));
    }

    /// News of a stream is owed before anything has arrived.
    #[test]
    fn with_nothing_to_report_nothing_stays_due() {
        let mut arrivals = Arrivals::new();
        arrivals.owe(5, AckPace::Now);
        assert_eq!(report(&mut arrivals, 99).2, 0);
        assert_eq!(arrivals.due_ns(), None);
    }

    #[test]
    fn the_rate_follows_time() {
        let mut arrivals = Arrivals::new();
        arrivals.handle_packet(1_000_000, 0);
        arrivals.owe(1_000_000, AckPace::Interval(500));
        assert_eq!(arrivals.due_ns(), Some(1_000_000));
        report(&mut arrivals, 99);
        assert_eq!(arrivals.due_ns(), None);
        arrivals.owe(5_000_100, AckPace::Interval(500));
        assert_eq!(arrivals.due_ns(), Some(5_000_500));
        arrivals.owe(5_000_200, AckPace::WithReply);
        assert_eq!(arrivals.due_ns(), Some(5_000_200));
    }

    /// From it the peer knows the delay of the path there, and of the path back.
    #[test]
    fn an_acknowledgement_tells_when_the_newest_packet_came_and_how_long_it_waited() {
        let mut arrivals = Arrivals::new();
        arrivals.handle_packet(5_000_000, 7);
        arrivals.handle_packet(6_000_000, 3);
        let mut told = Vec::new();
        arrivals.report(9_000_000, PathId(0), 99, |ack| told.push((ack.arrived_us, ack.delay_us)));
        assert_eq!(told, [(5000, 4000)]);
    }

    /// S-41: two thirds are for the newest packets.
    #[test]
    fn the_newest_runs_have_twice_the_room_of_older_ones() {
        let mut arrivals = Arrivals::new();
        (0..3000).for_each(|at| arrivals.handle_packet(1_000_000, 2 * at + 1));
        // Everything is told once before older runs take turns.
        report(&mut arrivals, 300);
        while arrivals.due_ns().is_some() {
            report(&mut arrivals, 300);
        }
        let mut counts = Vec::new();
        arrivals.report(5_000_000, PathId(0), 300, |ack| counts.push(ack.ranges.iter().count()));
        assert_eq!(counts.len(), 2);
        let (newest, older) = (counts[0], counts[1]);
        assert!((older * 19 / 10..=older * 21 / 10).contains(&newest), "{counts:?}");
        assert!((250..=300).contains(&(2 * (newest + older))), "two bytes a run: {counts:?}");
    }

    /// Rounds of a conversation, each answered `answer_ns` after the request.
    struct Conversation {
        arrivals: Arrivals,
        at_ns: u64,
        round_ns: u64,
        answer_ns: u64,
        octets: usize,
    }

    impl Conversation {
        fn rounds(&mut self, count: usize) {
            for _ in 0..count {
                self.round(true);
            }
        }

        fn new(round_ns: u64, answer_ns: u64, octets: usize) -> Self {
            Self { arrivals: Arrivals::new(), at_ns: 0, round_ns, answer_ns, octets }
        }

        /// Whether an acknowledgement left with the answer; `None` if it left before, on its own.
        fn round(&mut self, is_told: bool) -> Option<bool> {
            self.at_ns += self.round_ns;
            let Self { arrivals, at_ns, answer_ns, .. } = self;
            let before = arrivals.due_ns().is_some_and(|due_ns| due_ns < *at_ns);
            if before {
                report_at(arrivals, arrivals.due_ns().unwrap());
            }
            arrivals.handle_packet(*at_ns, arrivals.near());
            arrivals.handle_octets(self.octets);
            arrivals.owe(*at_ns, AckPace::WithReply);
            let answers_ns = *at_ns + *answer_ns;
            let early = arrivals.due_ns().is_some_and(|due_ns| due_ns < answers_ns);
            if early {
                report_at(arrivals, *at_ns);
            }
            arrivals.handle_data_sent(answers_ns, is_told);
            let with_answer = arrivals.due_ns() == Some(answers_ns);
            if with_answer {
                report_at(arrivals, answers_ns);
            }
            (!before && !early).then_some(with_answer)
        }
    }

    /// S-40.
    #[test]
    fn answers_that_tell_what_was_placed_leave_alone_for_a_while() {
        let mut talk = Conversation::new(20_000, 0, 64);
        assert!((0..4).all(|_| talk.round(true) == Some(true)), "a row of answers comes first");
        for _ in 0..3 {
            assert!((0..12).all(|_| talk.round(true) == Some(false)));
            assert_eq!(talk.round(true), Some(true), "250 us after the last");
        }
        assert_eq!((talk.round(true), talk.round(false)), (Some(false), Some(true)));
    }

    /// A sender's window may be two datagrams.
    #[test]
    fn a_datagram_of_data_is_acknowledged_with_the_next_answer() {
        let mut talk = Conversation::new(20_000, 0, 700);
        talk.rounds(4);
        for _ in 0..5 {
            assert_eq!((talk.round(true), talk.round(true)), (Some(false), Some(true)));
        }
    }

    /// An acknowledgement that leaves on its own costs more than one behind an answer.
    #[test]
    fn answers_too_far_apart_take_their_acknowledgements_along() {
        let mut talk = Conversation::new(300_000, 20_000, 64);
        talk.rounds(5);
        talk.at_ns -= 100_000;
        assert_eq!(talk.round(true), Some(false), "once");
        assert_eq!(talk.round(true), None);
        assert!((0..20).all(|_| talk.round(true) == Some(true)));
    }

    /// Whatever comes, an acknowledgement leaves within 500 us of the last.
    #[test]
    fn no_row_of_requests_delays_an_acknowledgement_further() {
        let mut talk = Conversation::new(20_000, 0, 64);
        talk.rounds(5);
        let last_ns = talk.arrivals.sent_ns.unwrap();
        for at_ns in [last_ns + 240_000, last_ns + 480_000] {
            talk.arrivals.owe(at_ns, AckPace::WithReply);
            let due_ns = (at_ns + REPLY_WAIT_NS).min(last_ns + 2 * REPLY_WAIT_NS);
            assert_eq!(talk.arrivals.due_ns(), Some(due_ns));
            talk.arrivals.handle_data_sent(at_ns, true);
        }
        assert_eq!(talk.arrivals.due_ns(), Some(last_ns + 480_000), "it leaves with the answer");
    }

    /// An interval asks for its acknowledgement, whatever answers tell.
    #[test]
    fn what_an_interval_makes_due_does_not_wait_for_the_next_answer() {
        for (interval_ns, is_alone) in [(100_000, false), (u64::MAX / 2, true)] {
            let mut talk = Conversation::new(20_000, 0, 64);
            talk.rounds(4);
            let at_ns = talk.at_ns + 20_000;
            talk.arrivals.owe(at_ns, AckPace::Interval(interval_ns));
            talk.arrivals.owe(at_ns, AckPace::WithReply);
            talk.arrivals.handle_data_sent(at_ns, true);
            let leaves = talk.arrivals.due_ns().is_some_and(|due_ns| due_ns <= at_ns);
            assert_eq!(leaves, !is_alone);
        }
    }

    /// S-40: what is sooner holds, and the next report waits for an interval after the last.
    #[test]
    fn the_soonest_of_what_is_owed_is_due() {
        let mut arrivals = Arrivals::new();
        arrivals.handle_packet(1_000_000, 0);
        report(&mut arrivals, 99);
        for (now_ns, pace, due_ns) in [
            (5_000_100, AckPace::Interval(900), 5_000_900),
            (5_000_200, AckPace::Interval(500), 5_000_500),
            (5_000_300, AckPace::Interval(700), 5_000_500),
            (5_000_400, AckPace::Now, 5_000_400),
        ] {
            arrivals.owe(now_ns, pace);
            assert_eq!(arrivals.due_ns(), Some(due_ns));
        }
        report(&mut arrivals, 99);
        arrivals.owe(9_000_000, AckPace::Interval(500));
        assert_eq!(arrivals.due_ns(), Some(9_000_000), "the last is long ago");
    }
}
