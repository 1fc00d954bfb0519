//! Connecting: both ways are tried at once, and the first that is sure to be right is taken.
//!
//! The peer is asked for SDP first, and then called by TCP without waiting for the answer. If TCP
//! fails, so does the connection, as it would have without us. If the peer's host says that nobody
//! takes Hellos there, or the peer says no, or no answer has come soon after TCP's, it is TCP. If
//! both say yes it is SDP, and the peer is told so: that it was heard does not say that its answer
//! came in time. So a peer that does not know SDP is reached as fast as ever, unless a
//! firewall keeps silent about what it drops.
//!
//! Under a key, and over iWARP, the peer is called by TCP only once it has said yes to SDP. Where
//! TCP is forbidden (`strict`) and the peer does not say yes, the connection is refused.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::c_int;
use weft_io::cm::{CmId, Event, EventKind, PortSpace};
use weft_net::secrecy::Secrecy;
use weft_os::clock;
use weft_reactor::Interest;
use weft_sdp::Names;

use crate::address;
use crate::app_socket::Near;
use crate::conn::{Companion, Conn, Inner, Part, Way};
use crate::listener::{Lower, param};
use crate::names::Ends;
use crate::registry::Center;
use crate::settings::Settings;
use crate::stream::Stream;
use crate::{report, strict, sys, watches};

/// Where TCP waits for the answer, it waits for so long.
const FIRST_PATIENCE: Duration = Duration::from_millis(500);
/// How long finding the way to a peer may take: it is in the kernel's tables.
const ROUTE_LIMIT: Duration = Duration::from_secs(1);

