//! Layout of private memory: receive slots, as many send slots, and a few small ones for messages
//! without payload.

use weft_wire::sdp::HEAD_LEN_MAX;

use crate::config::SdpConfig;

/// Slots for messages without payload.
pub const CONTROLS: u16 = 8;
/// Bytes of such a slot.
pub const CONTROL_OCTETS: u64 = 64;
const _: () = assert!(CONTROL_OCTETS as usize >= HEAD_LEN_MAX);

/// A range of private memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Offset of its first byte.
    pub at: u64,
    /// Length in bytes, one at least.
    pub len: u32,
}

/// Positions of the slots.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Slots for receiving, and as many for sending with payload.
    pub buffers: u16,
    /// Bytes of such a slot.
    pub octets: u32,
}

impl Layout {
    /// The slots of a connection with this configuration.
    pub fn new(config: &SdpConfig) -> Self {
        Self { buffers: config.buffers, octets: config.buffer_octets_max }
    }

    /// Where a slot for receiving begins.
    pub fn recv(&self, slot: u16) -> u64 {
        u64::from(slot) * u64::from(self.octets)
    }

    /// Where a slot for sending begins. From [`Layout::buffers`] on they are small.
    pub fn send(&self, slot: u16) -> u64 {
        let (large, small) = (slot.min(self.buffers), slot.saturating_sub(self.buffers));
        let base = u64::from(self.buffers) * u64::from(self.octets);
        base + u64::from(large) * u64::from(self.octets) + u64::from(small) * CONTROL_OCTETS
    }

    /// Whether a slot for sending is one of the small ones.
    pub fn is_control(&self, slot: u16) -> bool {
        slot >= self.buffers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_each_other_and_fill_the_memory() {
        let config = SdpConfig {
            buffers: 9,
            buffer_octets: 150,
            buffer_octets_max: 200,
            ..SdpConfig::default()
        };
        let layout = Layout::new(&config);
        let mut at = 0;
        for slot in 0..9 {
            assert_eq!(layout.recv(slot), at);
            at += 200;
        }
        for slot in 0..9 + CONTROLS {
            assert_eq!(layout.send(slot), at);
            at += if layout.is_control(slot) { CONTROL_OCTETS } else { 200 };
        }
        assert_eq!(at, config.private_octets());
    }
}
