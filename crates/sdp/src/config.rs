//! Configuration of a connection.

use weft_wire::capability::{By, Capabilities, Component};
use weft_wire::sdp::{BASE_LEN, HEAD_LEN_MAX};

use crate::layout::{CONTROL_OCTETS, CONTROLS};

/// Least count of receive buffers: with fewer, credit updates could not be combined with other
/// messages (SD-12).
pub const BUFFERS_MIN: u16 = 8;
/// Smallest receive buffer in bytes: room for the headers of any message, and some payload (SD-5).
pub const BUFFER_OCTETS_MIN: u32 = 128;
const _: () = assert!(BUFFER_OCTETS_MIN as usize > 2 * HEAD_LEN_MAX);

/// Style: how SDP uses the layer below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SdpStyle {
    /// As over a full hardware adapter: one message per send, and credits.
    Basic,
    /// As over a software stack with its own buffering and flow control: waiting messages grow, and
    /// there are no credits.
    Enhanced,
}

/// Choice of a style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The style that suits the layer below.
    #[default]
    Auto,
    /// This style; [`SdpStyle::Enhanced`] only if both sides choose it.
    Only(SdpStyle),
}

/// Configuration of a connection.
#[derive(Clone, Copy, Debug)]
pub struct SdpConfig {
    /// Choice of the style.
    pub style: Choice,
    /// Whether the layer below holds a message, and its sender, until it finds a receive (SD-4).
    pub holds: bool,
    /// Count of receive buffers, and of send buffers; 8 at least.
    pub buffers: u16,
    /// Size of a receive buffer in bytes, headers included; 128 at least.
    pub buffer_octets: u32,
    /// Largest size of a receive buffer in bytes, if the peer asks. Unused memory costs only
    /// addresses.
    pub buffer_octets_max: u32,
    /// Enhanced style: bytes queued in the layer below from which on messages wait and grow.
    pub high_octets: u32,
    /// Enhanced style: bytes left there at which waiting messages are sent.
    pub low_octets: u32,
    /// Least size of a send in bytes for zero copy: the peer reads the memory.
    pub zero_copy_octets: u32,
    /// Free send buffer in bytes from which on a connection is writable.
    pub writable_octets: u32,
    /// Received bytes from which on a connection is readable.
    pub readable_octets: u32,
}

impl Default for SdpConfig {
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

impl SdpConfig {
    /// The style that suits the layer below.
    pub fn over(below: &Capabilities) -> Self {
        let holds = match below.by(Component::FlowControl) {
            // A hardware adapter ends a connection whose messages find no receive.
            By::Nobody | By::Cpu(_) => false,
            By::Layer(_) | By::Kernel(_) => below.by(Component::Ordering).is_done(),
        };
        Self { holds, ..Self::default() }
    }

    /// Private memory of a connection, in bytes.
    pub fn private_octets(&self) -> u64 {
        let octets = self.sound().buffer_octets_max;
        let slots = 2 * u64::from(self.sound().buffers);
        slots * u64::from(octets) + u64::from(CONTROLS) * CONTROL_OCTETS
    }

    /// Whether this side chooses the enhanced style.
    pub fn wants_enhanced(&self) -> bool {
        self.holds && self.style != Choice::Only(SdpStyle::Basic)
    }

    /// The same with sizes raised to their minimum.
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
        assert!(!SdpConfig::over(&bare).wants_enhanced());
        let ordered = bare.with(Component::Ordering, By::Kernel("in order"));
        let held = ordered.with(Component::FlowControl, By::Kernel("its window"));
        assert!(!SdpConfig::over(&ordered).wants_enhanced());
        assert!(SdpConfig::over(&held).wants_enhanced());
        let basic = SdpConfig { style: Choice::Only(SdpStyle::Basic), ..SdpConfig::over(&held) };
        assert!(!basic.wants_enhanced());
    }

    #[test]
    fn sizes_that_cannot_be_worked_with_are_not_taken() {
        let tiny =
            SdpConfig { buffers: 1, buffer_octets: 0, readable_octets: 0, ..SdpConfig::default() };
        let sound = tiny.sound();
        assert_eq!((sound.buffers, sound.buffer_octets), (BUFFERS_MIN, BUFFER_OCTETS_MIN));
        assert_eq!(sound.readable_octets, 1);
        assert_eq!(tiny.private_octets(), sound.private_octets());
    }
}