/// What a hook does.
#[derive(Debug, PartialEq, Eq)]
pub enum Detour {
    /// It is done.
    Done,
    /// The real function has it.
    Bypass,
    /// It has failed with this errno.
    Error(c_int),
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Sdp,
    Tcp(&'static str),
    /// Neither: TCP is forbidden.
    None(&'static str),
}

/// An attempt.
pub struct Dial {
    remote: SocketAddr,
    lower: Lower,
    /// It is SDP or nothing; stderr has a line that says why it is nothing.
    strict: bool,
    told: bool,
    began: Instant,
    /// All parts of the connection are there.
    ready: bool,
    /// TCP is called; it has answered; it has failed.
    called: bool,
    up: Option<(Instant, Duration)>,
    failed: bool,
    agreed: bool,
    refused: Option<&'static str>,
    /// Who waits for the outcome, if that is a thread.
    waiter: Option<OwnedFd>,
    outcome: Option<Outcome>,
}

/// Connects the program's TCP socket `fd` to `remote`.
pub fn connect(fd: RawFd, remote: SocketAddr) -> Detour {
    match Attempt::begin(fd, remote) {
        Ok(attempt) => attempt.finish(),
        Err(why) if strict::forbids_call(fd, here(remote)) => {
            Detour::Error(strict::route_error(remote).unwrap_or_else(|| {
                report::refused(remote, why);
                strict::REFUSED
            }))
        }
        Err(why) => {
            report::connected(remote, report::Way::Tcp(why));
            Detour::Bypass
        }
    }
}

struct Attempt {
    fd: RawFd,
    flags: c_int,
    remote: SocketAddr,
    strict: bool,
    conn: Arc<Conn>,
}

impl Attempt {
    /// Asks the peer.
    fn begin(fd: RawFd, remote: SocketAddr) -> Result<Self, &'static str> {
        let flags = sys::flags(fd).map_err(|_| "it is closed")?;
        let mut local = sys::local(fd).map_err(|_| "it has no address")?;
        if local.port() == 0 {
            local.set_ip(any(&remote, local.ip()));
            sys::bind(fd, &local).map_err(|_| "no port is free")?;
            local = sys::local(fd).map_err(|_| "it has no address")?;
        }
        let strict = strict::forbids_tcp(local.ip(), here(remote).ip());
        let center = Center::get();
        let conn = Conn::new(center.next_id(), Ends { local, remote });
        center.keep(Arc::clone(&conn));
        let asked = ask(&conn, local, here(remote), strict);
        if let Err(why) = asked {
            conn.finish(&mut conn.lock());
            return Err(why);
        }
        Ok(Self { fd, flags, remote, strict, conn })
    }

    /// Calls the peer by TCP too, and waits for the outcome unless the program does not want to.
    fn finish(self) -> Detour {
        let waits = self.flags & libc::O_NONBLOCK == 0;
        let raised = match self.prepare(waits) {
            Ok(raised) => raised,
            Err(None) if self.strict => return self.refuse(None),
            Err(error) => {
                self.give_up();
                return error.map_or(Detour::Bypass, Detour::Error);
            }
        };
        self.conn.work();
        if waits { self.wait(raised) } else { Detour::Error(libc::EINPROGRESS) }
    }

    /// Puts all parts of the connection in their places; gives what is raised at the outcome.
    fn prepare(&self, waits: bool) -> Result<RawFd, Option<c_int>> {
        let tcp = sys::duplicate(self.fd).map_err(|_| None)?;
        let waiter = sys::event().map_err(|_| None)?;
        sys::set_flags(self.fd, self.flags | libc::O_NONBLOCK).map_err(|_| None)?;
        let raised = waiter.as_raw_fd();
        let mut inner = self.conn.lock();
        inner.companion = Some(Companion::new(tcp, Interest::NONE, self.conn.eye(Part::Companion)));
        let dial = inner.dial.as_mut().ok_or(None)?;
        dial.waiter = waits.then_some(waiter);
        if !dial.lower.first {
            inner.call().map_err(Some)?;
        }
        if !waits {
            self.install(&mut inner, true).map_err(|_| None)?;
        }
        if let Some(dial) = &mut inner.dial {
            dial.ready = true;
        }
        Ok(raised)
    }

    fn wait(&self, raised: RawFd) -> Detour {
        let interrupted = sys::wait_raised(raised).is_err();
        let mut inner = self.conn.lock();
        let outcome = inner.dial.as_ref().and_then(|dial| dial.outcome);
        // A peer that was not told for long may have gone by TCP meanwhile.
        let is_good = inner.dial.as_ref().is_some_and(|dial| dial.refused.is_none());
        if outcome == Some(Outcome::Sdp) && is_good && self.install(&mut inner, false).is_ok() {
            inner.go_by_sdp();
            drop(inner);
            self.conn.work();
            return Detour::Done;
        }
        if self.strict {
            let goes_on =
                interrupted && outcome.is_none() && self.go_on_unwaited(&mut inner).is_ok();
            drop(inner);
            if !goes_on {
                return self.refuse(outcome);
            }
            self.conn.work();
            return Detour::Error(libc::EINTR);
        }
        drop(inner);
        self.give_up();
        // Whoever ends the wait leaves the connection to TCP, which goes on by itself.
        if interrupted { Detour::Error(libc::EINTR) } else { Detour::Bypass }
    }

    /// Goes on as if the program had not wanted to wait.
    fn go_on_unwaited(&self, inner: &mut Inner) -> std::io::Result<()> {
        self.install(inner, true)?;
        if let Some(dial) = &mut inner.dial {
            dial.waiter = None;
        }
        Ok(())
    }

    /// Leaves the program's socket to nobody.
    fn refuse(&self, outcome: Option<Outcome>) -> Detour {
        self.give_up();
        let error = match outcome {
            Some(Outcome::Tcp(_)) => sys::take_error(self.fd),
            Some(Outcome::None(_)) => None,
            Some(Outcome::Sdp) | None => {
                report::refused(self.remote, "SDP has failed");
                None
            }
        };
        sys::disconnect(self.fd);
        Detour::Error(error.unwrap_or(strict::REFUSED))
    }

    /// Puts the program's end where its socket is.
    fn install(&self, inner: &mut Inner, jammed: bool) -> std::io::Result<()> {
        let fd = self.fd;
        inner.ends.local = sys::local(fd)?;
        let (theirs, mut near) = Near::pair(&inner.ends, fd, self.conn.eye(Part::Near))?;
        if jammed {
            near.jam(&theirs);
        } else {
            sys::set_room(theirs.as_raw_fd());
        }
        sys::inherit(fd, &theirs, self.flags);
        Center::get().seat(near.other(), Arc::clone(&self.conn));
        inner.near = Some(near);
        watches::carry(fd, || sys::install(&theirs, fd, sys::closes_on_exec(fd)))
    }

    /// Leaves the program's socket to the kernel.
    fn give_up(&self) {
        self.conn.finish(&mut self.conn.lock());
        // It had these before.
        let _ = sys::set_flags(self.fd, self.flags);
    }
}

/// Sends the Hello.
fn ask(
    conn: &Arc<Conn>,
    local: SocketAddr,
    remote: SocketAddr,
    strict: bool,
) -> Result<(), &'static str> {
    let lower = Lower::get();
    let channel =
        Center::get().channel().map_err(|_| "the system has no descriptor left for it")?;
    let cm = CmId::new(channel, PortSpace::Tcp, lower.transport);
    cm.set_prompt();
    cm.set_cookie(conn.id);
    let mut inner = conn.lock();
    inner.cm = Some(Arc::clone(&cm));
    let chosen = address::plain(local).ip();
    let source = (!chosen.is_unspecified()).then(|| SocketAddr::new(chosen, 0));
    let below = address::plain(lower.below(remote));
    cm.resolve_addr(source, below, ROUTE_LIMIT).map_err(|_| "there is no way to it")?;
    let from = cm.local_addr().ok_or("there is no way to it")?.ip();
    if !Secrecy::get().permits(from, below.ip()) {
        return Err("there is no key for other hosts");
    }
    let names = Names {
        ip_version: if below.is_ipv4() { 4 } else { 6 },
        port: local.port(),
        from: address::octets(from),
        to: address::octets(below.ip()),
    };
    let opened = Stream::open(lower.personality, below.ip(), names, conn.waker());
    let (stream, hello) = opened.map_err(|_| "no queue pair is to be had")?;
    inner.dial = Some(Dial::new(remote, lower, strict));
    cm.resolve_route().map_err(|_| "there is no way to it")?;
    cm.connect(&param(hello), stream.qp()).map_err(|_| "it cannot be called")?;
    inner.stream = Some(stream);
    Ok(())
}

