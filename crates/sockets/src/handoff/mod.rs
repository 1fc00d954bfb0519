//! How a process that has a listener from another one gets connections that are granted there.
//!
//! A listener is inherited by `fork`, handed on by `exec` or over a socket. Whoever accepts from it
//! asks the process that serves it, by a name in the abstract name space that is the number of the
//! listener's socket: here is a connection, is it granted SDP? The answer has the program's end of
//! it, or nothing. Servers have their children give their rights up, so they may have another user.
//!
//! Everybody on this machine can come here. So nobody is waited for: a visitor is looked at when it
//! has said something, and is sent away when it has not for a while, or when too many of its user
//! are here. Those of other users are left to [`Aides`] for that.
//!
//! Invariant: only who has a connection that was accepted there is answered, only the same user or
//! root is believed, and the engine's thread never waits for a visitor.

mod message;
mod workers;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::mem::{MaybeUninit, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use weft_io::engine::Engine;
use weft_os::clock;
use weft_os::fds::HighFd;
use weft_reactor::{Interest, Readiness, Source, Token};
use weft_sync::{Mutex, MutexGuard};

use self::message::{self as parcel, Content};
use self::workers::Aides;
use crate::listener::Host;
use crate::sys::{self, Inode};

const BACKLOG: i32 = 128;
/// Visitors that are let in before others have their turn.
const ENTRANTS: usize = 32;
/// How long a process that has asked may take to say what, and how long it waits for the answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Visitors of one user, and all. One more sends the oldest away, which had the time of all the
/// others to say the one thing that there is to say.
const OF_ONE_USER: usize = 64;
const VISITORS_MAX: usize = 256;

/// Where other processes ask.
pub struct Desk {
    clerk: Arc<Clerk>,
    token: Token,
}

struct Clerk {
    me: Weak<Clerk>,
    fd: HighFd,
    token: OnceLock<Token>,
    host: Weak<Host>,
    aides: Aides,
    /// Those who have not said anything, the oldest first.
    visitors: Mutex<VecDeque<Arc<Visitor>>>,
}

/// A process that has come to ask.
struct Visitor {
    clerk: Weak<Clerk>,
    user: u32,
    until: Instant,
    /// Its socket and the name of that in the engine, until it leaves.
    seat: Mutex<Option<(HighFd, Token)>>,
}

impl Desk {
    /// Opens the one of a listener.
    pub fn open(socket: Inode, host: Weak<Host>) -> io::Result<Self> {
        let fd = sys::message_socket()?;
        sys::bind_name(fd.as_raw_fd(), &name(socket))?;
        sys::listen(fd.as_raw_fd(), BACKLOG)?;
        sys::set_flags(fd.as_raw_fd(), libc::O_RDWR | libc::O_NONBLOCK)?;
        let clerk = Arc::new_cyclic(|me| Clerk {
            me: me.clone(),
            fd: HighFd::new(fd),
            token: OnceLock::new(),
            host,
            aides: Aides::default(),
            visitors: Mutex::default(),
        });
        let token = Engine::get().add(clerk.fd.as_fd(), Interest::READ, clerk.clone());
        let _first = clerk.token.set(token);
        Ok(Self { clerk, token })
    }

    /// Asks at the one of a listener about `stream`, which was accepted there.
    ///
    /// # Errors
    /// There is none, or it does not answer.
    pub fn ask(socket: Inode, stream: RawFd) -> io::Result<Option<OwnedFd>> {
        let fd = sys::message_socket()?;
        let raw = fd.as_raw_fd();
        sys::limit_sending(raw, PATIENCE)?;
        sys::connect_name(raw, &name(socket))?;
        if !user(raw).is_some_and(is_trusted) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        send(raw, Some(stream))?;
        if sys::poll(raw, libc::POLLIN, Some(PATIENCE))? == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
        receive(raw)
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        Engine::get().remove(self.token);
        let visitors = std::mem::take(&mut *self.clerk.visitors());
        visitors.iter().for_each(|visitor| self.clerk.dismiss(visitor));
    }
}

impl Clerk {
    fn visitors(&self) -> MutexGuard<'_, VecDeque<Arc<Visitor>>> {
        self.visitors.lock()
    }

