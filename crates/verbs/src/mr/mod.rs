//! Memory regions and the table of them.
//!
//! A key is 32 unpredictable bits (RFC 5042, section 6.1.1), looked up and checked octet by octet
//! for each access. Reads and writes of a region happen while the table's lock is held for
//! reading; [`RegionTable::deregister`] takes it for writing, so it returns only when no access
//! is under way and none can begin.

mod place;
mod table;

pub use place::inline_bytes;
pub use table::{Invalidate, RegionFault, RegionReader, RegionSpec, RegionTable};
