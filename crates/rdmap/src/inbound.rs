//! Read and Atomic Requests of the peer, answered in the order in which they came (RFC 5040,
//! section 5.5).

use std::collections::VecDeque;

use weft_wire::rdmap::{AtomicRequest, ReadRequest};

/// A request to respond to.
#[derive(Clone, Copy, Debug)]
pub enum Inbound {
    /// An RDMA Read.
    Read(ReadRequest),
    /// An Atomic, with its result once executed.
    Atomic {
        /// The request as received.
        request: AtomicRequest,
        /// Value before the operation; `None` until executed.
        old: Option<u64>,
        /// Message sequence number of the response.
        msn: u32,
    },
}

/// Queue of inbound requests, bounded by IRD.
///
/// An entry's id is its count since the stream began. It is kept until its response is
/// acknowledged, so that the response can be gathered again.
#[derive(Debug)]
pub struct InboundQueue {
    entries: VecDeque<(Inbound, ResponseProgress)>,
    first: u32,
    next: u32,
    limit: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct ResponseProgress {
    unacked: u32,
    sent: bool,
}

impl InboundQueue {
    /// A queue that serves `ird` requests at once.
    ///
    /// Linux siw rounds the granted depth up to a power of two, so that many requests, and one
    /// more, are accepted.
    pub fn new(ird: u16) -> Self {
        let limit = usize::from(ird.max(1)).next_power_of_two() + 1;
        Self { entries: VecDeque::new(), first: 0, next: 0, limit }
    }

    /// Adds a request; `false` when the peer has more outstanding than it may.
    pub fn push(&mut self, request: Inbound) -> bool {
        // Responses are sent in order: the others of the queue wait to be acknowledged.
        let waiting = self.entries.len() - self.index(self.next);
        if waiting >= self.limit {
            return false;
        }
        self.entries.push_back((request, ResponseProgress::default()));
        true
    }

    /// Id of the request whose response is to be sent next.
    pub fn pending(&self) -> Option<u32> {
        (self.index(self.next) < self.entries.len()).then_some(self.next)
    }

    /// Whether every response is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The request with `id`.
    pub fn get(&self, id: u32) -> Option<&Inbound> {
        self.entries.get(self.index(id)).map(|(request, _)| request)
    }

    /// The requests whose response is not acknowledged, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Inbound> {
        self.entries.iter().map(|(request, _)| request)
    }

    /// Those of them whose response is sent whole, and those whose response is not.
    pub fn sent_and_unsent(&self) -> [impl Iterator<Item = &Inbound>; 2] {
        let sent = self.index(self.next);
        [(0..sent), (sent..self.entries.len())]
            .map(|part| self.entries.range(part).map(|(request, _)| request))
    }

    /// Records the result of an Atomic.
    pub fn set_result(&mut self, id: u32, value: u64, number: u32) {
        let index = self.index(id);
        if let Some((Inbound::Atomic { old, msn, .. }, _)) = self.entries.get_mut(index) {
            *old = Some(value);
            *msn = number;
        }
    }

    /// Notes that a segment of the response to `id` was sent.
    pub fn segment_out(&mut self, id: u32, last: bool) {
        let index = self.index(id);
        if let Some((_, progress)) = self.entries.get_mut(index) {
            progress.unacked += 1;
            if last {
                progress.sent = true;
                self.next = id.wrapping_add(1);
            }
        }
    }

    /// Notes that `count` segments of the response to `id` are acknowledged.
    pub fn segments_acked(&mut self, id: u32, count: u32) {
        let index = self.index(id);
        if let Some((_, progress)) = self.entries.get_mut(index) {
            progress.unacked = progress.unacked.saturating_sub(count);
        }
        while self.entries.front().is_some_and(|(_, p)| p.sent && p.unacked == 0) {
            self.entries.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    fn index(&self, id: u32) -> usize {
        (id.wrapping_sub(self.first) & super::tx::SEQ_MASK) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_wire::ids::STag;

    fn read() -> Inbound {
        Inbound::Read(ReadRequest {
            sink_stag: STag(1),
            sink_to: 0,
            size: 0,
            src_stag: STag(2),
            src_to: 0,
        })
    }

    #[test]
    fn entries_live_from_request_to_acknowledgement() {
        let mut queue = InboundQueue::new(1);
        assert!(queue.push(read()) && queue.push(read()));
        assert!(!queue.push(read()), "more than the rounded depth");
        assert_eq!(queue.pending(), Some(0));
        queue.segment_out(0, false);
        queue.segment_out(0, true);
        assert_eq!(queue.pending(), Some(1));
        queue.segments_acked(0, 1);
        assert!(queue.get(0).is_some());
        queue.segments_acked(0, 1);
        assert!(queue.get(1).is_some());
        queue.segment_out(1, true);
        queue.segments_acked(1, 1);
        assert_eq!((queue.pending(), queue.get(1).is_some()), (None, false));
        assert!(queue.push(read()));
        assert_eq!(queue.pending(), Some(2));
    }

    #[test]
    fn a_peer_may_ask_again_once_its_answers_are_sent() {
        let mut queue = InboundQueue::new(1);
        for id in 0..5 {
            assert!(queue.push(read()));
            queue.segment_out(id, true);
        }
        assert!(queue.push(read()) && queue.push(read()) && !queue.push(read()));
        (0..5).for_each(|id| queue.segments_acked(id, 1));
        assert!(!queue.push(read()), "those that wait are as many as before");
    }
}
