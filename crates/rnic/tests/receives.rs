//! Over Shuttle: messages that find no receive, and peers that are silent.

mod common;

use common::shuttle::{MS, Side, Weather, World};
use common::{ALL, Host};
use weft_rnic::RetryLimits;
use weft_verbs::{QpAttr, QpState, QpType, RecvWr, SendOp, WcStatus};

/// The time of row 14 of the table: 1.28 ms.
const TIMER: u8 = 14;
const TIMER_NS: u64 = 1_280_000;
/// There and back, and until an answer leaves.
const ROUND_NS: u64 = 12 * MS;

/// Two sides; the first one's requests are repeated `rnr_retry` times.
fn world_of(kind: QpType, shares: bool, rnr_retry: u8) -> World<Side> {
    let hosts = [Host::of_kind(7, kind, false), Host::of_kind(11, kind, shares)];
    let mut world = World::new(hosts, Weather::default(), 5);
    let set = |change: &dyn Fn(&mut QpAttr), side: &Side| side.qp.set_attrs(|attr| change(attr));
    set(&|attr| attr.rnr_retry = rnr_retry, &world.ends[0]);
    set(&|attr| attr.min_rnr_timer = TIMER, &world.ends[1]);
    // Both have heard of each other.
    world.run_for(100 * MS);
    world
}

