//! TIME_WAIT: what is left of connections over Shuttle that their peer has closed and this side has
//! dropped (S-20). The peer repeats its Close until it has the answer, which may have been lost.
//!
//! One table of a host has the answers by connection id. A Close that comes again arrives at
//! the socket of the listener that granted the connection; where there is none, at the connection's
//! own, which stays open for that while there are few of them. A peer that gets no answer gives up
//! by itself after its last repetition.
//!
//! Invariant: there are [`ANSWERS_MAX`] answers and [`SOCKETS_MAX`] sockets at most, each for as
//! long as its connection says. A queue pair that is reset has its socket to itself again: what
//! comes there is for its next connection. A port that is to be bound is given up.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use weft_net::buffers::Buffer;
use weft_net::udp::{BUNDLE_OCTETS, UdpPort};
use weft_os::clock::{self, Moment, moment_at, ns_at};
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
    until: Moment,
    /// None once somebody else hears what comes; held while it is read.
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

    /// Hears no more of what comes to `port` of a queue pair of `host`.
    pub fn release(&self, host: &Host, port: &Arc<UdpPort>) {
        self.release_if(host, |kept| Arc::ptr_eq(kept, port));
    }

    /// The same for the sockets at a port that somebody else is to have.
    pub fn release_number(&self, host: &Host, number: u16) {
        self.release_if(host, |kept| kept.number() == number);
    }

    fn release_if(&self, host: &Host, is_wanted: impl Fn(&Arc<UdpPort>) -> bool) {
        let released: VecDeque<_> = {
            let mut table = self.0.lock();
            let all = std::mem::take(&mut table.sockets);
            let (released, kept) = all.into_iter().partition(|kept| is_wanted(&kept.port));
            table.sockets = kept;
            released
        };
        released.iter().for_each(|socket| socket.close(host));
    }
}

/// Hears what comes to the socket of a connection of `host`, which nobody else hears any more,
/// until `until_ns` of Shuttle's clock, or until others need the room.
pub(crate) fn keep_socket(host: &Arc<Host>, port: Arc<UdpPort>, own: Option<Route>, until_ns: u64) {
    let until = moment_at(until_ns);
    let weak_host = Arc::downgrade(host);
    let socket = Arc::new(Socket { host: weak_host, port, own, until, token: Mutex::new(None) });
    let source: Arc<dyn Pollable> = socket.clone();
    {
        let mut token = socket.token.lock();
        *token = Some(host.reactor().add(socket.port.as_fd(), Interest::READ, source));
    }
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
        let token = self.token.lock();
        if token.is_none() {
            return;
        }
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

    fn timeout(&self, now: Moment) {
        if now < self.until {
            return;
        }
        let Some(host) = self.host.upgrade() else { return };
        host.local().time_waits.0.lock().sockets.retain(|kept| !std::ptr::eq(&**kept, self));
        self.close(&host);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    use super::*;
    use crate::HostSetup;

    /// What the peer of its next connection sends would be lost otherwise.
    #[test]
    fn a_socket_that_is_released_is_read_by_nobody_else() {
        let host = Host::new(HostSetup::default());
        host.start().unwrap();
        let port = Arc::new(UdpPort::bind(0).unwrap());
        let until_ns = ns_at(clock::now() + Duration::from_secs(3600));
        for _ in 0..2 {
            keep_socket(&host, Arc::clone(&port), None, until_ns);
        }
        host.local().time_waits.release(&host, &port);
        assert_eq!(Arc::strong_count(&port), 1, "nobody else has it");
        keep_socket(&host, Arc::clone(&port), None, until_ns);
        host.free_port(port.number());
        assert_eq!(Arc::strong_count(&port), 1, "it can be bound again");
        let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut room = vec![0; BUNDLE_OCTETS];
        for byte in 0..100 {
            peer.send_to(&[byte], (Ipv4Addr::LOCALHOST, port.number())).unwrap();
            // What is sent on one machine is there at once, unless somebody else has taken it.
            let bundle = port.receive(&mut room, None).expect("it was read by nobody else");
            assert_eq!(room[..bundle.octets], [byte]);
        }
    }
}
