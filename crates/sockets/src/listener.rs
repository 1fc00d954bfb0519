//! Listeners that are served by SDP as well as by TCP.
//!
//! The kernel's TCP connection is made in each case: it is the entry in the listener's queue, the
//! error if there is one, the stream to a peer without SDP, and the liveness of the other process
//! with it. A peer that speaks SDP sends its Hello before it connects by TCP, so it is granted SDP
//! before the application accepts the TCP connection and `accept` need not wait; both are matched
//! by the peer's address and, on this host, its user (`grants`).
//!
//! Invariant: a peer that was accepted by TCP is not granted SDP for the same connection.

use std::cell::LazyCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use libc::c_int;
use weft_os::clock::{self, Moment};
use weft_rdmacm::{CmEvent, CmId, PortSpace};
use weft_sdp::HelloRequest;
use weft_sync::{Mutex, MutexGuard};

use crate::conn::SdpConn;
use crate::conn::state::ConnPhase;
use crate::conn::table::ConnTable;
use crate::fabric::Fabric;
use crate::grants::{HelloSender, PendingGrant, PendingGrants};
use crate::handoff::{Grants, HandoffServer, SpareDescriptor};
use crate::names::SocketEnds;
use crate::pair::PairOffers;
use crate::report::Carrier;
use crate::socket_diag::SocketDiag;
use crate::sys::{self, Inode};
use crate::{address, grants, strict};

/// Peers that were accepted by TCP and may still ask for SDP, at most.
const TCP_PEERS_MAX: usize = 4096;
/// How long such a peer is remembered, and how long nobody tries again to serve a listener.
const TCP_PEER_LIFETIME: Duration = Duration::from_secs(10);

/// The peers of a listener that the application has not accepted, or lately by TCP.
#[derive(Default)]
struct Peers {
    granted: PendingGrants<Arc<SdpConn>>,
    tcp: VecDeque<(SocketAddr, Moment)>,
}

impl Peers {
    /// Makes room for a grant to `sender`, whose TCP address is `peer`, as
    /// [`PendingGrants::make_room`] does. None too if that peer was accepted by TCP.
    fn make_room(
        &mut self,
        most: usize,
        sender: &HelloSender,
        peer: SocketAddr,
        now: Moment,
    ) -> Option<Option<Arc<SdpConn>>> {
        self.tcp.retain(|(_, since)| now < *since + TCP_PEER_LIFETIME);
        if self.tcp.iter().any(|(other, _)| *other == peer) {
            return None;
        }
        self.granted.retain(|conn| !conn.lock().is_over());
        // Asked only where there is no room. Where the system does not say, it may have.
        let diag = LazyCell::new(SocketDiag::open);
        let has_called =
            |ends: &SocketEnds| diag.as_ref().map_or(true, |diag| diag.has_connection(ends));
        self.granted.make_room(most, sender, now, has_called)
    }
}

/// A listener that is served by SDP.
pub struct SdpListener {
    /// Names it among those of the process.
    id: u64,
    /// The address that the application listens at.
    at: SocketAddr,
    /// `SO_REUSEPORT`: others may listen there too, and the kernel chooses among them.
    is_shared: bool,
    /// What the application has set as `TCP_DEFER_ACCEPT`; see [`SdpListener::take_deferral`].
    deferral: AtomicI32,
    fabric: Fabric,
    cm: Arc<CmId>,
    peers: Mutex<Peers>,
    handoff: Mutex<Option<HandoffServer>>,
    pairs: Option<PairOffers>,
    conns: &'static ConnTable,
}

impl SdpListener {
    /// Ends it. Granted connections that wait to be accepted are reset.
    fn stop(&self) {
        self.cm.destroy();
        *self.handoff.lock() = None;
        let granted = self.peers().granted.take_all();
        granted.for_each(|conn| conn.revoke());
    }

