//! What this process has: its connections, its listeners, and the channel of their events.
//!
//! Invariant: the child of a fork begins with none. What its parent had is carried by the parent.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::time::{Duration, Instant};

use weft_io::cm::{CmId, Delivery, EventChannel, EventKind};
use weft_io::engine::{self, Engine};
use weft_os::clock;
use weft_reactor::{Interest, Readiness, Source};
use weft_sync::{Mutex, MutexGuard, TryOnceLock};

use crate::abandoned::Leaver;
use crate::conn::Conn;
use crate::guard;
use crate::listener::Host;
use crate::stream::Stream;
use crate::sys::{self, Inode};

/// How long the end of a process waits for what its program has written to arrive.
const LINGER: Duration = Duration::from_secs(5);
/// How often it is looked whether it has.
const LINGER_STEP: Duration = Duration::from_millis(10);

/// Calls that were given up and still wait for their answers.
const LEAVERS_MAX: usize = 64;

/// What a process has.
pub struct Center {
    channel: TryOnceLock<Arc<EventChannel>>,
    conns: Mutex<HashMap<u64, Arc<Conn>>>,
    /// By the socket that the program has.
    seats: Mutex<HashMap<Inode, Arc<Conn>>>,
    hosts: Mutex<HashMap<Inode, Arc<Host>>>,
    /// Calls that were given up, by the names of their connections.
    leavers: Mutex<HashMap<u64, Arc<Leaver>>>,
    /// How many of these there are, for who has no time to look.
    hosted: AtomicUsize,
    has_seats: AtomicBool,
    draining: Mutex<()>,
    next: AtomicU64,
    owner: u32,
}

/// Processes in a line of forks that have something of their own; those beyond share the last.
pub const GENERATIONS: usize = 64;
static CENTERS: [OnceLock<Center>; GENERATIONS] = [const { OnceLock::new() }; GENERATIONS];
static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// Which of them this process is.
pub fn generation() -> usize {
    GENERATION.load(Ordering::Acquire).min(GENERATIONS - 1)
}

fn slot() -> &'static OnceLock<Center> {
    &CENTERS[generation()]
}

extern "C" fn in_child() {
    if slot().get().is_some() {
        GENERATION.fetch_add(1, Ordering::AcqRel);
    }
}

extern "C" fn at_exit() {
    Center::linger();
}

/// Watches the channel.
struct Events;

impl Source for Events {
    fn ready(&self, _: Readiness) {
        Center::get().drain();
    }

    fn timeout(&self, _: Instant) {}
}

