//! Markers: four bytes every 512 bytes of TCP stream that point back to the frame around them
//! (RFC 5044, section 4.3).
//!
//! Positions count stream bytes of one direction from the first marker, markers included. Frames
//! and the interval are multiples of four, so a marker never splits a length or a CRC.

/// Bytes from one marker to the next.
pub(crate) const INTERVAL: usize = 512;
/// Bytes of a marker.
pub(crate) const LEN: usize = 4;

/// Bytes from `position` to the next marker, 0 if one is due.
pub(crate) fn distance(position: u64) -> usize {
    (position.wrapping_neg() % INTERVAL as u64) as usize
}

/// Bytes of the markers among `content` bytes that start at `position`. One that is due right
/// after them belongs to what follows.
pub(crate) fn overhead(position: u64, content: usize) -> usize {
    match content.checked_sub(distance(position)) {
        None | Some(0) => 0,
        Some(after_first) => after_first.div_ceil(INTERVAL - LEN) * LEN,
    }
}

/// A marker `back` bytes after the length field of its frame, 0 if it stands before that.
pub(crate) fn encode(back: u64) -> [u8; LEN] {
    let [high, low] = (back as u16).to_be_bytes();
    [0, 0, high, low]
}

/// Whether `octets` is the marker that belongs `back` bytes after the length field. Reserved bits
/// and the lowest two bits of the pointer count as zero.
pub(crate) fn matches(octets: [u8; LEN], back: u64) -> bool {
    u16::from_be_bytes([octets[2], octets[3]]) & !3 == back as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_is_what_counting_one_by_one_gives() {
        for start in [0_u64, 4, 256, 504, 508, 1020] {
            for content in (4..3000).step_by(4) {
                let (mut position, mut left, mut markers) = (start, content, 0);
                while left > 0 {
                    if position % 512 == 0 {
                        markers += 1;
                        position += 4;
                    }
                    position += 4;
                    left -= 4;
                }
                assert_eq!(overhead(start, content), markers * LEN, "{start} {content}");
            }
        }
    }

    #[test]
    fn reserved_bits_of_a_marker_are_ignored() {
        assert!(matches([0xff, 0xff, 0x01, 0xcf], 0x01cc));
        assert!(!matches([0, 0, 0x01, 0xc8], 0x01cc));
    }
}
