//! Connections between two applications of one host: each gets an end of one `AF_UNIX` pair.
//!
//! The kernel then does everything between the two, and no thread and no memory of this library has
//! a part in it: descriptors may be duplicated, inherited, kept over `exec` and passed on.
//!
//! The end that connects asks the kernel which listener it will reach ([`crate::socket_diag`]). A
//! process that serves that listener takes offers ([`PairOffers`]) at an abstract `AF_UNIX` name
//! with the inode of the listener's socket. The connecting end sends its TCP socket and one end of
//! a new pair there ([`offer::PairOffer`]), and only then connects by TCP, so the offer is there
//! when the connection can be accepted. Whoever accepts compares the addresses of the accepted and
//! the offered TCP socket. Neither side waits for the other:
//!
//! - the connecting end commits to the pair when TCP has connected and the kernel says that the
//!   peer's socket is on this host, else it withdraws the offer;
//! - the accepting end takes a pair that is committed to, and one that is not withdrawn yet, which
//!   the other end then finds out when it tries to withdraw it.
//!
//! The TCP connection is reset when the pair is taken. Nothing would close it in time: the end of
//! the pair is known to the kernel only, and whoever held the pair to learn of its end would keep
//! it from ending. The peer's death, which it would report, the pair reports as well.
//!
//! Invariant: both ends have the pair, or both have the TCP connection, and no byte has moved
//! before. Both processes have the same user and network namespace.

pub mod connect;
mod offer;
mod offers;

use std::os::fd::RawFd;

pub use self::offers::PairOffers;
use crate::sys::{self, Inode};

/// The name where offers for the listener behind `socket` are taken.
fn name(socket: Inode) -> Vec<u8> {
    format!("weft-sockets/pairs/{}", socket.number()).into_bytes()
}

/// Whether the application has set something at a TCP socket, or a listener, that a pair does not
/// have: signals, a close that resets, data with the handshake, sends without a copy, an interface.
fn is_special(tcp: RawFd) -> bool {
    let is_set = |level, name| sys::option(tcp, level, name).is_some_and(|value| value != 0);
    sys::resets_at_close(tcp)
        || sys::has_owner(tcp)
        || is_set(libc::SOL_SOCKET, libc::SO_ZEROCOPY)
        || is_set(libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX)
        || is_set(libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT)
        || is_set(libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT)
}
