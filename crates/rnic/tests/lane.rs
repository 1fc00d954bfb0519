//! Queue pairs over a lane, in memory: what verbs mean stays what it is, and a message that waits
//! for a receive holds back no response.

mod common;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use common::shuttle::{MS, Weather, World};
use common::{ALL, Host, Memory, Side, agreed};
use weft_rnic::mpa::MpaRole;
use weft_rnic::wire::ids::Msn;
use weft_rnic::wire::llp::{Gather, Piece, RegisteredMemory};
use weft_rnic::{Conn, Input, LaneFlow, LaneSegment, NotReady, Pushed, SegmentLane, Sending};
use weft_verbs::{SendFlags, SendOp, SendWr};

const SUCCESS: u32 = 0;
const FLUSHED: u32 = 5;
const REMOTE_ACCESS: u32 = 10;

/// One direction.
#[derive(Default)]
struct Direction {
    flows: [VecDeque<Vec<u8>>; 2],
    taken: [u64; 2],
    not_ready: Option<NotReady>,
    is_withdrawn: bool,
}

/// One end of a lane whose other end is in the same process.
struct MemoryLane {
    out: Rc<RefCell<Direction>>,
    back: Rc<RefCell<Direction>>,
    front: [Option<Vec<u8>>; 2],
    taken: [u64; 2],
    room_bytes: usize,
    is_ended: bool,
    regions: Arc<weft_verbs::mr::RegionTable>,
}

impl SegmentLane for MemoryLane {
    fn is_ended(&self) -> bool {
        self.is_ended
    }

    fn room_bytes(&mut self, flow: LaneFlow) -> usize {
        let used: usize = self.out.borrow().flows[flow as usize].iter().map(Vec::len).sum();
        self.room_bytes.saturating_sub(used)
    }

    fn push(&mut self, flow: LaneFlow, segment: &Gather) -> Pushed {
        let mut bytes = Vec::new();
        for piece in segment.pieces() {
            match piece {
                Piece::Slab { start, len } => bytes.extend(segment.staged(*start, *len)),
                Piece::Memory(memory) => self.regions.reader().copy_to(*memory, &mut bytes),
            }
        }
        self.out.borrow_mut().flows[flow as usize].push_back(bytes);
        Pushed::Whole
    }

    fn publish(&mut self) {}

    fn front(&mut self, flow: LaneFlow) -> Option<LaneSegment<'_>> {
        let front = &mut self.front[flow as usize];
        if front.is_none() {
            *front = self.back.borrow_mut().flows[flow as usize].pop_front();
        }
        front.as_deref().map(|head| LaneSegment { head, payload: None })
    }

    fn pop(&mut self, flow: LaneFlow) {
        self.front[flow as usize] = None;
        self.taken[flow as usize] += 1;
    }

    fn release(&mut self) {
        self.back.borrow_mut().taken = self.taken;
    }

    fn announce(&mut self) {}

    fn waits_for_acks(&self) -> bool {
        false
    }

    fn placed(&mut self) -> [u64; 2] {
        self.out.borrow().taken
    }

    fn set_not_ready(&mut self, not_ready: Option<NotReady>) {
        self.back.borrow_mut().not_ready = not_ready;
    }

    fn not_ready(&self) -> Option<NotReady> {
        self.out.borrow().not_ready
    }

    fn withdraw(&mut self, credit: Msn) -> bool {
        let mut out = self.out.borrow_mut();
        out.is_withdrawn |= out.not_ready.is_some_and(|waits| waits.credit == credit);
        out.is_withdrawn
    }

    fn claim(&mut self) -> bool {
        let mut back = self.back.borrow_mut();
        back.not_ready = None;
        !back.is_withdrawn
    }
}

/// A queue pair that was connected by MPA and goes on over a lane.
struct End {
    side: common::Host,
    conn: Conn,
    lane: MemoryLane,
    now_ns: u64,
}

