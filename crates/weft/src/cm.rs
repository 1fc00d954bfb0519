//! Connections by rdma-cm: who listens, who connects, and what they tell each other meanwhile.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, io};

use weft_host::DeviceKind;
use weft_os::clock;
use weft_rdmacm::{self as cm, CmEvent, CmId, ConnParam, EventChannel, EventKind};

use crate::bell::Bell;
use crate::device::Device;
use crate::error::CLEAR_UNDER_KEY;
use crate::host::LocalHost;
use crate::qp::QueuePair;
use crate::wait::{Limit, Waiting, block_on};
use crate::{Error, Result, host};

/// How long a peer whose connection was accepted may take to confirm it. The manager gives up
/// before this.
const CONFIRM: Duration = Duration::from_secs(60);

/// The errno of a peer that may not be spoken to.
const EACCES: i32 = 13;

/// An id, and the channel of its events with its bell.
struct IdHandle {
    id: Arc<CmId>,
    channel: Arc<EventChannel>,
    bell: Arc<Bell>,
    host: LocalHost,
    /// Nothing follows: the connection has ended, or the device was reset.
    is_over: AtomicBool,
}

impl Drop for IdHandle {
    fn drop(&mut self) {
        self.id.destroy();
    }
}

impl IdHandle {
    /// A new id for connections by `device`.
    fn new(device: &Device, during: &'static str) -> Result<Self> {
        let (host, bell) = (device.host().clone(), Arc::default());
        let channel = host.event_channel(during, &bell)?;
        let id = host::cm_id(&channel, device.kind());
        Ok(Self { id, channel, bell, host, is_over: AtomicBool::new(false) })
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Remembers that nothing follows.
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        // Others may wait for the event that was taken here.
        self.bell.ring();
    }

    /// The next event, and the new id of a request, if there is one now.
    fn poll_event(&self) -> Result<Option<(CmEvent, Arc<CmId>)>> {
        let during = "waiting for an event of rdma-cm";
        let delivery = self.channel.wait_until(Some(clock::now()));
        let delivery = delivery.map_err(|source| Error::System { during, source })?;
        Ok(delivery.map(|delivery| {
            delivery.owner().acknowledge();
            (delivery.event, delivery.id)
        }))
    }

    /// What `look` finds once there are events, or nothing after `limit`.
    fn wait<'a, Look>(&'a self, limit: Option<Duration>, look: Look) -> Waiting<'a, Look> {
        let until = limit.and_then(|limit| clock::now().checked_add(limit));
        Waiting::new(&self.bell, until.map(|until| Limit { until, host: &self.host }), look)
    }

    /// Waits for the event `wanted`, which says that the last command has worked.
    async fn expect(
        &self,
        during: &'static str,
        peer: SocketAddr,
        wanted: EventKind,
        limit: Duration,
    ) -> Result<CmEvent> {
        let found = self.wait(Some(limit), || self.poll_event()).await?;
        let Some((event, _)) = found else {
            return Err(Error::TimedOut { during, after: limit });
        };
        match event.kind {
            kind if kind == wanted => Ok(event),
            // The manager says so of a peer that cannot read what this host says.
            _ if event.status == -EACCES => Err(Error::Forbidden {
                during,
                why: match self.id.personality() {
                    DeviceKind::Roce => "this host and the peer have no key in common",
                    DeviceKind::Iwarp => CLEAR_UNDER_KEY,
                },
            }),
            EventKind::DeviceRemoval => Err(Error::DeviceReset { during }),
            EventKind::Rejected => {
                let CmEvent { status, private_data, .. } = event;
                Err(Error::Rejected { peer, status, private_data })
            }
            _ => Err(Error::Unreachable { peer, source: reason(&event) }),
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.id.local_addr().unwrap_or_else(nowhere)
    }

    fn peer_addr(&self) -> SocketAddr {
        self.id.peer_addr().unwrap_or_else(nowhere)
    }
}

/// Protocol error.
const EPROTO: i32 = 71;

/// What stands for an address that is not known.
fn nowhere() -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, 0).into()
}