    /// Takes `TCP_DEFER_ACCEPT` from the listener, which is at `fd`, and remembers it: the TCP
    /// connection of a peer with SDP or a pair brings no data, so it would not be accepted before
    /// the time that the option says.
    pub fn take_deferral(&self, fd: RawFd) {
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT);
        let deferral = sys::option(fd, level, name).unwrap_or(0);
        sys::set_option(fd, level, name, &0_i32.to_ne_bytes());
        self.deferral.store(deferral, Ordering::Relaxed);
    }

    /// Gives the listener, which is `socket`, what was taken from it, where this process still has
    /// it: from now on its connections are the kernel's alone.
    fn return_deferral(&self, socket: Inode) {
        let deferral = self.deferral();
        if deferral != 0
            && let Some(fd) = sys::find(socket).first()
        {
            let (level, name) = (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT);
            sys::set_option(*fd, level, name, &deferral.to_ne_bytes());
        }
    }

    /// What [`SdpListener::take_deferral`] has found.
    pub fn deferral(&self) -> c_int {
        self.deferral.load(Ordering::Relaxed)
    }

    /// The end of a pair that `peer` has offered for the connection accepted as `stream`.
    fn claim_pair(&self, stream: RawFd, peer: SocketAddr) -> io::Result<Option<OwnedFd>> {
        let (Some(pairs), Ok(local)) = (&self.pairs, sys::local(stream)) else { return Ok(None) };
        let end = pairs.claim(&SocketEnds { local, remote: peer })?;
        if end.is_some() {
            self.conns.env.reports.accepted(peer, Carrier::Pair);
        }
        Ok(end)
    }

    /// The grant for the connection from `peer` that was accepted as `stream`. Others for this
    /// address end: who has sent their Hellos does not have that connection.
    ///
    /// # Errors
    /// As for [`HelloSender::may_connect`]. All of them have ended.
    fn take_grant(&self, stream: RawFd, peer: SocketAddr) -> io::Result<Option<Arc<SdpConn>>> {
        let granted = self.peers().granted.take(peer);
        let local = sys::local(stream).unwrap_or(self.at);
        let mut found = Ok(None);
        for PendingGrant { sender, conn, .. } in granted {
            let may = match &found {
                Ok(None) => {
                    let ends = SocketEnds { local: peer, remote: local };
                    sender.may_connect(&ends, || sys::has_ended_empty(stream))
                }
                _ => Ok(false),
            };
            match may {
                Ok(true) => found = Ok(Some(conn)),
                Ok(false) => conn.revoke(),
                Err(error) => {
                    conn.revoke();
                    found = Err(error);
                }
            }
        }
        found
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock()
    }

    /// Grants the peer that asks by `id` a connection, or rejects it. At most `most` wait to be
    /// accepted.
    pub fn admit(&self, id: &Arc<CmId>, event: &CmEvent, most: usize) {
        if self.try_admit(id, event, most).is_none() {
            // A peer that has left needs no answer.
            let _ = id.reject(&[]);
            id.destroy();
        }
    }

    fn try_admit(&self, id: &Arc<CmId>, event: &CmEvent, most: usize) -> Option<()> {
        let request = HelloRequest::parse(&event.private_data).ok()?;
        let names = request.names();
        let from = Ipv6Addr::from(names.from);
        let ip = if names.ip_version == 4 { last_four(names.from) } else { IpAddr::V6(from) };
        let from_below = id.peer_addr()?;
        let seen = from_below.ip().to_canonical();
        // A peer behind address translation would not be found by its TCP address.
        if seen != ip || !self.is_meant(id, &names.to) {
            return None;
        }
        if self.is_shared && !sys::is_only_listener(self.at.port()) {
            return None;
        }
        let sender = self.sender_of(id, from_below)?;
        // With the interface, for an address that is good on one link only.
        let mut peer = address::plain(from_below);
        peer.set_port(names.port);
        let mut local = id.local_addr().unwrap_or(self.at);
        local.set_port(self.at.port());
        let ends = SocketEnds { local, remote: peer };
        let now = clock::now();
        let leaving = self.peers().make_room(most, &sender, peer, now)?;
        if let Some(leaving) = leaving {
            leaving.revoke();
        }
        let conn = self.grant(id, seen, peer, request)?;
        let same = self.peers().granted.add(ends, sender, conn, now);
        if let Some(same) = same {
            same.revoke();
        }
        Some(())
    }

    /// Who has sent the Hello of `id`, which came from this address.
    fn sender_of(&self, id: &CmId, from: SocketAddr) -> Option<HelloSender> {
        let ends = SocketEnds { local: from, remote: id.local_addr()? };
        HelloSender::find(self.fabric.protocol(), ends)
    }

    /// Whether the peer means an address of this listener, not one that is translated to it.
    fn is_meant(&self, id: &CmId, to: &[u8; 16]) -> bool {
        let local = id.local_addr().map(|at| at.ip()).unwrap_or(self.at.ip());
        local.is_unspecified() || address::bytes(local) == *to
    }

    fn grant(
        &self,
        id: &Arc<CmId>,
        seen: IpAddr,
        remote: SocketAddr,
        request: HelloRequest,
    ) -> Option<Arc<SdpConn>> {
        let conn =
            SdpConn::new(self.conns, SocketEnds { local: self.at, remote }, ConnPhase::Offered);
        id.set_cookie(conn.id);
        let granted = conn.grant(id, &self.fabric, seen, request);
        if !granted {
            self.conns.remove(conn.id);
            return None;
        }
        Some(conn)
    }
}

