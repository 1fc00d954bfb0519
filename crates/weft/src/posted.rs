//! Requests that were posted and whose completions were not taken: they keep their regions.
//!
//! The engine knows a request by its place in the order of its queue. Sends complete in order,
//! and some without a word, so a completion ends all before it; receives of a shared queue
//! complete in any order.
//!
//! A post may complete at once, or have the connection go on: whoever is woken by that finds the
//! requests unlocked.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use weft_host::{HostSrq, PostponingGuard};
use weft_sync::Mutex;

use crate::events::ObjectId;
use crate::region::RegionSlice;
use crate::{Error, Result};

/// Marks the engine's name of a receive.
const RECEIVE: u64 = 1 << 63;

/// The slices that a request keeps alive; nothing if its bytes were copied.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    _first: Option<RegionSlice>,
    /// Empty mostly, and then without an allocation.
    _others: Box<[RegionSlice]>,
}

impl Kept {
    /// All of `slices`.
    pub fn all(slices: &[RegionSlice]) -> Self {
        let Some((first, others)) = slices.split_first() else { return Self::default() };
        Self { _first: Some(first.clone()), _others: others.into() }
    }
}

struct Request {
    /// The application's name for it.
    id: u64,
    number: u64,
    _kept: Kept,
}

#[derive(Default)]
struct Sends {
    next: u64,
    waiting: VecDeque<Request>,
}

#[derive(Default)]
struct OpenRequests {
    next: u64,
    requests: HashMap<u64, Request>,
}

/// Receives that were posted to a queue.
pub(crate) struct PostedReceives {
    open: Mutex<OpenRequests>,
    depth: u32,
    /// The queue, if several queue pairs take from it.
    shared: Option<Arc<HostSrq>>,
}

impl PostedReceives {
    /// Those of a queue pair's own queue of `depth`.
    pub fn own(depth: u32) -> Self {
        Self { open: Mutex::default(), depth, shared: None }
    }

    /// Those of a queue of `depth` that records who takes them.
    pub fn shared(srq: Arc<HostSrq>, depth: u32) -> Self {
        Self { shared: Some(srq), ..Self::own(depth) }
    }

    /// Ends those that a queue pair has taken which is destroyed; their regions are let go.
    pub fn end_with(&self, qp: ObjectId) {
        let lost = self.shared.as_ref().map(|srq| srq.lost_with(qp.0)).unwrap_or_default();
        lost.into_iter().for_each(|name| drop(self.take(name & !RECEIVE)));
    }

    /// Has `post` post a request under the engine's name for it.
    ///
    /// The engine has room again as soon as a message has come. Here, as with adapters, a receive
    /// keeps its place until its completion was taken: so completions never exceed the depths of
    /// the queues that they come from.
    ///
    /// # Errors
    /// [`Error::QueueFull`], and what `post` says.
    pub fn post(
        &self,
        during: &'static str,
        id: u64,
        kept: Kept,
        post: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        let mut waiting = PostponingGuard::lock_briefly(&self.open);
        if waiting.requests.len() >= self.depth as usize {
            return Err(Error::QueueFull { during });
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.requests.insert(number, Request { id, number, _kept: kept });
        post(number | RECEIVE).inspect_err(|_| {
            waiting.requests.remove(&number);
        })
    }

    fn take(&self, number: u64) -> Option<Request> {
        if let Some(srq) = &self.shared {
            srq.settle(number | RECEIVE);
        }
        self.open.lock().requests.remove(&number)
    }
}

/// Requests of a queue pair.
pub(crate) struct Posted {
    sends: Mutex<Sends>,
    /// Those of its own queue or of the one that it shares.
    pub receives: Arc<PostedReceives>,
}

impl Posted {
    /// Requests of a queue pair that receives from the queue of `receives`.
    pub fn new(receives: Arc<PostedReceives>) -> Self {
        Self { sends: Mutex::default(), receives }
    }

    /// Has `post` post a send under the engine's name for it. No other send is posted meanwhile.
    pub fn post_send<E>(
        &self,
        id: u64,
        kept: Kept,
        post: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut sends = PostponingGuard::lock_briefly(&self.sends);
        let number = sends.next;
        sends.waiting.push_back(Request { id, number, _kept: kept });
        let posted = post(number);
        match &posted {
            Ok(()) => sends.next += 1,
            // Nothing was pushed behind it, since the queue is locked.
            Err(_) => drop(sends.waiting.pop_back()),
        }
        posted
    }

    /// Ends the request that the engine calls `name`; gives the application's name for it.
    pub fn complete(&self, name: u64) -> Option<u64> {
        if name & RECEIVE != 0 {
            return self.receives.take(name & !RECEIVE).map(|request| request.id);
        }
        // Dropped after the lock: the end of a region takes locks of the engine.
        let done: Vec<Request> = {
            let waiting = &mut self.sends.lock().waiting;
            let count = waiting.iter().take_while(|request| request.number <= name).count();
            waiting.drain(..count).collect()
        };
        done.last().filter(|request| request.number == name).map(|request| request.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted() -> Posted {
        Posted::new(Arc::new(PostedReceives::own(2)))
    }

    fn post(posted: &Posted, id: u64) -> u64 {
        let mut name = 0;
        let post = |given| {
            name = given;
            Ok::<(), ()>(())
        };
        posted.post_send(id, Kept::default(), post).unwrap();
        name
    }

    #[test]
    fn a_completion_ends_the_silent_requests_before_it() {
        let posted = posted();
        let names = [7, 8, 9].map(|id| post(&posted, id));
        assert_eq!(posted.complete(names[1]), Some(8));
        assert_eq!(posted.complete(names[0]), None);
        assert_eq!(posted.sends.lock().waiting.len(), 1);
        assert_eq!(posted.complete(names[2]), Some(9));
    }

    #[test]
    fn what_the_engine_does_not_take_is_not_kept() {
        let posted = posted();
        assert_eq!(posted.post_send(1, Kept::default(), |_| Err("full")), Err("full"));
        let invalid = |_| Err(Error::invalid("posting", "so it is"));
        posted.receives.post("posting", 1, Kept::default(), invalid).unwrap_err();
        assert!(posted.sends.lock().waiting.is_empty());
        assert!(posted.receives.open.lock().requests.is_empty());
        assert_eq!(post(&posted, 5), 0, "the name is free for the next one");
    }

    #[test]
    fn a_receive_keeps_its_place_until_its_completion_was_taken() {
        let receives = posted().receives;
        let post = |id| receives.post("posting", id, Kept::default(), |_| Ok(()));
        (0..2).for_each(|id| post(id).unwrap());
        assert!(matches!(post(2), Err(Error::QueueFull { during: "posting" })));
        assert_eq!(receives.take(0).map(|request| request.id), Some(0));
        post(2).unwrap();
    }
}
