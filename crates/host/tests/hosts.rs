//! Several hosts in one process: with one key they speak to each other, with different keys they
//! do not.

#[path = "adapter/ends.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod ends;
#[path = "common/mod.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod side;

use std::net::Ipv4Addr;
use std::sync::Arc;

use ends::{DEADLINE, End};
use weft_host::{DeviceKind, Host, HostSetup, ProgressMode};
use weft_net::ports::PortBounds;
use weft_net::secrecy::{Key, Secrecy};
use weft_os::clock;
use weft_verbs::{SendFlags, SendOp, SendWr, Wc, WcStatus};

const OCTETS: usize = 100_000;
const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn host(key: u8, progress: ProgressMode) -> Arc<Host> {
    let setup = HostSetup::default();
    Host::new(HostSetup {
        settings: weft_host::Settings { progress, ..setup.settings },
        secrecy: Box::new(move || Secrecy::new(Some(Key::new([key; 32])), false)),
        ..setup
    })
}

/// Writes the memory of `from` to that of `to`, and says how that ended.
fn write(from: &End, to: &End) -> u32 {
    let target = to.sge(0, OCTETS);
    let op = SendOp::Write { to: target.addr, stag: target.lkey };
    let sges = [from.sge(0, OCTETS)];
    let wr = SendWr { wr_id: 1, op, sges: &sges, flags: SendFlags::SIGNALED };
    from.qp.post_send(&wr).unwrap();
    from.qp.ring();
    let (began, mut out) = (clock::now(), [Wc::default()]);
    while from.cq.poll(&mut out).unwrap() == 0 {
        // The other end makes progress by its own host's thread, or when it is polled.
        assert_eq!(to.cq.poll(&mut [Wc::default()]).unwrap(), 0);
        assert!(clock::now() - began < DEADLINE, "no completion");
    }
    out[0].status
}

fn pair(hosts: [&Arc<Host>; 2], kind: DeviceKind) -> [End; 2] {
    let ends = hosts.map(|host| End::of(host, kind, OCTETS));
    ends[0].connect(HERE, HERE, ends[1].qp.num());
    ends[1].connect(HERE, HERE, ends[0].qp.num());
    ends
}

#[test]
fn hosts_with_one_key_and_other_settings_speak_to_each_other() {
    let (one, other) = (host(1, ProgressMode::Hybrid), host(1, ProgressMode::Engine));
    for kind in [DeviceKind::Roce, DeviceKind::Iwarp] {
        let [mut from, to] = pair([&one, &other], kind);
        from.fill(|at| at as u8);
        assert_eq!(write(&from, &to), WcStatus::Success as u32, "{kind:?}");
        assert_eq!(write(&to, &from), WcStatus::Success as u32, "{kind:?}");
    }
}

#[test]
fn hosts_with_different_keys_are_refused() {
    let (one, other) = (host(1, ProgressMode::Hybrid), host(2, ProgressMode::Hybrid));
    let [from, to] = pair([&one, &other], DeviceKind::Roce);
    assert_ne!(write(&from, &to), WcStatus::Success as u32);
}

#[test]
fn a_host_keeps_to_its_ports() {
    // Below those that Linux gives away by itself.
    let setup = HostSetup::default();
    let ports = PortBounds::parse("20000-29999").unwrap();
    let bound =
        Host::new(HostSetup { settings: weft_host::Settings { ports, ..setup.settings }, ..setup });
    for kind in [DeviceKind::Roce, DeviceKind::Iwarp] {
        let [mut from, to] = pair([&bound, &bound], kind);
        for end in [&from, &to] {
            let port = end.qp.num() >> 8;
            assert!((20_000..=29_999).contains(&port), "{kind:?}: {port}");
        }
        from.fill(|at| at as u8);
        assert_eq!(write(&from, &to), WcStatus::Success as u32, "{kind:?}");
    }
}
