//! rdma-cm: ids, their channel of events, and how they become connections.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weft_host::{DeviceId, HostQp};
use weft_os::clock;
use weft_rdmacm::{CmError, CmEvent, CmId, ConnParam, EventChannel, EventKind, PortSpace, QpTerms};

use super::{EventBell, host};
use crate::terms::{Happened, ReadDepth};

/// Requests that may wait to be accepted.
const BACKLOG: usize = 256;
/// Time limit of address resolution.
const RESOLVING: Duration = Duration::from_secs(10);
/// `retry_count` and `rnr_retry_count`: the most, and without limit.
const RETRIES: u8 = 7;

/// A channel of events.
pub struct HostCm {
    channel: Arc<EventChannel>,
    bell: EventBell,
}

impl HostCm {
    /// A channel without ids.
    ///
    /// # Errors
    /// The system has no more descriptors, or no thread for the host.
    pub fn new() -> Result<Self> {
        let bell = EventBell::new()?;
        let channel = EventChannel::with_wake(host(), bell.wake());
        Ok(Self { channel: channel.context("opening a channel of rdma-cm")?, bell })
    }

    /// Readable when something has happened.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.fd()
    }

    fn id(&self) -> HostCmId {
        let transport = self.channel.host().settings().transport;
        HostCmId::own(CmId::new(Arc::clone(&self.channel), PortSpace::Tcp, transport))
    }

    /// Listens at an address; with port 0 the system chooses one.
    ///
    /// # Errors
    /// No device has the address, or the port is taken.
    pub fn listen(&self, address: SocketAddr) -> Result<HostCmId> {
        let id = self.id();
        check(id.cm.bind(address), "binding an id").with_context(|| format!("at {address}"))?;
        check(id.cm.listen(BACKLOG), "listening").with_context(|| format!("at {address}"))?;
        Ok(id)
    }

    /// Begins to call an address.
    ///
    /// # Errors
    /// The system has no more of something.
    pub fn dial(&self, address: SocketAddr) -> Result<HostCmId> {
        let id = self.id();
        let begun = id.cm.resolve_addr(None, address, RESOLVING);
        check(begun, "resolving an address").with_context(|| address.to_string())?;
        Ok(id)
    }

    /// The next event: the id that it is about, by its [`HostCmId::key`], and what it is. Sleeps
    /// until there is one.
    ///
    /// # Errors
    /// The channel cannot be read.
    pub fn next(&self) -> Result<(usize, Happened<HostCmId>)> {
        self.bell.take()?;
        let delivery = self.channel.wait_until(Some(clock::now())).context("reading an event")?;
        // The id of one that was counted may be gone with it.
        let Some(delivery) = delivery else { return Ok((0, Happened::Other)) };
        let owner = Arc::clone(delivery.owner());
        owner.acknowledge();
        Ok((key(&owner), read(delivery.event, delivery.id)))
    }
}

fn read(event: CmEvent, id: Arc<CmId>) -> Happened<HostCmId> {
    match event.kind {
        EventKind::AddrResolved => Happened::AddressResolved,
        EventKind::RouteResolved => Happened::RouteResolved,
        EventKind::ConnectRequest => Happened::Request(HostCmId::own(id), event.private_data),
        EventKind::Established => Happened::Established(event.private_data),
        EventKind::Disconnected | EventKind::DeviceRemoval => Happened::Disconnected,
        EventKind::AddrError
        | EventKind::RouteError
        | EventKind::ConnectError
        | EventKind::Unreachable
        | EventKind::Rejected => Happened::Failed(reason(&event)),
        _ => Happened::Other,
    }
}

/// The name and the reason of a failure.
fn reason(event: &CmEvent) -> String {
    let name = match event.kind {
        EventKind::AddrError => "the address cannot be resolved",
        EventKind::RouteError => "there is no route",
        EventKind::Unreachable => "the peer does not answer",
        EventKind::Rejected => "the peer rejects the connection",
        _ => "the connection failed",
    };
    match event.status {
        0 => name.to_owned(),
        status => format!("{name}: {}", io::Error::from_raw_os_error(status.saturating_abs())),
    }
}

/// What names an id in events.
fn key(cm: &Arc<CmId>) -> usize {
    Arc::as_ptr(cm) as usize
}

/// An id, which goes away with this.
pub struct HostCmId {
    cm: Arc<CmId>,
    connected: Cell<bool>,
}

impl std::fmt::Debug for HostCmId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostCmId({:#x})", self.key())
    }
}

impl HostCmId {
    fn own(cm: Arc<CmId>) -> Self {
        Self { cm, connected: Cell::new(false) }
    }

    /// Key by which events name the id.
    pub fn key(&self) -> usize {
        key(&self.cm)
    }

    /// TCP or UDP port that it listens at.
    pub fn port(&self) -> u16 {
        self.cm.local_addr().map_or(0, |address| address.port())
    }

    /// Its device; none before its address is resolved.
    pub(super) fn device_id(&self) -> Option<DeviceId> {
        self.cm.device()
    }

    /// The name of its device; empty before its address is resolved.
    pub fn device(&self) -> String {
        self.device_id().map(|id| host().devices().name(id).to_owned()).unwrap_or_default()
    }

    /// Resolves the route to the peer.
    ///
    /// # Errors
    /// The address is not resolved.
    pub fn find_route(&self) -> Result<()> {
        check(self.cm.resolve_route(), "finding a route")
    }

    /// Asks the peer for a connection of this queue pair.
    ///
    /// # Errors
    /// The route is not known, or the queue pair cannot be connected.
    pub(super) fn connect(&self, qp: &Arc<HostQp>, depth: ReadDepth, data: &[u8]) -> Result<()> {
        self.connected.set(true);
        check(self.cm.connect(&param(qp, depth, data), qp), "connecting")
    }

    /// Grants a peer the connection that it asks for, to this queue pair.
    ///
    /// # Errors
    /// The peer is gone, or the queue pair cannot be connected.
    pub(super) fn accept(&self, qp: &Arc<HostQp>, depth: ReadDepth, data: &[u8]) -> Result<()> {
        self.connected.set(true);
        check(self.cm.accept(&param(qp, depth, data), qp), "accepting")
    }

    /// Ends the connection, if there was one.
    pub(super) fn disconnect(&self) {
        if self.connected.replace(false) {
            // A connection that is over needs no end.
            let _ = self.cm.disconnect();
        }
    }

    /// Tells a peer that it gets no connection.
    pub fn reject(&self) {
        // A peer that is gone need not be told.
        let _ = self.cm.reject(&[]);
    }
}

impl Drop for HostCmId {
    fn drop(&mut self) {
        self.disconnect();
        self.cm.destroy();
    }
}

fn param(qp: &Arc<HostQp>, depth: ReadDepth, private_data: &[u8]) -> ConnParam {
    ConnParam {
        responder_resources: depth.depth,
        initiator_depth: depth.depth,
        private_data: private_data.to_vec(),
        terms: QpTerms {
            qp_num: qp.num(),
            retry_count: RETRIES,
            rnr_retry_count: RETRIES,
            ..QpTerms::default()
        },
    }
}

fn check(result: Result<(), CmError>, what: &'static str) -> Result<()> {
    match result {
        Ok(()) => Ok(()),
        Err(error) => bail!("{what}: {error}"),
    }
}
