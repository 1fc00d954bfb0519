//! Requests that are under way when the peer closes over Shuttle fail as late as repetitions would
//! have: an application whose own completions all came may not notice.
#![allow(dead_code)]

mod common;

use common::Host;
use common::shuttle::{MS, Weather, World};
use weft_rnic::RetryLimits;
use weft_verbs::{SendOp, WcStatus};

const LIMITS: RetryLimits = RetryLimits { timeout_exp: 14, retry_cnt: 7, least_ns: 0 };

/// The second end closes while a message of the first is under way.
fn abandoned() -> World<common::shuttle::Side> {
    let mut world = World::new([Host::new(7), Host::new(11)], Weather::default(), 3);
    world.run_for(100 * MS);
    let [near, far] = &mut world.ends;
    near.shuttle.set_retry_limits(LIMITS);
    near.send(1, SendOp::Send, &[]);
    far.shuttle.close(world.now_ns);
    world.run_for(50 * MS);
    world
}

#[test]
fn a_request_fails_when_its_repetitions_would_have_ended() {
    let mut world = abandoned();
    assert!(world.ends[0].shuttle.end().is_some());
    world.run_for(LIMITS.grace_ns() - 50 * MS);
    assert_eq!(world.ends[0].statuses(), []);
    world.run_for(50 * MS);
    assert_eq!(world.ends[0].statuses(), [(1, WcStatus::RetryExcErr as u32)]);
}

#[test]
fn so_does_one_that_is_posted_later() {
    let mut world = World::new([Host::new(7), Host::new(11)], Weather::default(), 3);
    world.run_for(100 * MS);
    world.ends[1].shuttle.close(world.now_ns);
    world.run_for(3000 * MS);
    let near = &mut world.ends[0];
    near.shuttle.set_retry_limits(LIMITS);
    near.send(2, SendOp::Send, &[]);
    world.run_for(LIMITS.grace_ns() - MS);
    assert_eq!(world.ends[0].statuses(), []);
    world.run_for(2 * MS);
    assert_eq!(world.ends[0].statuses(), [(2, WcStatus::RetryExcErr as u32)]);
}