    /// Lets a visitor in.
    fn admit(&self, fd: OwnedFd) -> Option<()> {
        let user = user(fd.as_raw_fd())?;
        sys::set_flags(fd.as_raw_fd(), libc::O_RDWR | libc::O_NONBLOCK).ok()?;
        let until = clock::now() + PATIENCE;
        let visitor =
            Arc::new(Visitor { clerk: self.me.clone(), user, until, seat: Mutex::default() });
        let gone = {
            let mut visitors = self.visitors();
            if visitors.is_empty() {
                self.look_at(until);
            }
            visitors.push_back(Arc::clone(&visitor));
            let crowd = visitors.iter().filter(|other| other.user == user).count();
            let leaves = |other: &Arc<Visitor>| crowd <= OF_ONE_USER || other.user == user;
            let crowded = crowd > OF_ONE_USER || visitors.len() > VISITORS_MAX;
            let oldest = visitors.iter().position(leaves).filter(|_| crowded);
            oldest.and_then(|at| visitors.remove(at))
        };
        if let Some(gone) = gone {
            self.dismiss(&gone);
        }
        visitor.sit(HighFd::new(fd));
        Some(())
    }

    /// Has the engine look at the time.
    fn look_at(&self, until: Instant) {
        let me: Weak<Self> = self.me.clone();
        Engine::get().set_timer(until, me);
    }

    fn forget(&self, gone: &Visitor) {
        self.visitors().retain(|other| !std::ptr::eq(Arc::as_ptr(other), gone));
    }

    /// Sends away who has not said anything.
    fn dismiss(&self, visitor: &Visitor) {
        if let Some(fd) = visitor.leave() {
            self.attend(visitor.user, move || drop(fd));
        }
    }

    /// Does something about a visitor of this user.
    fn attend(&self, user: u32, act: impl FnOnce() + Send + 'static) {
        if is_trusted(user) { act() } else { self.aides.send(user, act) }
    }

    fn watch(&self, interest: Interest) {
        if let Some(token) = self.token.get() {
            Engine::get().modify(*token, interest);
        }
    }
}

/// Answers a visitor who has said something. Who asks badly gets no answer.
fn serve(host: &Weak<Host>, visitor: HighFd) {
    let _answered = answer(host, visitor.as_fd().as_raw_fd());
}

fn answer(host: &Weak<Host>, visitor: RawFd) -> Option<()> {
    let stream = receive(visitor).ok()??;
    let host = host.upgrade()?;
    let peer = accepted_from(stream.as_raw_fd(), visitor, host.at.port())?;
    let claimed = host.claim(stream.as_raw_fd(), None, peer);
    send(visitor, claimed.as_ref().map(AsRawFd::as_raw_fd)).ok()
}

impl Source for Clerk {
    fn ready(&self, _: Readiness) {
        if self.aides.are_busy() {
            self.watch(Interest::NONE);
            return self.look_at(clock::now() + PATIENCE);
        }
        for _ in 0..ENTRANTS {
            let Ok(fd) = sys::accept(self.fd.as_fd().as_raw_fd()) else { break };
            // One that cannot be told from others is not let in.
            let _ = self.admit(fd);
        }
    }

    fn timeout(&self, now: Instant) {
        self.watch(Interest::READ);
        let mut gone = Vec::new();
        {
            let mut visitors = self.visitors();
            while visitors.front().is_some_and(|visitor| visitor.until <= now) {
                gone.extend(visitors.pop_front());
            }
            if let Some(next) = visitors.front() {
                self.look_at(next.until);
            }
        }
        gone.iter().for_each(|visitor| self.dismiss(visitor));
    }
}

impl Visitor {
    fn sit(self: &Arc<Self>, fd: HighFd) {
        // Locked, so that the engine's first call finds it in place.
        let mut seat = self.seat.lock();
        let token = Engine::get().add(fd.as_fd(), Interest::READ, self.clone());
        *seat = Some((fd, token));
    }

    fn leave(&self) -> Option<HighFd> {
        let (fd, token) = self.seat.lock().take()?;
        Engine::get().remove(token);
        Some(fd)
    }
}

