//! A request is complete before its peer's reply to it is there, whatever the network does to the
//! datagrams of either.
//!
//! Rules of `docs/shuttle.md`: S-47.

mod common;

use common::shuttle::{MS, Side, Weather, World};
use common::{ALL, Host, Memory, entropy};
use proptest::prelude::*;
use weft_verbs::{SendOp, Wc, WcOpcode, WcStatus};

const MESSAGES: u64 = 60;
const IN_FLIGHT: u64 = 8;
const LENGTH_MAX: u32 = 6000;

/// What a side has polled.
#[derive(Default)]
struct Polled {
    sends: u64,
    receives: u64,
}

/// Polls all that is there; `check` looks after each completion.
fn poll(side: &Side, polled: &mut Polled, check: impl Fn(&Polled)) {
    let mut wcs = [Wc::default(); 64];
    let count = side.cq.poll(&mut wcs).unwrap();
    for wc in &wcs[..count] {
        assert_eq!(wc.status, WcStatus::Success as u32);
        match wc.opcode == WcOpcode::Recv as u32 {
            true => polled.receives += 1,
            false => polled.sends += 1,
        }
        check(polled);
    }
}

/// Side 0 sends; side 1 answers each message, by a Send or by a Write of how many it has seen.
fn talk(weather: Weather, by_write: bool, seed: u32) {
    let mut world = World::new([Host::new(7), Host::new(11)], weather, seed);
    let draw = entropy(seed ^ 0x5555);
    let rooms: Vec<Memory> =
        world.ends.iter().map(|end| end.memory(u64::from(LENGTH_MAX), ALL)).collect();
    let seen = world.ends[0].memory(8, ALL);
    let mut count = world.ends[1].memory(8, ALL);
    let (mut asked, mut near, mut far) = (0, Polled::default(), Polled::default());
    let mut answered = 0;
    let end_ns = world.now_ns + 600_000 * MS;
    while near.sends < MESSAGES || answered < MESSAGES {
        assert!(world.now_ns < end_ns, "{} of {MESSAGES} after ten minutes", near.sends);
        let [a, b] = &mut world.ends;
        while asked < MESSAGES && asked < near.sends + IN_FLIGHT {
            b.recv(asked, &[rooms[1].sge(0, LENGTH_MAX)]);
            a.recv(asked, &[rooms[0].sge(0, LENGTH_MAX)]);
            a.send(asked, SendOp::Send, &[rooms[0].sge(0, draw() % LENGTH_MAX)]);
            asked += 1;
        }
        world.run_on();
        let [a, b] = &mut world.ends;
        // The application may look at its memory before it polls.
        answered = if by_write { seen.bytes[0] } else { near.receives };
        poll(a, &mut near, |near| assert!(near.sends >= near.receives, "a reply came first"));
        assert!(near.sends >= answered, "{answered} replies, {} requests complete", near.sends);
        let before = far.receives;
        poll(b, &mut far, |_| ());
        for number in before..far.receives {
            if by_write {
                count.bytes[0] = number + 1;
                let to = SendOp::Write { to: seen.addr(), stag: seen.key };
                b.send(number, to, &[count.sge(0, 8)]);
                // What is sent again is gathered anew, so the count only grows.
            } else {
                b.send(number, SendOp::Send, &[rooms[1].sge(0, draw() % LENGTH_MAX)]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_reply_never_overtakes_the_completion_of_its_request(
        lost in 0u32..20,
        late in 0u32..60,
        doubled in 0u32..10,
        by_write in any::<bool>(),
        seed in any::<u32>(),
    ) {
        talk(Weather { lost, late, doubled, corrupt: 1 }, by_write, seed);
    }
}
