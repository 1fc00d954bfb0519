//! Sending half of a stream: numbers segments, keeps their ids, retransmits losses.
//!
//! Invariant: a segment keeps its number; its source is told once, in order, when the peer has
//! placed it and everything before it. No payload is kept.

use std::collections::VecDeque;

use weft_wire::llp::{SegmentId, SegmentRun, UlpduSource};
use weft_wire::shuttle::StreamId;
use weft_wire::shuttle::frame::Frame;

use super::Repair;
use crate::ranges::RangeSet;

/// Segment window: from the peer's frontier to the newest segment. The receiver keeps one bit for
/// each, 1 MiB (S-34).
pub(crate) const DSN_WINDOW: u64 = 1 << 23;
/// Longest interval between queries for the peer's frontier, 1 s; it doubles without progress
/// (S-36).
const QUERY_NS_MAX: u64 = 1_000_000_000;
/// Tail duplication (S-56): segments sent in the last 2 ms before the stream ran dry are sent
/// twice.
const TAIL_NS: u64 = 2_000_000;
/// Most segments of a tail: one burst.
const TAIL_SEGMENTS: u64 = 64;

/// Ids of consecutive segments.
#[derive(Clone, Copy, Debug)]
struct DsnRun {
    dsn: u64,
    names: SegmentRun,
}

/// The peer was asked what it has, in place of repeating segments whose memory is gone.
#[derive(Clone, Copy, Debug)]
struct AskedInstead {
    /// The first segment that it was not known to have.
    missing: u64,
    at_ns: u64,
    is_answered: bool,
}

/// State of the sending half.
#[derive(Debug)]
pub(crate) struct SendStream {
    runs: VecDeque<DsnRun>,
    next_dsn: u64,
    /// Frontier: the peer has placed every segment before this.
    frontier: u64,
    /// Segments above the frontier that the peer has, or that were given up.
    received: RangeSet,
    /// Segments given up.
    given_up: RangeSet,
    /// Skip sent to the peer: nothing before this will come.
    skip_told: u64,
    repair: Repair,
    /// First segment of each flight of the last 2 ms, with its time.
    tail: VecDeque<(u64, u64)>,
    /// Everything before this needs no duplicate.
    tail_from: u64,
    /// Segments to retransmit.
    resend: RangeSet,
    /// Segments of lost packets that no later packet is known to have brought (S-57).
    lost: RangeSet,
    /// Segment taken from the source and not sent yet.
    pending: Option<SegmentId>,
    /// Weight in deficit round robin.
    pub(crate) weight: u32,
    /// Bytes that the stream may still send in this turn.
    pub(crate) deficit: i64,
    query_at_ns: Option<u64>,
    query_wait_ns: u64,
    asked: Option<AskedInstead>,
}

impl SendStream {
    pub(crate) fn new(weight: u32, repair: Repair) -> Self {
        Self {
            runs: VecDeque::new(),
            next_dsn: 0,
            frontier: 0,
            received: RangeSet::default(),
            given_up: RangeSet::default(),
            skip_told: 0,
            repair,
            tail: VecDeque::new(),
            tail_from: 0,
            resend: RangeSet::default(),
            lost: RangeSet::default(),
            pending: None,
            weight,
            deficit: 0,
            query_at_ns: None,
            query_wait_ns: 0,
            asked: None,
        }
    }

    /// Number of the next new segment.
    pub(crate) fn next_dsn(&self) -> u64 {
        self.next_dsn
    }

    /// Count of segments taken from the source.
    pub(crate) fn taken(&self) -> u64 {
        self.next_dsn + u64::from(self.pending.is_some())
    }

    /// Whether the peer has the first `count` segments, placed or held.
    pub(crate) fn has_arrived(&self, count: u64) -> bool {
        count <= self.first_missing()
    }

    /// The first segment that the peer is not known to have.
    pub(crate) fn first_missing(&self) -> u64 {
        let first = self.received.first().filter(|(first, _)| *first == self.frontier);
        first.map_or(self.frontier, |(_, last)| last + 1)
    }

    /// Frontier: the peer has placed every segment before this.
    pub(crate) fn frontier(&self) -> u64 {
        self.frontier
    }

    /// Whether every segment that was sent is placed.
    pub(crate) fn is_settled(&self) -> bool {
        self.frontier == self.next_dsn
    }

