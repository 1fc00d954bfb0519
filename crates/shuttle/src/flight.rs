//! Flight: packets with consecutive numbers sent in one burst, as one record.
//!
//! At most 64 datagrams of one size, the last of which may be shorter: one call with segmentation
//! offload. Sender state grows with bursts, not packets.

use weft_wire::shuttle::StreamId;

/// Content of the packets of a flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cargo {
    /// Consecutive segments of a stream: `each` in every packet but the last, which has
    /// `last_each`.
    Segments { stream: StreamId, first_dsn: u64, each: u16, last_each: u16 },
    /// Frames, regenerated from current state and never retransmitted.
    Frames,
    /// A Ping of its own, which is acknowledged at once: nothing else would bring that.
    Ping,
    /// A Rate frame; repeated when lost.
    Rate,
    /// An Interval frame; repeated when lost.
    Interval,
    /// A path MTU probe; its loss is no sign of congestion.
    MtuProbe,
}

/// Consecutive segments of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segments {
    pub(crate) stream: StreamId,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// Delivery state of the budget when a flight left, for rate samples.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) delivered_octets: u64,
    pub(crate) delivered_ns: u64,
    pub(crate) first_sent_ns: u64,
    pub(crate) app_limited: bool,
}

/// Record of a flight, at most 128 bytes.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) first_pn: u64,
    pub(crate) sent_ns: u64,
    pub(crate) cargo: Cargo,
    /// Index of the budget charged for it.
    pub(crate) budget: u16,
    pub(crate) snapshot: Snapshot,
    /// Time of the newest loss declaration among them.
    pub(crate) lost_ns: u64,
    acked: u64,
    lost: u64,
    octets: u16,
    last_octets: u16,
    count: u8,
}

