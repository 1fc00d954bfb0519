//! Both ends of a lane in one process, by the rendezvous as two processes make it.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;

use weft_rnic::wire::ids::Msn;
use weft_rnic::wire::llp::{Gather, MemoryPiece};
use weft_rnic::{LaneFlow, NotReady, Pushed, SegmentLane};
use weft_verbs::mr::SegmentPayload;

use super::rendezvous::{LaneListener, LaneOffer};
use super::{AckWake, ShmLane, memory};

use LaneFlow::{Requests, Responses};

/// Both ends of a lane, made as two processes would over TCP.
pub(super) fn pair() -> (ShmLane, ShmLane) {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = LaneListener::bind(tcp.local_addr().unwrap()).unwrap();
    let stream = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    let offer = LaneOffer::make(&stream).expect("both are on one host");
    let (accepted, _) = tcp.accept().unwrap();
    let responder = listener.claim(&accepted).expect("it was offered before");
    (offer.granted().expect("it was granted"), responder)
}

/// A segment whose payload begins at `position` of what [`byte_at`] makes, behind the header of an
/// untagged segment.
fn segment(position: u64, payload_bytes: usize) -> Gather {
    let mut gather = Gather::default();
    gather.push_bytes(&[0x41; 18]);
    gather
        .push_with(|slab| slab.extend((0..payload_bytes as u64).map(|at| byte_at(position + at))));
    gather
}

pub(super) fn send(lane: &mut ShmLane, flow: LaneFlow, payload: &[u8]) -> Pushed {
    let mut gather = Gather::default();
    gather.push_bytes(payload);
    let pushed = lane.push(flow, &gather);
    lane.publish();
    pushed
}

/// The next segment of a flow, as one piece.
pub(super) fn take(lane: &mut ShmLane, flow: LaneFlow) -> Option<Vec<u8>> {
    let segment = lane.front(flow)?;
    let whole = [segment.head, segment.payload.map_or(&[], SegmentPayload::bytes)].concat();
    lane.pop(flow);
    lane.release();
    Some(whole)
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % limit
    }
}

