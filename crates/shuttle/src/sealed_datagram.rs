//! Sealed unreliable datagrams under a key shared by many hosts (`docs/datagrams.md`, D-1 to D-9).
//!
//! Invariant: no key and nonce are used twice, and no datagram is opened twice by one [`Opener`]:
//! each life of a sender has a name, and so keys, of its own, and numbers what it seals; who opens
//! keeps the numbers of each sender that it knows, and does not take a sender for new that it may
//! have forgotten. No datagram is opened at another address than the one that it was sealed for, as
//! another host's than its sender's, or by who began to listen after it was sealed.

use core::net::{IpAddr, Ipv6Addr};
use std::collections::BTreeMap;

use aws_lc_rs::aead::{AES_128_GCM, Algorithm, CHACHA20_POLY1305};
use aws_lc_rs::hkdf::Prk;
use weft_wire::datagram::{Cipher, SEALED_LEN, SealedHeader, SenderId};

use crate::config::PACKETS_PER_KEY;
use crate::key::Key;
use crate::seal::{PhaseKeys, TAG_LEN, expand};

/// Overhead of a sealed datagram in bytes.
pub const SEALED_OVERHEAD: usize = SEALED_LEN + TAG_LEN;
/// Most senders remembered at a time.
const SENDERS_MAX: usize = 16_384;
/// Largest clock difference plus transit time, 120 s.
const TIMELY_NS: u64 = 120_000_000_000;
/// Clock tolerance at the start of a receiver, 1 s: hosts with synchronised clocks differ by less.
/// The queue pair number in the text is as new as the queue pair.
const AHEAD_NS: u64 = 1_000_000_000;
/// Length of two IPv6 addresses in bytes.
const ADDRESS_PAIR_LEN: usize = 32;
/// Words of the replay window; one of them is partly ahead of the newest number.
const WORDS: usize = 33;
/// Span of the replay window in datagrams.
const SPAN: u64 = (WORDS as u64 - 1) * 64;

/// Sealer of datagrams, for one incarnation of a sender.
pub struct Sealer {
    root: Prk,
    cipher: Cipher,
    sender: SenderId,
    number: u64,
    keys: (u64, PhaseKeys),
}

impl Sealer {
    /// A sealer with a fresh identity: `born_ns` is the time of day, `salt` 64 random bits.
    pub fn new(key: &Key, cipher: Cipher, born_ns: u64, salt: u64) -> Self {
        let (root, sender) = (key.datagrams(), SenderId { born_ns, salt });
        let keys = (0, keys_of(&root, cipher, sender, 0));
        Self { root, cipher, sender, number: 0, keys }
    }

    /// Identity of this sender.
    pub fn sender(&self) -> SenderId {
        self.sender
    }

    /// Seals what stands from `start` on in `slab`: room for [`Sealer::HEADER_LEN`] bytes of
    /// header, and the text. It is to go between `addresses` at the time of day `now_ns`.
    pub fn seal(&mut self, slab: &mut Vec<u8>, start: usize, addresses: &AddressPair, now_ns: u64) {
        let number = self.number;
        // 2^64 datagrams are centuries.
        self.number += 1;
        let epoch = number / PACKETS_PER_KEY;
        if self.keys.0 != epoch {
            self.keys = (epoch, keys_of(&self.root, self.cipher, self.sender, epoch));
        }
        let (cipher, sender) = (self.cipher, self.sender);
        let header = SealedHeader { cipher, sender, number, time_ns: now_ns };
        slab[start..start + SEALED_LEN].copy_from_slice(&header.to_bytes());
        self.keys.1.seal_with(number, &associated(addresses, &header), slab, start + SEALED_LEN);
    }

    /// Length of the header in bytes.
    pub const HEADER_LEN: usize = SEALED_LEN;
}

/// Source and destination address of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPair {
    /// Source address.
    pub from: IpAddr,
    /// Destination: a host or a multicast group.
    pub to: IpAddr,
}

/// Associated data: both addresses and the header.
fn associated(
    addresses: &AddressPair,
    header: &SealedHeader,
) -> [u8; ADDRESS_PAIR_LEN + SEALED_LEN] {
    let wide = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let octets = |ip: IpAddr| Ipv6Addr::octets(&wide(ip));
    let mut all = [0; ADDRESS_PAIR_LEN + SEALED_LEN];
    all[..16].copy_from_slice(&octets(addresses.from));
    all[16..ADDRESS_PAIR_LEN].copy_from_slice(&octets(addresses.to));
    all[ADDRESS_PAIR_LEN..].copy_from_slice(&header.to_bytes());
    all
}

