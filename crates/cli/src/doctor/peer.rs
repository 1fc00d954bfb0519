//! `weft doctor --peer HOST`: whether this host and HOST, where `weft doctor --serve` waits, reach
//! each other as Weft needs it.
//!
//! A second of probes tells loss and round trip; the rest takes a few round trips.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use rustix::io::Errno;
use weft_os::clock::{self, Moment};
use weft_units::show_time;

use super::exchange::{
    DoctorHello, DoctorLines, DoctorRequest, PORT, PROBE_BYTES, ProbeCount, canonical, introduce,
};
use super::report::{CheckResult, DoctorReport};
use crate::sys::forbid_fragments;

/// How long an answer by TCP is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Probes, and the time between two of them: a second in all.
const PROBES: u64 = 100;
const PROBE_INTERVAL: Duration = Duration::from_millis(10);
/// Probes are waited for this long after the last one, which is more than a round trip.
const PROBE_TAIL: Duration = Duration::from_millis(600);
/// Sizes of datagrams that are tried, in bytes of UDP payload: what every path must carry, what
/// Ethernet does, and jumbo frames.
const SIZES: [usize; 5] = [1200, 1452, 1472, 4096, 8952];
/// Each is sent so often: one may be lost.
const TRIES: usize = 3;
/// Clocks further apart than this have sealed datagrams dropped, as `weft_shuttle` has it.
const CLOCKS_APART_NS: u64 = 1_000_000_000;

/// Where `weft doctor --serve` is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorPeer {
    host: String,
    port: u16,
}

impl DoctorPeer {
    /// Takes `HOST`, `HOST:PORT`, `[IPV6]` and `[IPV6]:PORT` apart; an IPv6 address needs no
    /// brackets where no port follows.
    ///
    /// # Errors
    /// What follows the host is no port.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = match bracketed {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or(rest))),
            None => match text.split_once(':') {
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                _ => (text, None),
            },
        };
        let given = port.map(|text| {
            let number = text.parse().ok().filter(|port| *port != 0);
            number.ok_or_else(|| format!("`{text}` is no port from 1 to 65535"))
        });
        Ok(Self { host: host.to_owned(), port: given.transpose()?.unwrap_or(PORT) })
    }

    fn resolve(&self) -> io::Result<SocketAddr> {
        let mut found = (self.host.as_str(), self.port).to_socket_addrs()?;
        found.next().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

/// Looks at what is between this host and `peer`.
pub fn examine(peer: &DoctorPeer, report: &mut DoctorReport) {
    let address = match peer.resolve() {
        Ok(address) => address,
        Err(error) => {
            let said = CheckResult::wrong("peer", format!("{}: {error}", peer.host));
            return report.add(said.advise("name the host as ping does, or by its address"));
        }
    };
    match ask(address, report) {
        Ok(()) => {}
        Err(error) => report.add(not_there(address, &error)),
    }
}

/// Why nothing could be asked.
fn not_there(address: SocketAddr, error: &io::Error) -> CheckResult {
    let serve = "run weft doctor --serve there";
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            CheckResult::wrong("tcp", format!("no process listens at {address}")).advise(serve)
        }
        ErrorKind::TimedOut | ErrorKind::WouldBlock => CheckResult::wrong(
            "tcp",
            format!("no answer from {address} within 2 s"),
        )
        .advise(format!(
            "the host is down, or a firewall drops TCP; let port {PORT} through, and {serve}"
        )),
        ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::Other => {
            let what = format!("what listens at {address} is not weft doctor --serve");
            CheckResult::wrong("tcp", what).advise(serve)
        }
        _ => CheckResult::wrong("tcp", format!("{address} by TCP: {error}")).advise(serve),
    }
}

