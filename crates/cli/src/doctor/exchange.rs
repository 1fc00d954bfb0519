//! What the two ends of `weft doctor --peer` say to each other: lines of JSON by TCP, and probes
//! by UDP.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weft_net::secrecy::read_key;

/// The port of TCP and UDP at which `weft doctor --serve` waits.
pub const PORT: u16 = 18522;
/// Bytes of a probe.
pub const PROBE_BYTES: usize = 200;
/// Bytes of a line at most.
const LINE_MAX: u64 = 4096;

/// What each end says of itself first.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DoctorHello {
    /// The version of Weft.
    pub version: String,
    /// The name of its key; none without a key.
    pub key: Option<String>,
    /// Whether it speaks in clear to other hosts (`WEFT_INSECURE=1`).
    #[serde(default)]
    pub insecure: bool,
    /// Its time of day, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The address of the other end as this one sees it.
    pub you: SocketAddr,
    /// What datagrams of this exchange begin with.
    pub token: u64,
}

/// What the client asks for.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub enum DoctorRequest {
    /// Datagrams from a port that the client has not sent to, to this port of its address.
    Unasked {
        /// The client's port, as it knows it.
        port: u16,
    },
    /// How many probes have come, which ends the exchange.
    Count,
}

/// The answer to [`DoctorRequest::Count`].
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct ProbeCount {
    /// Probes that came.
    pub received: u64,
    /// From where the first of them did.
    pub from: Option<SocketAddr>,
}

/// A TCP connection, line by line.
pub struct DoctorLines {
    reader: BufReader<TcpStream>,
}

impl DoctorLines {
    pub fn new(stream: TcpStream) -> Self {
        Self { reader: BufReader::new(stream) }
    }

    /// Sends a line.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn say(&mut self, what: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.reader.get_mut().write_all(&line)
    }

    /// Takes the next line.
    ///
    /// # Errors
    /// It is none of these, or the connection has ended.
    pub fn hear<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut line = Vec::new();
        (&mut self.reader).take(LINE_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(&line)?)
    }
}

/// What this end says of itself.
pub fn introduce(you: SocketAddr, token: u64) -> DoctorHello {
    let key = std::env::var_os("WEFT_KEY").filter(|value| !value.is_empty());
    DoctorHello {
        version: env!("CARGO_PKG_VERSION").into(),
        key: key.and_then(|value| read_key(&value).ok()).map(|key| key.name().to_string()),
        insecure: std::env::var_os("WEFT_INSECURE").is_some_and(|value| value == "1"),
        time_ns: weft_os::clock::time_of_day_ns(),
        you: canonical(you),
        token,
    }
}

/// An address as people write it.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