    /// Notes that the peer is asked at `now_ns` what it has, in place of repeating segments whose
    /// memory is gone (S-52). `false` if it was asked before, has answered, and lacks the first.
    pub(crate) fn ask_instead(&mut self, now_ns: u64) -> bool {
        let missing = self.first_missing();
        if let Some(asked) = self.asked.filter(|asked| asked.missing == missing) {
            return !asked.is_answered;
        }
        self.asked = Some(AskedInstead { missing, at_ns: now_ns, is_answered: false });
        self.query_at_ns = Some(now_ns);
        true
    }

    /// Since when nothing is sent again, because the peer has yet to answer.
    pub(crate) fn asked_ns(&self) -> Option<u64> {
        self.asked.filter(|asked| !asked.is_answered).map(|asked| asked.at_ns)
    }

    /// Notes that the peer has told its frontier since it was asked.
    pub(crate) fn handle_answer(&mut self) {
        self.asked.iter_mut().for_each(|asked| asked.is_answered = true);
    }

    /// Heap memory in use, in bytes.
    pub(crate) fn kept_octets(&self) -> usize {
        let sets = [&self.received, &self.given_up, &self.resend, &self.lost];
        let runs = self.runs.capacity() * size_of::<DsnRun>();
        runs + sets.iter().map(|set| set.kept_octets()).sum::<usize>()
    }

    /// Oldest segment to retransmit.
    pub(crate) fn next_resend(&self) -> Option<u64> {
        self.resend.first().map(|run| run.0)
    }

    /// Count of segments to retransmit; stops counting at `enough`.
    pub(crate) fn holes(&self, enough: u64) -> u64 {
        self.resend.count(enough)
    }

    /// Notes that segment `dsn` was retransmitted.
    pub(crate) fn resent(&mut self, dsn: u64) {
        self.resend.remove(dsn, dsn);
    }

    /// Whether the window allows a new segment; only the source knows whether there is one.
    pub(crate) fn may_send_new(&self) -> bool {
        self.next_dsn - self.frontier < DSN_WINDOW
    }

    /// Peeks at the next new segment of the source, until [`SendStream::sent`].
    pub(crate) fn peek(&mut self, mulpdu: u16, source: &mut impl UlpduSource) -> Option<SegmentId> {
        if self.pending.is_none() {
            self.pending = source.next(mulpdu);
        }
        self.pending
    }

    /// Notes that the peeked segment was sent; returns its number.
    #[expect(clippy::expect_used, reason = "who calls this has peeked at the segment")]
    pub(crate) fn sent(&mut self, now_ns: u64) -> u64 {
        let id = self.pending.take().expect("a segment was peeked");
        let dsn = self.next_dsn;
        self.next_dsn += 1;
        if self.repair == Repair::TailTwice {
            self.note_tail(now_ns, dsn);
        }
        if !self.runs.back_mut().is_some_and(|run| run.names.append(id)) {
            self.runs.push_back(DsnRun { dsn, names: SegmentRun::new(id) });
        }
        dsn
    }

    fn note_tail(&mut self, now_ns: u64, dsn: u64) {
        let old =
            |(first, at_ns): &(u64, u64)| at_ns + TAIL_NS < now_ns || first + TAIL_SEGMENTS <= dsn;
        while self.tail.front().is_some_and(old) {
            self.tail.pop_front();
        }
        self.tail.push_back((dsn, now_ns));
    }

    /// Queues the tail for duplication, if agreed: nothing more is to be sent for now.
    pub(crate) fn queue_tail(&mut self) {
        let Some((first, _)) = self.tail.front() else { return };
        let first = (*first).max(self.tail_from).max(self.frontier);
        self.tail.clear();
        self.tail_from = self.next_dsn;
        for dsn in (first..self.next_dsn).filter(|dsn| !self.received.contains(*dsn)) {
            self.resend.insert(dsn, dsn, |_, _| ());
        }
    }

    /// Queues what was lost and sent again for a second time, if wanted: nothing more is to be sent
    /// for now, and the message waits for it. Returns whether there is anything.
    pub(crate) fn queue_lost(&mut self) -> bool {
        let lost = std::mem::take(&mut self.lost);
        lost.runs().for_each(|(first, last)| self.resend.insert(first, last, |_, _| ()));
        !lost.is_empty()
    }

    /// Id of segment `dsn`, which must be sent and not settled.
    pub(crate) fn name(&self, dsn: u64) -> SegmentId {
        let at = self.runs.partition_point(|run| run.dsn + run.names.count <= dsn);
        self.runs[at].names.get(dsn - self.runs[at].dsn)
    }

