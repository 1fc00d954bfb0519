//! A connection: the program's end, the far end, and what joins them.
//!
//! The far end is an SDP stream, or the kernel's TCP where that was decided after the program had
//! got its end. Beside an SDP stream the TCP connection between the two sockets stays open and
//! silent: it has the addresses, it is what a listener's queue holds, and it ends when a process
//! does.
//!
//! Invariant: it is decided once whether a connection goes by SDP or by TCP, both sides decide the
//! same, and no octet moves before. The caller decides; the side that accepts waits until it sees
//! what that was: a message by SDP, or the end of the stream, or something on the TCP connection.

pub mod pump;

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use weft_io::cm::{CmId, Event, EventKind};
use weft_io::engine::Engine;
use weft_os::clock;
use weft_os::fds::HighFd;
use weft_reactor::{Interest, Readiness, Source, Token};
use weft_sync::{Mutex, MutexGuard};
use weft_verbs::Wake;

use crate::app_socket::Near;
use crate::conn::pump::Plain;
use crate::connect::Dial;
use crate::names::Ends;
use crate::registry::Center;
use crate::stream::Stream;
use crate::{report, strict, sys};

/// How long SDP may go on without the TCP connection beside it: what is on its way arrives.
const ALONE: Duration = Duration::from_secs(1);
/// How long the peer of a program that has closed may go on sending nothing and not close.
const ORPHANED: Duration = Duration::from_secs(60);
/// How long a peer that was granted a connection may take to show that it knows.
const UNREACHED: Duration = Duration::from_secs(5);
/// How long a connection waits for its program to accept it once it is over.
const UNCLAIMED: Duration = Duration::from_secs(60);

/// Why a peer that has asked for SDP speaks TCP.
const GAVE_UP: &str = "it has given SDP up";

/// Where the octets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// That is not decided.
    Open,
    /// SDP.
    Sdp,
    /// The kernel's TCP.
    Tcp,
}

/// The TCP connection beside a stream, or instead of one.
pub struct Companion {
    pub fd: HighFd,
    pub token: Option<Token>,
    interest: Interest,
}

impl Companion {
    pub fn new(fd: HighFd, interest: Interest, source: Arc<dyn Source>) -> Self {
        let token = Some(Engine::get().add(fd.as_fd(), interest, source));
        Self { fd, token, interest }
    }

    pub fn raw(&self) -> RawFd {
        self.fd.as_fd().as_raw_fd()
    }

    pub fn watch(&mut self, interest: Interest) {
        if let Some(token) = self.token
            && self.interest != interest
        {
            self.interest = interest;
            Engine::get().modify(token, interest);
        }
    }

    /// Stops watching it.
    pub fn ignore(&mut self) {
        if let Some(token) = self.token.take() {
            Engine::get().remove(token);
        }
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.ignore();
    }
}

/// What is behind a connection's lock.
pub struct Inner {
    pub ends: Ends,
    pub way: Way,
    pub near: Option<Near>,
    pub stream: Option<Stream>,
    pub cm: Option<Arc<CmId>>,
    pub companion: Option<Companion>,
    /// While it is being made from here.
    pub dial: Option<Dial>,
    /// By which layer the peer that asked for it is reached, until it is told which way it went.
    pub guest: Option<&'static str>,
    /// A peer that was granted it knows that, and is about to decide.
    reached: bool,
    /// The peer is known to go by SDP.
    pub confirmed: bool,
    /// It is no more.
    pub over: bool,
    /// The program has ended its half; it has closed.
    pub ended: bool,
    pub left: bool,
    /// The program has been told the end of the other half.
    pub told_end: bool,
    pub plain: Plain,
    /// The program may have said something.
    pub near_stirs: bool,
    /// Something has happened to the TCP connection.
    companion_stirs: bool,
    /// The program wants its end to be a reset.
    pub abortive: bool,
    /// When something has taken too long.
    pub due: Option<Instant>,
    /// The time for which the engine is asked to look.
    timer: Option<Instant>,
}

/// A connection of this process.
pub struct Conn {
    me: Weak<Conn>,
    /// Names it among those of the process.
    pub id: u64,
    inner: Mutex<Inner>,
}

/// Which of the descriptors of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Our end of the program's.
    Near,
    /// That of the TCP connection.
    Companion,
}

