//! Connecting: SDP and TCP are tried at once, and the first result that is certain counts.
//!
//! The peer is asked for SDP first, then connected to by TCP without waiting for the answer. If TCP
//! fails, so does the connection, as it would without this library. TCP carries it if the peer's
//! host reports that nobody takes Hellos, if the peer refuses, or if its answer does not follow
//! that by TCP soon. If both agree, SDP carries it, and the peer is told so, since it cannot know
//! whether its answer came in time. A peer without SDP is reached as fast as ever, unless a
//! firewall drops UDP silently.
//!
//! A peer that is near stays with TCP where nothing asks for SDP (`near`).
//!
//! With a key, and over iWARP, TCP is connected only once the peer has agreed to SDP. Where TCP is
//! forbidden (`strict`) and the peer does not agree, the connection is refused.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use libc::c_int;
use weft_os::{clock, fds};
use weft_rdmacm::{CmId, PortSpace};
use weft_reactor::Interest;
use weft_sdp::Names;

use crate::app_socket::AppSocket;
use crate::conn::attempt::{ConnectAttempt, Decision};
use crate::conn::inner::ConnInner;
use crate::conn::state::ConnPhase;
use crate::conn::table::ConnTable;
use crate::conn::waiter::{ConnectWaiter, SocketBefore};
use crate::conn::{ConnPart, SdpConn};
use crate::env::Env;
use crate::fabric::{Fabric, conn_param};
use crate::names::SocketEnds;
use crate::near::TcpUse;
use crate::registry::Registry;
use crate::report::Carrier;
use crate::stream::SdpStream;
use crate::watched_fd::WatchedFd;
use crate::{address, late_writes, near, rdma, strict, sys};

/// How long address resolution may take: the answer is in the kernel's tables.
const ROUTE_LIMIT: Duration = Duration::from_secs(1);

/// The return value of the hook of `connect`.
#[derive(Debug, PartialEq, Eq)]
pub enum ConnectResult {
    /// Returns 0.
    Done,
    /// It calls the real function.
    Bypass,
    /// It fails with this errno.
    Error(c_int),
}

/// Connects the application's TCP socket `fd` to `remote`.
pub fn connect(fd: RawFd, remote: SocketAddr) -> ConnectResult {
    let table = &Registry::get().conns;
    let (settings, reports) = (&table.env.settings, &table.env.reports);
    if settings.tcp_use(remote, false) == TcpUse::WhereNear
        && table.env.near.has(address::meant(remote).ip(), clock::now())
    {
        reports.connected(remote, Carrier::Tcp(near::NEAR));
        return ConnectResult::Bypass;
    }
    match ConnectCall::begin(table, fd, remote) {
        Ok(call) => call.finish(),
        Err(why) if strict::forbids_connect(settings, fd, address::meant(remote)) => {
            ConnectResult::Error(strict::route_error(remote).unwrap_or_else(|| {
                reports.refused(remote, why);
                strict::REFUSED
            }))
        }
        Err(why) => {
            reports.connected(remote, Carrier::Tcp(why));
            ConnectResult::Bypass
        }
    }
}

/// The arguments of a `connect`, and the state of its socket.
struct ConnectCall {
    fd: RawFd,
    before: SocketBefore,
    remote: SocketAddr,
    strict: bool,
    conn: Arc<SdpConn>,
    table: &'static ConnTable,
}