impl Grants for SdpListener {
    fn port(&self) -> u16 {
        self.at.port()
    }

    fn claim(
        &self,
        stream: RawFd,
        at: Option<RawFd>,
        peer: SocketAddr,
    ) -> io::Result<Option<OwnedFd>> {
        if let Some(end) = self.claim_pair(stream, peer)? {
            return Ok(Some(end));
        }
        // Requests that were sent before the TCP connection was made are handled after this.
        self.cm.look();
        let env = &self.conns.env;
        env.events.drain();
        let key = address::plain(peer);
        let granted = self.take_grant(stream, key)?;
        let claimed = granted.map(|conn| conn.claim(stream, at)).transpose()?.flatten();
        if claimed.is_some() {
            return Ok(claimed);
        }
        let mut peers = self.peers();
        peers.tcp.push_back((key, clock::now()));
        if peers.tcp.len() > TCP_PEERS_MAX {
            peers.tcp.pop_front();
        }
        let here = sys::local(stream).map_or(self.at, |at| at);
        if !strict::forbids_tcp(&env.settings, here.ip(), peer.ip()) {
            env.reports.accepted(peer, Carrier::Tcp("it did not ask for SDP"));
        }
        Ok(None)
    }
}

/// The listeners of a process that are served by SDP.
#[derive(Default)]
pub struct ListenerTable {
    /// Where pairs are offered to listeners that the parent of this process serves.
    inherited: HashMap<Inode, PairOffers>,
    by_socket: Mutex<HashMap<Inode, Arc<SdpListener>>>,
    /// Their number, readable without the lock.
    count: AtomicUsize,
    /// The listener that could not be served last, and since when.
    failed: Mutex<Option<(Inode, Moment)>>,
    /// For the sockets by which another process is asked.
    pub spare: SpareDescriptor,
}

impl ListenerTable {
    /// Those of the child of a fork, which serves none, and takes the pairs that are offered to
    /// the listeners of its `parent`, unless another thread of that held the lock at the fork.
    pub fn new(parent: Option<&Self>) -> Self {
        let Some(parent) = parent else { return Self::default() };
        let of_parent = parent.by_socket.try_lock();
        let served = of_parent.iter().flat_map(|served| served.iter());
        let served =
            served.filter_map(|(socket, listener)| Some((socket, listener.pairs.as_ref()?)));
        let inherited = served.chain(&parent.inherited);
        let inherited = inherited.map(|(socket, pairs)| (*socket, pairs.inherited())).collect();
        Self { inherited, spare: SpareDescriptor::of_parent(&parent.spare), ..Self::default() }
    }

    /// The end of a pair that was offered to the listener `socket` of a parent for the connection
    /// between `ends`.
    ///
    /// # Errors
    /// As for [`PairOffers::claim`].
    pub fn claim_inherited(&self, socket: Inode, ends: &SocketEnds) -> io::Result<Option<OwnedFd>> {
        self.inherited.get(&socket).map_or(Ok(None), |offers| offers.claim(ends))
    }

    /// Serves the listener behind `fd`, whose peers use `conns`, unless somebody does.
    ///
    /// # Errors
    /// Why peers reach it by TCP only.
    pub fn open(&self, conns: &'static ConnTable, fd: RawFd) -> Result<(), &'static str> {
        let env = &conns.env;
        let at = sys::local(fd).map_err(|_| "it has no address")?;
        let socket = sys::inode(fd).ok_or("it is no socket")?;
        if self.find(socket).is_some() {
            return Ok(());
        }
        let is_shared = sys::option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT) == Some(1);
        if is_shared && !sys::is_only_listener(at.port()) {
            return Err("others listen there too");
        }
        // A closed listener may still have the port.
        self.dismiss(|old, place| place.port() == at.port() && sys::find(old).is_empty());
        let fabric = Fabric::new(env.settings.iwarp);
        let channel = env.events.channel();
        let channel = channel.map_err(|_| "the system has no descriptor left for it")?;
        let cm = CmId::new(channel, PortSpace::Tcp, fabric.transport);
        let id = env.next_id();
        cm.set_cookie(id);
        // A Retry takes a round trip more, and TCP would be connected first.
        cm.set_prompt();
        if listen(&cm, fd, fabric.address_for(at)).is_none() {
            cm.destroy();
            return Err("its port is taken in the transport below");
        }
        env.reports.listens(at, Carrier::Sdp(fabric.name, "and TCP"));
        let takes_pairs = !is_shared && env.settings.pairs_server(at);
        // A parent that is gone has left the place of its offers to its children.
        let offers = || match self.inherited.get(&socket) {
            Some(inherited) => Some(inherited.inherited()),
            None => PairOffers::open(fd, socket).ok(),
        };
        let pairs = takes_pairs.then(offers).flatten();
        let (deferral, peers, handoff) = (AtomicI32::default(), Mutex::default(), Mutex::default());
        let listener = Arc::new(SdpListener {
            id,
            at,
            is_shared,
            deferral,
            fabric,
            cm,
            peers,
            handoff,
            pairs,
            conns,
        });
        listener.take_deferral(fd);
        let weak = Arc::downgrade(&listener);
        *listener.handoff.lock() = HandoffServer::open(socket, weak).ok();
        self.spare.keep();
        let mut all = self.by_socket.lock();
        all.insert(socket, listener);
        self.count.store(all.len(), Ordering::Release);
        Ok(())
    }

