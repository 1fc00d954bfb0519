//! What is said of requests, events and devices, whatever makes the devices.

/// Messages up to this size are copied when they are posted, where the device does that, in bytes.
pub const INLINE: u32 = 64;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Send.
    Send,
    /// RDMA Write.
    Write,
    /// RDMA Read.
    Read,
    /// Fetch and add of one, on eight bytes.
    FetchAdd,
}

/// Memory of the peer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address of the first byte.
    pub address: u64,
    /// Remote key.
    pub key: u32,
}

/// How many requests may be outstanding.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Send queue.
    pub sends: u32,
    /// Receive queue.
    pub receives: u32,
}

/// How many Reads and Atomics a connection may have under way.
#[derive(Clone, Copy, Debug)]
pub struct ReadDepth {
    /// From and to this end.
    pub depth: u8,
}

/// Limits of a device.
#[derive(Clone, Copy, Debug)]
pub struct PerfLimits {
    /// Completion queue entries (`max_cqe`).
    pub completions: u32,
    /// Reads and Atomics under way.
    pub reads: u8,
}

/// A request that is complete, without an error.
#[derive(Clone, Copy, Debug)]
pub struct SuccessfulCompletion {
    /// The number that it was posted with.
    pub number: u64,
}

/// Event of an id of rdma-cm.
#[derive(Debug)]
pub enum Happened<Id> {
    /// Address resolved: the device is known.
    AddressResolved,
    /// Route resolved: the id can be connected.
    RouteResolved,
    /// Connect request: the new id, and the peer's private data.
    Request(Id, Vec<u8>),
    /// Established, with the peer's private data.
    Established(Vec<u8>),
    /// Disconnected.
    Disconnected,
    /// Not connected, and why.
    Failed(String),
    /// Nothing that matters here.
    Other,
}