impl End {
    fn step(&mut self) -> bool {
        let received = self.conn.receive_from(&mut self.lane, self.now_ns);
        let before = self.conn.stats().segments_out;
        while self.conn.transmit_to(&mut self.lane, self.now_ns) == Sending::More {}
        received || self.conn.stats().segments_out != before
    }
}

/// Both ends of a lane.
fn lanes(regions: [&Arc<weft_verbs::mr::RegionTable>; 2]) -> [MemoryLane; 2] {
    let directions = [(); 2].map(|()| Rc::new(RefCell::new(Direction::default())));
    [0, 1].map(|index| {
        let [out, back] = [index, 1 - index].map(|at| Rc::clone(&directions[at]));
        let regions = Arc::clone(regions[index]);
        let (front, taken) = ([None, None], [0; 2]);
        MemoryLane { out, back, front, taken, room_bytes: 100_000, is_ended: false, regions }
    })
}

/// Both ends; `confirm` has requests complete when they are placed.
fn pair(confirm: bool) -> [End; 2] {
    let [near, far] = [MpaRole::Initiator, MpaRole::Responder].map(|role| {
        let Side { host, mpa, now_ns, .. } = Side::with(role, &agreed(), 1000, confirm);
        let mut conn = Conn::Mpa(Box::new(mpa));
        conn.use_lane();
        (host, conn, now_ns)
    });
    let lanes = lanes([near.0.device.regions(), far.0.device.regions()]);
    let mut lanes = lanes.into_iter();
    [near, far].map(|(side, conn, now_ns)| End { side, conn, lane: lanes.next().unwrap(), now_ns })
}

fn settle([a, b]: &mut [End; 2]) {
    while a.step() | b.step() {}
}

#[test]
fn writes_sends_reads_and_atomics_do_what_they_do_elsewhere() {
    for confirm in [false, true] {
        let mut ends = pair(confirm);
        let [a, b] = &ends;
        let here = a.side.memory(300_000, ALL);
        let mut there = b.side.memory(300_000, ALL);
        there.bytes.fill(7);
        let to = |offset| there.addr() + offset;
        b.side.recv(10, &[there.sge(200_000, 64)]);
        a.side.send(1, SendOp::Write { to: to(0), stag: there.key }, &[here.sge(0, 150_000)]);
        a.side.send(2, SendOp::Send, &[here.sge(0, 64)]);
        let from = SendOp::Read { to: to(250_000), stag: there.key };
        a.side.send(3, from, &[here.sge(150_000, 8)]);
        let add = SendOp::FetchAdd { to: to(200_000), stag: there.key, add: 5 };
        a.side.send(4, add, &[here.sge(160_000, 8)]);
        settle(&mut ends);
        let [a, b] = &ends;
        let all = [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS), (4, SUCCESS)];
        assert_eq!(a.side.statuses(), all);
        assert_eq!(b.side.statuses(), [(10, SUCCESS)]);
        assert!(there.bytes[..150_000 / 8].iter().all(|word| *word == 0));
        assert_eq!(there.bytes[150_000 / 8 + 1], 7);
        assert_eq!((there.bytes[200_000 / 8], here.bytes[160_000 / 8]), (5, 0));
        assert_eq!(here.bytes[150_000 / 8], 7);
    }
}

#[test]
fn a_message_that_waits_for_a_receive_holds_back_no_response() {
    let mut ends = pair(true);
    let [a, b] = &mut ends;
    // The peer's messages wait for so long.
    for end in [&mut *a, &mut *b] {
        if let Conn::Mpa(mpa) = &mut end.conn {
            mpa.wait_for_recv_forever();
        }
    }
    let (here, there) = (a.side.memory(64, ALL), b.side.memory(64, ALL));
    a.side.send(1, SendOp::Send, &[here.sge(0, 8)]);
    settle(&mut ends);
    let [a, b] = &ends;
    assert!(b.conn.is_held() && a.side.statuses().is_empty());
    b.side.send(2, SendOp::Read { to: here.addr(), stag: here.key }, &[there.sge(8, 8)]);
    settle(&mut ends);
    let [_, b] = &ends;
    assert_eq!(b.side.statuses(), [(2, SUCCESS)]);
    b.side.recv(3, &[there.sge(0, 8)]);
    settle(&mut ends);
    let (a, b) = (&ends[0].side, &ends[1].side);
    assert_eq!((a.statuses(), b.statuses()), (vec![(1, SUCCESS)], vec![(3, SUCCESS)]));
}

