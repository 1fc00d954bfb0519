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
    sent_ns: Option<u64>,
    replies: ReplyHabit,
    /// The next report continues with the older runs from this number down.
    turn: Option<u64>,
    /// Largest packet number covered by the previous acknowledgement.
    told: Option<u64>,
    /// New packets not yet reported for want of room: runs from the first number down to above the
    /// second.
    news: Option<(u64, Option<u64>)>,
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
            sent_ns: None,
            replies: ReplyHabit::default(),
            turn: None,
            told: None,
            news: None,
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
        let due_ns = self.due_ns.filter(|_| !is_held);
        self.due_ns = Some(due_ns.map_or(at_ns, |due_ns| due_ns.min(at_ns)));
    }

    /// Notes that data leaves on this path: an acknowledgement that waits for that is due. If the
    /// data tells the peer what was placed (`is_told`), the acknowledgement only serves the path:
    /// then answers leave without one for [`REPLY_WAIT_NS`] after the last.
    pub(crate) fn handle_data_sent(&mut self, now_ns: u64, is_told: bool) {
        if self.replies.handle_data(now_ns)
            && let Some(due_ns) = &mut self.due_ns
        {
            let is_recent = self.sent_ns.is_some_and(|sent_ns| now_ns < sent_ns + REPLY_WAIT_NS);
            self.is_held = is_told && is_recent && *due_ns > now_ns;
            if !self.is_held {
                *due_ns = (*due_ns).min(now_ns);
            }
        }
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
        (self.due_ns, self.is_held) = (None, false);
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
            (below, self.told.replace(largest))
        };
        let is_left = |below: &u64| {
            let next = self.seen.runs_down(*below).next();
            next.is_some_and(|(_, last)| told.is_none_or(|told| last > told))
        };
        self.news = below.filter(is_left).map(|below| (below, told));
        self.due_ns = self.news.map(|_| now_ns);
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

    /// S-40: an answer that tells what was placed leaves without an acknowledgement for 250 us
    /// after the last, and one that tells nothing, or comes later, with it.
    #[test]
    fn an_answer_that_tells_what_was_placed_leaves_alone_for_a_while() {
        const ROUND_NS: u64 = 20_000;
        let mut arrivals = Arrivals::new();
        let mut answer = |at_ns: u64, is_told| {
            arrivals.handle_packet(at_ns, at_ns / ROUND_NS);
            arrivals.owe(at_ns, AckPace::WithReply);
            arrivals.handle_data_sent(at_ns, is_told);
            let reported = arrivals.due_ns() == Some(at_ns);
            if reported {
                report_at(&mut arrivals, at_ns);
            } else {
                assert_eq!(arrivals.due_ns(), Some(at_ns + REPLY_WAIT_NS));
            }
            reported
        };
        let mut at_ns = 0;
        let mut round = |is_told| {
            at_ns += ROUND_NS;
            answer(at_ns, is_told)
        };
        assert!((0..4).all(|_| round(true)), "a row of answers must be seen first");
        for _ in 0..3 {
            assert!((0..12).all(|_| !round(true)));
            assert!(round(true), "250 µs after the last");
        }
        assert!(!round(true) && round(false));
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
