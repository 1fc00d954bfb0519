//! TCP ports of queue pairs that an application connects itself.
//!
//! As with UDP ([`crate::roce_connect`]), the number of a queue pair leads to it: its upper sixteen
//! bits are a TCP port, which up to 256 queue pairs of a process share, and the lower eight tell
//! them apart. Nobody listens there until an application names a peer. The private data of MPA's
//! Request says which two queue pairs a stream is to connect: RFC 5044 leaves that data to the two
//! ends, and both are Weft. The stream goes to the queue pair that waits for that peer, or is kept
//! for a moment until the application has named it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use weft_net::lane::rendezvous::{self, LaneListener};
use weft_net::secrecy::{Chosen, PeerTransport};
use weft_net::socket::{self, SocketKind};
use weft_net::{refused, tell_if_out_of_descriptors};
use weft_os::clock::{self, Moment};
use weft_os::fds::HighFd;
use weft_reactor::{Interest, Pollable, Readiness, Token};
use weft_rnic::mpa::negotiate::Responder;
use weft_rnic::wire::mpa::StartKind;
use weft_rnic::wire::shuttle::greeting::{Greeting, Purpose};
use weft_sync::{Mutex, MutexGuard};
use weft_verbs::Misuse;

use crate::host::Host;
use weft_net::mpa_frame::{FrameProgress, FrameReader};

/// Queue pairs that share a port.
const SHARED_MAX: usize = 256;
/// Streams that are in the queue of the kernel.
const BACKLOG: usize = 256;
/// Streams accepted in one go.
const ACCEPT_BATCH: usize = 64;
/// Streams that have not sent their Request, or are too early. One more closes the oldest.
const EARLY_MAX: usize = 256;
/// How long a stream may take to send its Request, and a Request waits for an application.
const PATIENCE: Duration = Duration::from_secs(30);

/// A number that leads to a queue pair; free again when it is dropped.
pub(crate) struct Number {
    port: Arc<IwarpPort>,
    index: usize,
}

impl Number {
    /// Takes a number that no other queue pair of this machine has.
    pub fn take(host: &Arc<Host>) -> Result<Self, Misuse> {
        let mut open = host.local().iwarp_ports.0.lock();
        if let Some(number) = open.iter().rev().find_map(IwarpPort::take) {
            return Ok(number);
        }
        let port = IwarpPort::bind(host).map_err(refused)?;
        open.push(Arc::clone(&port));
        IwarpPort::take(&port).ok_or(Misuse::Full)
    }

    /// The number, 24 bits.
    pub fn value(&self) -> u32 {
        u32::from(self.port.number) << 8 | self.index as u32
    }

    /// A descriptor that can be given up for that of a stream.
    pub fn spare(&self) -> io::Result<HighFd> {
        Ok(HighFd::new(self.port.socket.as_fd().try_clone_to_owned()?))
    }

    /// Has streams for this queue pair given to `attempt`.
    pub fn await_call(&self, attempt: &Arc<dyn AwaitsStream>) -> io::Result<()> {
        self.port.listen()?;
        let mut state = self.port.state();
        state.attempts.insert(self.value(), Arc::downgrade(attempt));
        let wanted = |early: &Early| early.greets(self.value(), attempt.peer_number());
        let found = state.early.iter().position(wanted).and_then(|at| state.early.remove(at));
        drop(state);
        if let Some(Early { stream, responder, .. }) = found {
            attempt.answer(stream, responder, self.port.lanes());
        }
        Ok(())
    }

    /// Has nothing given to it any more.
    pub fn forget_call(&self) {
        self.port.state().attempts.remove(&self.value());
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        let mut state = self.port.state();
        state.attempts.remove(&self.value());
        state.taken[self.index] = false;
    }
}

/// The ports of one process.
#[derive(Default)]
pub(crate) struct IwarpPorts(Mutex<Vec<Arc<IwarpPort>>>);

/// Who waits at a port for the stream of a peer.
pub(crate) trait AwaitsStream: Send + Sync {
    /// The number of the peer.
    fn peer_number(&self) -> u32;
    /// Says yes to a peer that has called.
    fn answer(&self, stream: TcpStream, responder: Responder, lanes: Option<&LaneListener>);
    /// Gives up the descriptor that is kept for the peer's stream; whether there was one.
    fn spend_spare(&self) -> bool;
}

/// A TCP port and the queue pairs behind it.
struct IwarpPort {
    host: Weak<Host>,
    socket: HighFd,
    number: u16,
    listens: AtomicBool,
    /// Where lanes are offered for its streams.
    lanes: OnceLock<Option<LaneListener>>,
    /// Its name in the engine once it listens.
    token: OnceLock<Token>,
    state: Mutex<PortState>,
    this: Weak<IwarpPort>,
}

