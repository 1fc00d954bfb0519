//! Memory that the peer has read may be deregistered before the response is acknowledged: its
//! application may have told so by another connection.
#![allow(dead_code)]

mod common;

use common::shuttle::{MS, Side, Weather, World};
use common::{ALL, Host, Memory};
use weft_verbs::{QpState, SendOp, WcStatus};

/// Bytes of a response of many segments.
const LONG: u32 = 100_000;

fn world(weather: Weather, seed: u32) -> World<Side> {
    let mut world = World::new([Host::new(7), Host::new(11)], weather, seed);
    world.run_for(300 * MS);
    world
}

/// The near end begins to read memory of the far one.
fn read(world: &World<Side>, wr_id: u64) -> [Memory; 2] {
    let [near, far] = [0, 1].map(|at| world.ends[at].memory(LONG.into(), ALL));
    let (to, stag) = (far.addr(), far.key);
    world.ends[0].send(wr_id, SendOp::Read { to, stag }, &[near.sge(0, LONG)]);
    [near, far]
}

/// Lets it happen until the near end is done; gives how that went.
fn status(world: &mut World<Side>) -> Vec<(u64, u32)> {
    world.run_until_idle();
    world.ends[0].statuses()
}

fn deregister(world: &World<Side>, memory: &Memory) {
    world.ends[1].device.regions().deregister(memory.key).unwrap();
}

#[test]
fn a_response_that_has_arrived_is_not_repeated() {
    let success = WcStatus::Success as u32;
    let mut world = world(Weather::default(), 1);
    let [_near, far] = read(&world, 1);
    world.run_for(6 * MS);
    world.network.loses = Some(Box::new(|to, _| to == 1));
    assert_eq!(status(&mut world), [(1, success)]);
    deregister(&world, &far);
    world.run_for(2000 * MS);
    assert_eq!(world.ends[1].qp.state(), QpState::Rts);
    world.network.loses = None;
    let _memory = read(&world, 2);
    assert_eq!(status(&mut world), [(2, success)]);
    assert!(world.ends[1].events().is_empty());
}

#[test]
fn a_response_that_has_not_arrived_fails() {
    for (lost, limit) in [(1, 400), (10, 400), (1000, 400)] {
        let mut world = world(Weather::default(), 1);
        let [_near, far] = read(&world, 1);
        let mut left = lost;
        world.network.loses = Some(Box::new(move |to, datagram| {
            let loses = to == 0 && datagram.len() > 1000 && left > 0;
            left -= u32::from(loses);
            loses
        }));
        world.run_for(6 * MS);
        deregister(&world, &far);
        world.run_for(limit * MS);
        assert_eq!(world.ends[0].statuses(), [(1, WcStatus::RemAccessErr as u32)], "{lost}");
        assert_eq!(world.ends[1].qp.state(), QpState::Err);
        assert_eq!(world.ends[1].events().len(), 1);
    }
}

#[test]
fn whatever_the_network_does_memory_that_has_been_read_is_of_no_use() {
    for seed in 0..50 {
        let mut world = world(Weather { lost: 20, late: 20, doubled: 5, corrupt: 2 }, seed);
        for round in 0..10 {
            let [near, mut far] = read(&world, round);
            far.bytes.fill(round + 1);
            assert_eq!(status(&mut world), [(round, WcStatus::Success as u32)], "seed {seed}");
            deregister(&world, &far);
            assert!(near.octets() == far.octets(), "seed {seed}");
        }
    }
}
