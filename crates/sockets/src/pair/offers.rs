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
use std::time::Duration;

use weft_os::fds::high;
use weft_os::users;
use weft_sync::Mutex;

use super::is_special;
use crate::address::plain;
use crate::handoff::channel;
use crate::names::{self, SocketEnds};
use crate::process_lock::ProcessLock;
use crate::sys::{self, Inode};

/// Offers that the kernel keeps until a connection is accepted; the next ones go by TCP.
const BACKLOG: i32 = 1024;
/// So many have arrived at most when a connection can be accepted, its own among them: the kernel
/// keeps one more than the backlog. Any user of this host can have others arrive without end.
const ARRIVED_MAX: usize = BACKLOG as usize + 1;

/// How long whoever accepts waits for the commitment. A process that is stopped just between its
/// connect and that has TCP.
const COMMIT_LIMIT: Duration = Duration::from_millis(100);

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

/// An offer whose connection is not known to be accepted.
struct WaitingOffer {
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
        let is_ipv6 = sys::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_INET6);
        let arriving = high(sys::stream_socket()?);
        sys::bind_name(arriving.as_raw_fd(), &names::of_offers(socket.number(), is_ipv6))?;
        sys::listen(arriving.as_raw_fd(), BACKLOG)?;
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

    /// Lets go of the place of the offers, which this process has from its parent, where it has
    /// closed the listener: offers end when nobody can take them any more. From then on none is
    /// found here.
    pub fn leave(&self) {
        let OfferFiles { arriving, put_back: (to, from), .. } = &*self.files;
        sys::close_sockets(&[arriving, to, from].map(AsRawFd::as_raw_fd));
    }

    /// The application's socket for the connection between `ends`, if a pair was offered for it
    /// and its other end commits to it.
    ///
    /// # Errors
    /// Without descriptors to look at the offers. The other end may have a pair then, so the
    /// connection must not go by TCP.
    pub fn claim(&self, ends: &SocketEnds) -> io::Result<Option<OwnedFd>> {
        let found = {
            let _of_this_process = self.turn.lock();
            let _of_all = self.files.turn.hold();
            self.find(ends)?
        };
        Ok(found.and_then(WaitingOffer::take))
    }

    /// Each offer that is for others goes back before the next is looked at: there may be more than
    /// there are descriptors.
    fn find(&self, ends: &SocketEnds) -> io::Result<Option<WaitingOffer>> {
        let mut first = None;
        while let Some(offer) = self.files.next_put_back()? {
            if offer.is_for(ends) {
                return Ok(Some(offer));
            }
            let socket = sys::inode(offer.end.as_raw_fd());
            let is_round = first.is_some() && socket == first;
            if self.files.put_back_alive(&offer) {
                first = first.or(socket);
            }
            if is_round {
                break;
            }
        }
        let mut left = ARRIVED_MAX;
        while let Some(offer) = self.files.next_arrived(self.user, &mut left)? {
            if offer.is_for(ends) {
                return Ok(Some(offer));
            }
            self.files.put_back_alive(&offer);
        }
        Ok(None)
    }
}

impl OfferFiles {
    /// Puts an offer where others look first. On failure its connection is reset.
    fn put_back(&self, end: &OwnedFd) {
        let _ = channel::send(self.put_back.0.as_raw_fd(), Some(end.as_raw_fd()));
    }

    /// The same, unless its connection cannot be accepted any more; whether it can.
    fn put_back_alive(&self, offer: &WaitingOffer) -> bool {
        let is_alive = offer.is_alive();
        if is_alive {
            self.put_back(&offer.end);
        }
        is_alive
    }

    /// The next of the offers that were put back.
    ///
    /// # Errors
    /// Without descriptors. No offer is lost then.
    fn next_put_back(&self) -> io::Result<Option<WaitingOffer>> {
        let put_back = self.put_back.1.as_raw_fd();
        while let Some(Some(end)) = sys::unless_lacking(channel::peek(put_back))? {
            // Only now: a message is lost where there is no descriptor for what it carries.
            let _looked_at = sys::receive(put_back, &mut [0], 0);
            if let Some(offer) = self.read(end)? {
                return Ok(Some(offer));
            }
        }
        Ok(None)
    }

    /// The next offer of `user` among the `left` next ones that arrive.
    ///
    /// # Errors
    /// As for [`OfferFiles::next_put_back`].
    fn next_arrived(&self, user: u32, left: &mut usize) -> io::Result<Option<WaitingOffer>> {
        while let Some(end) = next_of(user, left, || self.arrived())? {
            if let Some(offer) = self.read(end)? {
                return Ok(Some(offer));
            }
        }
        Ok(None)
    }

    /// The oldest offer that nobody has looked at.
    fn arrived(&self) -> io::Result<Option<OwnedFd>> {
        let arriving = self.arriving.as_raw_fd();
        let found = sys::unless_lacking(sys::accept(arriving));
        // The kernel fails for want of a descriptor before it looks whether there is any.
        found.or_else(|error| match sys::poll_now(arriving, libc::POLLIN) {
            0 => Ok(None),
            _ => Err(error),
        })
    }

    /// Looks at an offer, which was sent before its connection could be accepted. It stays where it
    /// is, so that `end` is all of it.
    fn read(&self, end: OwnedFd) -> io::Result<Option<WaitingOffer>> {
        let tcp = sys::unless_lacking(channel::peek(end.as_raw_fd()));
        let tcp = tcp.inspect_err(|_| self.put_back(&end))?.flatten();
        Ok(tcp.map(|tcp| WaitingOffer { end, tcp }))
    }
}

/// The next socket of `user` among the `left` next ones that arrive. Those of others are closed.
fn next_of(
    user: u32,
    left: &mut usize,
    arrived: impl Fn() -> io::Result<Option<OwnedFd>>,
) -> io::Result<Option<OwnedFd>> {
    while *left > 0 {
        *left -= 1;
        let Some(end) = arrived()? else { return Ok(None) };
        if channel::user(end.as_raw_fd()).is_some_and(|of| of == user && users::is_known(of)) {
            return Ok(Some(end));
        }
    }
    Ok(None)
}

impl WaitingOffer {
    /// The end of the pair, once the other one commits to it.
    fn take(self) -> Option<OwnedFd> {
        let Self { end, tcp } = self;
        let raw = end.as_raw_fd();
        // The offer was only looked at so far; the commitment is behind it.
        sys::receive(raw, &mut [0], 0).ok()?;
        let commits = || sys::receive(raw, &mut [0], 0);
        let commits = commits().or_else(|_| {
            sys::poll(raw, libc::POLLIN, Some(COMMIT_LIMIT))?;
            commits()
        });
        let commits = commits.ok()? == 1;
        if commits {
            sys::set_room(raw);
            sys::reset_at_close(tcp.as_raw_fd());
        }
        commits.then_some(end)
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_of_other_users_without_end_are_left_after_a_while() {
        let own = weft_os::sys::user();
        let arrived = || Ok(Some(sys::stream_pair()?.0));
        let mut left = ARRIVED_MAX;
        assert!(next_of(own + 1, &mut left, arrived).unwrap().is_none());
        assert_eq!(left, 0);
        let mut left = 2;
        assert!(next_of(own, &mut left, arrived).unwrap().is_some());
        assert!(next_of(own, &mut left, || Ok(None)).unwrap().is_none());
        assert_eq!(left, 0);
    }
}