impl Flight {
    /// `count` packets of `octets` each; the last one of `last_octets`.
    pub(crate) fn new(first_pn: u64, count: u8, octets: u16, last_octets: u16) -> Self {
        debug_assert!((1..=64).contains(&count));
        Self {
            first_pn,
            sent_ns: 0,
            cargo: Cargo::Frames,
            budget: 0,
            snapshot: Snapshot::default(),
            lost_ns: 0,
            acked: 0,
            lost: 0,
            octets,
            last_octets,
            count,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        u32::from(self.count)
    }

    /// Size of each packet but the last, in bytes.
    pub(crate) fn packet_octets(&self) -> u16 {
        self.octets
    }

    pub(crate) fn last_pn(&self) -> u64 {
        self.first_pn + u64::from(self.count) - 1
    }

    /// Total size of the packets in `mask`, in bytes.
    pub(crate) fn octets_of(&self, mask: u64) -> u64 {
        let last = mask >> (self.count - 1) & 1;
        let others = u64::from(mask.count_ones()) - last;
        others * u64::from(self.octets) + last * u64::from(self.last_octets)
    }

    /// Total size of all packets, in bytes.
    pub(crate) fn octets(&self) -> u64 {
        self.octets_of(self.mask(self.first_pn, self.last_pn()))
    }

    /// Bit mask of the packets from number `first` to `last`, both included.
    pub(crate) fn mask(&self, first: u64, last: u64) -> u64 {
        if last < self.first_pn || first > self.last_pn() {
            return 0;
        }
        let from = first.saturating_sub(self.first_pn) as u32;
        let to = (last.min(self.last_pn()) - self.first_pn) as u32;
        (u64::MAX >> (63 - to)) & (u64::MAX << from)
    }

    /// Largest packet number in `mask`, which must not be empty.
    pub(crate) fn newest_of(&self, mask: u64) -> u64 {
        self.first_pn + u64::from(63 - mask.leading_zeros())
    }

    /// Packets of `mask` that are neither acknowledged nor lost.
    pub(crate) fn open(&self, mask: u64) -> u64 {
        mask & !self.acked & !self.lost
    }

    /// Whether every packet is acknowledged or lost.
    pub(crate) fn is_resolved(&self) -> bool {
        self.open(self.mask(self.first_pn, self.last_pn())) == 0
    }

    /// Packets declared lost and not acknowledged since.
    pub(crate) fn missing(&self) -> u64 {
        self.lost & !self.acked
    }

    /// Marks the packets of `mask` as acknowledged. Returns the newly acknowledged ones, and those
    /// of them that had been declared lost.
    pub(crate) fn mark_acked(&mut self, mask: u64) -> (u64, u64) {
        let new = mask & !self.acked;
        self.acked |= new;
        (new, new & self.lost)
    }

    /// Marks the packets of `mask` as lost; all must be open.
    pub(crate) fn mark_lost(&mut self, mask: u64, now_ns: u64) {
        self.lost |= mask;
        self.lost_ns = now_ns;
    }

    /// Segments carried by the packets of `mask`, as runs.
    pub(crate) fn segments(&self, mut mask: u64) -> impl Iterator<Item = Segments> + use<> {
        let (cargo, count) = (self.cargo, self.count());
        std::iter::from_fn(move || {
            let Cargo::Segments { stream, first_dsn, each, last_each } = cargo else { return None };
            if mask == 0 {
                return None;
            }
            let from = mask.trailing_zeros();
            let len = (mask >> from).trailing_ones();
            mask &= !(u64::MAX >> (64 - len) << from);
            let before = |packets| first_dsn + u64::from(packets) * u64::from(each);
            let end = from + len;
            let last = match end == count {
                true => before(end - 1) + u64::from(last_each) - 1,
                false => before(end) - 1,
            };
            Some(Segments { stream, first: before(from), last })
        })
    }

    /// Segments in all packets.
    pub(crate) fn segment_count(&self) -> u64 {
        let all = self.segments(self.mask(self.first_pn, self.last_pn()));
        all.map(|run| run.last + 1 - run.first).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_small() {
        assert!(size_of::<Flight>() <= 128, "{}", size_of::<Flight>());
    }

    #[test]
    fn masks_cut_to_the_flight() {
        let flight = Flight::new(100, 10, 1000, 10);
        assert_eq!(flight.mask(0, 99), 0);
        assert_eq!(flight.mask(110, 200), 0);
        assert_eq!(flight.mask(0, 101), 0b11);
        assert_eq!(flight.mask(108, 500), 0b11_0000_0000);
        assert_eq!(flight.octets(), 9010);
        assert_eq!(flight.octets_of(0b10_0000_0001), 1010);
        let full = Flight::new(0, 64, 1, 1);
        assert_eq!(full.mask(0, 63), u64::MAX);
    }

    #[test]
    fn segments_come_as_runs() {
        let stream = StreamId(3);
        let mut flight = Flight::new(7, 64, 1, 1);
        flight.cargo = Cargo::Segments { stream, first_dsn: 1000, each: 1, last_each: 1 };
        let all: Vec<_> = flight.segments(u64::MAX).collect();
        assert_eq!(all, [Segments { stream, first: 1000, last: 1063 }]);
        let some: Vec<_> = flight.segments(0b1_0110).collect();
        assert_eq!(some[0], Segments { stream, first: 1001, last: 1002 });
        assert_eq!(some[1], Segments { stream, first: 1004, last: 1004 });
    }

    #[test]
    fn packets_may_hold_several_segments() {
        let stream = StreamId(3);
        let mut flight = Flight::new(7, 4, 1, 1);
        flight.cargo = Cargo::Segments { stream, first_dsn: 100, each: 5, last_each: 9 };
        assert_eq!(flight.segment_count(), 24);
        let runs =
            |mask| flight.segments(mask).map(|run| (run.first, run.last)).collect::<Vec<_>>();
        assert_eq!(runs(0b1111), [(100, 123)]);
        assert_eq!(runs(0b1011), [(100, 109), (115, 123)]);
        assert_eq!(runs(0b0100), [(110, 114)]);
        flight.cargo = Cargo::Segments { stream, first_dsn: 100, each: 5, last_each: 2 };
        assert_eq!(
            flight.segments(0b1000).next().map(|run| (run.first, run.last)),
            Some((115, 116))
        );
    }

    #[test]
    fn a_lost_packet_may_show_up() {
        let mut flight = Flight::new(0, 3, 1, 1);
        flight.mark_lost(0b010, 5);
        assert_eq!((flight.mark_acked(0b011), flight.missing()), ((0b011, 0b010), 0));
        assert!(!flight.is_resolved());
        assert_eq!(flight.mark_acked(0b111), (0b100, 0));
        assert!(flight.is_resolved());
    }
}
