//! How a process that has a listener from another one gets connections that are granted there.
//!
//! A listener is inherited by `fork`, handed on by `exec` or over a socket. Whoever accepts from it
//! asks the process that serves it, by a name in the abstract name space that is the number of the
//! listener's socket: here is a connection, is it granted SDP? The answer has the program's end of
//! it, or nothing. Servers have their children give their rights up, so they may have another user.
//!
//! Invariant: only who has a connection that was accepted there is answered, and only the same user
//! or root is believed.

use std::io::{self, ErrorKind};
use std::mem::{MaybeUninit, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use weft_io::engine::{Engine, Interest, Readiness, Source, Token};
use weft_io::fds::HighFd;

use crate::host::Host;
use crate::sys::{self, Inode};

const BACKLOG: i32 = 128;
/// How long a process that has asked may take to say what, and the other to answer. Either does
/// nothing else meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);
/// Room for one descriptor beside a message.
const CONTROL_OCTETS: usize = 32;

/// Where other processes ask.
pub struct Desk {
    _fd: Arc<HighFd>,
    token: Token,
}

struct Clerk {
    fd: Arc<HighFd>,
    host: Weak<Host>,
}

impl Desk {
    /// Opens the one of a listener.
    pub fn open(socket: Inode, host: Weak<Host>) -> io::Result<Self> {
        let fd = sys::message_socket()?;
        sys::bind_name(fd.as_raw_fd(), &name(socket))?;
        sys::listen(fd.as_raw_fd(), BACKLOG)?;
        sys::set_flags(fd.as_raw_fd(), libc::O_RDWR | libc::O_NONBLOCK)?;
        let fd = Arc::new(HighFd::new(fd));
        let clerk = Clerk { fd: Arc::clone(&fd), host };
        let token = Engine::get().add(fd.as_fd(), Interest::READ, Arc::new(clerk));
        Ok(Self { _fd: fd, token })
    }

    /// Asks at the one of a listener about `stream`, which was accepted there.
    ///
    /// # Errors
    /// There is none.
    pub fn ask(socket: Inode, stream: RawFd) -> io::Result<Option<OwnedFd>> {
        let fd = sys::message_socket()?;
        sys::connect_name(fd.as_raw_fd(), &name(socket))?;
        if !is_same_user(fd.as_raw_fd()) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        send(fd.as_raw_fd(), Some(stream))?;
        receive(fd.as_raw_fd())
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        Engine::get().remove(self.token);
    }
}

impl Clerk {
    fn serve(&self, visitor: &OwnedFd) -> Option<()> {
        let raw = visitor.as_raw_fd();
        let stream = receive(raw).ok()??;
        let host = self.host.upgrade()?;
        let peer = accepted_from(stream.as_raw_fd(), raw, host.at.port())?;
        let claimed = host.claim(stream.as_raw_fd(), None, peer);
        send(raw, claimed.as_ref().map(AsRawFd::as_raw_fd)).ok()
    }
}

impl Source for Clerk {
    fn ready(&self, _: Readiness) {
        if let Ok(visitor) = sys::accept(self.fd.as_fd().as_raw_fd()) {
            // Who asks badly gets no answer.
            let _ = self.serve(&visitor);
        }
    }

    fn timeout(&self, _: Instant) {}
}

fn name(socket: Inode) -> Vec<u8> {
    format!("weft-sockets/desk/{}", socket.number()).into_bytes()
}

/// The peer of `stream`, if that is a connection of the listener at `port`. Its two addresses prove
/// that, for no other socket here can have both; one in another network could, so if the kernel
/// cannot tell networks apart the visitor must be of the same user.
fn accepted_from(stream: RawFd, visitor: RawFd, port: u16) -> Option<SocketAddr> {
    let tcp = sys::option(stream, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP);
    let here = sys::network(stream).is_some_and(|network| sys::network(visitor) == Some(network));
    let met = tcp && sys::local(stream).is_ok_and(|at| at.port() == port);
    sys::remote(stream).ok().filter(|_| met && (here || is_same_user(visitor)))
}

fn is_same_user(fd: RawFd) -> bool {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    let (at, len_at) = (&raw mut who, &raw mut len);
    // SAFETY: the structure has the room that `len` says.
    let done = unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, option, at, len_at) };
    // SAFETY: the call takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    done == 0 && (who.uid == user || who.uid == 0)
}

/// A message of one octet with a descriptor beside it.
struct Parcel {
    part: libc::iovec,
    control: [u64; CONTROL_OCTETS / 8],
}

impl Parcel {
    fn header(&mut self) -> libc::msghdr {
        // SAFETY: an all-zero header is valid: no name, no parts, no control data.
        let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        header.msg_iov = &raw mut self.part;
        header.msg_iovlen = 1;
        header.msg_control = self.control.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_OCTETS;
        header
    }
}

fn send(to: RawFd, fd: Option<RawFd>) -> io::Result<()> {
    let mut octet = 0_u8;
    let part = libc::iovec { iov_base: (&raw mut octet).cast(), iov_len: 1 };
    let mut parcel = Parcel { part, control: [0; CONTROL_OCTETS / 8] };
    let mut header = parcel.header();
    match fd {
        None => header.msg_controllen = 0,
        Some(fd) => {
            // SAFETY: the size of a descriptor has no end that could overflow.
            header.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as usize;
            // SAFETY: the header names control data with room for one.
            let first = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
            let message = libc::cmsghdr {
                // SAFETY: as above.
                cmsg_len: unsafe { libc::CMSG_LEN(size_of::<RawFd>() as u32) } as usize,
                cmsg_level: libc::SOL_SOCKET,
                cmsg_type: libc::SCM_RIGHTS,
            };
            // SAFETY: it lies in `control`, which is aligned for it.
            unsafe { first.write(message) };
            // SAFETY: the data of this message are within the room that was counted for it.
            let data = unsafe { libc::CMSG_DATA(first) };
            // SAFETY: as above.
            unsafe { data.cast::<RawFd>().write_unaligned(fd) };
        }
    }
    // SAFETY: the header names locals that outlive the call.
    let sent = unsafe { libc::sendmsg(to, &raw const header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn receive(from: RawFd) -> io::Result<Option<OwnedFd>> {
    if sys::poll(from, libc::POLLIN, Some(PATIENCE))? == 0 {
        return Err(ErrorKind::TimedOut.into());
    }
    let mut octet = 0_u8;
    let part = libc::iovec { iov_base: (&raw mut octet).cast(), iov_len: 1 };
    let mut parcel = Parcel { part, control: [0; CONTROL_OCTETS / 8] };
    let mut header = parcel.header();
    // SAFETY: the header names locals that outlive the call.
    let count = unsafe { libc::recvmsg(from, &raw mut header, libc::MSG_CMSG_CLOEXEC) };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled the control data as the header says.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    if first.is_null() {
        return Ok(None);
    }
    // SAFETY: a message of the control data, which is aligned for it.
    let message = unsafe { first.read() };
    if (message.cmsg_level, message.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        return Ok(None);
    }
    // SAFETY: the message is there, and its data are behind it.
    let data = unsafe { libc::CMSG_DATA(first) };
    // SAFETY: there is room for one descriptor only, so one has come.
    let fd = unsafe { data.cast::<RawFd>().read_unaligned() };
    // SAFETY: the kernel has made it for us.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}
