//! Datagrams of a UDP socket: bursts gathered from registered memory and cut by the kernel (GSO),
//! received in bundles as the kernel joined them (GRO).
//!
//! A [`UdpPort`] speaks IPv6 and IPv4, the latter as mapped addresses, where the machine has both.
//!
//! Datagrams are sent whole: neither this host nor a router cuts them, whatever the kernel has
//! heard of the path. Shuttle finds out itself what it takes (S-76), and says which may be cut.
#![allow(unsafe_code)]

mod arrivals;
mod control;
mod devoted;
mod fragments;
mod groups;
mod names;
mod relocation;
mod screen;

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use weft_os::fds::{self, HighFd};
use weft_os::options::{option, set_option};
use weft_os::random;
use weft_rnic::shuttle::Route;
use weft_rnic::wire::llp::{Gather, Piece};
use weft_rnic::{Batch, Written};
use weft_sync::Mutex;
use weft_verbs::Misuse;

pub use arrivals::{BUNDLE_OCTETS, Bundle};
use control::ControlMessages;
use fragments::DatagramCuts;
use names::{mapped, name_of, unspecified_like};

use crate::ports::PortBounds;
use crate::refused;
use crate::socket::{self, SocketKind};

/// Pieces of a burst: a header, a piece of memory or a few, and a trailer for each datagram.
const PIECES_MAX: usize = 1024;
/// Bytes of socket buffer to ask for. The kernel grants less where the administrator says so.
const BUFFER_OCTETS: libc::c_int = 8 << 20;
/// What the kernel grants a socket that asks for nothing, as it counts it.
const BUFFER_OCTETS_DEFAULT: u32 = 212_992;
/// Bytes of the largest bundle that is sent: IPv6's header and UDP's must fit beside it.
const BUNDLE_OCTETS_SENT: usize = 65_535 - 48;

/// A bound socket.
#[derive(Debug)]
pub struct UdpPort {
    fd: HighFd,
    number: u16,
    /// The low byte of the number of the queue pair.
    tag: u32,
    dual: bool,
    /// Bytes of receive buffer as the kernel counts them.
    room_octets: u32,
    /// The peer's host has said that nobody is there; only of a socket that has a peer.
    refused: AtomicBool,
    /// A send has failed for want of a route or a source address.
    unrouted: AtomicBool,
    /// The kernel cuts bundles into datagrams (GSO).
    cuts: AtomicBool,
    /// Source addresses that the system would not choose, and the interfaces that have them.
    leaves_by: OnceLock<Vec<(IpAddr, u32)>>,
    /// The socket for further paths of the next connection.
    further: Mutex<Option<Arc<UdpPort>>>,
    /// Where it was bound before it became a route's alone.
    bound_before: Mutex<Option<SocketAddr>>,
}

impl UdpPort {
    /// Binds a port that the kernel chooses, or `number` if it is not zero, on every address.
    pub fn bind(number: u16) -> io::Result<Self> {
        Self::bind_within(PortBounds::NONE, number)
    }

    fn bind_within(bounds: PortBounds, number: u16) -> io::Result<Self> {
        match Self::bind_to(bounds, (Ipv6Addr::UNSPECIFIED, number).into()) {
            Ok(port) => Ok(port),
            // A machine without IPv6.
            Err(error) if error.raw_os_error() != Some(libc::EADDRINUSE) => {
                Self::bind_to(bounds, (Ipv4Addr::UNSPECIFIED, number).into())
            }
            Err(error) => Err(error),
        }
    }

    fn bind_to(bounds: PortBounds, at: SocketAddr) -> io::Result<Self> {
        if bounds == PortBounds::NONE {
            return Self::adopt(UdpSocket::bind(at)?.into());
        }
        let fd = socket::open(&at, SocketKind::Datagram)?;
        bounds.bind(fd.as_fd(), &at, false)?;
        Self::adopt(fd)
    }

    /// Takes a socket that is bound already.
    pub fn adopt(fd: OwnedFd) -> io::Result<Self> {
        let socket = UdpSocket::from(fd);
        let at = socket.local_addr()?;
        let (fd, number) = (OwnedFd::from(socket), at.port());
        let dual = at.is_ipv6();
        let room_octets = prepare(fd.as_fd(), dual)?;
        let tag = random::random() & 0xff;
        let (refused, unrouted) = (AtomicBool::new(false), AtomicBool::new(false));
        let cuts = AtomicBool::new(option(fd.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT).is_some());
        let fd = HighFd::new(fd);
        let leaves_by = OnceLock::new();
        let (further, bound_before) = (Mutex::new(None), Mutex::new(None));
        Ok(Self {
            fd,
            number,
            tag,
            dual,
            room_octets,
            refused,
            unrouted,
            cuts,
            leaves_by,
            further,
            bound_before,
        })
    }

