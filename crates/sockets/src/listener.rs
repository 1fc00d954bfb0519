//! A listener of the program, where peers can ask for SDP as well.
//!
//! The program's own socket listens as before, and the kernel's queue holds every connection that
//! waits to be accepted. At the same number of the layer below this library takes Hellos. A peer
//! that speaks SDP sends one before it calls by TCP, so it is here when the program accepts, and is
//! found by the peer's address.
//!
//! Invariant: a TCP connection that was accepted as such is never granted SDP, and one that was
//! granted SDP is never given to the program as TCP, unless its peer has given SDP up.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_io::cm::{CmId, ConnParam, Event, PortSpace};
use weft_io::{Personality, Transport};
use weft_net::secrecy::Secrecy;
use weft_os::clock;
use weft_sdp::Request;
use weft_sync::{Mutex, MutexGuard};

use crate::conn::{Conn, Way};
use crate::handoff::Desk;
use crate::names::Ends;
use crate::registry::Center;
use crate::settings::Settings;
use crate::stream::Stream;
use crate::sys::{self, Inode};
use crate::{address, permits_server, report, strict};

/// Connections that wait to be accepted.
const GRANTS_MAX: usize = 1024;
/// Peers that were accepted as TCP, which may still ask for SDP.
const PLAIN_MAX: usize = 4096;
const PLAIN_FOR: Duration = Duration::from_secs(10);
/// iWARP's listener has another number than the program's, in the same space.
const IWARP_PORT: u16 = 0x8000;

/// Times a Send is repeated that finds no receive: without end.
pub const PATIENT: u8 = 7;

/// How the layer below is reached.
pub struct Lower {
    pub personality: Personality,
    pub transport: Transport,
    /// Its name, for people.
    pub name: &'static str,
    /// Whether a peer is asked before it is called by TCP, because an answer takes longer.
    pub first: bool,
}

impl Lower {
    /// What the environment says.
    pub fn get() -> Self {
        if Settings::get().iwarp {
            let (personality, transport) = (Personality::Iwarp, Transport::Iwarp);
            Self { personality, transport, name: "iWARP", first: true }
        } else {
            let (personality, transport) = (Personality::Roce, Transport::Shuttle);
            // Under a key a listener has its peer show that it receives, which takes longer.
            let first = Secrecy::get().has_key();
            Self { personality, transport, name: "Shuttle", first }
        }
    }

    /// The address below that of a socket.
    pub fn below(&self, mut at: SocketAddr) -> SocketAddr {
        if self.personality == Personality::Iwarp {
            at.set_port(at.port() ^ IWARP_PORT);
        }
        at
    }
}

/// What the ends tell each other about a queue pair.
pub fn param(private_data: Vec<u8>) -> ConnParam {
    let mut param = ConnParam { private_data, ..ConnParam::device_max() };
    param.terms.rnr_retry_count = PATIENT;
    param.terms.retry_count = PATIENT;
    param
}

#[derive(Default)]
struct Guests {
    /// By the address of their sockets.
    granted: HashMap<SocketAddr, Arc<Conn>>,
    plain: VecDeque<(SocketAddr, Instant)>,
}

/// A listener that is served.
pub struct Host {
    /// Names it among those of the process.
    pub id: u64,
    /// Where the program listens.
    pub at: SocketAddr,
    /// Others may listen there too, and the kernel chooses among them.
    shared: bool,
    lower: Lower,
    cm: Arc<CmId>,
    guests: Mutex<Guests>,
    desk: Mutex<Option<Desk>>,
}