/// Reason for which a datagram is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// Clear text.
    Clear,
    /// Another key, or modified.
    Foreign,
    /// Replayed, or older than the replay window.
    Stale,
    /// Outside the time window, or sealed before this receiver started.
    Untimely,
    /// Sealed by another version of Weft.
    Version,
}

/// Opener of datagrams, each once.
pub struct Opener {
    root: Prk,
    senders: BTreeMap<SenderId, Known>,
    senders_max: usize,
    /// Start time of the youngest forgotten sender: none as old is accepted as new.
    forgotten_ns: Option<u64>,
    /// Datagrams sealed before this time are dropped.
    since_ns: u64,
}

/// State of an authenticated sender.
struct Known {
    cipher: Cipher,
    window: ReplayWindow,
    /// Keys of the last two epochs, by parity.
    keys: [Option<(u64, PhaseKeys)>; 2],
}

impl Opener {
    /// Opens what [`Sealer`]s with the same key have sealed, for a receiver that begins at the time
    /// of day `now_ns`: one queue pair, or a member of a group.
    pub fn new(key: &Key, now_ns: u64, group: bool) -> Self {
        let ahead_ns = if group { 0 } else { AHEAD_NS };
        Self::with_room(key, now_ns.saturating_sub(ahead_ns), SENDERS_MAX)
    }

    fn with_room(key: &Key, since_ns: u64, senders_max: usize) -> Self {
        let (root, senders) = (key.datagrams(), BTreeMap::new());
        Self { root, senders, senders_max, forgotten_ns: None, since_ns }
    }

    /// Opens a datagram in place that was received between `addresses` at the time of day `now_ns`;
    /// returns its text.
    ///
    /// # Errors
    /// If it is not to be believed; then nothing has changed.
    pub fn open<'a>(
        &mut self,
        datagram: &'a mut [u8],
        addresses: &AddressPair,
        now_ns: u64,
    ) -> Result<&'a [u8], Unopened> {
        let Some(header) = SealedHeader::parse(datagram) else {
            let version = SealedHeader::is_foreign(datagram);
            return Err(if version { Unopened::Version } else { Unopened::Clear });
        };
        let timely =
            header.time_ns >= self.since_ns && now_ns.abs_diff(header.time_ns) <= TIMELY_NS;
        let SealedHeader { cipher, sender, number, .. } = header;
        let epoch = number / PACKETS_PER_KEY;
        let associated = associated(addresses, &header);
        let datagram = &mut datagram[SEALED_LEN..];
        let Some(known) = self.senders.get_mut(&sender).filter(|_| timely) else {
            return self.open_first(&header, &associated, timely, datagram);
        };
        if known.cipher != cipher {
            return Err(Unopened::Foreign);
        }
        if !known.window.is_new(number) {
            return Err(Unopened::Stale);
        }
        let place = &mut known.keys[(epoch % 2) as usize];
        let held = place.as_ref().filter(|(of, _)| *of == epoch);
        if let Some((_, keys)) = held {
            let text = keys.open_with(number, &associated, datagram).ok_or(Unopened::Foreign)?;
            known.window.note(number);
            return Ok(text);
        }
        let keys = keys_of(&self.root, cipher, sender, epoch);
        let text = keys.open_with(number, &associated, datagram).ok_or(Unopened::Foreign)?;
        *place = Some((epoch, keys));
        known.window.note(number);
        Ok(text)
    }

    /// The rest of a datagram of a sender that is not known, or one that is not timely, which is
    /// told of only if it was sealed under the key.
    fn open_first<'a>(
        &mut self,
        header: &SealedHeader,
        associated: &[u8],
        timely: bool,
        datagram: &'a mut [u8],
    ) -> Result<&'a [u8], Unopened> {
        let SealedHeader { cipher, sender, number, .. } = *header;
        let epoch = number / PACKETS_PER_KEY;
        if self.forgotten_ns.is_some_and(|forgotten_ns| sender.born_ns <= forgotten_ns) {
            return Err(Unopened::Stale);
        }
        let keys = keys_of(&self.root, cipher, sender, epoch);
        let text = keys.open_with(number, associated, datagram).ok_or(Unopened::Foreign)?;
        if !timely {
            return Err(Unopened::Untimely);
        }
        let mut known = Known { cipher, window: ReplayWindow::default(), keys: [None, None] };
        known.window.note(number);
        known.keys[(epoch % 2) as usize] = Some((epoch, keys));
        self.senders.insert(sender, known);
        if self.senders.len() > self.senders_max
            && let Some((oldest, _)) = self.senders.pop_first()
        {
            self.forgotten_ns = Some(oldest.born_ns);
        }
        Ok(text)
    }
}

