//! Stream table: all streams of a connection, and lists of those that are active.
//!
//! Invariant: a stream that may have something to send is listed once, among those that take turns
//! with a path's controller, among those with controllers of their own, or among those that wait
//! for their rate; and so is one that has to ask its peer. Costs follow these lists, not the number
//! of open streams. What makes a stream listed: [`StreamTable::wake`] for work, losses, credits and
//! progress, and [`StreamTable::change`] for whatever may start or stop a question.

use std::collections::VecDeque;

use weft_wire::shuttle::StreamId;

use super::agenda::StreamTimers;
use super::set::StreamSet;
use super::{Profile, StreamState};
use crate::error::ShuttleMisuse;

/// Quantum of deficit round robin for weight 1 in bytes: no less than a burst (S-70).
const TURN_OCTETS: i64 = 1 << 16;

/// The streams of a connection.
#[derive(Default)]
pub(crate) struct StreamTable {
    slots: Vec<Option<Box<StreamState>>>,
    open: usize,
    /// Active streams under shared controllers; the first has the turn.
    ready: VecDeque<StreamId>,
    /// Active streams with controllers of their own.
    own: VecDeque<StreamId>,
    /// Streams that wait for their rate limit.
    parked: StreamTimers,
    /// Streams in one of these lists.
    is_listed: StreamSet,
    /// Streams whose queries must be rescheduled.
    changed: StreamSet,
    /// Times of queries to the peer.
    queries: StreamTimers,
}

impl StreamTable {
    pub(crate) fn get(&self, id: StreamId) -> Option<&StreamState> {
        self.slots.get(usize::from(id.0))?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut StreamState> {
        self.slots.get_mut(usize::from(id.0))?.as_deref_mut()
    }

    /// Returns stream `id`, made by `make` if it is not open. A new one is active.
    #[expect(clippy::expect_used, reason = "the stream was opened just before")]
    pub(crate) fn open(
        &mut self,
        id: StreamId,
        make: impl FnOnce() -> StreamState,
    ) -> &mut StreamState {
        let at = usize::from(id.0);
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        if self.slots[at].is_none() {
            self.slots[at] = Some(Box::new(make()));
            self.open += 1;
            self.wake(id);
        }
        self.slots[at].as_mut().expect("it is open")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamId, &StreamState)> {
        let streams = self.slots.iter().enumerate();
        streams.filter_map(|(at, stream)| Some((StreamId(at as u8), stream.as_deref()?)))
    }

    /// Marks the stream as active: it may have something to send.
    pub(crate) fn wake(&mut self, id: StreamId) {
        let Some(stream) = self.get(id) else { return };
        let list = if stream.own.is_some() { &mut self.own } else { &mut self.ready };
        if self.is_listed.insert(id) {
            list.push_back(id);
        }
        self.changed.insert(id);
    }

    /// Applies `profile`; the choice of controller is final once a stream has sent.
    pub(crate) fn shape(&mut self, id: StreamId, profile: Profile) -> Result<(), ShuttleMisuse> {
        let Some(stream) = self.get_mut(id) else { return Err(ShuttleMisuse::Stream(id.0)) };
        if stream.send.next_dsn() > 0 && stream.own.is_some() != profile.controller.is_some() {
            return Err(ShuttleMisuse::Started(id.0));
        }
        stream.send.weight = profile.weight.max(1);
        stream.cap.set(profile.max_rate_bps);
        if stream.send.next_dsn() == 0 {
            stream.own = profile.controller;
        }
        self.ready.retain(|other| *other != id);
        self.own.retain(|other| *other != id);
        self.parked.forget(id);
        self.is_listed.remove(id);
        self.wake(id);
        Ok(())
    }

    /// Marks the stream's query for rescheduling.
    pub(crate) fn change(&mut self, id: StreamId) {
        self.changed.insert(id);
    }

    /// The stream that has the turn (S-70), and the packets that its rate limit allows; `None` if
    /// no active stream may send.
    pub(crate) fn turn(&mut self, now_ns: u64, datagram_octets: u16) -> Option<(StreamId, u64)> {
        // Each pass adds a quantum, so the loop ends.
        loop {
            let id = *self.ready.front()?;
            let stream = self.get(id)?;
            if stream.send.deficit <= 0 {
                self.pass();
                continue;
            }
            match stream.cap.burst(now_ns, datagram_octets) {
                Ok(packets) => return Some((id, packets)),
                Err(at_ns) => {
                    self.ready.pop_front();
                    self.parked.insert(at_ns, id);
                }
            }
        }
    }

    /// Reactivates streams whose rate limit allows them to send again.
    pub(crate) fn unpark(&mut self, now_ns: u64) {
        while let Some((at_ns, id)) = self.parked.first()
            && at_ns <= now_ns
        {
            self.parked.pop_first();
            // It has waited for its rate limit already.
            self.ready.push_front(id);
        }
    }

    /// Whether the connection has one stream, under a shared controller.
    pub(crate) fn is_one_shared(&self) -> bool {
        self.open == 1 && self.own.is_empty()
    }

    /// Count of active streams with controllers of their own.
    pub(crate) fn own_count(&self) -> usize {
        self.own.len()
    }

    /// The next of those, in turn.
    pub(crate) fn next_own(&mut self) -> Option<StreamId> {
        let id = self.own.pop_front()?;
        self.own.push_back(id);
        Some(id)
    }

    /// Deactivates `id`, which was the next of those.
    pub(crate) fn retire_own(&mut self, id: StreamId) {
        self.changed.insert(id);
        if self.open > 1 {
            self.own.pop_back();
            self.is_listed.remove(id);
        }
    }

    /// Deactivates the stream that has the turn. The only stream of a connection stays active, so
    /// that it needs no wake-up. Returns whether another stream has the turn now.
    pub(crate) fn retire(&mut self) -> bool {
        let Some(id) = self.ready.front().copied() else { return false };
        self.changed.insert(id);
        if self.open == 1 {
            return false;
        }
        self.ready.pop_front();
        self.is_listed.remove(id);
        self.refill(id);
        !self.ready.is_empty()
    }

    /// Time of the next query, or of the end of a wait for a rate limit.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let firsts = [self.queries.first(), self.parked.first()];
        firsts.into_iter().flatten().map(|(at_ns, _)| at_ns).min()
    }

