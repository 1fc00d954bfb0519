//! How many bytes of a stream may be on their way. Without I/O.
//!
//! A window begins small, for there may be thousands of streams, and doubles when the sender is
//! short of room and the reader keeps up, as long as all windows together stay within a budget.
//!
//! Invariant: what a receiver holds of a stream is at most its window, and all windows are within
//! the budget, except that each stream has [`STREAM_FIRST`].
//!
//! Order, at the receiver: [`StreamReceive::arrived`], [`StreamReceive::consumed`]. The sender has
//! a [`weft_session::window::SendWindow`].

/// Bytes of a stream that may be on their way from the start.
pub const STREAM_FIRST: u64 = 256 * 1024;
/// Bytes of a stream that may be on their way, at most.
pub const STREAM_MAX: u64 = 64 << 20;
/// Bytes that all windows have together, beyond what each has from the start.
pub const BUDGET: u64 = 256 << 20;

/// The receiver's side of a direction.
#[derive(Debug)]
pub struct StreamReceive {
    window: u64,
    arrived: u64,
    consumed: u64,
    granted: u64,
    wants_more: bool,
}

impl Default for StreamReceive {
    fn default() -> Self {
        let window = STREAM_FIRST;
        Self { window, arrived: 0, consumed: 0, granted: window, wants_more: false }
    }
}

impl StreamReceive {
    /// Bytes have come; whether they were granted.
    pub fn arrived(&mut self, bytes: u64, is_short: bool) -> bool {
        self.arrived = self.arrived.saturating_add(bytes);
        self.wants_more |= is_short;
        self.arrived <= self.granted
    }

    /// Bytes were written to where they go. Gives the limit to grant, if it is time to. A window
    /// that grows takes from `budget`.
    pub fn consumed(&mut self, bytes: u64, budget: &mut u64) -> Option<u64> {
        self.consumed += bytes;
        let held = self.arrived - self.consumed;
        if self.wants_more && held < self.window / 2 {
            let more = self.window.min(STREAM_MAX - self.window).min(*budget);
            self.window += more;
            *budget -= more;
            self.wants_more = false;
        }
        let limit = self.consumed + self.window;
        let is_due = limit.saturating_sub(self.granted) >= self.window / 4;
        is_due.then(|| {
            self.granted = limit;
            limit
        })
    }

    /// What the window took from the budget, which the end of the stream gives back.
    pub fn borrowed(&self) -> u64 {
        self.window - STREAM_FIRST
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weft_session::window::SendWindow;

    use super::*;

    proptest! {
        /// Whatever the order of sending and reading, nobody waits for ever, and no more is held
        /// than the window.
        #[test]
        fn a_stream_flows_within_its_window(
            steps in prop::collection::vec((1..9_u64, 1..9_u64), 1..400),
        ) {
            let mut send = SendWindow::new(STREAM_FIRST, STREAM_MAX);
            let mut receive = StreamReceive::default();
            let mut budget = BUDGET;
            let mut held = 0;
            for (sends, reads) in steps {
                let bytes = send.room().min(sends * 50_000);
                prop_assert!(bytes > 0 || held > 0);
                if bytes > 0 {
                    let is_short = send.sent(bytes);
                    prop_assert!(receive.arrived(bytes, is_short));
                    held += bytes;
                }
                prop_assert!(held <= receive.window && receive.window <= STREAM_MAX);
                let bytes = held.min(reads * 50_000);
                held -= bytes;
                if let Some(limit) = receive.consumed(bytes, &mut budget) {
                    send.grant(limit);
                }
            }
            prop_assert_eq!(budget + receive.borrowed(), BUDGET);
        }
    }

    #[test]
    fn what_was_not_granted_is_noticed() {
        let mut receive = StreamReceive::default();
        assert!(receive.arrived(STREAM_FIRST, false));
        assert!(!receive.arrived(1, false));
        assert!(!receive.arrived(u64::MAX, false));
    }
}
