//! How much may be on its way: one side of a direction each, without I/O.
//!
//! The receiver of a channel grants messages, not bytes: each takes one of its buffers, whatever
//! its length. It begins with few and adds more when the sender says that its room is short, unless
//! messages pile up unread, which more buffers would not help, or there are four times as many as
//! the path carries at the rate at which messages come: a sender that is faster than the path is
//! always short of room. The factor leaves space for what is sent again, since messages arrive in
//! order. So memory follows the path, and a long one is filled after a few round trips.
//!
//! Invariant: granted and unread messages never exceed the receiver's buffers.
//!
//! Order: [`ReceiveWindow::arrived`] for each message, [`ReceiveWindow::consumed`] when it was read
//! and its buffer is posted again; what they return goes to [`SendWindow::grant`] of the peer.

use std::time::Duration;

use weft_os::clock::Moment;

/// Messages that may be on their way from the start. While the rate is searched for, a grant
/// comes three round trips after what it answers was sent, if packets of it were lost: this fills
/// 1 Gbit/s over 70 ms for so long.
pub const WINDOW_FIRST: u64 = 128;

/// Messages that may be on their way, at most.
pub const WINDOW_MAX: u64 = (crate::MEMORY_MAX / crate::MESSAGE_MAX - RESERVE as usize) as u64;

/// Buffers for messages of the channel itself, which need no grant.
pub const RESERVE: u64 = 16;

/// Windows are no larger than so many times what the path carries, and [`WINDOW_FIRST`].
const PATHS_FULL: u32 = 4;

/// How long a rate is measured for, at least.
const MEASURED: Duration = Duration::from_millis(20);

/// Buffers that are added at once, at most: making them takes time, in which nothing is read.
const STEP_MAX: u64 = 128;

/// The sender's side of a window of messages, or of bytes.
#[derive(Debug)]
pub struct SendWindow {
    sent: u64,
    limit: u64,
    most: u64,
    short_of: u64,
}

impl SendWindow {
    /// A window of `first` to begin with, and of `most` at most, whatever the peer grants. Half of
    /// the first is short.
    pub fn new(first: u64, most: u64) -> Self {
        Self { sent: 0, limit: first, most, short_of: first / 2 }
    }

    /// How much may be sent now.
    pub fn room(&self) -> u64 {
        self.limit - self.sent
    }

    /// So much was sent, no more than there was room for. Whether room for more is short, of which
    /// the peer is to be told.
    pub fn sent(&mut self, count: u64) -> bool {
        self.sent += count.min(self.room());
        self.room() < self.short_of
    }

    /// The peer takes what is sent up to `limit` from the start. A limit that is lower than before
    /// changes nothing, nor does one that is absurd beyond the most.
    pub fn grant(&mut self, limit: u64) {
        self.limit = self.limit.max(limit.min(self.sent.saturating_add(self.most)));
    }
}

/// The receiver's side.
#[derive(Debug)]
pub struct ReceiveWindow {
    size: u64,
    arrived: u64,
    consumed: u64,
    granted: u64,
    rtt: Duration,
    /// When the present measurement of the rate began, and after how many messages.
    since: Moment,
    arrived_then: u64,
    /// The sender was short of room since then.
    is_short: bool,
}

impl ReceiveWindow {
    /// A window at the time `now`.
    pub fn new(now: Moment) -> Self {
        let size = WINDOW_FIRST;
        Self {
            size,
            arrived: 0,
            consumed: 0,
            granted: size,
            rtt: Duration::ZERO,
            since: now,
            arrived_then: 0,
            is_short: false,
        }
    }

    /// A round trip of the path was measured.
    pub fn measured(&mut self, rtt: Duration) {
        self.rtt = if self.rtt.is_zero() { rtt } else { self.rtt.min(rtt) };
    }

