//! What a host says was done over its devices never becomes less while connections come and go.

#[path = "adapter/ends.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod ends;
#[path = "common/mod.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod side;

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use ends::{DEADLINE, End};
use weft_host::{DeviceKind, Host, HostSetup};
use weft_observe::{ReadLimits, ReaderAnswer, read_all};

const CONNECTIONS: usize = 300;
const BYTES: usize = 1000;
const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The bytes that went out over all devices of this process, as a reader is told.
fn bytes_out(dir: &Path) -> Option<u64> {
    let limits = ReadLimits { each: DEADLINE, all: DEADLINE };
    let seen = read_all(dir, limits).into_iter().next()?;
    let ReaderAnswer::Report(report) = seen.answer else { panic!("a report is cut short") };
    Some(report.devices.iter().map(|device| device.counters.bytes_out).sum())
}

/// One write over a connection, which is closed then.
fn exchange(hosts: [&Arc<Host>; 2]) {
    let [from, to] = hosts.map(|host| End::of(host, DeviceKind::Roce, BYTES));
    from.connect(HERE, HERE, to.qp.num());
    to.connect(HERE, HERE, from.qp.num());
    from.write_all(&to, BYTES, |_| ());
}

#[test]
fn sums_of_a_device_never_become_less() {
    let dir = std::env::temp_dir().join(format!("weft-sums-{}", std::process::id()));
    let observed_in = dir.clone();
    let observed = Host::new(HostSetup {
        observed_in: Some(Box::new(move || observed_in.clone())),
        ..HostSetup::default()
    });
    let other = Host::new(HostSetup::default());
    thread::scope(|scope| {
        let exchanges = scope.spawn(|| {
            for _ in 0..CONNECTIONS {
                exchange([&observed, &other]);
            }
        });
        let mut most = 0;
        while !exchanges.is_finished() {
            let now = bytes_out(&dir).unwrap_or(most);
            assert!(now >= most, "{most} bytes were out, and now {now}");
            most = now;
        }
        exchanges.join().unwrap();
    });
    assert_eq!(bytes_out(&dir), Some((CONNECTIONS * BYTES) as u64));
    drop(observed);
    std::fs::remove_dir_all(&dir).unwrap();
}
