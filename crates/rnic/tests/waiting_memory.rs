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

/// Loses the `number`th datagram of more than 1000 bytes to the first end, from 0.
fn lose_large(world: &mut World<Side>, number: u32) {
    let mut left = number;
    world.network.loses = Some(Box::new(move |to, datagram| {
        let is_it = to == 0 && datagram.len() > 1000 && left == 0;
        left = left.wrapping_sub(u32::from(to == 0 && datagram.len() > 1000));
        is_it
    }));
}

#[test]
fn a_response_that_is_repeated_without_its_memory_does_not_complete_the_read() {
    let mut world = World::new([Host::new(7), Host::new(11)], Weather::default(), 1);
    world.run_for(1000 * MS);
    let [sink, source] = world.ends.each_ref().map(|end| end.memory(LEN.into(), ALL));
    lose_large(&mut world, 1);
    let read = SendOp::Read { to: source.addr(), stag: source.key };
    world.ends[0].send(1, read, &[sink.sge(0, 3000)]);
    // The request, and what answers it: the middle of it is lost.
    world.run_for(11 * MS);
    assert!(world.ends[0].statuses().is_empty());
    world.ends[1].device.regions().deregister(source.key).unwrap();
    world.network.loses = None;
    world.run_for(5000 * MS);
    let statuses = world.ends[0].statuses();
    assert!(statuses.len() == 1 && statuses[0].1 != WcStatus::Success as u32, "{statuses:?}");
}

#[test]
fn a_message_that_is_repeated_without_its_memory_takes_no_receive() {
    let mut world = World::new([Host::new(7), Host::new(11)], Weather::default(), 1);
    world.run_for(1000 * MS);
    let [inbox, source] = world.ends.each_ref().map(|end| end.memory(LEN.into(), ALL));
    lose_large(&mut world, 0);
    world.ends[0].recv(7, &[inbox.sge(0, 1100)]);
    world.ends[1].send(1, SendOp::Send, &[source.sge(0, 1100)]);
    world.run_for(6 * MS);
    world.ends[1].device.regions().deregister(source.key).unwrap();
    world.network.loses = None;
    world.run_for(5000 * MS);
    assert_eq!(world.ends[1].statuses(), [(1, WcStatus::LocProtErr as u32)]);
    assert_eq!(world.ends[0].statuses(), [], "the peer of an adapter hears nothing");
}
