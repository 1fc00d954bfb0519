//! Handing granted connections to other processes that accept from the same listener.
//!
//! A listener is inherited by `fork`, kept over `exec` or passed over a socket. A process that
//! accepts from it sends the accepted TCP socket to the process that serves it, at an abstract
//! `AF_UNIX` name with the inode of the listener's socket. The answer has the application's end of
//! the connection if that was granted SDP, or nothing. Children of servers often have other users.
//!
//! Every process of this machine can connect here, so nothing waits for a client: its message is
//! read when it is there, and the client is disconnected if it sends none in time, or if its user
//! has too many clients. Clients of other users are handled by [`ForeignUserWorkers`].
//!
//! Invariant: only a client that sends an accepted connection is answered, only the same user or
//! root is trusted, and the reactor's thread never waits for a client.

pub mod channel;
mod message;
mod spare;
mod workers;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use weft_os::clock::{self, Moment};
use weft_os::fds::HighFd;
use weft_reactor::{Interest, Pollable, Readiness, Token};
use weft_sync::{Mutex, MutexGuard};

use self::channel::{receive, send, user};
pub use self::spare::SpareDescriptor;
use self::workers::ForeignUserWorkers;
use crate::rdma;
use crate::sys::{self, Inode};

/// Pending clients of the socket, at most.
const BACKLOG: i32 = 128;
/// Clients accepted at once, before the reactor serves other sources.
const ACCEPTS_MAX: usize = 32;
/// How long a client may take to send its message, and waits for the answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Silent clients of one user, and of all, at most. One more disconnects the oldest, which had the
/// most time to send its message.
const CLIENTS_OF_USER_MAX: usize = 64;
const CLIENTS_MAX: usize = 256;

/// Access to the connections that a listener has granted SDP.
pub trait Grants: Send + Sync {
    /// The TCP port of the listener.
    fn port(&self) -> u16;

    /// Returns the application's socket for the connection from `peer`, which was accepted as
    /// `stream`, to be put at the descriptor `at` if that is one of this process; none if the peer
    /// was not granted SDP.
    ///
    /// # Errors
    /// Without descriptors or memory. The peer may not use TCP then.
    fn claim(
        &self,
        stream: RawFd,
        at: Option<RawFd>,
        peer: SocketAddr,
    ) -> io::Result<Option<OwnedFd>>;
}

/// Serves other processes until it is dropped.
pub struct HandoffServer {
    shared: Arc<HandoffSocket>,
    token: Token,
}

/// The listening socket and its clients, as a source of the reactor.
struct HandoffSocket {
    me: Weak<HandoffSocket>,
    fd: HighFd,
    token: OnceLock<Token>,
    listener: Weak<dyn Grants>,
    workers: ForeignUserWorkers,
    /// Clients that have not sent a message, the oldest first.
    clients: Mutex<VecDeque<Arc<HandoffClient>>>,
}

/// A process that asks for a connection that it has accepted.
struct HandoffClient {
    server: Weak<HandoffSocket>,
    /// Its user id, by `SO_PEERCRED`.
    user: u32,
    until: Moment,
    /// Its socket and the reactor's token for it, until its message is read.
    socket: Mutex<Option<(HighFd, Token)>>,
}

impl HandoffServer {
    /// Serves the listener behind `socket`.
    ///
    /// # Errors
    /// Without descriptors, or if another process serves it.
    pub fn open(socket: Inode, listener: Weak<dyn Grants>) -> io::Result<Self> {
        let fd = sys::message_socket()?;
        sys::bind_name(fd.as_raw_fd(), &name(socket))?;
        sys::listen(fd.as_raw_fd(), BACKLOG)?;
        sys::set_flags(fd.as_raw_fd(), libc::O_RDWR | libc::O_NONBLOCK)?;
        let shared = Arc::new_cyclic(|me| HandoffSocket {
            me: me.clone(),
            fd: HighFd::new(fd),
            token: OnceLock::new(),
            listener,
            workers: ForeignUserWorkers::default(),
            clients: Mutex::default(),
        });
        let token = rdma::host().reactor().add(shared.fd.as_fd(), Interest::READ, shared.clone());
        let _first = shared.token.set(token);
        Ok(Self { shared, token })
    }

    /// Asks the process that serves the listener behind `socket` for the connection that was
    /// accepted as `stream`, by `fd`, a new socket of messages.
    ///
    /// # Errors
    /// No process serves it, or it does not answer in time.
    pub fn ask(fd: OwnedFd, socket: Inode, stream: RawFd) -> io::Result<Option<OwnedFd>> {
        let raw = fd.as_raw_fd();
        sys::limit_sending(raw, ANSWER_LIMIT)?;
        sys::connect_name(raw, &name(socket))?;
        if !user(raw).is_some_and(is_trusted) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        send(raw, Some(stream))?;
        if sys::poll(raw, libc::POLLIN, Some(ANSWER_LIMIT))? == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
        receive(raw)
    }
}

impl Drop for HandoffServer {
    fn drop(&mut self) {
        rdma::host().reactor().remove(self.token);
        let clients = std::mem::take(&mut *self.shared.clients());
        clients.iter().for_each(|client| self.shared.dismiss(client));
    }
}

