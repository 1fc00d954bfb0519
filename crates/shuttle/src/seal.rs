//! Packet encryption: authenticated header, encrypted rest, key updates.
//!
//! Invariant: no key and nonce are used twice. The nonce is path and packet number, which never
//! repeat on a connection; each direction and each phase has keys of its own (S-82, S-83). The key
//! that the peer needs next is always one that it can know: the next but one is not used before it
//! has shown that it has the next.

use aws_lc_rs::aead::{
    AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use aws_lc_rs::hkdf::{self, HKDF_SHA256, Prk};
use weft_wire::shuttle::hello::protection;
use zeroize::Zeroizing;

use crate::config::MAX_PATHS;
use crate::noise::Secrets;

/// Length of the authentication tag in bytes.
pub(crate) const TAG_LEN: usize = 16;

/// Keys of both directions of a connection.
pub(crate) struct Sealed {
    algorithm: &'static Algorithm,
    out: PhaseKeys,
    packets_out: u64,
    packets_per_key: u64,
    /// First packet number of each path under the current key.
    began: [Option<u64>; MAX_PATHS],
    /// The peer acknowledged a packet under the current key.
    confirmed: bool,
    /// Receive keys: the previous one, the newest that the peer used, and the next.
    inward: [Option<PhaseKeys>; 3],
}

/// Key, IV and next secret of one direction and phase.
pub(crate) struct PhaseKeys {
    phase: u8,
    key: LessSafeKey,
    iv: Zeroizing<[u8; 12]>,
    next: Zeroizing<[u8; 32]>,
}

impl Sealed {
    /// For the chosen `protection`, one bit of [`protection`].
    pub(crate) fn new(
        chosen: u8,
        secrets: &Secrets,
        initiator: bool,
        packets_per_key: u64,
    ) -> Self {
        let aes = chosen == protection::AES128GCM;
        let algorithm = if aes { &AES_128_GCM } else { &CHACHA20_POLY1305 };
        let [out, inward] = if initiator { [0, 1] } else { [1, 0] };
        let current = PhaseKeys::derive(algorithm, &secrets[inward], 0);
        let next = current.after(algorithm);
        Self {
            algorithm,
            out: PhaseKeys::derive(algorithm, &secrets[out], 0),
            packets_out: 0,
            packets_per_key,
            began: [None; MAX_PATHS],
            confirmed: false,
            inward: [None, Some(current), Some(next)],
        }
    }

    /// The phase of the next packet that is sealed.
    pub(crate) fn next_phase(&mut self) -> u8 {
        if self.packets_out >= self.packets_per_key && self.confirmed {
            self.out = self.out.after(self.algorithm);
            self.packets_out = 0;
            (self.began, self.confirmed) = ([None; MAX_PATHS], false);
        }
        self.out.phase
    }

    /// The peer has packet `pn` of `path`.
    pub(crate) fn handle_acked(&mut self, path: u8, pn: u64) {
        let began = self.began.get(usize::from(path)).copied().flatten();
        self.confirmed |= began.is_some_and(|began| pn >= began);
    }

    /// Seals what follows the header of a packet at the end of `slab`, which begins at `start`.
    pub(crate) fn seal(
        &mut self,
        path: u8,
        pn: u64,
        slab: &mut Vec<u8>,
        start: usize,
        header_len: usize,
    ) {
        self.packets_out += 1;
        if let Some(began) = self.began.get_mut(usize::from(path)) {
            began.get_or_insert(pn);
        }
        self.out.seal(path, pn, slab, start, header_len);
    }

    /// Opens a packet in place; gives what follows its header.
    pub(crate) fn open<'a>(
        &mut self,
        phase: u8,
        path: u8,
        pn: u64,
        datagram: &'a mut [u8],
        header_len: usize,
    ) -> Option<&'a [u8]> {
        let find = |keys: &Option<PhaseKeys>| keys.as_ref().is_some_and(|keys| keys.phase == phase);
        let at = self.inward.iter().position(find)?;
        let text = self.inward[at].as_ref()?.open(path, pn, datagram, header_len)?;
        if at == 2 {
            self.inward.rotate_left(1);
            self.inward[2] = self.inward[1].as_ref().map(|keys| keys.after(self.algorithm));
        }
        Some(text)
    }
}

