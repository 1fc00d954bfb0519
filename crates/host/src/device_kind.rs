//! Which device: its kind, by what is below it, and which of that kind.

use weft_verbs::Limits;
use weft_verbs::limits::{IWARP, ROCE};

/// What a device looks like, and which transport is below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// An RNIC over TCP, as `weft_iw0` is.
    Iwarp,
    /// A channel adapter on Ethernet over UDP, as `weft0` is.
    Roce,
}

impl DeviceKind {
    /// What such a device can hold.
    pub fn limits(self) -> &'static Limits {
        match self {
            Self::Iwarp => &IWARP,
            Self::Roce => &ROCE,
        }
    }
}

/// Devices of one kind that a host has at most.
pub const DEVICES_MAX: usize = 16;

/// One device of a host. Objects of different devices have nothing in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceId {
    /// What it looks like.
    pub kind: DeviceKind,
    /// Which one of that kind, from 0, below [`DEVICES_MAX`].
    index: u8,
}

impl DeviceId {
    /// Devices that there can be: slots are below this number.
    pub const SLOTS: usize = 2 * DEVICES_MAX;

    /// The device of that kind and number; the last one for numbers that no device has.
    pub fn new(kind: DeviceKind, index: usize) -> Self {
        Self { kind, index: index.min(DEVICES_MAX - 1) as u8 }
    }

    /// Which one of its kind, from 0.
    pub fn index(self) -> usize {
        self.index.into()
    }

    /// The device in that place of tables.
    pub fn of_slot(slot: usize) -> Self {
        let rnic = slot % 2 == 1;
        Self::new(if rnic { DeviceKind::Iwarp } else { DeviceKind::Roce }, slot / 2)
    }

    /// Its place in tables of devices: adapters and RNICs take turns, beginning with `weft0`.
    pub fn slot(self) -> usize {
        let of_kind = match self.kind {
            DeviceKind::Roce => 0,
            DeviceKind::Iwarp => 1,
        };
        2 * self.index() + of_kind
    }
}

impl From<DeviceKind> for DeviceId {
    /// The first of a kind.
    fn from(kind: DeviceKind) -> Self {
        Self { kind, index: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_a_slot_of_its_own() {
        let kinds = [DeviceKind::Roce, DeviceKind::Iwarp];
        let all = (0..DEVICES_MAX).flat_map(|index| kinds.map(|kind| DeviceId::new(kind, index)));
        let slots: Vec<usize> = all.map(DeviceId::slot).collect();
        assert_eq!(slots, (0..DeviceId::SLOTS).collect::<Vec<_>>());
        assert!(slots.iter().all(|slot| DeviceId::of_slot(*slot).slot() == *slot));
        assert_eq!(DeviceId::from(DeviceKind::Iwarp).slot(), 1);
    }
}
