//! rdma-core's own python tests, of two releases, on both devices.
//!
//! What a device does not offer is skipped by the tests themselves, because it says so;
//! docs/pyverbs.md lists what and why. `make peer-suites` prints the score.

use weft_interop::pyverbs::{DEBIAN, NEWEST, PyverbsRelease, Score};
use weft_testkit::{IWARP, Lab, SHUTTLE};

/// The line that each device holds: so many tests pass, and none fails.
const ADAPTER_MIN: [u32; 2] = [143, 154];
const RNIC_MIN: [u32; 2] = [98, 108];

fn holds_the_line(suite: PyverbsRelease, transport: &'static str, least: u32) {
    let Some(lab) = Lab::with(&[]).map(|lab| lab.over(transport)) else { return };
    let Some((score, ended)) = suite.run(&lab) else { return };
    let Score { passed, skipped, failed } = score;
    let name = format!("rdma-core {}, {}", suite.version, lab.device());
    println!("{name}: {passed} pass (at least {least}), {skipped} skip, {failed} fail");
    assert!(failed == 0 && passed >= least, "{name}: {score:?}\n{ended}");
}

#[test]
fn the_adapter_passes() {
    holds_the_line(DEBIAN, SHUTTLE, ADAPTER_MIN[0]);
}

#[test]
fn the_rnic_passes() {
    holds_the_line(DEBIAN, IWARP, RNIC_MIN[0]);
}

#[test]
fn the_adapter_passes_newer_tests() {
    holds_the_line(NEWEST, SHUTTLE, ADAPTER_MIN[1]);
}

#[test]
fn the_rnic_passes_newer_tests() {
    holds_the_line(NEWEST, IWARP, RNIC_MIN[1]);
}