    /// Notes that the peer received segments `first..=last`.
    pub(crate) fn handle_received(&mut self, first: u64, last: u64) {
        let first = first.max(self.frontier);
        if first <= last {
            self.received.insert(first, last, |_, _| ());
            self.given_up.remove(first, last);
            self.resend.remove(first, last);
            self.lost.remove(first, last);
        }
    }

    /// Notes that packets with segments `first..=last` were lost. Segments that arrived in another
    /// packet are not retransmitted (S-52).
    pub(crate) fn handle_lost(&mut self, first: u64, last: u64) {
        if self.repair == Repair::Off {
            let Self { received, given_up, frontier, .. } = self;
            let first = first.max(*frontier);
            if first <= last {
                received.insert(first, last, |f, l| given_up.insert(f, l, |_, _| ()));
            }
            return;
        }
        for dsn in first.max(self.frontier)..=last {
            if !self.received.contains(dsn) {
                self.resend.insert(dsn, dsn, |_, _| ());
                if self.repair == Repair::LostTwice {
                    self.lost.insert(dsn, dsn, |_, _| ());
                }
            }
        }
    }

    /// Queues the first `count` segments not known to be received as probes. The receiver always
    /// takes the first of them, so that the stream makes progress (S-54). Returns whether there are
    /// any.
    pub(crate) fn queue_probes(&mut self, count: u64) -> bool {
        if self.repair == Repair::Off || self.asked_ns().is_some() {
            return false;
        }
        let missing = (self.frontier..self.next_dsn).filter(|dsn| !self.received.contains(*dsn));
        for dsn in missing.take(count as usize) {
            self.resend.insert(dsn, dsn, |_, _| ());
        }
        self.next_resend().is_some()
    }

    /// Handles the peer's frontier, limited to what was sent. Tells the source (S-33); returns
    /// whether it advanced.
    pub(crate) fn handle_frontier(&mut self, frontier: u64, source: &mut impl UlpduSource) -> bool {
        let frontier = frontier.min(self.next_dsn);
        if frontier <= self.frontier {
            return false;
        }
        while let Some(run) = self.runs.front().copied()
            && run.dsn < frontier
        {
            // With skipped segments, fates differ within a run.
            let most = if self.given_up.is_empty() { frontier - run.dsn } else { 1 };
            let (done, others) = run.names.split(most);
            match self.given_up.contains(run.dsn) {
                true => source.lost(done.first),
                false => source.acked_run(done),
            }
            match (self.runs.front_mut(), others) {
                (Some(front), Some(names)) => *front = DsnRun { dsn: run.dsn + done.count, names },
                _ => drop(self.runs.pop_front()),
            }
        }
        self.frontier = frontier;
        self.received.remove_below(frontier);
        self.given_up.remove_below(frontier);
        self.resend.remove_below(frontier);
        self.lost.remove_below(frontier);
        self.query_at_ns = None;
        self.query_wait_ns = 0;
        true
    }

    /// Whether the stream waits for the peer's frontier: everything sent is received and not yet
    /// placed, or was to be sent again and is not in memory.
    fn waits(&self) -> bool {
        let all_there = self
            .received
            .first()
            .is_some_and(|(first, last)| first == self.frontier && last + 1 == self.next_dsn);
        all_there || self.asked_ns().is_some() || self.skip_to().is_some()
    }

    /// End of a Skip to send: the peer waits for segments that were given up.
    fn skip_to(&self) -> Option<u64> {
        let (gone, _) = self.given_up.first()?;
        let (first, last) = self.received.first()?;
        (first == self.frontier && gone <= last).then_some(last + 1)
    }

    /// Time of the next query for the peer's frontier; `wait_ns` is the first interval.
    pub(crate) fn query_at(&mut self, now_ns: u64, wait_ns: u64) -> Option<u64> {
        if self.skip_to().is_some_and(|to| to > self.skip_told) {
            self.query_at_ns = Some(self.query_at_ns.map_or(now_ns, |at_ns| at_ns.min(now_ns)));
        } else if !self.waits() {
            self.query_at_ns = None;
        } else if self.query_at_ns.is_none() {
            self.query_wait_ns = self.query_wait_ns.max(wait_ns);
            self.query_at_ns = Some(now_ns + self.query_wait_ns);
        }
        self.query_at_ns
    }

