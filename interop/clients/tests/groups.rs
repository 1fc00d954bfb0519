//! Datagrams to groups: mckey, which joins by rdma-cm, on one machine and on two.

use std::net::IpAddr;

use weft_testkit::{Ended, Lab, Namespaces, Program, own_address};

/// Where datagrams to groups go.
const PORT: u16 = 65_535;
/// A key that both machines have.
const KEY: &str = "weft1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// mckey in a group of its own, bound to `address`.
fn mckey(lab: &Lab, address: &str) -> Program {
    let id = std::process::id();
    let group = match address.parse() {
        Ok(IpAddr::V6(_)) => format!("ff0e::77:{:x}", id & 0xffff),
        _ => format!("239.77.{}.{}", id >> 8 & 255, id & 255),
    };
    lab.program("mckey").args(&format!("-m {group} -b {address} -c 2 -C 20 -S 1000"))
}

fn complete(ended: Ended) -> Ended {
    ended.success().said("data transfers complete").said("return status 0")
}

#[test]
fn members_on_one_machine_get_what_another_process_sends() {
    let Some(lab) = Lab::with(&["mckey"]) else { return };
    let Some(address) = own_address() else { return };
    for key in ["", KEY] {
        let program = mckey(&lab, &address.to_string()).env("WEFT_KEY", key);
        let member = program.start().listening(PORT);
        complete(program.args("-s").run());
        complete(member.wait());
    }
}

/// A member on the first machine, and a sender on the second.
fn over_a_cable(networks: &Namespaces, set: impl Fn(Program) -> Program, lab: &Lab) {
    let member = set(mckey(lab, Namespaces::FIRST)).started_by(&networks.in_first()).start();
    let member = member.until("joined", |_| networks.first_listens(PORT));
    let sender = set(mckey(lab, Namespaces::SECOND)).args("-s");
    complete(sender.started_by(&networks.in_second()).run());
    complete(member.wait());
}

#[test]
fn members_on_another_machine_get_it_under_a_key_or_where_clear_text_is_meant() {
    let Some(lab) = Lab::of_root(&["mckey", "ip", "ss"]) else { return };
    let Some(networks) = Namespaces::new() else { return };
    over_a_cable(&networks, |program| program.env("WEFT_KEY", KEY), &lab);
    over_a_cable(&networks, |program| program.env("WEFT_INSECURE", "1"), &lab);
}

#[test]
fn in_clear_text_nothing_leaves_the_machine() {
    let Some(lab) = Lab::of_root(&["mckey", "ip", "ss"]) else { return };
    let Some(networks) = Namespaces::new() else { return };
    let meant = mckey(&lab, Namespaces::FIRST).env("WEFT_INSECURE", "1");
    let member = meant.started_by(&networks.in_first()).start();
    let member = member.until("joined", |_| networks.first_listens(PORT));
    let sender = mckey(&lab, Namespaces::SECOND).args("-s");
    let ended = sender.started_by(&networks.in_second()).run();
    let told = complete(ended).stderr;
    assert!(told.contains("datagrams to groups stay on this machine"), "{told}");
    assert!(!member.stdout().contains("data transfers complete"));
    member.end();
}