impl PhaseKeys {
    #[expect(clippy::expect_used, reason = "the key has the cipher's length, aws-lc the reserve")]
    pub(crate) fn derive(algorithm: &'static Algorithm, secret: &[u8; 32], phase: u8) -> Self {
        let prk = Prk::new_less_safe(HKDF_SHA256, secret);
        let [mut key, mut next] = [(); 2].map(|()| Zeroizing::new([0; 32]));
        let mut iv = Zeroizing::new([0; 12]);
        let key = &mut key[..algorithm.key_len()];
        expand(&prk, b"shuttle key", key);
        expand(&prk, b"shuttle iv", iv.as_mut_slice());
        expand(&prk, b"shuttle next", next.as_mut_slice());
        let key = UnboundKey::new(algorithm, key).expect("the key has the cipher's length");
        Self { phase, key: LessSafeKey::new(key), iv, next }
    }

    fn after(&self, algorithm: &'static Algorithm) -> Self {
        Self::derive(algorithm, &self.next, (self.phase + 1) & 3)
    }

    /// Seals what stands behind `header_len` bytes of header at `start`, to the end of `slab`.
    /// `path` and `pn` together are new.
    #[expect(clippy::expect_used, reason = "a packet is shorter than a cipher's limit")]
    pub(crate) fn seal(
        &self,
        path: u8,
        pn: u64,
        slab: &mut Vec<u8>,
        start: usize,
        header_len: usize,
    ) {
        let (header, text) = slab[start..].split_at_mut(header_len);
        let sealed =
            self.key.seal_in_place_separate_tag(self.nonce(path, pn), Aad::from(header), text);
        let tag = sealed.expect("a packet is shorter than a cipher's limit");
        slab.extend_from_slice(tag.as_ref());
    }

