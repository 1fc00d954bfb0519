//! Values of the enumerations of verbs.h, as plain integers: what a program passes is data to be
//! checked, and an out-of-range value must not be undefined behaviour.

use core::ffi::{c_int, c_uint};

pub const IBV_NODE_CA: c_int = 1;
pub const IBV_NODE_SWITCH: c_int = 2;
pub const IBV_NODE_ROUTER: c_int = 3;
pub const IBV_NODE_RNIC: c_int = 4;
pub const IBV_NODE_USNIC: c_int = 5;
pub const IBV_NODE_USNIC_UDP: c_int = 6;
pub const IBV_NODE_UNSPECIFIED: c_int = 7;

pub const IBV_TRANSPORT_IB: c_int = 0;
pub const IBV_TRANSPORT_IWARP: c_int = 1;

pub const IBV_DEVICE_UD_AV_PORT_ENFORCE: c_uint = 1 << 6;
pub const IBV_DEVICE_CURR_QP_STATE_MOD: c_uint = 1 << 7;
pub const IBV_DEVICE_SYS_IMAGE_GUID: c_uint = 1 << 11;
pub const IBV_DEVICE_RC_RNR_NAK_GEN: c_uint = 1 << 12;
pub const IBV_DEVICE_SRQ_RESIZE: c_uint = 1 << 13;
pub const IBV_DEVICE_MEM_WINDOW: c_uint = 1 << 17;
pub const IBV_DEVICE_XRC: c_uint = 1 << 20;
pub const IBV_DEVICE_MEM_MGT_EXTENSIONS: c_uint = 1 << 21;

pub const IBV_DEVICE_MEM_WINDOW_TYPE_2B: c_uint = 1 << 24;

/// In `device_cap_flags_ex` only.
pub const IBV_DEVICE_ATOMIC_WRITE: u64 = 1 << 40;

pub const IBV_FORK_UNNEEDED: c_int = 2;

pub const IBV_ATOMIC_HCA: c_int = 1;

pub const IBV_GID_TYPE_IB: u32 = 0;
pub const IBV_GID_TYPE_ROCE_V2: u32 = 2;
/// The same two as `ibv_query_gid_type` counts them.
pub const IBV_GID_TYPE_SYSFS_IB: c_int = 0;
pub const IBV_GID_TYPE_SYSFS_ROCE_V2: c_int = 1;

pub const IBV_MTU_256: c_int = 1;
pub const IBV_MTU_512: c_int = 2;
pub const IBV_MTU_1024: c_int = 3;
pub const IBV_MTU_2048: c_int = 4;
pub const IBV_MTU_4096: c_int = 5;

pub const IBV_PORT_DOWN: c_int = 1;
pub const IBV_PORT_ACTIVE: c_int = 4;
pub const IBV_PORT_CM_SUP: u32 = 1 << 16;
pub const IBV_PORT_DEVICE_MGMT_SUP: u32 = 1 << 19;
pub const IBV_PORT_IP_BASED_GIDS: u32 = 1 << 26;
/// `flags` of a port whose address vectors need GIDs.
pub const IBV_QPF_GRH_REQUIRED: u8 = 1;
pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;
/// `phys_state` of a port whose link is up.
pub const PHYS_LINK_UP: u8 = 5;
/// `phys_state` of a port without a link.
pub const PHYS_DISABLED: u8 = 3;

pub const IBV_ACCESS_LOCAL_WRITE: c_int = 1;
pub const IBV_ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub const IBV_ACCESS_REMOTE_READ: c_int = 1 << 2;
pub const IBV_ACCESS_REMOTE_ATOMIC: c_int = 1 << 3;
pub const IBV_ACCESS_OPTIONAL_RANGE: u32 = 0x3ff0_0000;
pub const IBV_ACCESS_HUGETLB: u32 = 1 << 7;
/// `IBV_ACCESS_FLUSH_GLOBAL` and `IBV_ACCESS_FLUSH_PERSISTENT`, from rdma-core 46 on.
pub const IBV_ACCESS_FLUSH: u32 = 1 << 8 | 1 << 9;

pub const IBV_ADVISE_MR_ADVICE_PREFETCH: c_int = 0;
pub const IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE: c_int = 1;
pub const IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT: c_int = 2;
pub const IBV_ADVISE_MR_FLAG_FLUSH: u32 = 1;

pub const IBV_ODP_SUPPORT: u64 = 1;
pub const IBV_ODP_SUPPORT_IMPLICIT: u64 = 1 << 1;
pub const IBV_ODP_SUPPORT_SEND: u32 = 1;
pub const IBV_ODP_SUPPORT_RECV: u32 = 1 << 1;
pub const IBV_ODP_SUPPORT_WRITE: u32 = 1 << 2;
pub const IBV_ODP_SUPPORT_READ: u32 = 1 << 3;
pub const IBV_ODP_SUPPORT_ATOMIC: u32 = 1 << 4;
pub const IBV_ODP_SUPPORT_SRQ_RECV: u32 = 1 << 5;
/// From rdma-core 59 on.
pub const IBV_ODP_SUPPORT_ATOMIC_WRITE: u32 = 1 << 7;

pub const IBV_DM_MASK_HANDLE: u32 = 1;

pub const IBV_REG_MR_MASK_IOVA: u64 = 1;
pub const IBV_REG_MR_MASK_ADDR: u64 = 1 << 1;
pub const IBV_REG_MR_MASK_FD: u64 = 1 << 2;
pub const IBV_REG_MR_MASK_FD_OFFSET: u64 = 1 << 3;
pub const IBV_REG_MR_MASK_DMAH: u64 = 1 << 4;
pub const IBV_REG_MR_MASK_BUF: u64 = 1 << 5;

