//! Checks of what only shows when it is tried: the key, UDP to this machine's own addresses, the
//! device for tunnels, and a script that nobody may execute.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use weft_net::secrecy::read_key;

use crate::doctor::report::{CheckResult, DoctorReport};

/// A datagram to oneself arrives at once, unless a filter takes it.
const ARRIVAL_MAX: Duration = Duration::from_millis(200);
/// An address for documentation (RFC 5737): nothing is sent there.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);
/// Bits of a file's mode that let somebody execute it.
const EXECUTABLE: u32 = 0o111;

/// Looks at the key and at UDP.
pub fn examine(report: &mut DoctorReport) {
    let key = std::env::var_os("WEFT_KEY").filter(|value| !value.is_empty());
    if let Some(value) = key {
        report.add(key_of(&value));
    }
    for address in own_addresses() {
        report.add(udp(address));
    }
}

fn key_of(value: &OsStr) -> CheckResult {
    match read_key(value) {
        Ok(key) => CheckResult::fine("key", format!("WEFT_KEY is the key {}", key.name())),
        Err(error) => CheckResult::wrong("key", format!("WEFT_KEY: {error}")).advise(
            "make a key with weft key new FILE, copy FILE to the peers, and set WEFT_KEY=file:FILE",
        ),
    }
}

/// Loopback's addresses, and the one that datagrams to other hosts leave from.
fn own_addresses() -> Vec<IpAddr> {
    let mut own = vec![IpAddr::from(Ipv4Addr::LOCALHOST)];
    if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        own.push(Ipv6Addr::LOCALHOST.into());
    }
    let outward = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect(ELSEWHERE).and_then(|()| socket.local_addr()));
    own.extend(outward.ok().map(|address| address.ip()).filter(|ip| !own.contains(ip)));
    own
}

fn udp(address: IpAddr) -> CheckResult {
    let Err(error) = send_to_self(address) else {
        return CheckResult::fine("udp", format!("arrives at {address}"));
    };
    let why = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not arrive".to_owned(),
        _ => error.to_string(),
    };
    CheckResult::wrong("udp", format!("from {address} to itself: {why}")).advise(
        "a filter takes it: see nft list ruleset, and allow UDP; \
         or use TCP alone by WEFT_TRANSPORT=iwarp",
    )
}

fn send_to_self(address: IpAddr) -> io::Result<()> {
    let at = SocketAddr::new(address, 0);
    let (from, to) = (UdpSocket::bind(at)?, UdpSocket::bind(at)?);
    to.set_read_timeout(Some(ARRIVAL_MAX))?;
    from.send_to(b"weft", to.local_addr()?)?;
    to.recv(&mut [0; 8]).map(drop)
}

/// Opens the device for tunnels, as `weft wan` does.
pub fn open_tun() -> io::Result<()> {
    OpenOptions::new().read(true).write(true).open("/dev/net/tun").map(drop)
}

/// A file that is there, and that nobody may execute.
pub fn not_executable(command: &OsStr) -> Option<CheckResult> {
    let path = Path::new(command);
    let named_by_path = path.components().count() > 1 || path.is_absolute();
    let file = fs::metadata(path).ok().filter(|file| file.is_file() && named_by_path)?;
    if file.permissions().mode() & EXECUTABLE != 0 {
        return None;
    }
    let shown = path.display();
    let advice = format!("chmod +x {shown}, or name what runs it: weft run bash {shown}");
    Some(CheckResult::wrong("program", format!("{shown} is not executable")).advise(advice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Severity;

    #[test]
    fn a_key_that_is_none_is_wrong() {
        for bad in ["no key", "file:/nonexistent/key", "/nonexistent/key"] {
            assert_eq!(key_of(OsStr::new(bad)).outcome, Severity::Wrong, "{bad}");
        }
    }

    #[test]
    fn what_is_sent_to_oneself_arrives() {
        assert!(own_addresses().contains(&Ipv4Addr::LOCALHOST.into()));
        assert_eq!(udp(Ipv4Addr::LOCALHOST.into()).outcome, Severity::Ok);
        let elsewhere = udp(Ipv4Addr::new(192, 0, 2, 77).into());
        assert_eq!(elsewhere.outcome, Severity::Wrong, "nobody can bind it");
    }

    #[test]
    fn a_script_needs_its_bit() {
        let path = std::env::temp_dir().join(format!("weft-script-{}", std::process::id()));
        fs::write(&path, "#!/bin/sh\n").unwrap();
        let found = not_executable(path.as_os_str()).unwrap();
        assert!(found.text.ends_with("is not executable"), "{found:?}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(not_executable(path.as_os_str()), None);
        fs::remove_file(&path).unwrap();
    }
}
