//! Work completions, laid out as `ibv_wc`.

/// Status of a work completion; the values of `enum ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum WcStatus {
    /// Success.
    Success = 0,
    /// The message does not fit the local buffers.
    LocLenErr = 1,
    /// Operation not supported by the queue pair.
    LocQpOpErr = 2,
    /// A local key, range or right is wrong.
    LocProtErr = 4,
    /// The queue pair failed before this request was done.
    WrFlushErr = 5,
    /// Binding a memory window failed.
    MwBindErr = 6,
    /// Unexpected response of the peer.
    BadRespErr = 7,
    /// A local access failed while the peer's data was placed.
    LocAccessErr = 8,
    /// The peer found the request invalid.
    RemInvReqErr = 9,
    /// The peer refused access.
    RemAccessErr = 10,
    /// The peer could not finish the request.
    RemOpErr = 11,
    /// Retries exceeded: no answer from the peer.
    RetryExcErr = 12,
    /// RNR retries exceeded: the peer had no receive posted.
    RnrRetryExcErr = 13,
    /// The connection was lost.
    FatalErr = 19,
}

/// Opcode of a work completion; the values of `enum ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum WcOpcode {
    /// A Send request.
    Send = 0,
    /// An RDMA Write.
    RdmaWrite = 1,
    /// An RDMA Read.
    RdmaRead = 2,
    /// A compare and swap.
    CompSwap = 3,
    /// A fetch and add.
    FetchAdd = 4,
    /// The binding of a memory window.
    BindMw = 5,
    /// A local invalidate.
    LocalInv = 6,
    /// An atomic write.
    AtomicWrite = 9,
    /// A receive.
    Recv = 128,
    /// A receive consumed by a Write with immediate data.
    RecvRdmaWithImm = 129,
}

bitflags::bitflags! {
    /// The values of `IBV_WC_*` flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WcFlags: u32 {
        /// A route header stands before the payload.
        const GRH = 1;
        /// `imm_data` holds immediate data.
        const WITH_IMM = 1 << 1;
        /// `imm_data` holds the key that the peer invalidated.
        const WITH_INV = 1 << 3;
    }
}

/// A work completion, byte for byte an `ibv_wc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Wc {
    /// Id given when the request was posted.
    pub wr_id: u64,
    /// A [`WcStatus`].
    pub status: u32,
    /// A [`WcOpcode`].
    pub opcode: u32,
    /// Vendor syndrome of an error: layer, type and code of a Terminate, or 0.
    pub vendor_err: u32,
    /// Bytes received or read.
    pub byte_len: u32,
    /// Immediate data as in memory, or the invalidated key.
    pub imm_data: u32,
    /// Number of the queue pair.
    pub qp_num: u32,
    /// The sender's queue pair, for datagrams.
    pub src_qp: u32,
    /// [`WcFlags`].
    pub wc_flags: u32,
    /// Partition key index.
    pub pkey_index: u16,
    /// Source LID.
    pub slid: u16,
    /// Service level.
    pub sl: u8,
    /// Destination LID path bits.
    pub dlid_path_bits: u8,
}

const _: () = assert!(size_of::<Wc>() == 48);

impl Wc {
    /// A completion of `wr_id` on `qp_num`.
    pub fn new(wr_id: u64, qp_num: u32, opcode: WcOpcode, status: WcStatus) -> Self {
        Self { wr_id, qp_num, opcode: opcode as u32, status: status as u32, ..Self::default() }
    }

    /// Whether it reports success.
    pub fn is_success(&self) -> bool {
        self.status == WcStatus::Success as u32
    }
}
