//! The attributes of a queue pair.

use crate::access::Access;

/// The states of a queue pair; the values of `enum ibv_qp_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum QpState {
    /// Just made or reset.
    #[default]
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Closing: nothing new is sent.
    Sqd = 4,
    /// The send queue failed.
    Sqe = 5,
    /// Failed or closed; everything posted is flushed.
    Err = 6,
}

impl QpState {
    /// The state with this value in `enum ibv_qp_state`.
    pub fn from_raw(raw: u32) -> Option<Self> {
        [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqd, Self::Sqe, Self::Err]
            .into_iter()
            .find(|s| *s as u32 == raw)
    }
}

/// How large the queues of a queue pair are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCap {
    /// Send work requests.
    pub max_send_wr: u32,
    /// Receive work requests.
    pub max_recv_wr: u32,
    /// Gather entries of a send.
    pub max_send_sge: u32,
    /// Scatter entries of a receive.
    pub max_recv_sge: u32,
    /// Octets of inline data.
    pub max_inline_data: u32,
}

bitflags::bitflags! {
    /// Which attributes a modify sets; the values of `enum ibv_qp_attr_mask`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QpAttrMask: u32 {
        /// The state.
        const STATE = 1;
        /// The state that the caller believes it is in.
        const CUR_STATE = 1 << 1;
        /// What the peer may do.
        const ACCESS_FLAGS = 1 << 3;
        /// The port.
        const PORT = 1 << 5;
        /// Outbound Reads and Atomics.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// Inbound Reads and Atomics.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// Anything else has no meaning for iWARP.
        const _ = !0;
    }
}

/// The attributes that iWARP knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAttr {
    /// The state.
    pub state: QpState,
    /// The state that the caller believes it is in.
    pub cur_state: QpState,
    /// What the peer may do.
    pub access: Access,
    /// Port, from 1.
    pub port: u8,
    /// ORD.
    pub max_rd_atomic: u8,
    /// IRD.
    pub max_dest_rd_atomic: u8,
    /// Sizes.
    pub cap: QpCap,
}