fn reason(event: &CmEvent) -> io::Error {
    match event.status {
        errno @ ..0 => io::Error::from_raw_os_error(-errno),
        _ => io::Error::other(format!("{:?}", event.kind)),
    }
}

/// Whether the peer of a request that is accepted has gone, or broken the protocol.
fn has_left(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionReset || error.raw_os_error() == Some(EPROTO)
}

fn refused(during: &'static str) -> impl FnOnce(cm::CmError) -> Error {
    move |error| match error {
        cm::CmError::Verbs(misuse) => Error::of(during)(misuse),
        cm::CmError::System(source) => Error::System { during, source },
        other => Error::Invalid { during, why: other.to_string().into() },
    }
}

/// Waits for connections. It stops with its last handle.
#[derive(Clone)]
#[must_use = "a listener stops when it is dropped"]
pub struct Listener {
    id: Arc<IdHandle>,
    device: Device,
}

impl Listener {
    /// Listens at `addr` for peers of the device; port 0 means any that is free.
    ///
    /// If the device is reset, a listener at an address of its own ends. One at the unspecified
    /// address is on no device, as in the kernel: it goes on, for queue pairs of the device that
    /// the application opens again. [`Device::next_event`] tells of a reset.
    ///
    /// # Errors
    /// [`Error::System`] if the address is not this host's, or taken.
    pub fn bind(device: &Device, addr: SocketAddr) -> Result<Self> {
        let during = "listening";
        let id = IdHandle::new(device, during)?;
        id.id.bind(addr).map_err(refused(during))?;
        id.id.listen(0).map_err(refused(during))?;
        Ok(Self { id: Arc::new(id), device: device.clone() })
    }

    /// The address that it listens at.
    pub fn local_addr(&self) -> SocketAddr {
        self.id.local_addr()
    }

    /// Waits for the next request of a peer.
    ///
    /// # Errors
    /// [`Error::DeviceReset`] once the device was reset, from then on; [`Error::System`].
    pub fn accept(&self) -> Result<Incoming> {
        block_on(self.accept_async())
    }

    /// The same, for `limit` at most.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if nobody came; otherwise as [`Listener::accept`].
    pub fn accept_within(&self, limit: Duration) -> Result<Incoming> {
        let incoming = block_on(self.id.wait(Some(limit), || self.poll_request()))?;
        incoming.ok_or(Error::TimedOut { during: "waiting for a peer", after: limit })
    }

    /// The next request of a peer, as a future that any executor may drive; what
    /// [`CompletionQueue::next`](crate::CompletionQueue::next) says of wakers holds here too.
    /// Dropping it loses no request.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub async fn accept_async(&self) -> Result<Incoming> {
        loop {
            if let Some(incoming) = self.id.wait(None, || self.poll_request()).await? {
                return Ok(incoming);
            }
        }
    }

    /// The next request, if there is one now.
    fn poll_request(&self) -> Result<Option<Incoming>> {
        while !self.id.is_over() {
            let Some((event, id)) = self.id.poll_event()? else { return Ok(None) };
            match event.kind {
                EventKind::ConnectRequest => return self.welcome(event, id).map(Some),
                EventKind::DeviceRemoval => self.id.end(),
                _ => {}
            }
        }
        Err(Error::DeviceReset { during: "waiting for a peer" })
    }

    /// Gives a request a channel of its own.
    fn welcome(&self, event: CmEvent, id: Arc<CmId>) -> Result<Incoming> {
        let (host, bell) = (self.device.host().clone(), Arc::default());
        let channel = match host.event_channel("accepting a connection", &bell) {
            Ok(channel) => channel,
            Err(error) => {
                id.destroy();
                return Err(error);
            }
        };
        id.migrate(&channel);
        let id = IdHandle { id, channel, bell, host, is_over: AtomicBool::new(false) };
        Ok(Incoming { id, event, device: self.device.clone() })
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Listener").field(&self.local_addr()).finish()
    }
}

/// A peer that wants to connect. Dropping it refuses.
#[must_use = "a peer is refused when this is dropped"]
pub struct Incoming {
    id: IdHandle,
    event: CmEvent,
    device: Device,
}

