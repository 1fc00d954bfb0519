//! Completion queues: by polling, by waiting, and as futures.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use weft_host::PostponingGuard;
use weft_os::clock;
use weft_sync::Mutex;
use weft_verbs::{CompChannel, Wc};

use crate::bell::{Bell, Rope};
use crate::completion::Completion;
use crate::device::Device;
use crate::events::ObjectId;
use crate::posted::Posted;
use crate::{Error, Result};

/// Completions taken from the engine at once.
const BATCH: usize = 16;

struct CqInner {
    device: Device,
    object: ObjectId,
    cq: Arc<weft_host::HostCq>,
    channel: Arc<CompChannel>,
    bell: Arc<Bell>,
    /// The queue pairs that complete here, by number. Locked while completions are taken, so that
    /// none is taken for a queue pair that has gone.
    queues: Mutex<HashMap<u32, Arc<Posted>>>,
}

/// A completion queue.
#[derive(Clone)]
pub struct CompletionQueue {
    inner: Arc<CqInner>,
}

impl CompletionQueue {
    pub(crate) fn new(device: &Device, entries: u32) -> Result<Self> {
        let (bell, object) = (Arc::new(Bell::default()), ObjectId::new());
        let channel = CompChannel::new(weft_host::after_lock(Box::new(Rope(Arc::clone(&bell)))));
        let cq = device.context().create_cq(entries, Some(Arc::clone(&channel)), object.0);
        let cq = cq.map_err(Error::of("making a completion queue"))?;
        let (device, queues) = (device.clone(), Mutex::default());
        Ok(Self { inner: Arc::new(CqInner { device, object, cq, channel, bell, queues }) })
    }

    /// Takes the oldest completion, if there is one. A thread that polls also drives the
    /// connections of the queue.
    ///
    /// # Errors
    /// [`Error::Overflow`] once completions were lost.
    pub fn poll(&self) -> Result<Option<Completion>> {
        let mut first = None;
        self.take(1, |completion| first = Some(completion))?;
        Ok(first)
    }

    /// Appends the oldest completions to `out`, at most `max`; gives how many.
    ///
    /// # Errors
    /// [`Error::Overflow`] once completions were lost and those before them were taken. Nothing is
    /// appended then.
    pub fn poll_into(&self, out: &mut Vec<Completion>, max: usize) -> Result<usize> {
        let before = out.len();
        let outcome = self.take(max, |completion| out.push(completion));
        match out.len() - before {
            0 => outcome.map(|()| 0),
            count => Ok(count),
        }
    }

    /// The oldest completion; sleeps until there is one, or for `limit`.
    ///
    /// Of a [`DeviceKind::Roce`](crate::DeviceKind::Roce) queue pair whose peer has ended the
    /// connection, or is gone, receives stay posted until this side disconnects too. So who waits
    /// for receives alone also looks at [`Connection::wait_end`](crate::Connection::wait_end), and
    /// then calls [`Connection::disconnect`](crate::Connection::disconnect): they complete with
    /// [`WcStatus::WrFlushErr`](crate::WcStatus::WrFlushErr). Those of a connection of
    /// [`DeviceKind::Iwarp`](crate::DeviceKind::Iwarp) do so by themselves.
    ///
    /// After [`QueuePair::connect_to`](crate::QueuePair::connect_to) nobody is told that the peer
    /// has gone, on either device, before a request fails: receives stay posted until then. An
    /// application that learns it in another way calls [`QueuePair::fail`](crate::QueuePair::fail).
    ///
    /// # Errors
    /// [`Error::TimedOut`] if none came, [`Error::Overflow`] once completions were lost.
    pub fn wait(&self, limit: Duration) -> Result<Completion> {
        let start = clock::now();
        loop {
            let seen = self.inner.bell.rung();
            if let Some(completion) = self.poll_armed()? {
                return Ok(completion);
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(Error::TimedOut { during: "waiting for a completion", after: limit });
            }
            self.inner.bell.wait(seen, left);
        }
    }

