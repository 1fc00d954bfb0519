//! Posted send requests and their progress.

use weft_wire::ids::QN_SEND;

use crate::mr::inline_bytes;
use crate::sge::{Sge, SgeList};
use crate::wc::WcOpcode;
use crate::wr::{SendFlags, SendOp, SendWr};

/// A posted send request and its progress.
#[derive(Clone, Debug)]
pub struct SendWqe {
    /// Id chosen by the caller.
    pub wr_id: u64,
    /// Operation.
    pub op: SendOp,
    /// Flags of the request.
    pub flags: SendFlags,
    /// Payload bytes, or the size of the result.
    pub len: u32,
    /// Message sequence number.
    pub msn: u32,
    /// Untagged queue of the peer, for a message that takes a receive.
    pub queue: u32,
    sges: SgeList,
    inline: Vec<u8>,
    /// Segments sent and not acknowledged.
    pub(super) unacked: u32,
    /// The last segment is out.
    pub(super) sent: bool,
    /// A response is awaited.
    pub(super) awaiting: bool,
    pub(super) signaled: bool,
}

impl SendWqe {
    /// An unused slot.
    pub(super) fn vacant() -> Self {
        Self {
            wr_id: 0,
            op: SendOp::Send,
            flags: SendFlags::default(),
            len: 0,
            msn: 0,
            queue: QN_SEND,
            sges: SgeList::default(),
            inline: Vec::new(),
            unacked: 0,
            sent: false,
            awaiting: false,
            signaled: false,
        }
    }

    /// Takes `wr`, whose payload or result has `len` bytes; inline data is copied.
    pub(super) fn set(&mut self, wr: &SendWr<'_>, len: u32, signal_all: bool) {
        self.wr_id = wr.wr_id;
        self.op = wr.op;
        self.flags = wr.flags;
        self.len = len;
        self.queue = QN_SEND;
        self.inline.clear();
        if wr.flags.contains(SendFlags::INLINE) {
            inline_bytes(wr.sges, &mut self.inline);
        } else {
            self.sges.set(wr.sges);
        }
        self.unacked = 0;
        self.sent = false;
        self.awaiting = wr.op.awaits_response();
        self.signaled = signal_all || wr.flags.contains(SendFlags::SIGNALED);
    }

    /// Local memory of the payload or result.
    pub fn sges(&self) -> &[Sge] {
        self.sges.as_slice()
    }

    /// Inline payload, copied when posted.
    pub fn inline(&self) -> Option<&[u8]> {
        self.flags.contains(SendFlags::INLINE).then_some(&self.inline)
    }

    /// Whether it was started and the peer does not have all of it.
    pub fn is_out(&self) -> bool {
        !self.sent || self.unacked > 0
    }

    /// Whether a completion reports that it succeeded.
    pub fn is_signaled(&self) -> bool {
        self.signaled
    }

    /// Whether it is complete.
    pub(super) fn is_done(&self) -> bool {
        !self.is_out() && !self.awaiting
    }

    /// Opcode of its completion.
    pub(super) fn wc_opcode(&self) -> WcOpcode {
        match self.op {
            SendOp::Send | SendOp::SendInv { .. } | SendOp::SendImm { .. } => WcOpcode::Send,
            SendOp::Write { .. } | SendOp::WriteImm { .. } => WcOpcode::RdmaWrite,
            SendOp::AtomicWrite { .. } => WcOpcode::AtomicWrite,
            SendOp::Read { .. } => WcOpcode::RdmaRead,
            SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
            SendOp::CmpSwap { .. } => WcOpcode::CompSwap,
            SendOp::LocalInv { .. } => WcOpcode::LocalInv,
            SendOp::BindMw(_) => WcOpcode::BindMw,
        }
    }
}
