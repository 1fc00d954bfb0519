//! What the devices do for their applications as this process is set up, and who does it.

use weft_rnic::mpa::{self, Agreed};
use weft_rnic::shuttle;
pub use weft_rnic::wire::capability::{By, Capabilities, Component};
use weft_rnic::wire::shuttle::hello::protection;
use weft_rnic::{lane_capabilities, ud_capabilities};

use crate::DeviceKind;
use crate::host::Host;

/// What each device does between itself and another like it, most used first: connections of
/// `weft0`, its datagrams, connections of `weft_iw0`; then of both to applications of this host,
/// where they may go by shared memory.
pub fn capabilities(host: &Host) -> Vec<(DeviceKind, Capabilities)> {
    let settings = host.settings();
    let clear = if settings.crc { protection::CRC32C } else { protection::NONE };
    let chosen = host.secrecy().protection().unwrap_or(clear);
    let (markers, crc) = (settings.markers, settings.crc);
    let agreed = Agreed { crc, markers_in: markers, markers_out: markers, ..Agreed::default() };
    let mut all = vec![
        (DeviceKind::Roce, shuttle::capabilities(chosen)),
        (DeviceKind::Roce, ud_capabilities(host.secrecy().protection())),
        (DeviceKind::Iwarp, mpa::capabilities(&agreed)),
    ];
    if host.permits_lanes() {
        let by_lane = |device| (device, lane_capabilities());
        all.extend([DeviceKind::Roce, DeviceKind::Iwarp].map(by_lane));
    }
    all
}
