//! Capabilities of a Shuttle connection: which layer provides which service to DDP.

use weft_wire::capability::{By, Capabilities, Component, crc32c};
use weft_wire::shuttle::hello::protection;

/// Capabilities below DDP on a connection under `chosen`, one bit of [`protection`], or the best of
/// several.
pub fn capabilities(chosen: u8) -> Capabilities {
    let aes = chosen & protection::AES128GCM != 0;
    let cipher = match () {
        () if aes => By::Cpu("AES-128-GCM"),
        () if chosen & protection::CHACHA20POLY1305 != 0 => By::Layer("ChaCha20-Poly1305"),
        () => By::Nobody,
    };
    let check = match cipher {
        By::Nobody if chosen & protection::CRC32C != 0 => crc32c(),
        By::Nobody => By::Kernel("UDP's checksum"),
        _ => By::Layer("the tag of the cipher"),
    };
    Capabilities::of_layer("Shuttle over UDP")
        .with(Component::Crc, check)
        .with(Component::Demultiplexing, By::Layer("connections by number behind UDP's ports"))
        .with(Component::Segmentation, By::Layer("segments that fill datagrams; the kernel cuts"))
        .with(Component::Buffering, By::Layer("none: what was lost is read from memory again"))
        .with(Component::FlowControl, By::Layer("a window; messages wait for a receive"))
        .with(Component::Ordering, By::Layer("placed as they come, delivered in order"))
        .with(Component::Encryption, cipher)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_is_that_of_the_protection() {
        let of = |chosen| {
            let found = capabilities(chosen);
            (found.by(Component::Crc), found.by(Component::Encryption))
        };
        assert_eq!(of(protection::NONE), (By::Kernel("UDP's checksum"), By::Nobody));
        assert_eq!(of(protection::CRC32C), (crc32c(), By::Nobody));
        let both = of(protection::AES128GCM | protection::CHACHA20POLY1305);
        assert_eq!(both.1, By::Cpu("AES-128-GCM"));
        assert_eq!(of(protection::CHACHA20POLY1305).1, By::Layer("ChaCha20-Poly1305"));
        assert_eq!(both.0, By::Layer("the tag of the cipher"));
    }
}