impl Incoming {
    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.id.peer_addr()
    }

    /// What the peer said along. On `weft0` it is filled up with zeroes to 56 bytes at least, as
    /// InfiniBand does.
    pub fn private_data(&self) -> &[u8] {
        &self.event.private_data
    }

    /// The device that the connection is to be one of.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Accepts, with `qp` at this end and at most 251 bytes for the peer, of which an adapter's
    /// takes 196; returns once the peer has confirmed. Receives may be posted before.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a queue pair of another device or one that is not new, or too much
    /// private data; [`Error::Unreachable`], [`Error::Rejected`] or, after 60 s,
    /// [`Error::TimedOut`] if the peer is gone or does not confirm; [`Error::Forbidden`] if the
    /// policy of this host forbids the peer; [`Error::DeviceReset`]; [`Error::System`]. Then the
    /// peer is refused, or its connection ended.
    pub fn accept(self, qp: &QueuePair, private_data: &[u8]) -> Result<Connection> {
        block_on(self.accept_async(qp, private_data))
    }

    /// The same as a future. Dropping it ends the connection.
    ///
    /// # Errors
    /// As [`Incoming::accept`].
    pub async fn accept_async(self, qp: &QueuePair, private_data: &[u8]) -> Result<Connection> {
        let during = "accepting a connection";
        let peer = self.peer_addr();
        let param = ConnParam {
            responder_resources: self.event.responder_resources,
            initiator_depth: self.event.initiator_depth,
            private_data: private_data.to_vec(),
            ..ConnParam::device_max()
        };
        self.id.id.accept(&param, qp.engine()).map_err(|error| match error {
            cm::CmError::System(source) if has_left(&source) => Error::Unreachable { peer, source },
            other => refused(during)(other),
        })?;
        self.id.expect(during, peer, EventKind::Established, CONFIRM).await?;
        Ok(Connection::new(self.id, qp, self.event.private_data))
    }

    /// Refuses, with at most 251 bytes for the peer, of which an adapter's takes 148.
    ///
    /// # Errors
    /// [`Error::Invalid`] for too much private data.
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        self.id.id.reject(private_data).map_err(refused("refusing a connection"))
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Incoming").field(&self.peer_addr()).finish()
    }
}

/// A connection of a queue pair. It ends when its last handle is dropped, or by
/// [`Connection::disconnect`] of any.
#[derive(Clone)]
#[must_use = "a connection ends when it is dropped"]
pub struct Connection {
    id: Arc<IdHandle>,
    qp: QueuePair,
    private_data: Arc<[u8]>,
}

impl Connection {
    fn new(id: IdHandle, qp: &QueuePair, private_data: Vec<u8>) -> Self {
        Self { id: Arc::new(id), qp: qp.clone(), private_data: private_data.into() }
    }

    /// Connects `qp`, a new queue pair, to whom listens at `to`, with at most 251 bytes for it, of
    /// which an adapter's takes 56; returns once the peer has accepted. `limit` counts twice: for
    /// how the peer is reached, and for its answer.
    ///
    /// # Errors
    /// [`Error::Rejected`] by the peer, [`Error::Unreachable`] with the reason,
    /// [`Error::TimedOut`], [`Error::Forbidden`] if both have no key in common,
    /// [`Error::Invalid`] for a queue pair that is not new or port 0, [`Error::DeviceReset`],
    /// [`Error::System`]. A queue pair whose connection was rejected has failed.
    pub fn open(
        qp: &QueuePair,
        to: SocketAddr,
        private_data: &[u8],
        limit: Duration,
    ) -> Result<Self> {
        block_on(Self::open_async(qp, to, private_data, limit))
    }

    /// The same from the address `from` of this host, where port 0 means any that is free.
    ///
    /// # Errors
    /// As [`Connection::open`]; also [`Error::System`] if `from` is not this host's or taken, and
    /// [`Error::Invalid`] if one address is of IPv4 and the other of IPv6.
    pub fn open_from(
        qp: &QueuePair,
        from: SocketAddr,
        to: SocketAddr,
        private_data: &[u8],
        limit: Duration,
    ) -> Result<Self> {
        block_on(Self::open_from_async(qp, from, to, private_data, limit))
    }