/// Replay window of a sender.
struct ReplayWindow {
    /// One above the newest number.
    end: u64,
    words: [u64; WORDS],
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self { end: 0, words: [0; WORDS] }
    }
}

impl ReplayWindow {
    fn is_new(&self, number: u64) -> bool {
        if number >= self.end {
            return true;
        }
        let (word, bit) = place_of(number);
        self.end - number <= SPAN && self.words[word] & bit == 0
    }

    fn note(&mut self, number: u64) {
        if number >= self.end {
            // The words between the old end and the new one have numbers of long ago in them.
            let fresh = (self.end.div_ceil(64)..=number / 64).rev().take(WORDS);
            for word in fresh {
                self.words[(word % WORDS as u64) as usize] = 0;
            }
            self.end = number.saturating_add(1);
        }
        let (word, bit) = place_of(number);
        self.words[word] |= bit;
    }
}

fn place_of(number: u64) -> (usize, u64) {
    ((number / 64 % WORDS as u64) as usize, 1 << (number % 64))
}

/// The keys of an epoch of a sender (D-3).
fn keys_of(root: &Prk, cipher: Cipher, sender: SenderId, epoch: u64) -> PhaseKeys {
    let mut info = b"weft sender".to_vec();
    info.push(cipher as u8);
    for part in [sender.born_ns, sender.salt, epoch] {
        info.extend(part.to_be_bytes());
    }
    let mut secret = [0; 32];
    expand(root, &info, &mut secret);
    PhaseKeys::derive(algorithm(cipher), &secret, 0)
}