fn ask(address: SocketAddr, report: &mut DoctorReport) -> io::Result<()> {
    let began = clock::now();
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    let connected = began.elapsed();
    stream.set_read_timeout(Some(PATIENCE + PROBE_TAIL))?;
    let local = canonical(stream.local_addr()?);
    let mut lines = DoctorLines::new(stream);
    let peer: DoctorHello = lines.hear()?;
    let took = show_time(connected.as_nanos() as u64);
    report.add(CheckResult::fine("tcp", format!("{address} answers, connected in {took}")));
    let own = introduce(address, peer.token);
    report.add(versions(&own.version, &peer.version));
    report.add(keys(&own, &peer, address));
    report.add(clocks(own.time_ns, peer.time_ns, connected));
    let udp = UdpSocket::bind((local.ip(), 0))?;
    udp.connect(address)?;
    let probes = PeerProbes::send(&udp, peer.token)?;
    let sizes = carried(&udp, peer.token)?;
    let unasked = hears_unasked(&mut lines, local, peer.token)?;
    lines.say(&DoctorRequest::Count)?;
    let count: ProbeCount = lines.hear()?;
    report.add(probes.verdict(&count, address));
    if probes.returned > 0 {
        report.add(path_mtu(sizes, address));
        report.add(unasked_verdict(unasked));
    }
    report.add(translation(local, peer.you, count.from, udp.local_addr()?));
    Ok(())
}

fn versions(own: &str, peer: &str) -> CheckResult {
    match own == peer {
        true => CheckResult::fine("version", format!("both are {own}")),
        false => CheckResult::wrong("version", format!("this is {own}, the peer is {peer}"))
            .advise("install the same version on both hosts: before 1.0 they may not speak"),
    }
}

fn keys(own: &DoctorHello, peer: &DoctorHello, address: SocketAddr) -> CheckResult {
    let make = "make one by weft key new FILE, copy it to both hosts, and set WEFT_KEY=file:FILE";
    match (&own.key, &peer.key) {
        (Some(own), Some(peer)) if own == peer => {
            CheckResult::fine("key", format!("both have {own}"))
        }
        (Some(own), Some(peer)) => {
            CheckResult::wrong("key", format!("this host has {own}, the peer {peer}"))
                .advise("copy the key file of one host to the other")
        }
        (Some(own), None) => {
            CheckResult::wrong("key", format!("this host has {own}, the peer none")).advise(make)
        }
        (None, Some(peer)) => {
            CheckResult::wrong("key", format!("the peer has {peer}, this host none")).advise(make)
        }
        (None, None) if is_here(address, peer.you) => {
            CheckResult::note("key", "none, and none is needed on one machine")
        }
        (None, None) if own.insecure && peer.insecure => {
            CheckResult::note("key", "none; both speak in clear, by WEFT_INSECURE=1")
        }
        (None, None) => CheckResult::wrong(
            "key",
            "neither host has one: weft0 speaks to no other host in clear",
        )
        .advise(format!("{make}; or set WEFT_INSECURE=1 on both")),
    }
}

/// Whether an address, from which this end is seen as `you`, is one of this machine.
fn is_here(address: SocketAddr, you: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    ip.is_loopback() || ip == you.ip()
}

/// `connected` is a round trip, half of which the peer's answer took.
fn clocks(own_ns: u64, peer_ns: u64, connected: Duration) -> CheckResult {
    let apart_ns = own_ns.abs_diff(peer_ns).saturating_sub(connected.as_nanos() as u64 / 2);
    let apart = show_time(apart_ns);
    match apart_ns {
        ..=CLOCKS_APART_NS => CheckResult::fine("clock", format!("at most {apart} apart")),
        _ => CheckResult::wrong("clock", format!("{apart} apart: sealed datagrams are dropped"))
            .advise("set both clocks, by NTP for example"),
    }
}

/// What came back of a second of probes.
struct PeerProbes {
    returned: u64,
    rtts_ns: Vec<u64>,
}

