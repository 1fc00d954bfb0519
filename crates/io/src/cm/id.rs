//! Connection manager ids: creation, addresses, options, and the end.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

use weft_rnic::cm::{self, Command, Depths, Failure, State};

use super::account::Account;
use super::attempt::Attempt;
use super::channel::{Delivery, EventChannel};
use super::error::Error;
use super::link::Linking;
use super::listener::Listener;
use super::redial::Call;
use super::request::Request;
use super::socket::{self, Kind, NoRoute};
use crate::Qp;

/// The largest read depths of the device.
pub(super) const DEVICE: Depths = Depths {
    ird: weft_verbs::limits::IWARP.max_qp_rd_atom as u16,
    ord: weft_verbs::limits::IWARP.max_qp_init_rd_atom as u16,
};

/// Where the ports of an id come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSpace {
    /// Reliable connections, over TCP.
    Tcp,
    /// Datagrams, which this device does not carry: such an id can have addresses, and no more.
    Udp,
}

/// What an id owns besides its state.
#[derive(Default)]
pub(super) enum Stage {
    /// Nothing.
    #[default]
    Quiet,
    /// A socket that keeps the local address.
    Bound(OwnedFd),
    /// A socket that peers connect to.
    Listening(Listener),
    /// A stream that is to become a connection.
    Dialing(Box<Attempt>),
    /// A peer that refused, until it is called again at the deadline.
    Refused(Box<Call>),
    /// A peer's stream and its Request.
    Requested(Request),
    /// The queue pair is taking the stream over.
    Linking(Linking),
    /// The queue pair has the stream.
    Linked,
}

