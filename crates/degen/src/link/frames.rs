//! Aggregation: packets that arrive together because the medium carries them together.
//!
//! [`FrameGate`] holds what has left the bottleneck until a frame is full or its time is up. Order
//! of calls: [`FrameGate::close_by`] before a packet joins, [`FrameGate::join`] for each packet.
//! Invariant: frames close in order, and a packet leaves with its frame, never before.

use serde::Serialize;

/// Frames of several packets, as in Wi-Fi (A-MPDU) and by adapters that coalesce interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FrameAggregation {
    /// Packets of a full frame.
    pub packets: u32,
    /// How long the first packet of a frame waits for others, in nanoseconds.
    pub wait_ns: u64,
}

/// A frame that takes packets.
#[derive(Debug)]
pub struct FrameGate<T> {
    frames: FrameAggregation,
    closes_ns: u64,
    items: Vec<T>,
}

impl<T> FrameGate<T> {
    /// A gate with nothing in it.
    pub fn new(frames: FrameAggregation) -> Self {
        Self { frames, closes_ns: 0, items: Vec::new() }
    }

    /// Adds what has left the bottleneck at `at_ns`; returns the frame if that makes it full.
    pub fn join(&mut self, at_ns: u64, item: T) -> Option<Vec<T>> {
        if self.items.is_empty() {
            self.closes_ns = at_ns + self.frames.wait_ns;
        }
        self.items.push(item);
        let is_full = self.items.len() >= self.frames.packets as usize;
        is_full.then(|| std::mem::take(&mut self.items))
    }

    /// The frame whose time is up at `now_ns`, and when that was.
    pub fn close_by(&mut self, now_ns: u64) -> Option<(u64, Vec<T>)> {
        let closes_ns = self.closes_ns()?;
        (closes_ns <= now_ns).then(|| (closes_ns, std::mem::take(&mut self.items)))
    }

    /// When the frame that takes packets closes at the latest, if there is one.
    pub fn closes_ns(&self) -> Option<u64> {
        (!self.items.is_empty()).then_some(self.closes_ns)
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.items.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_closes_full_or_late() {
        let mut gate = FrameGate::new(FrameAggregation { packets: 3, wait_ns: 10 });
        assert_eq!((gate.join(5, 'a'), gate.join(6, 'b')), (None, None));
        assert_eq!(gate.join(7, 'c'), Some(vec!['a', 'b', 'c']));
        assert_eq!(gate.closes_ns(), None);
        assert_eq!(gate.join(20, 'd'), None);
        assert_eq!((gate.closes_ns(), gate.close_by(29)), (Some(30), None));
        assert_eq!(gate.close_by(35), Some((30, vec!['d'])));
        assert_eq!(gate.len(), 0);
    }
}
