//! Asynchronous events of a device: what happens to its objects outside of any call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weft_host::PORT_COOKIE;
use weft_os::clock;
use weft_verbs::{AsyncEvent, AsyncKind};

use crate::device::Device;
use crate::wait::{Limit, Waiting, block_on};
use crate::{Error, Result};

/// Names an object in events: unique within the process, and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId(pub(crate) u64);

impl ObjectId {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Something that happened to a device, its port or one of its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceEvent {
    /// What happened.
    pub kind: AsyncKind,
    /// The queue pair, completion queue or shared receive queue: what its `object_id` gives. None
    /// if it happened to the port or to the whole device.
    pub object: Option<ObjectId>,
}

impl DeviceEvent {
    fn new(event: AsyncEvent) -> Self {
        let object = (event.cookie != PORT_COOKIE).then_some(ObjectId(event.cookie));
        Self { kind: event.kind, object }
    }
}

impl Device {
    /// Takes the oldest event of the device, or of objects that were made with this handle or its
    /// clones.
    pub fn poll_event(&self) -> Option<DeviceEvent> {
        self.context().poll_async().map(DeviceEvent::new)
    }

    /// The oldest event; sleeps until there is one, or for `limit`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if none came.
    pub fn wait_event(&self, limit: Duration) -> Result<DeviceEvent> {
        let until = clock::now().checked_add(limit);
        let until = until.map(|until| Limit { until, host: self.host() });
        let found = block_on(Waiting::new(self.bell(), until, || Ok(self.poll_event())))?;
        found.ok_or(Error::TimedOut { during: "waiting for an event of a device", after: limit })
    }

    /// The next event, as a future that any executor may drive; what
    /// [`CompletionQueue::next`](crate::CompletionQueue::next) says of wakers holds here too.
    /// Dropping it loses no event.
    ///
    /// # Errors
    /// None yet.
    pub async fn next_event(&self) -> Result<DeviceEvent> {
        loop {
            let found = Waiting::new(self.bell(), None, || Ok(self.poll_event())).await?;
            if let Some(event) = found {
                return Ok(event);
            }
        }
    }
}
