//! Work requests.

use crate::mr::Bind;
use crate::qp::{AddressVector, QpType};

/// A scatter/gather entry, laid out as `ibv_sge`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// First octet, an address of this process or an offset from the region's own start address.
    pub addr: u64,
    /// Length in octets.
    pub length: u32,
    /// Local key of the region.
    pub lkey: u32,
}

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

/// What a send work request does. `to` is the peer's address, `stag` the peer's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Send to a posted receive.
    Send,
    /// Send, and invalidate a key of the peer.
    SendInv {
        /// The key to invalidate.
        stag: u32,
    },
    /// Send with four octets of immediate data.
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
    /// Write eight octets that the peer sees all at once.
    AtomicWrite {
        /// Peer address, a multiple of eight.
        to: u64,
        /// Peer key.
        stag: u32,
    },
    /// Write, then complete a receive of the peer with four octets of immediate data.
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
    /// Whether it waits for a response and so counts against ORD.
    pub fn awaits_response(&self) -> bool {
        self.is_read() || self.is_atomic()
    }

    /// Whether queue pairs of this type do it.
    pub fn is_offered_by(&self, kind: QpType) -> bool {
        match (kind, self) {
            (QpType::Rc | QpType::XrcSend, _) => true,
            (QpType::Uc | QpType::Ud, Self::Send | Self::SendImm { .. }) => true,
            (QpType::Uc, Self::Write { .. } | Self::WriteImm { .. }) => true,
            (QpType::Uc, _) => self.is_local(),
            (QpType::Ud | QpType::XrcRecv, _) => false,
        }
    }

    /// Whether the peer must have a receive for it.
    pub fn takes_receive(&self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendInv { .. } | Self::SendImm { .. } | Self::WriteImm { .. }
        )
    }

    /// Whether the queue pair does it by itself: nothing goes to the peer.
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
    /// The caller's name for it.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// How to do it.
    pub flags: SendFlags,
    /// Local memory: the payload, or where a result goes.
    pub sges: &'a [Sge],
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// How the peer is reached.
    pub path: AddressVector,
    /// The peer's queue pair, 24 bits.
    pub qpn: u32,
    /// The key that the peer must have; with the highest bit, that of the queue pair that sends.
    pub qkey: u32,
}

/// A receive work request as posted.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// The caller's name for it.
    pub wr_id: u64,
    /// Where received data goes.
    pub sges: &'a [Sge],
}

/// A list of scatter/gather entries; short lists live in place.
#[derive(Clone, Debug, Default)]
pub struct SgeList {
    len: u8,
    short: [Sge; 4],
    long: Vec<Sge>,
}

impl SgeList {
    /// Replaces the content by `sges`, at most 255 of them.
    pub fn set(&mut self, sges: &[Sge]) {
        self.len = sges.len() as u8;
        if sges.len() <= self.short.len() {
            self.short[..sges.len()].copy_from_slice(sges);
        } else {
            self.long.clear();
            self.long.extend_from_slice(sges);
        }
    }

    /// The entries.
    pub fn as_slice(&self) -> &[Sge] {
        let len = usize::from(self.len);
        if len <= self.short.len() { &self.short[..len] } else { &self.long }
    }
}

/// The parts of `sges` that hold octets `offset..offset + len` of the whole, in order.
pub fn parts(sges: &[Sge], offset: u64, len: u64) -> impl Iterator<Item = Sge> {
    let (mut next, end) = (0, offset.saturating_add(len));
    let within = sges.iter().map_while(move |sge| {
        let start = next;
        next += u64::from(sge.length);
        let (from, to) = (offset.max(start), end.min(next));
        let length = to.saturating_sub(from) as u32;
        let addr = sge.addr.wrapping_add(from - start);
        (start < end).then_some(Sge { addr, length, lkey: sge.lkey })
    });
    within.filter(|part| part.length > 0)
}

/// The octets that a list of entries names.
pub fn total_len(sges: &[Sge]) -> u64 {
    sges.iter().map(|s| u64::from(s.length)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_any_length_come_back() {
        let mut list = SgeList::default();
        for n in [0usize, 1, 4, 5, 32, 2] {
            let sges: Vec<Sge> =
                (0..n as u64).map(|i| Sge { addr: i, length: i as u32, lkey: 7 }).collect();
            list.set(&sges);
            assert_eq!(list.as_slice(), sges);
        }
    }
}
