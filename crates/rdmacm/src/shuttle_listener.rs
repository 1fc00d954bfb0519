//! The passive side over Shuttle: a UDP socket where peers ask for connections.
//!
//! The socket serves Requests only. A connection that is granted gets a socket of its own at the
//! same number, connected to its peer, so that the kernel finds whom a datagram is for and the
//! peer sees one port. What asks for a connection from the address of such a peer is heard by that
//! socket, which hands it on ([`Demux`]). What comes for such a connection from elsewhere is heard
//! here, and handed to it: its peer is behind a box that has begun to translate its address anew.
//! For that it outlasts the id that listens, until its last connection is over, or until somebody
//! asks for a connection, who may mean another listener at the same number. While a Request waits
//! for the application's answer, the socket stays, and who asks meanwhile is refused.
//!
//! Invariant: a Request is announced and answered at most once each, however often it comes, and
//! not before its sender may be spoken to, has the key if there is one, and has shown that it
//! receives at the address that it has, or under the key that it has just made the Request (S-23,
//! S-24).

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use weft_host::managed::{self, ConnRef, Demux, Outbox, asks, requests};
use weft_host::{Host, PostponingGuard};
use weft_net::buffers::Buffer;
use weft_net::secrecy::{PeerTransport, Refused};
use weft_net::socket;
use weft_net::udp::{BUNDLE_OCTETS, UdpPort};
use weft_os::clock::{self, Moment, ns_at};
use weft_reactor::{Interest, Pollable, Readiness, Token};
use weft_rnic::cm::{self, CmEvent, ConnParam, Depths, QpTerms};
use weft_rnic::shuttle::{
    Arrival, Endpoint, Listen, Refusal, Route, ShuttleConfig, ShuttleConnection, ShuttleMisuse,
    Ticket,
};
use weft_rnic::wire::shuttle::ConnectionId;
use weft_rnic::wire::shuttle::greeting::{Greeting, Purpose};
use weft_sync::{Mutex, MutexGuard};

use crate::config;
use crate::device::{PortSpace, roce};
use crate::words::{self, NOT_HERE, REFUSED};

/// Who answers the Requests that come to a listener.
pub(crate) trait Answering: Send + Sync {
    /// Tells of a Request, whose id has the state `machine`, by `event`.
    fn announce_ask(&self, request: ConnRequest, machine: cm::IdMachine, event: CmEvent);
}

/// A socket where peers ask for connections.
pub(crate) struct ShuttleListener {
    host: Arc<Host>,
    me: Weak<ShuttleListener>,
    owner: Weak<dyn Answering>,
    space: PortSpace,
    post: Mutex<Post>,
    endpoint: Mutex<Endpoint<ConnRef>>,
    /// Held from when datagrams are taken until they are dealt with.
    receiving: Mutex<()>,
    /// Requests that are to be announced, where no connection is locked.
    asked: Outbox<Asked>,
}

/// A Request as it came: when, under which ticket, and what it asks for if it is for the connection
/// manager.
type Asked = (u64, Ticket, Option<(ConnRequest, cm::IdMachine, CmEvent)>);

/// The socket of a listener, and for whom it is kept.
#[derive(Default)]
struct Post {
    /// Until nobody needs it.
    port: Option<Arc<UdpPort>>,
    token: Option<Token>,
    /// Requests are taken.
    listens: bool,
    /// Requests that wait for an answer.
    waiting: usize,
    /// Connections that were granted here.
    connections: usize,
}

impl Post {
    /// Whether who asks for a connection is heard, if only to be refused: a socket that nobody
    /// reads would leave it without an answer.
    fn hears(&self) -> bool {
        self.listens || self.waiting > 0
    }
}

/// A Request that waits for an answer.
pub(crate) struct ConnRequest {
    pub listener: Arc<ShuttleListener>,
    port: Arc<UdpPort>,
    ticket: Ticket,
    pub route: Route,
    pub purpose: Purpose,
    /// Bytes that the peer's socket holds.
    pub room_octets: u32,
    /// What the peer said about its queue pair.
    pub terms: QpTerms,
    /// The peer wants several paths.
    wants_paths: bool,
}

