//! Checks of the machine: limits, ports, MTU, offloads, buffers, hardware, namespaces.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::time::Duration;

use degen::namespace::{self, Namespace};
use rustix::process::{Resource, getrlimit};

use crate::doctor::local;
use crate::doctor::report::{CheckResult, DoctorReport};
use crate::sys;

/// Memory that programs register without thinking: what a small limit would stop them at.
const LOCKED_BYTES_USUAL: u64 = 64 << 20;
/// Descriptors that a program with some hundred queue pairs needs.
const DESCRIPTORS_USUAL: u64 = 1024;
/// Ports that a program with some hundred queue pairs needs.
const PORTS_USUAL: u32 = 1000;
/// Least MTU of IPv6 (RFC 8200, section 5), in bytes.
const MTU_MIN: u32 = 1280;
/// What Weft asks for, of a socket's buffers.
const BUFFER_BYTES_WANTED: u32 = 8 << 20;
/// A path of 70 ms at 100 Mbit/s holds about this much.
const BUFFER_BYTES_USUAL: u32 = 1 << 20;
/// A datagram and how long to wait for it, over loopback.
const SEGMENT_BYTES: u16 = 100;
const ANSWER_MAX: Duration = Duration::from_millis(200);

/// Looks at the machine. Name spaces come last: this process may be in one of its own afterwards.
pub fn examine(report: &mut DoctorReport) {
    for look in [memory, descriptors, ports, mtu, offloads, buffers, hardware, wan] {
        report.add(look());
    }
}

fn memory() -> CheckResult {
    match getrlimit(Resource::Memlock).current {
        Some(bytes) if bytes < LOCKED_BYTES_USUAL => {
            let kib = bytes >> 10;
            let text = format!("{kib} KiB may be locked; Weft locks nothing, so it does not care");
            let advice = "a program that looks at the limit itself wants ulimit -l unlimited";
            CheckResult::note("memlock", text).advise(advice)
        }
        Some(bytes) => CheckResult::fine("memlock", format!("{} MiB may be locked", bytes >> 20)),
        None => CheckResult::fine("memlock", "no limit"),
    }
}

fn descriptors() -> CheckResult {
    match getrlimit(Resource::Nofile).current {
        Some(count) if count < DESCRIPTORS_USUAL => {
            let text = format!("{count} descriptors; each connection takes one");
            CheckResult::note("files", text).advise(format!("ulimit -n {DESCRIPTORS_USUAL}"))
        }
        Some(count) => CheckResult::fine("files", format!("{count} descriptors")),
        None => CheckResult::fine("files", "no limit of descriptors"),
    }
}

fn ports() -> CheckResult {
    let bound = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map(drop);
    let bound = bound.and_then(|()| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map(drop));
    if let Err(error) = bound {
        let text = format!("no port can be bound: {error}");
        let advice = "a sandbox or a firewall of this machine forbids sockets; allow UDP and TCP";
        return CheckResult::wrong("ports", text).advise(advice);
    }
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let limits: Vec<u32> = range.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let &[low, high] = &limits[..] else { return CheckResult::fine("ports", "can be bound") };
    let text = format!("{low} to {high} for queue pairs of weft0, one UDP port each");
    if high.saturating_sub(low) < PORTS_USUAL {
        let advice = "as root: sysctl net.ipv4.ip_local_port_range='32768 60999'";
        return CheckResult::note("ports", text).advise(advice);
    }
    CheckResult::fine("ports", text + "; a firewall between two machines must let UDP and TCP pass")
}

fn mtu() -> CheckResult {
    let links = interfaces(Path::new("/sys/class/net")).unwrap_or_default();
    let list = links.iter().map(|(name, mtu)| format!("{name} {mtu}"));
    let text = list.collect::<Vec<_>>().join(", ");
    match links.iter().find(|(_, mtu)| *mtu < MTU_MIN) {
        _ if links.is_empty() => CheckResult::wrong("mtu", "no network interface is up")
            .advise("as root: ip link set lo up"),
        Some((name, _)) => {
            let advice = format!("as root: ip link set {name} mtu 1500, if the link carries it");
            CheckResult::wrong("mtu", format!("{text}: {name} has less than {MTU_MIN} bytes"))
                .advise(advice)
        }
        None => CheckResult::fine("mtu", text),
    }
}