    /// Serves a listener again whose process is gone, or that comes from an application without
    /// this library, from the next connection on.
    pub fn take_over(&self, conns: &'static ConnTable, fd: RawFd, socket: Inode) {
        let permitted = sys::local(fd).is_ok_and(|at| conns.env.settings.permits_server(at));
        let Some(mut failed) = self.failed.try_lock() else { return };
        let now = clock::now();
        let lately =
            failed.is_some_and(|(last, at)| last == socket && now < at + TCP_PEER_LIFETIME);
        if permitted && !lately {
            *failed = Some((socket, now));
            // On failure it stays as it is.
            let _ = self.open(conns, fd);
        }
    }

    /// The listener behind a socket, if it is served here.
    pub fn find(&self, socket: Inode) -> Option<Arc<SdpListener>> {
        if self.is_empty() {
            return None;
        }
        self.by_socket.lock().get(&socket).cloned()
    }

    /// Grants that may wait to be accepted at one listener, as the process's limit of descriptors
    /// is at present.
    pub fn grants_max(&self) -> usize {
        let descriptors = usize::try_from(weft_os::sys::descriptor_limit()).unwrap_or(0);
        grants::most_at_each(descriptors, self.count.load(Ordering::Acquire))
    }

    /// Whether no listener is served here.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The listener with this id.
    pub fn find_id(&self, id: u64) -> Option<Arc<SdpListener>> {
        self.by_socket.lock().values().find(|listener| listener.id == id).cloned()
    }

    /// Lets go of the offers that this process has from a parent, for the listeners for which
    /// `is_over` holds. The table is that of this process if it `is_own`, or else that of the last
    /// ancestor which had one, of which another thread may hold the lock for ever.
    pub fn leave_inherited(&self, is_own: bool, is_over: impl Fn(Inode) -> bool) {
        let leave = |(_, pairs): (_, &PairOffers)| pairs.leave();
        self.inherited.iter().filter(|(socket, _)| is_over(**socket)).for_each(leave);
        let Some(served) = self.by_socket.try_lock().filter(|_| !is_own) else { return };
        let pairs = served.iter().filter_map(|(socket, one)| Some((socket, one.pairs.as_ref()?)));
        pairs.filter(|(socket, _)| is_over(**socket)).for_each(leave);
    }

    /// Whether there may be such offers, without a look at any.
    pub fn may_have_inherited(&self, is_own: bool) -> bool {
        !self.inherited.is_empty() || !is_own && !self.is_empty()
    }

    /// Whether there may be such offers for `socket`.
    pub fn has_inherited(&self, is_own: bool, socket: Inode) -> bool {
        let is_served = || self.by_socket.try_lock().is_some_and(|all| all.contains_key(&socket));
        self.inherited.contains_key(&socket) || !is_own && is_served()
    }

    /// Ends the listeners for which `is_over` holds.
    pub fn dismiss(&self, is_over: impl Fn(Inode, SocketAddr) -> bool) {
        let mut gone = Vec::new();
        {
            let mut all = self.by_socket.lock();
            all.retain(|socket, listener| {
                let keep = !is_over(*socket, listener.at);
                if !keep {
                    gone.push((*socket, Arc::clone(listener)));
                }
                keep
            });
            self.count.store(all.len(), Ordering::Release);
        }
        for (socket, listener) in gone {
            listener.stop();
            listener.return_deferral(socket);
        }
    }
}

fn last_four(bytes: [u8; 16]) -> IpAddr {
    IpAddr::from([bytes[12], bytes[13], bytes[14], bytes[15]])
}

fn listen(cm: &CmId, fd: RawFd, at: SocketAddr) -> Option<()> {
    if at.is_ipv6() {
        let only = sys::option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Some(1);
        cm.set_v6_only(only).ok()?;
    }
    cm.bind(at).ok()?;
    cm.listen(0).ok()
}