    /// The next stream whose query is due, to be taken with
    /// [`SendStream::poll_query`](super::send::SendStream::poll_query).
    pub(crate) fn poll_query(&mut self, now_ns: u64) -> Option<StreamId> {
        let (at_ns, id) = self.queries.first()?;
        if at_ns > now_ns {
            return None;
        }
        self.change(id);
        self.queries.pop_first();
        self.get_mut(id)?.query_listed_ns = None;
        Some(id)
    }

    /// Reschedules the queries of streams that changed.
    pub(crate) fn schedule_queries(&mut self, now_ns: u64, wait_ns: u64) {
        let Self { slots, changed, queries, .. } = self;
        while let Some(id) = changed.pop_first() {
            let Some(Some(stream)) = slots.get_mut(usize::from(id.0)) else { continue };
            let at_ns = stream.send.query_at(now_ns, wait_ns);
            let listed_ns = std::mem::replace(&mut stream.query_listed_ns, at_ns);
            if listed_ns == at_ns {
                continue;
            }
            if let Some(listed_ns) = listed_ns {
                queries.remove(listed_ns, id);
            }
            if let Some(at_ns) = at_ns {
                queries.insert(at_ns, id);
            }
        }
    }

    /// Passes the turn to the next stream.
    fn pass(&mut self) {
        if let Some(id) = self.ready.pop_front() {
            self.ready.push_back(id);
            self.refill(id);
        }
    }

