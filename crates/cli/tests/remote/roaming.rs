//! A near end behind a translator of addresses, whose address changes while it copies.

use std::process::{Child, Stdio};

use weft_testkit::{Translator, text};

use crate::far_host::{FarHost, assert_same, noise};

/// Bytes that show that a copy is in its middle.
const BEGUN: u64 = 1_000_000;

/// What a copy said that has ended.
fn said(copy: Child) -> String {
    text(&copy.wait_with_output().unwrap().stderr)
}

#[test]
fn a_copy_goes_on_from_another_address() {
    let Some(network) = Translator::new() else { return };
    let Some(host) = FarHost::beyond(&network, "cp-roams") else { return };
    host.dir.write("a", noise(4, 12_000_000));
    for (from, to) in [("a", &*host.far("b")), (&*host.far("b"), "c")] {
        let before = network.octets_passed();
        let mut copy = host.weft("cp");
        copy.args(["-q", "--udp-only", "--limit", "40mbit", from, to]).stderr(Stdio::piped());
        let mut copying = copy.spawn().unwrap();
        // What is said of a file that comes may be little: an answer is for many datagrams.
        while network.octets_passed() < before + BEGUN {
            assert!(copying.try_wait().unwrap().is_none(), "{}", said(copying));
            std::thread::yield_now();
        }
        network.rebind();
        let output = copying.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    assert_same(&host.dir.path("a"), &host.dir.path("b"));
    assert_same(&host.dir.path("a"), &host.dir.path("c"));
}