impl HandoffSocket {
    fn clients(&self) -> MutexGuard<'_, VecDeque<Arc<HandoffClient>>> {
        self.clients.lock()
    }

    /// Adds a client, if its user has not too many.
    fn admit(&self, fd: OwnedFd) -> Option<()> {
        let user = user(fd.as_raw_fd())?;
        sys::set_flags(fd.as_raw_fd(), libc::O_RDWR | libc::O_NONBLOCK).ok()?;
        let until = clock::now() + ANSWER_LIMIT;
        let (server, socket) = (self.me.clone(), Mutex::default());
        let client = Arc::new(HandoffClient { server, user, until, socket });
        let gone = {
            let mut clients = self.clients();
            if clients.is_empty() {
                self.set_timer(until);
            }
            clients.push_back(Arc::clone(&client));
            let of_user = clients.iter().filter(|other| other.user == user).count();
            let user_is_over = of_user > CLIENTS_OF_USER_MAX;
            let leaves = |other: &Arc<HandoffClient>| !user_is_over || other.user == user;
            let is_over = user_is_over || clients.len() > CLIENTS_MAX;
            let oldest = clients.iter().position(leaves).filter(|_| is_over);
            oldest.and_then(|at| clients.remove(at))
        };
        if let Some(gone) = gone {
            self.dismiss(&gone);
        }
        client.begin(HighFd::new(fd));
        Some(())
    }

    /// Sets the reactor's timer.
    fn set_timer(&self, until: Moment) {
        let me: Weak<Self> = self.me.clone();
        rdma::host().reactor().set_timer(until, me);
    }

    fn forget(&self, gone: &HandoffClient) {
        self.clients().retain(|other| !std::ptr::eq(Arc::as_ptr(other), gone));
    }

    /// Disconnects a client that has not sent a message.
    fn dismiss(&self, client: &HandoffClient) {
        if let Some(fd) = client.end() {
            self.run(client.user, move || drop(fd));
        }
    }

    /// Runs `act`, which touches the descriptors of a client of this user.
    fn run(&self, user: u32, act: impl FnOnce() + Send + 'static) {
        if is_trusted(user) { act() } else { self.workers.send(user, act) }
    }

    /// Lets clients wait that cannot be accepted.
    fn rest(&self) {
        if let Some(token) = self.token.get() {
            let me: Weak<Self> = self.me.clone();
            rdma::host().reactor().rest(*token, me);
        }
    }
}

/// Answers a client that has sent a message; a malformed one gets no answer.
fn serve(listener: &Weak<dyn Grants>, client: HighFd) {
    let _answered = answer(listener, client.as_fd().as_raw_fd());
}

fn answer(listener: &Weak<dyn Grants>, client: RawFd) -> Option<()> {
    let stream = receive(client).ok()??;
    let listener = listener.upgrade()?;
    let peer = accepted_from(stream.as_raw_fd(), client, listener.port())?;
    let claimed = listener.claim(stream.as_raw_fd(), None, peer);
    // The client has the connection too, and would go on by TCP.
    let claimed = claimed.inspect_err(|_| sys::shut(stream.as_raw_fd(), libc::SHUT_RDWR)).ok()?;
    send(client, claimed.as_ref().map(AsRawFd::as_raw_fd)).ok()
}

impl Pollable for HandoffSocket {
    fn ready(&self, _: Readiness) {
        if self.workers.are_busy() {
            return self.rest();
        }
        for _ in 0..ACCEPTS_MAX {
            let fd = match sys::accept(self.fd.as_fd().as_raw_fd()) {
                Ok(fd) => fd,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.rest(),
            };
            // A client whose user is unknown is disconnected.
            let _ = self.admit(fd);
        }
    }

    fn timeout(&self, now: Moment) {
        if let Some(token) = self.token.get() {
            rdma::host().reactor().modify(*token, Interest::READ);
        }
        let mut gone = Vec::new();
        {
            let mut clients = self.clients();
            while clients.front().is_some_and(|client| client.until <= now) {
                gone.extend(clients.pop_front());
            }
            if let Some(next) = clients.front() {
                self.set_timer(next.until);
            }
        }
        gone.iter().for_each(|client| self.dismiss(client));
    }
}

impl HandoffClient {
    fn begin(self: &Arc<Self>, fd: HighFd) {
        // Locked, so that the reactor's first call finds the socket.
        let mut socket = self.socket.lock();
        let token = rdma::host().reactor().add(fd.as_fd(), Interest::READ, self.clone());
        *socket = Some((fd, token));
    }

    fn end(&self) -> Option<HighFd> {
        let (fd, token) = self.socket.lock().take()?;
        rdma::host().reactor().remove(token);
        Some(fd)
    }
}

impl Pollable for HandoffClient {
    fn ready(&self, _: Readiness) {
        let (Some(server), Some(fd)) = (self.server.upgrade(), self.end()) else { return };
        server.forget(self);
        let listener = server.listener.clone();
        server.run(self.user, move || serve(&listener, fd));
    }

    fn timeout(&self, _: Moment) {}
}

fn name(socket: Inode) -> Vec<u8> {
    format!("weft-sockets/handoff/{}", socket.number()).into_bytes()
}

/// The peer of `stream`, if that is a connection of the listener at `port`. Its two addresses prove
/// that, since no other socket of this network namespace can have both. If the kernel does not tell
/// namespaces apart, the client must be of the same user.
fn accepted_from(stream: RawFd, client: RawFd, port: u16) -> Option<SocketAddr> {
    let tcp = sys::option(stream, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP);
    let here = sys::network(stream).is_some_and(|network| sys::network(client) == Some(network));
    let met = tcp && sys::local(stream).is_ok_and(|at| at.port() == port);
    let known = || here || user(client).is_some_and(is_trusted);
    sys::remote(stream).ok().filter(|_| met && known())
}

/// Whether processes of a user are trusted as this one is.
fn is_trusted(user: u32) -> bool {
    // SAFETY: the call takes nothing and cannot fail.
    user == 0 || user == unsafe { libc::geteuid() }
}
