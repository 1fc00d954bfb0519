//! Extended reliable connections: messages name the receive queue that they are for.
//!
//! Rule of `docs/shuttle.md`: S-39.

mod common;

use std::sync::Arc;

use common::shuttle::{MS, Side, Weather, World};
use common::{ALL, Host, Silent};
use weft_verbs::qp::WITH_IMM;
use weft_verbs::{
    AsyncKind, AsyncQueue, Cq, QpAttr, QpState, QpType, RecvWr, SendFlags, SendOp, SendWr, Sge,
    Srq, Wc, WcOpcode, WcStatus, Xrcd,
};

const DONE: u32 = WcStatus::Success as u32;
const FLUSHED: u32 = WcStatus::WrFlushErr as u32;
const INVALID: u32 = WcStatus::RemInvReqErr as u32;
const NO_ACCESS: u32 = WcStatus::RemAccessErr as u32;
const NO_RECEIVE: u32 = WcStatus::RnrRetryExcErr as u32;

/// A queue of a domain and where it completes.
struct Queue {
    srq: Arc<Srq>,
    cq: Arc<Cq>,
    number: u32,
}

impl Queue {
    fn of(host: &Host, domain: &Arc<Xrcd>) -> Self {
        let events = AsyncQueue::new(Box::new(Silent));
        let cq = Arc::new(Cq::new(4096, None, Arc::clone(&events), 1));
        let number = host.device.take_srq_number().unwrap();
        let srq = Srq::new(&host.pd, 4096, 4, 0, events, 3).join(domain, number, &cq);
        Self { srq, cq, number }
    }

    fn post(&self, wr_id: u64, sges: &[Sge]) {
        self.srq.post_recv(&RecvWr { wr_id, sges }).unwrap();
    }

    fn completions(&self) -> Vec<Wc> {
        let mut out = vec![Wc::default(); 4096];
        let count = self.cq.poll(&mut out).unwrap();
        out.truncate(count);
        out
    }

    fn statuses(&self) -> Vec<(u64, u32)> {
        self.completions().iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }
}

/// The second side receives for a domain with `queues` queues.
fn world(queues: usize, weather: Weather, seed: u32) -> (World<Side>, Vec<Queue>) {
    let hosts = [QpType::XrcSend, QpType::XrcRecv].map(|kind| Host::of_kind(7, kind, false));
    let mut world = World::new(hosts, weather, seed);
    let far = &world.ends[1];
    let domain = far.xrcd.as_ref().unwrap();
    let queues = (0..queues).map(|_| Queue::of(far, domain)).collect();
    let set = |change: &dyn Fn(&mut QpAttr), side: &Side| side.qp.set_attrs(|attr| change(attr));
    set(&|attr| (attr.min_rnr_timer, attr.dest_qp_num) = (14, 77), far);
    set(&|attr| attr.rnr_retry = 7, &world.ends[0]);
    world.run_for(100 * MS);
    (world, queues)
}

fn send(side: &Side, wr_id: u64, op: SendOp, sges: &[Sge], number: u32) {
    let wr = SendWr { wr_id, op, flags: SendFlags::SIGNALED, sges };
    side.qp.post_send_to(&wr, number).unwrap();
}

#[test]
fn each_message_goes_to_the_queue_that_it_names_whatever_the_weather() {
    let storm = Weather { lost: 10, late: 30, doubled: 10, corrupt: 5 };
    for (seed, weather) in [(1, Weather::default()), (2, storm), (3, storm)] {
        let (mut world, queues) = world(3, weather, seed);
        let source = world.ends[0].memory(9000, ALL);
        let sinks: Vec<_> = queues.iter().map(|_| world.ends[1].memory(60 * 9000, ALL)).collect();
        for (queue, sink) in queues.iter().zip(&sinks) {
            (0..60).for_each(|i| queue.post(i, &[sink.sge(i * 9000, 9000)]));
        }
        let mut lengths = [const { Vec::new() }; 3];
        for i in 0..60_u32 {
            let (to, len) = ((i * 7 / 3 % 3) as usize, 1 + i * 149);
            lengths[to].push(len);
            send(&world.ends[0], 1, SendOp::Send, &[source.sge(0, len)], queues[to].number);
            if i % 9 == 8 {
                world.run_until_idle();
            }
        }
        world.run_until_idle();
        assert_eq!(world.ends[0].statuses(), [(1, DONE); 60]);
        for (queue, lengths) in queues.iter().zip(&lengths) {
            let got = queue.completions();
            let order: Vec<u32> = got.iter().map(|wc| wc.byte_len).collect();
            assert_eq!(order, *lengths, "in the order that they were sent in");
            let names = |(i, wc): (usize, &Wc)| {
                let from = (wc.qp_num, wc.src_qp) == (world.ends[1].qp.num(), 77);
                from && wc.wr_id == i as u64 && wc.status == DONE
            };
            assert!(got.iter().enumerate().all(names));
        }
        assert_eq!(world.ends[1].completions(), []);
    }
}