fn algorithm(cipher: Cipher) -> &'static Algorithm {
    match cipher {
        Cipher::Aes128Gcm => &AES_128_GCM,
        Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIPHERS: [Cipher; 2] = [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305];

    /// The time of day.
    const NOW_NS: u64 = 1_800_000_000_000_000_000;

    fn addresses() -> AddressPair {
        AddressPair { from: [192, 0, 2, 1].into(), to: [192, 0, 2, 2].into() }
    }

    fn opener() -> Opener {
        Opener::new(&key(), NOW_NS, false)
    }

    fn key() -> Key {
        Key::new([3; 32])
    }

    fn seal(sealer: &mut Sealer, text: &[u8]) -> Vec<u8> {
        let mut slab = vec![0xaa; 5 + SEALED_LEN];
        slab.extend_from_slice(text);
        sealer.seal(&mut slab, 5, &addresses(), NOW_NS);
        slab.split_off(5)
    }

    fn open(opener: &mut Opener, datagram: &[u8]) -> Result<Vec<u8>, Unopened> {
        opener.open(&mut datagram.to_vec(), &addresses(), NOW_NS).map(<[u8]>::to_vec)
    }

    #[test]
    fn what_is_sealed_opens_once_and_every_bit_counts() {
        for cipher in CIPHERS {
            let mut sealer = Sealer::new(&key(), cipher, 1, 2);
            let mut opener = opener();
            let first = seal(&mut sealer, b"first");
            for known in [false, true] {
                let datagram = seal(&mut sealer, b"text");
                assert_eq!(datagram.len(), 4 + SEALED_OVERHEAD);
                assert!(!datagram.windows(4).any(|window| window == b"text"));
                for bit in 0..datagram.len() * 8 {
                    let mut flipped = datagram.clone();
                    flipped[bit / 8] ^= 1 << (bit % 8);
                    assert!(open(&mut opener, &flipped).is_err(), "bit {bit}, known: {known}");
                }
                assert_eq!(open(&mut opener, &datagram), Ok(b"text".to_vec()));
                assert_eq!(open(&mut opener, &datagram), Err(Unopened::Stale));
            }
            assert_eq!(open(&mut opener, &first), Ok(b"first".to_vec()), "late, but new");
        }
    }

    #[test]
    fn strangers_and_clear_text_are_told_apart() {
        let mut opener = opener();
        let mut stranger = Sealer::new(&Key::new([4; 32]), CIPHERS[0], 1, 2);
        assert_eq!(open(&mut opener, &seal(&mut stranger, b"x")), Err(Unopened::Foreign));
        assert_eq!(open(&mut opener, b"\x64clear"), Err(Unopened::Clear));
        assert!(opener.senders.is_empty(), "nothing is kept for strangers");
    }

    #[test]
    fn a_record_opens_nowhere_else_and_never_later() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut sealer = Sealer::new(&key(), CIPHERS[0], 1, 2);
        let record = seal(&mut sealer, b"text");
        let replay = |mut opener: Opener, addresses: &AddressPair, now_ns: u64| {
            opener.open(&mut record.clone(), addresses, now_ns).map(<[u8]>::to_vec)
        };
        let member = |since_ns| Opener::new(&key(), since_ns, true);
        let text = Ok(b"text".to_vec());
        assert_eq!(replay(member(NOW_NS), &addresses(), NOW_NS), text);
        assert_eq!(replay(member(NOW_NS + 1), &addresses(), NOW_NS + 1), Err(Unopened::Untimely));
        assert_eq!(replay(opener(), &addresses(), NOW_NS + 119 * SECOND_NS), text);
        for now_ns in [NOW_NS + 121 * SECOND_NS, NOW_NS - 121 * SECOND_NS] {
            assert_eq!(replay(member(0), &addresses(), now_ns), Err(Unopened::Untimely));
        }
        let later = Opener::new(&key(), NOW_NS + 2 * SECOND_NS, false);
        assert_eq!(replay(later, &addresses(), NOW_NS + 2 * SECOND_NS), Err(Unopened::Untimely));
        let elsewhere: IpAddr = [192, 0, 2, 3].into();
        for addresses in [
            AddressPair { from: elsewhere, ..addresses() },
            AddressPair { to: elsewhere, ..addresses() },
        ] {
            assert_eq!(replay(opener(), &addresses, NOW_NS), Err(Unopened::Foreign));
        }
        assert_eq!(opener().open(&mut [0xe1; 80], &addresses(), NOW_NS), Err(Unopened::Version));
    }

    #[test]
    fn keys_change_and_late_datagrams_still_open() {
        let mut sealer = Sealer::new(&key(), CIPHERS[0], 1, 2);
        let mut opener = opener();
        sealer.number = PACKETS_PER_KEY - 2;
        let datagrams: Vec<_> = (0..4).map(|_| seal(&mut sealer, b"text")).collect();
        for at in [0, 2, 1, 3] {
            assert_eq!(open(&mut opener, &datagrams[at]), Ok(b"text".to_vec()), "{at}");
        }
        for datagram in &datagrams {
            assert_eq!(open(&mut opener, datagram), Err(Unopened::Stale));
        }
    }

    #[test]
    fn a_sender_that_was_forgotten_is_not_new() {
        let mut opener = Opener::with_room(&key(), 0, 2);
        let mut sealers = [1, 2, 3].map(|born| Sealer::new(&key(), CIPHERS[0], born, born));
        let datagrams = sealers.each_mut().map(|sealer| seal(sealer, b"text"));
        for datagram in &datagrams {
            assert!(open(&mut opener, datagram).is_ok());
        }
        assert_eq!(opener.senders.len(), 2);
        for datagram in &datagrams {
            assert_eq!(open(&mut opener, datagram), Err(Unopened::Stale));
        }
        assert!(open(&mut opener, &seal(&mut sealers[1], b"more")).is_ok());
    }

    #[test]
    fn the_window_is_a_set_of_what_is_not_too_old() {
        let mut window = ReplayWindow::default();
        let mut model = std::collections::BTreeSet::new();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut at = 0_u64;
        for _ in 0..100_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            at += [1, 1, 1, 2, 70, 5000][(state % 6) as usize] * (state >> 60 & 1);
            let number = at.saturating_sub(state >> 20 & 0xfff);
            let end = model.last().map_or(0, |newest| newest + 1);
            let new = number >= end || end - number <= SPAN && !model.contains(&number);
            assert_eq!(window.is_new(number), new, "{number} before {end}");
            if new {
                window.note(number);
                model.insert(number);
            }
        }
        window.note(u64::MAX);
        assert!(!window.is_new(at));
    }

    /// D-6.
    #[test]
    fn the_newest_2048_numbers_are_remembered() {
        let mut window = ReplayWindow::default();
        window.note(5000);
        assert!(window.is_new(5000 - 2047));
        assert!(!window.is_new(5000 - 2048));
    }

    /// A sender that was silent for a while, or whose datagrams were lost, is in another epoch.
    #[test]
    fn a_key_that_was_passed_over_leaves_those_after_it_in_order() {
        for first in [0, 1, 4, 7] {
            let mut sealer = Sealer::new(&key(), CIPHERS[0], 1, 2);
            let mut opener = opener();
            for epoch in [0, 2, 3, 5, 6] {
                sealer.number = (first + epoch) * PACKETS_PER_KEY;
                for _ in 0..2 {
                    let datagram = seal(&mut sealer, b"text");
                    assert_eq!(open(&mut opener, &datagram), Ok(b"text".to_vec()), "{epoch}");
                }
            }
        }
    }
}
