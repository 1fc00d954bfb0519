//! Semantics of atomic operations (RFC 7306, section 5.1).

use weft_wire::rdmap::{AtomicOp, AtomicRequest};

/// New value of the word, or `None` if it is unchanged.
pub fn apply(request: &AtomicRequest, old: u64) -> Option<u64> {
    match request.op {
        Ok(AtomicOp::FetchAdd) => Some(masked_add(old, request.data, request.mask)),
        Ok(AtomicOp::CompareSwap) => {
            let equal = (old ^ request.compare) & request.compare_mask == 0;
            equal.then_some(old & !request.mask | request.data & request.mask)
        }
        Err(_) => None,
    }
}

/// Adds field by field: each bit of `tops` marks the most significant bit of a field, whose carry
/// is dropped.
fn masked_add(a: u64, b: u64, tops: u64) -> u64 {
    ((a & !tops).wrapping_add(b & !tops)) ^ ((a ^ b) & tops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_wire::ids::STag;

    fn request(op: AtomicOp) -> AtomicRequest {
        AtomicRequest {
            op: Ok(op),
            id: 0,
            stag: STag(0),
            to: 0,
            data: 0,
            mask: 0,
            compare: 0,
            compare_mask: u64::MAX,
        }
    }

    #[test]
    fn adds_wrap_within_their_fields() {
        let add = |data, mask, old| {
            apply(&AtomicRequest { data, mask, ..request(AtomicOp::FetchAdd) }, old)
        };
        assert_eq!(add(2, 0, u64::MAX), Some(1));
        assert_eq!(add(1, 1 << 31, 0xffff_ffff), Some(0));
        assert_eq!(add(1, 0x8080, 0x01ff), Some(0x0100));
        // Two fields of eight bits with the highest bit set in both summands, and a carry into it.
        assert_eq!(add(0x8080, 0x8080, 0x8181), Some(0x0101));
        assert_eq!(add(0x0101, 0x8080, 0x7f7f), Some(0x8080));
    }

    #[test]
    fn swaps_only_what_the_masks_say() {
        let swap = AtomicRequest {
            data: 0xaaaa,
            mask: 0x00ff,
            compare: 0x12,
            compare_mask: 0xff,
            ..request(AtomicOp::CompareSwap)
        };
        assert_eq!(apply(&swap, 0x3412), Some(0x34aa));
        assert_eq!(apply(&swap, 0x3413), None);
    }
}
