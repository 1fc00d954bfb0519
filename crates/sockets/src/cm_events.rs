//! The channel on which the connection manager reports to this process.
//!
//! Invariant: events are handled by one thread at a time, in the order of their arrival.

use std::io;
use std::sync::Arc;

use weft_os::clock::Moment;
use weft_rdmacm::{EventChannel, IdEvent};
use weft_reactor::{Interest, Pollable, Readiness};
use weft_sync::{Mutex, TryOnceLock};

use crate::{rdma, sys};

/// The events of a process.
pub struct CmEvents {
    channel: TryOnceLock<Arc<EventChannel>>,
    draining: Mutex<()>,
    handlers: CmHandlers,
}

/// The callbacks of a process for events of the connection manager.
#[derive(Clone, Copy)]
pub struct CmHandlers {
    /// Called once the channel is open, and the reactor runs.
    pub opened: fn(),
    /// Called for each event, in the order of arrival.
    pub dispatch: fn(IdEvent),
}

/// Handles the events of a channel that has become readable.
struct ChannelSource(&'static CmEvents);

impl Pollable for ChannelSource {
    fn ready(&self, _: Readiness) {
        self.0.drain();
    }

    fn timeout(&self, _: Moment) {}
}

impl CmEvents {
    /// Events whose channel is opened later, by [`CmEvents::channel`].
    pub const fn new(handlers: CmHandlers) -> Self {
        Self { channel: TryOnceLock::new(), draining: Mutex::new(()), handlers }
    }

    /// The channel for new ids; the first call opens it.
    ///
    /// # Errors
    /// If the system has no descriptor or thread left.
    pub fn channel(&'static self) -> io::Result<Arc<EventChannel>> {
        self.channel.get_or_try_init(|| self.open()).map(Arc::clone)
    }

    fn open(&'static self) -> io::Result<Arc<EventChannel>> {
        let channel = EventChannel::hidden(rdma::host())?;
        sys::set_flags(channel.fd(), libc::O_RDWR | libc::O_NONBLOCK)?;
        let fd = channel.fd();
        rdma::host().reactor().add(sys::borrow(&fd), Interest::READ, Arc::new(ChannelSource(self)));
        (self.handlers.opened)();
        Ok(channel)
    }

    /// Handles every event that was reported before the call, also if another thread has begun to.
    pub fn drain(&self) {
        let Some(channel) = self.channel.get() else { return };
        let _draining = self.draining.lock();
        while let Ok(delivery) = channel.wait() {
            delivery.owner().acknowledge();
            (self.handlers.dispatch)(delivery);
        }
    }
}
