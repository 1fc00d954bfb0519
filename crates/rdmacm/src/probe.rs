//! Finding out by which transport a peer is reached: Shuttle, if anybody takes Requests at its port
//! of UDP.
//!
//! A Probe is answered by who takes Requests, and by the host if nobody does. Only if that host
//! says so, or is silent for a while, TCP is asked whether anybody is there at all: then it is
//! iWARP's port. How long TCP takes says how long an answer over UDP may take. The stream that
//! this opens is the one that the connection gets: a listener of Linux siw is closed by its kernel
//! when a stream ends before it is accepted, so none is opened only to be ended.
//!
//! The Probe has the id and the nonce that the Request will have, and its answer a cookie for them:
//! so the round trip by which a peer shows that it receives is this one (S-17).
//!
//! TCP is no way to another host where iWARP is not meant there
//! ([`weft_net::secrecy::Secrecy::decide`]): then nobody but who takes Requests is looked for.
//!
//! Invariant: the id keeps its number in both spaces until the verdict.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use weft_host::{CmTransport, DeviceKind, Host, managed};
use weft_net::silence::{Awaited, MENTIONED_AFTER, Silence};
use weft_net::socket;
use weft_os::clock::{self, Moment};
use weft_reactor::{Interest, Pollable, Token};
use weft_rnic::cm::Failure;
use weft_rnic::shuttle::Identity;
use weft_rnic::wire::shuttle::hello::Hello;

use crate::config;
use crate::device::failure;
use crate::sockets::Sockets;

/// Bytes of room for an answer; a longer one is none.
const ANSWER_OCTETS: usize = 256;
/// An answer over UDP may take so many round trips of TCP, and at least so long.
const GRACE_ROUND_TRIPS: u32 = 2;
const GRACE_MIN: Duration = Duration::from_millis(20);

/// Once TCP has answered, so many further Probes may be lost, a round trip of TCP apart within
/// these limits, before nobody takes Requests: an application that has objects on one device fails
/// on the other.
const PROBES_LOST: u32 = 4;
const PROBE_STEP_MAX: Duration = Duration::from_millis(200);
/// They are not waited for longer than until so long after the first Probe.
const PROBES_END: Duration = Duration::from_millis(1200);

/// What was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeVerdict {
    Device(DeviceKind),
    /// There is no answer to learn it from.
    Nobody,
    Failed(Failure),
}

/// What a Request begins with, and the cookie for it.
pub(crate) struct Introduction {
    pub identity: Identity,
    pub cookie: Vec<u8>,
    /// The peer's host has said that nobody takes Requests there.
    pub refused: bool,
}

/// A question under way.
pub(crate) struct PeerProbe {
    host: Arc<Host>,
    pub(crate) peer: SocketAddr,
    pub(crate) transport: CmTransport,
    stream: Option<TcpStream>,
    datagram: UdpSocket,
    token: Token,
    introduction: Introduction,
    /// The host said that nobody takes Requests.
    pub(crate) refused: bool,
    /// It has ever said so.
    was_refused: bool,
    /// Probes since TCP has answered, as far as they count, and when the last of them left.
    asked_up: (u32, Moment),
    check: Option<Check>,
    began: Moment,
    /// When the last Probe left, and how long after it the next one follows.
    asked: Moment,
    pause: Duration,
    /// Nobody was there, and is asked again more often.
    redials: bool,
    /// Refusals are not believed until then.
    patience: Moment,
    /// It must be settled by then.
    limit: Moment,
    pub(crate) silence: Silence,
}

/// What the stream finds out: whether anybody is there.
struct Check {
    /// While there is no answer.
    token: Option<Token>,
    began: Moment,
    /// Since when somebody is known to be there, and how long the answer took.
    up: Option<(Moment, Duration)>,
    refused: bool,
}

