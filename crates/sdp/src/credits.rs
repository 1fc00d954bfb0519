//! Message numbers and credits: how many of the peer's receive buffers are free.
//!
//! Invariant: of the buffers that the peer was told of, as many are posted as it can still use.
//! That both sides can always say what they must follows from the rules SD-9 to SD-12.

use weft_wire::sdp::{Base, Flags};

use crate::error::Violation;

/// Credits reserved for messages without payload (SD-10).
pub const RESERVE: u32 = 3;

/// Numbers and credits of both directions.
#[derive(Clone, Debug)]
pub struct Credits {
    counts: bool,
    total: u32,
    /// Receives posted.
    posted: u32,
    /// Of these, receives that the peer was told of.
    told: u32,
    /// Number of the last message sent.
    sent: u32,
    /// Number of the last message that the peer has acknowledged.
    acked: u32,
    /// Number of the last message received.
    received: u32,
    /// Free receive buffers of the peer.
    available: u32,
}

impl Credits {
    /// After the Hello and its answer: `total` receives are posted, and the peer has been told;
    /// it has `available`. Unless `counts`, nothing waits for credits (SD-13).
    pub fn new(counts: bool, total: u16, available: u16) -> Self {
        let (total, available) = (u32::from(total), u32::from(available));
        Self {
            counts,
            total,
            posted: total,
            told: total,
            sent: 0,
            acked: 0,
            received: 0,
            available,
        }
    }

    /// Whether a message with payload may be sent.
    pub fn permit_data(&self) -> bool {
        !self.counts || self.available > RESERVE
    }

    /// Whether a message without payload may be sent.
    pub fn permit_control(&self) -> bool {
        !self.counts || self.available >= 2
    }

    /// Whether a credit update is due and may be sent (SD-11, SD-12).
    pub fn owes_update(&self) -> bool {
        let gain = self.posted - self.told;
        let pressing = self.told <= 1 || gain >= self.total / 2;
        self.counts && gain > 0 && pressing && self.available > 0
    }

    /// Whether any message has arrived.
    pub fn has_received(&self) -> bool {
        self.received != 0
    }

    /// Whether the peer has no credits for payload left.
    pub fn is_pinched(&self) -> bool {
        if self.counts { self.told <= RESERVE } else { self.posted == 0 }
    }

    /// Makes the header of the next message, which is sent now.
    pub fn stamp(&mut self, flags: Flags) -> Base {
        self.sent = self.sent.wrapping_add(1);
        self.available = self.available.saturating_sub(1);
        self.told = self.posted;
        Base { flags, bufs: self.posted as u16, seq: self.sent, ack: self.received }
    }

    /// Handles the header of a message that arrived in a receive.
    pub fn accept(&mut self, base: &Base) -> Result<(), Violation> {
        let expected = self.received.wrapping_add(1);
        if base.seq != expected {
            return Err(Violation::Sequence { found: base.seq, expected });
        }
        let (outstanding, under_way) =
            (self.sent.wrapping_sub(self.acked), self.sent.wrapping_sub(base.ack));
        if under_way > outstanding {
            return Err(Violation::Acknowledgement(base.ack));
        }
        self.received = expected;
        self.acked = base.ack;
        self.available = u32::from(base.bufs).saturating_sub(under_way);
        self.posted = self.posted.saturating_sub(1);
        self.told = self.told.saturating_sub(1);
        Ok(())
    }

    /// Notes that a receive was posted.
    pub fn post(&mut self) {
        self.posted += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(bufs: u16, seq: u32, ack: u32) -> Base {
        Base { flags: Flags::default(), bufs, seq, ack }
    }

    #[test]
    fn what_is_under_way_is_not_free() {
        let mut credits = Credits::new(true, 8, 8);
        for _ in 0..3 {
            credits.stamp(Flags::default());
        }
        credits.accept(&base(8, 1, 1)).unwrap();
        assert_eq!(credits.available, 6);
        credits.accept(&base(1, 2, 1)).unwrap();
        assert_eq!(credits.available, 0);
        assert!(!credits.permit_control());
    }

    #[test]
    fn payload_leaves_the_reserve_and_others_the_last() {
        let mut credits = Credits::new(true, 8, 8);
        let sent = (0..).take_while(|_| credits.permit_data() && credits.stamp(Flags(0)).seq > 0);
        assert_eq!(sent.count(), 5);
        let sent =
            (0..).take_while(|_| credits.permit_control() && credits.stamp(Flags(0)).seq > 0);
        assert_eq!(sent.count(), 2);
        assert_eq!(credits.available, 1);
        assert!(!credits.owes_update(), "there is nothing to tell");
    }

    #[test]
    fn numbers_wrap_and_others_are_refused() {
        let mut credits = Credits::new(true, 8, 8);
        credits.received = u32::MAX;
        (credits.sent, credits.acked) = (u32::MAX, u32::MAX);
        assert_eq!(credits.stamp(Flags(0)).seq, 0);
        credits.accept(&base(8, 0, 0)).unwrap();
        assert_eq!(credits.acked, 0);
        let late = credits.accept(&base(8, 0, 0));
        assert_eq!(late, Err(Violation::Sequence { found: 0, expected: 1 }));
        let unsent = credits.accept(&base(8, 1, 1));
        assert_eq!(unsent, Err(Violation::Acknowledgement(1)));
        let again = credits.accept(&base(8, 1, u32::MAX));
        assert_eq!(again, Err(Violation::Acknowledgement(u32::MAX)));
    }

    #[test]
    fn updates_answer_each_other_no_longer_than_they_must() {
        for (taken, low) in [(0, 8), (5, 3)] {
            let mut ends = [Credits::new(true, 8, 8), Credits::new(true, 8, 8)];
            for end in 0..2 {
                for _ in 0..taken {
                    let base = ends[end].stamp(Flags(0));
                    ends[1 - end].accept(&base).unwrap();
                }
            }
            assert_eq!([ends[0].available, ends[1].available], [low, low]);
            let mut said = 0;
            let carry = |from: usize, ends: &mut [Credits; 2]| {
                let base = ends[from].stamp(Flags(0));
                ends[1 - from].accept(&base).unwrap();
                ends[1 - from].post();
            };
            for _ in 0..100 {
                assert!(ends[0].permit_control());
                carry(0, &mut ends);
                for turn in 1..20 {
                    if ends[turn % 2].owes_update() {
                        said += 1;
                        carry(turn % 2, &mut ends);
                    }
                }
                assert!(!ends[0].owes_update() && !ends[1].owes_update());
            }
            assert!(said <= 200, "{said}");
        }
    }
}
