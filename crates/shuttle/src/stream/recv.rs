//! Receiving half of a stream: places each segment once, in whatever order they arrive, and
//! delivers at the frontier.
//!
//! Invariant: a segment is placed at most once; a segment reported as received is placed, or held
//! until it can be (S-30, S-43).

use std::collections::BTreeMap;

use weft_wire::ddp::DdpHeader;
use weft_wire::llp::{Placed, UlpduSink};
use weft_wire::rdmap::Opcode;

use super::send::DSN_WINDOW;
use super::{Placement, Repair};
use crate::window::SeenWindow;

/// Memory that a held segment takes besides its bytes: its number, its allocation, its part of the
/// tree. Without it a peer could have millions held of a byte each.
const HELD_RECORD_OCTETS: usize = 64;

/// Result of a segment's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Placed or held: the packet is acknowledged.
    Yes,
    /// Duplicate: the packet is acknowledged.
    Duplicate,
    /// Dropped for want of room, as if it had never arrived.
    No,
}

/// The receiving half of a stream.
#[derive(Debug)]
pub(crate) struct RecvStream {
    placed: SeenWindow,
    held: BTreeMap<u64, Vec<u8>>,
    /// Window of numbers placed or held.
    noted: SeenWindow,
    held_octets: usize,
    held_octets_max: usize,
    /// Everything before this has arrived; held answers before this are placed although a message
    /// without a receive precedes them (S-38).
    answered: u64,
    placement: Placement,
    repair: Repair,
    /// The sender gave up segments before this that have not arrived.
    skip_to: u64,
    /// A request at the frontier will be refused: of what is there, only answers to this end's
    /// requests are kept and placed.
    refuses: bool,
    /// A segment was refused: nothing more is placed.
    failed: bool,
}

impl RecvStream {
    pub(crate) fn new(placement: Placement, repair: Repair, held_octets_max: usize) -> Self {
        Self {
            placed: SeenWindow::new(DSN_WINDOW),
            held: BTreeMap::new(),
            noted: SeenWindow::new(DSN_WINDOW),
            held_octets: 0,
            held_octets_max,
            answered: 0,
            placement,
            repair,
            skip_to: 0,
            refuses: false,
            failed: false,
        }
    }

    /// Frontier: every segment before this is placed or skipped.
    pub(crate) fn frontier(&self) -> u64 {
        self.placed.frontier()
    }

    /// Whether the frontier says all that has arrived.
    pub(crate) fn is_unbroken(&self) -> bool {
        self.held.is_empty() && !self.refuses && self.placed.is_unbroken()
    }

    /// Heap memory in use, in bytes.
    pub(crate) fn kept_octets(&self) -> usize {
        self.placed.kept_octets() + self.noted.kept_octets() + self.held_octets
    }

    /// Handles segment `dsn`.
    ///
    /// # Errors
    /// The fault of the first segment that must not be placed. Later ones are dropped.
    pub(crate) fn handle_segment<S: UlpduSink>(
        &mut self,
        dsn: u64,
        ulpdu: &[u8],
        sink: &mut S,
    ) -> Result<Taken, S::Fault> {
        let frontier = self.frontier();
        if self.placed.contains(dsn) || self.noted.contains(dsn) {
            return Ok(Taken::Duplicate);
        }
        if dsn - frontier >= DSN_WINDOW {
            return Ok(Taken::No);
        }
        if self.failed {
            return Ok(Taken::Yes);
        }
        let waits = self.is_refused(ulpdu) || self.must_wait(dsn, ulpdu);
        if waits || !self.place(dsn, ulpdu, sink)? {
            let taken = self.hold(dsn, ulpdu);
            self.place_answers(sink)?;
            return Ok(taken);
        }
        self.release(frontier, sink)?;
        Ok(Taken::Yes)
    }

    /// Offers held segments again, after receives were posted.
    pub(crate) fn retry<S: UlpduSink>(&mut self, sink: &mut S) -> Result<(), S::Fault> {
        let frontier = self.frontier();
        if self.failed || self.held.is_empty() { Ok(()) } else { self.release(frontier, sink) }
    }

    /// Handles a Skip up to `dsn` (S-37); ignored unless losses were agreed to.
    pub(crate) fn handle_skip<S: UlpduSink>(
        &mut self,
        dsn: u64,
        sink: &mut S,
    ) -> Result<(), S::Fault> {
        let frontier = self.frontier();
        let believed = self.repair == Repair::Off && dsn.saturating_sub(frontier) <= DSN_WINDOW;
        if !believed || self.failed || dsn <= self.skip_to {
            return Ok(());
        }
        self.skip_to = dsn;
        self.release(frontier, sink)
    }