impl PeerProbe {
    pub(crate) fn start(
        host: &Arc<Host>,
        sockets: Sockets,
        peer: SocketAddr,
        transport: CmTransport,
        limit: Duration,
        source: Arc<dyn Pollable>,
    ) -> io::Result<Self> {
        let Sockets { stream, datagram, .. } = sockets;
        let datagram = UdpSocket::from(datagram.ok_or(ErrorKind::NotConnected)?);
        datagram.connect(peer)?;
        let token = host.reactor().add(datagram.as_fd(), Interest::READ, source);
        let began = clock::now();
        let here = datagram.local_addr()?.port();
        let mut probe = Self {
            host: Arc::clone(host),
            peer,
            transport,
            stream: stream.map(TcpStream::from),
            datagram,
            token,
            introduction: Introduction {
                identity: managed::identity(),
                cookie: Vec::new(),
                refused: false,
            },
            refused: false,
            was_refused: false,
            asked_up: (0, began),
            check: None,
            began,
            asked: began,
            pause: config::PROBE_PAUSE,
            redials: false,
            patience: began + config::REFUSED_PATIENCE,
            limit: began + limit.min(config::PROBE_LIMIT),
            silence: Silence::new(Awaited::Answer { peer, here }, began),
        };
        probe.ask();
        Ok(probe)
    }

    pub(crate) fn stop(&self) {
        self.host.reactor().remove(self.token);
        if let Some(check) = &self.check {
            check.stop(&self.host);
        }
    }

    /// The sockets, for what comes next, and what the Request is to begin with.
    pub(crate) fn into_parts(self) -> (Sockets, Introduction) {
        let connected = self.check.and_then(|check| check.up).map(|(since, _)| since);
        let stream = self.stream.map(OwnedFd::from);
        let sockets = Sockets { stream, connected, datagram: Some(self.datagram.into()) };
        (sockets, Introduction { refused: self.refused, ..self.introduction })
    }

    /// A Probe that cannot leave is lost, as on the way.
    fn ask(&mut self) {
        self.asked = clock::now();
        if self.up().is_some() && self.asked_up.0 <= PROBES_LOST {
            self.asked_up = (self.asked_up.0 + 1, self.asked);
        }
        let Identity { cid, nonce, .. } = self.introduction.identity;
        let _lost = self.datagram.send(&Hello::probe(cid, nonce).encode());
    }

    /// Looks at what has happened.
    pub(crate) fn look(&mut self, source: &Arc<dyn Pollable>) -> Option<ProbeVerdict> {
        if self.hear() {
            return Some(ProbeVerdict::Device(DeviceKind::Roce));
        }
        if let (Some(check), Some(stream)) = (&mut self.check, &self.stream) {
            match check.look(&self.host, stream) {
                Err(failure) => return Some(ProbeVerdict::Failed(failure)),
                // Who refused before may have begun to listen, to both, just now.
                Ok(true) => {
                    self.refused = false;
                    self.ask();
                }
                Ok(false) => {}
            }
        }
        let now = clock::now();
        let silent = now.saturating_duration_since(self.began) >= config::PROBE_SILENCE;
        if self.check.is_none() && self.transport == CmTransport::Auto && (self.refused || silent) {
            let start = |stream| Check::start(&self.host, stream, self.peer, Arc::clone(source));
            self.check = self.stream.as_ref().and_then(start);
        }
        if !self.refused {
            self.silence.look(now);
        }
        self.judge(now)
    }

