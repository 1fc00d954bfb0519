//! Capabilities of MPA over TCP: which layer provides which service to DDP.

use weft_wire::capability::{By, Capabilities, Component, crc32c};

use crate::negotiate::Agreed;

/// Capabilities below DDP under `agreed`.
pub fn capabilities(agreed: &Agreed) -> Capabilities {
    let markers = match (agreed.markers_out, agreed.markers_in) {
        (false, false) => By::Nobody,
        (true, false) => By::Layer("in what is sent, between pieces of memory: no copy"),
        (false, true) => By::Layer("in what is received"),
        (true, true) => By::Layer("both ways, sent between pieces of memory: no copy"),
    };
    Capabilities::of_layer("MPA over TCP")
        .with(Component::Crc, if agreed.crc { crc32c() } else { By::Nobody })
        .with(Component::Demultiplexing, By::Kernel("a TCP socket for each connection"))
        .with(Component::Markers, markers)
        .with(Component::Segmentation, By::Layer("frames that fill TCP's segments"))
        .with(Component::Buffering, By::Kernel("TCP's buffer for sending"))
        .with(Component::FlowControl, By::Kernel("TCP's window; messages wait for a receive"))
        .with(Component::Ordering, By::Kernel("TCP delivers in order"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_is_said_to_be_off() {
        let plain = capabilities(&Agreed::default());
        for component in [Component::Crc, Component::Markers, Component::Encryption] {
            assert_eq!(plain.by(component), By::Nobody);
        }
        assert_eq!(plain.by(Component::Ordering).who(), "kernel");
    }

    #[test]
    fn markers_are_said_for_each_direction() {
        let of = |markers_out, markers_in| {
            let agreed = Agreed { crc: true, markers_out, markers_in, ..Agreed::default() };
            let found = capabilities(&agreed);
            assert!(found.by(Component::Crc).is_done());
            found.by(Component::Markers).how()
        };
        let ways = [of(false, false), of(true, false), of(false, true), of(true, true)];
        assert_eq!(ways[0], "");
        assert!((1..4).all(|way| !ways[..way].contains(&ways[way])), "{ways:?}");
    }
}
