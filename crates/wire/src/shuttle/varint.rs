//! Integers in one, two, four or eight octets; the top two bits tell which (RFC 9000, section 16).

use super::ShuttleError;

/// The largest that can be encoded.
pub(super) const MAX: u64 = (1 << 62) - 1;

/// Appends `value`, cut to [`MAX`].
pub(super) fn put(value: u64, out: &mut Vec<u8>) {
    let value = value.min(MAX);
    match value {
        0..=0x3f => out.push(value as u8),
        0x40..=0x3fff => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => {
            out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes());
        }
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Reads the fields of a packet one after the other.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn octet(&mut self) -> Result<u8, ShuttleError> {
        self.array().map(|[octet]| octet)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ShuttleError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(ShuttleError::Short)?;
        self.0 = rest;
        Ok(*array)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], ShuttleError> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(ShuttleError::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn varint(&mut self) -> Result<u64, ShuttleError> {
        let first = *self.0.first().ok_or(ShuttleError::Short)?;
        let len = 1_usize << (first >> 6);
        let mut word = [0; 8];
        match self.0.first_chunk() {
            // Nearly always: one load, whatever the length.
            Some(octets) => word = *octets,
            None => {
                let octets = self.0.get(..len).ok_or(ShuttleError::Short)?;
                word[..len].copy_from_slice(octets);
            }
        }
        self.0 = &self.0[len..];
        Ok((u64::from_be_bytes(word) & MAX) >> (64 - 8 * len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        let examples: [(&[u8], u64); 4] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ];
        for (octets, value) in examples {
            let mut out = Vec::new();
            put(value, &mut out);
            assert_eq!(out, octets);
            assert_eq!(Reader(octets).varint(), Ok(value));
            let followed = [octets, &[0xff; 8]].concat();
            let mut reader = Reader(&followed);
            assert_eq!((reader.varint(), reader.0), (Ok(value), &[0xff; 8][..]));
        }
    }

    #[test]
    fn a_cut_number_is_short() {
        assert_eq!(Reader(&[]).varint(), Err(ShuttleError::Short));
        assert_eq!(Reader(&[0x40]).varint(), Err(ShuttleError::Short));
    }
}