    /// Takes a query that is due.
    pub(crate) fn poll_query(&mut self, now_ns: u64, stream: StreamId) -> Option<Frame<'static>> {
        self.query_at_ns.take_if(|at| *at <= now_ns)?;
        self.query_wait_ns = (self.query_wait_ns * 2).min(QUERY_NS_MAX);
        if let Some(dsn) = self.skip_to() {
            self.skip_told = dsn;
            return Some(Frame::Skip { stream, dsn });
        }
        Some(Frame::Query { stream })
    }
}

#[cfg(test)]
mod tests {
    use weft_wire::llp::Gather;

    use super::*;

    /// Messages of three segments, the last one short; remembers what is acknowledged.
    #[derive(Default)]
    struct Source {
        handed: Vec<SegmentId>,
        acked: Vec<SegmentId>,
        lost: Vec<SegmentId>,
    }

    impl UlpduSource for Source {
        fn next(&mut self, mulpdu: u16) -> Option<SegmentId> {
            let at = self.handed.len() as u32;
            let len = if at % 3 == 2 { mulpdu / 2 } else { mulpdu };
            self.handed.push(SegmentId {
                wqe: at / 3,
                offset: at % 3 * u32::from(mulpdu),
                len: len.into(),
            });
            self.handed.last().copied()
        }

        fn gather(&self, _: &SegmentId, _: &mut Gather) {}

        fn acked(&mut self, id: SegmentId) {
            self.acked.push(id);
        }

        fn lost(&mut self, id: SegmentId) {
            self.lost.push(id);
        }
    }

    fn stream_of(segments: u64) -> (SendStream, Source) {
        let (mut stream, mut source) = (SendStream::new(1, Repair::Full), Source::default());
        for dsn in 0..segments {
            stream.peek(100, &mut source);
            assert_eq!(stream.sent(0), dsn);
        }
        (stream, source)
    }

    #[test]
    fn names_come_back_from_their_runs() {
        let (stream, source) = stream_of(30);
        assert_eq!(stream.runs.len(), 10);
        for (dsn, id) in (0..).zip(&source.handed) {
            assert_eq!(stream.name(dsn), *id);
        }
    }

    #[test]
    fn the_source_hears_of_each_segment_once_in_order() {
        let (mut stream, mut source) = stream_of(30);
        for frontier in [1, 1, 2, 7, 3, 29, u64::MAX, 30] {
            stream.handle_frontier(frontier, &mut source);
        }
        assert_eq!(source.acked, source.handed);
        assert!(stream.is_settled() && stream.runs.is_empty());
        assert_eq!(stream.frontier(), 30);
    }

    #[test]
    fn exactly_the_holes_are_sent_again() {
        let (mut stream, mut source) = stream_of(30);
        stream.handle_lost(3, 9);
        stream.handle_received(4, 5);
        stream.handle_lost(5, 5);
        stream.handle_frontier(4, &mut source);
        assert_eq!([0, 2, 99].map(|enough| stream.holes(enough).min(enough)), [0, 2, 4]);
        let mut again = Vec::new();
        while let Some(dsn) = stream.next_resend() {
            stream.resent(dsn);
            again.push(dsn);
        }
        assert_eq!(again, [6, 7, 8, 9]);
    }

    #[test]
    fn what_is_given_up_is_told_until_the_peer_has_passed_it() {
        let (mut stream, mut source) = stream_of(6);
        stream.repair = Repair::Off;
        stream.handle_received(0, 0);
        stream.handle_lost(2, 4);
        assert_eq!((stream.next_resend(), stream.query_at(0, 10)), (None, None));
        stream.handle_received(1, 3);
        let skip = |dsn| Some(Frame::Skip { stream: StreamId(0), dsn });
        assert_eq!(stream.query_at(5, 10), Some(5));
        assert_eq!(stream.poll_query(5, StreamId(0)), skip(5));
        assert_eq!(stream.query_at(5, 10), Some(15));
        assert_eq!(stream.poll_query(15, StreamId(0)), skip(5));
        stream.handle_lost(5, 5);
        assert_eq!(stream.query_at(16, 10), Some(16));
        assert_eq!(stream.poll_query(16, StreamId(0)), skip(6));
        stream.handle_frontier(6, &mut source);
        assert_eq!((source.acked.len(), &source.lost[..]), (4, &source.handed[4..]));
        assert_eq!(stream.query_at(20, 10), None);
    }

