//! Datagrams of peers that have another key, or none where one is needed: each end is told.

use std::sync::Arc;

use weft_net::secrecy::PeerTransport;
use weft_net::udp::UdpPort;
use weft_rnic::shuttle::AddressPair;
use weft_rnic::wire::datagram::NOTICE_LEN;
use weft_rnic::{DroppedDatagram, UdPolicy};

use crate::host::Host;

/// What this host's secrecy says of datagrams in clear.
pub(super) struct HostPolicy {
    pub host: Arc<Host>,
    /// Datagrams to groups go where they may.
    pub groups_limited: bool,
}

impl UdPolicy for HostPolicy {
    fn admit(&self, ends: &AddressPair) -> bool {
        self.host.secrecy().admit(PeerTransport::Shuttle, ends.to, ends.from).is_ok()
    }

    fn permit(&self, ends: &AddressPair) -> bool {
        self.host.secrecy().permit(ends.from, ends.to).is_ok()
    }

    fn permit_groups(&self) -> bool {
        self.groups_limited && self.host.secrecy().permit_groups().is_ok()
    }
}

/// Says why a datagram was dropped: here, and to its sender if that is no stranger.
pub(super) fn answer_dropped(host: &Host, port: &UdpPort, dropped: &DroppedDatagram) {
    let (secrecy, route) = (host.secrecy(), &dropped.route);
    let (here, there) = (route.local.ip(), route.remote.ip());
    let why = match dropped.unopened {
        Some(unopened) => secrecy.why_unopened(unopened).inspect(|why| {
            secrecy.tell_of_stranger(*why, there);
        }),
        // That was told when it was not admitted.
        None => secrecy.decide(PeerTransport::Shuttle, here, there).err(),
    };
    let (Some(why), Some(head)) = (why, dropped.head) else { return };
    // Both addresses are one where this machine speaks to itself.
    if !dropped.names_qp && here != there && !secrecy.is_destination(there) {
        return;
    }
    if let Some(notice) = secrecy.notice(&head, why, there) {
        // What cannot leave is lost, as on the path.
        let _written = port.send_staged(route, &notice.to_bytes(), NOTICE_LEN);
    }
}
