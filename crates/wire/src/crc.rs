//! CRC32C as MPA uses it: the iSCSI polynomial, stored least significant octet first
//! (RFC 5044, section 4.4).

use crc_fast::{CrcAlgorithm, Digest};

/// Whether this CPU has instructions that compute it.
pub fn by_cpu() -> bool {
    !crc_fast::get_calculator_target(CrcAlgorithm::Crc32Iscsi).contains("software")
}

/// A running CRC32C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc32c(u32);

impl Crc32c {
    /// The CRC of nothing.
    pub const fn new() -> Self {
        Self(!0)
    }

    /// The CRC after `bytes` more.
    #[must_use]
    pub fn update(self, bytes: &[u8]) -> Self {
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(self.0));
        digest.update(bytes);
        // `finalize` applies the final complement, which the running state does not have.
        Self(!(digest.finalize() as u32))
    }

    /// The four octets as they stand on the wire.
    pub fn to_wire(self) -> [u8; 4] {
        (!self.0).to_le_bytes()
    }

    /// The CRC field of `bytes` alone.
    pub fn of(bytes: &[u8]) -> [u8; 4] {
        (crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32).to_le_bytes()
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_3720_patterns() {
        assert_eq!(Crc32c::of(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(Crc32c::of(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(Crc32c::of(&ascending), [0x4e, 0x79, 0xdd, 0x46]);
    }

    #[test]
    fn a_split_anywhere_gives_the_same_crc() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for split in 0..bytes.len() {
            let (a, b) = bytes.split_at(split);
            assert_eq!(Crc32c::new().update(a).update(b).to_wire(), Crc32c::of(&bytes));
        }
    }
}