/// One look may find that the first is placed, and that the second waits.
#[test]
fn each_message_that_waits_for_a_receive_is_known_to_wait() {
    let mut world = World::new([Host::new(7), Host::new(11)], Weather::default(), 1);
    world.run_for(1000 * MS);
    let (now_ns, [a, b]) = (world.now_ns, &mut world.ends);
    let [mut near, mut far] = lanes([a.device.regions(), b.device.regions()]);
    a.shuttle.use_lane();
    b.shuttle.use_lane();
    for wr_id in [1, 2] {
        a.send(wr_id, SendOp::Send, &[]);
    }
    assert_eq!(a.shuttle.transmit_to(&mut near, now_ns), Sending::Done);
    b.shuttle.receive_from(&mut far, now_ns);
    assert!(a.shuttle.receive_from(&mut near, now_ns) && a.shuttle.awaits_peer_recv());
    b.recv(3, &[]);
    b.shuttle.receive_from(&mut far, now_ns);
    b.shuttle.acknowledge_to(&mut far);
    assert!(a.shuttle.receive_from(&mut near, now_ns) && a.shuttle.awaits_peer_recv());
    assert_eq!((a.statuses(), b.statuses()), (vec![(1, SUCCESS)], vec![(3, SUCCESS)]));
    b.recv(4, &[]);
    b.shuttle.receive_from(&mut far, now_ns);
    b.shuttle.acknowledge_to(&mut far);
    assert!(a.shuttle.receive_from(&mut near, now_ns) && !a.shuttle.awaits_peer_recv());
    assert_eq!((a.statuses(), b.statuses()), (vec![(2, SUCCESS)], vec![(4, SUCCESS)]));
}

#[test]
fn what_fails_acknowledges_nothing_behind_it() {
    let mut ends = pair(true);
    let [a, b] = &ends;
    let (here, there) = (a.side.memory(64, ALL), b.side.memory(64, ALL));
    let write = |stag| SendOp::Write { to: there.addr(), stag };
    a.side.send(1, write(there.key), &[here.sge(0, 8)]);
    a.side.send(2, write(there.key ^ 0x5500), &[here.sge(0, 8)]);
    a.side.send(3, write(there.key), &[here.sge(0, 8)]);
    settle(&mut ends);
    let statuses = ends[0].side.statuses();
    assert_eq!(statuses, [(1, SUCCESS), (2, REMOTE_ACCESS), (3, FLUSHED)]);
    assert!(ends.iter().all(|end| end.conn.is_dead()));
}

#[test]
fn a_send_is_complete_before_the_reply_to_it_is_there() {
    let mut ends = pair(true);
    let [a, b] = &ends;
    let (here, there) = (a.side.memory(64, ALL), b.side.memory(64, ALL));
    for round in 0..100 {
        let [a, b] = &mut ends;
        a.side.recv(1, &[here.sge(0, 8)]);
        b.side.recv(2, &[there.sge(0, 8)]);
        a.side.send(3, SendOp::Send, &[here.sge(8, 8)]);
        a.step();
        // The peer answers before this side has looked for the acknowledgement.
        b.step();
        b.side.send(4, SendOp::Send, &[there.sge(8, 8)]);
        b.step();
        a.step();
        let order: Vec<u64> = a.side.statuses().iter().map(|(wr_id, _)| *wr_id).collect();
        assert_eq!(order, [3, 1], "round {round}");
        b.step();
        assert_eq!(b.side.statuses(), [(2, SUCCESS), (4, SUCCESS)]);
    }
}

