//! How two processes find out that they are on one host, and get a lane.
//!
//! One side listens at an abstract Unix socket whose name the other can tell from the connection
//! ([`LaneListener`]); the other looks for it, offers memory and names the connection
//! ([`LaneOffer`]). Both happens during the handshake of a connection over the network, on which
//! nothing changes:
//!
//! - MPA: who listens at a TCP port listens at the socket of that name. The initiator offers once
//!   TCP has connected, before its Request; the responder claims the offer before its Reply.
//! - Shuttle: who asks for a connection listens at a socket named by the nonce of its Request,
//!   until it is answered. The responder offers before its Reply; the initiator claims the offer
//!   before its next packet.
//!
//! So both know by the time the handshake is over, and nobody waits for an answer that may not
//! come.
//!
//! Abstract names belong to a network namespace: who is behind a router, an emulator or in a
//! container of its own finds nobody, and the network goes on. Both sides demand that the other
//! runs as the same user.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::iter;
use std::mem::{self, MaybeUninit};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use weft_os::fds::{self, HighFd};
use weft_os::users;
use weft_sync::Mutex;

use super::memory::{self, Mapping};
use super::{LaneEnd, ShmLane};
use crate::socket;

/// The layout of the memory and of the messages here; others do not meet.
const NAME: &str = "weft-lane-7";
/// Bytes of what names a connection: two addresses, or a nonce.
const OFFER_MAX_BYTES: usize = 128;
/// Offers that nobody has claimed. Those of who has gone are dropped first.
const UNCLAIMED_MAX: usize = 1024;
/// Sockets that one claim takes: who connects without end, which any user of this host can, does
/// not hold it up. An offer that is not found costs the lane, not the connection.
const ACCEPTED_AT_ONCE: usize = 256;
/// Those of who has gone, each with two descriptors, are looked for once there are so many offers.
const PRUNE_FROM: usize = 16;

fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

fn ends_of(initiator: SocketAddr, responder: SocketAddr) -> String {
    format!("{} {}", canonical(initiator), canonical(responder))
}

/// Where a host takes offers for the connections to one of its TCP ports, or for one that it asks
/// for over Shuttle.
pub struct LaneListener {
    fd: HighFd,
    offers: Mutex<LaneOffers>,
}

#[derive(Default)]
struct LaneOffers {
    /// By what names the connection.
    whole: HashMap<String, Offered>,
    /// Sockets of those who have found this one, and have yet to say for which connection.
    begun: Vec<HighFd>,
    /// How many there are when those of who has gone are dropped.
    prune_at: usize,
}

struct Offered {
    socket: HighFd,
    memory: HighFd,
}

/// Has a bound TCP socket listen, and if `permitted` a [`LaneListener`] beside it, which is there
/// first: who connects offers a lane at once, or does without.
///
/// # Errors
/// Those of listen(2). The lack of a lane is none.
pub fn listen(
    tcp: BorrowedFd<'_>,
    backlog: usize,
    permitted: bool,
) -> io::Result<Option<LaneListener>> {
    let addr = socket::local_addr(tcp).ok().filter(|_| permitted);
    let lanes = addr.and_then(LaneListener::bind);
    socket::listen(tcp, backlog).map(|()| lanes)
}

impl LaneListener {
    /// Listens for those who connect to `addr` by TCP; `None` if another process does, or the
    /// system lacks something: connections go by TCP then.
    pub(super) fn bind(addr: SocketAddr) -> Option<Self> {
        Self::listen(&name_of(addr), libc::SOMAXCONN)
    }

    /// Listens for who grants the Shuttle connection whose Request has this nonce; `None` as above.
    pub fn bind_nonce(nonce: u64) -> Option<Self> {
        Self::listen(&name_of_nonce(nonce), 1)
    }

    fn listen(name: &str, backlog: i32) -> Option<Self> {
        let fd = open().ok()?;
        net::bind(&fd, &SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?).ok()?;
        net::listen(&fd, backlog).ok()?;
        Some(Self { fd: HighFd::new(fd), offers: Mutex::default() })
    }

    /// The lane that the initiator of `stream` has offered, if it has; from now on both use it.
    pub fn claim(&self, stream: &TcpStream) -> Option<ShmLane> {
        let (initiator, responder) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
        self.claim_for(&ends_of(initiator, responder))
    }

    /// The lane that was offered here for the Shuttle connection between these ends, if it was;
    /// from now on both use it. Where a relay is between them their addresses differ.
    pub fn claim_between(&self, initiator: SocketAddr, responder: SocketAddr) -> Option<ShmLane> {
        self.claim_for(&ends_of(initiator, responder))
    }

