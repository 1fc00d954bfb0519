//! A request that the peer refuses over Shuttle leaves those before it as they are, whatever the
//! network does: Reads and Atomics are answered first, and what follows is neither placed nor
//! complete.
#![allow(dead_code)]

mod common;

use common::shuttle::{MS, Side, Weather, World};
use common::{ALL, Host, Memory};
use weft_verbs::{QpState, SendOp, WcStatus};

/// Bytes of a message of many segments.
const LONG: u32 = 100_000;

/// Posts what is answered, what is refused and what comes after it.
fn post(near: &Side, far: &Memory) -> Memory {
    let memory = near.memory(2 * u64::from(LONG), ALL);
    let (to, stag) = (far.addr(), far.key);
    near.send(1, SendOp::Read { to, stag }, &[memory.sge(8, LONG)]);
    near.send(2, SendOp::FetchAdd { to, stag, add: 1 }, &[memory.sge(0, 8)]);
    near.send(3, SendOp::Write { to, stag: stag ^ 0x5500 }, &[memory.sge(0, LONG)]);
    near.send(4, SendOp::Write { to, stag }, &[memory.sge(16, 8)]);
    memory
}

fn stormy(seed: u32) -> World<Side> {
    let weather = Weather { lost: 10, late: 20, doubled: 5, corrupt: 2 };
    let mut world = World::new([Host::new(7), Host::new(11)], weather, seed);
    world.run_for(300 * MS);
    world
}

#[test]
fn what_precedes_a_refused_request_is_complete() {
    for seed in 0..50 {
        let mut world = stormy(seed);
        let mut far = world.ends[1].memory(LONG.into(), ALL);
        far.bytes.fill(7);
        let near = post(&world.ends[0], &far);
        world.run_until_idle();
        let [success, refused, flushed] =
            [WcStatus::Success, WcStatus::RemAccessErr, WcStatus::WrFlushErr].map(|s| s as u32);
        let expected = [(1, success), (2, success), (3, refused), (4, flushed)];
        assert_eq!(world.ends[0].statuses(), expected, "seed {seed}");
        // The atomic may come before the first bytes are read.
        let answer = &near.octets()[16..][..LONG as usize - 8];
        assert!(answer == &far.octets()[8..], "seed {seed}");
        assert_eq!(far.bytes[0], 8, "the last Write has left something");
        assert_eq!(world.ends[1].qp.state(), QpState::Err);
    }
}

#[test]
fn ends_that_refuse_each_other_do_not_wait_for_each_other() {
    for seed in 0..50 {
        let mut world = stormy(seed);
        let far = [0, 1].map(|at| world.ends[at].memory(LONG.into(), ALL));
        let _near = [0, 1].map(|at| post(&world.ends[at], &far[1 - at]));
        world.run_until_idle();
        for end in &world.ends {
            assert_eq!(end.statuses().len(), 4, "seed {seed}");
            assert_eq!(end.qp.state(), QpState::Err);
        }
    }
}

#[test]
fn a_peer_that_dies_before_it_has_the_answers_is_not_waited_for() {
    let mut world = World::new([Host::new(7), Host::new(11)], Weather::default(), 3);
    world.run_for(300 * MS);
    let far = world.ends[1].memory(LONG.into(), ALL);
    let _near = post(&world.ends[0], &far);
    world.network.loses = Some(Box::new(|to, _| to == 0));
    world.run_for(1000 * MS);
    assert_eq!(world.ends[1].qp.state(), QpState::Rts);
    world.network.loses = Some(Box::new(|_, _| true));
    world.run_for(12_000 * MS);
    assert_eq!(world.ends[1].qp.state(), QpState::Err);
    assert_eq!(world.ends[1].events().len(), 1);
}
