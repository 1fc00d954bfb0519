//! Any octets as a key file, and as datagrams that should be sealed.

use std::collections::BTreeSet;

use weft_shuttle::{AddressPair, Key, Opener, SEALED_OVERHEAD};
use weft_wire::datagram::SealedHeader;

/// The key of what [`sealed_datagrams`] opens.
pub const KEY: [u8; 32] = [7; 32];

/// `data` as the content of a key file: what is a key comes back from its text.
pub fn key_file(data: &[u8]) {
    if let Ok(key) = Key::parse_file(data) {
        assert_eq!(Key::parse(&key.to_text()), Ok(key.clone()));
        assert_eq!(Key::parse_file(key.to_text().as_bytes()), Ok(key));
    }
}

/// The time of day at which they are opened, and between which addresses they came.
pub const NOW_NS: u64 = 1_800_000_000_000_000_000;

/// As [`NOW_NS`].
pub fn ends() -> AddressPair {
    AddressPair { from: [192, 0, 2, 1].into(), to: [192, 0, 2, 2].into() }
}

/// `data` as datagrams, each after its length in two octets: each opens once at most.
pub fn sealed_datagrams(mut data: &[u8]) {
    let mut opener = Opener::new(&Key::new(KEY), NOW_NS, false);
    let mut opened = BTreeSet::new();
    while let Some((len, rest)) = data.split_first_chunk() {
        let (datagram, rest) = rest.split_at(rest.len().min(u16::from_be_bytes(*len).into()));
        data = rest;
        if let Some(header) = SealedHeader::parse(datagram) {
            assert_eq!(header.to_bytes(), datagram[..header.to_bytes().len()]);
        }
        if let Ok(text) = opener.open(&mut datagram.to_vec(), &ends(), NOW_NS) {
            assert_eq!(text.len() + SEALED_OVERHEAD, datagram.len());
            assert!(opened.insert(datagram), "opened twice");
        }
    }
}
