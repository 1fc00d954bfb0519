//! Offers of pairs to a listener, until its connections are accepted.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use weft_os::fds::HighFd;
use weft_sync::Mutex;

use super::{is_same_user, is_special, name};
use crate::address::plain;
use crate::handoff::channel;
use crate::names::SocketEnds;
use crate::sys::{self, Inode};

/// Offers that the kernel keeps until a connection is accepted; the next ones go by TCP.
const BACKLOG: i32 = 4096;
/// Offers that were read before their connections were accepted, at most. The oldest goes first.
const WAITING_MAX: usize = 1024;

/// Where the offers for a listener are taken.
pub struct PairOffers {
    fd: HighFd,
    waiting: Mutex<VecDeque<TakenOffer>>,
}

/// An offer, with descriptors that a child of a fork does not keep.
struct TakenOffer {
    channel: HighFd,
    /// The end of the pair for the application that accepts.
    end: HighFd,
    /// The connecting end's TCP socket.
    tcp: HighFd,
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
        let fd = sys::message_socket()?;
        sys::bind_name(fd.as_raw_fd(), &name(socket))?;
        sys::listen(fd.as_raw_fd(), BACKLOG)?;
        sys::set_flags(fd.as_raw_fd(), libc::O_RDWR | libc::O_NONBLOCK)?;
        Ok(Self { fd: HighFd::new(fd), waiting: Mutex::default() })
    }

    /// The application's socket for the connection between `ends`, if a pair was offered for it.
    pub fn claim(&self, ends: &SocketEnds) -> Option<OwnedFd> {
        let offer = self.find(ends)?;
        let end = offer.end.as_fd().try_clone_to_owned().ok()?;
        sys::name_after(end.as_raw_fd(), ends).ok()?;
        let is_taken = offer.take();
        if is_taken {
            sys::reset_at_close(offer.tcp.as_fd().as_raw_fd());
        }
        is_taken.then_some(end)
    }

    fn find(&self, ends: &SocketEnds) -> Option<TakenOffer> {
        let mut waiting = self.waiting.lock();
        if let Some(at) = waiting.iter().position(|offer| offer.is_for(ends)) {
            return waiting.remove(at);
        }
        while let Ok(channel) = sys::accept(self.fd.as_fd().as_raw_fd()) {
            let Some(offer) = TakenOffer::read(channel) else { continue };
            if offer.is_for(ends) {
                return Some(offer);
            }
            if waiting.len() == WAITING_MAX {
                waiting.pop_front();
            }
            waiting.extend(Some(offer).filter(TakenOffer::is_alive));
        }
        None
    }
}

impl TakenOffer {
    /// Reads an offer, which was sent whole before its connection could be accepted.
    fn read(channel: OwnedFd) -> Option<Self> {
        let raw = channel.as_raw_fd();
        if !is_same_user(raw) {
            return None;
        }
        let (end, tcp) = (channel::receive(raw).ok()??, channel::receive(raw).ok()??);
        let [channel, end, tcp] = [channel, end, tcp].map(HighFd::new);
        Some(Self { channel, end, tcp })
    }

    /// Whether it is for the connection between `ends`: no other socket of this network namespace
    /// has both addresses.
    fn is_for(&self, ends: &SocketEnds) -> bool {
        let tcp = self.tcp.as_fd().as_raw_fd();
        let is = |found: io::Result<SocketAddr>, address: SocketAddr| {
            found.is_ok_and(|found| plain(found) == plain(address))
        };
        is(sys::local(tcp), ends.remote) && is(sys::remote(tcp), ends.local)
    }

    /// Whether its connection may still be accepted.
    fn is_alive(&self) -> bool {
        let events = sys::poll_now(self.tcp.as_fd().as_raw_fd(), libc::POLLRDHUP);
        events & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) == 0
    }

    /// Takes the pair; not if the offer was withdrawn.
    fn take(&self) -> bool {
        let raw = self.channel.as_fd().as_raw_fd();
        let is_committed = || matches!(channel::receive(raw), Ok(None));
        is_committed() || channel::send(raw, None).is_ok() || is_committed()
    }
}