#[test]
fn what_there_is_no_room_for_follows_later() {
    let mut ends = pair(true);
    ends.iter_mut().for_each(|end| end.lane.room_bytes = 5000);
    let [a, b] = &ends;
    let (here, there) = (a.side.memory(60_000, ALL), b.side.memory(60_000, ALL));
    let write = SendOp::Write { to: there.addr(), stag: there.key };
    a.side.send(1, write, &[here.sge(0, 60_000)]);
    let read = SendOp::Read { to: there.addr(), stag: there.key };
    a.side.send(2, read, &[here.sge(0, 60_000)]);
    settle(&mut ends);
    assert_eq!(ends[0].side.statuses(), [(1, SUCCESS), (2, SUCCESS)]);
}

#[test]
fn the_acknowledgement_of_a_write_leaves_with_the_answer_to_it() {
    let mut ends = pair(true);
    let (here, there) = (ends[0].side.memory(64, ALL), ends[1].side.memory(64, ALL));
    let write = |to: &Memory| SendOp::Write { to: to.addr(), stag: to.key };
    let mut early = Vec::new();
    for _ in 0..20 {
        let [a, b] = &mut ends;
        a.side.send(1, write(&there), &[here.sge(0, 8)]);
        a.step();
        b.step();
        a.step();
        let mut statuses = a.side.statuses();
        early.push(!statuses.is_empty());
        b.side.send(2, write(&here), &[there.sge(0, 8)]);
        b.step();
        a.step();
        statuses.extend(a.side.statuses());
        assert_eq!(statuses, [(1, SUCCESS)]);
    }
    assert!(early[0] && !early[19], "{early:?}");
    let [a, b] = &mut ends;
    a.side.send(3, write(&there), &[here.sge(0, 8)]);
    a.step();
    b.step();
    a.step();
    assert_eq!(a.side.statuses(), []);
    b.now_ns = b.conn.poll_timeout().expect("it does not wait for ever");
    b.step();
    a.step();
    assert_eq!(a.side.statuses(), [(3, SUCCESS)]);
}

#[test]
fn a_write_of_an_rnic_is_complete_when_it_is_placed_and_its_send_when_it_is_written() {
    let mut ends = pair(false);
    // The initiator begins with a Write.
    settle(&mut ends);
    let [a, b] = &mut ends;
    let (here, there) = (a.side.memory(64, ALL), b.side.memory(64, ALL));
    let write = SendOp::Write { to: there.addr(), stag: there.key };
    // Of the two Sends the second has to wait for a receive.
    if let Conn::Mpa(mpa) = &mut b.conn {
        mpa.wait_for_recv_forever();
    }
    b.side.recv(10, &[there.sge(0, 8)]);
    a.side.send(1, SendOp::Send, &[here.sge(0, 8)]);
    a.step();
    assert_eq!(a.side.statuses(), [(1, SUCCESS)]);
    a.side.send(2, write, &[here.sge(0, 8)]);
    a.side.send(3, SendOp::Send, &[here.sge(0, 8)]);
    a.step();
    assert_eq!(a.side.statuses(), []);
    b.step();
    a.step();
    assert_eq!(a.side.statuses(), [(2, SUCCESS), (3, SUCCESS)]);
    // What the memory has reaches the peer whatever becomes of this side.
    a.side.send(4, write, &[here.sge(0, 8)]);
    a.step();
    a.conn.handle(Input::Close, 0);
    assert_eq!(a.side.statuses(), [(4, SUCCESS)]);
}

