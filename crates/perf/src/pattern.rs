//! Test pattern of verified messages: a function of the stream, the number of the message and the
//! offset in it.

/// Fills `bytes` as message `number` of `stream`.
pub fn fill(bytes: &mut [u8], stream: u64, number: u64) {
    let mut state = seed(stream, number);
    for chunk in bytes.chunks_mut(8) {
        let word = next(&mut state).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// Whether `bytes` are those of message `number` of `stream`.
pub fn matches(bytes: &[u8], stream: u64, number: u64) -> bool {
    let mut state = seed(stream, number);
    bytes.chunks(8).all(|chunk| *chunk == next(&mut state).to_le_bytes()[..chunk.len()])
}

fn seed(stream: u64, number: u64) -> u64 {
    let mut state = stream;
    next(&mut state) ^ number
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014: its mixing.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_number_counts() {
        let mut bytes = [0; 29];
        fill(&mut bytes, 3, 5);
        assert!(matches(&bytes, 3, 5));
        assert!(!matches(&bytes, 3, 6) && !matches(&bytes, 4, 5));
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert!(!matches(&bytes, 3, 5), "{at}");
            bytes[at] ^= 1;
        }
    }
}
