//! TIME_WAIT: what is left of connections over Shuttle that their peer has closed and this side has
//! dropped (S-20). The peer repeats its Close until it has the answer, which may have been lost.
//!
//! One table of a host has the answers by connection id. A Close that comes again arrives at
//! the socket of the listener that granted the connection; where there is none, at the connection's
//! own, which stays open for that while there are few of them. A peer that gets no answer gives up
//! by itself after its last repetition.
//!
//! Invariant: there are [`ANSWERS_MAX`] answers and [`SOCKETS_MAX`] sockets at most, each for as
//! long as its connection says.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

use weft_net::buffers::Buffer;
use weft_net::udp::{BUNDLE_OCTETS, UdpPort};
use weft_os::clock::{self, instant_at, ns_at};
use weft_reactor::{Interest, Pollable, Readiness, Token};
use weft_rnic::shuttle::{Route, TimeWait};
use weft_rnic::wire::shuttle::ConnectionId;
use weft_sync::Mutex;

use crate::host::Host;

/// Answers that are kept, of about 100 bytes each.
const ANSWERS_MAX: usize = 4096;
/// Sockets that are kept.
const SOCKETS_MAX: usize = 32;
/// Bundles received in one go at most.
const RECEIVES_MAX: usize = 16;

#[derive(Default)]
struct TimeWaitTable {
    answers: HashMap<ConnectionId, TimeWait>,
    /// Their ids, oldest first.
    order: VecDeque<ConnectionId>,
    sockets: VecDeque<Arc<Socket>>,
}

/// The socket of a connection that is no more.
struct Socket {
    host: Weak<Host>,
    port: Arc<UdpPort>,
    /// The route that the socket is devoted to, if it is.
    own: Option<Route>,
    until: Instant,
    token: Mutex<Option<Token>>,
}

/// The answers and sockets of one process.
#[derive(Default)]
pub(crate) struct TimeWaits(Mutex<TimeWaitTable>);

impl TimeWaits {
    /// Answers for a connection from now on.
    pub fn keep(&self, time_wait: TimeWait) {
        let mut table = self.0.lock();
        let TimeWaitTable { answers, order, .. } = &mut *table;
        let now_ns = ns_at(clock::now());
        while let Some(oldest) = order.front()
            && (order.len() >= ANSWERS_MAX
                || answers.get(oldest).is_none_or(|answer| answer.forget_ns() <= now_ns))
        {
            answers.remove(oldest);
            order.pop_front();
        }
        order.push_back(time_wait.cid());
        answers.insert(time_wait.cid(), time_wait);
    }

    /// Answers `datagram`, which came over `route` and is for no connection that there is, if it
    /// may be a Close that comes again.
    pub fn answer(&self, port: &UdpPort, route: &Route, datagram: &[u8]) {
        let Some(cid) = TimeWait::cid_of(datagram) else { return };
        let table = self.0.lock();
        if let Some(bytes) = table.answers.get(&cid).and_then(|known| known.answer(datagram)) {
            // What cannot leave is lost, as on the way.
            let _written = port.send_staged(route, bytes, bytes.len());
        }
    }
}

/// Hears what comes to the socket of a connection of `host`, which nobody else hears any more,
/// until `until_ns` of Shuttle's clock, or until others need the room.
pub(crate) fn keep_socket(host: &Arc<Host>, port: Arc<UdpPort>, own: Option<Route>, until_ns: u64) {
    let until = instant_at(until_ns);
    let weak_host = Arc::downgrade(host);
    let socket = Arc::new(Socket { host: weak_host, port, own, until, token: Mutex::new(None) });
    let source: Arc<dyn Pollable> = socket.clone();
    let token = host.reactor().add(socket.port.as_fd(), Interest::READ, source);
    *socket.token.lock() = Some(token);
    let weak: Weak<Socket> = Arc::downgrade(&socket);
    let oldest = {
        let mut table = host.local().time_waits.0.lock();
        table.sockets.push_back(socket);
        (table.sockets.len() > SOCKETS_MAX).then(|| table.sockets.pop_front()).flatten()
    };
    host.reactor().set_timer(until, weak);
    if let Some(oldest) = oldest {
        oldest.close(host);
    }
}

impl Socket {
    /// The reactor lets go of it, and with the last reference it is closed.
    fn close(&self, host: &Host) {
        if let Some(token) = self.token.lock().take() {
            host.reactor().remove(token);
        }
    }
}

impl Pollable for Socket {
    fn ready(&self, _: Readiness) {
        let Some(host) = self.host.upgrade() else { return };
        let mut buffer = Buffer::take();
        let room = &mut buffer.room()[..BUNDLE_OCTETS];
        for _ in 0..RECEIVES_MAX {
            let Some(bundle) = self.port.receive(room, self.own.as_ref()) else { break };
            for datagram in room[..bundle.octets].chunks(bundle.each) {
                host.local().time_waits.answer(&self.port, &bundle.route, datagram);
            }
        }
        buffer.put();
    }

    fn timeout(&self, now: Instant) {
        if now < self.until {
            return;
        }
        let Some(host) = self.host.upgrade() else { return };
        host.local().time_waits.0.lock().sockets.retain(|kept| !std::ptr::eq(&**kept, self));
        self.close(&host);
    }
}
