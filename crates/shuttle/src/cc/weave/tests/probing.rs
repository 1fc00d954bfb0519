//! When a probe for a higher rate goes on, and when it ends.

use super::*;

/// A path whose probe has 17 packets more in flight, which can queue by 3/8 of what counts.
fn probing() -> Path {
    let mut path = Path::cruising();
    path.weave.probe();
    let WeavePhase::Up(probe) = &mut path.weave.phase else { panic!() };
    probe.extra = 17 * 1250;
    path
}

#[test]
fn a_probe_ends_after_two_rounds_that_queue_more_than_before() {
    let is_up = |path: &Path| matches!(path.weave.phase, WeavePhase::Up(_));
    let queue_ns = probing().weave.queue_ns();
    // A queue of 3/8 is none yet; one round with more may be chance.
    for rounds_ns in [[queue_ns * 3 / 8, queue_ns / 2], [queue_ns / 2, 0]] {
        let mut path = probing();
        rounds_ns.into_iter().for_each(|queued_ns| path.round(queued_ns));
        assert!(is_up(&path), "{:?}", path.weave.phase);
    }
    let mut path = probing();
    path.round(queue_ns / 2);
    assert!(is_up(&path), "{:?}", path.weave.phase);
    path.round(queue_ns / 2);
    assert!(matches!(path.weave.phase, WeavePhase::Down { .. }), "{:?}", path.weave.phase);
}

#[test]
fn a_probe_grows_by_half_each_round_while_it_does_not_queue() {
    let excess = |path: &Path| match path.weave.phase {
        WeavePhase::Up(probe) => probe.extra,
        phase => panic!("{phase:?}"),
    };
    let mut path = Path::cruising();
    path.weave.probe();
    assert_eq!(excess(&path), 4 * 1250);
    path.round(0);
    assert_eq!(excess(&path), 6 * 1250);
    // Six packets do not queue for as long: it is chance.
    path.round(path.weave.queue_ns() / 2);
    assert_eq!(excess(&path), 9 * 1250);
    let mut path = probing();
    path.round(path.weave.queue_ns() / 2);
    assert_eq!(excess(&path), 17 * 1250);
}

#[test]
fn a_probe_that_could_show_more_and_does_not_ends_after_three_rounds() {
    let mut path = Path::cruising();
    path.weave.probe();
    let mut rounds = 0;
    while let WeavePhase::Up(probe) = path.weave.phase {
        // 2 ms at the rate are 25 kB: before, more could not show.
        let shows = probe.extra >= octets_in(RATE_BPS, 1_980_000);
        assert!(rounds % 3 != 2 || !shows || rounds == 5, "{rounds} {probe:?}");
        path.round(0);
        rounds += 1;
    }
    assert_eq!(rounds, 6);
    assert!(matches!(path.weave.phase, WeavePhase::Down { .. }), "{:?}", path.weave.phase);
}
