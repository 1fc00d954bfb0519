//! Bytes of a TCP socket: gathered from registered memory, received into scratch.
//!
//! Payload is received into scratch memory and copied, not received in place. Measured over
//! loopback, the sender's CPU does TCP's work for both ends and is the bottleneck; the receiver
//! idles for a third of the time, so that saving its copy gains nothing. In return, a frame with a
//! wrong CRC leaves memory unchanged, which the RFCs do not ask for.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use weft_os::fds;
use weft_os::options::{option, set_option};
use weft_rnic::wire::llp::Piece;
use weft_rnic::{Batch, Written};

/// Pieces handed to the kernel in one call, which is the kernel's own limit.
const PIECES_MAX: usize = 1024;

/// What a receive brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// This many bytes.
    Octets(usize),
    /// Nothing, for now.
    Nothing,
    /// The peer closed, or the connection broke.
    Closed,
    /// It has ended because nothing of the peer has come for too long, or no way leads there.
    Unanswered,
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The addresses of this side and of the peer.
pub fn ends(socket: BorrowedFd<'_>) -> Option<(IpAddr, IpAddr)> {
    let stream = TcpStream::from(socket.try_clone_to_owned().ok()?);
    let (local, remote) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
    Some((local.ip().to_canonical(), remote.ip().to_canonical()))
}

/// The addresses and ports of this side and of the peer.
pub fn addresses(socket: BorrowedFd<'_>) -> Option<(SocketAddr, SocketAddr)> {
    let stream = TcpStream::from(socket.try_clone_to_owned().ok()?);
    Some((stream.local_addr().ok()?, stream.peer_addr().ok()?))
}

/// Who is at the other end of a connection, if it has not ended.
pub fn peer(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    TcpStream::from(socket.try_clone_to_owned().ok()?).peer_addr().ok()
}

/// Reads what is there, without waiting.
pub fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> Received {
    let (ptr, len) = (room.as_mut_ptr().cast(), room.len());
    // SAFETY: `room` is a live slice of `len` bytes.
    let n = unsafe { libc::recv(socket.as_raw_fd(), ptr, len, libc::MSG_DONTWAIT) };
    match n {
        0 => Received::Closed,
        n if n > 0 => Received::Octets(n as usize),
        _ => match errno() {
            libc::EAGAIN | libc::EINTR => Received::Nothing,
            libc::EBADF => {
                // Not the peer has ended it. The reactor sees to what follows.
                fds::note_lost(socket);
                Received::Nothing
            }
            libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH => Received::Unanswered,
            _ => Received::Closed,
        },
    }
}

/// Writes what is left of a batch, without waiting.
///
/// The registered memory it names is held in place by the caller; the kernel answers `EFAULT` for
/// memory that the application has unmapped all the same.
pub fn send(socket: BorrowedFd<'_>, out: &Batch<'_>) -> Written {
    // Not cleared first: that alone would take longer than to frame a small message.
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; PIECES_MAX];
    let count = vectors_of(out, &mut vectors);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let n = match &vectors[..count] {
        // A small batch is one piece, and for that there is a shorter call.
        [only] => {
            // SAFETY: the first `count` vectors were written.
            let only = unsafe { only.assume_init_ref() };
            // SAFETY: what it points to is only read, and the kernel checks each address.
            unsafe { libc::send(socket.as_raw_fd(), only.iov_base, only.iov_len, flags) }
        }
        several => {
            // SAFETY: an all-zero message header is valid: no name, no vectors, no control data.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = several.as_ptr().cast_mut().cast();
            message.msg_iovlen = count as _;
            // SAFETY: `message` names the `count` vectors on this stack that were written; what
            // they point to is only read, and the kernel checks each address.
            unsafe { libc::sendmsg(socket.as_raw_fd(), &message, flags) }
        }
    };
    match n {
        n if n >= 0 => Written::Octets(n as usize),
        _ => match errno() {
            libc::EAGAIN | libc::EINTR | libc::ENOBUFS => Written::Blocked,
            libc::EBADF => {
                fds::note_lost(socket);
                Written::Blocked
            }
            libc::EFAULT => Written::Gone,
            _ => Written::Failed,
        },
    }
}

fn vectors_of(out: &Batch<'_>, vectors: &mut [MaybeUninit<libc::iovec>; PIECES_MAX]) -> usize {
    let (gather, mut skip, mut count) = (out.gather, out.written, 0);
    for piece in gather.pieces() {
        let (base, len) = match piece {
            Piece::Slab { start, len } => {
                (gather.staged(*start, *len).as_ptr() as u64, *len as usize)
            }
            Piece::Memory(memory) => (memory.addr, memory.len as usize),
        };
        if skip >= len {
            skip -= len;
            continue;
        }
        if count == PIECES_MAX {
            break;
        }
        let base = (base + skip as u64) as *mut libc::c_void;
        vectors[count].write(libc::iovec { iov_base: base, iov_len: len - skip });
        skip = 0;
        count += 1;
    }
    count
}