impl PeerProbes {
    fn send(udp: &UdpSocket, token: u64) -> io::Result<Self> {
        let mut probes = Self { returned: 0, rtts_ns: Vec::new() };
        let began = clock::now();
        for i in 0..PROBES {
            let now_ns = clock::ns_at(clock::now());
            let mut probe = vec![0; PROBE_BYTES];
            probe[..8].copy_from_slice(&token.to_be_bytes());
            probe[8..16].copy_from_slice(&now_ns.to_be_bytes());
            probe[16..24].copy_from_slice(&i.to_be_bytes());
            send(udp, &probe)?;
            probes.listen(udp, began + PROBE_INTERVAL * (i as u32 + 1), PROBES)?;
        }
        probes.listen(udp, clock::now() + PROBE_TAIL, PROBES)?;
        probes.rtts_ns.sort_unstable();
        Ok(probes)
    }

    /// Takes what comes until then, or until all have come.
    fn listen(&mut self, udp: &UdpSocket, until: Moment, all: u64) -> io::Result<()> {
        while self.returned < all
            && let Some(echo) = receive(udp, until)?
        {
            let sent_ns = echo.get(8..).and_then(|rest| rest.first_chunk().copied());
            let Some(sent_ns) = sent_ns.map(u64::from_be_bytes) else { continue };
            self.returned += 1;
            self.rtts_ns.push(clock::ns_at(clock::now()).saturating_sub(sent_ns));
        }
        Ok(())
    }

    fn verdict(&self, count: &ProbeCount, address: SocketAddr) -> CheckResult {
        let port = address.port();
        if count.received == 0 {
            return CheckResult::wrong(
                "udp",
                format!("nothing arrives at port {port} of the peer"),
            )
            .advise(format!("let UDP to port {port} through the firewalls on the way"));
        }
        if self.returned == 0 {
            return CheckResult::wrong("udp", "arrives there, and no answer arrives here")
                .advise("let answers from the peer through: a filter here drops incoming UDP");
        }
        let lost =
            [PROBES - count.received.min(PROBES), count.received.saturating_sub(self.returned)];
        let at = |share: f64| {
            let last = self.rtts_ns.len() - 1;
            show_time(self.rtts_ns[(share * last as f64) as usize])
        };
        let text = format!(
            "both ways; of {PROBES} probes {} lost on the way there, {} on the way back; \
             round trip {} to {}, median {}",
            lost[0],
            lost[1],
            at(0.0),
            at(1.0),
            at(0.5)
        );
        CheckResult::fine("udp", text)
    }
}

/// The largest of [`SIZES`] that comes back.
fn carried(udp: &UdpSocket, token: u64) -> io::Result<usize> {
    forbid_fragments(udp)?;
    for size in SIZES {
        let mut probe = vec![0; size];
        probe[..8].copy_from_slice(&token.to_be_bytes());
        for _ in 0..TRIES {
            send(udp, &probe)?;
        }
    }
    let (mut largest, until) = (0, clock::now() + PROBE_TAIL);
    let sizes_max = SIZES[SIZES.len() - 1];
    while largest < sizes_max
        && let Some(echo) = receive(udp, until)?
    {
        largest = largest.max(if SIZES.contains(&echo.len()) { echo.len() } else { 0 });
    }
    Ok(largest)
}

fn path_mtu(largest: usize, address: SocketAddr) -> CheckResult {
    let advice = match address.ip().to_canonical() {
        IpAddr::V4(_) => {
            "look at the tunnels on the way: below a path MTU of 1228 bytes weft0 is slow, and \
             does not connect where fragments are dropped"
        }
        IpAddr::V6(_) => "Weft needs a path MTU of 1280 bytes; look at the tunnels on the way",
    };
    match largest {
        0 => CheckResult::wrong("path mtu", "datagrams of 1200 bytes do not come back whole")
            .advise(advice),
        largest => {
            CheckResult::fine("path mtu", format!("datagrams of {largest} bytes come back whole"))
        }
    }
}

