//! Random operations on two queue pairs over Shuttle, through a network that loses, delays,
//! reorders, duplicates and corrupts.

mod common;

use common::Host;
use common::player::{Op, Player, act, check, op};
use common::shuttle::{MS, Weather, World};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Do(Op),
    Pass { ms: u64 },
}

fn step() -> impl Strategy<Value = (bool, Step)> {
    let step = prop_oneof![
        5 => op().prop_map(Step::Do),
        1 => (0u64..30).prop_map(|ms| Step::Pass { ms }),
    ];
    (any::<bool>(), step)
}

fn weather() -> impl Strategy<Value = Weather> {
    (0u32..20, 0u32..50, 0u32..10, 0u32..5).prop_map(|(lost, late, doubled, corrupt)| Weather {
        lost,
        late,
        doubled,
        corrupt,
    })
}

fn run(steps: &[(bool, Step)], weather: Weather, seed: u32) {
    let hosts = [Host::new(7), Host::new(11)];
    let mut number = 0;
    let mut world = World::new(hosts, weather, seed).map(|side| {
        number += 1;
        Player::new(side, number)
    });
    for (by_first, step) in steps {
        let [a, b] = &mut world.ends;
        let (me, peer) = if *by_first { (a, b) } else { (b, a) };
        match step {
            Step::Do(op) => act(op, me, peer),
            Step::Pass { ms } => world.run_for(ms * MS),
        }
    }
    world.run_until_idle();
    world.ends.iter().for_each(check);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn memory_and_completions_are_what_the_model_says(
        steps in prop::collection::vec(step(), 1..50),
        weather in weather(),
        seed in any::<u32>(),
    ) {
        run(&steps, weather, seed);
    }
}