struct PortState {
    taken: [bool; SHARED_MAX],
    /// Where the search for a free number goes on, so that one is not used again soon.
    next: usize,
    attempts: HashMap<u32, Weak<dyn AwaitsStream>>,
    callers: VecDeque<Arc<Caller>>,
    early: VecDeque<Early>,
}

/// A whole Request that came before its queue pair was ready for it.
struct Early {
    stream: TcpStream,
    responder: Responder,
    from: u32,
    to: u32,
    until: Moment,
}

impl Early {
    fn greets(&self, to: u32, from: u32) -> bool {
        (self.to, self.from) == (to, from)
    }
}

impl IwarpPort {
    fn bind(host: &Arc<Host>) -> io::Result<Arc<Self>> {
        let any = [(Ipv6Addr::UNSPECIFIED, 0).into(), (Ipv4Addr::UNSPECIFIED, 0).into()];
        let [v6, v4] = any.map(|addr: SocketAddr| {
            let fd = socket::open(&addr, SocketKind::Stream)?;
            if addr.is_ipv6() {
                let _is_the_default = socket::set_v6_only(fd.as_fd(), false);
            }
            host.settings().ports.bind(fd.as_fd(), &addr, false)?;
            Ok::<_, io::Error>(fd)
        });
        let fd = v6.or(v4)?;
        let number = socket::local_addr(fd.as_fd())?.port();
        let state = PortState {
            taken: [false; SHARED_MAX],
            next: 0,
            attempts: HashMap::new(),
            callers: VecDeque::new(),
            early: VecDeque::new(),
        };
        Ok(Arc::new_cyclic(|this| Self {
            host: Arc::downgrade(host),
            socket: HighFd::new(fd),
            number,
            listens: AtomicBool::new(false),
            lanes: OnceLock::new(),
            token: OnceLock::new(),
            state: Mutex::new(state),
            this: this.clone(),
        }))
    }

    fn take(port: &Arc<Self>) -> Option<Number> {
        let mut state = port.state();
        let free = |i: &usize| !state.taken[i % SHARED_MAX];
        let index = (state.next..state.next + SHARED_MAX).find(free)? % SHARED_MAX;
        state.taken[index] = true;
        state.next = index + 1;
        Some(Number { port: Arc::clone(port), index })
    }

    fn state(&self) -> MutexGuard<'_, PortState> {
        self.state.lock()
    }

    fn lanes(&self) -> Option<&LaneListener> {
        self.lanes.get()?.as_ref()
    }

    fn listen(&self) -> io::Result<()> {
        if self.listens.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if let (Some(this), Some(host)) = (self.this.upgrade(), self.host.upgrade()) {
            let lanes = rendezvous::listen(self.socket.as_fd(), BACKLOG, host.permits_lanes())
                .inspect_err(|_| self.listens.store(false, Ordering::Release))?;
            let _once = self.lanes.set(lanes);
            let token = host.reactor().add(self.socket.as_fd(), Interest::READ, this);
            let _first = self.token.set(token);
        }
        Ok(())
    }

    /// Looks again in a while.
    fn rest(&self) {
        let this: Weak<Self> = self.this.clone();
        if let (Some(token), Some(host)) = (self.token.get(), self.host.upgrade()) {
            host.reactor().rest(*token, this);
        }
    }

    /// Gives up a descriptor that a queue pair keeps for its stream; whether there was one.
    fn spend_spare(&self) -> bool {
        let attempts: Vec<_> = self.state().attempts.values().filter_map(Weak::upgrade).collect();
        attempts.iter().any(|attempt| attempt.spend_spare())
    }

    fn accept_stream(&self) -> io::Result<OwnedFd> {
        match socket::accept(self.socket.as_fd()) {
            Err(error) if socket::is_exhausted(&error) && self.spend_spare() => {
                socket::accept(self.socket.as_fd())
            }
            accepted => accepted,
        }
    }

    fn accept(&self) -> io::Result<()> {
        let stream = TcpStream::from(self.accept_stream()?);
        let Some(host) = self.host.upgrade() else { return Ok(()) };
        // Without addresses it has ended already.
        let (Ok(here), Ok(there)) = (stream.local_addr(), stream.peer_addr()) else {
            return Ok(());
        };
        if host
            .secrecy()
            .admit(PeerTransport::Iwarp(Chosen::ByName), here.ip(), there.ip())
            .is_err()
        {
            return Ok(());
        }
        socket::prepare_stream(&stream);
        let caller = Caller::start(&host, self.this.clone(), stream);
        let mut state = self.state();
        state.callers.push_back(caller);
        let crowded = state.callers.len() > EARLY_MAX;
        let gone = crowded.then(|| state.callers.pop_front()).flatten();
        drop(state);
        if let Some(gone) = gone {
            gone.hang_up();
        }
        Ok(())
    }

    /// A stream has sent its Request.
    fn dispatch(&self, stream: TcpStream, responder: Responder) {
        let Some(greeting) = Greeting::parse(responder.private_data()) else { return };
        let (from, to) = (greeting.from, greeting.to);
        if greeting.purpose != Purpose::QueuePair || (to >> 8) as u16 != self.number {
            return;
        }
        let mut state = self.state();
        let attempt = state.attempts.get(&to).and_then(Weak::upgrade);
        if let Some(attempt) = attempt.filter(|attempt| attempt.peer_number() == from) {
            drop(state);
            attempt.answer(stream, responder, self.lanes());
            return;
        }
        let now = clock::now();
        let until = now + PATIENCE;
        state.early.retain(|early| early.until > now && !early.greets(to, from));
        if state.early.len() >= EARLY_MAX {
            state.early.pop_front();
        }
        state.early.push_back(Early { stream, responder, from, to, until });
        drop(state);
        if let Some(host) = self.host.upgrade() {
            let this: Weak<Self> = self.this.clone();
            host.reactor().set_timer(until, this);
        }
    }

    fn forget(&self, gone: &Caller) {
        self.state().callers.retain(|other| !std::ptr::eq(Arc::as_ptr(other), gone));
    }
}

