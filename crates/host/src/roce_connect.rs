//! Queue pairs over UDP that an application connects itself, with what it learned over a socket of
//! its own.
//!
//! The number of a queue pair leads to it: its upper sixteen bits are the UDP port where it
//! listens. So there is no daemon and no registry, and the kernel finds the connection of a
//! datagram. The queue pair with the smaller number asks for the connection; the other one, whose
//! port keeps the Request until its application names the peer, grants it: the newest Request, if
//! the peer has begun anew.
//!
//! Invariant: a Request is granted once. Under a key it must have been made for this wait, by its
//! cookie, so that no record of an earlier one takes the place of a connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use weft_net::udp::UdpPort;
use weft_os::clock::{self, ns_at};
use weft_os::random;
use weft_rnic::shuttle::{Gate, Passage, PeerRequest, Route};
use weft_rnic::wire::shuttle::greeting::{CmTerms, Greeting, Purpose};
use weft_rnic::{Binding, RetryLimits, ShuttleQp, WhenClosed};
use weft_verbs::Misuse;

use crate::driver::shuttle::{Doorkeeper, HelloAdmission};
use crate::driver::{Beginning, Driver};
use crate::host::Host;
use crate::link;
use crate::multipath;
use crate::qp::HostQp;

/// What the application said about the peer on the way to RTR.
#[derive(Clone, Copy, Debug)]
pub struct RocePeer {
    /// This side's address.
    pub local: IpAddr,
    /// The peer's address, of the same family.
    pub remote: IpAddr,
    /// The network interface of the local address, for addresses that are good on one link only;
    /// 0 if unknown.
    pub interface: u32,
    /// The peer's queue pair number, 24 bits.
    pub qpn: u32,
    /// Reads and Atomics of the peer that this side serves at once.
    pub max_dest_rd_atomic: u8,
}

/// What the application said about its own requests on the way to RTS.
#[derive(Clone, Copy, Debug)]
pub struct Requester {
    /// Reads and Atomics that this side keeps outstanding.
    pub max_rd_atomic: u8,
    /// How long they wait for a peer that is silent.
    pub retry_limits: RetryLimits,
}

impl HostQp {
    /// The peer is known: what it sends is taken from now on.
    pub fn reach(&self, peer: RocePeer) -> Result<(), Misuse> {
        let Some(port) = self.port() else {
            return Err(Misuse::Unsupported("queue pairs without a port"));
        };
        if self.is_at(&peer) {
            self.reach_itself(&peer);
            return Ok(());
        }
        let qp = Arc::clone(self.inner());
        self.host().secrecy().permit(peer.local, peer.remote)?;
        let gate = Gate::new(random::random_octets(), self.host().secrecy().has_key());
        let host = Arc::clone(self.host());
        let call = RoceConnect { host, qp: Arc::clone(&qp), port: Arc::clone(port), peer, gate };
        let asks = (self.num(), peer.local) < (peer.qpn, peer.remote);
        let verb = if asks { "asks" } else { "awaits" };
        log::debug!("queue pair {:#x} {verb} {} {:#x} by UDP", self.num(), peer.remote, peer.qpn);
        let beginning = match asks {
            true => Beginning::Bound(Box::new(call.ask()?)),
            false => Beginning::Awaited(Box::new(call)),
        };
        let woken = self.slot.woken(self.inner());
        let driver = Driver::shuttle(self.host(), woken, Arc::clone(port), beginning);
        // What comes from now on is for this connection.
        self.host().local().time_waits.release(self.host(), port);
        self.slot.hold(Box::new(driver));
        Ok(())
    }

    /// Whether the peer is this queue pair itself.
    pub(crate) fn is_at(&self, peer: &RocePeer) -> bool {
        (peer.qpn, peer.remote) == (self.num(), peer.local)
    }

    /// The queue pair is its own peer, and has no connection.
    pub(crate) fn reach_itself(&self, peer: &RocePeer) {
        let (woken, ird) = (self.slot.woken(self.inner()), peer.max_dest_rd_atomic.into());
        self.slot.hold(Box::new(Driver::loopback(self.host(), woken, ird)));
    }

    /// Requests may be sent from now on.
    pub fn speak(&self, requester: Requester) -> Result<(), Misuse> {
        self.slot.set_requester(requester.max_rd_atomic.into(), requester.retry_limits);
        Ok(())
    }
}