    #[test]
    fn the_tail_is_sent_twice() {
        let (mut stream, mut source) = (SendStream::new(1, Repair::TailTwice), Source::default());
        for (dsn, at_ns) in (0..).zip([0, 0, TAIL_NS, TAIL_NS + 1, TAIL_NS + 1]) {
            stream.peek(100, &mut source);
            assert_eq!(stream.sent(at_ns), dsn);
        }
        stream.handle_received(3, 3);
        stream.queue_tail();
        stream.queue_tail();
        let again = std::iter::from_fn(|| {
            let dsn = stream.next_resend()?;
            stream.resent(dsn);
            Some(dsn)
        });
        assert_eq!(again.collect::<Vec<_>>(), [2, 4]);
    }

    #[test]
    fn what_was_lost_is_sent_again_twice_where_nothing_else_is_to_be_sent() {
        for (repair, copies) in [(Repair::LostTwice, 2), (Repair::Full, 1)] {
            let (mut stream, mut source) = stream_of(10);
            stream.repair = repair;
            stream.handle_frontier(1, &mut source);
            stream.handle_lost(0, 3);
            stream.handle_lost(7, 7);
            let mut sent = Vec::new();
            // The first copies of two of them have come when there is nothing more to send.
            for came in [Some((2, 3)), None, None] {
                while let Some(dsn) = stream.next_resend() {
                    stream.resent(dsn);
                    sent.push(dsn);
                }
                if let Some((first, last)) = came {
                    stream.handle_received(first, last);
                }
                stream.queue_lost();
            }
            let wanted: &[u64] = if copies == 2 { &[1, 2, 3, 7, 1, 7] } else { &[1, 2, 3, 7] };
            assert_eq!(sent, wanted);
        }
    }

    #[test]
    fn it_asks_when_only_the_peer_knows() {
        let (mut stream, mut source) = stream_of(4);
        assert_eq!(stream.query_at(0, 10), None);
        stream.handle_received(0, 3);
        assert_eq!(stream.query_at(5, 10), Some(15));
        assert!(stream.poll_query(14, StreamId(0)).is_none());
        assert!(stream.poll_query(15, StreamId(0)).is_some());
        assert_eq!(stream.query_at(15, 10), Some(35));
        stream.handle_frontier(4, &mut source);
        assert_eq!(stream.query_at(35, 10), None);
    }

    #[test]
    fn no_more_than_the_last_64_are_a_tail() {
        let (mut stream, mut source) = (SendStream::new(1, Repair::TailTwice), Source::default());
        for _ in 0..2 * TAIL_SEGMENTS {
            stream.peek(100, &mut source);
            stream.sent(0);
        }
        stream.queue_tail();
        assert_eq!(stream.next_resend(), Some(TAIL_SEGMENTS));
        assert_eq!(stream.holes(u64::MAX), TAIL_SEGMENTS);
    }

    /// S-34: the receiver has a bit for each segment from the frontier on.
    #[test]
    fn no_segment_is_sent_beyond_what_the_receiver_can_note() {
        let (mut stream, _) = stream_of(0);
        for frontier in [0, 5, 10 * DSN_WINDOW] {
            (stream.frontier, stream.next_dsn) = (frontier, frontier + DSN_WINDOW - 1);
            assert!(stream.may_send_new(), "{frontier}");
            stream.next_dsn += 1;
            assert!(!stream.may_send_new(), "{frontier}");
        }
    }

    #[test]
    fn probes_carry_what_is_not_known_to_be_received_and_nothing_else() {
        let (mut stream, mut source) = stream_of(6);
        stream.handle_frontier(1, &mut source);
        stream.handle_received(2, 2);
        assert!(stream.queue_probes(2));
        let again = std::iter::from_fn(|| {
            let dsn = stream.next_resend()?;
            stream.resent(dsn);
            Some(dsn)
        });
        assert_eq!(again.collect::<Vec<_>>(), [1, 3]);
        stream.handle_received(1, 5);
        assert!(!stream.queue_probes(2), "the peer has everything");
        let (mut stream, _) = stream_of(6);
        stream.repair = Repair::Off;
        assert!(!stream.queue_probes(2), "nothing is sent again");
    }

    #[test]
    fn what_was_sent_within_two_milliseconds_is_a_tail() {
        for (later_ns, first) in [(TAIL_NS, 0), (TAIL_NS + 1, 1), (5 * TAIL_NS, 1)] {
            let mut stream = SendStream::new(1, Repair::TailTwice);
            for at_ns in [7, 7 + later_ns] {
                stream.peek(100, &mut Source::default());
                stream.sent(at_ns);
            }
            stream.queue_tail();
            assert_eq!(stream.next_resend(), Some(first), "{later_ns}");
        }
    }
}
