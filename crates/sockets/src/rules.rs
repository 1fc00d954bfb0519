//! Rules that choose the sockets SDP may carry: by role, program, address and port, as libsdp has
//! them.
//!
//! A rule is `use WAY ROLE PROGRAM ADDRESS:PORT`; rules are separated by `;` or line ends, and the
//! first that matches counts. Without a match, SDP and TCP are both tried.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;

use weft_os::plain_file;

/// Bytes of a file of rules, at most.
const FILE_OCTETS_MAX: u64 = 1 << 20;

/// Rules; the first that matches counts.
#[derive(Debug, Default)]
pub struct Rules(Vec<SocketRule>);

/// The role of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketRole {
    /// A socket that connects; the address is the peer's.
    Client,
    /// A socket that listens; the address is its own.
    Server,
}

/// What a rule says of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleWay {
    /// `tcp`: TCP carries it.
    Tcp,
    /// `sdp`: SDP carries it where the peer has it, on one host too.
    Sdp,
    /// `both`: a pair on one host, else SDP where the peer has it and is not near.
    Both,
}

#[derive(Debug)]
struct SocketRule {
    way: RuleWay,
    role: Option<SocketRole>,
    /// `*` or the name of an executable, which may end in `*`.
    program: String,
    net: Option<(IpAddr, u8)>,
    ports: RangeInclusive<u16>,
}

/// Why there are no rules.
#[derive(Debug)]
pub enum RuleError {
    /// A line that is none.
    Line(String),
    /// The file that has them cannot be read.
    File {
        /// Its path.
        path: String,
        /// What the system says.
        why: io::Error,
    },
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(
                f,
                "`{line}` is not: use tcp|sdp|both server|client|* PROGRAM \
                 ADDRESS[/BITS]:PORT[-PORT]"
            ),
            Self::File { path, why } => write!(f, "the file `{path}` cannot be read: {why}"),
        }
    }
}

impl Rules {
    /// Reads rules, or the file that `file:` names.
    ///
    /// # Errors
    /// The first line that is no rule, or that the file cannot be read.
    pub fn read(text: &str) -> Result<Self, RuleError> {
        match text.strip_prefix("file:") {
            None => Self::parse(text),
            Some(path) => match plain_file::read_text(Path::new(path), FILE_OCTETS_MAX) {
                Ok(text) => Self::parse(&text),
                Err(why) => Err(RuleError::File { path: path.to_owned(), why }),
            },
        }
    }

    /// Parses rules from text; see the module for their form.
    ///
    /// # Errors
    /// As [`Rules::read`].
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let lines = text.split([';', '\n']).map(|line| line.split('#').next().unwrap_or_default());
        let lines = lines.map(str::trim).filter(|line| !line.is_empty());
        let rules = lines
            .map(|line| SocketRule::parse(line).ok_or_else(|| RuleError::Line(line.to_owned())));
        Ok(Self(rules.collect::<Result<_, _>>()?))
    }

    /// What is to carry a socket of this program.
    pub fn way(&self, role: SocketRole, address: SocketAddr, program: &str) -> RuleWay {
        let rule = self.0.iter().find(|rule| rule.matches(role, address, program));
        rule.map_or(RuleWay::Both, |rule| rule.way)
    }

    /// Whether SDP may carry a socket of this program.
    pub fn permit(&self, role: SocketRole, address: SocketAddr, program: &str) -> bool {
        self.way(role, address, program) != RuleWay::Tcp
    }
}

impl SocketRule {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["use", way, role, program, place] = words[..] else { return None };
        let way = match way {
            "tcp" => RuleWay::Tcp,
            "sdp" => RuleWay::Sdp,
            "both" => RuleWay::Both,
            _ => return None,
        };
        let role = match role {
            "server" => Some(SocketRole::Server),
            "client" => Some(SocketRole::Client),
            "*" => None,
            _ => return None,
        };
        let (net, ports) = place.rsplit_once(':')?;
        Some(Self {
            way,
            role,
            program: program.into(),
            net: parse_net(net)?,
            ports: parse_ports(ports)?,
        })
    }

    fn matches(&self, role: SocketRole, address: SocketAddr, program: &str) -> bool {
        let name = match self.program.strip_suffix('*') {
            Some(stem) => program.starts_with(stem),
            None => program == self.program,
        };
        let net = self.net.is_none_or(|(net, bits)| is_within(address.ip(), net, bits));
        let role = self.role.is_none_or(|wanted| wanted == role);
        name && net && role && self.ports.contains(&address.port())
    }
}

