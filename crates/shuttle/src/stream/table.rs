//! The streams of a connection, and which of them have something to do.
//!
//! Invariant: a stream that may have something to send is listed once, among those that take turns
//! with a path's controller, among those with controllers of their own, or among those that wait
//! for their rate; and so is one that has to ask its peer. Costs follow these lists, not the number
//! of open streams. What makes a stream listed: [`Table::wake`] for work, losses, credits and
//! progress, and [`Table::change`] for whatever may start or stop a question.

use std::collections::VecDeque;

use weft_wire::shuttle::StreamId;

use super::agenda::Agenda;
use super::set::StreamSet;
use super::{Profile, StreamState};
use crate::error::Misuse;

/// Octets that a turn of a stream of weight 1 lasts for: no less than a burst.
const TURN_OCTETS: i64 = 1 << 16;

/// The streams of a connection.
#[derive(Default)]
pub(crate) struct Table {
    slots: Vec<Option<Box<StreamState>>>,
    open: usize,
    /// Those that may have something to send; the first has its turn.
    ready: VecDeque<StreamId>,
    /// The same with controllers of their own.
    own: VecDeque<StreamId>,
    /// Until when a stream waits for its rate.
    parked: Agenda,
    /// Those in one of these.
    is_listed: StreamSet,
    /// Those whose questions must be looked at again.
    changed: StreamSet,
    /// When which stream asks its peer.
    queries: Agenda,
}

impl Table {
    pub(crate) fn get(&self, id: StreamId) -> Option<&StreamState> {
        self.slots.get(usize::from(id.0))?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut StreamState> {
        self.slots.get_mut(usize::from(id.0))?.as_deref_mut()
    }

    /// The stream `id`, which `make` makes if it is not open. A new one has its turn.
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

    /// The stream may have something to send.
    pub(crate) fn wake(&mut self, id: StreamId) {
        let Some(stream) = self.get(id) else { return };
        let list = if stream.own.is_some() { &mut self.own } else { &mut self.ready };
        if self.is_listed.insert(id) {
            list.push_back(id);
        }
        self.changed.insert(id);
    }

    /// Applies `profile`; a stream that has sent cannot change whose controller it uses.
    pub(crate) fn shape(&mut self, id: StreamId, profile: Profile) -> Result<(), Misuse> {
        let Some(stream) = self.get_mut(id) else { return Err(Misuse::Stream(id.0)) };
        if stream.send.next_dsn() > 0 && stream.own.is_some() != profile.controller.is_some() {
            return Err(Misuse::Started(id.0));
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

    /// The stream may have begun to wait for its peer, or ceased to.
    pub(crate) fn change(&mut self, id: StreamId) {
        self.changed.insert(id);
    }

    /// Who has the turn (S-70), with octets left in it, and the packets that its rate allows it;
    /// `None` if nobody has anything to send that may leave.
    pub(crate) fn turn(&mut self, now_ns: u64, datagram_octets: u16) -> Option<(StreamId, u64)> {
        // Each pass adds to what a stream may send, so somebody has the turn soon.
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

    /// Streams whose rate lets them send again come back.
    pub(crate) fn unpark(&mut self, now_ns: u64) {
        while let Some((at_ns, id)) = self.parked.first()
            && at_ns <= now_ns
        {
            self.parked.pop_first();
            // It has waited for its rate, and must not wait for a round too.
            self.ready.push_front(id);
        }
    }

    /// Whether there is one stream, and it takes its turns with the paths' controllers.
    pub(crate) fn is_one_shared(&self) -> bool {
        self.open == 1 && self.own.is_empty()
    }

    /// How many streams with controllers of their own may have something to send.
    pub(crate) fn own_count(&self) -> usize {
        self.own.len()
    }

    /// The next of those. They take turns.
    pub(crate) fn next_own(&mut self) -> Option<StreamId> {
        let id = self.own.pop_front()?;
        self.own.push_back(id);
        Some(id)
    }

    /// `id`, which was the next of those, has nothing to send.
    pub(crate) fn retire_own(&mut self, id: StreamId) {
        self.changed.insert(id);
        if self.open > 1 {
            self.own.pop_back();
            self.is_listed.remove(id);
        }
    }

    /// Who has the turn has nothing to send. The only stream there is keeps it, so that a
    /// connection with one need not be told of work. Gives whether somebody else has it now.
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

    /// When the next question is due, or a stream may send again.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let firsts = [self.queries.first(), self.parked.first()];
        firsts.into_iter().flatten().map(|(at_ns, _)| at_ns).min()
    }

    /// The next stream whose question is due; it must be asked for with
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

    /// Looks which of the streams that changed wait for the peer to say how far it got.
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

    /// The next in the list has its turn.
    fn pass(&mut self) {
        if let Some(id) = self.ready.pop_front() {
            self.ready.push_back(id);
            self.refill(id);
        }
    }

    /// Octets for the next turn. What was left of this one is gone.
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
    use crate::stream::{Placement, Repair};

    fn table(streams: u8) -> Table {
        let mut table = Table::default();
        for id in 0..streams {
            table.open(StreamId(id), || StreamState::new(Placement::Tail, Repair::Full, 0));
        }
        table
    }

    fn whose(table: &mut Table) -> Option<u8> {
        table.turn(0, 1200).map(|(id, _)| id.0)
    }

    /// Takes `octets` in the turn of whoever has it.
    fn take(table: &mut Table, octets: i64) -> u8 {
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
}