    fn claim_for(&self, conn: &str) -> Option<ShmLane> {
        let mut offers = self.offers.lock();
        self.collect(&mut offers);
        let offered = offers.whole.remove(conn)?;
        drop(offers);
        let mapping = Arc::new(Mapping::new(offered.memory.as_fd()).ok()?);
        let bell = offered.socket;
        send_byte(bell.as_fd()).then(|| ShmLane::new(bell, &mapping, LaneEnd::Responder))
    }

    /// Takes what has arrived. To connect and to offer are two calls of another process, and this
    /// may come between them: the socket is looked at again then.
    fn collect(&self, LaneOffers { whole, begun, prune_at }: &mut LaneOffers) {
        let accepted = iter::from_fn(|| self.accept().ok()).take(ACCEPTED_AT_ONCE);
        let accepted = accepted.filter(|socket| same_user(socket.as_fd()));
        for socket in mem::take(begun).into_iter().chain(accepted) {
            // Who has given up meanwhile, or was refused, has gone.
            if crate::tcp::is_broken(socket.as_fd()) {
                continue;
            }
            match take_offer(&socket) {
                Ok((conn, memory)) => {
                    let memory = HighFd::new(memory);
                    drop(whole.insert(conn, Offered { socket, memory }));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => begun.push(socket),
                Err(_) => {}
            }
        }
        let surplus = begun.len().saturating_sub(UNCLAIMED_MAX);
        begun.drain(..surplus);
        if whole.len() >= (*prune_at).max(PRUNE_FROM) {
            whole.retain(|_, offered| !crate::tcp::is_broken(offered.socket.as_fd()));
            *prune_at = 2 * whole.len();
        }
        if whole.len() > UNCLAIMED_MAX {
            whole.clear();
        }
    }

    fn accept(&self) -> io::Result<HighFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        Ok(HighFd::new(net::accept_with(&self.fd, flags)?))
    }
}

/// A lane that was offered to the peer of a connection.
pub struct LaneOffer {
    bell: HighFd,
    mapping: Arc<Mapping>,
}

impl LaneOffer {
    /// Offers a lane in place of `stream`, which is connected and has carried nothing; `None` if
    /// the peer is not found on this host.
    pub fn make(stream: &TcpStream) -> Option<Self> {
        let (initiator, responder) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
        let any = SocketAddr::new([0, 0, 0, 0].into(), responder.port());
        let socket = dial(&name_of(responder)).or_else(|_| dial(&name_of(any))).ok()?;
        Self::send(socket, &ends_of(initiator, responder))
    }

    /// Offers a lane to who has asked for a Shuttle connection between these ends by a Request with
    /// this nonce; `None` as above.
    pub fn make_named(nonce: u64, initiator: SocketAddr, responder: SocketAddr) -> Option<Self> {
        Self::send(dial(&name_of_nonce(nonce)).ok()?, &ends_of(initiator, responder))
    }

    fn send(socket: OwnedFd, conn: &str) -> Option<Self> {
        if !same_user(socket.as_fd()) {
            return None;
        }
        let memory = memory::create().ok()?;
        let mapping = Arc::new(Mapping::new(memory.as_fd()).ok()?);
        send_offer(socket.as_fd(), conn.as_bytes(), memory.as_fd()).ok()?;
        Some(Self { bell: HighFd::new(socket), mapping })
    }

    /// The lane, if the peer has granted it; to be called once it has answered.
    pub fn granted(self) -> Option<ShmLane> {
        let granted = crate::tcp::receive(self.bell.as_fd(), &mut [0]);
        (granted == crate::tcp::Received::Octets(1))
            .then(|| ShmLane::new(self.bell, &self.mapping, LaneEnd::Initiator))
    }
}

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn name_of(addr: SocketAddr) -> String {
    let addr = canonical(addr);
    match addr.ip().is_unspecified() {
        true => format!("{NAME}:*:{}", addr.port()),
        false => format!("{NAME}:{}:{}", addr.ip(), addr.port()),
    }
}

fn name_of_nonce(nonce: u64) -> String {
    format!("{NAME}:{nonce:016x}")
}

fn dial(name: &str) -> io::Result<OwnedFd> {
    let fd = open()?;
    net::connect(&fd, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(fd)
}

/// Whether the process at the other end runs as the user of this one.
fn same_user(socket: BorrowedFd<'_>) -> bool {
    credentials(socket).is_some_and(|who| users::is_own(who.uid))
}

/// The process that made the other end, if it can be seen from here.
pub(super) fn peer_of(socket: BorrowedFd<'_>) -> Option<i32> {
    credentials(socket).map(|who| who.pid).filter(|pid| *pid > 0)
}

fn credentials(socket: BorrowedFd<'_>) -> Option<libc::ucred> {
    // Not by rustix, whose process ids are not 0: that of a process in another namespace is.
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let place = (&raw mut who).cast();
    // SAFETY: `place` has room for `len` bytes.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut len)
    };
    (result == 0).then_some(who)
}

