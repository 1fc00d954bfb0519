//! The record of verified ranges: which bytes of a partial file are right and durable, and of which
//! source. It lies beside the partial file.
//!
//! # The written form
//!
//! ```text
//! 8 bytes   "weftcopy"
//! 4 bytes   version, little-endian: 2
//! n bytes   RecordBody in the form of postcard 1 (LEB128 integers)
//! 32 bytes  BLAKE3 of everything before
//! ```
//!
//! The body of version 2 is: size of the source in bytes; its modification time in seconds and
//! nanoseconds; BLAKE3 of it, if its content was compared; inode of the partial file; the ranges,
//! each as the bytes since the end of the one before and its length.
//!
//! Invariant: a record is replaced as a whole. What cannot be read, or has another version or hash,
//! is no record: the copy of that file starts anew, and nothing else is lost by that.
//!
//! Order: [`CopyRecord::decode`] when a copy begins; [`CopyRecord::matches`];
//! [`CopyRecord::encode`] whenever more is durable.

use serde::{Deserialize, Serialize};

use crate::byte_ranges::ByteRanges;
use crate::messages::SourceTime;

const MAGIC: &[u8; 8] = b"weftcopy";
const VERSION: u32 = 2;
const HASH: usize = 32;
/// Bytes of a record, at most: one that is longer is none.
pub const RECORD_MAX: usize = 16 << 20;

/// What tells a source from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct SourceIdentity {
    /// Its bytes.
    pub size: u64,
    /// When it was changed last.
    pub modified: SourceTime,
    /// BLAKE3 of all of it, if content is compared.
    pub digest: Option<[u8; 32]>,
}

/// What is known of a partial file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRecord {
    /// Of which source it is a part.
    pub source: SourceIdentity,
    /// Inode of the partial file.
    pub inode: u64,
    /// The bytes that are verified and durable.
    pub verified: ByteRanges,
}

#[derive(Deserialize, Serialize)]
struct RecordBody {
    source: SourceIdentity,
    inode: u64,
    ranges: Vec<(u64, u64)>,
}

impl CopyRecord {
    /// Its written form.
    pub fn encode(&self) -> Vec<u8> {
        let mut at = 0;
        let ranges = self.verified.iter().map(|range| {
            let pair = (range.start - at, range.end - range.start);
            at = range.end;
            pair
        });
        let ranges = ranges.collect();
        let body = RecordBody { source: self.source, inode: self.inode, ranges };
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        // Writing to memory does not fail.
        out.extend(postcard::to_allocvec(&body).unwrap_or_default());
        out.extend(blake3::hash(&out).as_bytes());
        out
    }

    /// What was written; `None` if it is no record of this version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (text, hash) = bytes.split_last_chunk::<HASH>()?;
        let rest = text.strip_prefix(MAGIC)?.strip_prefix(&VERSION.to_le_bytes())?;
        if bytes.len() > RECORD_MAX || blake3::hash(text) != *hash {
            return None;
        }
        let body: RecordBody = postcard::from_bytes(rest).ok()?;
        let mut verified = ByteRanges::default();
        let mut at = 0_u64;
        for (skip, len) in body.ranges {
            let start = at.checked_add(skip)?;
            at = start.checked_add(len).filter(|end| *end <= body.source.size)?;
            verified.insert(start..at);
        }
        Some(Self { source: body.source, inode: body.inode, verified })
    }

    /// Whether it is about this source, and a partial file of this inode. A source whose content is
    /// not compared is what has its size and time.
    pub fn matches(&self, source: SourceIdentity, inode: u64) -> bool {
        let known = SourceIdentity { digest: source.digest.and(self.source.digest), ..self.source };
        known == source && self.inode == inode
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> CopyRecord {
        CopyRecord {
            source: SourceIdentity {
                size: 1 << 40,
                modified: SourceTime { secs: -3, nanos: 999_999_999 },
                digest: Some([7; 32]),
            },
            inode: 77,
            verified: [0..1 << 20, 1 << 30..1 << 39].into_iter().collect(),
        }
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let record = record();
        assert_eq!(CopyRecord::decode(&record.encode()), Some(record));
    }

    #[test]
    fn the_form_of_version_2_stays() {
        let record = CopyRecord {
            source: SourceIdentity {
                size: 300,
                modified: SourceTime { secs: 1, nanos: 2 },
                digest: None,
            },
            inode: 3,
            verified: std::iter::once(5..9).collect(),
        };
        let body = [0xac, 0x02, 2, 2, 0, 3, 1, 5, 4];
        let encoded = record.encode();
        assert_eq!(encoded[..12], *b"weftcopy\x02\0\0\0");
        assert_eq!(encoded[12..encoded.len() - HASH], body);
    }

    #[test]
    fn what_is_damaged_or_of_another_version_is_no_record() {
        let good = record().encode();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            assert_eq!(CopyRecord::decode(&bad), None, "byte {at}");
            assert_eq!(CopyRecord::decode(&good[..at]), None, "{at} bytes");
        }
        let mut next = good[..good.len() - HASH].to_vec();
        next[8] = 3;
        next.extend(*blake3::hash(&next).as_bytes());
        assert_eq!(CopyRecord::decode(&next), None);
    }

    #[test]
    fn ranges_beyond_the_file_are_refused() {
        let mut wrong = record();
        wrong.source.size = 10;
        assert_eq!(CopyRecord::decode(&wrong.encode()), None);
    }
}
