//! Offers of pairs to a listener, until its connections are accepted.
//!
//! A listener is accepted from by the process that serves it and by those that have inherited it.
//! All of them have the socket where offers arrive. The kernel hands out the oldest offer first,
//! which may be for a connection that another process has accepted; that one is put back where the
//! others look first. One process looks at a time, so every offer is in one place or the other.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use weft_os::fds::high;
use weft_sync::Mutex;

use super::{is_special, name};
use crate::address::plain;
use crate::handoff::channel;
use crate::names::SocketEnds;
use crate::process_lock::ProcessLock;
use crate::sys::{self, Inode};

/// Offers that the kernel keeps until a connection is accepted; the next ones go by TCP.
const BACKLOG: i32 = 4096;

/// Where the offers for a listener are taken.
pub struct PairOffers {
    files: Arc<OfferFiles>,
    /// The user who may make offers: that of the process that began to listen.
    user: u32,
    /// Held by the thread that looks for an offer.
    turn: Mutex<()>,
}

/// Descriptors that the children of a fork keep.
struct OfferFiles {
    arriving: OwnedFd,
    /// What is put back is sent to the first and read from the second.
    put_back: (OwnedFd, OwnedFd),
    /// Held by the process that looks for an offer.
    turn: ProcessLock,
}

/// An offer that was read.
struct TakenOffer {
    channel: OwnedFd,
    /// The end of the pair for the application that accepts.
    end: OwnedFd,
    /// The connecting end's TCP socket.
    tcp: OwnedFd,
}

impl PairOffers {
    /// Takes offers for the listener `fd`, which is `socket`.
    ///
    /// # Errors
    /// If another process does, or the listener has what pairs do not have.
    pub fn open(fd: RawFd, socket: Inode) -> io::Result<Self> {
        if is_special(fd) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let arriving = high(sys::message_socket()?);
        sys::bind_name(arriving.as_raw_fd(), &name(socket))?;
        sys::listen(arriving.as_raw_fd(), BACKLOG)?;
        sys::set_flags(arriving.as_raw_fd(), libc::O_RDWR | libc::O_NONBLOCK)?;
        let (from, to) = sys::stream_pair()?;
        sys::set_room(to.as_raw_fd());
        let put_back = (high(to), high(from));
        let files = Arc::new(OfferFiles { arriving, put_back, turn: ProcessLock::open()? });
        Ok(Self { files, user: weft_os::sys::user(), turn: Mutex::default() })
    }

    /// The same, in the child of a fork.
    pub fn inherited(&self) -> Self {
        Self { files: Arc::clone(&self.files), user: self.user, turn: Mutex::default() }
    }

    /// The application's socket for the connection between `ends`, if a pair was offered for it.
    pub fn claim(&self, ends: &SocketEnds) -> Option<OwnedFd> {
        let offer = {
            let _of_this_process = self.turn.lock();
            let _of_all = self.files.turn.hold();
            self.find(ends)?
        };
        sys::name_after(offer.end.as_raw_fd(), ends).ok()?;
        let is_taken = offer.take();
        if is_taken {
            sys::reset_at_close(offer.tcp.as_raw_fd());
        }
        is_taken.then_some(offer.end)
    }

    fn find(&self, ends: &SocketEnds) -> Option<TakenOffer> {
        let mut others = Vec::new();
        let found = loop {
            let Some(offer) = self.files.next(self.user) else { break None };
            if offer.is_for(ends) {
                break Some(offer);
            }
            others.push(offer);
        };
        for offer in others.iter().filter(|offer| offer.is_alive()) {
            let _ = self.files.put_back(offer);
        }
        found
    }
}

impl OfferFiles {
    /// The next offer of `user`, those that were put back first.
    fn next(&self, user: u32) -> Option<TakenOffer> {
        while let Ok(Some(envelope)) = channel::receive(self.put_back.1.as_raw_fd()) {
            let channel = channel::receive(envelope.as_raw_fd()).ok().flatten();
            let read = channel.and_then(|channel| TakenOffer::read(envelope.as_raw_fd(), channel));
            if read.is_some() {
                return read;
            }
        }
        loop {
            let channel = sys::accept(self.arriving.as_raw_fd()).ok()?;
            let raw = channel.as_raw_fd();
            if channel::user(raw) == Some(user)
                && let Some(offer) = TakenOffer::read(raw, channel)
            {
                return Some(offer);
            }
        }
    }

    /// Puts an offer back whole, in a socket of its own. Its connection is reset on failure.
    fn put_back(&self, offer: &TakenOffer) -> io::Result<()> {
        let (envelope, into) = sys::message_pair()?;
        for fd in [&offer.channel, &offer.end, &offer.tcp] {
            channel::send(into.as_raw_fd(), Some(fd.as_raw_fd()))?;
        }
        channel::send(self.put_back.0.as_raw_fd(), Some(envelope.as_raw_fd()))
    }
}

impl TakenOffer {
    /// Reads an offer `from` a socket, which was sent whole before its connection could be
    /// accepted.
    fn read(from: RawFd, channel: OwnedFd) -> Option<Self> {
        let (end, tcp) = (channel::receive(from).ok()??, channel::receive(from).ok()??);
        Some(Self { channel, end, tcp })
    }

    /// Whether it is for the connection between `ends`: no other socket of this network namespace
    /// has both addresses.
    fn is_for(&self, ends: &SocketEnds) -> bool {
        let is = |found: io::Result<SocketAddr>, address: SocketAddr| {
            found.is_ok_and(|found| plain(found) == plain(address))
        };
        let tcp = self.tcp.as_raw_fd();
        is(sys::local(tcp), ends.remote) && is(sys::remote(tcp), ends.local)
    }

    /// Whether its connection may still be accepted.
    fn is_alive(&self) -> bool {
        let events = sys::poll_now(self.tcp.as_raw_fd(), libc::POLLRDHUP);
        events & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) == 0
    }

    /// Takes the pair; not if the offer was withdrawn.
    fn take(&self) -> bool {
        let raw = self.channel.as_raw_fd();
        let is_committed = || matches!(channel::receive(raw), Ok(None));
        is_committed() || channel::send(raw, None).is_ok() || is_committed()
    }
}
