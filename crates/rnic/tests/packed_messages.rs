//! Over Shuttle: a list of small requests leaves in as few datagrams as hold it, and each of them
//! is what it would be alone.
//!
//! Rules of `docs/shuttle.md`: S-4.

mod common;

use common::shuttle::{MS, Side, Weather, World};
use common::{ALL, Host};
use weft_rnic::wire::shuttle::Packet;
use weft_verbs::{QpState, RecvWr, SendFlags, SendOp, SendWr, Sge, Wc, WcOpcode, WcStatus};

const DONE: u32 = WcStatus::Success as u32;
const FLUSHED: u32 = WcStatus::WrFlushErr as u32;

/// Two sides that have heard of each other.
fn world() -> World<Side> {
    let mut world = World::new([Host::new(7), Host::new(11)], Weather::default(), 5);
    world.run_for(100 * MS);
    world
}

/// Data packets that the first side sends until its requests are complete.
fn data_packets(world: &mut World<Side>) -> usize {
    world.run_until_idle();
    let sent = world.network.trace.iter().filter(|(to, _)| *to == 1);
    sent.filter(|(_, datagram)| matches!(Packet::parse(datagram), Ok(Packet::Data(_)))).count()
}

fn post(side: &Side, wr_id: u64, op: SendOp, flags: SendFlags, sges: &[Sge]) {
    side.qp.post_send(&SendWr { wr_id, op, flags: flags | SendFlags::SIGNALED, sges }).unwrap();
}

#[test]
fn a_list_of_requests_leaves_in_one_datagram_and_arrives_in_order() {
    let mut world = world();
    let [near, far] = &world.ends;
    let (source, target) = (near.memory(4096, ALL), far.memory(4096, ALL));
    for wr_id in 0..4 {
        far.qp.post_recv(&RecvWr { wr_id, sges: &[target.sge(8 * wr_id, 8)] }).unwrap();
    }
    let write_to = |slot: u64| SendOp::Write { to: target.addr() + slot, stag: target.key };
    let with_imm =
        |slot: u64, imm| SendOp::WriteImm { to: target.addr() + slot, stag: target.key, imm };
    let none = SendFlags::empty();
    post(near, 10, write_to(1024), none, &[source.sge(0, 64)]);
    post(near, 11, SendOp::Send, none, &[source.sge(0, 8)]);
    post(near, 12, with_imm(2048, 0xaa), none, &[source.sge(0, 100)]);
    post(near, 13, SendOp::SendImm { imm: 0xbb }, SendFlags::SOLICITED, &[source.sge(0, 8)]);
    post(near, 14, write_to(1024), none, &[]);
    post(near, 15, SendOp::Send, none, &[]);
    assert_eq!(data_packets(&mut world), 1);
    let [near, far] = &world.ends;
    assert_eq!(near.statuses(), (10..16).map(|wr_id| (wr_id, DONE)).collect::<Vec<_>>());
    let told = |wc: &Wc| (wc.wr_id, wc.opcode, wc.byte_len, wc.imm_data);
    let (recv, written) = (WcOpcode::Recv as u32, WcOpcode::RecvRdmaWithImm as u32);
    let received: Vec<_> = far.completions().iter().map(told).collect();
    let expected = [(0, recv, 8, 0), (1, written, 100, 0xaa), (2, recv, 8, 0xbb), (3, recv, 0, 0)];
    assert_eq!(received, expected);
}

/// Only the solicited message of a packet brings the event that was asked for, and it brings it.
#[test]
fn a_solicited_message_amid_others_is_told() {
    for solicited in [false, true] {
        let mut world = world();
        let far = &world.ends[1];
        (0..3).for_each(|wr_id| far.recv(wr_id, &[]));
        far.cq.req_notify(true);
        for wr_id in 0..3 {
            let flags = match solicited && wr_id == 1 {
                true => SendFlags::SOLICITED,
                false => SendFlags::empty(),
            };
            post(&world.ends[0], wr_id, SendOp::Send, flags, &[]);
        }
        assert_eq!(data_packets(&mut world), 1);
        let far = &world.ends[1];
        assert_eq!(far.cq.is_armed(), !solicited);
        assert_eq!(far.statuses(), [(0, DONE), (1, DONE), (2, DONE)]);
    }
}

/// What precedes a request that must not be placed is placed and complete; what follows it is not.
#[test]
fn a_refused_request_amid_others_fails_alone_and_flushes_what_follows() {
    let mut world = world();
    let [near, far] = &world.ends;
    let (mut source, target) = (near.memory(64, ALL), far.memory(64, ALL));
    source.bytes.fill(u64::MAX);
    for wr_id in 0..5_u64 {
        let stag = if wr_id == 2 { target.key ^ 0x100 } else { target.key };
        let op = SendOp::Write { to: target.addr() + 8 * wr_id, stag };
        near.send(wr_id, op, &[source.sge(0, 8)]);
    }
    assert_eq!(data_packets(&mut world), 1);
    world.run_for(1000 * MS);
    let [near, far] = &world.ends;
    let refused = WcStatus::RemAccessErr as u32;
    let expected = [(0, DONE), (1, DONE), (2, refused), (3, FLUSHED), (4, FLUSHED)];
    assert_eq!(near.statuses(), expected);
    assert_eq!(target.bytes[..5], [u64::MAX, u64::MAX, 0, 0, 0]);
    assert_eq!([near.qp.state(), far.qp.state()], [QpState::Err; 2]);
}