#[test]
fn immediate_data_completes_a_receive_of_the_queue() {
    let (mut world, queues) = world(2, Weather::default(), 4);
    let source = world.ends[0].memory(64, ALL);
    let target = world.ends[1].memory(64, ALL);
    queues[1].post(5, &[]);
    queues[1].post(6, &[target.sge(0, 8)]);
    let (to, stag) = (target.addr(), target.key);
    let write = SendOp::WriteImm { to, stag, imm: 9 };
    send(&world.ends[0], 1, write, &[source.sge(0, 40)], queues[1].number);
    send(&world.ends[0], 2, SendOp::SendImm { imm: 8 }, &[source.sge(0, 8)], queues[1].number);
    world.run_until_idle();
    let got = queues[1].completions();
    let told: Vec<_> =
        got.iter().map(|wc| (wc.wr_id, wc.opcode, wc.imm_data, wc.byte_len, wc.wc_flags)).collect();
    let (write, send) = (WcOpcode::RecvRdmaWithImm as u32, WcOpcode::Recv as u32);
    assert_eq!(told, [(5, write, 9, 40, WITH_IMM), (6, send, 8, 8, WITH_IMM)]);
}

#[test]
fn who_names_a_queue_that_the_domain_does_not_have_is_refused() {
    let destroyed = |queues: &[Queue], _: &Side| {
        queues[1].srq.retire();
        queues[1].number
    };
    let foreign = |_: &[Queue], far: &Side| {
        let other = Queue::of(far, &Arc::new(Xrcd::new(far.device.alloc_pd())));
        other.post(1, &[]);
        other.number
    };
    let unknown = |queues: &[Queue], _: &Side| queues[0].number ^ 1;
    type Case = dyn Fn(&[Queue], &Side) -> u32;
    let cases: [&Case; 3] = [&destroyed, &foreign, &unknown];
    for number in cases {
        let (mut world, queues) = world(2, Weather::default(), 5);
        queues.iter().for_each(|queue| queue.post(1, &[]));
        let number = number(&queues, &world.ends[1]);
        send(&world.ends[0], 1, SendOp::Send, &[], queues[0].number);
        send(&world.ends[0], 2, SendOp::Send, &[], number);
        send(&world.ends[0], 3, SendOp::Send, &[], queues[0].number);
        world.run_until_idle();
        assert_eq!(world.ends[0].statuses(), [(1, DONE), (2, INVALID), (3, FLUSHED)]);
        assert_eq!(queues[0].statuses(), [(1, DONE)]);
        assert_eq!(queues[1].statuses(), []);
        let events: Vec<_> = world.ends[1].events().iter().map(|event| event.kind).collect();
        assert_eq!((world.ends[1].qp.state(), events), (QpState::Err, vec![AsyncKind::QpReqErr]));
    }
}

#[test]
fn a_message_waits_for_a_receive_of_its_own_queue() {
    let (mut world, queues) = world(2, Weather::default(), 6);
    send(&world.ends[0], 1, SendOp::Send, &[], queues[0].number);
    world.run_for(1000 * MS);
    queues[1].post(8, &[]);
    let now_ns = world.now_ns;
    world.ends[1].shuttle.handle_posted(now_ns);
    world.run_for(1000 * MS);
    assert_eq!((world.ends[0].statuses(), queues[1].statuses()), (vec![], vec![]));
    queues[0].post(9, &[]);
    let now_ns = world.now_ns;
    world.ends[1].shuttle.handle_posted(now_ns);
    world.run_until_idle();
    assert_eq!(
        (world.ends[0].statuses(), queues[0].statuses()),
        (vec![(1, DONE)], vec![(9, DONE)])
    );

    world.ends[0].qp.set_attrs(|attr| attr.rnr_retry = 0);
    send(&world.ends[0], 2, SendOp::Send, &[], queues[0].number);
    world.run_until_idle();
    assert_eq!(world.ends[0].statuses(), [(2, NO_RECEIVE)]);
}