impl Center {
    /// That of this process; the first call makes it. A guard is held.
    pub fn get() -> &'static Self {
        slot().get_or_init(Self::new)
    }

    /// That of this process, if it has one.
    pub fn current() -> Option<&'static Self> {
        slot().get()
    }

    fn new() -> Self {
        Self {
            channel: TryOnceLock::new(),
            conns: Mutex::default(),
            seats: Mutex::default(),
            hosts: Mutex::default(),
            leavers: Mutex::default(),
            hosted: AtomicUsize::new(0),
            has_seats: AtomicBool::new(false),
            draining: Mutex::default(),
            next: AtomicU64::new(1),
            owner: std::process::id(),
        }
    }

    /// Where the connection manager tells what happens; the first call opens it.
    ///
    /// # Errors
    /// If the system has no descriptor or thread left.
    pub fn channel(&self) -> io::Result<Arc<EventChannel>> {
        self.channel.get_or_try_init(Self::open_channel).map(Arc::clone)
    }

    fn open_channel() -> io::Result<Arc<EventChannel>> {
        static REGISTERED: Once = Once::new();
        // What the engine's threads close and connect is not the program's.
        engine::at_thread_start(guard::stay);
        let channel = EventChannel::new()?;
        sys::set_flags(channel.fd(), libc::O_RDWR | libc::O_NONBLOCK)?;
        let fd = channel.fd();
        Engine::get().add(sys::borrow(&fd), Interest::READ, Arc::new(Events));
        REGISTERED.call_once(|| {
            // SAFETY: both functions take nothing, and live as long as the library.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            // SAFETY: as above.
            unsafe { libc::atexit(at_exit) };
        });
        Ok(channel)
    }

    /// A name that nothing else of this process has.
    pub fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Deals with what the connection manager has told. When it returns, that holds of all that was
    /// told before it was called.
    pub fn drain(&self) {
        let Some(channel) = self.channel.get() else { return };
        let _draining = self.draining.lock();
        while let Ok(delivery) = channel.wait() {
            delivery.owner().acknowledge();
            let Delivery { id, listen, event, .. } = delivery;
            match listen.map(|listen| self.host_named(listen.cookie())) {
                Some(Some(host)) => host.admit(&id, &event),
                Some(None) => id.destroy(),
                None => {
                    let conn = self.conns().get(&id.cookie()).cloned();
                    if let Some(conn) = conn {
                        conn.handle_event(&event);
                    }
                    if !matches!(event.kind, EventKind::AddrResolved | EventKind::RouteResolved) {
                        self.part(id.cookie());
                    }
                }
            }
        }
    }

    fn conns(&self) -> MutexGuard<'_, HashMap<u64, Arc<Conn>>> {
        self.conns.lock()
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<Inode, Arc<Conn>>> {
        self.seats.lock()
    }

    fn hosts(&self) -> MutexGuard<'_, HashMap<Inode, Arc<Host>>> {
        self.hosts.lock()
    }

    /// Keeps a connection until [`Center::forget`].
    pub fn keep(&self, conn: Arc<Conn>) {
        self.conns().insert(conn.id, conn);
    }

    /// Lets go of it.
    pub fn forget(&self, id: u64) {
        let _conn = self.conns().remove(&id);
    }

    /// Ends the call of connection `id` when its answer is there, or in a while.
    pub fn leave_call(&self, id: u64, cm: Arc<CmId>, stream: Stream) {
        let mut leavers = self.leavers.lock();
        if leavers.len() < LEAVERS_MAX {
            leavers.insert(id, Leaver::new(id, cm, stream));
        } else {
            drop(leavers);
            cm.destroy();
        }
    }

    /// Ends it now, if there is one.
    pub fn part(&self, id: u64) {
        let leaver = self.leavers.lock().remove(&id);
        drop(leaver);
    }

    /// The program has this socket for the connection.
    pub fn seat(&self, socket: Inode, conn: Arc<Conn>) {
        self.seats().insert(socket, conn);
        self.has_seats.store(true, Ordering::Release);
    }

    /// Whether the program has, or had, any.
    pub fn has_seats(&self) -> bool {
        self.has_seats.load(Ordering::Acquire)
    }

    /// The program has it no more.
    pub fn leave(&self, socket: Inode) {
        let _conn = self.seats().remove(&socket);
    }

    /// The connection that a descriptor of the program stands for.
    pub fn seated(&self, fd: RawFd) -> Option<Arc<Conn>> {
        let socket = sys::inode(fd)?;
        self.seats().get(&socket).cloned()
    }

    /// The same, if that can be said without waiting for another thread.
    pub fn seated_now(&self, fd: RawFd) -> Option<Arc<Conn>> {
        let socket = sys::inode(fd)?;
        self.seats.try_lock()?.get(&socket).cloned()
    }

    /// Serves a listener.
    pub fn host(&self, socket: Inode, host: Arc<Host>) {
        let mut hosts = self.hosts();
        hosts.insert(socket, host);
        self.hosted.store(hosts.len(), Ordering::Release);
    }

    /// Who serves the listener behind a socket.
    pub fn host_of(&self, socket: Inode) -> Option<Arc<Host>> {
        if !self.has_hosts() {
            return None;
        }
        self.hosts().get(&socket).cloned()
    }

    /// Whether any listener is served here.
    pub fn has_hosts(&self) -> bool {
        self.hosted.load(Ordering::Acquire) > 0
    }

    fn host_named(&self, id: u64) -> Option<Arc<Host>> {
        self.hosts().values().find(|host| host.id == id).cloned()
    }

    /// Serves listeners for which `over` says so no more.
    pub fn dismiss(&self, over: impl Fn(Inode, SocketAddr) -> bool) {
        let mut gone = Vec::new();
        {
            let mut hosts = self.hosts();
            hosts.retain(|socket, host| {
                let keep = !over(*socket, host.at);
                if !keep {
                    gone.push(Arc::clone(host));
                }
                keep
            });
            self.hosted.store(hosts.len(), Ordering::Release);
        }
        gone.iter().for_each(|host| host.stop());
    }

    /// The process ends: closes what the program has left open, and waits until what it wrote has
    /// arrived, for as long as that may take.
    pub fn linger() {
        let Some(center) = Self::current().filter(|c| c.owner == std::process::id()) else {
            return;
        };
        let _inside = guard::enter();
        let seats: Vec<Inode> = center.seats().keys().copied().collect();
        if seats.is_empty() && center.conns().is_empty() {
            return;
        }
        // What is still in the program's own buffers would be written too late.
        // SAFETY: null means every stream.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        seats.into_iter().flat_map(sys::find).for_each(sys::close);
        let until = clock::now() + LINGER;
        while clock::now() < until {
            let open: Vec<Arc<Conn>> = center.conns().values().cloned().collect();
            if !open.iter().any(|conn| conn.has_more_to_say()) {
                return;
            }
            sys::pause(LINGER_STEP);
        }
    }
}