    /// The next completion, as a future that any executor may drive. Its waker is called by a
    /// thread that drives connections, so it should only note that the task is due, as those of
    /// executors do, and not run it. It must not panic: on a thread of the host that aborts the
    /// process.
    ///
    /// What [`CompletionQueue::wait`] says of receives whose peer is gone holds here too: who waits
    /// for receives alone waits for [`Connection::ended`](crate::Connection::ended) at the same
    /// time, and then disconnects. The example `cm_futures` does so.
    pub fn next(&self) -> Next {
        Next { cq: self.clone(), token: None }
    }

    /// Takes a completion, or sees to it that the bell is rung at the next one.
    fn poll_armed(&self) -> Result<Option<Completion>> {
        if let Some(completion) = self.poll()? {
            return Ok(Some(completion));
        }
        while self.inner.channel.pop().is_some() {}
        self.inner.cq.req_notify(false);
        // One that came in between may not ring.
        self.poll()
    }

    fn take(&self, max: usize, mut give: impl FnMut(Completion)) -> Result<()> {
        // Who polls drives connections.
        let queues = PostponingGuard::lock_briefly(&self.inner.queues);
        let mut left = max;
        while left > 0 {
            let mut out = [Wc::default(); BATCH];
            let room = left.min(BATCH);
            let polled = self.inner.cq.poll(&mut out[..room]);
            let count = polled.map_err(|_| Error::Overflow)?;
            for wc in &out[..count] {
                let posted = queues.get(&wc.qp_num);
                if let Some(id) = posted.and_then(|posted| posted.complete(wc.wr_id)) {
                    give(Completion::new(id, wc));
                    left -= 1;
                }
            }
            if count < room {
                break;
            }
        }
        Ok(())
    }

    /// What events of the device name it by.
    pub fn object_id(&self) -> ObjectId {
        self.inner.object
    }

    pub(crate) fn device(&self) -> &Device {
        &self.inner.device
    }

    pub(crate) fn engine(&self) -> &Arc<weft_host::HostCq> {
        &self.inner.cq
    }

    pub(crate) fn join(&self, number: u32, posted: &Arc<Posted>) {
        self.inner.queues.lock().insert(number, Arc::clone(posted));
    }

    pub(crate) fn leave(&self, number: u32, posted: &Arc<Posted>) {
        let mut queues = self.inner.queues.lock();
        if queues.get(&number).is_some_and(|known| Arc::ptr_eq(known, posted)) {
            queues.remove(&number);
        }
    }
}

impl Device {
    /// Makes a completion queue for `entries` completions. Once more than these wait to be taken
    /// the queue fails. One with as many as the depths of all queues that complete there never
    /// does, since each request keeps its place in its queue until its completion was taken.
    ///
    /// # Errors
    /// [`Error::Invalid`] for none, or more than the device has.
    pub fn completion_queue(&self, entries: u32) -> Result<CompletionQueue> {
        CompletionQueue::new(self, entries)
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.inner.cq.cqe();
        out.debug_struct("CompletionQueue").field("entries", &entries).finish_non_exhaustive()
    }
}

/// The future of [`CompletionQueue::next`]. Dropping it loses no completion.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Next {
    cq: CompletionQueue,
    token: Option<u64>,
}

impl Next {
    fn leave(&mut self) {
        if let Some(token) = self.token.take() {
            self.cq.inner.bell.leave(token);
        }
    }
}

impl Future for Next {
    type Output = Result<Completion>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.leave();
        // Before the queue is armed: a ring in between must find the waker.
        self.token = Some(self.cq.inner.bell.enlist(context.waker().clone()));
        match self.cq.poll_armed().transpose() {
            Some(outcome) => {
                self.leave();
                Poll::Ready(outcome)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Next {
    fn drop(&mut self) {
        self.leave();
    }
}
