//! Sinks of Reads: the STag and offset that a Read advertises.
//!
//! A Read Request names one place (RFC 5040, section 4.4). One entry is named as it is. A list of
//! entries has a name that means something on this stream alone, and only until the answer is
//! complete; offsets in it count from the list's first byte. The peer repeats the name and need
//! not know what it stands for.
//!
//! Invariant: the name of a list is the key of no region, and of no other list of a Read under way.

use weft_verbs::mr::LEAST_KEY;
use weft_verbs::qp::SendWqe;
use weft_wire::ids::STag;

/// First STag of scatter lists; they end at the least key of a region. There are many times as many
/// as a queue pair has outstanding Reads.
const FIRST: u32 = LEAST_KEY / 2;

/// STag and offset to advertise for the response of this Read.
pub fn advertise(wqe: &SendWqe) -> (STag, u64) {
    match wqe.sges() {
        [] => (STag(0), 0),
        [entry] => (STag(entry.lkey), entry.addr),
        _ => (STag(FIRST + wqe.msn % (LEAST_KEY - FIRST)), 0),
    }
}

/// Whether an STag names a scatter list.
pub fn is_list(stag: STag) -> bool {
    (FIRST..LEAST_KEY).contains(&stag.0)
}
