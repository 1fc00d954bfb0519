//! Control protocol between the two sides, over TCP: one JSON object on each line.
//!
//! Order: the client sends a [`Test`]; the server answers [`ControlMessage::Ready`] or
//! [`ControlMessage::Refused`]; when all streams are connected the server says so, and the client
//! says [`ControlMessage::Start`]. During the test either side may say [`ControlMessage::Progress`]
//! and [`ControlMessage::Stop`]. Each says [`ControlMessage::Done`] when its own requests are, and
//! [`ControlMessage::Verdict`] when it has heard that. Invariant: a line is bounded, and a message
//! that is not in its turn ends the session.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};

use crate::test::Test;

/// The longest line, in bytes.
pub const LINE_MAX: usize = 16384;
/// How much of a line that is not understood is shown, in bytes.
const SHOWN_MAX: usize = 80;
/// Time limit of sending a line.
const SENDING: Duration = Duration::from_secs(10);

/// TCP keepalive: idle time, and interval of the [`QUESTIONS`] probes without an answer.
const SILENCE: Duration = Duration::from_secs(10);
const QUESTIONS: u32 = 3;

/// Result of one side's own requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SideTotals {
    /// Messages of each stream, from the beginning on.
    pub streams: Vec<u64>,
    /// Messages complete at the end of the ramp-up.
    pub ramp_messages: u64,
    /// Length of the ramp-up, in seconds.
    pub ramp_s: f64,
    /// Seconds from then until everything was delivered.
    pub seconds: f64,
}

impl SideTotals {
    /// Messages after the ramp-up.
    pub fn messages(&self) -> u64 {
        self.total().saturating_sub(self.ramp_messages)
    }

    /// All messages.
    pub fn total(&self) -> u64 {
        self.streams.iter().fold(0, |sum, more| sum.saturating_add(*more))
    }
}

/// Control message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "lowercase", deny_unknown_fields)]
pub enum ControlMessage {
    /// Client: request for a test.
    Test {
        /// The test.
        test: Test,
    },
    /// Streams are to come to this port, and show this token.
    Ready {
        /// Of rdma-cm.
        port: u16,
        /// 32 hexadecimal digits.
        token: String,
    },
    /// The test is refused or aborted.
    Refused {
        /// Why.
        reason: String,
    },
    /// All streams are connected.
    Connected,
    /// Client: start.
    Start,
    /// Progress.
    Progress {
        /// Own messages that are complete.
        messages: u64,
    },
    /// Stop before the agreed end.
    Stop,
    /// Own requests are complete, and delivered.
    Done {
        /// Their result.
        moved: SideTotals,
    },
    /// Final message of each side.
    Verdict {
        /// Messages that were looked at.
        checked: u64,
        /// Messages with wrong data.
        wrong: u64,
        /// CPU seconds since the start.
        cpu_s: f64,
    },
}

impl ControlMessage {
    /// Reads a line, without its end.
    ///
    /// # Errors
    /// It is none of ours.
    pub fn parse(line: &[u8]) -> Result<Self> {
        ensure!(line.len() <= LINE_MAX, "a line of more than {LINE_MAX} bytes");
        let said = || plain(&String::from_utf8_lossy(&line[..line.len().min(SHOWN_MAX)]));
        match serde_json::from_slice(line) {
            Ok(message) => Ok(message),
            // Another version of this protocol, or nearly.
            Err(error) if line.starts_with(b"{") => Err(error).with_context(|| {
                format!("the other side is no `weft perf` of this version: it said `{}`", said())
            }),
            Err(_) => bail!("the other side is no `weft perf`: it said `{}`", said()),
        }
    }

    /// As a line, with its end.
    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("a message is made of plain values");
        line.push(b'\n');
        line
    }
}

/// The peer has closed the connection.
#[derive(Debug)]
pub struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the other side is gone")
    }
}

impl std::error::Error for Gone {}