    /// Opens a packet in place; gives what follows its header.
    pub(crate) fn open<'a>(
        &self,
        path: u8,
        pn: u64,
        datagram: &'a mut [u8],
        header_len: usize,
    ) -> Option<&'a [u8]> {
        let (header, sealed) = datagram.split_at_mut_checked(header_len)?;
        let text = self.key.open_in_place(self.nonce(path, pn), Aad::from(header), sealed).ok()?;
        Some(text)
    }

    /// Seals the text from `text_at` on to the end of `slab`, with `associated` data that may lie
    /// elsewhere. `number` is new.
    #[expect(clippy::expect_used, reason = "a datagram is shorter than a cipher's limit")]
    pub(crate) fn seal_with(
        &self,
        number: u64,
        associated: &[u8],
        slab: &mut Vec<u8>,
        text_at: usize,
    ) {
        let (nonce, text) = (self.nonce(0, number), &mut slab[text_at..]);
        let sealed = self.key.seal_in_place_separate_tag(nonce, Aad::from(associated), text);
        let tag = sealed.expect("a datagram is shorter than a cipher's limit");
        slab.extend_from_slice(tag.as_ref());
    }

    /// Opens a text in place that [`PhaseKeys::seal_with`] has sealed.
    pub(crate) fn open_with<'a>(
        &self,
        number: u64,
        associated: &[u8],
        sealed: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let text = self.key.open_in_place(self.nonce(0, number), Aad::from(associated), sealed);
        text.ok().map(|text| &*text)
    }

    fn nonce(&self, path: u8, pn: u64) -> Nonce {
        let mut nonce = *self.iv;
        nonce[3] ^= path;
        for (octet, number) in nonce[4..].iter_mut().zip(pn.to_be_bytes()) {
            *octet ^= number;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

struct Len(usize);

impl hkdf::KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF's second half: fills `out` with what follows from `prk` for `label`. No key is made
/// without, so aws-lc is told here where to allocate before it does.
#[expect(clippy::expect_used, reason = "HKDF gives 255 times its hash, and less is asked for")]
pub(crate) fn expand(prk: &Prk, label: &[u8], out: &mut [u8]) {
    weft_memory::serve_aws_lc();
    let filled = prk.expand(&[label], Len(out.len())).and_then(|okm| okm.fill(out));
    filled.expect("HKDF gives 255 times its hash at most, and less was asked for");
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &[u8; 10] = b"\xc0header...";

    fn pair(chosen: u8) -> [Sealed; 2] {
        let secrets = Zeroizing::new([[1; 32], [2; 32]]);
        [true, false].map(|initiator| Sealed::new(chosen, &secrets, initiator, 1))
    }

    fn seal(sealed: &mut Sealed, pn: u64) -> (u8, Vec<u8>) {
        let phase = sealed.next_phase();
        let mut slab = [&HEADER[..], b"text"].concat();
        sealed.seal(3, pn, &mut slab, 0, HEADER.len());
        assert_eq!(slab.len(), HEADER.len() + 4 + TAG_LEN);
        (phase, slab)
    }

    #[test]
    fn only_the_right_end_opens_and_every_bit_counts() {
        for chosen in [protection::AES128GCM, protection::CHACHA20POLY1305] {
            let [mut here, mut there] = pair(chosen);
            let (phase, packet) = seal(&mut here, 77);
            let open = |end: &mut Sealed, path, pn, mut packet: Vec<u8>| {
                end.open(phase, path, pn, &mut packet, HEADER.len()).map(<[u8]>::to_vec)
            };
            for bit in 0..packet.len() * 8 {
                let mut flipped = packet.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(open(&mut there, 3, 77, flipped), None);
            }
            assert_eq!(open(&mut there, 3, 78, packet.clone()), None);
            assert_eq!(open(&mut there, 2, 77, packet.clone()), None);
            assert_eq!(open(&mut here, 3, 77, packet.clone()), None);
            assert_eq!(open(&mut there, 3, 77, packet), Some(b"text".to_vec()));
            assert_eq!(open(&mut there, 3, 77, vec![0; 12]), None);
        }
    }

    #[test]
    fn keys_change_and_late_packets_still_open() {
        let [mut here, mut there] = pair(protection::AES128GCM);
        let mut late = None;
        for round in 0..9 {
            let (phase, mut packet) = seal(&mut here, round);
            assert_eq!(u64::from(phase), round % 4);
            let late = late.replace((round, phase, packet.clone()));
            assert!(there.open(phase, 3, round, &mut packet, 10).is_some(), "{round}");
            if let Some((pn, phase, mut packet)) = late {
                assert!(there.open(phase, 3, pn, &mut packet, 10).is_some(), "{pn}");
            }
            // Without a sign of the peer the key stays.
            here.handle_acked(2, round);
            assert_eq!(here.next_phase(), phase);
            here.handle_acked(3, round);
        }
    }

    /// S-82: no two packets of a key have one nonce.
    #[test]
    fn the_nonce_is_the_iv_with_the_path_and_the_number_over_it() {
        let keys = PhaseKeys::derive(&AES_128_GCM, &[7; 32], 0);
        let nonce = |path, pn| *keys.nonce(path, pn).as_ref();
        assert_eq!(nonce(0, 0), *keys.iv);
        for (path, pn) in [(1, 0), (0, 1), (0xff, u64::MAX), (0x81, 0x0123_4567_89ab_cdef)] {
            let over: Vec<u8> = keys.iv.iter().zip(nonce(path, pn)).map(|(a, b)| a ^ b).collect();
            assert_eq!(over, [&[0, 0, 0, path][..], &pn.to_be_bytes()].concat());
        }
    }

    /// S-82: the nonce is the IV with path and packet number, computed here anew.
    #[test]
    fn a_packet_is_sealed_as_the_protocol_says() {
        let prk = Prk::new_less_safe(HKDF_SHA256, &[1; 32]);
        let (mut key, mut iv) = ([0; 16], [0; 12]);
        expand(&prk, b"shuttle key", &mut key);
        expand(&prk, b"shuttle iv", &mut iv);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
        for (path, pn) in [(3, 77), (15, 0x0102_0304_0506_0708), (u8::MAX, u64::MAX)] {
            let mut place = [0; 12];
            place[3] = path;
            place[4..].copy_from_slice(&pn.to_be_bytes());
            let nonce = core::array::from_fn(|at| iv[at] ^ place[at]);
            let mut expected = b"text".to_vec();
            let nonce = Nonce::assume_unique_for_key(nonce);
            key.seal_in_place_append_tag(nonce, Aad::from(&HEADER[..]), &mut expected).unwrap();
            let [mut here, _] = pair(protection::AES128GCM);
            let mut slab = [b"before", &HEADER[..], b"text"].concat();
            here.seal(path, pn, &mut slab, 6, HEADER.len());
            assert_eq!(slab[6 + HEADER.len()..], expected, "{path} and {pn}");
        }
    }
}