impl ShuttleListener {
    /// Takes Requests for `owner` on `port`, which is bound to `at`. With `at_once` they are
    /// told to the application while their senders have yet to show that they receive, unless
    /// there is a key: a recorded Request would be told then.
    pub fn open(
        host: &Arc<Host>,
        owner: Weak<dyn Answering>,
        space: PortSpace,
        port: UdpPort,
        at: SocketAddr,
        at_once: bool,
    ) -> Arc<Self> {
        let port = Arc::new(port);
        let mut endpoint = Endpoint::new(managed::identity().entropy);
        let listen = Listen::new(managed::config(host, &Route { local: at, remote: at }));
        let at_once = at_once && !host.secrecy().has_key();
        let retry_above = if at_once { listen.retry_above } else { 0 };
        let clock = Some(clock::time_of_day_ms as fn() -> u64);
        endpoint.listen(Some(Listen { retry_above, clock, ..listen }));
        let listener = Arc::new_cyclic(|me| Self {
            host: Arc::clone(host),
            me: me.clone(),
            owner,
            space,
            post: Mutex::default(),
            endpoint: Mutex::new(endpoint),
            receiving: Mutex::default(),
            asked: Outbox::new(),
        });
        let source: Arc<dyn Pollable> = listener.clone();
        let token = Some(host.reactor().add(port.as_fd(), Interest::READ, source));
        *listener.post() = Post { port: Some(port), token, listens: true, ..Post::default() };
        listener
    }

    /// Takes no more Requests; those that wait may still be answered.
    pub fn stop(&self) {
        let mut post = self.post();
        post.listens = false;
        if let Some(port) = &post.port {
            // Where it cannot be shared, others cannot listen here until its connections are over.
            let _shared = socket::share(port.as_fd());
        }
        self.stop_if_unheard(post);
    }

    /// Its socket, while it has one.
    pub fn port(&self) -> Option<Arc<UdpPort>> {
        self.post().port.clone()
    }