impl Pollable for IwarpPort {
    fn ready(&self, _: Readiness) {
        for _ in 0..ACCEPT_BATCH {
            if let Err(error) = self.accept() {
                if socket::is_exhausted(&error) {
                    tell_if_out_of_descriptors(&error);
                    self.rest();
                }
                break;
            }
        }
    }

    fn timeout(&self, now: Moment) {
        self.state().early.retain(|early| early.until > now);
        if let (Some(token), Some(host)) = (self.token.get(), self.host.upgrade()) {
            host.reactor().modify(*token, Interest::READ);
        }
    }
}

/// An accepted stream whose Request is not whole yet.
struct Caller {
    host: Weak<Host>,
    port: Weak<IwarpPort>,
    reading: Mutex<Option<IwarpRequestReader>>,
    until: Moment,
}

struct IwarpRequestReader {
    stream: TcpStream,
    token: Token,
    reader: FrameReader,
}

impl Caller {
    fn start(host: &Arc<Host>, port: Weak<IwarpPort>, stream: TcpStream) -> Arc<Self> {
        let until = clock::now() + PATIENCE;
        let caller =
            Arc::new(Self { host: Arc::downgrade(host), port, reading: Mutex::new(None), until });
        // Locked, so that the engine's first call finds the state in place.
        let mut reading = caller.reading.lock();
        let token = host.reactor().add(stream.as_fd(), Interest::READ, caller.clone());
        *reading = Some(IwarpRequestReader {
            stream,
            token,
            reader: FrameReader::new(StartKind::Request),
        });
        drop(reading);
        let weak: Weak<Self> = Arc::downgrade(&caller);
        host.reactor().set_timer(until, weak);
        caller
    }

    fn hang_up(&self) -> Option<TcpStream> {
        let reading = self.reading.lock().take()?;
        if let Some(host) = self.host.upgrade() {
            host.reactor().remove(reading.token);
        }
        Some(reading.stream)
    }

    /// Reads what has come of the Request.
    fn read(&self) {
        let progress = match self.reading.lock().as_mut() {
            Some(reading) => reading.reader.read(&reading.stream),
            None => FrameProgress::Pending,
        };
        let responder = match progress {
            FrameProgress::Pending => return,
            FrameProgress::Broken(_) => None,
            FrameProgress::Whole(frame) => Responder::handle_request(&frame).ok(),
        };
        let (Some(stream), Some(port)) = (self.hang_up(), self.port.upgrade()) else { return };
        port.forget(self);
        if let Some(responder) = responder {
            port.dispatch(stream, responder);
        }
    }
}

impl Pollable for Caller {
    fn ready(&self, _: Readiness) {
        self.read();
    }

    fn timeout(&self, now: Moment) {
        if self.until > now {
            return;
        }
        // While this process was stopped it may have come.
        self.read();
        if let Some(stream) = self.hang_up() {
            drop(stream);
            if let Some(port) = self.port.upgrade() {
                port.forget(self);
            }
        }
    }
}
