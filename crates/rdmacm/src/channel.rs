//! Event channels: queues of events with a descriptor that programs poll and read from.
//!
//! Invariant: the descriptor is readable exactly while events are queued (except while one is
//! being moved in or out), each event is delivered once, and a reader of a closed channel sleeps,
//! as one sleeps whose device file is closed by another thread.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weft_host::Host;
use weft_os::clock::Moment;
use weft_os::{clock, fds, semaphore};
use weft_rnic::cm::{CmEvent, EventKind};
use weft_sync::Mutex;
use weft_verbs::Wake;

use crate::groups::Join;
use crate::id::CmId;
use crate::stand_in::StandIns;

/// An event and the ids that it is about.
pub struct IdEvent {
    /// The id the event is about; for [`EventKind::ConnectRequest`] a new one.
    pub id: Arc<CmId>,
    /// The listener that a new id came from.
    pub listen: Option<Arc<CmId>>,
    /// What happened.
    pub event: CmEvent,
    /// The group that was joined, with [`EventKind::MulticastJoin`].
    pub join: Option<Join>,
}

impl IdEvent {
    /// The id on whose account the event is: it cannot be destroyed before the event is
    /// acknowledged.
    pub fn owner(&self) -> &Arc<CmId> {
        self.listen.as_ref().unwrap_or(&self.id)
    }

    pub(crate) fn is_of(&self, id: &CmId) -> bool {
        std::ptr::eq(Arc::as_ptr(self.owner()), id)
    }
}

/// A queue of events.
pub struct EventChannel {
    host: Arc<Host>,
    stand_ins: StandIns,
    fd: Mutex<Option<OwnedFd>>,
    raw: RawFd,
    queue: Mutex<VecDeque<IdEvent>>,
    /// The application has looked when there was nothing, so it will come again. One that comes
    /// when the descriptor is readable may count on an event.
    looks: AtomicBool,
    wake: Option<Box<dyn Wake>>,
    /// The process that made it ([`Host::generation`]).
    generation: usize,
}

impl EventChannel {
    /// A new channel for ids of `host`, with a descriptor of its own.
    ///
    /// # Errors
    /// When the process or the system is out of descriptors, for it or for the reactor.
    pub fn new(host: &Arc<Host>) -> io::Result<Arc<EventChannel>> {
        Self::with(host, semaphore::open()?, None)
    }

    /// The same for a library that the application does not know of: the descriptor has a high
    /// number, which the application neither closes nor takes for another one.
    ///
    /// # Errors
    /// As [`EventChannel::new`].
    pub fn hidden(host: &Arc<Host>) -> io::Result<Arc<EventChannel>> {
        Self::with(host, fds::high(semaphore::open()?), None)
    }

    /// The same as [`EventChannel::new`], which also calls `wake` for each event that is queued,
    /// once the id that it is about is not locked any more ([`weft_host::after_lock`]).
    ///
    /// # Errors
    /// As [`EventChannel::new`].
    pub fn with_wake(host: &Arc<Host>, wake: Box<dyn Wake>) -> io::Result<Arc<EventChannel>> {
        Self::with(host, semaphore::open()?, Some(weft_host::after_lock(wake)))
    }

    fn with(
        host: &Arc<Host>,
        fd: OwnedFd,
        wake: Option<Box<dyn Wake>>,
    ) -> io::Result<Arc<EventChannel>> {
        host.start()?;
        let raw = fd.as_raw_fd();
        let (fd, queue) = (Mutex::new(Some(fd)), Mutex::default());
        let (host, stand_ins) = (Arc::clone(host), StandIns::default());
        let looks = AtomicBool::new(false);
        let generation = host.generation();
        Ok(Arc::new(EventChannel { host, stand_ins, fd, raw, queue, looks, wake, generation }))
    }

    /// The host whose ids it is for.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// What makes queue pairs that stand in for those of the application.
    pub(crate) fn stand_ins(&self) -> &StandIns {
        &self.stand_ins
    }

    /// The descriptor: readable while events are queued. Programs set `O_NONBLOCK` on it.
    pub fn fd(&self) -> RawFd {
        self.raw
    }

    /// Closes the descriptor. Sleeping readers are not woken.
    pub fn close(&self) {
        drop(self.fd.lock().take());
    }

    /// The next event; sleeps unless the descriptor is non-blocking. An application that looks now
    /// and then, whether there are events or not, sees by its completions what succeeded before it
    /// is told of the end of a connection.
    ///
    /// # Errors
    /// `EAGAIN` on a non-blocking channel without events, or where there is something to be seen
    /// first; `EINTR` when a signal handler ran.
    pub fn wait(&self) -> io::Result<IdEvent> {
        loop {
            if self.is_closed() {
                return Err(io::Error::from_raw_os_error(Self::sleep_on_closed()));
            }
            match self.read_token() {
                // Closed between the look and the read.
                Err(e) if e.raw_os_error() == Some(libc::EBADF) && self.is_closed() => continue,
                read => read?,
            }
            if self.looks.load(Ordering::Relaxed) && !self.sleeps() && self.keeps_end_back() {
                self.put_token();
                return Err(io::Error::from_raw_os_error(libc::EAGAIN));
            }
            // The event may have been dropped or moved between the wake-up and now.
            if let Some(delivery) = self.take() {
                return Ok(delivery);
            }
        }
    }