impl ConnectCall {
    /// Asks the peer for SDP.
    fn begin(
        table: &'static ConnTable,
        fd: RawFd,
        remote: SocketAddr,
    ) -> Result<Self, &'static str> {
        let before = SocketBefore::of(fd).map_err(|_| "it is closed")?;
        let to = address::meant(remote);
        if is_of_another_user(fd, &table.env) && address::is_of_this_host(to) == Some(true) {
            return Err("another user has opened the socket, or was this process's");
        }
        let local = bound(fd, remote)?;
        let strict = strict::forbids_tcp(&table.env.settings, local.ip(), to.ip());
        let conn = SdpConn::new(table, SocketEnds { local, remote: to }, ConnPhase::Connecting);
        let tcp_use = table.env.settings.tcp_use(remote, strict);
        let asked = ask(table, &conn, local, to, tcp_use);
        if let Err(why) = asked {
            conn.finish(&mut conn.lock());
            return Err(why);
        }
        Ok(Self { fd, before, remote, strict, conn, table })
    }

    /// Connects by TCP too, and waits for the decision if the application's socket is blocking.
    fn finish(self) -> ConnectResult {
        let waits = self.before.blocks();
        let raised = match self.prepare(waits) {
            Ok(raised) => raised,
            Err(None) if self.strict => return self.refuse(None),
            Err(error) => {
                self.give_up();
                return error.map_or(ConnectResult::Bypass, ConnectResult::Error);
            }
        };
        self.conn.work();
        if waits { self.wait(raised) } else { ConnectResult::Error(libc::EINPROGRESS) }
    }

    /// Puts all parts of the connection in place; returns what is raised at the decision.
    fn prepare(&self, waits: bool) -> Result<RawFd, Option<c_int>> {
        let tcp = sys::duplicate(self.fd).map_err(|_| None)?;
        let event = fds::high(sys::event().map_err(|_| None)?);
        self.before.prepare(self.fd).map_err(|_| None)?;
        let raised = event.as_raw_fd();
        let mut inner = self.conn.lock();
        let source = self.conn.fd_source(ConnPart::Shadow);
        inner.shadow = Some(WatchedFd::new(tcp, Interest::NONE, source));
        let attempt = inner.attempt.as_ref().ok_or(None)?;
        if !attempt.fabric.sdp_first {
            inner.call_tcp().map_err(Some)?;
        }
        if !waits {
            self.install(&mut inner, true).map_err(|_| None)?;
        }
        if let Some(attempt) = &mut inner.attempt {
            let waiter = || ConnectWaiter::new(event, self.before, self.strict);
            attempt.begin_waiting(waits.then(waiter));
        }
        Ok(raised)
    }

    fn wait(&self, raised: RawFd) -> ConnectResult {
        let (began, limit) = (clock::now(), sys::send_limit(self.fd));
        let waited = sys::wait_raised(raised, limit);
        let stopped = waited.err().map(|error| match error.kind() {
            ErrorKind::TimedOut => libc::EINPROGRESS,
            _ => libc::EINTR,
        });
        let mut inner = self.conn.lock();
        let decision = inner.attempt.as_ref().and_then(ConnectAttempt::decision);
        // The peer may have chosen TCP if this thread slept for long.
        let is_good = inner.attempt.as_ref().is_some_and(|attempt| !attempt.is_refused());
        if decision == Some(Decision::Sdp) && is_good && self.install(&mut inner, false).is_ok() {
            inner.go_by_sdp();
            drop(inner);
            self.conn.work();
            return ConnectResult::Done;
        }
        // TCP would go on by itself; it may not even be called yet.
        if let Some(error) = stopped
            && decision.is_none()
            && self.go_on_unwaited(&mut inner).is_ok()
        {
            drop(inner);
            self.conn.work();
            return ConnectResult::Error(error);
        }
        drop(inner);
        if self.strict {
            return self.refuse(decision);
        }
        self.give_up();
        match stopped {
            Some(libc::EINTR) => ConnectResult::Error(libc::EINTR),
            _ => {
                let passed = clock::now().saturating_duration_since(began);
                self.await_tcp(limit.map(|limit| limit.saturating_sub(passed)))
            }
        }
    }

    /// Leaves the rest to the kernel. A socket that is connecting already waits here for what is
    /// `left` of its limit: there it would wait for all of it, and fail with `EALREADY`.
    fn await_tcp(&self, left: Option<Duration>) -> ConnectResult {
        let Some(left) = left.filter(|_| sys::is_connecting(self.fd)) else {
            return ConnectResult::Bypass;
        };
        match sys::wait_writable(self.fd, left) {
            Ok(()) => ConnectResult::Bypass,
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                ConnectResult::Error(libc::EINPROGRESS)
            }
            Err(_) => ConnectResult::Error(libc::EINTR),
        }
    }

    /// Goes on as for a socket that does not block.
    fn go_on_unwaited(&self, inner: &mut ConnInner) -> std::io::Result<()> {
        self.install(inner, true)?;
        if let Some(attempt) = &mut inner.attempt {
            attempt.stop_waiting();
        }
        Ok(())
    }

    /// Leaves the application's socket unconnected.
    fn refuse(&self, decision: Option<Decision>) -> ConnectResult {
        self.give_up();
        let error = match decision {
            Some(Decision::Tcp(_)) => sys::take_error(self.fd),
            Some(Decision::Neither(_)) => None,
            Some(Decision::Sdp) | None => {
                self.table.env.reports.refused(self.remote, "SDP has failed");
                None
            }
        };
        sys::disconnect(self.fd);
        ConnectResult::Error(error.unwrap_or(strict::REFUSED))
    }

    /// Puts the application's end of a pair in the place of its socket.
    fn install(&self, inner: &mut ConnInner, jammed: bool) -> std::io::Result<()> {
        let fd = self.fd;
        inner.ends.local = sys::local(fd)?;
        let source = self.conn.fd_source(ConnPart::App);
        let (theirs, mut app) = AppSocket::pair(&inner.ends, fd, source)?;
        if jammed {
            app.jam(&theirs);
        } else {
            sys::set_room(theirs.as_raw_fd());
        }
        sys::inherit(fd, &theirs, self.before.flags());
        inner.is_abortive = sys::resets_at_close(fd);
        sys::set_reset_at_close(theirs.as_raw_fd(), inner.is_abortive);
        self.table.add_app_socket(app.other(), Arc::clone(&self.conn));
        inner.app = Some(app);
        let replace = || sys::install(&theirs, fd, sys::closes_on_exec(fd));
        self.table.env.watches.carry(fd, replace)?;
        late_writes::begin(fd);
        Ok(())
    }

    /// Leaves the application's socket to the kernel.
    fn give_up(&self) {
        self.conn.finish(&mut self.conn.lock());
        self.before.restore(self.fd);
    }
}

