//! How many messages may be on their way: one side of a direction each, without I/O.
//!
//! The receiver grants messages, not bytes: each takes one of its buffers, whatever its length.
//! It begins with few and doubles them when the sender says that it had to wait, unless messages
//! pile up unread, which more buffers would not help. So a short copy costs little memory, and a
//! long path is filled after a few round trips.
//!
//! Invariant: granted and unread messages never exceed the receiver's buffers.
//!
//! Order: [`ReceiveWindow::arrived`] for each message, [`ReceiveWindow::consumed`] when it was read
//! and its buffer is posted again; what they return goes to [`SendWindow::grant`] of the peer.

/// Messages that may be on their way from the start.
pub const WINDOW_FIRST: u64 = 64;

/// Messages that may be on their way, at most.
pub const WINDOW_MAX: u64 = (crate::MEMORY_MAX / crate::MESSAGE_MAX - RESERVE as usize) as u64;

/// Buffers for messages of the channel itself, which need no grant.
pub const RESERVE: u64 = 16;

/// Buffers that are added at once, at most: making them takes time, in which nothing is read.
const STEP_MAX: u64 = 128;

/// The sender's side.
#[derive(Debug)]
pub struct SendWindow {
    sent: u64,
    limit: u64,
    is_starved: bool,
}

impl Default for SendWindow {
    fn default() -> Self {
        Self { sent: 0, limit: WINDOW_FIRST, is_starved: false }
    }
}

impl SendWindow {
    /// Takes the right to send one message; `None` if there is none now. Otherwise whether the
    /// peer is to be told that this side had to wait.
    pub fn take(&mut self) -> Option<bool> {
        if self.sent >= self.limit {
            self.is_starved = true;
            return None;
        }
        self.sent += 1;
        Some(std::mem::take(&mut self.is_starved))
    }

    /// Whether a message may be sent now.
    pub fn has_room(&self) -> bool {
        self.sent < self.limit
    }

    /// The peer grants messages up to the number `limit` from the start. One that is lower than
    /// before, or absurd, changes nothing beyond [`WINDOW_MAX`].
    pub fn grant(&mut self, limit: u64) {
        let most = self.sent.saturating_add(WINDOW_MAX);
        self.limit = self.limit.max(limit.min(most));
    }
}

/// The receiver's side.
#[derive(Debug)]
pub struct ReceiveWindow {
    size: u64,
    arrived: u64,
    consumed: u64,
    granted: u64,
    /// Messages that must have arrived before the window grows again.
    grows_after: u64,
}

impl Default for ReceiveWindow {
    fn default() -> Self {
        let size = WINDOW_FIRST;
        Self { size, arrived: 0, consumed: 0, granted: size, grows_after: 0 }
    }
}

impl ReceiveWindow {
    /// A message has come, whose sender had to wait or not. Gives how many buffers are to be added.
    pub fn arrived(&mut self, is_starved: bool) -> u64 {
        self.arrived += 1;
        let unread = self.arrived.saturating_sub(self.consumed);
        let may_grow = is_starved && unread * 2 < self.size && self.arrived > self.grows_after;
        if !may_grow {
            return 0;
        }
        let added = STEP_MAX.min(self.size).min(WINDOW_MAX - self.size);
        self.size += added;
        self.grows_after = self.arrived + self.size;
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

    #[test]
    fn a_sender_stops_at_its_limit_and_says_so_once() {
        let mut window = SendWindow::default();
        for _ in 0..WINDOW_FIRST {
            assert_eq!(window.take(), Some(false));
        }
        assert_eq!(window.take(), None);
        window.grant(WINDOW_FIRST + 2);
        assert_eq!(window.take(), Some(true));
        assert_eq!(window.take(), Some(false));
        assert_eq!(window.take(), None);
    }

    #[test]
    fn an_absurd_grant_is_bounded() {
        let mut window = SendWindow::default();
        window.grant(u64::MAX);
        let taken = std::iter::from_fn(|| window.take()).take(1 << 20).count() as u64;
        assert_eq!(taken, WINDOW_MAX);
    }

    #[test]
    fn grants_never_exceed_the_buffers() {
        let (mut sender, mut receiver) = (SendWindow::default(), ReceiveWindow::default());
        let mut buffers = WINDOW_FIRST;
        let mut unread = 0;
        let mut is_starved = false;
        for step in 0..200_000_u64 {
            match sender.take() {
                Some(starved) => {
                    unread += 1;
                    buffers += receiver.arrived(starved);
                    is_starved |= starved;
                }
                None => assert!(unread > 0, "nothing on its way and no right to send"),
            }
            assert!(unread <= buffers && buffers <= WINDOW_MAX);
            // Reads now in bursts, now one by one.
            let reads = if step % 97 < 60 { 0 } else { unread.min(step % 7) };
            for _ in 0..reads {
                unread -= 1;
                if let Some(limit) = receiver.consumed() {
                    sender.grant(limit);
                }
            }
        }
        assert!(is_starved);
    }

    #[test]
    fn a_window_grows_for_a_reader_that_keeps_up_only() {
        let mut fast = ReceiveWindow::default();
        let mut buffers = WINDOW_FIRST;
        for _ in 0..100_000 {
            buffers += fast.arrived(true);
            fast.consumed();
        }
        assert_eq!(buffers, WINDOW_MAX);
        let mut slow = ReceiveWindow::default();
        let added: u64 = (0..WINDOW_FIRST).map(|n| slow.arrived(n > WINDOW_FIRST / 2)).sum();
        assert_eq!(added, 0);
    }
}
