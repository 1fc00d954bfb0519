//! Send buffer: messages not yet posted, and slots owned by the queue pair.
//!
//! Payload lies in its slot behind room for the header, so that a message is one range of memory,
//! from which the layer below sends.

use std::collections::VecDeque;

use weft_verbs::Misuse;
use weft_wire::sdp::BASE_LEN;

use crate::layout::{CONTROLS, Layout, Stretch};
use crate::verbs::Verbs;

/// A message not yet posted.
#[derive(Clone, Copy, Debug)]
pub struct MessageDraft {
    /// Its slot.
    pub slot: u16,
    /// Bytes of payload.
    pub len: u32,
    /// Whether the last of them is urgent.
    pub urgent: bool,
}

/// Messages with payload that wait, and the slots of all messages.
#[derive(Debug)]
pub struct SdpOutbox {
    layout: Layout,
    /// Largest payload in bytes that fits the buffers of both sides.
    payload_max: u32,
    /// Whether waiting messages are extended (SD-14).
    appends: bool,
    waiting: VecDeque<MessageDraft>,
    /// How many of these are urgent.
    urgent: u16,
    free: Vec<u16>,
    free_controls: Vec<u16>,
    /// Bytes of payload in each slot that is with the queue pair.
    posted: Vec<u32>,
    /// Sum of `posted`.
    flying: u64,
}

impl SdpOutbox {
    /// An empty send buffer; the peer's buffers have `peer_octets`.
    pub fn new(layout: Layout, peer_octets: u32, appends: bool) -> Self {
        Self {
            layout,
            payload_max: layout.octets.min(peer_octets) - BASE_LEN as u32,
            appends,
            waiting: VecDeque::new(),
            urgent: 0,
            free: (0..layout.buffers).rev().collect(),
            free_controls: (layout.buffers..layout.buffers + CONTROLS).rev().collect(),
            posted: vec![0; usize::from(layout.buffers + CONTROLS)],
            flying: 0,
        }
    }

    /// Bytes that [`SdpOutbox::push`] would take.
    pub fn room(&self) -> u64 {
        self.free.len() as u64 * u64::from(self.payload_max) + u64::from(self.room_in_last())
    }

    fn room_in_last(&self) -> u32 {
        let open = self.waiting.back().filter(|last| self.appends && !last.urgent);
        open.map_or(0, |last| self.payload_max - last.len)
    }

    /// Free ranges for payload, message by message, in the order of sending.
    pub fn vacant(&self) -> impl Iterator<Item = Stretch> {
        let room = self.room_in_last();
        let open = self.waiting.back().filter(|_| room > 0);
        let open = open.map(|last| self.stretch(last.slot, last.len));
        open.into_iter().chain(self.free.iter().rev().map(|slot| self.stretch(*slot, 0)))
    }

    fn stretch(&self, slot: u16, begun: u32) -> Stretch {
        let at = self.layout.send(slot) + BASE_LEN as u64 + u64::from(begun);
        Stretch { at, len: self.payload_max - begun }
    }

    /// Queues the first `octets` of [`SdpOutbox::vacant`]; those that it does not have are left
    /// out.
    pub fn extend(&mut self, mut octets: u32) {
        while octets > 0 {
            if self.room_in_last() == 0 {
                let Some(slot) = self.free.pop() else { return };
                self.waiting.push_back(MessageDraft { slot, len: 0, urgent: false });
            }
            let Some(last) = self.waiting.back_mut() else { return };
            let now = octets.min(self.payload_max - last.len);
            last.len += now;
            octets -= now;
        }
    }

    /// Queues the bytes at the start of `data` that there is room for; tells how many.
    pub fn push(&mut self, verbs: &mut impl Verbs, data: &[u8]) -> Result<usize, Misuse> {
        let mut rest = data;
        while !rest.is_empty() {
            let next = self.vacant().next();
            let Some(Stretch { at, len }) = next else { break };
            let (now, later) = rest.split_at(rest.len().min(len as usize));
            verbs.fill(at, now)?;
            self.extend(now.len() as u32);
            rest = later;
        }
        Ok(data.len() - rest.len())
    }

    /// Marks the last byte queued as urgent.
    pub fn mark_urgent(&mut self) {
        if let Some(last) = self.waiting.back_mut() {
            last.urgent = true;
            self.urgent += 1;
        }
    }

    /// Whether an urgent byte waits.
    pub fn has_urgent(&self) -> bool {
        self.urgent > 0
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Largest payload in bytes that fits this side's slots.
    pub fn payload_limit(&self) -> usize {
        self.layout.octets as usize - BASE_LEN
    }

    /// The peer's buffers have `peer_octets` from now on; tells whether that is no less than
    /// before.
    pub fn enlarge(&mut self, peer_octets: u32) -> bool {
        let payload = self.layout.octets.min(peer_octets).saturating_sub(BASE_LEN as u32);
        let larger = payload >= self.payload_max;
        self.payload_max = self.payload_max.max(payload);
        larger
    }

    /// Bytes of payload in a message at most.
    pub fn payload_max(&self) -> u32 {
        self.payload_max
    }

    /// Bytes of payload posted and not completed.
    pub fn flying(&self) -> u64 {
        self.flying
    }

    /// Whether nothing is posted.
    pub fn is_landed(&self) -> bool {
        self.free.len() + self.waiting.len() == usize::from(self.layout.buffers)
            && self.free_controls.len() == usize::from(CONTROLS)
    }

    /// Takes the oldest message out, to be posted now.
    pub fn pop(&mut self) -> Option<MessageDraft> {
        let draft = self.waiting.pop_front()?;
        self.posted[usize::from(draft.slot)] = draft.len;
        self.flying += u64::from(draft.len);
        self.urgent -= u16::from(draft.urgent);
        Some(draft)
    }

    /// Takes a slot for a message without payload.
    pub fn take_control(&mut self) -> Option<u16> {
        self.free_controls.pop()
    }

    /// Whether there is such a slot.
    pub fn has_control(&self) -> bool {
        !self.free_controls.is_empty()
    }

    /// The queue pair is done with `slot`.
    pub fn complete(&mut self, slot: u16) {
        self.flying -= u64::from(std::mem::take(&mut self.posted[usize::from(slot)]));
        let free =
            if self.layout.is_control(slot) { &mut self.free_controls } else { &mut self.free };
        free.push(slot);
    }

    /// Drops all waiting messages.
    pub fn clear(&mut self) {
        self.free.extend(self.waiting.drain(..).map(|draft| draft.slot));
        self.urgent = 0;
    }
}