/// Whether a user that this process does not act as has opened its socket, or may have opened those
/// that send its Hellos. A listener of this host takes the Hello for that of somebody else then
/// (`grants`), and would reset the connection.
fn is_of_another_user(fd: RawFd, env: &Env) -> bool {
    let owner = sys::owner(fd);
    [env.user, weft_os::sys::user()].into_iter().any(|user| owner != Some(user))
}

/// Sends the Hello.
fn ask(
    table: &'static ConnTable,
    conn: &Arc<SdpConn>,
    local: SocketAddr,
    remote: SocketAddr,
    tcp_use: TcpUse,
) -> Result<(), &'static str> {
    let env = &table.env;
    let fabric = Fabric::new(env.settings.iwarp);
    let channel = env.events.channel().map_err(|_| "the system has no descriptor left for it")?;
    let cm = CmId::new(channel, PortSpace::Tcp, fabric.transport);
    cm.set_prompt();
    cm.set_cookie(conn.id);
    let mut inner = conn.lock();
    inner.cm = Some(Arc::clone(&cm));
    let chosen = address::plain(local).ip();
    let source = (!chosen.is_unspecified()).then(|| SocketAddr::new(chosen, 0));
    let to = address::plain(fabric.address_for(remote));
    cm.resolve_addr(source, to, ROUTE_LIMIT).map_err(|_| "there is no way to it")?;
    let from = cm.local_addr().ok_or("there is no way to it")?.ip();
    if !rdma::host().secrecy().permits(from, to.ip()) {
        return Err("there is no key for other hosts");
    }
    let names = Names {
        ip_version: if to.is_ipv4() { 4 } else { 6 },
        port: local.port(),
        from: address::bytes(from),
        to: address::bytes(to.ip()),
    };
    let opened = SdpStream::open(&env.devices, fabric.personality, to.ip(), names, conn.waker());
    let (stream, hello) = opened.map_err(|_| "no queue pair is to be had")?;
    let limit = env.settings.answer_limit;
    inner.attempt = Some(ConnectAttempt::new(remote, fabric, tcp_use, limit, clock::now()));
    cm.resolve_route().map_err(|_| "there is no way to it")?;
    cm.connect(&conn_param(hello), stream.qp()).map_err(|_| "it cannot be called")?;
    inner.stream = Some(stream);
    Ok(())
}

/// Any address of the family of `own`, for a socket that connects to `remote`.
/// The address by which the socket connects. The kernel still tells of the port that an earlier
/// connect had, which has failed and given it back: it is not asked whether there is one.
fn bound(fd: RawFd, remote: SocketAddr) -> Result<SocketAddr, &'static str> {
    let local = || sys::local(fd).map_err(|_| "it has no address");
    let mut free = local()?;
    free.set_ip(any(&remote, free.ip()));
    free.set_port(0);
    match sys::bind(fd, &free) {
        Err(error) if error.raw_os_error() != Some(libc::EINVAL) => Err("no port is free"),
        // It is bound to one.
        Ok(()) | Err(_) => local(),
    }
}

fn any(remote: &SocketAddr, own: IpAddr) -> IpAddr {
    match own {
        own if !own.is_unspecified() => own,
        _ if remote.is_ipv4() => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    }
}