    /// Refills the quantum; the rest of the last one is lost.
    fn refill(&mut self, id: StreamId) {
        if let Some(stream) = self.get_mut(id) {
            let share = i64::from(stream.send.weight) * TURN_OCTETS;
            stream.send.deficit = (stream.send.deficit.min(0) + share).min(share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc;
    use crate::stream::{Placement, Repair};

    fn table(streams: u8) -> StreamTable {
        let mut table = StreamTable::default();
        for id in 0..streams {
            table.open(StreamId(id), || StreamState::new(Placement::Tail, Repair::Full, 0));
        }
        table
    }

    fn whose(table: &mut StreamTable) -> Option<u8> {
        table.turn(0, 1200).map(|(id, _)| id.0)
    }

    /// Takes `octets` in the turn of whoever has it.
    fn take(table: &mut StreamTable, octets: i64) -> u8 {
        let (id, _) = table.turn(0, 1200).unwrap();
        table.get_mut(id).unwrap().send.deficit -= octets;
        id.0
    }

    #[test]
    fn turns_last_for_their_octets() {
        let mut table = table(2);
        table.get_mut(StreamId(1)).unwrap().send.weight = 2;
        let turns: Vec<u8> = (0..12).map(|_| take(&mut table, TURN_OCTETS / 2)).collect();
        assert_eq!(turns, [0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn who_has_nothing_leaves_until_woken() {
        let mut table = table(3);
        assert_eq!(whose(&mut table), Some(0));
        assert!(table.retire() && table.retire());
        assert_eq!(whose(&mut table), Some(2));
        assert!(!table.retire());
        assert_eq!(whose(&mut table), None);
        table.wake(StreamId(1));
        table.wake(StreamId(1));
        assert_eq!(whose(&mut table), Some(1));
        assert!(!table.retire());
    }

    #[test]
    fn the_only_stream_is_always_asked() {
        let mut table = table(1);
        assert!(!table.retire());
        assert_eq!(whose(&mut table), Some(0));
    }

    fn own() -> Profile {
        let controller = Some((cc::fixed as cc::Make, cc::Params::default()));
        Profile { controller, ..Profile::default() }
    }

    #[test]
    fn streams_with_controllers_of_their_own_take_turns_until_they_have_nothing() {
        let mut table = table(3);
        for id in [1, 2] {
            table.shape(StreamId(id), own()).unwrap();
        }
        assert_eq!((table.own_count(), whose(&mut table)), (2, Some(0)));
        let turns: Vec<_> = (0..3).filter_map(|_| table.next_own()).collect();
        assert_eq!(turns, [1, 2, 1].map(StreamId));
        table.retire_own(StreamId(1));
        assert_eq!((table.own_count(), table.next_own()), (1, Some(StreamId(2))));
        table.wake(StreamId(1));
        table.wake(StreamId(1));
        assert_eq!(table.own_count(), 2);
        assert_eq!(table.next_own(), Some(StreamId(2)));
    }

    #[test]
    fn the_only_stream_is_asked_under_a_controller_of_its_own_too() {
        let (mut one, two) = (table(1), table(2));
        assert!(one.is_one_shared() && !two.is_one_shared());
        one.shape(StreamId(0), own()).unwrap();
        assert!(!one.is_one_shared());
        assert_eq!(one.next_own(), Some(StreamId(0)));
        one.retire_own(StreamId(0));
        assert_eq!(one.next_own(), Some(StreamId(0)));
    }

    /// S-64.
    #[test]
    fn a_stream_waits_for_its_rate_and_then_goes_first() {
        let mut table = table(2);
        let limited = Profile { max_rate_bps: 9_600_000, ..Profile::default() };
        table.shape(StreamId(0), limited).unwrap();
        assert_eq!(table.turn(0, 1200).map(|(id, _)| id.0), Some(1));
        assert!(table.retire());
        assert_eq!(table.turn(0, 1200), Some((StreamId(0), 2)), "a burst at its rate");
        // 20 ms at its rate.
        table.get_mut(StreamId(0)).unwrap().cap.handle_sent(0, 24_000);
        table.wake(StreamId(1));
        assert_eq!(whose(&mut table), Some(1));
        assert_eq!(table.due_ns(), Some(20_000_000));
        table.unpark(19_999_999);
        assert_eq!((whose(&mut table), table.due_ns()), (Some(1), Some(20_000_000)));
        table.unpark(20_000_000);
        assert_eq!(table.turn(20_000_000, 1200).map(|(id, _)| id.0), Some(0));
        assert_eq!(table.due_ns(), None);
    }
}
