//! Memory regions and the table of them.
//!
//! A key is 32 unpredictable bits (RFC 5042, section 6.1.1), looked up and checked byte by byte
//! for each access. Reads and writes of a region happen while the table's lock is held for
//! reading; [`RegionTable::deregister`] takes it for writing, so it returns only when no access
//! is under way and none can begin.

mod device;
mod lenders;
mod payload;
mod place;
mod reader;
mod region;
mod table;
mod window;

pub use device::{Budget, DeviceMemory};
pub use lenders::Lends;
pub use payload::{LentMemory, SegmentPayload};
pub use place::inline_bytes;
pub use reader::RegionReader;
pub use region::{Accessor, Backing, MappedCheck, RegionFault, RegionSpec};
pub use table::{Invalidate, LEAST_KEY, RegionTable};
pub use window::{Bind, WindowKind};