impl Source for Visitor {
    fn ready(&self, _: Readiness) {
        let (Some(clerk), Some(fd)) = (self.clerk.upgrade(), self.leave()) else { return };
        clerk.forget(self);
        let host = clerk.host.clone();
        clerk.attend(self.user, move || serve(&host, fd));
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
    let known = || here || user(visitor).is_some_and(is_trusted);
    sys::remote(stream).ok().filter(|_| met && known())
}

/// Whose process is at the other end of a socket of `AF_UNIX`, as of when it connected or listened.
fn user(fd: RawFd) -> Option<u32> {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    let (at, len_at) = (&raw mut who, &raw mut len);
    // SAFETY: the structure has the room that `len` says.
    let done = unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, option, at, len_at) };
    (done == 0).then_some(who.uid)
}

/// Whether what a user's process says is as good as if it came from this one.
fn is_trusted(user: u32) -> bool {
    // SAFETY: the call takes nothing and cannot fail.
    user == 0 || user == unsafe { libc::geteuid() }
}

fn send(to: RawFd, fd: Option<RawFd>) -> io::Result<()> {
    let mut word = parcel::WORD;
    let mut part = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 1 };
    let mut control = fd.map(parcel::pack);
    // SAFETY: an all-zero header is valid: no name, no parts, no control data.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    if let Some(control) = &mut control {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len();
    }
    // SAFETY: the header names locals that outlive the call.
    let sent = unsafe { libc::sendmsg(to, &raw const header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What has come, without waiting for it.
fn receive(from: RawFd) -> io::Result<Option<OwnedFd>> {
    let mut word = [0_u8; 2];
    let mut part = libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: word.len() };
    let mut control = [0_u8; parcel::CONTROL];
    // SAFETY: an all-zero header is valid: no name, no parts, no control data.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = control.len();
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the header names locals that outlive the call.
    let count = unsafe { libc::recvmsg(from, &raw mut header, flags) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let cut = header.msg_flags & (libc::MSG_CTRUNC | libc::MSG_TRUNC) != 0;
    let control = control.get(..header.msg_controllen).unwrap_or_default();
    // SAFETY: the kernel has made each descriptor that it tells of for us.
    let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    match parcel::unpack(word.get(..count).unwrap_or_default(), control, cut) {
        Content::Nothing => Ok(None),
        Content::One(fd) => Ok(Some(own(fd))),
        Content::Bad(fds) => {
            fds.into_iter().map(own).for_each(drop);
            Err(ErrorKind::InvalidData.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// Two sockets of messages that are connected to each other.
    fn pair() -> [OwnedFd; 2] {
        let mut pair = [-1; 2];
        // SAFETY: the array has room for the two descriptors.
        let done =
            unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, pair.as_mut_ptr()) };
        assert_eq!(done, 0);
        // SAFETY: they are new.
        pair.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    #[test]
    fn a_descriptor_comes_as_it_was_sent() {
        let [here, there] = pair();
        assert_eq!(receive(here.as_raw_fd()).unwrap_err().kind(), ErrorKind::WouldBlock);
        let (mut reader, writer) = std::io::pipe().unwrap();
        send(there.as_raw_fd(), Some(writer.as_raw_fd())).unwrap();
        drop(writer);
        let writer = receive(here.as_raw_fd()).unwrap().unwrap();
        std::io::Write::write_all(&mut std::fs::File::from(writer), b"x").unwrap();
        assert_eq!(reader.read(&mut [0; 2]).unwrap(), 1);
        send(there.as_raw_fd(), None).unwrap();
        assert!(receive(here.as_raw_fd()).unwrap().is_none());
    }

    #[test]
    fn more_descriptors_than_one_are_all_closed() {
        let [here, there] = pair();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut control = [parcel::pack(writer.as_raw_fd()).as_slice(), &[0; 8]].concat();
        control[..8].copy_from_slice(&(parcel::CONTROL + 8).to_ne_bytes());
        for at in [parcel::CONTROL, parcel::CONTROL + 4] {
            control[at..at + 4].copy_from_slice(&writer.as_raw_fd().to_ne_bytes());
        }
        let mut word = parcel::WORD;
        let mut part = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 1 };
        // SAFETY: an all-zero header is valid.
        let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len();
        // SAFETY: the header names locals that outlive the call.
        assert_eq!(unsafe { libc::sendmsg(there.as_raw_fd(), &raw const header, 0) }, 1);
        drop(writer);
        assert_eq!(receive(here.as_raw_fd()).unwrap_err().kind(), ErrorKind::InvalidData);
        // Nobody has the other end any more.
        assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0);
    }
}
