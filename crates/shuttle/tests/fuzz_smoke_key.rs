//! The fuzz targets of keys and of sealed datagrams, over mutated good ones.

#[path = "../../../fuzz/src/key.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

use weft_shuttle::{Key, Sealer};
use weft_wire::datagram::Cipher;

#[test]
fn key_files() {
    let text = Key::new(bodies::KEY).to_text();
    let seeds = [text.clone(), format!("# a comment\n\n{text}\n")].map(String::into_bytes);
    mutate::smoke("key_file", &seeds, 20_000, bodies::key_file);
}

/// Datagrams of two senders, each after its length.
fn sealed(cipher: Cipher) -> Vec<u8> {
    let mut senders = [1, 2].map(|salt| Sealer::new(&Key::new(bodies::KEY), cipher, 5, salt));
    let mut octets = Vec::new();
    for text in [&b"one"[..], b"", b"three"] {
        for sender in &mut senders {
            let mut slab = vec![0; Sealer::HEADER_LEN];
            slab.extend_from_slice(text);
            sender.seal(&mut slab, 0, &bodies::ends(), bodies::NOW_NS);
            octets.extend((slab.len() as u16).to_be_bytes());
            octets.extend(slab);
        }
    }
    octets
}

#[test]
fn sealed_datagrams() {
    let seeds = [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305].map(sealed);
    mutate::smoke("sealed_datagrams", &seeds, 3000, bodies::sealed_datagrams);
}
