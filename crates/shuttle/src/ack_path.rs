//! Queueing delay of acknowledgements on the reverse path, and the interval that avoids it (S-46).
//!
//! Every acknowledgement carries its departure time by the peer's clock, so differences of the
//! one-way delay are known without synchronised clocks. Invariant: the interval asked for is no
//! shorter than the peer's usual one, and no longer than a fraction of the round trip.

use weft_wire::shuttle::frame::Ack;

/// Memory of the smallest one-way delay, 2 to 4 s: clocks drift.
const MEMORY_NS: u64 = 2_000_000_000;
/// Harmless queueing delay of an acknowledgement, 4 ms.
const WAIT_NS: u64 = 4_000_000;
/// The same as a fraction of the round trip: 1/16.
const WAIT_PART: u64 = 16;
/// Delays below 1 ms are noise and not subtracted from round trips.
const CERTAIN_NS: u64 = 1_000_000;
/// Consecutive delayed acknowledgements that measure the capacity of the reverse path.
const SAMPLE: u64 = 4;
/// Longest interval that is asked for: 1/4 of the round trip, so that loss detection stays timely.
const LONGEST_PART: u64 = 4;
/// Round trips after which a longer interval shows in the delay.
const ANSWER_RTTS: u64 = 2;
/// Round trips without delay before the interval is shortened by 1/8.
const CALM_RTTS: u64 = 16;

/// State of the reverse path.
#[derive(Debug, Default)]
pub(crate) struct AckPath {
    /// Smallest one-way delay of this memory period and of the one before, in µs, offset by the
    /// unknown difference of the clocks.
    least_us: [Option<u32>; 2],
    stretch_ns: u64,
    /// Start of the current run of delayed acknowledgements, and their count.
    waiting: Option<(u64, u64)>,
    /// Interval that the peer was asked for; 0 means its usual one.
    interval_ns: u64,
    /// Earliest times at which a longer, and a shorter, interval may be asked for.
    more_ns: u64,
    less_ns: u64,
    /// The peer has yet to be told the interval.
    pub(crate) owed: bool,
}

impl AckPath {
    /// Processes an acknowledgement; returns its queueing delay on the reverse path. `rtt_ns` is
    /// the smallest round trip, `usual_ns` the interval that the peer chooses by itself.
    pub(crate) fn handle_ack(
        &mut self,
        now_ns: u64,
        ack: &Ack<'_>,
        rtt_ns: u64,
        usual_ns: u64,
    ) -> u64 {
        let left_us = ack.arrived_us.wrapping_add(ack.delay_us as u32);
        let wait_ns = self.wait_ns(now_ns, ((now_ns / 1000) as u32).wrapping_sub(left_us));
        let harmless_ns = WAIT_NS.max(rtt_ns / WAIT_PART);
        if wait_ns <= harmless_ns / 2 {
            self.waiting = None;
        }
        let (since_ns, count) = self.waiting.unwrap_or((now_ns, 0));
        if wait_ns > harmless_ns / 2 {
            self.waiting = Some((since_ns, count + 1));
        }
        if now_ns >= self.more_ns && wait_ns > harmless_ns && count >= SAMPLE {
            // Half of the capacity lets the queue drain.
            let apart_ns = now_ns.saturating_sub(since_ns) / count;
            self.ask((2 * apart_ns).max(self.interval_ns), rtt_ns, usual_ns);
            self.more_ns = now_ns + ANSWER_RTTS * (rtt_ns + wait_ns);
            self.less_ns = self.more_ns + CALM_RTTS * rtt_ns;
            self.waiting = None;
        } else if now_ns >= self.less_ns && wait_ns < harmless_ns / 4 && self.interval_ns > 0 {
            self.ask(self.interval_ns / 8 * 7, rtt_ns, usual_ns);
            self.less_ns = now_ns + CALM_RTTS * rtt_ns;
        }
        if wait_ns > CERTAIN_NS { wait_ns } else { 0 }
    }

    /// The route is another, with delays of its own.
    pub(crate) fn handle_new_route(&mut self) {
        let owed = self.owed || self.interval_ns > 0;
        *self = Self { owed, ..Self::default() };
    }

