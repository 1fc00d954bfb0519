//! A posted send: what is to be done, and how far that has come.

use weft_wire::ids::QN_SEND;

use crate::mr::inline_bytes;
use crate::sge::{Sge, SgeList};
use crate::wc::WcOpcode;
use crate::wr::{SendFlags, SendOp, SendWr};

/// A posted send and how far it has come.
#[derive(Clone, Debug)]
pub struct SendWqe {
    /// The caller's name for it.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// How to do it.
    pub flags: SendFlags,
    /// Payload bytes, or the size of the result.
    pub len: u32,
    /// The sequence number that the protocol gave the message.
    pub msn: u32,
    /// The untagged queue of the peer that a message for one of its receives goes to.
    pub queue: u32,
    sges: SgeList,
    inline: Vec<u8>,
    /// Segments that are out and not acknowledged.
    pub(super) unacked: u32,
    /// The last segment is out.
    pub(super) sent: bool,
    /// A response is awaited.
    pub(super) awaiting: bool,
    pub(super) signaled: bool,
}

impl SendWqe {
    /// Room for one.
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

    /// Becomes `wr`, whose payload or result has `len` bytes; what is inline is copied.
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

    /// Local memory.
    pub fn sges(&self) -> &[Sge] {
        self.sges.as_slice()
    }

    /// The payload that was copied when posting, if it was.
    pub fn inline(&self) -> Option<&[u8]> {
        self.flags.contains(SendFlags::INLINE).then_some(&self.inline)
    }

    /// Whether a part of it is not with the peer.
    pub fn is_out(&self) -> bool {
        !self.sent || self.unacked > 0
    }

    /// Whether nothing of it is left to do.
    pub(super) fn is_done(&self) -> bool {
        !self.is_out() && !self.awaiting
    }

    /// What its completion says that it was.
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
