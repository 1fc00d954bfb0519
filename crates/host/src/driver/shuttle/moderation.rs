//! Receive moderation: bulk data of a long path is taken from the socket at intervals, as an
//! adapter raises interrupts. A wake-up of the reactor costs more than the work on the few
//! datagrams that it would find each time.
//!
//! The interval is that of acknowledgements, or shorter: no more arrives meanwhile than a part of
//! the socket's buffer holds. The kernel stamps what arrives, so that the connection measures the
//! path and not the interval. Acknowledgements are too few to be moderated: a sender that took them
//! with its next burst used as much CPU time.
//!
//! Invariant: the reactor watches the socket, unless it is to look at a time of its own.

use std::time::Duration;

use weft_os::clock::Moment;

use crate::backoff::Backoff;

/// Round trips from which on a path is long.
const LONG_NS: u64 = 4_000_000;
/// What arrives waits for this part of the round trip at most.
const RTT_PART: u64 = 16;
/// And no longer than the time between two acknowledgements (S-40): this, or a part of a very long
/// round trip.
const ACK_NS: u64 = 1_000_000;
const ACK_RTT_PART: u64 = 64;
/// Of the socket's buffer, as the kernel counts it, this part may fill meanwhile. Datagrams take up
/// to twice their length there, and the process may wait for a CPU three times as long.
const ROOM_PART: u64 = 8;
/// And no more bytes than this. At 3.6 Gbit/s goodput fell by 2 to 3 % with looks a millisecond
/// apart, and by 1.5 to 2.5 % with these.
const FILL_BYTES_MAX: u64 = 128 << 10;
/// Bytes that are worth a look of their own: four datagrams of Ethernet.
const WORTH_BYTES: u64 = 6_000;
/// The rate of arrivals is measured over this time at least.
const WINDOW: Duration = Duration::from_millis(2);
/// After drops at the socket each datagram is taken at once, at first and at most for so long.
const BACKOFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];

/// What a connection and its path are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModeratedPath {
    /// Round-trip time, smoothed.
    pub rtt_ns: u64,
    /// Bytes that the socket holds, as the kernel counts them.
    pub room_bytes: u32,
    /// Bytes of payload that the connection has received so far.
    pub received_bytes: u64,
}

/// When the socket of a connection is looked at.
pub(super) struct Moderation {
    /// The beginning of the window in which the rate is measured, and what had arrived by then.
    since: Option<(Moment, u64)>,
    bytes_per_s: u64,
    until: Option<Moment>,
    backoff: Backoff,
}

impl Moderation {
    pub fn new() -> Self {
        let backoff = Backoff::new(BACKOFF);
        Self { since: None, bytes_per_s: 0, until: None, backoff }
    }

    /// That of a path whose shortest round trip took so long; none of a short one. The handshake
    /// may have taken longer, because a process had to wait: what it has begun ends with the first
    /// shorter round trip. Calls `begins` where there was none before.
    pub fn of_path(
        own: &mut Option<Self>,
        min_rtt_ns: u64,
        begins: impl FnOnce(),
    ) -> Option<&mut Self> {
        if min_rtt_ns < LONG_NS {
            *own = None;
            return None;
        }
        if own.is_none() {
            begins();
        }
        Some(own.get_or_insert_with(Self::new))
    }

    /// Datagrams found no room in the socket.
    pub fn note_drops(&mut self, now: Moment) {
        self.until = None;
        if !self.backoff.holds(now) {
            self.backoff.begin(now);
        }
    }

    /// Whether it is time to look.
    pub fn is_due(&self, now: Moment) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// The last look has left something: the next one is at once. Gives its time.
    pub fn look_again(&mut self, now: Moment) -> Moment {
        self.until = Some(now);
        now
    }

    /// The reactor is to watch the socket.
    pub fn end(&mut self) {
        (self.until, self.since) = (None, None);
    }

    /// When the socket is to be looked at next; nothing if it is to be watched. It is the end of a
    /// step, so that an acknowledgement that has left in it has a successor due at the next look.
    pub fn next_look(&mut self, now: Moment, path: &ModeratedPath) -> Option<Moment> {
        if self.until.is_some_and(|until| now < until) {
            return self.until;
        }
        self.measure(now, path.received_bytes);
        let fill_bytes = (u64::from(path.room_bytes) / ROOM_PART).min(FILL_BYTES_MAX);
        let filled_ns = time_ns(fill_bytes, self.bytes_per_s);
        let ack_ns = (path.rtt_ns / ACK_RTT_PART).max(ACK_NS);
        let pause_ns = (path.rtt_ns / RTT_PART).min(ack_ns).min(filled_ns);
        let pays = bytes_in(pause_ns, self.bytes_per_s) >= WORTH_BYTES && !self.backoff.holds(now);
        self.until = pays.then(|| now + Duration::from_nanos(pause_ns));
        self.until
    }

    fn measure(&mut self, now: Moment, received_bytes: u64) {
        let (since, before) = *self.since.get_or_insert((now, received_bytes));
        let passed = now.saturating_duration_since(since);
        if passed >= WINDOW {
            self.bytes_per_s = per_second(received_bytes.saturating_sub(before), passed);
            self.since = Some((now, received_bytes));
        }
    }
}