/// Whether datagrams arrive at a port that has sent nothing.
fn hears_unasked(lines: &mut DoctorLines, local: SocketAddr, token: u64) -> io::Result<bool> {
    let udp = UdpSocket::bind((local.ip(), 0))?;
    lines.say(&DoctorRequest::Unasked { port: udp.local_addr()?.port() })?;
    let until = clock::now() + PROBE_TAIL;
    while let Some(datagram) = receive(&udp, until)? {
        if datagram.starts_with(&token.to_be_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn unasked_verdict(heard: bool) -> CheckResult {
    if heard {
        return CheckResult::fine(
            "unasked",
            "UDP from the peer arrives at ports that sent nothing",
        );
    }
    CheckResult::note("unasked", "UDP from the peer to a port that sent nothing does not arrive")
        .advise(
            "programs that exchange queue pair numbers themselves need it where the peer speaks \
             first: let UDP in, and bound the ports by WEFT_PORTS; rdma-cm works without",
        )
}

/// Whether addresses or ports are translated on the way.
fn translation(
    local: SocketAddr,
    seen_tcp: SocketAddr,
    seen_udp: Option<SocketAddr>,
    local_udp: SocketAddr,
) -> CheckResult {
    let tcp = seen_tcp.ip() != local.ip();
    let udp = seen_udp.filter(|seen| seen.ip() != local.ip() || seen.port() != local_udp.port());
    let seen = udp.or(tcp.then_some(seen_tcp));
    match seen {
        None => CheckResult::fine("nat", format!("the peer sees this host as {}", local.ip())),
        Some(seen) => CheckResult::note(
            "nat",
            format!("{} is seen as {seen} by the peer", local.ip()),
        )
        .advise("connect from here to there, not the other way; the peer cannot call this address"),
    }
}

/// Sends a datagram; one that the path or a filter does not take is lost on it.
fn send(udp: &UdpSocket, bytes: &[u8]) -> io::Result<()> {
    send_by(|| udp.send(bytes))
}

/// Calls `send`, and once more after an error of the path: it may be what ICMP says of an earlier
/// datagram, which the kernel tells in place of sending this one.
fn send_by(mut send: impl FnMut() -> io::Result<usize>) -> io::Result<()> {
    for _ in 0..2 {
        match send() {
            Err(error) if is_of_path(&error) => {}
            sent => return sent.map(drop),
        }
    }
    Ok(())
}

/// Whether a datagram is lost on the way, as ICMP, the device or a filter of this host says: that
/// is what the probes are to find.
fn is_of_path(error: &io::Error) -> bool {
    let told = [
        Errno::CONNREFUSED,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
        Errno::NONET,
        Errno::NOPROTOOPT,
        Errno::OPNOTSUPP,
        Errno::PROTO,
        Errno::MSGSIZE,
        Errno::ACCESS,
        Errno::PERM,
    ];
    Errno::from_io_error(error).is_some_and(|error| told.contains(&error))
}

/// The next datagram before `until`.
fn receive(udp: &UdpSocket, until: Moment) -> io::Result<Option<Vec<u8>>> {
    let mut room = vec![0; SIZES[SIZES.len() - 1]];
    loop {
        let left = until.saturating_duration_since(clock::now());
        if left.is_zero() {
            return Ok(None);
        }
        udp.set_read_timeout(Some(left))?;
        match udp.recv(&mut room) {
            Ok(length) => {
                room.truncate(length);
                return Ok(Some(room));
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(None);
            }
            Err(error) if is_of_path(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Severity;
    use super::*;

    fn own(key: Option<&str>) -> DoctorHello {
        let you = "192.0.2.1:9".parse().unwrap();
        DoctorHello { key: key.map(str::to_owned), insecure: false, ..introduce(you, 7) }
    }

    #[test]
    fn a_peer_is_a_host_with_or_without_a_port() {
        let peer = |host: &str, port| Ok(DoctorPeer { host: host.to_owned(), port });
        for (text, wanted) in [
            ("host", peer("host", PORT)),
            ("host:80", peer("host", 80)),
            ("192.0.2.1:65535", peer("192.0.2.1", 65535)),
            ("::1", peer("::1", PORT)),
            ("[::1]", peer("::1", PORT)),
            ("[::1]:80", peer("::1", 80)),
        ] {
            assert_eq!(DoctorPeer::parse(text), wanted, "{text}");
        }
        for text in ["host:99999", "host:0", "host:", "[::1]:99999", "[::1]80x"] {
            let error = DoctorPeer::parse(text).unwrap_err();
            assert!(error.ends_with("is no port from 1 to 65535"), "{text}: {error}");
        }
    }

    #[test]
    fn clear_text_that_both_mean_is_no_fault() {
        let away = "192.0.2.2:1".parse().unwrap();
        let end = |insecure| DoctorHello { insecure, ..own(None) };
        let outcome = |one, other| keys(&end(one), &end(other), away).outcome;
        assert_eq!(outcome(true, true), Severity::Note);
        assert_eq!(
            (outcome(true, false), outcome(false, true)),
            (Severity::Wrong, Severity::Wrong)
        );
    }

    #[test]
    fn keys_must_be_the_same_and_one_machine_needs_none() {
        let away = "192.0.2.2:1".parse().unwrap();
        let outcome = |a, b, at| keys(&own(a), &own(b), at).outcome;
        assert_eq!(outcome(Some("x"), Some("x"), away), Severity::Ok);
        for (a, b) in [(Some("x"), Some("y")), (Some("x"), None), (None, Some("x")), (None, None)] {
            assert_eq!(outcome(a, b, away), Severity::Wrong, "{a:?} {b:?}");
        }
        for here in ["[::ffff:127.0.0.1]:1", "192.0.2.1:1"] {
            assert_eq!(outcome(None, None, here.parse().unwrap()), Severity::Note);
        }
    }

    #[test]
    fn clocks_may_differ_by_the_way_and_a_little() {
        let second = 1_000_000_000;
        let outcome =
            |apart_ns| clocks(second, second + apart_ns, Duration::from_millis(200)).outcome;
        assert_eq!(outcome(second), Severity::Ok);
        assert_eq!(outcome(2 * second), Severity::Wrong);
    }

    /// The kernel tells the error once, and in place of sending.
    #[test]
    fn what_icmp_says_of_an_earlier_probe_costs_no_other() {
        let too_long = || Err(Errno::MSGSIZE.into());
        for errors in 0..4 {
            let mut told = 0;
            let outcome = send_by(|| {
                told += 1;
                if told <= errors { too_long() } else { Ok(5) }
            });
            assert!(outcome.is_ok(), "{errors}");
            assert_eq!(told, (errors + 1).min(2), "{errors}");
        }
        assert!(send_by(|| Err(Errno::BADF.into())).is_err());
    }

    #[test]
    fn the_least_mtu_is_that_of_the_family() {
        let advice = |ip: &str| format!("{:?}", path_mtu(0, format!("{ip}:9").parse().unwrap()));
        assert!(advice("192.0.2.1").contains(" 1228 "));
        assert!(advice("[::ffff:192.0.2.1]").contains(" 1228 "));
        assert!(advice("[2001:db8::1]").contains(" 1280 "));
    }

    #[test]
    fn an_address_or_a_port_that_changes_is_translation() {
        let at = |text: &str| text.parse().unwrap();
        let (local, udp) = (at("192.0.2.1:5"), at("192.0.2.1:6"));
        let outcome = |tcp, seen| translation(local, tcp, seen, udp).outcome;
        assert_eq!(outcome(local, Some(udp)), Severity::Ok);
        assert_eq!(outcome(local, Some(at("192.0.2.1:7"))), Severity::Note);
        assert_eq!(outcome(at("203.0.113.1:5"), None), Severity::Note);
    }
}