impl Stage {
    /// Lets go of what is owned. A peer that waits for an answer gets a no, so that it does not
    /// take silence for a misunderstanding.
    pub(super) fn close(self) {
        if let Stage::Requested(request) = self {
            let _peer_may_be_gone = request.reject(&[]);
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Options {
    tos: Option<u8>,
    shared: bool,
    v6_only: Option<bool>,
    ack_timeout: Option<u8>,
}

/// What is behind an id's lock.
pub(super) struct Inner {
    pub(super) machine: cm::Id,
    pub(super) stage: Stage,
    pub(super) channel: Arc<EventChannel>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    /// The application's: an id does not keep it from being destroyed.
    pub(super) qp: Weak<Qp>,
    /// When the present step has taken too long.
    pub(super) deadline: Option<Instant>,
    dead: bool,
    options: Options,
}

/// An id: the end of a connection that is, will be or was; or a listener.
pub struct CmId {
    me: Weak<CmId>,
    space: PortSpace,
    cookie: AtomicU64,
    account: Account,
    inner: Mutex<Inner>,
}

impl CmId {
    /// A new id whose events go to `channel`.
    pub fn new(channel: Arc<EventChannel>, space: PortSpace) -> Arc<CmId> {
        CmId::with(cm::Id::new(DEVICE), Stage::Quiet, channel, space)
    }

    pub(super) fn with(
        machine: cm::Id,
        stage: Stage,
        channel: Arc<EventChannel>,
        space: PortSpace,
    ) -> Arc<CmId> {
        Arc::new_cyclic(|me| CmId {
            me: me.clone(),
            space,
            cookie: AtomicU64::new(0),
            account: Account::default(),
            inner: Mutex::new(Inner {
                machine,
                stage,
                channel,
                local: None,
                peer: None,
                qp: Weak::new(),
                deadline: None,
                dead: false,
                options: Options::default(),
            }),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("id lock")
    }

    pub(super) fn me(&self) -> Weak<CmId> {
        self.me.clone()
    }

    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// What [`CmId::set_cookie`] has left here, at first 0.
    pub fn cookie(&self) -> u64 {
        self.cookie.load(Ordering::Acquire)
    }

    /// Leaves a value for whoever gets an event of this id.
    pub fn set_cookie(&self, cookie: u64) {
        self.cookie.store(cookie, Ordering::Release);
    }

    /// Where the id is in its life.
    pub fn state(&self) -> State {
        self.lock().machine.state()
    }

    /// The local address, once there is one.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.lock().local
    }

    /// The other end's address, once there is one.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.lock().peer
    }

    /// The exponent of the acknowledgement timeout that was set (4.096 us times two to its power);
    /// TCP has its own.
    pub fn ack_timeout(&self) -> Option<u8> {
        self.lock().options.ack_timeout
    }

    /// Sets the exponent that [`CmId::ack_timeout`] reports.
    pub fn set_ack_timeout(&self, exponent: u8) {
        self.lock().options.ack_timeout = Some(exponent);
    }

    /// Sets the type of service (RFC 2474) of what is sent from now on, until the connection is
    /// established.
    ///
    /// # Errors
    /// What the system says to it.
    pub fn set_tos(&self, tos: u8) -> Result<(), Error> {
        let mut inner = self.lock();
        inner.options.tos = Some(tos);
        inner.apply_tos()
    }

    /// Whether other ids that allow it too may have the same local address.
    ///
    /// # Errors
    /// `EINVAL` once the id has an address.
    pub fn set_shared(&self, shared: bool) -> Result<(), Error> {
        let mut inner = self.lock();
        inner.machine.may(Command::Bind)?;
        inner.options.shared = shared;
        Ok(())
    }

    /// Whether the IPv6 wildcard address excludes IPv4.
    ///
    /// # Errors
    /// `EINVAL` once the id has an address.
    pub fn set_v6_only(&self, only: bool) -> Result<(), Error> {
        let mut inner = self.lock();
        inner.machine.may(Command::Bind)?;
        inner.options.v6_only = Some(only);
        Ok(())
    }

    /// Takes a local address; port 0 means any that is free. The port is taken from the machine's
    /// own TCP (or UDP) ports.
    ///
    /// # Errors
    /// What the system says to it (`EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES`), or the wrong state.
    pub fn bind(&self, addr: SocketAddr) -> Result<(), Error> {
        let mut inner = self.lock();
        inner.machine.may(Command::Bind)?;
        inner.take_address(self.space, addr)?;
        inner.machine.bind()?;
        Ok(())
    }

    /// Finds the way to `dst`, and with it a source address unless the id has one; `src` is used
    /// if the id is not bound. The outcome is an event.
    ///
    /// # Errors
    /// The wrong state, two address families, or a source address that cannot be bound.
    pub fn resolve_addr(&self, src: Option<SocketAddr>, dst: SocketAddr) -> Result<(), Error> {
        let mut inner = self.lock();
        inner.machine.may(Command::ResolveAddr)?;
        let src = inner.local.or(src).unwrap_or_else(|| wildcard(&dst));
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(Error::Family);
        }
        let outcome = match socket::route(src, dst) {
            Ok((mut from, to)) => {
                from.set_port(src.port());
                inner.settle_source(self.space, from)?;
                inner.peer = Some(to);
                Ok(())
            }
            Err(NoRoute::Source(e)) => return Err(e.into()),
            Err(NoRoute::Destination(e)) => Err(failure(&e)),
        };
        inner.machine.resolve_addr()?;
        inner.machine.handle_addr(outcome);
        self.publish(&mut inner);
        Ok(())
    }

    /// Finds the route, which IP has already done. The outcome is an event.
    ///
    /// # Errors
    /// The wrong state.
    pub fn resolve_route(&self) -> Result<(), Error> {
        let mut inner = self.lock();
        inner.machine.resolve_route()?;
        inner.machine.handle_route(Ok(()));
        self.publish(&mut inner);
        Ok(())
    }

    /// Confirms a connection by hand.
    ///
    /// # Errors
    /// Always: iWARP establishes by itself.
    pub fn establish(&self) -> Result<(), Error> {
        Ok(self.lock().machine.establish()?)
    }

    /// Takes note of an event of the queue pair, of which iWARP has no use.
    ///
    /// # Errors
    /// The wrong state.
    pub fn notify(&self) -> Result<(), Error> {
        Ok(self.lock().machine.notify()?)
    }

    /// Sends future events, and those that wait, to another channel. Returns once all that were
    /// delivered from the old one are acknowledged.
    pub fn migrate(&self, channel: &Arc<EventChannel>) {
        {
            let mut inner = self.lock();
            let old = std::mem::replace(&mut inner.channel, channel.clone());
            // Nothing can be added meanwhile: that takes the id's lock.
            for delivery in old.withdraw(self) {
                channel.push(delivery);
            }
        }
        self.account.wait();
    }

    /// The channel that events go to.
    pub fn channel(&self) -> Arc<EventChannel> {
        self.lock().channel.clone()
    }

    /// An event of this id that was delivered has been dealt with.
    pub fn acknowledge(&self) {
        self.account.settle();
    }

    /// Ends whatever the id was about, drops its events that were not delivered, and returns once
    /// those that were are acknowledged. A connection is closed gracefully, a request rejected.
    pub fn destroy(&self) {
        let (stage, qp, channel) = {
            let mut inner = self.lock();
            inner.dead = true;
            // A queue pair that is just taking over finds the id dead and closes by itself.
            let linked = matches!(inner.stage, Stage::Linked);
            let qp = inner.qp.upgrade().filter(|_| linked);
            (inner.leave_stage(), qp, inner.channel.clone())
        };
        stage.close();
        if let Some(qp) = qp {
            qp.disconnect();
        }
        for delivery in channel.withdraw(self) {
            // Of a listener: a request that nobody will ever answer.
            if delivery.listen.is_some() {
                delivery.id.destroy();
            }
        }
        self.account.wait();
    }

    /// Queues the events of the state machine.
    pub(super) fn publish(&self, inner: &mut Inner) {
        while let Some(event) = inner.machine.poll_event() {
            let Some(id) = self.me.upgrade().filter(|_| !inner.dead) else { continue };
            inner.channel.push(Delivery { id, listen: None, event });
        }
    }

    pub(super) fn space(&self) -> PortSpace {
        self.space
    }
}

impl Inner {
    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    /// Takes what the stage owns, and stops the engine from watching it.
    pub(super) fn leave_stage(&mut self) -> Stage {
        self.deadline = None;
        let stage = std::mem::take(&mut self.stage);
        match &stage {
            Stage::Listening(listener) => listener.stop(),
            Stage::Dialing(attempt) => attempt.stop(),
            _ => {}
        }
        stage
    }

    /// Opens a socket that keeps `addr`.
    pub(super) fn take_address(&mut self, space: PortSpace, addr: SocketAddr) -> Result<(), Error> {
        let fd = self.open(space, &addr)?;
        let bound = socket::bind(fd.as_fd(), &addr, self.options.shared);
        match bound {
            Err(e) if addr.port() == 0 && e.raw_os_error() == Some(libc::EADDRINUSE) => {
                // Every free port is spoken for, but not for every destination.
                socket::defer_port(fd.as_fd())?;
                socket::bind(fd.as_fd(), &addr, self.options.shared)?;
            }
            other => other?,
        }
        self.local = Some(socket::local_addr(fd.as_fd())?);
        self.stage = Stage::Bound(fd);
        self.apply_tos()
    }

    /// Opens a socket of the id's options, and binds it to the id's local address.
    pub(super) fn reopen(&self) -> Result<OwnedFd, Error> {
        let local = self.local.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        let fd = self.open(PortSpace::Tcp, &local)?;
        socket::bind(fd.as_fd(), &local, true)?;
        if let Some(tos) = self.options.tos {
            socket::set_tos(fd.as_fd(), local.is_ipv6(), tos)?;
        }
        Ok(fd)
    }

    fn open(&self, space: PortSpace, addr: &SocketAddr) -> Result<OwnedFd, Error> {
        let kind = match space {
            PortSpace::Tcp => Kind::Stream,
            PortSpace::Udp => Kind::Datagram,
        };
        let fd = socket::open(addr, kind)?;
        if let (true, Some(only)) = (addr.is_ipv6(), self.options.v6_only) {
            socket::set_v6_only(fd.as_fd(), only)?;
        }
        Ok(fd)
    }

    /// Binds to `from` unless bound already; a wildcard's place is taken by the route's address.
    fn settle_source(&mut self, space: PortSpace, from: SocketAddr) -> Result<(), Error> {
        match &mut self.local {
            Some(local) => {
                if local.ip().is_unspecified() {
                    local.set_ip(from.ip());
                }
                Ok(())
            }
            None => self.take_address(space, from),
        }
    }

    fn apply_tos(&self) -> Result<(), Error> {
        let (Some(tos), Some(local)) = (self.options.tos, self.local) else { return Ok(()) };
        let fd = match &self.stage {
            Stage::Bound(fd) => fd.as_fd(),
            Stage::Listening(listener) => listener.as_fd(),
            Stage::Dialing(attempt) => attempt.as_fd(),
            Stage::Refused(call) => call.fd.as_fd(),
            Stage::Requested(request) => request.as_fd(),
            Stage::Quiet | Stage::Linking(_) | Stage::Linked => return Ok(()),
        };
        Ok(socket::set_tos(fd, local.is_ipv6(), tos)?)
    }
}

/// "Any address" of the family of `addr`.
pub(super) fn wildcard(addr: &SocketAddr) -> SocketAddr {
    if addr.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    }
}

/// An error of a socket call as an outcome of a connection attempt.
pub(super) fn failure(error: &std::io::Error) -> Failure {
    Failure::from_errno(error.raw_os_error().unwrap_or(libc::EIO))
}