    /// The same as a future that any executor may drive; what
    /// [`CompletionQueue::next`](crate::CompletionQueue::next) says of wakers holds here too.
    /// Dropping it gives the attempt up.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub async fn open_async(
        qp: &QueuePair,
        to: SocketAddr,
        private_data: &[u8],
        limit: Duration,
    ) -> Result<Self> {
        Self::open_by(qp, None, to, private_data, limit).await
    }

    /// The same as [`Connection::open_async`], from the address `from` of this host.
    ///
    /// # Errors
    /// As [`Connection::open_from`].
    pub async fn open_from_async(
        qp: &QueuePair,
        from: SocketAddr,
        to: SocketAddr,
        private_data: &[u8],
        limit: Duration,
    ) -> Result<Self> {
        Self::open_by(qp, Some(from), to, private_data, limit).await
    }

    async fn open_by(
        qp: &QueuePair,
        from: Option<SocketAddr>,
        to: SocketAddr,
        private_data: &[u8],
        limit: Duration,
    ) -> Result<Self> {
        let during = "connecting";
        if to.port() == 0 {
            return Err(Error::invalid(during, "nobody listens at port 0"));
        }
        let id = IdHandle::new(qp.device(), during)?;
        id.id.resolve_addr(from, to, limit).map_err(refused(during))?;
        id.expect(during, to, EventKind::AddrResolved, limit).await?;
        id.id.resolve_route().map_err(refused(during))?;
        id.expect(during, to, EventKind::RouteResolved, limit).await?;
        let param = ConnParam { private_data: private_data.to_vec(), ..ConnParam::device_max() };
        id.id.connect(&param, qp.engine()).map_err(refused(during))?;
        let event = id.expect(during, to, EventKind::Established, limit).await?;
        Ok(Self::new(id, qp, event.private_data))
    }

    /// The queue pair at this end.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.qp
    }

    /// The address of this end.
    pub fn local_addr(&self) -> SocketAddr {
        self.id.local_addr()
    }

    /// The address of the peer.
    pub fn peer_addr(&self) -> SocketAddr {
        self.id.peer_addr()
    }

    /// What the peer said along when the connection was made. On `weft0` it is filled up with
    /// zeroes, as InfiniBand does.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Ends the connection. Requests that are not complete fail, and so do receives: of a
    /// [`DeviceKind::Roce`] queue pair whose peer has ended the connection, as
    /// [`Connection::ended`] says, they wait until then. That is also how such a queue pair learns
    /// that a request of its peer has failed at the peer's own end.
    ///
    /// # Errors
    /// None that an application could do something about.
    pub fn disconnect(&self) -> Result<()> {
        self.id.id.disconnect().map_err(refused("disconnecting"))
    }

    /// Waits until the connection is over, for `limit` at most; whether it is. It is over when
    /// either end has ended it, when it has failed, and when the device was reset. That the time is
    /// over is `Ok(false)`, and not [`Error::TimedOut`] as of other calls with a limit.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn wait_end(&self, limit: Duration) -> Result<bool> {
        let found = block_on(self.id.wait(Some(limit), || self.poll_end()))?;
        Ok(found.is_some())
    }

    /// The end of the connection, of which [`Connection::wait_end`] tells, as a future.
    ///
    /// # Errors
    /// [`Error::System`].
    pub async fn ended(&self) -> Result<()> {
        while self.id.wait(None, || self.poll_end()).await?.is_none() {}
        Ok(())
    }

    /// Whether the connection is over now.
    fn poll_end(&self) -> Result<Option<()>> {
        while !self.id.is_over() {
            let Some((event, _)) = self.id.poll_event()? else { return Ok(None) };
            if matches!(event.kind, EventKind::Disconnected | EventKind::DeviceRemoval) {
                self.id.end();
            }
        }
        Ok(Some(()))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connection")
            .field("peer", &self.peer_addr())
            .field("qp", &self.qp)
            .finish_non_exhaustive()
    }
}