    fn post(&self) -> MutexGuard<'_, Post> {
        self.post.lock()
    }

    /// Takes no Requests any more if none waits for an answer.
    fn stop_if_unheard(&self, post: MutexGuard<'_, Post>) {
        if !post.hears() {
            self.leave_if_idle(post);
            self.endpoint().listen(None);
        }
    }

    /// Gives the socket up if nobody needs it.
    fn leave_if_idle(&self, post: MutexGuard<'_, Post>) {
        if !post.hears() && post.connections == 0 {
            self.leave(post);
        }
    }

    fn leave(&self, mut post: MutexGuard<'_, Post>) {
        let (port, token) = (post.port.take(), post.token.take());
        drop(post);
        if let Some(token) = token {
            self.host.reactor().remove(token);
        }
        drop(port);
    }

    fn endpoint(&self) -> MutexGuard<'_, Endpoint<ConnRef>> {
        self.endpoint.lock()
    }

    /// Looks at a datagram; gives the connection that it is for, if one was granted here.
    fn handle(&self, now_ns: u64, route: Route, datagram: &[u8]) -> Option<ConnRef> {
        // Who asks again later may find more memory.
        let asks = requests(datagram);
        if asks && (weft_memory::is_short() || !self.admits(&route, datagram)) {
            return None;
        }
        let mut endpoint = self.endpoint();
        let answer = match endpoint.handle_datagram(now_ns, route, datagram) {
            Arrival::Connection(conn) => return Some(conn.clone()),
            Arrival::Request(ticket) => {
                let ask = self.read(&endpoint, ticket);
                self.asked.post([(now_ns, ticket, ask)]);
                endpoint.receipt(ticket)?
            }
            Arrival::Answer(answer) => answer,
            Arrival::Refused { answer, why } => {
                self.host.secrecy().report_stranger(why, route.remote.ip());
                answer
            }
            Arrival::Nothing => {
                drop(endpoint);
                if let Some(port) = self.port() {
                    self.host.answer_closed(&port, &route, datagram);
                }
                return None;
            }
        };
        drop(endpoint);
        if let Some(port) = self.port() {
            send(&port, &route, &answer);
        }
        None
    }

    /// Whether who asks for a connection by `route` is heard; it is told if it is not.
    fn admits(&self, route: &Route, request: &[u8]) -> bool {
        let (here, there) = (route.local.ip(), route.remote.ip());
        let admitted = self.host.secrecy().admit(PeerTransport::Shuttle, here, there);
        if admitted == Err(Refused::ClearText)
            && let (Some(answer), Some(port)) = (Refusal::ClearText.answer(request), self.port())
        {
            send(&port, route, &answer);
        }
        admitted.is_ok()
    }

    /// What a Request asks for, if it is for the connection manager.
    fn read(
        &self,
        endpoint: &Endpoint<ConnRef>,
        ticket: Ticket,
    ) -> Option<(ConnRequest, cm::IdMachine, CmEvent)> {
        let (request, route) = endpoint.request(ticket)?;
        let greeting = Greeting::parse(request.private_data())?;
        let datagrams = match greeting.purpose {
            Purpose::Manager | Purpose::Aside => false,
            Purpose::Datagrams => true,
            Purpose::QueuePair => return None,
        };
        if datagrams != (self.space == PortSpace::Udp) {
            return None;
        }
        let peer = Depths { ird: request.ird(), ord: request.ord() };
        let terms = words::terms(&greeting);
        let words = words::padded(greeting.private_data, words::words_in_request(self.space));
        let mut machine = cm::IdMachine::from_request(roce(self.space), peer, words, terms);
        let event = machine.poll_event()?;
        let (listener, port) = (self.me.upgrade()?, self.port()?);
        self.post().waiting += 1;
        let ask = ConnRequest {
            listener,
            port,
            ticket,
            route,
            purpose: greeting.purpose,
            room_octets: greeting.room_octets,
            terms,
            wants_paths: request.wants_paths(),
        };
        Some((ask, machine, event))
    }

    fn announce(&self, (now_ns, ticket, ask): Asked) {
        match (ask, self.owner.upgrade().filter(|_| self.post().listens)) {
            (Some((ask, machine, event)), Some(owner)) => {
                owner.announce_ask(ask, machine, event);
            }
            _ => self.refuse(now_ns, ticket, (NOT_HERE, &[]), self.port().as_deref()),
        }
    }

    fn refuse(
        &self,
        now_ns: u64,
        ticket: Ticket,
        (reason, private_data): (u16, &[u8]),
        port: Option<&UdpPort>,
    ) {
        let refused = self.endpoint().reject(now_ns, ticket, reason, private_data);
        if let (Ok((route, answer)), Some(port)) = (refused, port) {
            send(port, &route, &answer);
        }
    }

    /// Takes no more Requests, and refuses those that wait, as the kernel does for a process that
    /// ends; as far as the locks can be had by `until`.
    fn refuse_all(&self, until: Moment) {
        let now_ns = ns_at(clock::now());
        let port = clock::retry(until, || self.post.try_lock()).and_then(|mut post| {
            post.listens = false;
            post.port.clone()
        });
        let endpoint = clock::retry(until, || self.endpoint.try_lock());
        let refused = endpoint.map(|mut endpoint| endpoint.reject_all(now_ns, REFUSED));
        if let (Some(port), Some(refused)) = (port, refused) {
            refused.iter().for_each(|(route, answer)| send(&port, route, answer));
        }
    }

    /// Takes what has arrived.
    pub fn receive(&self) {
        let _receiving = PostponingGuard::lock(&self.receiving);
        let Some(port) = self.port() else { return };
        let mut buffer = Buffer::take();
        let room = &mut buffer.room()[..BUNDLE_OCTETS];
        for _ in 0..config::RECEIVE_BATCH {
            let Some(bundle) = port.receive(room, None) else { break };
            let now_ns = ns_at(clock::now());
            let route = on_link(bundle.route);
            for datagram in room[..bundle.octets].chunks_mut(bundle.each) {
                self.hear(now_ns, (route, bundle.marked), datagram);
            }
        }
        buffer.put();
    }

    fn hear(&self, now_ns: u64, from: (Route, bool), datagram: &mut [u8]) {
        let post = self.post();
        if !post.hears() && asks(datagram) {
            return self.leave(post);
        }
        drop(post);
        let conn = self.handle(now_ns, from.0, datagram);
        self.asked.deliver(|asked| self.announce(asked));
        if let Some(conn) = conn {
            conn.handle_foreign_datagram(from, datagram);
        }
    }
}

impl ConnRequest {
    /// The socket and the addresses for further paths, if both ends want several.
    pub fn offer_paths(&self, host: &Host) -> Option<(Arc<UdpPort>, Vec<SocketAddr>)> {
        if self.wants_paths { managed::offer(host, &self.port, &self.route) } else { None }
    }