    /// Whether the placement policy makes the segment wait (S-31).
    fn must_wait(&self, dsn: u64, ulpdu: &[u8]) -> bool {
        let early = dsn > self.frontier();
        match self.placement {
            Placement::Loose => false,
            Placement::Strict => early,
            Placement::Tail => early && is_tail(ulpdu),
        }
    }

    /// Whether the segment is of a request at or behind one that will be refused.
    fn is_refused(&self, ulpdu: &[u8]) -> bool {
        self.refuses && !is_answer(ulpdu)
    }

    /// Places a segment; `false` if the sink does not take it, or not yet.
    fn place<S: UlpduSink>(
        &mut self,
        dsn: u64,
        ulpdu: &[u8],
        sink: &mut S,
    ) -> Result<bool, S::Fault> {
        match sink.place(dsn, ulpdu).inspect_err(|_| self.fail())? {
            Placed::Held => return Ok(false),
            Placed::Refused => {
                self.refuse();
                return Ok(false);
            }
            Placed::Memory | Placed::Control | Placed::Dropped => {}
        }
        self.placed.insert(dsn);
        Ok(true)
    }

    /// Requests are not kept any more. They would leave no room for answers, without which neither
    /// of two ends that refuse each other's requests comes to do so.
    fn refuse(&mut self) {
        self.refuses = true;
        self.held.retain(|_, ulpdu| is_answer(ulpdu));
        self.held_octets = self.held.values().map(|ulpdu| held_size(ulpdu)).sum();
    }

    fn hold(&mut self, dsn: u64, ulpdu: &[u8]) -> Taken {
        if !self.is_refused(ulpdu) {
            // What comes next always finds room, or the stream would deadlock (S-32). An answer is
            // placed at once.
            let is_next = dsn == self.frontier() || dsn == self.answered && is_answer(ulpdu);
            let fits = self.held_octets + held_size(ulpdu) <= self.held_octets_max;
            if !fits && !is_next {
                return Taken::No;
            }
            self.held_octets += held_size(ulpdu);
            self.held.insert(dsn, ulpdu.to_vec());
        }
        self.noted.raise(self.frontier());
        self.noted.insert(dsn);
        Taken::Yes
    }

    /// Delivers the frontier beyond `told`, and places held segments that it reaches.
    fn release<S: UlpduSink>(&mut self, mut told: u64, sink: &mut S) -> Result<(), S::Fault> {
        loop {
            let frontier = self.frontier();
            if frontier > told {
                sink.deliver(frontier).inspect_err(|_| self.fail())?;
                told = frontier;
            }
            let Some(first) = self.held.first_entry().filter(|first| *first.key() == frontier)
            else {
                if self.pass_gap(sink)? {
                    continue;
                }
                return Ok(());
            };
            let ulpdu = first.remove();
            self.held_octets -= held_size(&ulpdu);
            if !self.place(frontier, &ulpdu, sink)? {
                self.hold(frontier, &ulpdu);
                return self.place_answers(sink);
            }
        }
    }

    /// Places held answers to this end's requests behind a message without a receive, or a request
    /// that is refused, as far as everything has arrived (S-38). Otherwise an application that
    /// posts a receive only after an answer would deadlock.
    fn place_answers<S: UlpduSink>(&mut self, sink: &mut S) -> Result<(), S::Fault> {
        let frontier = self.frontier();
        if !self.held.contains_key(&frontier) && !self.refuses {
            return Ok(());
        }
        self.answered = self.answered.max(frontier);
        loop {
            let at = self.answered;
            match self.held.get(&at) {
                Some(ulpdu) if is_answer(ulpdu) => {
                    let ulpdu = self.held.remove(&at).unwrap_or_default();
                    if !self.place(at, &ulpdu, sink)? {
                        self.held.insert(at, ulpdu);
                        return Ok(());
                    }
                    self.held_octets -= held_size(&ulpdu);
                }
                Some(_) => {}
                // Placed, or refused.
                None if self.placed.contains(at) || self.noted.contains(at) => {}
                None => return Ok(()),
            }
            self.answered += 1;
        }
    }