    /// A message has come at `now`, whose sender was short of room or not. Gives how many buffers
    /// are to be added.
    pub fn arrived(&mut self, is_short: bool, now: Moment) -> u64 {
        self.arrived += 1;
        self.is_short |= is_short;
        let measured = now.saturating_duration_since(self.since);
        if measured < self.rtt.max(MEASURED) {
            return 0;
        }
        let came = (self.arrived - self.arrived_then) as f64;
        let carried = came * self.rtt.as_secs_f64() / measured.as_secs_f64();
        let most = WINDOW_FIRST + (f64::from(PATHS_FULL) * carried) as u64;
        let is_short = std::mem::take(&mut self.is_short);
        (self.since, self.arrived_then) = (now, self.arrived);
        let unread = self.arrived.saturating_sub(self.consumed);
        if !is_short || unread * 2 >= self.size || self.size >= most {
            return 0;
        }
        let added = STEP_MAX.min(self.size).min(WINDOW_MAX - self.size);
        self.size += added;
        added
    }

    /// A message was read and its buffer is free again. Gives the number up to which the peer may
    /// send, if it is time to say so.
    pub fn consumed(&mut self) -> Option<u64> {
        self.consumed += 1;
        let limit = self.consumed + self.size;
        let is_due = limit - self.granted >= self.size / 4;
        is_due.then(|| {
            self.granted = limit;
            limit
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender() -> SendWindow {
        SendWindow::new(WINDOW_FIRST, WINDOW_MAX)
    }

    #[test]
    fn a_sender_says_that_its_room_is_short_and_stops_at_its_limit() {
        const SHORT_OF: u64 = WINDOW_FIRST / 2;
        let mut window = sender();
        assert!(window.room() == WINDOW_FIRST && !window.sent(WINDOW_FIRST - SHORT_OF));
        assert!(window.room() == SHORT_OF && window.sent(1));
        assert!(window.sent(SHORT_OF) && window.room() == 0);
        window.grant(2 * WINDOW_FIRST);
        assert!(window.room() == WINDOW_FIRST && !window.sent(1));
    }

    #[test]
    fn an_absurd_grant_is_bounded() {
        let mut window = sender();
        window.grant(u64::MAX);
        assert_eq!(window.room(), WINDOW_MAX);
    }

    /// Ten messages a millisecond over a path of 100 ms.
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn grants_never_exceed_the_buffers() {
        let start = weft_os::clock::now();
        let (mut sender, mut receiver) = (sender(), ReceiveWindow::new(start));
        receiver.measured(100 * MS);
        let mut buffers = WINDOW_FIRST;
        let mut unread = 0;
        let mut is_short = false;
        for step in 0..200_000_u32 {
            if sender.room() > 0 {
                let short = sender.sent(1);
                unread += 1;
                buffers += receiver.arrived(short, start + step * MS / 10);
                is_short |= short;
            } else {
                assert!(unread > 0, "nothing on its way and no right to send");
            }
            assert!(unread <= buffers && buffers <= WINDOW_MAX);
            // Reads now in bursts, now one by one.
            let reads = if step % 97 < 60 { 0 } else { unread.min(u64::from(step % 7)) };
            for _ in 0..reads {
                unread -= 1;
                if let Some(limit) = receiver.consumed() {
                    sender.grant(limit);
                }
            }
        }
        assert!(is_short);
    }

    /// The buffers of a reader that keeps up or not, after a hundred round trips.
    fn grown(rtt: Duration, reads: bool) -> u64 {
        let start = weft_os::clock::now();
        let mut window = ReceiveWindow::new(start);
        window.measured(rtt);
        let mut buffers = WINDOW_FIRST;
        for step in 1..100_000 {
            buffers += window.arrived(true, start + step * MS / 10);
            if reads {
                window.consumed();
            }
        }
        buffers
    }

    #[test]
    fn a_window_grows_with_the_path_for_a_reader_that_keeps_up() {
        assert_eq!(grown(100 * MS, true), WINDOW_MAX);
        let of_10_ms = grown(10 * MS, true);
        assert!((WINDOW_FIRST + 300..WINDOW_FIRST + 700).contains(&of_10_ms), "{of_10_ms}");
        assert_eq!(grown(Duration::ZERO, true), WINDOW_FIRST);
        assert_eq!(grown(100 * MS, false), WINDOW_FIRST);
    }
}