fn per_second(bytes: u64, passed: Duration) -> u64 {
    let per_s = u128::from(bytes) * 1_000_000_000 / passed.as_nanos().max(1);
    u64::try_from(per_s).unwrap_or(u64::MAX)
}

fn bytes_in(ns: u64, bytes_per_s: u64) -> u64 {
    let bytes = u128::from(bytes_per_s) * u128::from(ns) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Time that `bytes` take; for ever at no rate.
fn time_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    let ns = (u128::from(bytes) * 1_000_000_000).checked_div(u128::from(bytes_per_s));
    ns.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use weft_os::clock;

    use super::*;

    const RTT_NS: u64 = 64_000_000;
    const ROOM_BYTES: u32 = 8 << 20;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// A connection that receives data at a steady rate, and whose socket is looked at when that is
    /// due, or each 10 us while the reactor watches it.
    struct Steady {
        moderation: Moderation,
        now: Moment,
        next: Option<Moment>,
        path: ModeratedPath,
    }

    impl Steady {
        fn new(room_bytes: u32) -> Self {
            let path = ModeratedPath { rtt_ns: RTT_NS, room_bytes, received_bytes: 0 };
            Self { moderation: Moderation::new(), now: clock::now(), next: None, path }
        }

        /// Goes on for `ms`, in each of which `bytes` arrive.
        fn run(&mut self, ms: u64, bytes: u64) -> Option<Duration> {
            let end = self.now + us(1000 * ms);
            loop {
                let at = self.next.unwrap_or(self.now + us(10));
                if at > end {
                    return self.next.map(|next| next - self.now);
                }
                let passed_us = (at - self.now).as_micros() as u64;
                self.path.received_bytes += bytes * passed_us / 1000;
                self.now = at;
                self.look();
            }
        }

        fn look(&mut self) -> Option<Moment> {
            self.next = self.moderation.next_look(self.now, &self.path);
            self.next
        }
    }

    #[test]
    fn a_short_path_is_moderated_no_longer_than_its_handshake_hides_that() {
        let (mut own, mut begun) = (None, 0);
        for (min_rtt_ns, is_moderated) in
            [(LONG_NS - 1, false), (LONG_NS, true), (LONG_NS, true), (50_000, false)]
        {
            let moderation = Moderation::of_path(&mut own, min_rtt_ns, || begun += 1);
            assert_eq!(moderation.is_some(), is_moderated);
            assert_eq!(own.is_some(), is_moderated);
        }
        assert_eq!(begun, 1);
    }

    #[test]
    fn bulk_is_taken_at_intervals() {
        let mut steady = Steady::new(ROOM_BYTES);
        assert_eq!(steady.run(1, 125_000), None, "the rate is not known yet");
        assert_eq!(steady.run(9, 125_000), Some(us(1000)));
        let (next, now) = (steady.next, steady.now);
        assert!(!steady.moderation.is_due(now + us(999)));
        assert!(steady.moderation.is_due(now + us(1000)));
        steady.now += us(500);
        assert_eq!(steady.look(), next, "who steps meanwhile does not put the look off");
        assert_eq!(steady.moderation.look_again(now), now);
        assert!(steady.moderation.is_due(now), "something was left");
        steady.moderation.end();
        assert!(!steady.moderation.is_due(now + us(2000)));
    }

    #[test]
    fn no_interval_is_longer_than_a_part_of_the_round_trip() {
        let mut steady = Steady::new(ROOM_BYTES);
        for (rtt_ms, pause_us) in [(8, 500), (16, 1000), (64, 1000), (128, 2000)] {
            steady.path.rtt_ns = rtt_ms * 1_000_000;
            assert_eq!(steady.run(9, 60_000), Some(us(pause_us)), "{rtt_ms}");
        }
    }

    #[test]
    fn a_small_buffer_is_looked_at_before_it_is_full() {
        // An eighth of it, 50 kB, fills in 400 us; of an even smaller one no look pays.
        let apart = Steady::new(400_000).run(5, 125_000).unwrap();
        assert!((us(390)..=us(410)).contains(&apart), "{apart:?}");
        assert_eq!(Steady::new(40_000).run(5, 125_000), None);
        // In the largest one 128 KiB gather, in 250 us.
        let apart = Steady::new(ROOM_BYTES).run(5, 524_288).unwrap();
        assert!((us(245)..=us(255)).contains(&apart), "{apart:?}");
    }

    #[test]
    fn little_is_taken_at_once_and_so_is_what_follows_the_end_of_bulk() {
        let mut steady = Steady::new(ROOM_BYTES);
        assert_eq!(steady.run(5, 5_000), None, "three datagrams in a millisecond");
        assert!(steady.run(5, 125_000).is_some());
        assert_eq!(steady.run(5, 0), None, "nothing came");
    }

    #[test]
    fn after_drops_each_datagram_is_taken_at_once_for_a_while() {
        let mut steady = Steady::new(ROOM_BYTES);
        assert!(steady.run(5, 125_000).is_some());
        steady.moderation.note_drops(steady.now);
        assert!(!steady.moderation.is_due(steady.now + us(9000)));
        steady.look();
        assert_eq!(steady.run(95, 125_000), None);
        assert!(steady.run(20, 125_000).is_some());
    }
}