/// Sends one byte without waiting; whether the peer is there and had not bytes enough already.
pub(super) fn send_byte(socket: BorrowedFd<'_>) -> bool {
    let sent = net::send(socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    if sent == Err(Errno::BADF) {
        fds::note_lost(socket);
    }
    sent.is_ok()
}

fn send_offer(socket: BorrowedFd<'_>, text: &[u8], memory: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights = [memory];
    control.push(SendAncillaryMessage::ScmRights(&rights));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    net::sendmsg(socket, &[IoSlice::new(text)], &mut control, flags)?;
    Ok(())
}

/// The offer that has arrived with the connection. Descriptors beyond the first are closed.
///
/// # Errors
/// `EAGAIN` as long as there is none, and any other if there will not be.
fn take_offer(socket: &HighFd) -> io::Result<(String, OwnedFd)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0; OFFER_MAX_BYTES];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let len = net::recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?.bytes;
    let memory = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    let conn = text.get(..len).and_then(|text| std::str::from_utf8(text).ok());
    let offer = conn.zip(memory).ok_or(io::ErrorKind::InvalidData)?;
    Ok((offer.0.to_owned(), offer.1))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::socket::SocketKind;

    #[test]
    fn an_offer_is_not_lost_whose_socket_another_claim_has_found_without_it() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = tcp.local_addr().unwrap();
        let listener = LaneListener::bind(addr).unwrap();
        let connect = || (TcpStream::connect(addr).unwrap(), tcp.accept().unwrap().0);
        let (slow, fast) = (connect(), connect());
        let socket = dial(&name_of(addr)).unwrap();
        let offers = LaneOffer::make(&fast.0).expect("both are on one host");
        assert!(listener.claim(&fast.1).is_some() && offers.granted().is_some());
        let late = LaneOffer::send(socket, &ends_of(slow.0.local_addr().unwrap(), addr));
        let late = late.expect("the listener has kept its end");
        assert!(listener.claim(&slow.1).is_some() && late.granted().is_some());
        assert!(listener.offers.lock().begun.is_empty());
    }

    #[test]
    fn who_can_connect_finds_the_listener() {
        for _ in 0..2000 {
            let tcp = socket::open(&([127, 0, 0, 1], 0).into(), SocketKind::Stream).unwrap();
            socket::bind(tcp.as_fd(), &([127, 0, 0, 1], 0).into(), false).unwrap();
            let addr = socket::local_addr(tcp.as_fd()).unwrap();
            let listener = std::thread::scope(|scope| {
                let connects = scope.spawn(move || {
                    let connected = || TcpStream::connect(addr).ok();
                    let stream = iter::repeat_with(connected).flatten().next().unwrap();
                    LaneOffer::make(&stream).is_some()
                });
                let listener = listen(tcp.as_fd(), 8, true).unwrap();
                assert!(connects.join().unwrap());
                listener
            });
            assert!(listener.is_some());
        }
    }

    #[test]
    fn offers_of_who_has_gone_do_not_gather() {
        let nonce = u64::from(std::process::id()) << 32;
        let given_up = LaneListener::bind_nonce(nonce).unwrap();
        let ends = [SocketAddr::from(([127, 0, 0, 1], 1)); 2];
        drop(LaneOffer::make_named(nonce, ends[0], ends[1]).unwrap());
        assert!(given_up.claim_between(ends[0], ends[1]).is_none());

        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = tcp.local_addr().unwrap();
        let listener = LaneListener::bind(addr).unwrap();
        let stays: Vec<_> = (0..40).map(|_| TcpStream::connect(addr).unwrap()).collect();
        let stays: Vec<_> = stays.iter().map(|s| (s, LaneOffer::make(s).unwrap())).collect();
        for _ in 0..200 {
            let gone = TcpStream::connect(addr).unwrap();
            let offer = LaneOffer::make(&gone).unwrap();
            assert!(listener.claim_for("nobody").is_none());
            drop(offer);
            assert!(tcp.accept().is_ok());
        }
        let left = listener.offers.lock().whole.len();
        assert!(left <= 2 * stays.len(), "{left} offers");
        for (stream, offer) in stays {
            let conn = ends_of(stream.local_addr().unwrap(), addr);
            assert!(listener.claim_for(&conn).is_some() && offer.granted().is_some());
        }
    }

    #[test]
    fn who_offers_nothing_is_forgotten_when_it_goes() {
        let listener = LaneListener::bind_nonce(u64::from(std::process::id())).unwrap();
        let name = name_of_nonce(u64::from(std::process::id()));
        let between =
            || listener.claim_between(([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into());
        let socket = dial(&name).unwrap();
        assert!(between().is_none());
        assert_eq!(listener.offers.lock().begun.len(), 1);
        drop(socket);
        assert!(between().is_none());
        assert!(listener.offers.lock().begun.is_empty());
    }
}