impl Host {
    /// Serves the listener behind `fd` as well, if that is possible and nobody does.
    ///
    /// # Errors
    /// Why peers reach it by TCP alone.
    pub fn open(fd: RawFd) -> Result<(), &'static str> {
        let at = sys::local(fd).map_err(|_| "it has no address")?;
        let socket = sys::inode(fd).ok_or("it is no socket")?;
        let center = Center::get();
        if center.host_of(socket).is_some() {
            return Ok(());
        }
        let shared = sys::option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT) == Some(1);
        if shared && !sys::is_only_listener(at.port()) {
            return Err("others listen there too");
        }
        // A listener of the past may keep the number.
        center.dismiss(|old, place| place.port() == at.port() && sys::find(old).is_empty());
        let lower = Lower::get();
        let channel = center.channel().map_err(|_| "the system has no descriptor left for it")?;
        let cm = CmId::new(channel, PortSpace::Tcp, lower.transport);
        let id = center.next_id();
        cm.set_cookie(id);
        // A Retry would lose the race with the connection of TCP, which has its own round trip.
        cm.set_prompt();
        let bound = bind(&cm, fd, lower.below(at));
        if bound.is_none() {
            cm.destroy();
            return Err("its number is taken in the layer below");
        }
        let desk = Mutex::new(None);
        let host = Arc::new(Self { id, at, shared, lower, cm, guests: Mutex::default(), desk });
        *host.desk.lock() = Desk::open(socket, Arc::downgrade(&host)).ok();
        report::listens(at, report::Way::Sdp(host.lower.name, "and TCP"));
        center.host(socket, host);
        Ok(())
    }

    /// Serves it no more. Those who wait to be accepted are reset.
    pub fn stop(&self) {
        self.cm.destroy();
        *self.desk.lock() = None;
        let granted = std::mem::take(&mut self.guests().granted);
        for conn in granted.into_values() {
            conn.give_up();
        }
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock()
    }

    /// A peer asks for a connection.
    pub fn admit(&self, id: &Arc<CmId>, event: &Event) {
        if let Err(_refused) = self.try_admit(id, event) {
            // A peer that has left needs no answer.
            let _ = id.reject(&[]);
            id.destroy();
        }
    }

    fn try_admit(&self, id: &Arc<CmId>, event: &Event) -> Result<(), ()> {
        let request = Request::parse(&event.private_data).map_err(drop)?;
        let names = request.names();
        let from = Ipv6Addr::from(names.from);
        let ip = if names.ip_version == 4 { v4(names.from) } else { IpAddr::V6(from) };
        let seen = id.peer_addr().ok_or(())?.ip().to_canonical();
        // Who is seen under another address than its own is so by TCP too, and would not be found.
        if seen != ip || !self.is_meant(id, &names.to) {
            return Err(());
        }
        if self.shared && !sys::is_only_listener(self.at.port()) {
            return Err(());
        }
        let key = SocketAddr::new(ip, names.port);
        {
            let mut guests = self.guests();
            let now = clock::now();
            guests.plain.retain(|(_, since)| now < *since + PLAIN_FOR);
            guests.granted.retain(|_, conn| !conn.lock().over);
            let plain = guests.plain.iter().any(|(peer, _)| *peer == key);
            if plain || guests.granted.len() >= GRANTS_MAX {
                return Err(());
            }
        }
        let conn = self.grant(id, seen, key, request).ok_or(())?;
        let old = self.guests().granted.insert(key, conn);
        if let Some(old) = old {
            old.give_up();
        }
        Ok(())
    }

    /// Whether the peer means an address of this listener, and not one that leads here on the way.
    fn is_meant(&self, id: &CmId, to: &[u8; 16]) -> bool {
        let local = id.local_addr().map(|at| at.ip()).unwrap_or(self.at.ip());
        local.is_unspecified() || address::octets(local) == *to
    }

    fn grant(
        &self,
        id: &Arc<CmId>,
        seen: IpAddr,
        key: SocketAddr,
        request: Request,
    ) -> Option<Arc<Conn>> {
        let center = Center::get();
        let conn = Conn::new(center.next_id(), Ends { local: self.at, remote: key });
        id.set_cookie(conn.id);
        center.keep(Arc::clone(&conn));
        let granted = conn.grant(id, &self.lower, seen, request);
        if !granted {
            center.forget(conn.id);
            return None;
        }
        Some(conn)
    }

    /// The program has accepted `stream` from `peer`, which was put at the number `at`; gives what
    /// it gets instead, if the peer speaks SDP.
    pub fn claim(&self, stream: RawFd, at: Option<RawFd>, peer: SocketAddr) -> Option<OwnedFd> {
        // What was asked before the stream was connected has been heard after this.
        self.cm.look();
        Center::get().drain();
        let key = address::plain(peer);
        let granted = self.guests().granted.remove(&key);
        match granted.and_then(|conn| conn.claim(stream, at)) {
            Some(theirs) => Some(theirs),
            None => {
                let mut guests = self.guests();
                guests.plain.push_back((key, clock::now()));
                if guests.plain.len() > PLAIN_MAX {
                    guests.plain.pop_front();
                }
                let here = sys::local(stream).map_or(self.at, |at| at);
                if !strict::forbids_tcp(here.ip(), peer.ip()) {
                    report::accepted(peer, report::Way::Tcp("it did not ask for SDP"));
                }
                None
            }
        }
    }
}

