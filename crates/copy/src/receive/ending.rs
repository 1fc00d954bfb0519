//! The end of a copy, for which a far end is not waited without limit.
//!
//! Invariant: a far end that was told the last word, or is told why the copy cannot go on, has
//! [`END_LIMIT`] until the channel is ended: a sender that neither reads nor closes would hold up
//! the threads that wait for it.
//!
//! Order: [`EndWatch::begin`], then [`EndWatch::over`]; [`EndWatch::limit`] in a thread of its own.

use weft_session::{END_LIMIT, MessageChannel};
use weft_sync::{Condvar, Mutex};

#[derive(Default, PartialEq, Eq)]
enum EndState {
    #[default]
    Copying,
    Ending,
    Over,
}

/// How far the end of a copy has come.
#[derive(Default)]
pub(super) struct EndWatch {
    state: Mutex<EndState>,
    changed: Condvar,
}

impl EndWatch {
    /// From here on the far end's time counts.
    pub fn begin(&self) {
        let mut state = self.state.lock();
        if *state == EndState::Copying {
            *state = EndState::Ending;
        }
        self.changed.notify_all();
    }

    /// The far end is not waited for.
    pub fn over(&self) {
        *self.state.lock() = EndState::Over;
        self.changed.notify_all();
    }

    /// Ends `channel` if the far end takes longer than it may.
    pub fn limit(&self, channel: &MessageChannel) {
        let is_copying = |state: &mut EndState| *state == EndState::Copying;
        let state = self.changed.wait_while(self.state.lock(), is_copying);
        let is_ending = |state: &mut EndState| *state == EndState::Ending;
        let state = self.changed.wait_timeout_while(state, END_LIMIT, is_ending);
        if *state == EndState::Ending {
            channel.abort("the far end did not end the copy in time");
        }
    }
}