/// The interfaces that are up, with their MTU.
fn interfaces(dir: &Path) -> io::Result<Vec<(String, u32)>> {
    let mut links = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        // Loopback and tunnels have no state of their own.
        let up = ["up", "unknown"].contains(&read("operstate").trim());
        if let Ok(mtu) = read("mtu").trim().parse()
            && up
        {
            links.push((entry.file_name().to_string_lossy().into_owned(), mtu));
        }
    }
    links.sort();
    Ok(links)
}

fn offloads() -> CheckResult {
    match bundle() {
        Ok((true, true)) => CheckResult::fine("gso/gro", "UDP leaves and arrives in bundles"),
        Ok((true, false)) => {
            let text = "the kernel does not join UDP (GRO): weft0 works, and receives slower";
            CheckResult::note("gso/gro", text).advise("Linux 5.0 and later can")
        }
        Ok((false, _)) => {
            let text = "the kernel does not cut UDP (GSO), as weft0 wants it";
            CheckResult::wrong("gso/gro", text).advise("use Linux 4.18 or later, or weft_iw0")
        }
        Err(error) => {
            let text = format!("UDP over loopback does not work: {error}");
            CheckResult::wrong("gso/gro", text).advise("as root: ip link set lo up")
        }
    }
}

/// Sends two datagrams in one call over loopback: whether the kernel cuts them, and joins them.
fn bundle() -> io::Result<(bool, bool)> {
    let [from, to] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)));
    let (from, to) = (from?, to?);
    if !sys::segment(&from, SEGMENT_BYTES) {
        return Ok((false, false));
    }
    let joins = sys::join(&to);
    let two = vec![0; 2 * usize::from(SEGMENT_BYTES)];
    let mut room = [0; 1024];
    to.set_read_timeout(Some(ANSWER_MAX))?;
    if from.send_to(&two, to.local_addr()?).is_err() {
        return Ok((false, false));
    }
    let arrived = to.recv(&mut room)?;
    Ok((true, joins && arrived == two.len()))
}

fn buffers() -> CheckResult {
    let socket = match UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
        Ok(socket) => socket,
        Err(error) => return CheckResult::wrong("buffers", format!("no socket: {error}")),
    };
    let [receive, send] = sys::widen(&socket, BUFFER_BYTES_WANTED);
    let text = format!("{} KiB to receive, {} KiB to send", receive >> 10, send >> 10);
    if receive.min(send) < BUFFER_BYTES_USUAL {
        let advice = format!(
            "for long fast paths, as root: sysctl net.core.rmem_max={BUFFER_BYTES_WANTED} \
             net.core.wmem_max={BUFFER_BYTES_WANTED}"
        );
        return CheckResult::note("buffers", text).advise(advice);
    }
    CheckResult::fine("buffers", text)
}

fn hardware() -> CheckResult {
    match fs::read_dir("/dev/infiniband") {
        Ok(_) => CheckResult::note(
            "infiniband",
            "/dev/infiniband is there; under weft run programs see Weft's devices only",
        ),
        Err(_) => CheckResult::fine("infiniband", "no hardware, and none is needed"),
    }
}

/// Not wrong where it fails: only `weft wan` needs it.
fn wan() -> CheckResult {
    let made = namespace::gain_rights().and_then(|()| Namespace::create().map(drop));
    match (made, local::open_tun()) {
        (Ok(()), Ok(())) => CheckResult::fine("wan", "weft wan can make its networks"),
        (Ok(()), Err(error)) => {
            CheckResult::note("wan", format!("weft wan will not work: /dev/net/tun: {error}"))
                .advise("as root: modprobe tun; in a container: --device /dev/net/tun")
        }
        (Err(error), _) => {
            CheckResult::note("wan", "weft wan will not work here").advise(format!("{error:#}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Severity;

    #[test]
    fn loopback_is_an_interface_that_is_up() {
        let links = interfaces(Path::new("/sys/class/net")).unwrap();
        assert!(links.iter().any(|(name, mtu)| name == "lo" && *mtu >= MTU_MIN), "{links:?}");
        assert_eq!(mtu().outcome, Severity::Ok);
    }

    #[test]
    fn what_the_tests_run_on_is_well() {
        for look in [memory, descriptors, ports, offloads, buffers, hardware] {
            let finding = look();
            assert_ne!(finding.outcome, Severity::Wrong, "{finding:?}");
        }
    }
}
