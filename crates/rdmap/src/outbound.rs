//! Outstanding Reads and Atomics of this side, in the order of sending.

use std::collections::VecDeque;

use weft_wire::ids::STag;

/// Expected response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A Read Response of `size` bytes to this sink, `done` of them placed.
    Read {
        /// STag of the sink.
        stag: STag,
        /// Tagged offset of its first byte.
        to: u64,
        /// Size in bytes.
        size: u32,
        /// Bytes placed so far.
        done: u32,
    },
    /// An Atomic Response that repeats this id.
    Atomic {
        /// Request id.
        id: u32,
    },
}

/// An outstanding request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// The work request; `None` for a Read of the protocol's own.
    pub seq: Option<u32>,
    /// The response says that the peer has placed everything up to this work request.
    pub confirms: Option<u32>,
    /// The expected response.
    pub expected: Expected,
}

/// Outstanding requests, at most ORD.
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

    /// Adds a request that is sent now.
    pub fn push(&mut self, request: Outbound) {
        self.requests.push_back(request);
    }

    /// The oldest request, whose response comes next.
    pub fn front(&self) -> Option<&Outbound> {
        self.requests.front()
    }

    /// The oldest request, mutable.
    pub fn front_mut(&mut self) -> Option<&mut Outbound> {
        self.requests.front_mut()
    }

    /// All requests, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Outbound> {
        self.requests.iter()
    }

    /// Removes the oldest request: its response is complete.
    pub fn pop(&mut self) -> Option<Outbound> {
        self.requests.pop_front()
    }
}
