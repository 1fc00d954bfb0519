//! What the devices do for their applications as this process is set up, and who does it.

use weft_rnic::mpa::{self, Agreed};
use weft_rnic::shuttle;
use weft_rnic::ud_capabilities;
pub use weft_rnic::wire::capability::{By, Capabilities, Component};
use weft_rnic::wire::shuttle::hello::protection;

use crate::DeviceKind;
use crate::host::Host;

/// What each device does between itself and another like it, most used first: connections of
/// `weft0`, its datagrams, connections of `weft_iw0`.
pub fn capabilities(host: &Host) -> [(DeviceKind, Capabilities); 3] {
    let settings = host.settings();
    let clear = if settings.crc { protection::CRC32C } else { protection::NONE };
    let chosen = host.secrecy().protection().unwrap_or(clear);
    let (markers, crc) = (settings.markers, settings.crc);
    let agreed = Agreed { crc, markers_in: markers, markers_out: markers, ..Agreed::default() };
    [
        (DeviceKind::Roce, shuttle::capabilities(chosen)),
        (DeviceKind::Roce, ud_capabilities(host.secrecy().protection())),
        (DeviceKind::Iwarp, mpa::capabilities(&agreed)),
    ]
}
