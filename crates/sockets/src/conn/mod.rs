//! A connection: the application's socket, the far end, and what joins them.
//!
//! The far end is an SDP stream, or the kernel's TCP where that was decided after the application
//! had got its socket. The TCP connection accompanies an SDP stream, open and silent.
//!
//! Invariant: whether SDP or TCP carries a connection is decided once ([`state`]), both ends decide
//! the same, and no byte moves before.

pub mod attempt;
mod connecting;
pub mod inner;
mod pump;
pub mod state;
pub mod table;
pub mod waiter;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_os::clock::{self, Moment};
use weft_rdmacm::{CmEvent, CmId, EventKind};
use weft_reactor::{Interest, Pollable, Readiness};
use weft_sdp::HelloRequest;
use weft_sync::{Mutex, MutexGuard};
use weft_verbs::Wake;

use self::inner::ConnInner;
use self::state::{ConnChange, ConnPhase};
use self::table::ConnTable;
use crate::app_socket::AppSocket;
use crate::fabric::{Fabric, conn_param};
use crate::names::SocketEnds;
use crate::stream::SdpStream;
use crate::watched_fd::WatchedFd;
use crate::{rdma, sys};

/// How long a peer that was granted SDP may take to show that it knows.
const REACH_LIMIT: Duration = Duration::from_secs(5);

/// A connection of this process.
pub struct SdpConn {
    me: Weak<SdpConn>,
    /// Names it among those of the process.
    pub id: u64,
    table: &'static ConnTable,
    inner: Mutex<ConnInner>,
}

/// Which descriptor of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnPart {
    /// This library's end of the application's pair.
    App,
    /// The shadow TCP connection.
    Shadow,
}

/// A descriptor of a connection, as a source of the reactor.
struct FdSource(Weak<SdpConn>, ConnPart);

impl Pollable for FdSource {
    fn ready(&self, _: Readiness) {
        let Some(conn) = self.0.upgrade() else { return };
        let mut inner = conn.lock();
        match self.1 {
            ConnPart::App => inner.is_app_ready = true,
            ConnPart::Shadow => inner.is_shadow_ready = true,
        }
        conn.work_locked(&mut inner);
    }

    fn timeout(&self, _: Moment) {}
}

/// Schedules a connection on the reactor, since a completion is added under locks that a pass
/// takes.
struct ConnWaker(Weak<SdpConn>);

impl Wake for ConnWaker {
    fn wake(&self) {
        let conn: Weak<dyn Pollable> = self.0.clone();
        rdma::host().reactor().set_timer(clock::now(), conn);
    }
}

