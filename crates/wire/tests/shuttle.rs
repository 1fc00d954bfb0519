//! Packets of Shuttle there and back: made from any values, and parsed from mutated octets.

#[path = "../../../fuzz/src/shuttle.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

use proptest::prelude::*;
use weft_wire::shuttle::frame::{Ack, Frame, Frames, Ranges};
use weft_wire::shuttle::hello::{Hello, HelloKind, HelloLimits, Modules};
use weft_wire::shuttle::segments::put_table;
use weft_wire::shuttle::{ConnectionId, CtrlHeader, DataHeader, PN_BITS, Packet, PathId, StreamId};

const PN_MAX: u64 = (1 << PN_BITS) - 1;

/// Runs of arrived numbers, descending, from lengths of runs and holes below `largest`.
fn runs(largest: u64, lengths: &[(u8, u8)]) -> Vec<(u64, u64)> {
    let mut runs = Vec::new();
    let mut next = Some(largest);
    for &(run, hole) in lengths {
        let Some(last) = next else { break };
        let first = last.saturating_sub(u64::from(run));
        runs.push((first, last));
        next = first.checked_sub(u64::from(hole) + 2);
    }
    runs
}

fn plain_frame() -> impl Strategy<Value = Frame<'static>> {
    let stream = any::<u8>().prop_map(StreamId);
    let path = any::<u8>().prop_map(PathId);
    let varint = 0..1_u64 << 62;
    prop_oneof![
        Just(Frame::Ping),
        Just(Frame::Closed),
        (stream.clone(), varint.clone())
            .prop_map(|(stream, frontier)| Frame::Stream { stream, frontier }),
        (stream.clone(), any::<u32>(), any::<u32>())
            .prop_map(|(stream, limit, wait_us)| Frame::Credit { stream, limit, wait_us }),
        stream.prop_map(|stream| Frame::Query { stream }),
        (path.clone(), 0..=PN_MAX).prop_map(|(path, pn)| Frame::Floor { path, pn }),
        any::<u64>().prop_map(|token| Frame::Challenge { token }),
        any::<u64>().prop_map(|token| Frame::Response { token }),
        varint.clone().prop_map(|reason| Frame::Close { reason }),
        (path.clone(), varint.clone()).prop_map(|(path, rate_bps)| Frame::Rate { path, rate_bps }),
        (path, varint.clone())
            .prop_map(|(path, interval_us)| Frame::Interval { path, interval_us }),
        (any::<u8>().prop_map(StreamId), varint)
            .prop_map(|(stream, dsn)| Frame::Skip { stream, dsn }),
    ]
}

fn some_hello(private_data: &[u8], random: u64) -> Vec<u8> {
    let hello = Hello {
        to: ConnectionId(random as u32),
        from: ConnectionId((random >> 9) as u32),
        nonce: random,
        echo: !random,
        modules: Modules { protection: 15, placement: random as u8, recovery: 1 },
        limits: Some(HelloLimits {
            datagram_octets: random as u16,
            streams: 256,
            ord: 1,
            ird: (random >> 3) as u16,
            idle_ms: 1000,
            rate_kbps: random,
        }),
        private_data,
        cookie: &[7; 16],
        key_message: &[9; 48],
        reason: random as u16,
        ..Hello::new(HelloKind::Reply)
    };
    let octets = hello.encode();
    assert_eq!(Hello::parse(&octets), Ok(hello));
    octets
}

proptest! {
    #[test]
    fn headers_come_back(
        cid: u32,
        (path, phase) in (any::<u8>(), 0..4_u8),
        pn: u32,
        (ack_now, several) in any::<(bool, bool)>(),
        (dsn, frontier) in any::<(u32, u32)>(),
    ) {
        let cid = ConnectionId(cid);
        let ctrl = CtrlHeader { cid, path: PathId(path), pn, phase, ack_now };
        let data = DataHeader { ctrl, several, dsn, frontier };
        prop_assert_eq!(Packet::parse(&ctrl.to_bytes()), Ok(Packet::Ctrl(ctrl)));
        prop_assert_eq!(Packet::parse(&data.to_bytes()), Ok(Packet::Data(data)));
    }

    #[test]
    fn frames_come_back(frames in prop::collection::vec(plain_frame(), 0..20)) {
        let mut octets = Vec::new();
        frames.iter().for_each(|frame| frame.encode(&mut octets));
        let parsed: Result<Vec<_>, _> = Frames::new(&octets).collect();
        prop_assert_eq!(parsed, Ok(frames));
    }

    #[test]
    fn acknowledgements_come_back(
        largest in 0..=PN_MAX,
        lengths in prop::collection::vec(any::<(u8, u8)>(), 1..50),
        below in 0..=PN_MAX,
        limit in 9..400_usize,
        delay_us in 0..1_u64 << 62,
        arrived_us: u32,
    ) {
        let runs = runs(largest, &lengths);
        let mut room = Vec::new();
        let (ranges, lowest) = Ranges::encode(runs.iter().copied(), limit, &mut room).unwrap();
        let told: Vec<_> = ranges.iter().collect();
        prop_assert!(runs.starts_with(&told) && told.last().unwrap().0 == lowest);
        let floor = below.min(largest + 1);
        let (path, marked, dropped) = (PathId(3), 5, delay_us / 3);
        let ack = Frame::Ack(
            Ack { path, largest, floor, delay_us, arrived_us, marked, dropped, ranges });
        let mut octets = Vec::new();
        ack.encode(&mut octets);
        prop_assert_eq!(Frames::new(&octets).next(), Some(Ok(ack)));
        prop_assert!(octets.len() <= weft_wire::shuttle::frame::MAX_ACK_HEAD + limit);
    }

    #[test]
    fn handshakes_come_back(random: u64, private in prop::collection::vec(any::<u8>(), 0..=512)) {
        some_hello(&private, random);
    }
}

#[test]
fn mutated_packets_do_no_harm() {
    let ctrl = CtrlHeader {
        cid: ConnectionId(0x1234_5678),
        path: PathId(1),
        pn: 77,
        phase: 1,
        ack_now: false,
    };
    let header = DataHeader { ctrl, several: false, dsn: 5, frontier: 6 };
    let data = [&header.to_bytes()[..], &[0xc1; 40]].concat();
    let header = DataHeader { several: true, ..header };
    let mut several = [&header.to_bytes()[..], &[0xc1; 40]].concat();
    put_table(&[14, 20, 6], |part| several.extend_from_slice(part));
    let mut frames = ctrl.to_bytes().to_vec();
    let mut room = Vec::new();
    let runs = [(900, 1000), (500, 600), (7, 7)];
    let (ranges, _) = Ranges::encode(runs, 100, &mut room).unwrap();
    let (path, largest, floor) = (PathId(1), 1000, 3);
    let ack =
        Ack { path, largest, floor, delay_us: 9, arrived_us: 8, marked: 0, dropped: 1, ranges };
    for frame in [Frame::Ack(ack), Frame::Ping, Frame::Close { reason: 70 }, Frame::Closed] {
        frame.encode(&mut frames);
    }
    Frame::Credit { stream: StreamId(2), limit: 70_000, wait_us: 640 }.encode(&mut frames);
    let seeds = [data, several, frames, some_hello(b"private", 99), some_hello(b"", 1 << 40)];
    mutate::smoke("shuttle_packet", &seeds, 20_000, bodies::packet);
}
