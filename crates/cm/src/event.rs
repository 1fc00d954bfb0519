//! Events, numbered and signed as librdmacm's users expect them.

use crate::error::Failure;
use crate::param::{CmConvention, QpTerms};

/// Kind of event; the values of `enum rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EventKind {
    /// The destination has a route and the id a source address.
    AddrResolved = 0,
    /// The destination has no route.
    AddrError = 1,
    /// The route is known.
    RouteResolved = 2,
    /// The route could not be found.
    RouteError = 3,
    /// A peer wants to connect; the event is about a new id.
    ConnectRequest = 4,
    /// The peer accepted, and the application has to connect its queue pair and to confirm: not
    /// raised over iWARP.
    ConnectResponse = 5,
    /// The attempt failed for another reason.
    ConnectError = 6,
    /// The peer did not answer.
    Unreachable = 7,
    /// The peer or its host rejected the connection.
    Rejected = 8,
    /// The connection is established.
    Established = 9,
    /// The connection has ended.
    Disconnected = 10,
    /// The device was removed.
    DeviceRemoval = 11,
    /// Joined a multicast group: not raised over iWARP.
    MulticastJoin = 12,
    /// Not, or no longer, in the multicast group: not raised over iWARP.
    MulticastError = 13,
    /// The address moved to another device.
    AddrChange = 14,
    /// The queue pair may be used again: not raised over iWARP.
    TimewaitExit = 15,
    /// Name resolution succeeded.
    AddrinfoResolved = 16,
    /// Name resolution failed.
    AddrinfoError = 17,
    /// An event of the application itself.
    User = 18,
}

/// An event for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmEvent {
    /// Kind of event.
    pub kind: EventKind,
    /// 0, a negative errno, or in InfiniBand's manner the reason of a rejection; one of `EAI_*` in
    /// an [`EventKind::AddrinfoError`], the application's own in an [`EventKind::User`].
    pub status: i32,
    /// Inbound read depth: of the peer in a [`EventKind::ConnectRequest`] (its outbound one), own
    /// outbound depth in [`EventKind::Established`]. Never above the device's maximum, so that it
    /// can be handed to an accept as it is.
    pub responder_resources: u8,
    /// The counterpart of `responder_resources`: the peer's inbound depth in a request, the own
    /// inbound depth once established.
    pub initiator_depth: u8,
    /// Private data of the peer; at most 512 bytes (RFC 5044, section 7.1.1).
    pub private_data: Vec<u8>,
    /// The peer's queue pair properties.
    pub terms: QpTerms,
    /// Argument of the application in an [`EventKind::User`].
    pub arg: u64,
}

impl CmEvent {
    /// An event without further information.
    pub fn plain(kind: EventKind) -> CmEvent {
        CmEvent {
            kind,
            status: 0,
            responder_resources: 0,
            initiator_depth: 0,
            private_data: Vec::new(),
            terms: QpTerms::default(),
            arg: 0,
        }
    }

    /// An event with a failure's status.
    pub fn failed(kind: EventKind, failure: Failure) -> CmEvent {
        CmEvent { status: failure.status(), ..CmEvent::plain(kind) }
    }

    /// The event that reports the failure of a connection attempt.
    pub fn unconnected(manner: CmConvention, failure: Failure) -> CmEvent {
        let (kind, status) = failure.reported(manner);
        CmEvent { status, ..CmEvent::plain(kind) }
    }
}