#[test]
fn who_sleeps_need_only_hear_of_segments_that_bring_a_completion() {
    let mut ends = pair(true);
    settle(&mut ends);
    let [a, b] = &mut ends;
    let (here, there) = (a.side.memory(150_000, ALL), b.side.memory(150_000, ALL));
    let op = SendOp::Write { to: there.addr(), stag: there.key };
    let post = |end: &End, flags| {
        let sges = &[here.sge(0, 150_000)];
        end.side.qp.post_send(&SendWr { wr_id: 1, op, flags, sges }).unwrap();
    };
    assert_eq!(a.conn.awaited_acks(true), None);
    post(a, SendFlags::default());
    assert!(a.conn.awaited_acks(false).is_none(), "nothing is sent yet");
    a.lane.room_bytes = 600_000;
    a.step();
    assert_eq!(a.conn.awaited_acks(false), None);
    let first = a.conn.awaited_acks(true).unwrap();
    post(a, SendFlags::SIGNALED);
    post(a, SendFlags::default());
    a.step();
    let (signaled, all) = (a.conn.awaited_acks(false).unwrap(), a.conn.awaited_acks(true).unwrap());
    assert!(all > signaled && signaled > first);
    assert_eq!(all - signaled, signaled - first, "as many segments each");
    while b.step() | a.step() {}
    assert_eq!((a.conn.awaited_acks(true), a.side.statuses().len()), (None, 1));
    a.lane.room_bytes = 0;
    post(a, SendFlags::SIGNALED);
    assert_eq!(a.conn.awaited_acks(true), None, "it waits for room");
}

#[test]
fn what_is_not_sent_waits_for_any_segment_before_it() {
    let mut ends = pair(true);
    settle(&mut ends);
    let [a, b] = &mut ends;
    let (here, there) = (a.side.memory(64, ALL), b.side.memory(64, ALL));
    let op = SendOp::Write { to: there.addr(), stag: there.key };
    let sges = &[here.sge(0, 8)];
    for _ in 0..2 {
        a.side.qp.post_send(&SendWr { wr_id: 1, op, flags: SendFlags::default(), sges }).unwrap();
    }
    a.step();
    let all = a.conn.awaited_acks(true).unwrap();
    a.side.qp.post_send(&SendWr { wr_id: 1, op, flags: SendFlags::default(), sges }).unwrap();
    assert_eq!(a.conn.awaited_acks(false), Some(all - 1));
}

#[test]
fn what_was_placed_is_not_flushed_although_nobody_waited_for_it() {
    let mut ends = pair(true);
    settle(&mut ends);
    let [a, b] = &mut ends;
    let (here, there) = (a.side.memory(64, ALL), b.side.memory(64, ALL));
    let op = SendOp::Write { to: there.addr(), stag: there.key };
    let (flags, sges) = (SendFlags::default(), &[here.sge(0, 8)]);
    a.side.qp.post_send(&SendWr { wr_id: 1, op, flags, sges }).unwrap();
    a.step();
    b.step();
    a.conn.acknowledge_to(&mut a.lane);
    a.conn.handle(Input::Close, 0);
    assert_eq!(a.side.statuses(), []);
}

#[test]
fn a_terminate_does_not_overtake_the_responses_before_it() {
    let mut ends = pair(false);
    ends.iter_mut().for_each(|end| end.lane.room_bytes = 8 << 20);
    let [a, b] = &ends;
    // More than is taken in one go.
    let (here, there) = (a.side.memory(3 << 20, ALL), b.side.memory(3 << 20, ALL));
    let (to, stag) = (there.addr(), there.key);
    a.side.send(1, SendOp::Read { to, stag }, &[here.sge(0, 3 << 20)]);
    a.side.send(2, SendOp::Write { to, stag: stag ^ 0x5500 }, &[here.sge(0, 8)]);
    settle(&mut ends);
    assert_eq!(ends[0].side.statuses(), [(1, SUCCESS), (2, REMOTE_ACCESS)]);
}

#[test]
fn a_terminate_finds_its_way_past_requests_that_are_refused() {
    let mut ends = pair(true);
    let [a, b] = &ends;
    let (here, there) = (a.side.memory(400_000, ALL), b.side.memory(400_000, ALL));
    for (end, own, peers) in [(a, &here, &there), (b, &there, &here)] {
        let (to, stag) = (peers.addr(), peers.key);
        end.side.send(1, SendOp::Read { to, stag }, &[own.sge(0, 8)]);
        end.side.send(2, SendOp::Write { to, stag: stag ^ 0x5500 }, &[own.sge(0, 8)]);
        end.side.send(3, SendOp::Write { to, stag }, &[own.sge(0, 400_000)]);
    }
    settle(&mut ends);
    for end in &ends {
        assert_eq!(end.side.statuses().len(), 3);
        assert!(end.conn.is_dead());
    }
}