/// One of the descriptors of a connection.
struct Eye(Weak<Conn>, Part);

impl Source for Eye {
    fn ready(&self, _: Readiness) {
        let Some(conn) = self.0.upgrade() else { return };
        let mut inner = conn.lock();
        match self.1 {
            Part::Near => inner.near_stirs = true,
            Part::Companion => inner.companion_stirs = true,
        }
        conn.work_locked(&mut inner);
    }

    fn timeout(&self, _: Instant) {}
}

/// Has the engine look at a connection: whoever adds a completion holds locks.
struct Waker(Weak<Conn>);

impl Wake for Waker {
    fn wake(&self) {
        let conn: Weak<dyn Source> = self.0.clone();
        Engine::get().set_timer(clock::now(), conn);
    }
}

impl Conn {
    /// A connection between `ends`, whose parts `make` makes.
    pub fn new(id: u64, ends: Ends) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            id,
            inner: Mutex::new(Inner {
                ends,
                way: Way::Open,
                near: None,
                stream: None,
                cm: None,
                companion: None,
                dial: None,
                guest: None,
                reached: false,
                confirmed: false,
                over: false,
                ended: false,
                left: false,
                told_end: false,
                plain: Plain::default(),
                near_stirs: true,
                companion_stirs: false,
                abortive: false,
                due: None,
                timer: None,
            }),
        })
    }

    /// Has the engine called for one of its descriptors.
    pub fn eye(&self, part: Part) -> Arc<dyn Source> {
        Arc::new(Eye(self.me.clone(), part))
    }

    /// Is called when completions wait.
    pub fn waker(&self) -> Box<dyn Wake> {
        Box::new(Waker(self.me.clone()))
    }

    /// What is behind its lock.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Does what there is to do.
    pub fn work(&self) {
        let mut inner = self.lock();
        self.work_locked(&mut inner);
    }

    fn work_locked(&self, inner: &mut Inner) {
        if inner.over {
            return;
        }
        if inner.dial.is_some() {
            self.decide(inner);
        }
        if inner.dial.is_none() {
            inner.check_companion();
            // Before its program may have left.
            inner.tell_way();
            if inner.pump() {
                self.again();
            }
            inner.check_limits();
        }
        if inner.is_over() {
            self.finish(inner);
        }
        if let Some(due) = inner.due.filter(|due| inner.timer != Some(*due)) {
            inner.timer = Some(due);
            self.set_timer(due);
        }
    }

    /// Sends what the program says, all `count` octets that `gather` gives, if that can be done
    /// here and now.
    pub fn say(&self, count: usize, gather: impl FnOnce() -> Option<Vec<u8>>) -> bool {
        self.inner.try_lock().is_some_and(|mut inner| {
            !inner.over && inner.may_say(count) && gather().is_some_and(|octets| inner.say(&octets))
        })
    }

    fn again(&self) {
        self.set_timer(clock::now());
    }

    fn set_timer(&self, at: Instant) {
        let conn: Weak<dyn Source> = self.me.clone();
        Engine::get().set_timer(at, conn);
    }

    /// Ends it: every part is let go of.
    pub fn finish(&self, inner: &mut Inner) {
        inner.over = true;
        inner.due = None;
        let fault = inner.has_failed();
        if let Some(near) = inner.near.take() {
            Center::get().leave(near.other());
            if fault && !inner.told_end {
                near.reset();
            }
        }
        inner.companion = None;
        inner.drop_stream();
        Center::get().forget(self.id);
    }

    /// The connection manager has something to say.
    pub fn handle_event(&self, event: &Event) {
        let mut inner = self.lock();
        if inner.over {
            return;
        }
        match event.kind {
            EventKind::Established if inner.dial.is_some() => inner.agree(&event.private_data),
            EventKind::Established => inner.reach(),
            EventKind::AddrResolved | EventKind::RouteResolved | EventKind::TimewaitExit => return,
            _ if inner.dial.is_some() => inner.refuse(event),
            _ => inner.lose(),
        }
        self.work_locked(&mut inner);
    }

    /// Gives the connection, which a peer has asked for, to the program that has accepted `stream`
    /// from it; gives what the program gets instead, to be put at the number `at`, if that is one
    /// of this process. None if the peer has given it up.
    pub fn claim(&self, stream: RawFd, at: Option<RawFd>) -> Option<OwnedFd> {
        let mut inner = self.lock();
        if inner.over || inner.near.is_some() {
            return None;
        }
        let companion = sys::duplicate(stream).ok()?;
        // Nothing on it waits.
        sys::set_flags(stream, libc::O_RDWR | libc::O_NONBLOCK).ok()?;
        inner.ends = Ends { local: sys::local(stream).ok()?, remote: sys::remote(stream).ok()? };
        let (theirs, near) =
            Near::pair(&inner.ends, at.unwrap_or(-1), self.eye(Part::Near)).ok()?;
        sys::set_room(theirs.as_raw_fd());
        Center::get().seat(near.other(), self.me.upgrade()?);
        inner.near = Some(near);
        inner.companion =
            Some(Companion::new(companion, Interest::READ, self.eye(Part::Companion)));
        inner.due = None;
        inner.settle();
        inner.tell_way();
        if !inner.reached && inner.way == Way::Open {
            self.limit_reaching(&mut inner);
        }
        self.again();
        Some(theirs)
    }

    /// A peer that was granted the connection shows soon that it knows.
    pub fn limit_reaching(&self, inner: &mut Inner) {
        let until = clock::now() + UNREACHED;
        inner.due = Some(until);
        self.set_timer(until);
    }

    /// Whether something that its program wrote has not arrived.
    pub fn has_more_to_say(&self) -> bool {
        let mut inner = self.lock();
        if inner.over || inner.is_unclaimed() {
            return false;
        }
        match inner.stream.as_mut().and_then(Stream::parts) {
            Some((connection, _)) => !connection.is_flushed() && connection.fault().is_none(),
            None => !inner.is_plain_over(),
        }
    }

    /// Both addresses, and whether the connection is still being made.
    pub fn ends(&self) -> (Ends, bool) {
        let inner = self.lock();
        (inner.ends, inner.dial.is_some())
    }

    /// Runs `act` on the TCP connection beside the stream.
    pub fn with_companion<T>(&self, act: impl FnOnce(RawFd) -> T) -> Option<T> {
        self.lock().companion.as_ref().map(|companion| act(companion.raw()))
    }
}

