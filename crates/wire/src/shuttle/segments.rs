//! The segments of a data packet (`docs/shuttle.md`, S-4).
//!
//! Consecutive segments lie one behind the other. If there are several, a table follows: the length
//! of each but the last, then how many they are, two octets each. It stands behind them so that a
//! sender adds segments for as long as they fit, and one segment alone needs no table.

use super::ShuttleError;

/// Octets of a field of the table.
const FIELD_LEN: usize = 2;

/// Octets of the table behind `count` segments.
pub const fn table_len(count: usize) -> usize {
    if count > 1 { count * FIELD_LEN } else { 0 }
}

/// Calls `put` with the parts of the table behind segments of these `lengths`; there is none behind
/// one segment.
pub fn put_table(lengths: &[u16], mut put: impl FnMut(&[u8])) {
    if let [before @ .., _] = lengths
        && !before.is_empty()
    {
        before.iter().for_each(|length| put(&length.to_be_bytes()));
        put(&(lengths.len() as u16).to_be_bytes());
    }
}

/// The segments of a data packet, one after the other; none is empty.
#[derive(Clone, Debug)]
pub struct PackedSegments<'a> {
    octets: &'a [u8],
    /// Lengths of those that are left but the last.
    lengths: &'a [[u8; FIELD_LEN]],
}

impl<'a> PackedSegments<'a> {
    /// The segments in `octets`, a data packet without header and trailer; `several` as its header
    /// says.
    ///
    /// # Errors
    /// If there are several, and the table does not agree with what precedes it.
    pub fn parse(several: bool, octets: &'a [u8]) -> Result<Self, ShuttleError> {
        if !several {
            return Ok(Self { octets, lengths: &[] });
        }
        let invalid = ShuttleError::Value("segments");
        let (before, count) = octets.split_last_chunk().ok_or(ShuttleError::Short)?;
        let others = u16::from_be_bytes(*count).saturating_sub(1);
        let table = usize::from(others) * FIELD_LEN;
        let at = before.len().checked_sub(table).ok_or(ShuttleError::Short)?;
        let (octets, table) = before.split_at(at);
        let (lengths, _) = table.as_chunks();
        let mut sum = 0;
        for length in lengths {
            let length = usize::from(u16::from_be_bytes(*length));
            sum += length;
            if length == 0 {
                return Err(invalid);
            }
        }
        if others == 0 || sum >= octets.len() { Err(invalid) } else { Ok(Self { octets, lengths }) }
    }
}

impl<'a> Iterator for PackedSegments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.octets.is_empty() {
            return None;
        }
        let (segment, rest) = match self.lengths.split_first() {
            Some((length, lengths)) => {
                self.lengths = lengths;
                self.octets.split_at_checked(usize::from(u16::from_be_bytes(*length)))?
            }
            None => (self.octets, &[][..]),
        };
        self.octets = rest;
        Some(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(segments: &[&[u8]]) -> Vec<u8> {
        let mut octets = segments.concat();
        let lengths: Vec<u16> = segments.iter().map(|segment| segment.len() as u16).collect();
        put_table(&lengths, |part| octets.extend_from_slice(part));
        assert_eq!(octets.len(), segments.concat().len() + table_len(segments.len()));
        octets
    }

    #[test]
    fn segments_come_back_in_order() {
        for segments in [&[&b"one"[..]][..], &[b"a", b"bcd"], &[b"ab", b"c", b"defgh", b"i"]] {
            let octets = packed(segments);
            let parsed = PackedSegments::parse(segments.len() > 1, &octets).unwrap();
            assert!(parsed.eq(segments.iter().copied()));
        }
    }

    #[test]
    fn a_table_that_does_not_agree_is_refused() {
        let tables: [&[u8]; 8] = [
            &[],
            &[2],
            // No segment, one, or more than there is room for.
            &[7, 0, 0],
            &[7, 0, 1],
            &[7, 7, 0, 9],
            // An empty segment: the first, the last; and one that is too long.
            &[7, 0, 0, 0, 2],
            &[7, 0, 1, 0, 2],
            &[7, 0, 2, 0, 2],
        ];
        for octets in tables {
            assert!(PackedSegments::parse(true, octets).is_err(), "{octets:?}");
        }
        assert!(PackedSegments::parse(true, &[7, 8, 0, 1, 0, 2]).is_ok());
    }
}
