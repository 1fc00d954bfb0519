//! What waits for its socket names memory of the application. Once that is deregistered, or its
//! request flushed, nothing of it leaves, however much of the batch the socket has taken.
#![allow(dead_code)]

mod common;

use common::shuttle::{MS, Side, Weather, World};
use common::*;
use weft_rnic::wire::llp::{Gather, Piece};
use weft_rnic::{Sending, Written};
use weft_verbs::{SendOp, WcStatus};

const LEN: u32 = 8192;
const FLUSHED: u32 = WcStatus::WrFlushErr as u32;

/// Whether some of it is to be read from `memory`.
fn names(gather: &Gather, memory: &Memory) -> bool {
    let within = memory.addr()..memory.addr() + u64::from(LEN);
    gather.pieces().iter().any(|piece| match piece {
        Piece::Memory(piece) => within.contains(&piece.addr),
        Piece::Slab { .. } => false,
    })
}

#[test]
fn a_batch_that_tcp_took_a_part_of_ends_with_its_memory() {
    let (mut a, mut b) = pair(1460);
    settle(&mut a, &mut b);
    let (source, target) = (a.memory(LEN.into(), ALL), b.memory(LEN.into(), ALL));
    let write = SendOp::Write { to: target.addr(), stag: target.key };
    a.send(1, write, &[source.sge(0, LEN)]);
    assert_eq!(a.output(1500).len(), 1500);
    let mut waited = false;
    a.mpa.poll_transmit(|out| {
        waited |= names(out.gather, &source);
        Written::Blocked
    });
    assert!(waited, "nothing of the memory was left to write");
    a.device.regions().deregister(source.key).unwrap();
    let mut left = false;
    a.mpa.poll_transmit(|out| {
        left |= names(out.gather, &source);
        Written::Octets(out.gather.len() - out.written)
    });
    assert!(!left, "memory was read that is not registered any more");
    assert_eq!(a.statuses(), [(1, FLUSHED)]);
}

/// A connection of which the first end has posted a Write, and the memory of both.
fn world_with_a_write() -> (World<Side>, [Memory; 2]) {
    let mut world = World::new([Host::new(7), Host::new(11)], Weather::default(), 1);
    world.run_for(1000 * MS);
    let [source, target] = world.ends.each_ref().map(|end| end.memory(LEN.into(), ALL));
    let write = SendOp::Write { to: target.addr(), stag: target.key };
    world.ends[0].send(1, write, &[source.sge(0, LEN)]);
    (world, [source, target])
}

#[test]
fn a_burst_that_waits_for_its_socket_ends_with_its_memory() {
    let (mut world, [source, _target]) = world_with_a_write();
    let a = &mut world.ends[0];
    let mut waited = false;
    let outcome = a.shuttle.poll_transmit(
        || world.now_ns,
        |burst| {
            waited |= names(burst.gather, &source);
            Written::Blocked
        },
    );
    assert_eq!((outcome, waited), (Sending::Blocked, true));
    a.device.regions().deregister(source.key).unwrap();
    let mut left = false;
    let mut outcome = Sending::More;
    while outcome == Sending::More {
        outcome = a.shuttle.poll_transmit(
            || world.now_ns,
            |burst| {
                left |= names(burst.gather, &source);
                Written::Octets(burst.lengths.iter().map(|len| usize::from(*len)).sum())
            },
        );
    }
    assert!(!left, "memory was read that is not registered any more");
    // What was in the burst counts as lost, and is missed when it is to be sent again.
    world.run_for(3000 * MS);
    assert_eq!(world.ends[0].statuses(), [(1, WcStatus::LocProtErr as u32)]);
}

#[test]
fn a_burst_that_waits_for_its_socket_ends_with_its_requests() {
    let (mut world, [source, _target]) = world_with_a_write();
    let a = &mut world.ends[0];
    let count = |a: &mut Side, taken| {
        let mut named = 0;
        let outcome = a.shuttle.poll_transmit(
            || world.now_ns,
            |burst| {
                named += u32::from(names(burst.gather, &source));
                match taken {
                    false => Written::Blocked,
                    true => {
                        Written::Octets(burst.lengths.iter().map(|len| usize::from(*len)).sum())
                    }
                }
            },
        );
        (outcome, named)
    };
    assert_eq!(count(a, false), (Sending::Blocked, 1));
    a.shuttle.close(world.now_ns);
    assert_eq!(a.statuses(), [(1, FLUSHED)]);
    assert_eq!(count(a, true), (Sending::Done, 0));
}
