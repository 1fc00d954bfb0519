//! Reads and Atomics of this side that wait for their responses, in the order they were sent.

use std::collections::VecDeque;

use weft_wire::ids::STag;

/// What a response must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A Read Response of `size` octets to this sink, `done` of them placed.
    Read {
        /// Sink.
        stag: STag,
        /// Offset of its first octet.
        to: u64,
        /// Octets asked for.
        size: u32,
        /// Octets placed so far.
        done: u32,
    },
    /// An Atomic Response that repeats this id.
    Atomic {
        /// The id of the request.
        id: u32,
    },
}

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// The work request; `None` for a Read of the protocol's own.
    pub seq: Option<u32>,
    /// The response says that the peer has placed everything up to this work request.
    pub confirms: Option<u32>,
    /// Its response.
    pub expected: Expected,
}

/// The requests under way, at most ORD of them.
#[derive(Debug)]
pub struct OutboundQueue {
    requests: VecDeque<Outbound>,
    ord: usize,
}

impl OutboundQueue {
    /// A queue that keeps `ord` requests outstanding.
    pub fn new(ord: u16) -> Self {
        Self { requests: VecDeque::new(), ord: usize::from(ord) }
    }

    /// Changes how many requests are kept outstanding.
    pub fn set_ord(&mut self, ord: u16) {
        self.ord = usize::from(ord);
    }

    /// Whether another request may be sent.
    pub fn has_room(&self) -> bool {
        self.requests.len() < self.ord
    }

    /// Whether nothing waits for a response.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Adds a request that goes out now.
    pub fn push(&mut self, request: Outbound) {
        self.requests.push_back(request);
    }

    /// The request whose response is due.
    pub fn front(&self) -> Option<&Outbound> {
        self.requests.front()
    }

    /// The same, to count what is placed.
    pub fn front_mut(&mut self) -> Option<&mut Outbound> {
        self.requests.front_mut()
    }

    /// All of them, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Outbound> {
        self.requests.iter()
    }

    /// Ends the request whose response is complete.
    pub fn pop(&mut self) -> Option<Outbound> {
        self.requests.pop_front()
    }
}