/// What a socket is ready for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ready {
    /// A receive would bring something.
    pub read: bool,
    /// There is room worth a write.
    pub write: bool,
}

/// Asks without waiting what `socket` is ready for.
pub fn ready(socket: BorrowedFd<'_>) -> Ready {
    let mut poll =
        libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN | libc::POLLOUT, revents: 0 };
    // SAFETY: `poll` is one live entry.
    unsafe { libc::poll(&mut poll, 1, 0) };
    let failed = poll.revents & (libc::POLLERR | libc::POLLHUP) != 0;
    Ready {
        read: failed || poll.revents & libc::POLLIN != 0,
        write: failed || poll.revents & libc::POLLOUT != 0,
    }
}

/// Whether the connection is gone in both directions, so that waiting for it makes no sense.
pub fn is_broken(socket: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: `poll` is one live entry.
    unsafe { libc::poll(&mut poll, 1, 0) };
    poll.revents & (libc::POLLERR | libc::POLLHUP) != 0
}

/// Waits up to a millisecond for bytes, for room if `write`, or for an acknowledgement, which
/// nothing announces.
pub fn wait(socket: BorrowedFd<'_>, write: bool) {
    let events = libc::POLLIN | if write { libc::POLLOUT } else { 0 };
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    // SAFETY: `poll` is one live entry.
    unsafe { libc::poll(&mut poll, 1, 1) };
    if poll.revents & libc::POLLNVAL != 0 {
        fds::note_lost(socket);
    }
}

/// Ends the sending half: the peer sees the end after everything written before.
pub fn shutdown_write(socket: BorrowedFd<'_>) {
    // SAFETY: takes no pointers.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_WR) };
}

/// Ends both halves, also for copies of the socket that a forked child holds.
pub fn shutdown(socket: BorrowedFd<'_>) {
    // SAFETY: takes no pointers.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Bytes that the peer has not acknowledged.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> usize {
    let mut octets: libc::c_int = 0;
    // SAFETY: `octets` is a live integer of the size that TIOCOUTQ writes.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut octets) };
    if result < 0 { 0 } else { octets.max(0) as usize }
}

/// Bytes that TCP puts into one segment.
pub fn segment_size(socket: BorrowedFd<'_>) -> u32 {
    option(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG).unwrap_or(1460)
}

/// The round trip time as TCP has smoothed it, in microseconds.
pub fn rtt_us(socket: BorrowedFd<'_>) -> Option<u32> {
    info(socket).map(|info| info.tcpi_rtt)
}

/// For how long the peer's host has said nothing, not even that nobody reads there, although it was
/// asked again. `None` when all that was sent is acknowledged.
pub fn silence(socket: BorrowedFd<'_>) -> Option<Duration> {
    let info = info(socket).filter(|_| unacknowledged(socket) > 0)?;
    // One probe of a closed window is always on its way, and the next ones are minutes apart.
    let asked = info.tcpi_retransmits > 0 || info.tcpi_probes > 1;
    let heard_ms = if asked { info.tcpi_last_ack_recv } else { 0 };
    Some(Duration::from_millis(heard_ms.into()))
}

fn info(socket: BorrowedFd<'_>) -> Option<libc::tcp_info> {
    // SAFETY: an all-zero tcp_info is valid: it holds integers only.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    let place = (&raw mut info).cast();
    // SAFETY: `place` has room for `len` bytes.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, place, &mut len)
    };
    (result == 0).then_some(info)
}

/// Chooses the congestion control by name; a kernel that lacks it keeps its own.
pub fn congestion_control(socket: BorrowedFd<'_>, name: &str) {
    let (ptr, len) = (name.as_ptr().cast(), name.len() as libc::socklen_t);
    // SAFETY: `ptr` points to `len` live bytes.
    unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, ptr, len)
    };
}

/// Sends small frames at once.
pub fn no_delay(socket: BorrowedFd<'_>) {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
}

/// Has the kernel find out about a host that has gone without a word while nothing is under way.
/// [`silence`] tells while something is: the kernel's own limit would also end a connection to a
/// process that is stopped and does not read.
pub fn give_up_after(socket: BorrowedFd<'_>, silence: Duration) {
    // The first probe leaves after an interval of silence, and the kernel gives up an interval
    // after the fourth: five make up the whole.
    const PROBES: libc::c_int = 4;
    let interval_s = (silence.as_secs() / 5).clamp(1, 3600) as libc::c_int;
    set_option(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, interval_s);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, interval_s);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, PROBES);
}

/// Takes that back.
pub fn never_give_up(socket: BorrowedFd<'_>) {
    set_option(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 0);
}