pub(super) fn byte_at(position: u64) -> u8 {
    (position.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn flow_at(random: &mut Random) -> LaneFlow {
    if random.below(3) == 0 { Responses } else { Requests }
}

/// Sends `total` bytes of payload in each flow in segments of random sizes, and sleeps when there
/// is no room.
fn write_all(lane: &mut ShmLane, total: u64, mut random: Random) {
    let mut sent = [0; 2];
    while sent.iter().any(|sent| *sent < total) {
        let flow = flow_at(&mut random);
        let position = &mut sent[flow as usize];
        let len = match random.below(3) {
            0 => 1 + random.below(100),
            1 => 1 + random.below(5000),
            _ => 1 + random.below(33_000),
        };
        let len = len.min(total - *position);
        if len == 0 {
            continue;
        }
        match lane.push(flow, &segment(*position, len as usize)) {
            Pushed::Whole | Pushed::Lent => *position += len,
            Pushed::Full => {
                lane.publish();
                lane.wait();
                lane.placed();
            }
            Pushed::Gone => panic!("memory is gone after {sent:?} bytes"),
        }
        if random.below(4) == 0 {
            lane.publish();
        }
    }
    lane.publish();
}

fn read_all(lane: &mut ShmLane, total: u64, mut random: Random) {
    let mut received = [0; 2];
    while received.iter().any(|received| *received < total) {
        let flow = flow_at(&mut random);
        let position = &mut received[flow as usize];
        match lane.front(flow) {
            Some(segment) => {
                let whole =
                    [segment.head, segment.payload.map_or(&[], SegmentPayload::bytes)].concat();
                let (header, payload) = whole.split_at(18);
                assert_eq!(header, [0x41; 18]);
                for byte in payload {
                    assert_eq!(*byte, byte_at(*position), "byte {position} of {flow:?}");
                    *position += 1;
                }
                lane.pop(flow);
            }
            None if random.below(2) == 0 => {
                lane.release();
                if !lane.has_arrivals() {
                    lane.wait();
                    lane.heed_bell(true);
                    lane.wake();
                }
            }
            None => lane.release(),
        }
    }
    lane.release();
}

#[test]
fn what_is_written_arrives_in_the_order_of_its_flow_once_in_both_directions() {
    let seed = std::env::var("WEFT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 8 | 1);
    println!("WEFT_SEED={seed}");
    const TOTAL: u64 = 5_000_000;
    let (mut here, mut there) = pair();
    let peer = thread::spawn(move || {
        read_all(&mut there, TOTAL, Random(seed ^ 2));
        write_all(&mut there, TOTAL, Random(seed ^ 4));
        there
    });
    write_all(&mut here, TOTAL, Random(seed ^ 8));
    read_all(&mut here, TOTAL, Random(seed ^ 16));
    assert!(!here.has_arrivals());
    drop(peer.join().unwrap());
    while !here.is_finished() {
        here.has_news();
        here.heed_bell(true);
    }
}

/// The peer says so after this side has looked for the last time, and before it sleeps: it finds
/// nobody asleep, and does not ring.
#[test]
fn who_is_about_to_sleep_hears_that_one_of_its_messages_waits_for_a_receive() {
    let (mut here, mut there) = pair();
    assert_eq!((here.not_ready(), here.sleep(AckWake::Never)), (None, false));
    here.wake();
    let waits = Some(NotReady { credit: Msn(4), wait_us: 10 });
    there.set_not_ready(waits);
    assert!(here.sleep(AckWake::Never), "it has to look once more");
    assert_eq!((here.not_ready(), here.sleep(AckWake::Never)), (waits, false));
    here.wake();
    there.set_not_ready(Some(NotReady { credit: Msn(5), wait_us: 10 }));
    assert!(here.sleep(AckWake::Never));
    assert!(!here.sleep(AckWake::Never), "it is told once");
}

#[test]
fn a_message_that_waits_is_either_taken_back_or_placed() {
    let (mut here, mut there) = pair();
    assert!(!here.withdraw(Msn(4)), "nothing waits");
    let waits = |credit, wait_us| Some(NotReady { credit: Msn(credit), wait_us });
    there.set_not_ready(waits(5, 10));
    assert!(!here.withdraw(Msn(4)), "another one waits");
    assert!(there.claim());
    assert!(!here.withdraw(Msn(5)), "it is being placed");
    there.set_not_ready(waits(5, 10));
    there.set_not_ready(waits(5, 20));
    assert!(here.withdraw(Msn(5)), "it waits all the same");
    there.set_not_ready(None);
    assert!(!there.claim(), "for good");
    for _ in 0..200 {
        let (mut here, mut there) = pair();
        there.set_not_ready(waits(4, 10));
        let writer = thread::spawn(move || here.withdraw(Msn(4)));
        assert_ne!(there.claim(), writer.join().unwrap());
    }
}

#[test]
fn small_messages_one_by_one_stay_within_a_few_pages() {
    let (mut here, mut there) = pair();
    for round in 0..20_000u64 {
        let message = [round as u8; 200];
        assert_eq!(send(&mut here, Requests, &message), Pushed::Whole);
        assert_eq!(take(&mut there, Requests).as_deref(), Some(&message[..]));
        assert_eq!(here.placed()[0], round + 1);
    }
    assert!(here.writers[0].offset() < 33 << 10);
}

/// What is skipped to begin at the start of the ring is no room. A writer that did so whenever its
/// reader has caught up would be left with room for a single record, and go on like that for ever.
#[test]
fn a_reader_that_keeps_up_leaves_room_for_many_records() {
    for len in [200, 4000, 30_000] {
        let (mut here, mut there) = pair();
        for round in 0..200 {
            assert_eq!(send(&mut here, Requests, &vec![7; len]), Pushed::Whole);
            let room = here.room_bytes(Requests);
            assert!(room >= 8 * len, "{room} bytes in round {round} of {len} bytes");
            assert!(take(&mut there, Requests).is_some());
            here.placed();
        }
    }
}

#[test]
fn a_short_message_to_an_empty_ring_is_beside_the_tail() {
    for len in [1, 40, 103, 104, 105] {
        let (mut here, mut there) = pair();
        for round in 0..100u8 {
            let message = vec![round; len];
            assert_eq!(send(&mut here, Responses, &message), Pushed::Whole);
            assert_eq!(take(&mut there, Responses), Some(message));
            here.placed();
        }
        assert_eq!(here.writers[1].is_untouched(), len <= 104, "{len} bytes");
    }
}

/// The two ends take turns at random, of which each step is one that they may do: what was taken
/// arrives once and in order, and no more is acknowledged than was taken.
#[test]
fn two_ends_that_answer_each_other_lose_nothing() {
    let seed = std::env::var("WEFT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 8 | 1);
    println!("WEFT_SEED={seed}");
    let mut random = Random(seed);
    let (here, there) = pair();
    let mut ends = [here, there];
    let (mut sent, mut taken) = ([[0u64; 2]; 2], [[0u64; 2]; 2]);
    for step in 0..200_000 {
        let (from, flow) = (random.below(2) as usize, random.below(2) as usize);
        let name = [Requests, Responses][flow];
        match random.below(8) {
            0..=2 => {
                let len = [1, 90, 300][random.below(3) as usize] + random.below(80);
                let number = sent[from][flow];
                let payload: Vec<u8> = (0..len).map(|at| byte_at(number + at)).collect();
                let mut gather = Gather::default();
                gather.push_bytes(&payload);
                if ends[from].push(name, &gather) == Pushed::Whole {
                    sent[from][flow] += 1;
                }
            }
            3 => ends[from].publish(),
            4..=5 => {
                if let Some(segment) = ends[from].front(name) {
                    let whole = [segment.head, segment.payload.map_or(&[], SegmentPayload::bytes)];
                    let number = taken[from][flow];
                    let same = (number..).zip(whole.concat()).all(|(at, byte)| byte == byte_at(at));
                    assert!(same, "message {number} of {name:?} in step {step}");
                    ends[from].pop(name);
                    taken[from][flow] += 1;
                }
            }
            6 => match random.below(2) {
                0 => ends[from].announce(),
                _ => ends[from].release(),
            },
            _ => {
                let placed = ends[from].placed();
                let before = (0..2).all(|flow| placed[flow] <= taken[1 - from][flow]);
                assert!(before, "{placed:?} of {:?} in step {step}", taken[1 - from]);
            }
        }
    }
    for from in 0..2 {
        ends[from].publish();
        for flow in [Requests, Responses] {
            while take(&mut ends[1 - from], flow).is_some() {}
        }
        assert_eq!(ends[from].placed(), sent[from]);
        assert!(!ends[from].is_finished() && taken[from].iter().all(|taken| *taken > 1000));
    }
}

#[test]
fn a_full_flow_takes_more_once_it_is_read_and_the_other_is_not_concerned() {
    let (mut here, mut there) = pair();
    let bytes = vec![7; 30_000];
    let mut sent = 0;
    while send(&mut here, Requests, &bytes) == Pushed::Whole {
        sent += 1;
    }
    assert!((15..=17).contains(&sent), "{sent}");
    assert!(here.room_bytes(Requests) < bytes.len());
    assert_eq!(send(&mut here, Responses, b"passes"), Pushed::Whole);
    assert_eq!(take(&mut there, Responses).as_deref(), Some(&b"passes"[..]));
    assert!(!here.sleep(AckWake::Never), "room is no arrival");
    assert_eq!(take(&mut there, Requests), Some(bytes.clone()));
    assert_eq!(here.placed(), [1, 1]);
    assert_eq!(send(&mut here, Requests, &bytes), Pushed::Whole);
}

#[test]
fn what_there_is_room_for_is_taken_wherever_the_ring_is() {
    let (mut here, mut there) = pair();
    let mut random = Random(0x1a9e);
    for round in 0..2000 {
        let room = here.room_bytes(Requests);
        let len = [room, 1 + random.below(room as u64) as usize, 100][round % 3];
        assert_eq!(send(&mut here, Requests, &vec![7; len]), Pushed::Whole, "{len} of {room}");
        if here.room_bytes(Requests) < 1000 || random.below(3) == 0 {
            while take(&mut there, Requests).is_some() {}
            here.placed();
        }
        here.placed();
    }
}

#[test]
fn what_was_written_before_the_end_is_still_read() {
    let (mut here, mut there) = pair();
    send(&mut here, Requests, b"last words");
    here.shutdown_write();
    drop(here);
    assert!(there.has_news() && !there.is_finished(), "something is left");
    assert_eq!(take(&mut there, Requests).as_deref(), Some(&b"last words"[..]));
    assert!(there.has_news() && there.is_finished());
}

#[test]
fn what_waits_for_a_receive_outlives_its_sender() {
    for bids_farewell in [true, false] {
        let (mut here, mut there) = pair();
        send(&mut here, Requests, b"waits");
        send(&mut here, Requests, b"behind it");
        assert!(there.front(Requests).is_some());
        if bids_farewell {
            here.shutdown_write();
        }
        drop(here);
        there.sleep(AckWake::Next);
        assert!(there.heed_bell(true) && there.is_abandoned() && !there.is_finished());
        assert!(!there.sleep(AckWake::Next), "only a receive helps");
        assert_eq!(take(&mut there, Requests).as_deref(), Some(&b"waits"[..]));
        assert_eq!(take(&mut there, Requests).as_deref(), Some(&b"behind it"[..]));
        assert!(there.is_finished() && there.sleep(AckWake::Next));
    }
}

#[test]
fn a_process_that_ends_without_a_word_is_noticed_by_who_polls() {
    let (here, mut there) = pair();
    drop(here);
    while !there.has_news() {}
    assert!(there.heed_bell(true) && there.is_finished());
}

#[test]
fn a_segment_that_stays_in_front_is_no_news() {
    let (mut here, mut there) = pair();
    send(&mut here, Requests, b"waits for a receive");
    assert!(there.front(Requests).is_some());
    assert!(!there.has_arrivals() && !there.sleep(AckWake::Never));
    send(&mut here, Responses, b"passes");
    assert!(there.has_arrivals());
    assert_eq!(take(&mut there, Responses).as_deref(), Some(&b"passes"[..]));
    assert_eq!(take(&mut there, Requests).as_deref(), Some(&b"waits for a receive"[..]));
}

#[test]
fn what_waits_for_a_receive_is_told_and_taken_back() {
    let (here, mut there) = pair();
    assert_eq!(here.not_ready(), None);
    let not_ready = NotReady { credit: Msn(u32::MAX), wait_us: 655_360 };
    there.set_not_ready(Some(not_ready));
    assert_eq!(here.not_ready(), Some(not_ready));
    assert_eq!(there.not_ready(), None);
    there.set_not_ready(None);
    assert_eq!(here.not_ready(), None);
}

#[test]
fn memory_that_is_gone_leaves_nothing_in_the_ring() {
    let (mut here, mut there) = pair();
    let mut gather = segment(0, 100);
    weft_guard::install();
    // The page at address 0 is mapped nowhere.
    gather.push_memory(MemoryPiece { addr: 64, len: 1000 });
    assert_eq!(here.push(Requests, &gather), Pushed::Gone);
    here.publish();
    assert!(!there.has_arrivals());
    assert_eq!(send(&mut here, Requests, b"next"), Pushed::Whole);
    assert_eq!(take(&mut there, Requests).as_deref(), Some(&b"next"[..]));
}

#[test]
fn nonsense_in_the_counters_closes_the_lane() {
    let size = memory::RING_BYTES as u64;
    for tail in [u64::MAX, 1 << 40, 1, size + 64, 64 << 32] {
        let (here, mut there) = pair();
        here.writers[0].corrupt_tail(tail);
        // Who receives asks what was taken before it looks for segments.
        assert_eq!(there.placed(), [0, 0]);
        assert!(there.has_news() && there.front(Requests).is_none());
        assert!(there.is_finished(), "tail {tail}");
    }
    for (head, placed) in [(0, 2), (u64::MAX, 1), (128, 1), (64, u64::MAX), (1 << 40, 1)] {
        let (mut here, there) = pair();
        send(&mut here, Requests, b"x");
        there.readers[0].corrupt(head, placed);
        assert_eq!(here.placed()[0], 0, "head {head}, placed {placed}");
        assert_eq!(here.room_bytes(Requests), 0, "nothing leaves any more");
        assert!(here.is_finished());
    }
}

#[test]
fn nonsense_in_a_length_closes_the_lane() {
    let size = memory::RING_BYTES as u32;
    for length in [0, 199, 249, 300, size, size - 8, u32::MAX - 1, u32::MAX] {
        let (mut here, mut there) = pair();
        send(&mut here, Requests, &[7; 200]);
        here.writers[0].corrupt_length(0, length);
        assert!(there.front(Requests).is_none(), "length {length}");
        assert!(there.is_finished());
    }
}

#[test]
fn nonsense_beside_the_tail_closes_the_lane() {
    for word in [0, 105, 127, 64 << 1 | 5, 1 << 63 | 5, u64::MAX] {
        let (mut here, mut there) = pair();
        send(&mut here, Requests, b"x");
        here.writers[0].corrupt_beside(word);
        assert!(there.front(Requests).is_none(), "word {word:#x}");
        assert!(there.is_finished());
    }
}

#[test]
fn an_offer_for_another_connection_is_not_granted() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = LaneListener::bind(tcp.local_addr().unwrap()).unwrap();
    let offering = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    let offer = LaneOffer::make(&offering).unwrap();
    let _other = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    let (first, second) = (tcp.accept().unwrap().0, tcp.accept().unwrap().0);
    assert!(listener.claim(&second).is_none());
    drop(offering);
    assert!(offer.granted().is_none());
    drop(first);
}

#[test]
fn a_connection_of_shuttle_has_the_lane_that_was_offered_to_its_request() {
    let nonce = u64::from(std::process::id()) << 32 | 0x5eed;
    let [initiator, responder, relay] = [1, 2, 3].map(|port| ([127, 0, 0, 1], port).into());
    assert!(LaneOffer::make_named(nonce, initiator, responder).is_none(), "nobody has asked");
    let listener = LaneListener::bind_nonce(nonce).unwrap();
    assert!(listener.claim_between(initiator, responder).is_none(), "nobody has offered");
    let offer = LaneOffer::make_named(nonce, relay, responder).unwrap();
    assert!(listener.claim_between(initiator, relay).is_none(), "a relay is between them");
    drop(offer);
    let listener = LaneListener::bind_nonce(nonce + 1).unwrap();
    let offer = LaneOffer::make_named(nonce + 1, initiator, responder).unwrap();
    let mut initiator = listener.claim_between(initiator, responder).unwrap();
    let mut responder = offer.granted().unwrap();
    send(&mut initiator, Requests, b"first");
    assert_eq!(take(&mut responder, Requests).as_deref(), Some(&b"first"[..]));
}

#[test]
fn nobody_is_found_where_nobody_listens() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    assert!(LaneOffer::make(&stream).is_none());
}

#[test]
fn memory_that_could_shrink_is_refused() {
    assert!(memory::Mapping::new(memory::create().unwrap().as_fd()).is_ok());
    let unsealed = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(memory::Mapping::new(unsealed.as_fd()).is_err());
}
