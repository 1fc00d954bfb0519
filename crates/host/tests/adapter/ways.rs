//! Ways that change or fail under a transfer.

use std::time::Duration;

use super::line::Line;

const PIECE: usize = 16 << 10;

/// Writes `pieces` pieces from the near end to the far one; `between` hears how many are complete.
fn transfer(line: &mut Line, mut between: impl FnMut(&Line, usize)) {
    line.near.fill(|at| (at * 7 + (at >> 12)) as u8);
    let line = &*line;
    line.near.write_all(&line.far, PIECE, |done| between(line, done));
    assert!(line.near.bytes() == line.far.bytes());
}

#[test]
fn the_peer_comes_from_another_port_in_the_middle() {
    let Some(mut line) = Line::new(400 * PIECE) else { return };
    let mut changes = 0;
    transfer(&mut line, |line, done| {
        if done / 100 > changes {
            changes += 1;
            line.relay.rebind();
        }
    });
    assert_eq!(changes, 4);
}

#[test]
fn the_way_is_broken_for_a_while() {
    outage(Duration::from_secs(2));
}

/// `make soak`.
#[test]
#[ignore = "the way is broken for half a minute"]
fn the_way_is_broken_for_half_a_minute() {
    outage(Duration::from_secs(30));
}

/// Nothing is lost when nothing passes for `length`.
fn outage(length: Duration) {
    let Some(mut line) = Line::new(200 * PIECE) else { return };
    let mut broken = false;
    transfer(&mut line, |line, done| {
        if done >= 100 && !broken {
            broken = true;
            line.relay.set_broken(true);
            pause(length);
            line.relay.set_broken(false);
        }
    });
    assert!(broken);
}

/// The length of an outage is a time.
#[allow(clippy::disallowed_methods)]
fn pause(length: Duration) {
    std::thread::sleep(length);
}

#[test]
fn much_is_lost_and_comes_late() {
    let Some(mut line) = Line::new(200 * PIECE) else { return };
    line.relay.spoil(50, 250);
    transfer(&mut line, |_, _| {});
}
