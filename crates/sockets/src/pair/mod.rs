//! Connections between two applications of one host: each gets an end of one `AF_UNIX` stream.
//!
//! The kernel then does everything between the two, and no thread and no memory of this library has
//! a part in it: descriptors may be duplicated, inherited, kept over `exec` and passed on.
//!
//! The end that connects asks the kernel which listener it will reach ([`crate::socket_diag`]). A
//! process that serves that listener takes offers ([`PairOffers`]) at an abstract `AF_UNIX` name
//! with the inode of the listener's socket. The connecting end connects there and sends its TCP
//! socket ([`offer::PairOffer`]), and only then connects by TCP, so the offer is there when the
//! connection can be accepted. When TCP has connected and the kernel says that the peer's socket is
//! on this host, the connecting end names its `AF_UNIX` socket after the connection and commits to
//! the pair by one byte; else it withdraws. Whoever accepts compares the addresses of the accepted
//! and the offered TCP socket, and takes the pair when the commitment is there, which follows at
//! once.
//!
//! The TCP connection is reset when the pair is taken. Nothing would close it in time: the end of
//! the pair is known to the kernel only, and whoever held the pair to learn of its end would keep
//! it from ending. The peer's death, which it would report, the pair reports as well.
//!
//! Invariant: both ends have the pair, or both have the TCP connection, and no byte of theirs has
//! moved before. Both processes have the same user and network namespace.

pub mod connect;
pub mod lives;
mod offer;
mod offers;

use std::os::fd::RawFd;

pub use self::offers::PairOffers;
use crate::sys;

/// Whether the application has set something at a TCP socket, or a listener, that a pair does not
/// have: signals, a close that resets, data with the handshake, sends without a copy, an interface.
fn is_special(tcp: RawFd) -> bool {
    let is_set = |level, name| sys::option(tcp, level, name).is_some_and(|value| value != 0);
    sys::resets_at_close(tcp)
        || sys::has_owner(tcp)
        || is_set(libc::SOL_SOCKET, libc::SO_ZEROCOPY)
        || is_set(libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX)
        || is_set(libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT)
}