fn statuses(side: &Side) -> Vec<(u64, u32)> {
    side.completions().iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

fn post_recv(side: &mut Side, now_ns: u64, wr_id: u64) {
    let wr = RecvWr { wr_id, sges: &[] };
    match &side.host.srq {
        Some(srq) => srq.post_recv(&wr).unwrap(),
        None => side.host.qp.post_recv(&wr).unwrap(),
    }
    side.shuttle.handle_posted(now_ns);
}

const DONE: u32 = WcStatus::Success as u32;
const FLUSHED: u32 = WcStatus::WrFlushErr as u32;
const NO_RECEIVE: u32 = WcStatus::RnrRetryExcErr as u32;
const NO_ANSWER: u32 = WcStatus::RetryExcErr as u32;

#[test]
fn a_message_without_a_receive_fails_when_its_time_is_over() {
    for (shares, retries) in [(false, 0), (false, 3), (true, 6)] {
        let mut world = world_of(QpType::Rc, shares, retries);
        for wr_id in 1..4 {
            world.ends[0].send(wr_id, SendOp::Send, &[]);
        }
        let took_ns = world.run_until_idle();
        let tries = u64::from(retries) + 1;
        let least_ns = tries * TIMER_NS;
        let most_ns = tries * (TIMER_NS + ROUND_NS) + 2 * ROUND_NS;
        assert!((least_ns..most_ns).contains(&took_ns), "{took_ns} ns for {tries}");
        let near = statuses(&world.ends[0]);
        assert_eq!(near, [(1, NO_RECEIVE), (2, FLUSHED), (3, FLUSHED)]);
        assert_eq!(world.ends[0].qp.state(), QpState::Err);
        assert_eq!(world.ends[0].events.pop(), None);
        // The peer is none the wiser, and what failed does not arrive later.
        world.run_for(100 * MS);
        let now_ns = world.now_ns;
        post_recv(&mut world.ends[1], now_ns, 9);
        world.run_for(100 * MS);
        assert_eq!((statuses(&world.ends[1]), world.ends[1].qp.state()), (vec![], QpState::Rts));
    }
}

#[test]
fn seven_repetitions_are_for_ever_and_nothing_more_is_sent_meanwhile() {
    for shares in [false, true] {
        let mut world = world_of(QpType::Rc, shares, 7);
        world.ends[0].send(1, SendOp::Send, &[]);
        world.run_for(2 * ROUND_NS);
        let before = world.ends[0].shuttle.stats().segments_out;
        for wr_id in 2..5 {
            world.ends[0].send(wr_id, SendOp::Send, &[]);
        }
        world.run_for(3_600_000 * MS);
        assert_eq!(world.ends[0].shuttle.stats().segments_out, before);
        assert_eq!(statuses(&world.ends[0]), []);
        for wr_id in 11..15 {
            let now_ns = world.now_ns;
            post_recv(&mut world.ends[1], now_ns, wr_id);
            world.run_for(5 * ROUND_NS);
        }
        assert_eq!(statuses(&world.ends[0]), (1..5).map(|id| (id, DONE)).collect::<Vec<_>>());
        assert_eq!(statuses(&world.ends[1]), (11..15).map(|id| (id, DONE)).collect::<Vec<_>>());
    }
}

#[test]
fn a_receive_in_time_is_in_time() {
    let mut world = world_of(QpType::Rc, false, 6);
    for wr_id in 1..20 {
        world.ends[0].send(wr_id, SendOp::Send, &[]);
        world.run_for(ROUND_NS / 2 + TIMER_NS);
        let now_ns = world.now_ns;
        post_recv(&mut world.ends[1], now_ns, wr_id);
        world.run_for(2 * ROUND_NS);
    }
    assert_eq!(statuses(&world.ends[0]), (1..20).map(|id| (id, DONE)).collect::<Vec<_>>());
}

/// S-38.
#[test]
fn who_posts_no_receive_before_it_has_read_is_answered() {
    let mut world = world_of(QpType::Rc, false, 7);
    let source = world.ends[0].memory(9000, ALL);
    let sink = world.ends[1].memory(9000, ALL);
    world.ends[0].send(1, SendOp::Send, &[]);
    let read = SendOp::Read { to: source.addr(), stag: source.key };
    world.ends[1].send(2, read, &[sink.sge(0, 9000)]);
    world.run_for(10 * ROUND_NS);
    let add = SendOp::FetchAdd { to: source.addr(), stag: source.key, add: 5 };
    world.ends[1].send(3, add, &[sink.sge(0, 8)]);
    world.run_for(10 * ROUND_NS);
    assert_eq!(statuses(&world.ends[1]), [(2, DONE), (3, DONE)]);
    let now_ns = world.now_ns;
    post_recv(&mut world.ends[1], now_ns, 4);
    world.run_for(10 * ROUND_NS);
    assert_eq!(statuses(&world.ends[1]), [(4, DONE)]);
    assert_eq!(statuses(&world.ends[0]), [(1, DONE)]);
}

#[test]
fn what_is_unreliable_is_dropped_without_a_receive() {
    let mut world = world_of(QpType::Uc, false, 0);
    let data = world.ends[0].memory(5000, ALL);
    let target = world.ends[1].memory(8, ALL);
    world.ends[0].send(1, SendOp::Send, &[data.sge(0, 5000)]);
    let write = SendOp::WriteImm { to: target.addr(), stag: target.key, imm: 3 };
    world.ends[0].send(2, write, &[data.sge(0, 8)]);
    world.run_for(10 * ROUND_NS);
    assert_eq!(statuses(&world.ends[0]), [(1, DONE), (2, DONE)]);
    let now_ns = world.now_ns;
    post_recv(&mut world.ends[1], now_ns, 9);
    world.ends[0].send(3, SendOp::SendImm { imm: 77 }, &[]);
    world.run_for(10 * ROUND_NS);
    assert_eq!(statuses(&world.ends[0]), [(3, DONE)]);
    let received = world.ends[1].completions();
    assert_eq!((received.len(), received[0].wr_id, received[0].imm_data), (1, 9, 77));
}

#[test]
fn a_peer_that_falls_silent_is_given_the_time_of_the_timeout() {
    let limits = RetryLimits { timeout_exp: 22, retry_cnt: 1, least_ns: 0 };
    let limit_ns = limits.limit_ns(None).unwrap();
    let mut world = world_of(QpType::Rc, false, 7);
    world.ends[0].shuttle.set_retry_limits(limits);
    // However long nothing is asked of it.
    world.network.weather.lost = 100;
    world.run_for(10 * limit_ns);
    assert_eq!(world.ends[0].qp.state(), QpState::Rts);
    world.ends[0].send(1, SendOp::Write { to: 0, stag: 0 }, &[]);
    world.ends[0].send(2, SendOp::Send, &[]);
    let took_ns = world.run_until_idle();
    assert!((limit_ns..limit_ns + 100 * MS).contains(&took_ns), "{took_ns} ns");
    assert_eq!(statuses(&world.ends[0]), [(1, NO_ANSWER), (2, FLUSHED)]);
    assert_eq!(world.ends[0].qp.state(), QpState::Err);
}

/// Runs until all requests are complete, or for ten times `limit_ns`, while both ends ask for signs
/// of life, as those of rdma-cm do. Gives how long it took.
fn run_alive(world: &mut World<Side>, limit_ns: u64) -> u64 {
    let begun_ns = world.now_ns;
    while world.now_ns < begun_ns + 10 * limit_ns && !world.ends[0].qp.sq().is_idle() {
        world.ends.iter_mut().for_each(|end| end.shuttle.connection_mut().ask());
        world.run_for(limit_ns / 20);
    }
    world.now_ns - begun_ns
}

/// Small packets pass a path that has become too short for the others.
#[test]
fn a_peer_that_is_heard_and_not_reached_is_given_the_time_of_the_timeout() {
    let limits = RetryLimits { timeout_exp: 22, retry_cnt: 1, least_ns: 0 };
    let limit_ns = limits.limit_ns(None).unwrap();
    // The requests are lost, or the responses.
    for lost_to in [1, 0] {
        let mut world = world_of(QpType::Rc, false, 7);
        world.ends[0].shuttle.set_retry_limits(limits);
        let [here, there] = world.ends.each_ref().map(|end| end.memory(4096, ALL));
        world.network.loses =
            Some(Box::new(move |to, datagram| to == lost_to && datagram.len() > 1000));
        let (to, stag) = (there.addr(), there.key);
        let op = if lost_to == 1 { SendOp::Write { to, stag } } else { SendOp::Read { to, stag } };
        world.ends[0].send(1, op, &[here.sge(0, 4096)]);
        world.ends[0].send(2, op, &[here.sge(0, 8)]);
        let took_ns = run_alive(&mut world, limit_ns);
        assert!((limit_ns..limit_ns + limit_ns / 10).contains(&took_ns), "{lost_to}: {took_ns} ns");
        assert_eq!(statuses(&world.ends[0]), [(1, NO_ANSWER), (2, FLUSHED)]);
    }
}

/// What it has no receive for may wait, whole or not, as long as it is heard.
#[test]
fn a_peer_that_is_heard_and_has_no_receive_is_no_silent_one() {
    const LEN: u32 = 4 << 20;
    let limits = RetryLimits { timeout_exp: 14, retry_cnt: 7, least_ns: 0 };
    for len in [8, LEN] {
        let mut world = world_of(QpType::Rc, false, 7);
        world.ends[0].shuttle.set_retry_limits(limits);
        let [source, inbox] = world.ends.each_ref().map(|end| end.memory(LEN.into(), ALL));
        world.ends[0].send(1, SendOp::Send, &[source.sge(0, len)]);
        run_alive(&mut world, limits.limit_ns(None).unwrap());
        assert_eq!(statuses(&world.ends[0]), []);
        let end = &mut world.ends[1];
        end.recv(7, &[inbox.sge(0, LEN)]);
        end.shuttle.handle_posted(world.now_ns);
        world.run_until_idle();
        assert_eq!(statuses(&world.ends[0]), [(1, DONE)]);
    }
}

#[test]
fn without_a_timeout_an_outage_lasts_as_long_as_it_likes() {
    let mut world = world_of(QpType::Rc, false, 7);
    let now_ns = world.now_ns;
    post_recv(&mut world.ends[1], now_ns, 9);
    world.network.weather.lost = 100;
    world.ends[0].send(1, SendOp::Send, &[]);
    world.run_for(3_600_000 * MS);
    world.network.weather.lost = 0;
    world.run_until_idle();
    assert_eq!(statuses(&world.ends[0]), [(1, DONE)]);
}

/// Nobody waited for the path meanwhile, and it was probed seldom.
#[test]
fn what_is_posted_after_a_long_idle_outage_leaves_within_a_second() {
    for down_s in 900..910 {
        let mut world = world_of(QpType::Rc, false, 7);
        let now_ns = world.now_ns;
        post_recv(&mut world.ends[1], now_ns, 9);
        world.network.weather.lost = 100;
        world.ends[0].shuttle.connection_mut().ask();
        world.run_for(down_s * 1000 * MS);
        world.network.weather.lost = 0;
        world.ends[0].send(1, SendOp::Send, &[]);
        let took_ns = world.run_until_idle();
        assert!(took_ns < 1100 * MS, "{took_ns} ns");
        assert_eq!(statuses(&world.ends[0]), [(1, DONE)]);
    }
}

#[test]
fn a_peer_that_left_is_noticed_by_the_next_request_only() {
    for (kind, status) in [(QpType::Rc, NO_ANSWER), (QpType::Uc, DONE)] {
        let mut world = world_of(kind, false, 7);
        let now_ns = world.now_ns;
        world.ends[1].shuttle.close(now_ns);
        world.run_for(60_000 * MS);
        assert_eq!(world.ends[0].qp.state(), QpState::Rts);
        assert!(!world.ends[0].shuttle.is_over(world.now_ns));
        world.ends[0].send(1, SendOp::Send, &[]);
        world.run_until_idle();
        assert_eq!(statuses(&world.ends[0]), [(1, status)]);
    }
}

/// What has a receive may take as long as the path has it.
#[test]
fn a_long_message_whose_receive_comes_in_time_is_sent_to_its_end() {
    const LEN: u32 = 4 << 20;
    let mut world = world_of(QpType::Rc, false, 0);
    let [source, inbox] = world.ends.each_ref().map(|end| end.memory(LEN.into(), ALL));
    world.ends[0].send(1, SendOp::Send, &[source.sge(0, LEN)]);
    world.run_for(6 * MS);
    let end = &mut world.ends[1];
    end.recv(7, &[inbox.sge(0, LEN)]);
    end.shuttle.handle_posted(world.now_ns);
    let took_ns = world.run_until_idle();
    assert!(took_ns > 4 * (TIMER_NS + ROUND_NS), "not longer than it may wait: {took_ns} ns");
    assert_eq!(statuses(&world.ends[0]), [(1, DONE)]);
    assert_eq!(statuses(&world.ends[1]), [(7, DONE)]);
}