    /// Interval that the peer was asked for; 0 if none.
    pub(crate) fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    fn ask(&mut self, interval_ns: u64, rtt_ns: u64, usual_ns: u64) {
        let interval_ns = interval_ns.min(rtt_ns / LONGEST_PART);
        let interval_ns = if interval_ns <= usual_ns { 0 } else { interval_ns };
        self.owed |= interval_ns != self.interval_ns;
        self.interval_ns = interval_ns;
    }

    /// Excess of `way_us` over the smallest one-way delay.
    fn wait_ns(&mut self, now_ns: u64, way_us: u32) -> u64 {
        if now_ns >= self.stretch_ns + MEMORY_NS {
            self.least_us = [None, self.least_us[0]];
            self.stretch_ns = now_ns;
        }
        let beyond_us = |least_us: u32| way_us.wrapping_sub(least_us) as i32;
        if self.least_us[0].is_none_or(|least_us| beyond_us(least_us) < 0) {
            self.least_us[0] = Some(way_us);
        }
        let waits_us = self.least_us.iter().flatten().map(|least_us| beyond_us(*least_us));
        u64::from(waits_us.max().unwrap_or(0).max(0).unsigned_abs()) * 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_wire::shuttle::PathId;
    use weft_wire::shuttle::frame::Ranges;

    const RTT_NS: u64 = 64_000_000;
    const USUAL_NS: u64 = 1_000_000;

    /// A way that carries an acknowledgement each `apart_ns`; runs for `ns`, and gives how long the
    /// last one waited.
    struct Way {
        back: AckPath,
        now_ns: u64,
        free_ns: u64,
        apart_ns: u64,
    }

    impl Way {
        fn run(&mut self, ns: u64) -> u64 {
            let mut room = Vec::new();
            let (ranges, _) = Ranges::encode([(0, 0)], 9, &mut room).unwrap();
            let (end_ns, mut wait_ns) = (self.now_ns + ns, 0);
            while self.now_ns < end_ns {
                self.now_ns += self.back.interval_ns().max(USUAL_NS);
                self.free_ns = self.free_ns.max(self.now_ns) + self.apart_ns;
                // The peer's clock is an hour ahead and wraps.
                let arrived_us = ((self.now_ns / 1000) as u32).wrapping_add(3_600_000_000);
                let ack = Ack {
                    path: PathId(0),
                    largest: 0,
                    floor: 0,
                    delay_us: 0,
                    arrived_us,
                    marked: 0,
                    dropped: 0,
                    ranges,
                };
                wait_ns = self.back.handle_ack(self.free_ns, &ack, RTT_NS, USUAL_NS);
            }
            wait_ns
        }
    }

    #[test]
    fn a_way_that_is_wide_enough_is_left_alone() {
        let mut way = Way { back: AckPath::default(), now_ns: 0, free_ns: 0, apart_ns: 100_000 };
        assert_eq!(way.run(10_000_000_000), 0);
        assert_eq!((way.back.interval_ns(), way.back.owed), (0, false));
    }

    /// S-46.
    #[test]
    fn a_narrow_way_is_not_filled_and_a_wide_one_is_used_again() {
        let mut way = Way { back: AckPath::default(), now_ns: 0, free_ns: 0, apart_ns: 6_000_000 };
        way.run(2_000_000_000);
        for _ in 0..100 {
            let wait_ns = way.run(100_000_000);
            assert!(wait_ns < 2 * RTT_NS / 8, "{wait_ns}");
        }
        assert!(way.back.interval_ns() > 5_000_000 && way.back.owed);
        way.apart_ns = 100_000;
        way.run(60_000_000_000);
        assert_eq!(way.back.interval_ns(), 0);
    }

    /// Acknowledgements, `apart_ns` from each other and `wait_ns` late, after one that was not.
    fn delayed(rtt_ns: u64, apart_ns: u64, wait_ns: u64, count: u64) -> AckPath {
        let mut back = AckPath::default();
        for at in 0..=count {
            let left_ns = SECOND_NS + at * apart_ns;
            let late_ns = if at == 0 { 0 } else { wait_ns };
            hear(&mut back, left_ns, late_ns, rtt_ns);
        }
        back
    }

    const SECOND_NS: u64 = 1_000_000_000;

    fn hear(back: &mut AckPath, left_ns: u64, late_ns: u64, rtt_ns: u64) -> u64 {
        let mut room = Vec::new();
        let (ranges, _) = Ranges::encode([(0, 0)], 9, &mut room).unwrap();
        let (path, arrived_us) = (PathId(0), (left_ns / 1000) as u32 - 300);
        let (largest, floor, delay_us, marked, dropped) = (0, 0, 300, 0, 0);
        let ack = Ack { path, largest, floor, delay_us, arrived_us, marked, dropped, ranges };
        back.handle_ack(left_ns + late_ns, &ack, rtt_ns, USUAL_NS)
    }

    #[test]
    fn what_delays_by_less_than_a_sixteenth_of_a_long_round_trip_is_harmless() {
        let (short_ns, long_ns) = (64_000_000, 192_000_000);
        assert!(delayed(short_ns, 2_000_000, 6_000_000, 9).owed);
        assert!(!delayed(long_ns, 2_000_000, 11_000_000, 9).owed);
        assert!(delayed(long_ns, 2_000_000, 13_000_000, 9).owed);
    }

    #[test]
    fn twice_the_interval_at_which_they_arrive_is_asked_for_after_four() {
        assert_eq!(delayed(RTT_NS, 2_000_000, 6_000_000, 4).interval_ns(), 0);
        assert_eq!(delayed(RTT_NS, 2_000_000, 6_000_000, 5).interval_ns(), 4_000_000);
        // One that waited for half of what is harmless begins anew, whatever came before.
        let mut back = AckPath::default();
        for (at, late_ns) in
            [0, 2_000_000, 6_000_000, 6_000_000, 6_000_000, 6_000_000].iter().enumerate()
        {
            hear(&mut back, SECOND_NS + at as u64 * 2_000_000, *late_ns, RTT_NS);
        }
        assert!(!back.owed);
        // A quarter of the round trip, so that losses are found in time; and no less than usual.
        assert_eq!(delayed(RTT_NS, 12_000_000, 6_000_000, 5).interval_ns(), RTT_NS / 4);
        assert!(!delayed(RTT_NS, USUAL_NS / 2, 6_000_000, 5).owed);
    }

    #[test]
    fn the_interval_grows_once_an_answer_can_show_and_shrinks_after_calm() {
        let mut back = delayed(RTT_NS, 2_000_000, 6_000_000, 5);
        let asked_ns = SECOND_NS + 10_000_000 + 6_000_000;
        let (more_ns, mut at_ns) = (asked_ns + 2 * (RTT_NS + 6_000_000), asked_ns);
        while at_ns + 4_000_000 < more_ns {
            at_ns += 4_000_000;
            hear(&mut back, at_ns - 6_000_000, 6_000_000, RTT_NS);
            assert_eq!(back.interval_ns(), 4_000_000, "what was asked for is still to come");
        }
        let less_ns = more_ns + 16 * RTT_NS;
        hear(&mut back, less_ns - 1000, 0, RTT_NS);
        assert_eq!(back.interval_ns(), 4_000_000);
        hear(&mut back, less_ns, 0, RTT_NS);
        assert_eq!(back.interval_ns(), 3_500_000);
        hear(&mut back, less_ns + 16 * RTT_NS - 1000, 0, RTT_NS);
        assert_eq!(back.interval_ns(), 3_500_000);
        hear(&mut back, less_ns + 16 * RTT_NS, 0, RTT_NS);
        assert_eq!(back.interval_ns(), 3_062_500);
    }

    /// Round trips are measured without the delay, unless that is noise.
    #[test]
    fn the_delay_is_told_above_a_millisecond_and_its_least_is_forgotten() {
        let mut back = AckPath::default();
        let hear = |back: &mut AckPath, at_ns, late_ns| hear(back, at_ns, late_ns, RTT_NS);
        assert_eq!(hear(&mut back, 3 * SECOND_NS, 0), 0);
        assert_eq!(hear(&mut back, 3 * SECOND_NS, 1_000_000), 0);
        assert_eq!(hear(&mut back, 3 * SECOND_NS, 1_001_000), 1_001_000);
        // The clocks drift apart: within four seconds it is the least that is known.
        assert_eq!(hear(&mut back, 5 * SECOND_NS, 2_000_000), 2_000_000);
        assert_eq!(hear(&mut back, 7 * SECOND_NS, 2_000_000), 0);
    }
}