fn v4(octets: [u8; 16]) -> IpAddr {
    IpAddr::from([octets[12], octets[13], octets[14], octets[15]])
}

fn bind(cm: &CmId, fd: RawFd, at: SocketAddr) -> Option<()> {
    if at.is_ipv6() {
        let only = sys::option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Some(1);
        cm.set_v6_only(only).ok()?;
    }
    cm.bind(at).ok()?;
    cm.listen(0).ok()
}

/// What becomes of a connection that a program has accepted.
pub enum Given {
    /// The program gets this in its place: the peer speaks SDP.
    Sdp(OwnedFd),
    /// It is the program's as it is.
    Tcp,
    /// The program does not hear of it.
    Nothing,
}

/// What becomes of `stream`, which a program has accepted from `peer` at the listener `fd`.
pub fn accepted(fd: RawFd, stream: RawFd, peer: SocketAddr) -> Given {
    match sys::inode(fd).and_then(|socket| claimed(fd, socket, stream, peer)) {
        Some(theirs) => Given::Sdp(theirs),
        None if strict::turns_away(fd, stream, peer) => Given::Nothing,
        None => Given::Tcp,
    }
}

fn claimed(fd: RawFd, socket: Inode, stream: RawFd, peer: SocketAddr) -> Option<OwnedFd> {
    if let Some(host) = Center::current().and_then(|center| center.host_of(socket)) {
        return host.claim(stream, Some(stream), peer);
    }
    match Desk::ask(socket, stream) {
        Ok(answer) => answer,
        Err(_nobody) => {
            take_over(fd, socket);
            None
        }
    }
}

/// Serves a listener whose process is gone, or that came from a program without this library, from
/// the next connection on.
fn take_over(fd: RawFd, socket: Inode) {
    static TRIED: Mutex<Option<(Inode, Instant)>> = Mutex::new(None);
    let permitted = sys::local(fd).is_ok_and(permits_server);
    // In the child of a fork the lock may be taken for ever.
    let Some(mut tried) = TRIED.try_lock() else { return };
    let now = clock::now();
    let lately = tried.is_some_and(|(last, at)| last == socket && now < at + PLAIN_FOR);
    if permitted && !lately {
        *tried = Some((socket, now));
        // It stays as it is.
        let _ = Host::open(fd);
    }
}

impl Conn {
    /// Grants the peer that asks by `id` an SDP stream.
    fn grant(&self, id: &Arc<CmId>, lower: &Lower, seen: IpAddr, hello: Request) -> bool {
        let mut inner = self.lock();
        let accepted = Stream::accept(lower.personality, seen, hello, self.waker());
        let Ok((stream, answer)) = accepted else { return false };
        if id.accept(&param(answer), stream.qp()).is_err() {
            return false;
        }
        (inner.stream, inner.cm) = (Some(stream), Some(Arc::clone(id)));
        inner.guest = Some(lower.name);
        self.limit_reaching(&mut inner);
        drop(inner);
        self.work();
        true
    }

    /// Resets it, unless it is the program's already.
    pub fn give_up(&self) {
        let mut inner = self.lock();
        if !inner.over && inner.way == Way::Open && inner.near.is_none() {
            self.finish(&mut inner);
        }
    }
}