/// Any address of the family of `own`, for a socket that calls `remote`.
fn any(remote: &SocketAddr, own: IpAddr) -> IpAddr {
    match own {
        own if !own.is_unspecified() => own,
        _ if remote.is_ipv4() => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The address that is meant: "any" is this machine.
fn here(mut remote: SocketAddr) -> SocketAddr {
    if remote.ip().is_unspecified() {
        let v4 = remote.is_ipv4();
        remote.set_ip(if v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    remote
}

impl Dial {
    fn new(remote: SocketAddr, lower: Lower, strict: bool) -> Self {
        Self {
            remote,
            lower: Lower { first: lower.first || strict, ..lower },
            strict,
            told: false,
            began: clock::now(),
            ready: false,
            called: false,
            up: None,
            failed: false,
            agreed: false,
            refused: None,
            waiter: None,
            outcome: None,
        }
    }

    /// Whether the peer may still say yes or no.
    pub fn is_unanswered(&self) -> bool {
        !self.agreed && self.refused.is_none() && !self.failed
    }

    /// What it comes to, or when that is to be looked at again.
    fn judge(&self, now: Instant) -> Result<Outcome, Option<Instant>> {
        if self.failed {
            return Ok(Outcome::Tcp(""));
        }
        if let Some(why) = self.refused {
            return Ok(self.without_sdp(why));
        }
        let first = if self.strict { strict::PATIENCE } else { FIRST_PATIENCE };
        let until = match self.up {
            Some(_) if self.agreed => return Ok(Outcome::Sdp),
            // An answer may take another of TCP's round trips.
            Some((since, took)) => since + took.max(Settings::get().patience),
            None if !self.called => self.began + first.max(Settings::get().patience),
            None => return Err(None),
        };
        if now >= until { Ok(self.without_sdp("it does not answer")) } else { Err(Some(until)) }
    }

    fn without_sdp(&self, why: &'static str) -> Outcome {
        if self.strict { Outcome::None(why) } else { Outcome::Tcp(why) }
    }

    /// Mentions a peer that is silent and cannot be reached otherwise, or gives when that is to be
    /// done.
    fn mention(&mut self, now: Instant) -> Option<Instant> {
        if !self.strict || self.told || self.agreed {
            return None;
        }
        let due = self.began + strict::MENTIONED_AFTER;
        if now < due {
            return Some(due);
        }
        report::silent(self.remote);
        self.told = true;
        None
    }
}

impl Inner {
    /// Calls the peer by TCP.
    fn call(&mut self) -> Result<(), c_int> {
        let (Some(dial), Some(tcp)) = (&mut self.dial, &mut self.companion) else { return Ok(()) };
        dial.called = true;
        dial.began = clock::now();
        if let Err(error) = sys::connect(tcp.raw(), &dial.remote)
            && error.kind() != ErrorKind::WouldBlock
            && error.raw_os_error() != Some(libc::EINPROGRESS)
        {
            return Err(error.raw_os_error().unwrap_or(libc::ECONNREFUSED));
        }
        tcp.watch(Interest::WRITE);
        Ok(())
    }

    /// The same where the program does not wait; whether it could be done. If not, it is told as
    /// of one that was refused.
    fn call_at_last(&mut self) -> bool {
        let called = self.call().is_ok();
        if let (false, Some(dial), Some(tcp)) = (called, &self.dial, &self.companion) {
            strict::refuse(tcp.raw(), dial.remote);
        }
        called
    }

    /// The peer has said yes to SDP.
    pub fn agree(&mut self, answer: &[u8]) {
        let finished = self.stream.as_mut().map(|stream| stream.finish(answer));
        let Some(dial) = &mut self.dial else { return };
        match finished {
            Some(Ok(())) => dial.agreed = true,
            _ => dial.refused = Some("its HelloAck makes no sense"),
        }
    }

    /// It has said no, or nobody is there who could.
    pub fn refuse(&mut self, event: &Event) {
        if let Some(dial) = &mut self.dial {
            // Whoever has found that keys differ has said so.
            dial.told |= event.status == -libc::EACCES;
            dial.refused = Some(match event.kind {
                EventKind::Rejected => "it does not take SDP",
                EventKind::Unreachable => "it does not answer",
                _ => "SDP has failed",
            });
        }
    }

    fn look_at_tcp(&mut self) {
        let (Some(dial), Some(tcp)) = (&mut self.dial, &mut self.companion) else { return };
        if !dial.called || dial.up.is_some() || dial.failed {
            return;
        }
        match tcp.verdict() {
            Some(true) => {
                let now = clock::now();
                dial.up = Some((now, now - dial.began));
                tcp.watch(Interest::NONE);
            }
            Some(false) => dial.failed = true,
            None => {}
        }
    }

    /// The program's end leads to the stream from now on.
    fn go_by_sdp(&mut self) {
        let Some(dial) = self.dial.take() else { return };
        self.way = Way::Sdp;
        self.confirmed = true;
        self.due = None;
        if let Some((connection, verbs)) = self.stream.as_mut().and_then(Stream::parts) {
            // The peer waits for this. A connection that has failed says so by itself.
            let _ = connection.greet(verbs);
        }
        let style = self.stream.as_ref().map_or("over", |stream| stream.style());
        report::connected(dial.remote, report::Way::Sdp(dial.lower.name, style));
        if let Some(tcp) = &mut self.companion {
            tcp.watch(Interest::READ);
        }
        self.clear_jam();
    }

    /// The program's socket is put back where it was. If nobody of this process has the place any
    /// more, somebody else does, and is served from here.
    fn go_by_tcp(&mut self) -> bool {
        let Some(near) = &self.near else { return true };
        let holders = near.holders();
        if holders.is_empty() && !near.is_left() {
            self.way = Way::Tcp;
            self.dial = None;
            self.clear_jam();
            return false;
        }
        let Some(mut tcp) = self.companion.take() else { return true };
        tcp.ignore();
        // What the program has set meanwhile holds.
        if let Some(first) = holders.first() {
            let _ = sys::flags(*first).and_then(|flags| sys::set_flags(tcp.raw(), flags));
        }
        let mut tcp = Some(tcp);
        for (left, fd) in (0..holders.len()).rev().zip(holders) {
            watches::carry(fd, || {
                if let Some(tcp) = &tcp {
                    let _left = sys::install(&tcp.raw(), fd, sys::closes_on_exec(fd));
                }
                // Before it is watched: when the program closes it nobody must have it any more.
                tcp = tcp.take().filter(|_| left > 0);
            });
        }
        true
    }
}

impl Conn {
    /// Decides which way the connection goes, if that can be said.
    pub fn decide(&self, inner: &mut Inner) {
        inner.look_at_tcp();
        let Some(dial) = &mut inner.dial else { return };
        if !dial.ready || dial.outcome.is_some() {
            return;
        }
        if dial.agreed && !dial.called {
            if !inner.call_at_last()
                && let Some(dial) = &mut inner.dial
            {
                dial.failed = true;
            }
            return self.decide(inner);
        }
        let now = clock::now();
        match dial.judge(now) {
            Err(None) => {}
            Err(Some(until)) => {
                inner.due = Some(dial.mention(now).map_or(until, |due| due.min(until)));
            }
            Ok(outcome) => self.settle(inner, outcome),
        }
    }

    fn settle(&self, inner: &mut Inner, outcome: Outcome) {
        let Some(dial) = &mut inner.dial else { return };
        dial.outcome = Some(outcome);
        inner.due = None;
        match outcome {
            Outcome::Sdp => {}
            Outcome::Tcp(_) if dial.failed => inner.drop_stream(),
            Outcome::Tcp(why) => {
                let late = !dial.called && dial.waiter.is_none();
                report::connected(dial.remote, report::Way::Tcp(why));
                inner.drop_stream();
                if late {
                    inner.call_at_last();
                }
            }
            Outcome::None(why) => {
                if !dial.told {
                    report::refused(dial.remote, why);
                }
                if let (None, Some(tcp)) = (&dial.waiter, &inner.companion) {
                    strict::refuse(tcp.raw(), dial.remote);
                }
                inner.drop_stream();
            }
        }
        let Some(dial) = &mut inner.dial else { return };
        if let Some(waiter) = &dial.waiter {
            sys::raise(waiter.as_raw_fd());
            if let Some(tcp) = &mut inner.companion {
                tcp.watch(Interest::NONE);
            }
        } else if outcome == Outcome::Sdp {
            inner.go_by_sdp();
        } else if inner.go_by_tcp() {
            inner.dial = None;
            self.finish(inner);
        }
    }
}
