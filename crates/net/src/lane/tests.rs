//! Both ends of a lane in one process, by the rendezvous as two processes make it.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use weft_rnic::wire::llp::Gather;
use weft_rnic::{Batch, Written};

use super::rendezvous::{LaneListener, LaneOffer};
use super::{ShmLane, memory};
use crate::tcp::Received;

/// Both ends of a lane, made as two processes would.
fn pair() -> (ShmLane, ShmLane) {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = LaneListener::bind(tcp.local_addr().unwrap()).unwrap();
    let stream = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    let offer = LaneOffer::make(&stream).expect("both are on one host");
    let (accepted, _) = tcp.accept().unwrap();
    let responder = listener.claim(&accepted).expect("it was offered before");
    (offer.granted().expect("it was granted"), responder)
}

fn send(lane: &mut ShmLane, bytes: &[u8]) -> Written {
    let mut gather = Gather::default();
    gather.push_bytes(bytes);
    lane.send(&Batch { route: None, gather: &gather, lengths: &[], written: 0 })
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

fn byte_at(position: u64) -> u8 {
    (position.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Sends `total` bytes in pieces of random sizes, as one who polls at times and sleeps at others.
fn write_all(lane: &mut ShmLane, total: u64, mut random: Random) {
    let mut sent = 0;
    while sent < total {
        let len = match random.below(3) {
            0 => 1 + random.below(100),
            1 => 1 + random.below(5000),
            _ => 1 + random.below(200_000),
        };
        let piece: Vec<u8> = (sent..total.min(sent + len)).map(byte_at).collect();
        match send(lane, &piece) {
            Written::Octets(octets) => sent += octets as u64,
            Written::Blocked => lane.wait(true),
            other => panic!("{other:?} after {sent} bytes"),
        }
    }
}

fn read_all(lane: &mut ShmLane, total: u64, mut random: Random) {
    let (mut received, mut room) = (0, vec![0; 700_000]);
    while received < total {
        let len = 1 + random.below(room.len() as u64) as usize;
        match lane.receive(&mut room[..len]) {
            Received::Octets(octets) => {
                for byte in &room[..octets] {
                    assert_eq!(*byte, byte_at(received), "byte {received}");
                    received += 1;
                }
            }
            Received::Nothing if random.below(2) == 0 => lane.wait(false),
            Received::Nothing => lane.wake(),
            Received::Closed => panic!("closed after {received} bytes"),
        }
    }
}

#[test]
fn what_is_written_arrives_in_order_once_in_both_directions() {
    let seed = std::env::var("WEFT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 8 | 1);
    println!("WEFT_SEED={seed}");
    const TOTAL: u64 = 20_000_000;
    let (mut here, mut there) = pair();
    let peer = thread::spawn(move || {
        read_all(&mut there, TOTAL, Random(seed ^ 2));
        write_all(&mut there, TOTAL, Random(seed ^ 4));
        there
    });
    write_all(&mut here, TOTAL, Random(seed ^ 8));
    read_all(&mut here, TOTAL, Random(seed ^ 16));
    assert_eq!(here.receive(&mut [0; 8]), Received::Nothing);
    drop(peer.join().unwrap());
    while !here.poll() {}
    assert_eq!(here.receive(&mut [0; 8]), Received::Closed);
}

#[test]
fn small_messages_one_by_one_stay_within_a_few_pages() {
    let (mut here, mut there) = pair();
    let mut room = [0; 100];
    for round in 0..20_000u64 {
        let message = [round as u8; 100];
        assert_eq!(send(&mut here, &message), Written::Octets(100));
        assert_eq!(there.receive(&mut room), Received::Octets(100));
        assert_eq!(room, message);
    }
    assert!(here.writer.offset() < 32 << 10);
}

#[test]
fn a_full_ring_blocks_and_goes_on_once_it_is_read() {
    let (mut here, mut there) = pair();
    let bytes = vec![7; 100 << 10];
    for _ in 0..2 {
        assert_eq!(send(&mut here, &bytes), Written::Octets(bytes.len()));
    }
    assert_eq!(send(&mut here, &bytes), Written::Blocked);
    assert!(!here.ready().write);
    assert_eq!(here.writer.unread(), Ok(200 << 10));
    let mut room = vec![0; 200 << 10];
    assert_eq!(there.receive(&mut room), Received::Octets(200 << 10));
    assert!(here.ready().write);
    assert_eq!(here.writer.unread(), Ok(0));
}

#[test]
fn what_was_written_before_the_end_is_still_read() {
    let (mut here, mut there) = pair();
    assert_eq!(send(&mut here, b"last words"), Written::Octets(10));
    here.shutdown_write();
    drop(here);
    let mut room = [0; 32];
    assert_eq!(there.receive(&mut room), Received::Octets(10));
    assert_eq!(there.receive(&mut room), Received::Closed);
    assert_eq!(send(&mut there, b"too late"), Written::Failed);
}

#[test]
fn who_sleeps_is_woken_and_who_polls_costs_no_call() {
    let (mut here, mut there) = pair();
    let rung = |lane: &ShmLane| crate::tcp::ready(lane.bell()).read;
    send(&mut here, b"polled");
    assert!(!rung(&there));
    assert_eq!(there.receive(&mut [0; 8]), Received::Octets(6));
    assert!(!there.sleep(false), "nothing is there");
    send(&mut here, b"woken");
    assert!(rung(&there));
    send(&mut here, b"again");
    assert_eq!(there.receive(&mut [0; 16]), Received::Octets(10));
    assert_eq!(there.receive(&mut [0; 16]), Received::Nothing);
    assert!(!rung(&there), "one bell for both");
}

#[test]
fn nonsense_in_the_ring_closes_the_lane() {
    for (tail, head) in [(u64::MAX, 0), (1 << 40, 0), (0, 1), (0, u64::MAX)] {
        let (mut here, there) = pair();
        there.writer.corrupt(tail);
        there.reader.corrupt(head);
        let closed = here.receive(&mut [0; 8]) == Received::Closed;
        let failed = send(&mut here, b"x") == Written::Failed;
        assert!(closed || failed, "tail {tail}, head {head}");
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

#[test]
fn a_sleeping_reader_is_never_missed() {
    let (mut here, mut there) = pair();
    const ROUNDS: u32 = 20_000;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let mut room = [0; 4];
                while there.receive(&mut room) != Received::Octets(4) {
                    if !there.sleep(false) {
                        wait_forever(&there);
                    }
                }
                assert_eq!(u32::from_ne_bytes(room), round);
                there.wake();
                send(&mut there, &room);
            }
            stop.store(true, Ordering::Release);
        });
        for round in 0..ROUNDS {
            send(&mut here, &round.to_ne_bytes());
            while here.receive(&mut [0; 4]) != Received::Octets(4) {
                std::hint::spin_loop();
            }
        }
    });
    assert!(stop.into_inner());
}

/// Waits for the bell alone: a bell that is missed is a test without end.
fn wait_forever(lane: &ShmLane) {
    while !crate::tcp::ready(lane.bell()).read {
        crate::tcp::wait(lane.bell(), false);
    }
}