#[test]
fn what_was_sent_before_a_terminate_is_placed_before_it() {
    let mut ends = pair(false);
    settle(&mut ends);
    let [a, b] = &mut ends;
    if let Conn::Mpa(mpa) = &mut b.conn {
        mpa.wait_for_recv_forever();
    }
    let (here, there) = (a.side.memory(64, ALL), b.side.memory(64, ALL));
    a.side.send(1, SendOp::Send, &[here.sge(0, 8)]);
    a.step();
    // A request that cannot be sent ends the stream.
    a.side.send(2, SendOp::Send, &[weft_verbs::Sge { lkey: here.key ^ 0x5500, ..here.sge(0, 8) }]);
    settle(&mut ends);
    assert_eq!(ends[0].side.statuses().first(), Some(&(1, SUCCESS)));
    assert!(ends[0].conn.is_dead() && !ends[1].conn.is_dead(), "the message waits");
    ends[1].side.recv(3, &[there.sge(0, 8)]);
    settle(&mut ends);
    assert_eq!(ends[1].side.statuses(), [(3, SUCCESS)]);
    assert!(ends[1].conn.is_dead());
}

#[test]
fn a_terminate_behind_a_whole_turn_is_acted_on_in_the_next() {
    let mut ends = pair(false);
    ends.iter_mut().for_each(|end| end.lane.room_bytes = 8 << 20);
    settle(&mut ends);
    let [a, b] = &mut ends;
    let (here, there) = (a.side.memory(1 << 20, ALL), b.side.memory(1 << 20, ALL));
    let write = |to: &Memory, key| SendOp::Write { to: to.addr(), stag: to.key ^ key };
    a.side.send(1, write(&there, 0), &[here.sge(0, 1 << 20)]);
    a.step();
    b.side.send(2, write(&here, 0x5500), &[there.sge(0, 8)]);
    assert_eq!(b.conn.transmit_to(&mut b.lane, b.now_ns), Sending::Done);
    a.step();
    assert!(a.conn.is_dead() && b.conn.receive_from(&mut b.lane, b.now_ns) && !b.conn.is_dead());
    // Nothing arrives any more, so it says itself that it is to look again.
    assert!(b.conn.poll_timeout().is_some_and(|at_ns| at_ns <= b.now_ns));
    assert!(b.conn.receive_from(&mut b.lane, b.now_ns) && b.conn.is_dead());
    assert_eq!(b.side.statuses(), [(2, REMOTE_ACCESS)]);
}

#[test]
fn an_end_that_refuses_hears_that_it_is_refused() {
    let mut ends = pair(true);
    let [a, b] = &ends;
    let (here, there) = (a.side.memory(300_000, ALL), b.side.memory(300_000, ALL));
    for (end, own, peers, len) in [(a, &here, &there, 8), (b, &there, &here, 300_000)] {
        let (to, stag) = (peers.addr(), peers.key);
        end.side.send(1, SendOp::Read { to, stag }, &[own.sge(0, len)]);
        end.side.send(2, SendOp::Write { to, stag: stag ^ 0x5500 }, &[own.sge(0, 8)]);
    }
    // The first end has its answer and the peer's refusal while its own answer is under way.
    let [a, b] = &mut ends;
    a.step();
    b.step();
    b.step();
    while !a.conn.is_dead() && !b.conn.is_dead() {
        a.step();
        b.step();
    }
    let (first, other) = if a.conn.is_dead() { (a, b) } else { (b, a) };
    while first.step() {}
    other.lane.is_ended = true;
    while other.step() && !other.conn.is_dead() {}
    let statuses = other.side.statuses();
    assert_eq!(statuses.last().copied(), Some((2, REMOTE_ACCESS)), "{statuses:?}");
}