    /// Bytes that this side's socket holds.
    pub fn own_room_octets(&self) -> u32 {
        self.port.room_octets()
    }

    /// Grants the connection, which `conn` is to name; the socket is for nobody else.
    ///
    /// # Errors
    /// The peer has given up, nothing is common to both, or the system has no socket to give.
    pub fn grant(
        &self,
        config: ShuttleConfig,
        private_data: &[u8],
        conn: ConnRef,
    ) -> std::io::Result<(Box<ShuttleConnection>, UdpPort)> {
        let now_ns = ns_at(clock::now());
        let post = self.listener.post();
        let first = (self.port.as_fd(), !post.listens);
        let fd = socket::beside(first, &self.route.local, &self.route.remote)?;
        drop(post);
        let port = UdpPort::adopt(fd)?;
        let mut endpoint = self.listener.endpoint();
        let connection = match endpoint.accept(now_ns, self.ticket, config, private_data) {
            Ok(connection) => Box::new(connection),
            Err(misuse) => return Err(std::io::Error::from_raw_os_error(errno(misuse))),
        };
        endpoint.attach(connection.cid(), conn);
        Ok((connection, port))
    }

    /// Says no to the peer's application.
    pub fn decline(&self, private_data: &[u8]) {
        let param = ConnParam { private_data: private_data.to_vec(), ..ConnParam::default() };
        self.refuse(REFUSED, &words::words(self.purpose, 0, &param, self.terms.qp_num));
    }

    /// Refuses it.
    pub fn refuse(&self, reason: u16, private_data: &[u8]) {
        let now_ns = ns_at(clock::now());
        self.listener.refuse(now_ns, self.ticket, (reason, private_data), Some(&self.port));
    }
}

impl Drop for ConnRequest {
    fn drop(&mut self) {
        let mut post = self.listener.post();
        post.waiting -= 1;
        self.listener.stop_if_unheard(post);
    }
}

/// A connection's share in the place that it was granted at.
pub(crate) struct ListenerRef(Arc<ShuttleListener>);

impl ListenerRef {
    /// Of a connection that was granted there.
    pub fn new(listener: &Arc<ShuttleListener>) -> Self {
        listener.post().connections += 1;
        Self(Arc::clone(listener))
    }
}

impl Drop for ListenerRef {
    fn drop(&mut self) {
        let mut post = self.0.post();
        post.connections -= 1;
        self.0.leave_if_idle(post);
    }
}

impl Demux for ListenerRef {
    fn sort(&self, now_ns: u64, route: Route, datagram: &[u8]) -> bool {
        let own = self.0.handle(now_ns, on_link(route), datagram).is_some();
        if !own {
            // A connection is locked here, and others are looked at before a Request is announced.
            let listener: Weak<dyn Pollable> = self.0.me.clone();
            self.0.host.reactor().set_timer(clock::now(), listener);
        }
        own
    }

    fn confirm(&self, cid: ConnectionId) {
        self.0.endpoint().handle_established(cid);
    }

    fn release(&self, now_ns: u64, cid: ConnectionId) {
        self.0.endpoint().release(now_ns, cid);
    }
}

impl Pollable for ShuttleListener {
    fn ready(&self, _: Readiness) {
        self.receive();
    }

    fn timeout(&self, _: Moment) {
        self.asked.deliver(|asked| self.announce(asked));
    }

    fn last_words(&self, until: Moment) {
        self.refuse_all(until);
    }
}

fn errno(misuse: ShuttleMisuse) -> i32 {
    match misuse {
        ShuttleMisuse::Gone => libc::ECONNRESET,
        ShuttleMisuse::TooMany => libc::ENOBUFS,
        _ => libc::EPROTO,
    }
}

fn send(port: &UdpPort, route: &Route, octets: &[u8]) {
    // What cannot leave is lost, as on the way.
    let _written = port.send_staged(route, octets, octets.len());
}

/// A local address that is good on one link only needs to name the link.
fn on_link(mut route: Route) -> Route {
    if let (SocketAddr::V6(local), SocketAddr::V6(remote)) = (&mut route.local, route.remote)
        && local.ip().is_unicast_link_local()
    {
        local.set_scope_id(remote.scope_id());
    }
    route
}
