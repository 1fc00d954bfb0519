//! What a queue pair for unreliable datagrams takes, and what it tells of what it drops.
#![allow(dead_code)]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use common::ud::{self, NOW_NS, Open, QKEY, ROUTE_LEN, Shut};
use common::{ALL, Host, entropy, flatten};
use weft_rnic::shuttle::{Route, Unopened};
use weft_rnic::wire::datagram::{Dropped, Notice};
use weft_rnic::{Batch, ConnEvent, Sending, UdConfig, UdPolicy, UdQp, Written};
use weft_verbs::{Destination, QpState, SendFlags, SendOp, SendWr, Sge, WcStatus};

fn route(from: &str, to: &str) -> Route {
    let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 4000);
    Route { local: at(from), remote: at(to) }
}

const NEAR: &str = "192.0.2.1";
const FAR: &str = "192.0.2.2";

struct Side {
    host: Host,
    ud: UdQp,
}

impl Side {
    fn new(seed: u32, policy: impl UdPolicy + 'static) -> Self {
        Self::with(seed, ud::config(policy))
    }

    fn sealed(seed: u32, key: u8) -> Self {
        let seals = ud::seals(key, seed.into());
        Self::with(seed, UdConfig { seals, ..ud::config(Open) })
    }

    fn with(seed: u32, config: UdConfig) -> Self {
        let host = ud::host(seed);
        let ud = UdQp::new(Arc::clone(&host.qp), config);
        Self { host, ud }
    }

    /// Posts a datagram with `payload` inline.
    fn post(&self, wr_id: u64, to: Destination, payload: &[u64]) {
        let mut memory = self.host.memory(64, ALL);
        memory.bytes[..payload.len()].copy_from_slice(payload);
        let sges = [memory.sge(0, 8 * payload.len() as u32)];
        let flags = SendFlags::SIGNALED | SendFlags::INLINE;
        let wr = SendWr { wr_id, op: SendOp::SendImm { imm: 7 }, flags, sges: &sges };
        self.host.qp.post_datagram(&wr, &to).unwrap();
    }

