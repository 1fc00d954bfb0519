//! Random operations on both ends of a connection, carried in pieces of any size. Every byte must
//! arrive once and in order, with the end and the urgent bytes where they were, and nothing may
//! stand still for ever.

mod common;

use common::{End, Stream, carry, holding, pair_over, small};
use proptest::prelude::*;
use weft_sdp::{Choice, SdpConfig, SdpStyle};
use weft_wire::sdp::Mode;

#[derive(Clone, Debug)]
enum Step {
    Send { len: usize },
    Put { len: usize },
    SendUrgent,
    SendFrom { len: usize },
    Cancel,
    Mode { mode: Mode },
    AllowSource,
    Invite { len: usize },
    CancelInvitation,
    Receive { len: usize },
    Take { len: usize },
    ReceiveInto { len: usize },
    ReceiveUrgent,
    Carry { octets: usize },
    Shutdown,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let len = || prop_oneof![1usize..20, 1usize..600, 1usize..4000];
    let mode = prop_oneof![
        1 => Just(Mode::Buffered),
        2 => Just(Mode::Combined),
        4 => Just(Mode::Pipelined),
    ];
    let step = prop_oneof![
        12 => len().prop_map(|len| Step::Send { len }),
        8 => len().prop_map(|len| Step::Put { len }),
        3 => Just(Step::SendUrgent),
        5 => (1000usize..4000).prop_map(|len| Step::SendFrom { len }),
        1 => Just(Step::Cancel),
        4 => mode.prop_map(|mode| Step::Mode { mode }),
        1 => Just(Step::AllowSource),
        6 => len().prop_map(|len| Step::Invite { len }),
        1 => Just(Step::CancelInvitation),
        5 => len().prop_map(|len| Step::ReceiveInto { len }),
        9 => len().prop_map(|len| Step::Receive { len }),
        6 => len().prop_map(|len| Step::Take { len }),
        2 => Just(Step::ReceiveUrgent),
        25 => (0usize..3000).prop_map(|octets| Step::Carry { octets }),
        1 => Just(Step::Shutdown),
    ];
    (0..2usize, step)
}

/// `me` does it; its own stream is the first.
fn take(step: &Step, me: &mut End, own: &mut Stream, peers: &mut Stream) {
    match *step {
        Step::Send { len } if !own.shut => drop(own.send(me, len)),
        Step::Put { len } if !own.shut => drop(own.send_by(me, len, End::put)),
        Step::SendUrgent if !own.shut => own.send_urgent(me),
        Step::SendFrom { len } if !own.shut => own.send_from(me, len),
        Step::Cancel => me.connection.cancel_source(&mut me.verbs, 0).unwrap(),
        // Changes that may not be made change nothing.
        Step::Mode { mode } => drop(me.connection.set_send_mode(&mut me.verbs, mode)),
        Step::Invite { len } => peers.invite(me, len),
        Step::CancelInvitation => me.connection.cancel_invitation(&mut me.verbs).unwrap(),
        Step::AllowSource => drop(me.connection.allow_source(&mut me.verbs)),
        Step::ReceiveInto { len } => peers.receive_into(me, len),
        Step::Receive { len } => drop(peers.receive(me, len)),
        Step::Take { len } => drop(peers.receive_by(me, len, End::take)),
        Step::ReceiveUrgent => peers.receive_urgent(me),
        Step::Shutdown => {
            own.shut = true;
            me.shutdown();
        }
        _ => {}
    }
}

fn run(steps: &[(usize, Step)], configs: [SdpConfig; 2], emss: u32) {
    let mut ends = pair_over(&configs[0], &configs[1], emss);
    let mut streams = [Stream::new(1), Stream::new(2)];
    for (by, step) in steps {
        let [near, far] = &mut streams;
        let (own, peers) = if *by == 0 { (near, far) } else { (far, near) };
        match step {
            Step::Carry { octets } => drop(carry(&mut ends, *by, *octets)),
            step => take(step, &mut ends[*by], own, peers),
        }
        account(&mut ends, &mut streams);
    }
    finish(&mut ends, &mut streams);
}

/// What each end was told of memory in use.
fn account(ends: &mut [End; 2], streams: &mut [Stream; 2]) {
    for end in ends.iter_mut() {
        end.events.extend(std::iter::from_fn(|| end.connection.poll_event()));
    }
    let [near, far] = ends;
    streams[0].account(near, far);
    streams[1].account(far, near);
}

/// Both sides end, and read until nothing moves any more.
fn finish(ends: &mut [End; 2], streams: &mut [Stream; 2]) {
    for by in 0..2 {
        streams[by].shut = true;
        ends[by].shutdown();
    }
    // A read that finds nothing may ask the peer for something.
    let mut idle = 0;
    while idle < 2 {
        let mut moved = false;
        for by in 0..2 {
            moved |= carry(ends, by, usize::MAX);
            moved |= streams[1 - by].receive(&mut ends[by], 4000) > 0;
            account(ends, streams);
        }
        idle = if moved { 0 } else { idle + 1 };
    }
    for by in 0..2 {
        streams[by].check_whole(&mut ends[1 - by]);
        assert!(ends[by].connection.is_over());
        assert_eq!(ends[by].connection.fault(), None);
    }
}

fn config() -> impl Strategy<Value = SdpConfig> {
    let styles = prop_oneof![
        Just(Choice::Auto),
        Just(Choice::Only(SdpStyle::Basic)),
        Just(Choice::Only(SdpStyle::Enhanced)),
    ];
    (any::<bool>(), styles, 8u16..12, 128u32..600).prop_map(
        |(holds, style, buffers, buffer_octets)| SdpConfig {
            style,
            buffers,
            buffer_octets,
            buffer_octets_max: 400,
            zero_copy_octets: 1000,
            ..if holds { holding() } else { small() }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn streams_arrive_whole(
        steps in prop::collection::vec(step(), 1..120),
        near in config(),
        far in config(),
        emss in prop_oneof![Just(256u32), Just(1460), Just(65_483)],
    ) {
        run(&steps, [near, far], emss);
    }
}

/// An invitation arrives while payload still waits for credits: the payload makes it void.
#[test]
fn payload_that_waits_is_before_what_is_invited() {
    let steps = [
        (1, Step::Send { len: 1 }),
        (1, Step::Send { len: 1529 }),
        (1, Step::Carry { octets: 1211 }),
        (1, Step::SendFrom { len: 1000 }),
        (0, Step::SendUrgent),
        (1, Step::Carry { octets: 461 }),
        (0, Step::Receive { len: 1425 }),
        (0, Step::Send { len: 859 }),
        (0, Step::Carry { octets: 500 }),
        (0, Step::SendUrgent),
        (1, Step::Carry { octets: 252 }),
        (1, Step::Receive { len: 286 }),
        (0, Step::Receive { len: 106 }),
        (0, Step::Mode { mode: Mode::Pipelined }),
        (0, Step::ReceiveInto { len: 1 }),
        (0, Step::Carry { octets: 784 }),
        (1, Step::Cancel),
        (1, Step::Receive { len: 573 }),
        (0, Step::SendFrom { len: 1000 }),
        (1, Step::Invite { len: 1 }),
    ];
    let of = |buffers, buffer_octets| SdpConfig {
        buffers,
        buffer_octets,
        buffer_octets_max: 400,
        zero_copy_octets: 1000,
        ..small()
    };
    run(&steps, [of(9, 372), of(8, 302)], 1460);
}
