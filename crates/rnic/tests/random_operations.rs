//! Random operations on two queue pairs over TCP's bytes, carried in pieces of any size.

mod common;

use common::pair;
use common::player::{Op, Player, act, check, op};
use common::{Side, settle};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Do(Op),
    /// Carry up to this many bytes to the other side.
    Carry {
        octets: u16,
    },
    /// TCP's segments have this many bytes from now on.
    Segments {
        emss: u32,
    },
}

fn emss() -> impl Strategy<Value = u32> {
    prop_oneof![Just(256u32), Just(1460), Just(65_483)]
}

fn step() -> impl Strategy<Value = (bool, Step)> {
    let step = prop_oneof![
        6 => op().prop_map(Step::Do),
        2 => (0u16..5000).prop_map(|octets| Step::Carry { octets }),
        1 => emss().prop_map(|emss| Step::Segments { emss }),
    ];
    (any::<bool>(), step)
}

fn take(step: &Step, me: &mut Player<Side>, peer: &mut Player<Side>) {
    match step {
        Step::Do(op) => act(op, me, peer),
        Step::Carry { octets } => {
            let bytes = me.side.output(usize::from(*octets));
            peer.side.input(&bytes);
        }
        Step::Segments { emss } => me.side.mpa.set_emss(*emss),
    }
}

fn run(steps: &[(bool, Step)], emss: u32) {
    let (near, far) = pair(emss);
    let (mut a, mut b) = (Player::new(near, 1), Player::new(far, 2));
    // A responder speaks once it has heard something.
    settle(&mut a.side, &mut b.side);
    for (by_a, step) in steps {
        if *by_a { take(step, &mut a, &mut b) } else { take(step, &mut b, &mut a) }
    }
    settle(&mut a.side, &mut b.side);
    check(&a);
    check(&b);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn memory_and_completions_are_what_the_model_says(
        steps in prop::collection::vec(step(), 1..50),
        emss in emss(),
    ) {
        run(&steps, emss);
    }
}
