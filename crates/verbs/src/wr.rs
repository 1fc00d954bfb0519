//! Work requests as posted to send and receive queues.

use crate::mr::Bind;
use crate::qp::attr::{AddressVector, QpType};
use crate::sge::Sge;

bitflags::bitflags! {
    /// The values of `IBV_SEND_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u32 {
        /// Wait for earlier Reads and Atomics.
        const FENCE = 1;
        /// Produce a completion on success.
        const SIGNALED = 1 << 1;
        /// Raise a solicited event at the peer.
        const SOLICITED = 1 << 2;
        /// Copy the payload when posting.
        const INLINE = 1 << 3;
    }
}

/// Operation of a send work request. `to` is the peer's address, `stag` the peer's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Send to a posted receive.
    Send,
    /// Send, and invalidate a key of the peer.
    SendInv {
        /// The key to invalidate.
        stag: u32,
    },
    /// Send with four bytes of immediate data.
    SendImm {
        /// The immediate data as it stands in memory, big-endian by convention.
        imm: u32,
    },
    /// Write the peer's memory.
    Write {
        /// Peer address.
        to: u64,
        /// Peer key.
        stag: u32,
    },
    /// Write eight bytes atomically.
    AtomicWrite {
        /// Peer address, a multiple of eight.
        to: u64,
        /// Peer key.
        stag: u32,
    },
    /// Write, then complete a receive of the peer with four bytes of immediate data.
    WriteImm {
        /// Peer address.
        to: u64,
        /// Peer key.
        stag: u32,
        /// The immediate data as it stands in memory, big-endian by convention.
        imm: u32,
    },
    /// Read the peer's memory.
    Read {
        /// Peer address.
        to: u64,
        /// Peer key.
        stag: u32,
    },
    /// Add to 64 bits of the peer's memory.
    FetchAdd {
        /// Peer address.
        to: u64,
        /// Peer key.
        stag: u32,
        /// The summand.
        add: u64,
    },
    /// Exchange 64 bits of the peer's memory if they equal `compare`.
    CmpSwap {
        /// Peer address.
        to: u64,
        /// Peer key.
        stag: u32,
        /// The value expected.
        compare: u64,
        /// The value to store.
        swap: u64,
    },
    /// Invalidate a key of this side.
    LocalInv {
        /// The key to invalidate.
        stag: u32,
    },
    /// Bind a memory window of this side.
    BindMw(Bind),
}

impl SendOp {
    /// Whether it awaits a response, and counts against ORD.
    pub fn awaits_response(&self) -> bool {
        self.is_read() || self.is_atomic()
    }

    /// Whether queue pairs of type `kind` support it.
    pub fn is_offered_by(&self, kind: QpType) -> bool {
        match (kind, self) {
            (QpType::Rc | QpType::XrcSend, _) => true,
            (QpType::Uc | QpType::Ud, Self::Send | Self::SendImm { .. }) => true,
            (QpType::Uc, Self::Write { .. } | Self::WriteImm { .. }) => true,
            (QpType::Uc, _) => self.is_local(),
            (QpType::Ud | QpType::XrcRecv, _) => false,
        }
    }

    /// Whether it consumes a receive of the peer.
    pub fn takes_receive(&self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendInv { .. } | Self::SendImm { .. } | Self::WriteImm { .. }
        )
    }

    /// Whether it is local: nothing goes to the peer.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::LocalInv { .. } | Self::BindMw(_))
    }

    /// Whether it writes the peer's memory.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::WriteImm { .. } | Self::AtomicWrite { .. })
    }

    /// Whether it is an RDMA Read.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. })
    }

    /// Whether it is an atomic operation.
    pub fn is_atomic(&self) -> bool {
        matches!(self, Self::FetchAdd { .. } | Self::CmpSwap { .. })
    }
}

/// A send work request as posted.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Id chosen by the caller.
    pub wr_id: u64,
    /// Operation.
    pub op: SendOp,
    /// Flags of the request.
    pub flags: SendFlags,
    /// Local memory of the payload, or of the result.
    pub sges: &'a [Sge],
}

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// Address of the peer.
    pub path: AddressVector,
    /// The peer's queue pair, 24 bits.
    pub qpn: u32,
    /// Q_Key expected by the peer; with the highest bit set, that of the sending queue pair.
    pub qkey: u32,
}

/// A receive work request as posted.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Id chosen by the caller.
    pub wr_id: u64,
    /// Local memory for the received data.
    pub sges: &'a [Sge],
}
