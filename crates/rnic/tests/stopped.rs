//! The time for which a process was stopped counts as no silence of its peer.
#![allow(dead_code)]

mod common;

use common::shuttle::{MS, Weather, World};
use common::*;
use weft_rnic::shuttle::Route;
use weft_verbs::SendOp;

const STOP_NS: u64 = 5000 * MS;

/// What is read after the stop may have come before it, and says so.
#[test]
fn what_came_before_a_stop_makes_no_silence_of_it() {
    let mut world = World::new([Host::new(7), Host::new(11)], Weather::default(), 1);
    world.run_for(1000 * MS);
    let (source, target) = (world.ends[0].memory(8, ALL), world.ends[1].memory(8, ALL));
    let write = SendOp::Write { to: target.addr(), stag: target.key };
    let to_first = |world: &World<_>| world.network.trace.iter().filter(|(to, _)| *to == 0).count();
    let before = to_first(&world);
    world.ends[0].send(1, write, &[source.sge(0, 8)]);
    // Until the answer is on its way.
    while to_first(&world) == before {
        world.run_for(MS);
    }
    let (_, mut answer) = world.network.trace.iter().rfind(|(to, _)| *to == 0).unwrap().clone();
    let at = |host: u8| ([10, 0, 0, host], 4000).into();
    let route = Route { local: at(1), remote: at(2) };
    let (came_ns, first) = (world.now_ns, &mut world.ends[0].shuttle);
    first.handle_stop(STOP_NS);
    let heard_ns = first.connection().heard_ns();
    first.receive(came_ns, route, false, &mut answer);
    assert_eq!(world.ends[0].statuses(), [(1, 0)]);
    assert_eq!(world.ends[0].shuttle.connection().heard_ns(), heard_ns);
}