#[test]
fn a_message_that_waits_for_a_queue_that_goes_away_is_refused() {
    let (mut world, queues) = world(1, Weather::default(), 7);
    send(&world.ends[0], 1, SendOp::Send, &[], queues[0].number);
    world.run_for(1000 * MS);
    queues[0].srq.retire();
    let now_ns = world.now_ns;
    world.ends[1].shuttle.handle_posted(now_ns);
    world.run_until_idle();
    assert_eq!(world.ends[0].statuses(), [(1, INVALID)]);
}

#[test]
fn peers_reach_what_any_queue_of_the_domain_would_let_them_reach() {
    let (mut world, queues) = world(2, Weather::default(), 8);
    let source = world.ends[0].memory(64, ALL);
    let target = world.ends[1].memory(64, ALL);
    let (to, stag) = (target.addr(), target.key);
    let ops = [
        SendOp::Write { to, stag },
        SendOp::Read { to, stag },
        SendOp::FetchAdd { to, stag, add: 5 },
    ];
    for round in 0..2 {
        for (wr_id, op) in ops.into_iter().enumerate() {
            send(&world.ends[0], wr_id as u64, op, &[source.sge(0, 8)], queues[0].number);
        }
        world.run_until_idle();
        assert_eq!(world.ends[0].statuses(), [(0, DONE), (1, DONE), (2, DONE)]);
        queues[round].srq.retire();
    }
    send(&world.ends[0], 9, ops[0], &[source.sge(0, 8)], queues[0].number);
    world.run_until_idle();
    assert_eq!(world.ends[0].statuses(), [(9, NO_ACCESS)]);
}

#[test]
fn a_receive_that_a_message_has_begun_to_fill_is_flushed_where_its_queue_completes() {
    let (mut world, queues) = world(1, Weather::default(), 9);
    let source = world.ends[0].memory(1 << 20, ALL);
    let sink = world.ends[1].memory(1 << 20, ALL);
    queues[0].post(4, &[sink.sge(0, 1 << 20)]);
    send(&world.ends[0], 1, SendOp::Send, &[source.sge(0, 1 << 20)], queues[0].number);
    world.run_for(8 * MS);
    let now_ns = world.now_ns;
    world.ends[1].shuttle.close(now_ns);
    assert_eq!(queues[0].statuses(), [(4, FLUSHED)]);
}

#[test]
fn ends_of_other_kinds_have_no_queues_for_each_other() {
    use QpType::{Rc, XrcRecv, XrcSend};
    for [near, far] in [[Rc, XrcRecv], [XrcSend, Rc], [Rc, XrcSend], [XrcSend, XrcSend]] {
        let hosts = [near, far].map(|kind| Host::of_kind(7, kind, false));
        let mut world = World::new(hosts, Weather::default(), 10);
        if far == Rc {
            world.ends[1].recv(1, &[]);
        }
        world.run_for(100 * MS);
        match near {
            Rc => world.ends[0].send(1, SendOp::Send, &[]),
            _ => send(&world.ends[0], 1, SendOp::Send, &[], 9),
        }
        world.run_until_idle();
        assert_eq!(world.ends[0].statuses(), [(1, INVALID)], "{near:?} to {far:?}");
    }
}

#[test]
fn what_a_kind_does_not_do_cannot_be_posted() {
    let (world, queues) = world(1, Weather::default(), 11);
    let [near, far] = &world.ends;
    let op = SendOp::Send;
    let wr = SendWr { wr_id: 1, op, flags: SendFlags::default(), sges: &[] };
    assert!(near.qp.post_send(&wr).is_err(), "no queue is named");
    assert!(near.qp.post_send_to(&wr, u32::MAX).is_err(), "numbers have 24 bits");
    assert!(far.qp.post_send_to(&wr, queues[0].number).is_err(), "it only receives");
    assert!(
        [near, far]
            .iter()
            .all(|side| { side.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).is_err() })
    );
    assert!(far.xrcd.as_ref().unwrap().is_used());
}