pub const IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS: u32 = 1;
pub const IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT: u32 = 1 << 1;
pub const IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC: u32 = 1 << 2;

pub const IBV_REREG_MR_CHANGE_TRANSLATION: c_int = 1;
pub const IBV_REREG_MR_CHANGE_PD: c_int = 2;
pub const IBV_REREG_MR_CHANGE_ACCESS: c_int = 4;
pub const IBV_REREG_MR_ERR_INPUT: c_int = -1;
pub const IBV_REREG_MR_ERR_CMD: c_int = -4;

pub const IBV_QPT_RC: c_int = 2;

pub const IBV_QP_STATE: c_int = 1;
pub const IBV_QP_AV: c_int = 1 << 7;

pub const IBV_SRQ_MAX_WR: c_int = 1;
pub const IBV_SRQ_LIMIT: c_int = 2;
pub const IBV_SRQ_INIT_ATTR_TYPE: u32 = 1;
pub const IBV_SRQ_INIT_ATTR_PD: u32 = 2;
pub const IBV_SRQ_INIT_ATTR_XRCD: u32 = 4;
pub const IBV_SRQ_INIT_ATTR_CQ: u32 = 8;
pub const IBV_SRQT_BASIC: c_int = 0;
pub const IBV_SRQT_XRC: c_int = 1;

pub const IBV_XRCD_INIT_ATTR_FD: u32 = 1;
pub const IBV_XRCD_INIT_ATTR_OFLAGS: u32 = 2;

pub const IBV_QP_INIT_ATTR_PD: u32 = 1;
pub const IBV_QP_INIT_ATTR_XRCD: u32 = 1 << 1;
pub const IBV_QP_INIT_ATTR_CREATE_FLAGS: u32 = 1 << 2;
pub const IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;

pub const IBV_QP_EX_WITH_RDMA_WRITE: u64 = 1;
pub const IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
pub const IBV_QP_EX_WITH_SEND: u64 = 1 << 2;
pub const IBV_QP_EX_WITH_SEND_WITH_IMM: u64 = 1 << 3;
pub const IBV_QP_EX_WITH_RDMA_READ: u64 = 1 << 4;
pub const IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: u64 = 1 << 5;
pub const IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: u64 = 1 << 6;
pub const IBV_QP_EX_WITH_LOCAL_INV: u64 = 1 << 7;
pub const IBV_QP_EX_WITH_BIND_MW: u64 = 1 << 8;
pub const IBV_QP_EX_WITH_SEND_WITH_INV: u64 = 1 << 9;

pub const IBV_QP_EX_WITH_ATOMIC_WRITE: u64 = 1 << 12;

pub const IBV_SEND_SIGNALED: c_uint = 1 << 1;
pub const IBV_SEND_INLINE: c_uint = 1 << 3;

pub const IBV_WR_RDMA_WRITE: c_int = 0;
pub const IBV_WR_RDMA_WRITE_WITH_IMM: c_int = 1;
pub const IBV_WR_SEND: c_int = 2;
pub const IBV_WR_SEND_WITH_IMM: c_int = 3;
pub const IBV_WR_RDMA_READ: c_int = 4;
pub const IBV_WR_ATOMIC_CMP_AND_SWP: c_int = 5;
pub const IBV_WR_ATOMIC_FETCH_AND_ADD: c_int = 6;
pub const IBV_WR_LOCAL_INV: c_int = 7;
pub const IBV_WR_BIND_MW: c_int = 8;
pub const IBV_WR_SEND_WITH_INV: c_int = 9;

pub const IBV_WR_ATOMIC_WRITE: c_int = 15;

pub const IBV_WC_EX_WITH_BYTE_LEN: u64 = 1;
/// Every field a completion of this device carries: the header's "standard" flags.
pub const IBV_WC_STANDARD_FLAGS: u64 = 0x7f;
pub const IBV_WC_EX_WITH_COMPLETION_TIMESTAMP: u64 = 1 << 7;
pub const IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK: u64 = 1 << 11;

/// The raw clock in `comp_mask` of `ibv_values_ex`.
pub const IBV_VALUES_MASK_RAW_CLOCK: u32 = 1;

pub const IBV_CQ_INIT_ATTR_MASK_FLAGS: u32 = 1;
pub const IBV_CQ_INIT_ATTR_MASK_PD: u32 = 2;
pub const IBV_CREATE_CQ_ATTR_SINGLE_THREADED: u32 = 1;
pub const IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN: u32 = 2;

pub const IBV_EVENT_CQ_ERR: c_int = 0;
pub const IBV_EVENT_QP_FATAL: c_int = 1;
pub const IBV_EVENT_QP_REQ_ERR: c_int = 2;
pub const IBV_EVENT_QP_ACCESS_ERR: c_int = 3;
pub const IBV_EVENT_COMM_EST: c_int = 4;
pub const IBV_EVENT_SQ_DRAINED: c_int = 5;
pub const IBV_EVENT_PATH_MIG: c_int = 6;
pub const IBV_EVENT_PATH_MIG_ERR: c_int = 7;
pub const IBV_EVENT_SRQ_ERR: c_int = 14;
pub const IBV_EVENT_SRQ_LIMIT_REACHED: c_int = 15;
pub const IBV_EVENT_QP_LAST_WQE_REACHED: c_int = 16;