fn parse_net(text: &str) -> Option<Option<(IpAddr, u8)>> {
    if text == "*" {
        return Some(None);
    }
    let (ip, bits) = text.split_once('/').map_or((text, None), |(ip, bits)| (ip, Some(bits)));
    let ip: IpAddr = ip.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok().filter(|bits| *bits <= most))?;
    Some(Some((ip, bits)))
}

fn parse_ports(text: &str) -> Option<RangeInclusive<u16>> {
    if text == "*" {
        return Some(0..=u16::MAX);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

fn is_within(ip: IpAddr, net: IpAddr, bits: u8) -> bool {
    let (ip, net) = (ip.to_canonical(), net.to_canonical());
    let (a, b, width) = match (ip, net) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u32::from(a).into(), u32::from(b).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a), u128::from(b), 128),
        _ => return false,
    };
    let rest = width - u32::from(bits);
    a.checked_shr(rest).unwrap_or(0) == b.checked_shr(rest).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(rules: &str, role: SocketRole, address: &str, program: &str) -> bool {
        Rules::parse(rules).unwrap().permit(role, address.parse().unwrap(), program)
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let rules = "use both client curl 10.0.0.0/8:443\nuse tcp * * *:1-1023; # the rest is ours";
        assert!(permits(rules, SocketRole::Client, "10.1.2.3:443", "curl"));
        assert!(!permits(rules, SocketRole::Client, "11.1.2.3:443", "curl"));
        assert!(!permits(rules, SocketRole::Server, "10.1.2.3:443", "curl"));
        assert!(!permits(rules, SocketRole::Client, "10.1.2.3:443", "wget"));
        assert!(permits(rules, SocketRole::Client, "11.1.2.3:8080", "wget"));
        assert!(permits("", SocketRole::Client, "11.1.2.3:80", "wget"));
    }

    #[test]
    fn sdp_is_asked_for_by_a_rule() {
        let rules = Rules::parse("use sdp * nc *:80").unwrap();
        let at = "127.0.0.1:80".parse().unwrap();
        assert_eq!(rules.way(SocketRole::Client, at, "nc"), RuleWay::Sdp);
        assert_eq!(rules.way(SocketRole::Server, at, "wget"), RuleWay::Both);
        assert!(rules.permit(SocketRole::Client, at, "nc"));
    }

    #[test]
    fn programs_and_networks_are_compared_as_written() {
        assert!(!permits("use tcp * redis* *:*", SocketRole::Server, "[::]:6379", "redis-server"));
        assert!(permits("use tcp * redis *:*", SocketRole::Server, "[::]:6379", "redis-server"));
        assert!(!permits(
            "use tcp * * [2001:db8::]/32:*",
            SocketRole::Server,
            "[2001:db8::7]:1",
            "x"
        ));
        assert!(permits("use tcp * * 0.0.0.0/0:*", SocketRole::Server, "[2001:db8::7]:1", "x"));
        assert!(!permits(
            "use tcp * * 0.0.0.0/0:*",
            SocketRole::Client,
            "[::ffff:10.0.0.1]:1",
            "x"
        ));
    }

    #[test]
    fn what_is_no_rule_is_named() {
        for line in
            ["use udp * * *:*", "use tcp * *", "use tcp * * 10.0.0.0/33:1", "use tcp * * *:x"]
        {
            assert!(Rules::parse(line).unwrap_err().to_string().contains(line));
        }
        let error = Rules::read("file:/no/such/file").unwrap_err().to_string();
        assert!(error.starts_with("the file `/no/such/file` cannot be read: "), "{error}");
    }
}