    /// The next event; sleeps until `until` at most, or for ever, whatever the flags of the
    /// descriptor.
    ///
    /// # Errors
    /// What the system says about the descriptor; `EBADF` once the channel is closed.
    pub fn wait_until(&self, until: Option<Moment>) -> io::Result<Option<IdEvent>> {
        loop {
            let has_token = match self.fd.lock().as_ref() {
                Some(fd) => weft_os::sys::take_one(fd.as_fd()),
                None => return Err(io::Error::from_raw_os_error(libc::EBADF)),
            };
            // The event may have been dropped or moved between the wake-up and now.
            if has_token && let Some(delivery) = self.take() {
                return Ok(Some(delivery));
            }
            let left = until.map(|until| until.saturating_duration_since(clock::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            self.sleep(left)?;
        }
    }

    /// Sleeps until the descriptor is readable, a signal handler ran, or `limit` is over.
    fn sleep(&self, limit: Option<Duration>) -> io::Result<()> {
        semaphore::wait(self.raw, limit)
    }

    /// Sleeps as a reader sleeps whose channel was closed meanwhile, and gives the errno of the
    /// only end that this has: a signal handler ran. A thread that takes events is now in the
    /// channel, now about to come back to it, when another thread closes the channel to end the
    /// program; neither should learn from an error which of the two it was.
    pub fn sleep_on_closed() -> i32 {
        semaphore::pause();
        libc::EINTR
    }

    fn is_closed(&self) -> bool {
        self.fd.lock().is_none()
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    fn sleeps(&self) -> bool {
        semaphore::sleeps(self.raw)
    }

    /// Whether the next event is the end of a connection that the application should not know yet.
    fn keeps_end_back(&self) -> bool {
        let next = self.queue.lock().front().map(|next| (next.event.kind, Arc::clone(&next.id)));
        next.is_some_and(|(kind, id)| kind == EventKind::Disconnected && id.keeps_end_back())
    }

    fn take(&self) -> Option<IdEvent> {
        let delivery = {
            let mut queue = self.queue.lock();
            let delivery = queue.pop_front()?;
            // Counted before the queue is released: a destroyer that finds the event gone from the
            // queue must find it counted.
            delivery.owner().unacked().add();
            delivery
        };
        if let (Some(listen), EventKind::ConnectRequest) = (&delivery.listen, delivery.event.kind) {
            listen.request_delivered();
        }
        Some(delivery)
    }

    /// Queues an event and wakes one reader, except in the exit of the process.
    pub(crate) fn push(&self, delivery: IdEvent) {
        if self.host.exits() {
            return;
        }
        self.queue.lock().push_back(delivery);
        self.put_token();
        if let Some(wake) = &self.wake {
            wake.wake();
        }
    }

    /// Takes the events of an id out of the queue.
    pub(crate) fn withdraw(&self, id: &CmId) -> Vec<IdEvent> {
        self.withdraw_if(|delivery| delivery.is_of(id))
    }

    /// Takes events out of the queue.
    pub(crate) fn withdraw_if(&self, is_wanted: impl Fn(&IdEvent) -> bool) -> Vec<IdEvent> {
        let mut queue = self.queue.lock();
        let (taken, kept): (VecDeque<_>, VecDeque<_>) = queue.drain(..).partition(is_wanted);
        *queue = kept;
        drop(queue);
        for _ in 0..taken.len() {
            self.take_token_back();
        }
        taken.into()
    }

    fn put_token(&self) {
        if let Some(fd) = self.fd.lock().as_ref() {
            semaphore::put(fd.as_fd());
        }
    }

    /// Makes up for an event that left the queue unread. A reader may have been faster; it then
    /// finds nothing for its token and sleeps again.
    fn take_token_back(&self) {
        // The child of a fork has a copy of the queue, but shares the descriptor with its parent.
        if self.generation != self.host.generation() {
            return;
        }
        let fd = self.fd.lock();
        let Some(fd) = fd.as_ref() else { return };
        weft_os::sys::take_one(fd.as_fd());
    }

    fn read_token(&self) -> io::Result<()> {
        // Without the lock, because the call may sleep.
        semaphore::take(self.raw).inspect_err(|error| {
            if error.kind() == io::ErrorKind::WouldBlock {
                self.looks.store(true, Ordering::Relaxed);
            }
        })
    }
}
