//! Limits of a device.

/// Upper limits of a device; queues below them are allocated as they fill.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests in a send or receive queue.
    pub max_qp_wr: u32,
    /// Scatter/gather entries of a work request.
    pub max_sge: u32,
    /// Scatter/gather entries of an RDMA Read.
    pub max_sge_rd: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Bytes of a memory region.
    pub max_mr_size: u64,
    /// Memory windows.
    pub max_mw: u32,
    /// Bytes of device memory.
    pub max_dm_octets: u64,
    /// Protection domains.
    pub max_pd: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Work requests in a shared receive queue.
    pub max_srq_wr: u32,
    /// Scatter/gather entries in a shared receive queue.
    pub max_srq_sge: u32,
    /// Inbound Reads and Atomics a queue pair serves at once (IRD).
    pub max_qp_rd_atom: u32,
    /// Outbound Reads and Atomics a queue pair keeps outstanding (ORD).
    pub max_qp_init_rd_atom: u32,
    /// Address handles.
    pub max_ah: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
    /// Bytes of a message, RFC 5041 section 5.2.
    pub max_msg_size: u32,
}

/// The limits of `weft_iw0`.
pub const IWARP: Limits = Limits {
    max_qp: 65_536,
    max_qp_wr: 32_768,
    max_sge: 32,
    max_sge_rd: 32,
    max_cq: 65_536,
    max_cqe: 4_194_304,
    max_mr: 1 << 24,
    max_mr_size: u64::MAX,
    max_mw: 1 << 20,
    max_dm_octets: 4 << 20,
    max_pd: 65_536,
    max_srq: 65_536,
    max_srq_wr: 32_768,
    max_srq_sge: 32,
    max_qp_rd_atom: 128,
    max_qp_init_rd_atom: 128,
    max_ah: 0,
    max_inline_data: 512,
    max_msg_size: 1 << 31,
};

/// The limits of `weft0`.
pub const ROCE: Limits = Limits { max_ah: 1 << 20, ..IWARP };
