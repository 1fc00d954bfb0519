//! Private data over Shuttle: what both applications say to each other, in the sizes of
//! InfiniBand's connection manager, and the reasons of a refusal.

use weft_host::DeviceKind;
use weft_rnic::cm::{CmCommand, ConnParam, PRIVATE_DATA_MAX, QpTerms};
use weft_rnic::wire::shuttle::greeting::{self, Greeting, Purpose};

use crate::device::PortSpace;

/// Reasons of a refusal: the program says so; nobody serves that here.
pub(crate) const REFUSED: u16 = 28;
pub(crate) const NOT_HERE: u16 = 8;

/// Bytes of private data that InfiniBand delivers, filled up with zeroes, in a request, its
/// answer and a rejection; and in those of datagrams.
const REQUEST: usize = 56;
pub(crate) const REPLY: usize = 196;
pub(crate) const REJECT: usize = 148;
const DATAGRAM_REQUEST: usize = 180;
pub(crate) const DATAGRAM_REPLY: usize = 136;

/// Bytes of private data that fit into the message that `command`, one of connect, accept and
/// reject, sends from a device of this kind. Over Shuttle there is more room, which an application
/// of verbs would not find on another adapter.
pub fn private_data_max(kind: DeviceKind, space: PortSpace, command: CmCommand) -> usize {
    match (kind, space, command) {
        (DeviceKind::Iwarp, ..) => PRIVATE_DATA_MAX,
        (DeviceKind::Roce, _, CmCommand::Connect) => words_in_request(space),
        (DeviceKind::Roce, PortSpace::Tcp, CmCommand::Reject) => REJECT,
        (DeviceKind::Roce, PortSpace::Tcp, _) => REPLY,
        (DeviceKind::Roce, PortSpace::Udp, _) => DATAGRAM_REPLY,
    }
}

/// As much private data as InfiniBand delivers at least.
pub(crate) fn padded(words: &[u8], octets: usize) -> Vec<u8> {
    let mut words = words.to_vec();
    words.resize(words.len().max(octets), 0);
    words
}

/// Bytes of private data in a request of this port space.
pub(crate) fn words_in_request(space: PortSpace) -> usize {
    match space {
        PortSpace::Tcp => REQUEST,
        PortSpace::Udp => DATAGRAM_REQUEST,
    }
}

/// What a greeting says of the peer's queue pair.
pub(crate) fn terms(greeting: &Greeting<'_>) -> QpTerms {
    let greeting::CmTerms { flow_control, srq, retry_count, rnr_retry_count } = greeting.terms;
    let qkey = if greeting.purpose == Purpose::Datagrams { greeting.to } else { 0 };
    QpTerms { qp_num: greeting.from, qkey, flow_control, srq, retry_count, rnr_retry_count }
}

/// What is said to the peer.
pub(crate) fn words(purpose: Purpose, room_octets: u32, param: &ConnParam, to: u32) -> Vec<u8> {
    let QpTerms { qp_num, flow_control, srq, retry_count, rnr_retry_count, .. } = param.terms;
    Greeting {
        purpose,
        terms: greeting::CmTerms { flow_control, srq, retry_count, rnr_retry_count },
        room_octets,
        from: qp_num,
        to,
        private_data: &param.private_data,
    }
    .encode()
}
