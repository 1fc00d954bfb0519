//! A near end behind a translator of addresses, whose address changes while it copies.

use std::process::Stdio;

use weft_testkit::{Translator, text};

use crate::far_host::{FarHost, assert_same, noise};

#[test]
fn a_copy_goes_on_from_another_address() {
    let Some(network) = Translator::new() else { return };
    let Some(host) = FarHost::beyond(&network, "cp-roams") else { return };
    host.dir.write("a", noise(4, 12_000_000));
    for (from, to) in [("a", &*host.far("b")), (&*host.far("b"), "c")] {
        let before = network.octets_out();
        let mut copy = host.weft("cp");
        copy.args(["-q", "--udp-only", "--limit", "40mbit", from, to]).stderr(Stdio::piped());
        let mut copying = copy.spawn().unwrap();
        // Either direction sends something outside: the file, or what is said of it.
        while network.octets_out() < before + 20_000 {
            assert_eq!(copying.try_wait().unwrap(), None, "it ended before the address changed");
            std::thread::yield_now();
        }
        network.rebind();
        let output = copying.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    assert_same(&host.dir.path("a"), &host.dir.path("b"));
    assert_same(&host.dir.path("a"), &host.dir.path("c"));
}
