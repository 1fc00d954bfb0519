//! The Internet checksum (RFC 1071).

/// Where the checksum stands in the header of a datagram.
pub const UDP_OFFSET: usize = 6;

/// The one's complement sum of `bytes`, added to `sum`; not yet folded.
pub fn add(sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    // Words of four bytes, because the sum of their halves is what folding makes of theirs.
    let sum = words.iter().fold(sum, |sum, word| sum + u64::from(u32::from_be_bytes(*word)));
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(last))
}

/// A sum in 16 bits, not inverted.
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Finishes a checksum that covers everything from `start` on and whose field, `offset` behind
/// that, holds the sum of the pseudo header.
pub fn finish(packet: &mut [u8], start: usize, offset: usize) {
    let value = match !fold(add(0, &packet[start..])) {
        // Zero says that a datagram has no checksum (RFC 768), and only that of a datagram.
        0 if offset == UDP_OFFSET => 0xffff,
        value => value,
    };
    packet[start + offset..start + offset + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_holds() {
        // RFC 1071, section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(add(0, &bytes)), 0xddf2);
        assert_eq!(fold(add(0, &bytes[..7])), 0xddf2 - 0xf7);
    }

    #[test]
    fn zero_is_written_otherwise_for_datagrams_only() {
        for (offset, expected) in [(UDP_OFFSET, [0xff, 0xff]), (16, [0, 0])] {
            let mut packet = [0; 20];
            packet[..2].fill(0xff);
            finish(&mut packet, 0, offset);
            assert_eq!(packet[offset..offset + 2], expected);
        }
    }

    #[test]
    fn parts_add_up() {
        let bytes: Vec<u8> = (0..=255).collect();
        let parts = add(add(0, &bytes[..100]), &bytes[100..]);
        assert_eq!(fold(parts), fold(add(0, &bytes)));
    }

    #[test]
    fn a_finished_packet_sums_to_all_ones() {
        for bytes in [20, 21, 22, 23, 1500] {
            let mut packet: Vec<u8> = (0..bytes).map(|i| (i * 7) as u8).collect();
            let pseudo = fold(add(0, &[10, 77, 0, 1, 10, 77, 0, 2, 0, 6, 0, 9]));
            packet[16..18].copy_from_slice(&pseudo.to_be_bytes());
            finish(&mut packet, 0, 16);
            assert_eq!(fold(add(u64::from(pseudo), &packet)), 0xffff, "{bytes}");
        }
    }
}