    /// A port for a queue pair, within `bounds`.
    ///
    /// # Errors
    /// If the system has none to give.
    pub fn for_queue_pair(bounds: PortBounds) -> Result<Self, Misuse> {
        Self::bind_within(bounds, 0).map_err(refused)
    }

    /// Has the kernel cut datagrams that are longer than the path takes, as it does for others: who
    /// sends them has not asked what that is.
    pub fn cut_long(&self) {
        fragments::cut_long(self.fd.as_fd());
    }

    /// The number of the queue pair that listens here: the port, and a byte that tells it from
    /// its predecessor at the same port.
    pub fn qp_number(&self) -> u32 {
        u32::from(self.number) << 8 | self.tag
    }

    /// Takes what comes from `peer` before any other socket at the same number does.
    ///
    /// # Errors
    /// The system finds no way there.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        socket::connect(self.fd.as_fd(), &peer).map(drop)
    }

    /// Keeps the socket for further paths of the connection that is about to be made here, until
    /// that takes it.
    pub fn keep_further(&self, further: Arc<Self>) {
        *self.further.lock() = Some(further);
    }

    /// The socket that was kept.
    pub fn take_further(&self) -> Option<Arc<Self>> {
        self.further.lock().take()
    }

    /// Has what is sent from these addresses leave by the interfaces with these indices, whatever
    /// the system's routes say of the destination: two links may both lead there. Counts once.
    pub fn leave_by(&self, interfaces: Vec<(IpAddr, u32)>) {
        let _said_before = self.leaves_by.set(interfaces);
    }

    fn interface_of(&self, from: IpAddr) -> Option<u32> {
        let chosen = self.leaves_by.get()?.iter().find(|(ip, _)| *ip == from)?;
        Some(chosen.1)
    }

    /// Whether it takes what comes to any address of this host.
    pub fn is_bound_anywhere(&self) -> bool {
        socket::local_addr(self.fd.as_fd()).is_ok_and(|at| at.ip().is_unspecified())
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Whether the peer's host has said, since the last call, that nobody is there.
    pub fn was_refused(&self) -> bool {
        self.refused.swap(false, Ordering::AcqRel)
    }

    /// Notes what the errors of a call, for a bundle or one datagram, say for later ones.
    fn failed(&self, error: &io::Error, is_bundle: bool) {
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => self.refused.store(true, Ordering::Release),
            // The device takes no datagrams of that length.
            Some(libc::EINVAL) if is_bundle => {}
            Some(libc::ENETUNREACH | libc::EADDRNOTAVAIL | libc::EINVAL | libc::ENODEV) => {
                self.unrouted.store(true, Ordering::Release);
            }
            // The device computes no checksums, so that the kernel cuts nothing for it.
            Some(libc::EIO) => self.cuts.store(false, Ordering::Relaxed),
            Some(libc::EBADF) => fds::note_lost(self.fd.as_fd()),
            _ => {}
        }
    }

    /// Bytes of datagrams that it holds until somebody receives them.
    pub fn room_octets(&self) -> u32 {
        self.room_octets
    }

    /// Sends as much of a burst as one call takes, without waiting.
    ///
    /// The registered memory it names is held in place by the caller; the kernel answers `EFAULT`
    /// for memory that the application has unmapped all the same. `own` is the route that the
    /// socket is devoted to, if it is.
    pub fn send(&self, burst: &Batch<'_>, own: Option<&Route>) -> Written {
        let bundle = first_bundle(burst.lengths);
        if bundle.len() < 2 || burst.may_fragment || !self.cuts.load(Ordering::Relaxed) {
            return self.send_first(burst, own);
        }
        match self.send_bundle(burst, bundle, own) {
            // Datagrams that are longer than the path takes are not cut, nor are they on the way to
            // some devices.
            Written::Failed => self.send_first(burst, own),
            written => written,
        }
    }

    /// The same with the first datagram only.
    pub fn send_first(&self, burst: &Batch<'_>, own: Option<&Route>) -> Written {
        self.send_bundle(burst, &burst.lengths[..burst.lengths.len().min(1)], own)
    }

    fn send_bundle(&self, burst: &Batch<'_>, bundle: &[u16], own: Option<&Route>) -> Written {
        let Some(route) = burst.route else { return Written::Octets(0) };
        let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; PIECES_MAX];
        let octets = bundle.iter().map(|length| usize::from(*length)).sum();
        let count = vectors_of(burst.gather, burst.written, octets, &mut vectors);
        let each = (bundle.len() > 1).then(|| bundle[0]);
        let route = (own != Some(route)).then_some(route);
        let cuts = match burst.may_fragment {
            true => DatagramCuts::Anywhere,
            false => DatagramCuts::of_datagram(octets),
        };
        self.send_vectors(route, &vectors[..count], each, cuts)
    }

    /// Sends datagrams that lie one behind the other, of `each` bytes but the last, without
    /// waiting. If there are several, the kernel has to cut them, or it is [`Written::Failed`].
    pub fn send_staged(&self, route: &Route, octets: &[u8], each: usize) -> Written {
        if octets.len() > each && !self.cuts.load(Ordering::Relaxed) {
            return Written::Failed;
        }
        let (iov_base, iov_len) = (octets.as_ptr().cast_mut().cast(), octets.len());
        let each = (octets.len() > each).then_some(each as u16);
        let vectors = [MaybeUninit::new(libc::iovec { iov_base, iov_len })];
        self.send_vectors(Some(route), &vectors, each, DatagramCuts::of_datagram(octets.len()))
    }

    /// Sends what `vectors`, each of them written, name: cut into datagrams of `each` bytes if
    /// there are several; to where the socket is connected if there is no route.
    fn send_vectors(
        &self,
        route: Option<&Route>,
        vectors: &[MaybeUninit<libc::iovec>],
        each: Option<u16>,
        cuts: DatagramCuts,
    ) -> Written {
        let call = || self.call(route, vectors, each);
        let send = || match cuts {
            DatagramCuts::Never | DatagramCuts::IfRefused => call(),
            DatagramCuts::Anywhere => fragments::with_cuts(self.fd.as_fd(), call),
        };
        let mut sent = send();
        if let Err(error) = &sent
            && is_told_once(error)
        {
            self.failed(error, each.is_some());
            sent = send();
        }
        let is_long = |error: &io::Error| error.raw_os_error() == Some(libc::EMSGSIZE);
        if cuts == DatagramCuts::IfRefused && sent.as_ref().is_err_and(is_long) {
            sent = fragments::with_cuts(self.fd.as_fd(), call);
        }
        self.written(sent, each.is_some())
    }

    /// The system call of [`UdpPort::send_vectors`]: the bytes that it has sent.
    fn call(
        &self,
        route: Option<&Route>,
        vectors: &[MaybeUninit<libc::iovec>],
        each: Option<u16>,
    ) -> io::Result<usize> {
        let fd = self.fd.as_fd().as_raw_fd();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        if let ([only], None, None) = (vectors, route, each) {
            // A small datagram is one piece, and for that there is a shorter call.
            // SAFETY: the caller has written each vector.
            let only = unsafe { only.assume_init_ref() };
            // SAFETY: what it points to is only read, and the kernel checks each address.
            return octets_of(unsafe { libc::send(fd, only.iov_base, only.iov_len, flags) });
        }
        let mut control = ControlMessages::default();
        if let Some(each) = each {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &each);
        }
        // SAFETY: an all-zero message header is valid: no name, no vectors, no control data.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        let mut name;
        if let Some(route) = route {
            self.push_source(route, &mut control);
            (name, message.msg_namelen) = name_of(route.remote, self.dual);
            message.msg_name = (&raw mut name).cast();
        }
        message.msg_iov = vectors.as_ptr().cast_mut().cast();
        message.msg_iovlen = vectors.len() as _;
        message.msg_control = control.words.as_mut_ptr().cast();
        message.msg_controllen = control.octets as _;
        // SAFETY: `message` names locals and `vectors`, which live as long as the call; the kernel
        // only reads, and checks each address that they name.
        octets_of(unsafe { libc::sendmsg(fd, &message, flags) })
    }

    /// What has come of calls that have sent these bytes, or failed.
    fn written(&self, sent: io::Result<usize>, is_bundle: bool) -> Written {
        let error = match sent {
            Ok(octets) => return Written::Octets(octets),
            Err(error) => error,
        };
        self.failed(&error, is_bundle);
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS) => Written::Blocked,
            Some(libc::EFAULT) => Written::Gone,
            _ => Written::Failed,
        }
    }

    fn push_source(&self, route: &Route, control: &mut ControlMessages) {
        let from = route.local.ip();
        if from.is_unspecified() {
            return;
        }
        // Nothing else says where a group of IPv6 is to be found.
        let ipi6_ifindex = match route.remote {
            SocketAddr::V6(to) if to.ip().is_multicast() => to.scope_id(),
            _ => self.interface_of(from).unwrap_or(0),
        };
        if self.dual {
            let ipi6_addr = libc::in6_addr { s6_addr: mapped(from).octets() };
            let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex };
            control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        } else if let IpAddr::V4(from) = from {
            let info = libc::in_pktinfo {
                ipi_ifindex: self.interface_of(from.into()).unwrap_or(0) as libc::c_int,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(from.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
    }
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Asks the kernel for what comes with datagrams, and widens the buffers.
fn prepare(fd: BorrowedFd<'_>, dual: bool) -> io::Result<u32> {
    let on = |level, name| set_option(fd, level, name, 1);
    on(libc::SOL_UDP, libc::UDP_GRO);
    on(libc::SOL_SOCKET, libc::SO_RXQ_OVFL);
    on(libc::IPPROTO_IP, libc::IP_RECVTOS);
    // The address that a datagram was sent to decides who is heard: nothing is without it.
    if !on(libc::IPPROTO_IP, libc::IP_PKTINFO)
        || dual && !on(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
    {
        return Err(io::Error::last_os_error());
    }
    if dual {
        on(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS);
    }
    fragments::keep_whole(fd);
    Ok(widen_buffers(fd))
}

/// The bytes that a system call has sent, or the error in `errno`.
fn octets_of(sent: isize) -> io::Result<usize> {
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Whether an error is of a datagram that was sent before: the kernel tells a connected socket what
/// ICMP has said of it, true or not, in place of sending the next one.
fn is_told_once(error: &io::Error) -> bool {
    use libc::{ECONNREFUSED, EHOSTUNREACH, EMSGSIZE, ENETUNREACH, ENOPROTOOPT};
    let told = [ECONNREFUSED, EHOSTUNREACH, EMSGSIZE, ENETUNREACH, ENOPROTOOPT];
    error.raw_os_error().is_some_and(|code| told.contains(&code))
}

/// The address that the system leaves by for `peer`.
pub fn source_to(peer: SocketAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((unspecified_like(peer), 0)).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The datagrams that leave together: of one length but the last, and no more than an IP packet
/// holds before the kernel cuts it.
fn first_bundle(lengths: &[u16]) -> &[u16] {
    let (mut octets, mut count) = (0, 0);
    for length in lengths {
        octets += usize::from(*length);
        if count > 0 && octets > BUNDLE_OCTETS_SENT {
            break;
        }
        count += 1;
    }
    &lengths[..count]
}

/// Names `octets` of the datagrams from `skip` on.
fn vectors_of(
    gather: &Gather,
    mut skip: usize,
    mut octets: usize,
    vectors: &mut [MaybeUninit<libc::iovec>; PIECES_MAX],
) -> usize {
    let mut count = 0;
    for piece in gather.pieces() {
        let (base, len) = match piece {
            Piece::Slab { start, len } => {
                (gather.staged(*start, *len).as_ptr() as u64, *len as usize)
            }
            Piece::Memory(memory) => (memory.addr, memory.len as usize),
        };
        let passed = len.min(skip);
        skip -= passed;
        let iov_len = (len - passed).min(octets);
        if iov_len == 0 {
            continue;
        }
        if count == PIECES_MAX {
            break;
        }
        let iov_base = (base + passed as u64) as *mut libc::c_void;
        vectors[count].write(libc::iovec { iov_base, iov_len });
        octets -= iov_len;
        count += 1;
    }
    count
}

/// Makes the socket buffers as large as may be; gives the bytes of the one for receiving.
fn widen_buffers(socket: BorrowedFd<'_>) -> u32 {
    for (force, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if !set_option(socket, libc::SOL_SOCKET, force, BUFFER_OCTETS) {
            set_option(socket, libc::SOL_SOCKET, plain, BUFFER_OCTETS);
        }
    }
    option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(BUFFER_OCTETS_DEFAULT)
}

/// Bytes of the largest packet that the kernel believes to reach the peer of a connected socket.
pub fn path_mtu(socket: &UdpSocket) -> Option<u32> {
    let (level, name) = match socket.local_addr().ok()? {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    option(socket.as_fd(), level, name)
}
