//! What a connection is made with.

use weft_wire::capability::{By, Capabilities, Component};
use weft_wire::sdp::{BASE_LEN, HEAD_LEN_MAX};

use crate::layout::{CONTROL_OCTETS, CONTROLS};

/// The fewest receive buffers: with fewer, credits cannot be told without telling each alone
/// (SD-12).
pub const BUFFERS_MIN: u16 = 8;
/// The smallest receive buffer: room for the headers of any message, and some payload (SD-5).
pub const BUFFER_OCTETS_MIN: u32 = 128;
const _: () = assert!(BUFFER_OCTETS_MIN as usize > 2 * HEAD_LEN_MAX);

/// How SDP uses what is below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As over an adapter that does everything: a message for each send, and credits.
    Basic,
    /// As over a stack in software that buffers and holds back by itself: what waits grows, and
    /// nobody counts.
    Enhanced,
}

/// Which style is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// What suits the layer below.
    #[default]
    Auto,
    /// This one. [`Style::Enhanced`] only happens if both sides want it.
    Only(Style),
}

/// What a connection is made with.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The style.
    pub style: Choice,
    /// Whether the layer below holds a message back for as long as it finds no receive, and its
    /// sender with it (SD-4).
    pub holds: bool,
    /// Receive buffers, and as many for sending; 8 at least.
    pub buffers: u16,
    /// Bytes of a message that fit a receive buffer, headers included; 128 at least.
    pub buffer_octets: u32,
    /// What they can be enlarged to when the peer asks for it. Memory that is not used costs only
    /// addresses.
    pub buffer_octets_max: u32,
    /// Enhanced style: once so many bytes are with the layer below, others wait and grow.
    pub high_octets: u32,
    /// Enhanced style: once no more than so many are left there, they go.
    pub low_octets: u32,
    /// Bytes from which on it pays to have the peer read memory instead of sending it.
    pub zero_copy_octets: u32,
    /// Free room for sending, in bytes, from which on a connection is writable.
    pub writable_octets: u32,
    /// Bytes received from which on a connection is readable.
    pub readable_octets: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            style: Choice::Auto,
            holds: false,
            buffers: 64,
            buffer_octets: 32 << 10,
            buffer_octets_max: 128 << 10,
            high_octets: 256 << 10,
            low_octets: 64 << 10,
            zero_copy_octets: 64 << 10,
            writable_octets: 1,
            readable_octets: 1,
        }
    }
}

impl Config {
    /// What suits the layer below. Its statement must hold of the connection's other end too,
    /// which the Hello asks for; and the queue pair must have a patience without end, as
    /// `rnr_retry` 7 gives it.
    pub fn over(below: &Capabilities) -> Self {
        let holds = match below.by(Component::FlowControl) {
            // An adapter that does it all ends a connection whose messages find no receive.
            By::Nobody | By::Cpu(_) => false,
            By::Layer(_) | By::Kernel(_) => below.by(Component::Ordering).is_done(),
        };
        Self { holds, ..Self::default() }
    }

    /// Bytes of private memory that a connection needs.
    pub fn private_octets(&self) -> u64 {
        let octets = self.sound().buffer_octets_max;
        let slots = 2 * u64::from(self.sound().buffers);
        slots * u64::from(octets) + u64::from(CONTROLS) * CONTROL_OCTETS
    }

    /// Whether this side wants to do without credits.
    pub fn wants_enhanced(&self) -> bool {
        self.holds && self.style != Choice::Only(Style::Basic)
    }

    /// The same with sizes that can be worked with.
    pub(crate) fn sound(mut self) -> Self {
        self.buffers = self.buffers.max(BUFFERS_MIN);
        self.buffer_octets = self.buffer_octets.max(BUFFER_OCTETS_MIN);
        self.buffer_octets_max = self.buffer_octets_max.max(self.buffer_octets);
        let message = self.buffer_octets - BASE_LEN as u32;
        self.writable_octets = self.writable_octets.clamp(1, message);
        self.readable_octets = self.readable_octets.clamp(1, message);
        self.low_octets = self.low_octets.min(self.high_octets);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_are_given_up_where_the_layer_below_holds_back() {
        let bare = Capabilities::of_layer("an adapter");
        assert!(!Config::over(&bare).wants_enhanced());
        let ordered = bare.with(Component::Ordering, By::Kernel("in order"));
        let held = ordered.with(Component::FlowControl, By::Kernel("its window"));
        assert!(!Config::over(&ordered).wants_enhanced());
        assert!(Config::over(&held).wants_enhanced());
        let basic = Config { style: Choice::Only(Style::Basic), ..Config::over(&held) };
        assert!(!basic.wants_enhanced());
    }

    #[test]
    fn sizes_that_cannot_be_worked_with_are_not_taken() {
        let tiny = Config { buffers: 1, buffer_octets: 0, readable_octets: 0, ..Config::default() };
        let sound = tiny.sound();
        assert_eq!((sound.buffers, sound.buffer_octets), (BUFFERS_MIN, BUFFER_OCTETS_MIN));
        assert_eq!(sound.readable_octets, 1);
        assert_eq!(tiny.private_octets(), sound.private_octets());
    }
}