    /// Skips segments at the frontier that the sender gave up; returns whether there were any.
    fn pass_gap<S: UlpduSink>(&mut self, sink: &mut S) -> Result<bool, S::Fault> {
        let frontier = self.frontier();
        if self.skip_to <= frontier {
            return Ok(false);
        }
        let held = self.held.first_key_value().map(|(dsn, _)| *dsn);
        let there = [self.placed.first_seen(), held].into_iter().flatten().min();
        let next = there.map_or(self.skip_to, |there| there.min(self.skip_to));
        sink.missed(frontier, next - 1).inspect_err(|_| self.fail())?;
        self.placed.raise(next);
        Ok(true)
    }

    fn fail(&mut self) {
        self.failed = true;
        self.held.clear();
        self.held_octets = 0;
    }
}

/// Memory that a held segment takes, in bytes.
fn held_size(ulpdu: &[u8]) -> usize {
    ulpdu.len() + HELD_RECORD_OCTETS
}

/// Whether the segment ends a message: applications poll the last byte of a Write, and RDMAP acts
/// on the end of any message.
fn is_tail(ulpdu: &[u8]) -> bool {
    match DdpHeader::parse(ulpdu) {
        Ok((DdpHeader::Tagged(header), _)) => header.last,
        Ok((DdpHeader::Untagged(header), _)) => header.last,
        Err(_) => true,
    }
}

/// Whether the segment answers a request of this end.
fn is_answer(ulpdu: &[u8]) -> bool {
    let opcode = DdpHeader::parse(ulpdu).ok().and_then(|(header, _)| header.opcode().ok());
    matches!(opcode, Some(Opcode::ReadResponse | Opcode::AtomicResponse))
}

#[cfg(test)]
mod tests {
    use weft_wire::ddp::TaggedHeader;
    use weft_wire::ids::STag;

    use super::*;

    /// Notes the order of placements and deliveries.
    #[derive(Default)]
    struct Sink {
        placed: Vec<u64>,
        delivered: u64,
        missed: Vec<(u64, u64)>,
        patience: bool,
        refuse: Option<u64>,
    }

    impl UlpduSink for Sink {
        type Fault = u64;

        fn place(&mut self, seq: u64, _: &[u8]) -> Result<Placed, u64> {
            if self.refuse == Some(seq) {
                return Err(seq);
            }
            if self.patience {
                return Ok(Placed::Held);
            }
            self.placed.push(seq);
            Ok(Placed::Memory)
        }

        fn deliver(&mut self, frontier: u64) -> Result<(), u64> {
            assert!(frontier > self.delivered);
            self.delivered = frontier;
            Ok(())
        }

        fn missed(&mut self, first: u64, last: u64) -> Result<(), u64> {
            self.missed.push((first, last));
            Ok(())
        }
    }

    /// A segment of a Write; every third is its last.
    fn segment(dsn: u64) -> Vec<u8> {
        let last = dsn % 3 == 2;
        TaggedHeader { last, control: 0x40, stag: STag(1), to: dsn }.to_bytes().to_vec()
    }

    fn run(placement: Placement, order: &[u64]) -> Sink {
        let (mut stream, mut sink) =
            (RecvStream::new(placement, Repair::Full, 1000), Sink::default());
        for dsn in order {
            assert_ne!(stream.handle_segment(*dsn, &segment(*dsn), &mut sink), Ok(Taken::No));
        }
        assert_eq!(sink.delivered, stream.frontier());
        sink
    }