impl Inner {
    /// The peer of a connection that was granted here knows that. This does not say that it goes
    /// by SDP: the answer may have come when it had just given that up. But from now on it says
    /// which it is, by its first message or by closing, and either arrives.
    fn reach(&mut self) {
        self.reached = true;
        if self.way == Way::Open {
            self.due = None;
        }
    }

    /// Takes what has happened to the stream; whether there was anything.
    pub fn settle(&mut self) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let any = stream.settle();
        let heard = stream.parts().is_some_and(|(connection, _)| connection.has_heard());
        if heard && !std::mem::replace(&mut self.confirmed, true) {
            self.due = None;
        }
        if self.confirmed && self.near.is_some() && self.dial.is_none() && self.way == Way::Open {
            self.way = Way::Sdp;
        }
        any
    }

    /// Says which way a connection came that the program has accepted.
    fn tell_way(&mut self) {
        if self.way != Way::Open
            && self.near.is_some()
            && let Some(below) = self.guest.take()
        {
            let style = self.stream.as_ref().map_or("over", Stream::style);
            let sdp = self.way == Way::Sdp;
            let way = if sdp { report::Way::Sdp(below, style) } else { report::Way::Tcp(GAVE_UP) };
            report::accepted(self.ends.remote, way);
        }
    }

    /// The stream has no peer any more.
    fn lose(&mut self) {
        // What it said before counts.
        self.settle();
        match self.way {
            // It has given up before it knew, so it speaks TCP.
            Way::Open if !self.confirmed => self.turn_to_tcp(),
            _ => {
                if let Some((connection, verbs)) = self.stream.as_mut().and_then(Stream::parts) {
                    connection.handle_disconnect(verbs);
                }
            }
        }
    }

    /// The peer of a connection that was granted here goes by TCP.
    fn turn_to_tcp(&mut self) {
        self.drop_stream();
        self.way = Way::Tcp;
        self.due = None;
        let Ends { local, remote } = self.ends;
        if strict::refuses_caller(local.ip(), remote.ip()) {
            // No octet has moved. Without its TCP connection it is over.
            self.guest = None;
            self.plain.failed = true;
            if let Some(tcp) = self.companion.take() {
                sys::reset_at_close(tcp.raw());
            }
        } else if let Some(tcp) = &self.companion {
            sys::keep_urgent_inline(tcp.raw());
        }
    }

    /// Lets go of the stream.
    pub fn drop_stream(&mut self) {
        let (Some(cm), stream) = (self.cm.take(), self.stream.take()) else { return };
        let unanswered = self.dial.as_ref().is_some_and(Dial::is_unanswered);
        match stream {
            Some(stream) if unanswered => Center::get().leave_call(cm.cookie(), cm, stream),
            _ => cm.destroy(),
        }
    }

    /// Looks at the TCP connection beside the stream, which says nothing as long as all is well.
    fn check_companion(&mut self) {
        let watched = |companion: &&Companion| companion.token.is_some();
        let Some(companion) = self.companion.as_ref().filter(watched) else { return };
        if self.way == Way::Tcp || !std::mem::take(&mut self.companion_stirs) {
            return;
        }
        let ends = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
        let events = sys::poll_now(companion.raw(), libc::POLLIN | libc::POLLRDHUP);
        if events == 0 {
            return;
        }
        self.settle();
        if self.way == Way::Open {
            // Who speaks here, or leaves, and has not said a word by SDP, has decided for TCP.
            self.turn_to_tcp();
        } else if events & ends != 0 {
            if let Some(companion) = &mut self.companion {
                companion.ignore();
            }
            let in_order = events & (libc::POLLHUP | libc::POLLERR) == 0;
            if !(in_order && self.stream.as_ref().is_some_and(Stream::outlasts_peer)) {
                self.due = Some(clock::now() + ALONE);
            }
        } else if let Some((connection, verbs)) = self.stream.as_mut().and_then(Stream::parts) {
            // The peer takes this connection for TCP, and must not go on believing so.
            connection.abort(verbs);
        }
    }

    /// Gives up what has taken too long.
    fn check_limits(&mut self) {
        if self.due.is_none_or(|due| clock::now() < due) {
            return;
        }
        self.due = None;
        if self.way == Way::Open {
            if self.near.is_some() {
                self.turn_to_tcp();
            } else {
                self.drop_stream();
            }
        } else if let Some((connection, verbs)) = self.stream.as_mut().and_then(Stream::parts) {
            connection.abort(verbs);
        }
    }

    fn has_failed(&mut self) -> bool {
        if self.plain.failed {
            return true;
        }
        let fault = self.stream.as_mut().and_then(Stream::parts);
        fault.is_some_and(|(connection, _)| connection.fault().is_some())
    }

    /// Whether nothing is left to do.
    fn is_over(&mut self) -> bool {
        match self.way {
            Way::Open => self.dial.is_none() && self.stream.is_none(),
            Way::Tcp => self.companion.is_none() || self.is_plain_over(),
            Way::Sdp => {
                let told = self.near.as_ref().is_none_or(Near::is_told) || self.left;
                let Some((connection, _)) = self.stream.as_mut().and_then(Stream::parts) else {
                    return true;
                };
                let read = connection.readable() == 0 || self.left;
                connection.is_over() && told && read
            }
        }
    }

    /// The program has closed its end.
    pub fn leave(&mut self) {
        self.left = true;
        if let Some(near) = self.near.take() {
            Center::get().leave(near.other());
        }
        self.due = Some(clock::now() + ORPHANED);
    }

    /// Nobody has accepted it yet.
    pub fn is_unclaimed(&self) -> bool {
        self.near.is_none() && self.way == Way::Open && self.dial.is_none()
    }

    /// Limits how long it waits to be accepted, once it is over for the peer.
    pub fn limit_unclaimed(&mut self) {
        if self.due.is_none() {
            self.due = Some(clock::now() + UNCLAIMED);
        }
    }
}

impl Source for Conn {
    fn ready(&self, _: Readiness) {}

    fn timeout(&self, _: Instant) {
        let dialing = self.lock().dial.is_some();
        if dialing {
            // An answer that is here counts, even if it is late.
            Center::get().drain();
        }
        self.work();
    }
}