    /// Whether the peer has answered, as far as what has arrived is looked at now.
    fn hear(&mut self) -> bool {
        let mut room = [0; ANSWER_OCTETS];
        for _ in 0..config::RECEIVE_BATCH {
            match self.datagram.recv(&mut room) {
                Ok(n) => {
                    let nonce = self.introduction.identity.nonce;
                    let hello = Hello::parse(&room[..n]).ok();
                    if let Some(hello) = hello.filter(|hello| hello.echo == nonce) {
                        self.introduction.cookie = hello.cookie.to_vec();
                        return true;
                    }
                }
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                    (self.refused, self.was_refused) = (true, true);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        false
    }

    fn judge(&self, now: Moment) -> Option<ProbeVerdict> {
        let iwarp = ProbeVerdict::Device(DeviceKind::Iwarp);
        if let Some(settled) = self.settled() {
            return (self.refused || now >= settled).then_some(iwarp);
        }
        let late = self.is_nobody_there() && now >= self.patience;
        let quiet = self.transport == CmTransport::Shuttle
            && !self.refused
            && now >= self.began + config::PROBE_SILENCE;
        (late || quiet || now >= self.limit).then_some(ProbeVerdict::Nobody)
    }

    /// Asks once more, all who may have begun to listen meanwhile.
    pub(crate) fn again(&mut self) {
        self.refused = false;
        if self.check.as_ref().is_some_and(|check| check.refused) {
            self.check = None;
        }
        self.pause = (2 * self.pause).min(config::PROBE_LIMIT);
        self.ask();
    }

    /// How long to wait for news. It ends when the next Probe is due, whatever arrives meanwhile:
    /// anybody may send to this port.
    pub(crate) fn pause(&mut self) -> Duration {
        let now = clock::now();
        if self.is_nobody_there() && !self.redials {
            (self.redials, self.pause, self.asked) = (true, config::REDIAL_PAUSE, now);
        }
        let until = |end: Moment| end.saturating_duration_since(now);
        match (self.up(), self.settled()) {
            (Some((_, took)), Some(settled)) => until(settled.min(self.asked + probe_step(took))),
            _ if self.is_nobody_there() => {
                config::before_redial(until(self.asked + self.pause), now, self.patience)
            }
            _ => until(self.asked + self.pause).min(MENTIONED_AFTER),
        }
    }

    /// Since when somebody is known to be there, and how long the answer took.
    fn up(&self) -> Option<(Moment, Duration)> {
        self.check.as_ref()?.up
    }

    /// When nobody takes Requests, if TCP has answered and nothing comes by UDP.
    fn settled(&self) -> Option<Moment> {
        let (since, took) = self.up()?;
        let least = since + grace(took);
        if self.was_refused {
            return Some(least);
        }
        let end = least.max(self.began + PROBES_END);
        let (count, at) = self.asked_up;
        let all_left = count > PROBES_LOST;
        Some(if all_left { end.min(least.max(at + grace(took))) } else { end })
    }

    fn is_nobody_there(&self) -> bool {
        let alone = self.transport == CmTransport::Shuttle;
        self.refused && (alone || self.check.as_ref().is_some_and(|check| check.refused))
    }
}

/// How long an answer over UDP may take, where one of TCP took so long.
fn grace(took: Duration) -> Duration {
    (took * GRACE_ROUND_TRIPS).max(GRACE_MIN)
}

/// How long after a Probe the next one follows, where an answer of TCP took so long.
fn probe_step(took: Duration) -> Duration {
    took.clamp(GRACE_MIN, PROBE_STEP_MAX)
}

impl Check {
    fn start(
        host: &Host,
        stream: &TcpStream,
        peer: SocketAddr,
        source: Arc<dyn Pollable>,
    ) -> Option<Self> {
        let refused = match socket::connect(stream.as_fd(), &peer) {
            Ok(_) => false,
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => true,
            Err(_) => return None,
        };
        let watch = || host.reactor().add(stream.as_fd(), Interest::WRITE, source);
        let token = (!refused).then(watch);
        Some(Self { token, began: clock::now(), up: None, refused })
    }

    fn stop(&self, host: &Host) {
        if let Some(token) = self.token {
            host.reactor().remove(token);
        }
    }

    /// Looks whether TCP has an answer; says whether somebody turned out to be there.
    fn look(&mut self, host: &Host, stream: &TcpStream) -> Result<bool, Failure> {
        if self.refused || self.up.is_some() {
            return Ok(false);
        }
        match stream.take_error() {
            Ok(None) if stream.peer_addr().is_err() => return Ok(false),
            Ok(None) => {
                let now = clock::now();
                self.up = Some((now, now - self.began));
            }
            Ok(Some(e)) | Err(e) => match failure(&e) {
                Failure::Refused | Failure::Reset => self.refused = true,
                other => return Err(other),
            },
        }
        self.stop(host);
        self.token = None;
        Ok(self.up.is_some())
    }
}