impl SdpConn {
    /// A connection between `ends` that begins in `phase`, in the table.
    pub fn new(table: &'static ConnTable, ends: SocketEnds, phase: ConnPhase) -> Arc<Self> {
        let conn = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            id: table.env.next_id(),
            table,
            inner: Mutex::new(ConnInner::new(table, ends, phase)),
        });
        table.add(Arc::clone(&conn));
        conn
    }

    /// The source for one of its descriptors.
    pub fn fd_source(&self, part: ConnPart) -> Arc<dyn Pollable> {
        Arc::new(FdSource(self.me.clone(), part))
    }

    /// The waker for completions: schedules the connection on the reactor.
    pub fn waker(&self) -> Box<dyn Wake> {
        Box::new(ConnWaker(self.me.clone()))
    }

    /// Locks the state of the connection.
    pub fn lock(&self) -> MutexGuard<'_, ConnInner> {
        self.inner.lock()
    }

    /// Does all that can be done now.
    pub fn work(&self) {
        let mut inner = self.lock();
        self.work_locked(&mut inner);
    }

    fn work_locked(&self, inner: &mut ConnInner) {
        if inner.is_over() {
            return;
        }
        if inner.attempt.is_some() {
            self.decide(inner);
        }
        if inner.attempt.is_some() && inner.app.as_ref().is_some_and(AppSocket::is_left) {
            // Here nobody waits for what comes of it; the peer may.
            self.finish(inner);
            inner.attempt = None;
            return;
        }
        if inner.attempt.is_none() {
            inner.check_shadow();
            // Before the application may have left.
            inner.report_carrier();
            if inner.pump() {
                self.set_timer(clock::now());
            }
            inner.check_limits();
        }
        if inner.is_done() {
            self.finish(inner);
        }
        if let Some(due) = inner.due.filter(|due| inner.needs_timer(*due)) {
            inner.timer = Some(due);
            self.set_timer(due);
        }
    }

    /// Sends all `count` bytes that `gather` returns on this thread, if that is possible without
    /// waiting; see [`ConnInner::may_send_inline`].
    pub fn send_inline(&self, count: usize, gather: impl FnOnce() -> Option<Vec<u8>>) -> bool {
        self.inner.try_lock().is_some_and(|mut inner| {
            !inner.is_over()
                && inner.may_send_inline(count)
                && gather().is_some_and(|bytes| inner.send_inline(&bytes))
        })
    }

    /// The application is about to end its half at `fd`. Nothing is done if the connection is
    /// locked until then.
    pub fn prepare_end(&self, fd: RawFd, until: Moment) {
        if let Some(mut inner) = clock::retry(until, || self.inner.try_lock()) {
            inner.prepare_app_end(fd);
        }
    }

    fn set_timer(&self, at: Moment) {
        let conn: Weak<dyn Pollable> = self.me.clone();
        rdma::host().reactor().set_timer(at, conn);
    }

    /// Ends the connection and releases all its parts.
    pub fn finish(&self, inner: &mut ConnInner) {
        inner.change(ConnChange::Finished);
        inner.due = None;
        let failed = inner.has_failed();
        if let Some(app) = inner.app.take() {
            self.table.remove_app_socket(app.other());
            if failed && !inner.is_end_told {
                app.reset();
            }
        }
        inner.shadow = None;
        inner.drop_stream();
        self.table.remove(self.id);
    }

    /// Handles an event of its id.
    pub fn handle_event(&self, event: &CmEvent) {
        let mut inner = self.lock();
        if inner.is_over() {
            return;
        }
        match event.kind {
            EventKind::Established if inner.attempt.is_some() => {
                inner.handle_agreed(&event.private_data);
            }
            EventKind::Established => inner.handle_reached(),
            EventKind::AddrResolved | EventKind::RouteResolved | EventKind::TimewaitExit => return,
            _ if inner.attempt.is_some() => inner.handle_refused(event),
            _ => inner.handle_lost(),
        }
        self.work_locked(&mut inner);
    }

    /// Grants SDP to the peer that asks by `id`; whether that succeeded.
    pub fn grant(
        &self,
        id: &Arc<CmId>,
        fabric: &Fabric,
        peer: IpAddr,
        hello: HelloRequest,
    ) -> bool {
        let mut inner = self.lock();
        let devices = &self.table.env.devices;
        let accepted = SdpStream::accept(devices, fabric.personality, peer, hello, self.waker());
        let Ok((stream, answer)) = accepted else { return false };
        if id.accept(&conn_param(answer), stream.qp()).is_err() {
            return false;
        }
        (inner.stream, inner.cm) = (Some(stream), Some(Arc::clone(id)));
        inner.unreported_fabric = Some(fabric.name);
        self.limit_reach(&mut inner);
        drop(inner);
        self.work();
        true
    }

    /// Resets a grant that the application has not accepted.
    pub fn revoke(&self) {
        let mut inner = self.lock();
        if inner.phase().is_unclaimed() {
            self.finish(&mut inner);
        }
    }

    /// Gives the granted connection to the application, which has accepted `stream` from the peer.
    /// Returns the socket that the application gets instead, to be put at the descriptor `at` if
    /// that is one of this process; none if the peer has given SDP up or has left.
    ///
    /// # Errors
    /// Without descriptors or memory. The peer, which may have chosen SDP, is reset.
    pub fn claim(&self, stream: RawFd, at: Option<RawFd>) -> io::Result<Option<OwnedFd>> {
        let mut inner = self.lock();
        if !inner.phase().is_unclaimed() {
            return Ok(None);
        }
        let claimed = self.try_claim(&mut inner, stream, at);
        if claimed.is_err() {
            self.finish(&mut inner);
        }
        sys::unless_lacking(claimed)
    }

    fn try_claim(
        &self,
        inner: &mut ConnInner,
        stream: RawFd,
        at: Option<RawFd>,
    ) -> io::Result<OwnedFd> {
        let shadow = sys::duplicate(stream)?;
        // Nothing on it waits.
        sys::set_flags(stream, libc::O_RDWR | libc::O_NONBLOCK)?;
        inner.ends = SocketEnds { local: sys::local(stream)?, remote: sys::remote(stream)? };
        let source = self.fd_source(ConnPart::App);
        let (theirs, app) = AppSocket::pair(&inner.ends, at.unwrap_or(-1), source)?;
        sys::set_room(theirs.as_raw_fd());
        if let Some(me) = self.me.upgrade().filter(|_| at.is_some()) {
            self.table.add_app_socket(app.other(), me);
        }
        inner.app = Some(app);
        let source = self.fd_source(ConnPart::Shadow);
        inner.shadow = Some(WatchedFd::new(shadow, Interest::READ, source));
        inner.due = None;
        inner.change(ConnChange::AppAccepted);
        inner.settle();
        inner.report_carrier();
        if inner.phase() == ConnPhase::Accepted {
            self.limit_reach(inner);
        }
        self.set_timer(clock::now());
        Ok(theirs)
    }

    /// Limits how long the peer takes to show that it knows of the grant.
    fn limit_reach(&self, inner: &mut ConnInner) {
        let until = clock::now() + REACH_LIMIT;
        inner.due = Some(until);
        self.set_timer(until);
    }

    /// Whether some of the application's bytes have not reached the peer; none if the connection is
    /// locked, perhaps by this very thread, if it is in a signal handler.
    pub fn has_unsent(&self) -> Option<bool> {
        let mut inner = self.inner.try_lock()?;
        if inner.is_over() || inner.phase().is_unclaimed() || inner.attempt.is_some() {
            return Some(false);
        }
        Some(match inner.stream.as_mut().and_then(SdpStream::parts) {
            Some((connection, _)) => !connection.is_flushed() && connection.fault().is_none(),
            None => !inner.is_relay_done(),
        })
    }

    /// Whether the connection is still being made.
    pub fn is_connecting(&self) -> bool {
        self.lock().attempt.is_some()
    }

    /// Runs `act` on the TCP connection beside the stream.
    pub fn with_shadow<T>(&self, act: impl FnOnce(RawFd) -> T) -> Option<T> {
        self.lock().shadow.as_ref().map(|shadow| act(shadow.raw()))
    }
}

impl Pollable for SdpConn {
    fn ready(&self, _: Readiness) {}

    fn timeout(&self, _: Moment) {
        if self.is_connecting() {
            // An answer that has arrived counts, even if it is late.
            self.table.env.events.drain();
        }
        self.work();
    }
}