/// A queue pair on its way to its peer.
struct RoceConnect {
    host: Arc<Host>,
    qp: Arc<weft_verbs::Qp>,
    port: Arc<UdpPort>,
    peer: RocePeer,
    /// What was granted, and who is asked for a cookie.
    gate: Gate,
}

impl RoceConnect {
    fn greeting(&self) -> Vec<u8> {
        Greeting {
            purpose: Purpose::QueuePair,
            terms: CmTerms::default(),
            room_octets: self.port.room_octets(),
            from: self.qp.num(),
            to: self.peer.qpn,
            private_data: &[],
        }
        .encode()
    }

    fn binding(&self, route: Route) -> Binding {
        let mut config = link::config(&self.host, &route);
        // Until RTS nothing is known of the application's own requests.
        config.ord = u16::MAX;
        config.ird = self.peer.max_dest_rd_atomic.into();
        config.handshake_ns = u64::MAX / 4;
        config.may_wait = true;
        // The application may have reset its peer, which then comes anew.
        (config.may_withdraw, config.outlives_withdrawal) = (true, true);
        Binding { config, identity: link::identity(), route, when_closed: WhenClosed::Stay }
    }

    fn ask(&self) -> Result<ShuttleQp, Misuse> {
        let route = Route {
            local: (self.peer.local, self.port.number()).into(),
            remote: (self.peer.remote, (self.peer.qpn >> 8) as u16).into(),
        };
        let route = with_interface(route, self.peer.interface);
        let qp = Arc::clone(&self.qp);
        let now_ns = ns_at(clock::now());
        ShuttleQp::connect(qp, self.binding(route), &self.greeting(), now_ns)
            .map_err(|_| Misuse::Invalid("the peer's address cannot be"))
    }
}

/// An address that is good on one link only needs to name the link.
fn with_interface(route: Route, interface: u32) -> Route {
    let on_link = |at: SocketAddr| match at {
        SocketAddr::V6(mut at) if at.ip().is_unicast_link_local() => {
            at.set_scope_id(interface);
            at.into()
        }
        other => other,
    };
    Route { local: on_link(route.local), remote: on_link(route.remote) }
}

impl Doorkeeper for RoceConnect {
    fn admit(&mut self, now_ns: u64, route: Route, datagram: &[u8]) -> HelloAdmission {
        if route.remote.ip() != self.peer.remote {
            return HelloAdmission::None;
        }
        match self.gate.look(now_ns, route.remote, datagram) {
            Passage::Open => {}
            Passage::Known => return HelloAdmission::None,
            Passage::Asked(answer) => {
                // If the socket is full, the peer will ask again.
                self.port.send_staged(&route, &answer, answer.len());
                return HelloAdmission::None;
            }
        }
        let binding = self.binding(route);
        let entropy = binding.identity.entropy;
        let known_port = route.remote.port() == (self.peer.qpn >> 8) as u16;
        match PeerRequest::judge(datagram, &binding.config, entropy) {
            Ok(request) => self.grant(now_ns, binding, request),
            // Others than the peer hear nothing.
            Err(Some(why)) if known_port => HelloAdmission::Refused(why),
            Err(_) => HelloAdmission::None,
        }
    }
}

impl RoceConnect {
    /// Binds the queue pair to who asks, if it is the peer's queue pair.
    fn grant(
        &mut self,
        now_ns: u64,
        mut binding: Binding,
        mut request: PeerRequest,
    ) -> HelloAdmission {
        let Some(greeting) = Greeting::parse(request.private_data()) else {
            return HelloAdmission::None;
        };
        let known = greeting.purpose == Purpose::QueuePair
            && greeting.to == self.qp.num()
            && greeting.from == self.peer.qpn;
        if !known {
            return HelloAdmission::None;
        }
        self.gate.remember(request.identity());
        let mut offered = None;
        if request.wants_paths()
            && let Some((further, addresses)) =
                multipath::offer(&self.host, &self.port, &binding.route)
        {
            binding.config.addresses = Some(addresses);
            offered = Some(further);
        }
        let room_octets = greeting.room_octets;
        let (qp, answer) = (Arc::clone(&self.qp), self.greeting());
        match ShuttleQp::accept(qp, binding, &mut request, &answer, now_ns) {
            Ok(mut shuttle) => {
                shuttle.connection_mut().set_peer_room(u64::from(room_octets) / 2);
                offered.into_iter().for_each(|further| self.port.keep_further(further));
                HelloAdmission::Granted(Box::new(shuttle))
            }
            Err(_) => HelloAdmission::None,
        }
    }
}