/// Control connection.
pub struct ControlConn {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl ControlConn {
    /// On a connected socket.
    ///
    /// # Errors
    /// The socket's options cannot be set.
    pub fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SENDING))?;
        // A peer without power says nothing, and in a test nothing has to be said.
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, SILENCE)?;
        sockopt::set_tcp_keepintvl(&stream, SILENCE)?;
        sockopt::set_tcp_keepcnt(&stream, QUESTIONS)?;
        Ok(Self { stream, heard: Vec::new() })
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The peer is gone, or does not listen.
    pub fn say(&mut self, message: &ControlMessage) -> Result<()> {
        self.stream.write_all(&message.line()).context("the other side does not listen")
    }

    /// What the peer has said, if there is a message by `deadline`. A message that refuses is an
    /// error.
    ///
    /// # Errors
    /// The peer is gone, says what it may not, or refuses.
    pub fn hear(&mut self, deadline: Instant) -> Result<Option<ControlMessage>> {
        loop {
            if let Some(at) = self.heard.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=at).collect();
                return match ControlMessage::parse(&line[..at])? {
                    ControlMessage::Refused { reason } => {
                        bail!("the other side: {}", plain(&reason))
                    }
                    message => Ok(Some(message)),
                };
            }
            ensure!(self.heard.len() <= LINE_MAX, "a line without an end");
            if !wait_readable(&[self.fd()], deadline)? {
                return Ok(None);
            }
            let mut some = [0; 4096];
            match self.stream.read(&mut some) {
                Ok(0) => return Err(Gone.into()),
                Ok(count) => self.heard.extend_from_slice(&some[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context(Gone),
            }
        }
    }

    /// The next message, which is to come within `patience`.
    ///
    /// # Errors
    /// As [`ControlConn::hear`], or nothing comes.
    pub fn expect(&mut self, patience: Duration) -> Result<ControlMessage> {
        let heard = self.hear(Instant::now() + patience)?;
        heard.with_context(|| format!("the other side said nothing for {} s", patience.as_secs()))
    }

    /// Readable when something was said.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Text of a peer: 300 characters at most, without control characters.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// Sleeps until one of `fds` is readable, or the deadline or a signal comes; whether one is.
///
/// # Errors
/// The system's.
pub fn wait_readable(fds: &[BorrowedFd<'_>], deadline: Instant) -> Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    match poll(&mut polled, Some(&timeout)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error).context("poll"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::test::tests::test;

    fn pair() -> (TcpStream, ControlConn) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (stream, ControlConn::new(listener.accept().unwrap().0).unwrap())
    }

    #[test]
    fn messages_come_as_they_were_sent() {
        let (mut peer, mut control) = pair();
        let said = [
            ControlMessage::Test { test: test() },
            ControlMessage::Start,
            ControlMessage::Done {
                moved: SideTotals { streams: vec![1, 2], ..SideTotals::default() },
            },
            ControlMessage::Verdict { checked: 3, wrong: 0, cpu_s: 0.25 },
        ];
        let lines: Vec<u8> = said.iter().flat_map(ControlMessage::line).collect();
        peer.write_all(&lines).unwrap();
        for message in said {
            assert_eq!(control.expect(SENDING).unwrap(), message);
        }
        assert_eq!(control.hear(Instant::now()).unwrap(), None);
        drop(peer);
        assert!(control.expect(SENDING).unwrap_err().to_string().contains("gone"));
    }

    #[test]
    fn garbage_ends_a_session() {
        let flood = vec![b'x'; LINE_MAX * 2];
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\n", b"{\"say\":\"x\"}\n", &flood] {
            let (mut peer, mut control) = pair();
            peer.write_all(garbage).unwrap();
            assert!(control.expect(SENDING).is_err());
        }
    }

    #[test]
    fn a_refusal_is_an_error_and_harmless() {
        let (mut peer, mut control) = pair();
        let reason = String::from("\u{1b}[2Jbusy");
        peer.write_all(&ControlMessage::Refused { reason }.line()).unwrap();
        let error = control.expect(SENDING).unwrap_err().to_string();
        assert_eq!(error, "the other side: [2Jbusy");
    }
}