    #[test]
    fn each_placement_has_its_order() {
        let order = [2, 1, 5, 5, 0, 1, 4, 3];
        assert_eq!(run(Placement::Loose, &order).placed, [2, 1, 5, 0, 4, 3]);
        assert_eq!(run(Placement::Tail, &order).placed, [1, 0, 2, 4, 3, 5]);
        assert_eq!(run(Placement::Strict, &order).placed, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn what_cannot_be_held_has_not_arrived() {
        let room_for_one = held_size(&segment(3)) + 10;
        let mut stream = RecvStream::new(Placement::Strict, Repair::Full, room_for_one);
        let mut sink = Sink::default();
        assert_eq!(stream.handle_segment(3, &segment(3), &mut sink), Ok(Taken::Yes));
        assert_eq!(stream.handle_segment(2, &segment(2), &mut sink), Ok(Taken::No));
        assert_eq!(stream.handle_segment(2, &segment(2), &mut sink), Ok(Taken::No));
        assert_eq!(stream.handle_segment(DSN_WINDOW, &segment(0), &mut sink), Ok(Taken::No));
        assert_eq!(stream.frontier(), 0);
    }

    #[test]
    fn a_message_waits_for_its_receive() {
        let mut stream = RecvStream::new(Placement::Tail, Repair::Full, 0);
        let mut sink = Sink { patience: true, ..Sink::default() };
        assert_eq!(stream.handle_segment(0, &segment(0), &mut sink), Ok(Taken::Yes));
        assert_eq!(stream.handle_segment(0, &segment(0), &mut sink), Ok(Taken::Duplicate));
        assert_eq!(stream.retry(&mut sink), Ok(()));
        assert_eq!(sink.delivered, 0);
        sink.patience = false;
        assert_eq!(stream.retry(&mut sink), Ok(()));
        assert_eq!((sink.placed, sink.delivered), (vec![0], 1));
    }

    /// Takes answers, and nothing else.
    #[derive(Default)]
    struct Answered(Vec<u64>);

    impl UlpduSink for Answered {
        type Fault = ();

        fn place(&mut self, seq: u64, ulpdu: &[u8]) -> Result<Placed, ()> {
            if !is_answer(ulpdu) {
                return Ok(Placed::Held);
            }
            self.0.push(seq);
            Ok(Placed::Memory)
        }

        fn deliver(&mut self, _: u64) -> Result<(), ()> {
            Ok(())
        }
    }

    #[test]
    fn an_answer_passes_a_message_that_waits_for_its_receive() {
        let control = Opcode::ReadResponse.control();
        let answer =
            |dsn| TaggedHeader { last: true, control, stag: STag(1), to: dsn }.to_bytes().to_vec();
        let mut stream = RecvStream::new(Placement::Tail, Repair::Full, 1000);
        let mut sink = Answered::default();
        // Segments 0, 2 and 4 are the peer's own requests; 3 and 5 answer this end's.
        for dsn in [0, 5, 3] {
            let ulpdu = if dsn % 2 == 1 { answer(dsn) } else { segment(dsn) };
            assert_eq!(stream.handle_segment(dsn, &ulpdu, &mut sink), Ok(Taken::Yes));
        }
        assert_eq!(sink.0, [], "the answer before them may still be on its way");
        for dsn in [1, 2] {
            let ulpdu = if dsn == 1 { answer(1) } else { segment(dsn) };
            assert_eq!(stream.handle_segment(dsn, &ulpdu, &mut sink), Ok(Taken::Yes));
        }
        assert_eq!(sink.0, [1, 3]);
        assert_eq!(stream.handle_segment(4, &segment(4), &mut sink), Ok(Taken::Yes));
        assert_eq!(sink.0, [1, 3, 5]);
        assert_eq!((stream.frontier(), stream.held_octets), (0, 3 * held_size(&segment(0))));
        assert_eq!(stream.handle_segment(3, &answer(3), &mut sink), Ok(Taken::Duplicate));
    }

    #[test]
    fn what_will_not_come_is_passed_and_told() {
        for placement in [Placement::Strict, Placement::Tail, Placement::Loose] {
            let mut stream = RecvStream::new(placement, Repair::Off, 1000);
            let mut sink = Sink::default();
            for dsn in [1, 5, 7] {
                stream.handle_segment(dsn, &segment(dsn), &mut sink).unwrap();
            }
            stream.handle_skip(4, &mut sink).unwrap();
            assert_eq!((&sink.missed[..], sink.delivered), (&[(0, 0), (2, 3)][..], 4));
            stream.handle_skip(3, &mut sink).unwrap();
            assert_eq!(stream.handle_segment(2, &segment(2), &mut sink), Ok(Taken::Duplicate));
            stream.handle_skip(9, &mut sink).unwrap();
            assert_eq!(sink.missed[2..], [(4, 4), (6, 6), (8, 8)]);
            sink.placed.sort_unstable();
            assert_eq!((&sink.placed[..], sink.delivered), (&[1, 5, 7][..], 9));
            stream.handle_skip(u64::MAX, &mut sink).unwrap();
            assert_eq!(stream.frontier(), 9);
        }
        let mut stream = RecvStream::new(Placement::Tail, Repair::Full, 1000);
        stream.handle_skip(4, &mut Sink::default()).unwrap();
        assert_eq!(stream.frontier(), 0);
    }

    #[test]
    fn a_message_that_waits_for_its_receive_is_not_passed() {
        let mut stream = RecvStream::new(Placement::Loose, Repair::Off, 1000);
        let mut sink = Sink { patience: true, ..Sink::default() };
        stream.handle_segment(1, &segment(1), &mut sink).unwrap();
        stream.handle_skip(3, &mut sink).unwrap();
        assert_eq!((&sink.missed[..], stream.frontier()), (&[(0, 0)][..], 1));
        sink.patience = false;
        stream.retry(&mut sink).unwrap();
        assert_eq!((&sink.missed[1..], sink.delivered), (&[(2, 2)][..], 3));
    }

    #[test]
    fn a_fault_is_told_once_and_ends_placement() {
        let mut stream = RecvStream::new(Placement::Loose, Repair::Full, 100);
        let mut sink = Sink { refuse: Some(1), ..Sink::default() };
        assert_eq!(stream.handle_segment(1, &segment(1), &mut sink), Err(1));
        assert_eq!(stream.handle_segment(0, &segment(0), &mut sink), Ok(Taken::Yes));
        assert!(sink.placed.is_empty());
    }

    /// Takes everything but segment 0, which waits for a receive.
    #[derive(Default)]
    struct AllButFirst(Vec<u64>);

    impl UlpduSink for AllButFirst {
        type Fault = ();

        fn place(&mut self, seq: u64, _: &[u8]) -> Result<Placed, ()> {
            if seq == 0 {
                return Ok(Placed::Held);
            }
            self.0.push(seq);
            Ok(Placed::Memory)
        }

        fn deliver(&mut self, _: u64) -> Result<(), ()> {
            Ok(())
        }
    }

    /// S-38.
    #[test]
    fn an_answer_passes_what_was_placed_behind_a_message_that_waits() {
        let control = Opcode::ReadResponse.control();
        let answer = TaggedHeader { last: true, control, stag: STag(1), to: 0 }.to_bytes();
        let mut stream = RecvStream::new(Placement::Tail, Repair::Full, 1000);
        let mut sink = AllButFirst::default();
        for dsn in [0, 1] {
            assert_eq!(stream.handle_segment(dsn, &segment(dsn), &mut sink), Ok(Taken::Yes));
        }
        assert_eq!(stream.handle_segment(2, &answer, &mut sink), Ok(Taken::Yes));
        assert_eq!(sink.0, [1, 2]);
        assert_eq!((stream.frontier(), stream.held_octets), (0, held_size(&segment(0))));
    }

    /// Refuses every request from 4 on, and takes answers.
    #[derive(Default)]
    struct FromFour(Vec<u64>);

    impl UlpduSink for FromFour {
        type Fault = ();

        fn place(&mut self, seq: u64, ulpdu: &[u8]) -> Result<Placed, ()> {
            if seq >= 4 && !is_answer(ulpdu) {
                return Ok(Placed::Refused);
            }
            self.0.push(seq);
            Ok(Placed::Memory)
        }

        fn deliver(&mut self, _: u64) -> Result<(), ()> {
            Ok(())
        }
    }

    #[test]
    fn refused_requests_take_no_room_from_answers() {
        let control = Opcode::ReadResponse.control();
        let answer =
            |dsn| TaggedHeader { last: true, control, stag: STag(1), to: dsn }.to_bytes().to_vec();
        let room_for_one = held_size(&answer(0));
        let mut stream = RecvStream::new(Placement::Strict, Repair::Full, room_for_one);
        let mut sink = FromFour::default();
        // 5 is there before it is known that 4 will be refused.
        for dsn in [0, 1, 2, 3, 5, 4, 6, 8, 9] {
            assert_eq!(stream.handle_segment(dsn, &segment(dsn), &mut sink), Ok(Taken::Yes));
        }
        assert_eq!((stream.frontier(), stream.held_octets), (4, 0));
        assert!(!stream.is_unbroken());
        assert_eq!(stream.handle_segment(5, &segment(5), &mut sink), Ok(Taken::Duplicate));
        assert_eq!(stream.handle_segment(10, &answer(10), &mut sink), Ok(Taken::Yes));
        assert_eq!(sink.0, [0, 1, 2, 3], "an answer before it may be on its way");
        assert_eq!(stream.handle_segment(7, &answer(7), &mut sink), Ok(Taken::Yes));
        assert_eq!((&sink.0[4..], stream.held_octets), (&[7, 10][..], 0));
    }
}
