//! What the devices do for their programs as this process is set up, and who does it.

use weft_rnic::mpa::{self, Agreed};
use weft_rnic::shuttle;
pub use weft_rnic::wire::capability::{By, Capabilities, Component};
use weft_rnic::wire::shuttle::hello::protection;

use crate::Personality;
use crate::host::Host;

/// What each device does between itself and another like it, most used first: connections of
/// `weft0`, its datagrams, connections of `weft_iw0`.
pub fn capabilities(host: &Host) -> [(Personality, Capabilities); 3] {
    let settings = host.settings();
    let clear = if settings.crc { protection::CRC32C } else { protection::NONE };
    let chosen = host.secrecy().protection().unwrap_or(clear);
    let (markers, crc) = (settings.markers, settings.crc);
    let agreed = Agreed { crc, markers_in: markers, markers_out: markers, ..Agreed::default() };
    [
        (Personality::Roce, shuttle::capabilities(chosen)),
        (Personality::Roce, datagrams(host)),
        (Personality::Iwarp, mpa::capabilities(&agreed)),
    ]
}

/// What is done for queue pairs of type UD.
pub(crate) fn datagrams(host: &Host) -> Capabilities {
    let sealed = host.secrecy().protection().map(shuttle::capabilities);
    let cipher = sealed.map_or(By::Nobody, |sealed| sealed.by(Component::Encryption));
    let check = sealed.map_or(By::Kernel("UDP's checksum"), |sealed| sealed.by(Component::Crc));
    Capabilities::of_layer("datagrams over UDP")
        .with(Component::Crc, check)
        .with(Component::Demultiplexing, By::Kernel("a UDP socket for each queue pair"))
        .with(Component::Segmentation, By::Kernel("IP cuts what the path does not carry"))
        .with(Component::Encryption, cipher)
}

/// What is done for a queue pair that is its own peer.
pub(crate) fn mirror() -> Capabilities {
    Capabilities::of_layer("the queue pair itself")
        .with(Component::Ordering, By::Layer("segments are placed as they are gathered"))
        .with(Component::FlowControl, By::Layer("messages wait for a receive"))
}