    fn output_to(&mut self, mut write: impl FnMut(&Batch<'_>) -> Written) -> Sending {
        self.ud.poll_transmit(|| NOW_NS, &mut write)
    }

    /// The datagrams that leave now.
    fn output(&mut self) -> Vec<Vec<u8>> {
        let (mut all, table) = (Vec::new(), Arc::clone(self.host.device.regions()));
        self.output_to(|batch| {
            let (mut at, bytes) = (0, flatten(batch, &table.reader()));
            for length in batch.lengths.iter().map(|length| usize::from(*length)) {
                all.push(bytes[at..at + length].to_vec());
                at += length;
            }
            Written::Octets(at)
        });
        all
    }

    fn take(&mut self, route: &Route, datagram: &[u8]) -> usize {
        self.ud.receive(NOW_NS, route, &mut datagram.to_vec())
    }

    fn events(&mut self) -> Vec<ConnEvent> {
        std::iter::from_fn(|| self.ud.poll_event()).collect()
    }
}

fn to(side: &Side, route: &Route) -> Destination {
    Destination { path: ud::path(route), qpn: side.host.qp.num(), qkey: QKEY }
}

#[test]
fn a_datagram_brings_its_route_header_its_sender_and_its_immediate_data() {
    for (near, far) in [(NEAR, FAR), ("2001:db8::1", "2001:db8::2")] {
        for sealed in [false, true] {
            let side = |seed| if sealed { Side::sealed(seed, 9) } else { Side::new(seed, Open) };
            let [mut a, mut b] = [7, 11].map(side);
            let sink = b.host.memory(256, ALL);
            b.host.recv(3, &[sink.sge(0, 256)]);
            a.post(1, to(&b, &route(near, far)), &[42]);
            let [datagram] = &a.output()[..] else { panic!("one datagram") };
            assert_eq!(a.host.statuses(), [(1, 0)], "complete when the socket has it");
            assert_eq!(b.take(&route(far, near), datagram), datagram.len());
            let done = b.host.completions();
            assert_eq!((done[0].wr_id, done[0].status, done[0].byte_len), (3, 0, 48));
            assert_eq!((done[0].src_qp, done[0].imm_data), (a.host.qp.num(), 7));
            assert_eq!(sink.bytes[ROUTE_LEN / 8], 42);
            let version = sink.octets()[if near == NEAR { 20 } else { 0 }] >> 4;
            assert_eq!(version, if near == NEAR { 4 } else { 6 });
            b.host.recv(4, &[sink.sge(0, 256)]);
            b.take(&route(far, near), datagram);
            assert_eq!(b.host.statuses().len(), usize::from(!sealed), "each seal opens once");
        }
    }
}

#[test]
fn requests_to_one_destination_leave_together_and_stay_together_when_the_socket_is_full() {
    let [mut a, b, c] = [7, 11, 13].map(|seed| Side::new(seed, Open));
    let there = [&b, &c].map(|side| to(side, &route(NEAR, FAR)));
    for (wr_id, (at, words)) in (1..).zip([(0, 1), (0, 1), (0, 1), (0, 2), (1, 2)]) {
        a.post(wr_id, there[at], &[5; 2][..words]);
    }
    let mut bursts = Vec::new();
    let outcome = a.output_to(|batch| {
        bursts.push(batch.lengths.to_vec());
        if bursts.len() == 1 {
            Written::Octets(2 * usize::from(batch.lengths[0]))
        } else {
            Written::Blocked
        }
    });
    assert_eq!((outcome, &bursts), (Sending::Blocked, &vec![vec![32; 3], vec![32; 1]]));
    assert_eq!(a.host.statuses(), [(1, 0), (2, 0)]);
    let lengths = a.output().iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!((lengths, a.host.statuses()), (vec![32, 40, 40], vec![(3, 0), (4, 0), (5, 0)]));
}

#[test]
fn what_the_system_refuses_is_lost_and_complete() {
    let [mut a, b] = [7, 11].map(|seed| Side::new(seed, Open));
    a.post(1, to(&b, &route(NEAR, FAR)), &[1]);
    a.post(2, to(&b, &route(NEAR, FAR)), &[2]);
    assert_eq!(a.output_to(|_| Written::Failed), Sending::Done);
    assert_eq!(a.host.statuses(), [(1, 0), (2, 0)]);
}

#[test]
fn where_nothing_may_go_nothing_goes() {
    let [mut a, b] = [7, 11].map(|seed| Side::new(seed, Shut));
    a.post(1, to(&b, &route(NEAR, FAR)), &[1]);
    assert_eq!(a.output(), [[]; 0]);
    assert_eq!(a.host.statuses(), [(1, WcStatus::LocQpOpErr as u32)]);
    assert_eq!(a.host.qp.state(), QpState::Sqe);
}

#[test]
fn a_receive_is_taken_only_by_what_is_for_the_queue_pair() {
    let [mut a, mut b] = [7, 11].map(|seed| Side::new(seed, Open));
    let sink = b.host.memory(64, ALL);
    b.host.recv(3, &[sink.sge(0, 64)]);
    let own = to(&b, &route(NEAR, FAR));
    a.post(1, Destination { qkey: QKEY + 1, ..own }, &[1]);
    a.post(2, Destination { qpn: own.qpn ^ 1, ..own }, &[1]);
    a.post(3, own, &[9]);
    for datagram in a.output() {
        assert_eq!(b.take(&route(FAR, NEAR), &datagram), datagram.len());
    }
    assert_eq!((b.host.statuses(), sink.bytes[ROUTE_LEN / 8]), (vec![(3, 0)], 9));
    a.post(4, own, &[1; 4]);
    let long = a.output().remove(0);
    assert_eq!((b.take(&route(FAR, NEAR), &long), b.ud.is_held()), (0, true));
    b.host.recv(4, &[sink.sge(0, 64)]);
    assert_eq!((b.take(&route(FAR, NEAR), &long), b.ud.is_held()), (long.len(), false));
    assert_eq!(b.host.statuses(), [(4, WcStatus::LocLenErr as u32)], "40 and 32 bytes into 64");
}

#[test]
fn a_receive_whose_memory_may_not_be_written_fails_the_queue_pair() {
    let [mut a, mut b] = [7, 11].map(|seed| Side::new(seed, Open));
    let sink = b.host.memory(64, ALL);
    b.host.recv(1, &[Sge { lkey: sink.sge(0, 64).lkey ^ 0x100, ..sink.sge(0, 64) }]);
    b.host.recv(2, &[sink.sge(0, 64)]);
    a.post(1, to(&b, &route(NEAR, FAR)), &[9]);
    let datagram = a.output().remove(0);
    b.take(&route(FAR, NEAR), &datagram);
    let ends = [(1, WcStatus::LocProtErr as u32), (2, WcStatus::WrFlushErr as u32)];
    assert_eq!((b.host.statuses(), b.host.qp.state()), (ends.to_vec(), QpState::Err));
    b.take(&route(FAR, NEAR), &datagram);
    assert_eq!(b.host.statuses(), []);
}

#[test]
fn what_is_too_long_completes_and_is_not_counted_as_sent() {
    let [mut a, b] = [7, 11].map(|seed| Side::new(seed, Open));
    let memory = a.host.memory(5000, ALL);
    let flags = SendFlags::SIGNALED;
    let sges = [memory.sge(0, 4097)];
    let wr = SendWr { wr_id: 1, op: SendOp::Send, flags, sges: &sges };
    a.host.qp.post_datagram(&wr, &to(&b, &route(NEAR, FAR))).unwrap();
    assert_eq!(a.output(), [[]; 0]);
    assert_eq!(a.host.statuses(), [(1, 0)]);
    assert_eq!((a.ud.stats().segments_out, a.ud.stats().octets_out), (0, 0));
    a.post(2, to(&b, &route(NEAR, FAR)), &[7]);
    assert_eq!(a.output().len(), 1);
    assert_eq!((a.ud.stats().segments_out, a.ud.stats().octets_out), (1, 8));
}

#[test]
fn a_member_of_a_group_takes_what_is_for_the_group_and_sends_nothing() {
    let group = "239.1.2.3";
    let config = UdConfig { group: Some(group.parse().unwrap()), ..ud::config(Open) };
    let (mut a, mut b) = (Side::new(7, Open), Side::with(11, config));
    let sink = b.host.memory(64, ALL);
    b.host.recv(3, &[sink.sge(0, 64)]);
    a.post(1, Destination { qpn: 0x00ff_ffff, ..to(&b, &route(NEAR, group)) }, &[6]);
    let datagram = a.output().remove(0);
    b.take(&route("239.1.2.4", NEAR), &datagram);
    assert_eq!(b.host.statuses(), []);
    b.take(&route(group, NEAR), &datagram);
    assert_eq!((b.host.statuses(), sink.bytes[ROUTE_LEN / 8]), (vec![(3, 0)], 6));
    b.post(4, to(&a, &route(FAR, NEAR)), &[1]);
    assert_eq!((b.output(), b.host.statuses()), (vec![], vec![]));
}

#[test]
fn each_end_is_told_why_nothing_arrives() {
    let cases = [
        (Side::sealed(7, 1), Side::sealed(11, 2), Some(Unopened::Foreign)),
        (Side::sealed(7, 1), Side::new(11, Open), Some(Unopened::Foreign)),
        (Side::new(7, Open), Side::sealed(11, 2), Some(Unopened::Clear)),
        (Side::new(7, Open), Side::new(11, Shut), None),
    ];
    for (mut a, mut b, why) in cases {
        let sink = b.host.memory(64, ALL);
        b.host.recv(3, &[sink.sge(0, 64)]);
        a.post(1, to(&b, &route(NEAR, FAR)), &[1]);
        let datagram = a.output().remove(0);
        b.take(&route(FAR, NEAR), &datagram);
        let events = b.events();
        let [ConnEvent::Dropped(dropped)] = &events[..] else { panic!("{why:?}: {events:?}") };
        assert_eq!((dropped.unopened, b.host.statuses()), (why, vec![]));
        assert_eq!(dropped.names_qp, why.is_none_or(|why| why == Unopened::Clear), "{why:?}");
        let head = dropped.head.unwrap();
        assert_eq!(head, datagram[..head.len()]);
        // What the other end makes of the answer, and a stranger of it.
        let notice = Notice::about(&head, Dropped::OtherKey).unwrap();
        let mut answer = route(NEAR, FAR);
        answer.remote.set_port((b.host.qp.num() >> 8) as u16);
        let mut stranger = Side::sealed(13, 1);
        for side in [&mut a, &mut stranger] {
            side.take(&answer, &notice.to_bytes());
        }
        let told = a.events();
        assert!(matches!(told[..], [ConnEvent::Notice { .. }]), "{told:?}");
        assert!(stranger.events().is_empty(), "it has sent nothing");
    }
}

#[test]
fn clear_text_that_only_claims_to_be_from_here_is_not_heard() {
    let config = UdConfig { screened: false, ..ud::config(Open) };
    let (mut a, mut b) = (Side::new(7, Open), Side::with(11, config));
    let sink = b.host.memory(64, ALL);
    for (near, far, heard) in [("2001:db8::1", "2001:db8::1", 0), ("::1", "::1", 1)] {
        b.host.recv(3, &[sink.sge(0, 64)]);
        // It has sent there itself, which makes no difference.
        b.post(8, to(&a, &route(far, near)), &[1]);
        assert_eq!((b.output().len(), b.host.completions().len()), (1, 1));
        a.post(1, to(&b, &route(near, far)), &[1]);
        let datagram = a.output().remove(0);
        b.take(&route(far, near), &datagram);
        assert_eq!((b.host.statuses().len(), b.events().len()), (heard, 0), "{near}");
    }
}

#[test]
fn events_that_nobody_polls_do_not_pile_up() {
    let mut b = Side::new(11, Open);
    let sink = b.host.memory(64, ALL);
    b.host.recv(3, &[sink.sge(0, 64)]);
    let (mut a, next) = (Side::sealed(7, 1), entropy(3));
    for _ in 0..100 {
        a.post(1, to(&b, &route(NEAR, FAR)), &[next().into()]);
        let datagram = a.output().remove(0);
        b.take(&route(FAR, NEAR), &datagram);
        a.host.completions();
    }
    assert_eq!(b.events().len(), 64);
}
