//! What both ends say through ssh before the channel: one line each, in ASCII.
//!
//! ```text
//! here    weft-session 3 KEY PORTS        KEY: 64 hexadecimal digits; PORTS: FIRST-LAST, or none
//! there   weft-session 3 PORT ADDRESS     PORT: 0 without UDP; ADDRESS: that ssh reached, or -
//! here    udp | ssh                       which of them the channel goes by
//! ```
//!
//! Invariant: a line that does not parse ends the session, and nothing else is taken from it. What
//! the login shell of the far end prints before its line is skipped, up to a limit.
//!
//! Order: [`Greeter`] by the near end, then [`FarAnswer`] by the far end, then [`PathChoice`].

use std::fmt;
use std::io::{BufRead, Read};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

/// What a far end must print for `far-end --protocol`, and how its lines begin.
pub const PROTOCOL: &str = "weft-session 3";
/// How the line of a far end begins that has no `weft` of this protocol.
pub(crate) const MISSING: &str = "weft-session-missing";

/// Bytes of a line, at most.
const LINE_MAX: u64 = 4096;
/// Bytes that a login shell may print before the far end's line.
const NOISE_MAX: usize = 256 * 1024;

/// Ports of UDP that the far end may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRange(pub RangeInclusive<u16>);

impl Default for PortRange {
    fn default() -> Self {
        Self(60000..=61000)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.start(), self.0.end())
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last && (first > 0 || last == 0) => {
                Ok(Self(first..=last))
            }
            _ => Err(format!("`{text}` is no range of ports such as 60000-61000, or 0 for any")),
        }
    }
}

/// The first line of the near end.
pub(crate) struct Greeter {
    pub key: [u8; 32],
    pub ports: Option<PortRange>,
}

impl Greeter {
    pub fn line(&self) -> String {
        let key: String = self.key.iter().map(|byte| format!("{byte:02x}")).collect();
        let ports = self.ports.as_ref().map_or_else(|| "none".into(), ToString::to_string);
        format!("{PROTOCOL} {key} {ports}\n")
    }

    pub fn read(input: &mut impl BufRead) -> Result<Self> {
        let line = read_line(input)?;
        let rest = line.strip_prefix(PROTOCOL).context("the near end speaks another version")?;
        let mut words = rest.split_ascii_whitespace();
        let (Some(key), Some(ports), None) = (words.next(), words.next(), words.next()) else {
            bail!("the near end's line is none of this version");
        };
        let ports = match ports {
            "none" => None,
            range => Some(range.parse().map_err(anyhow::Error::msg)?),
        };
        Ok(Self { key: parse_key(key)?, ports })
    }
}

fn parse_key(text: &str) -> Result<[u8; 32]> {
    let mut key = [0; 32];
    ensure!(text.len() == 64 && text.is_ascii(), "the near end sent no key");
    for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).context("the near end sent no key")?;
    }
    Ok(key)
}

/// The line of the far end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FarAnswer {
    /// It listens at this port (0: it does not), and ssh reached it at this address.
    Here { port: u16, address: Option<IpAddr> },
    /// There is no `weft` of this protocol; the machine, as `uname -sm` says.
    Missing { machine: String },
}

impl FarAnswer {
    pub fn line(port: u16, address: Option<IpAddr>) -> String {
        let address = address.map_or_else(|| "-".into(), |address| address.to_string());
        format!("{PROTOCOL} {port} {address}\n")
    }

    /// The first line that is one, after whatever a login shell prints. `None` at the end.
    pub fn read(input: &mut impl BufRead) -> Result<Option<Self>> {
        let is_answer = |line: &str| line.starts_with(MISSING) || line.starts_with(PROTOCOL);
        let Some(line) = find_line(input, is_answer)? else { return Ok(None) };
        if let Some(rest) = line.strip_prefix(MISSING) {
            let machine = rest.trim().chars().filter(|c| !c.is_control()).take(64).collect();
            return Ok(Some(Self::Missing { machine }));
        }
        Self::parse(line.strip_prefix(PROTOCOL).unwrap_or_default()).map(Some)
    }

    fn parse(rest: &str) -> Result<Self> {
        let mut words = rest.split_ascii_whitespace();
        let (Some(port), Some(address)) = (words.next(), words.next()) else {
            bail!("the far end's line is none of this version");
        };
        let port = port.parse().context("the far end named no port")?;
        Ok(Self::Here { port, address: address.parse().ok() })
    }
}

/// What the channel goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathChoice {
    Udp,
    Ssh,
}

impl PathChoice {
    pub fn line(self) -> &'static str {
        match self {
            Self::Udp => "udp\n",
            Self::Ssh => "ssh\n",
        }
    }

    pub fn read(input: &mut impl BufRead) -> Result<Self> {
        match read_line(input)?.as_str() {
            "udp\n" => Ok(Self::Udp),
            "ssh\n" => Ok(Self::Ssh),
            "" => bail!("the near end is gone"),
            _ => bail!("the near end chose something unknown"),
        }
    }
}

/// The first line that `is_wanted`, after whatever a login shell prints. `None` at the end.
///
/// # Errors
/// The shell prints too much before it.
pub(crate) fn find_line(
    input: &mut impl BufRead,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Option<String>> {
    let mut noise = 0;
    loop {
        let line = read_line(input)?;
        if line.is_empty() || is_wanted(&line) {
            return Ok(Some(line).filter(|line| !line.is_empty()));
        }
        noise += line.len();
        ensure!(noise <= NOISE_MAX, "the far end prints too much before weft begins there");
    }
}

/// A line with its end, or what there is before the end of the input. Not one byte beyond it is
/// lost, since the reader is buffered.
fn read_line(input: &mut impl BufRead) -> Result<String> {
    let mut line = Vec::new();
    input.take(LINE_MAX).read_until(b'\n', &mut line).context("reading from ssh")?;
    Ok(String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let greeter = Greeter { key: [0xa5; 32], ports: Some(PortRange(7..=9)) };
        let read = Greeter::read(&mut greeter.line().as_bytes()).unwrap();
        assert_eq!((read.key, read.ports), (greeter.key, greeter.ports));
        let line = format!("Welcome!\n\n{}", FarAnswer::line(9, "::1".parse().ok()));
        let read = FarAnswer::read(&mut line.as_bytes()).unwrap();
        assert_eq!(read, Some(FarAnswer::Here { port: 9, address: "::1".parse().ok() }));
        assert_eq!(
            PathChoice::read(&mut PathChoice::Udp.line().as_bytes()).unwrap(),
            PathChoice::Udp
        );
    }

    #[test]
    fn what_is_none_is_refused() {
        let lines = ["", "weft-session 2 00 none", "weft-session 3 00 none", "weft-session 3\n"];
        for line in lines {
            assert!(Greeter::read(&mut line.as_bytes()).is_err(), "{line}");
        }
        assert!(FarAnswer::read(&mut &b"weft-session 3 x y\n"[..]).is_err());
        assert_eq!(FarAnswer::read(&mut &b"bash: no\n"[..]).unwrap(), None);
        let noise = "x\n".repeat(NOISE_MAX);
        assert!(FarAnswer::read(&mut noise.as_bytes()).is_err());
        for text in ["", "9-7", "0-7", "x", "70000"] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }
}
