//! The C structures of `<rdma/rdma_cma.h>`.
//!
//! Fields that both sides write are cells: a program and this library work on the same id, by
//! turns. Sizes and offsets are asserted, and compared with the installed header by a test.

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};

pub use crate::storage::Storage;
use crate::{
    ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_qp_init_attr,
    ibv_srq,
};

pub const RDMA_PS_IPOIB: c_int = 0x0002;
pub const RDMA_PS_TCP: c_int = 0x0106;
pub const RDMA_PS_UDP: c_int = 0x0111;

/// The key of queue pairs that the connection manager makes for datagrams.
pub const RDMA_UDP_QKEY: u32 = 0x0123_4567;

pub const RDMA_OPTION_ID: c_int = 0;
pub const RDMA_OPTION_IB: c_int = 1;
pub const RDMA_OPTION_ID_TOS: c_int = 0;
pub const RDMA_OPTION_ID_REUSEADDR: c_int = 1;
pub const RDMA_OPTION_ID_AFONLY: c_int = 2;
pub const RDMA_OPTION_ID_ACK_TIMEOUT: c_int = 3;

/// What `event` of [`rdma_cm_event`] may be.
pub const RDMA_CM_EVENT_ADDR_RESOLVED: u32 = 0;
pub const RDMA_CM_EVENT_ADDR_ERROR: u32 = 1;
pub const RDMA_CM_EVENT_ROUTE_RESOLVED: u32 = 2;
pub const RDMA_CM_EVENT_ROUTE_ERROR: u32 = 3;
pub const RDMA_CM_EVENT_CONNECT_REQUEST: u32 = 4;
pub const RDMA_CM_EVENT_CONNECT_ERROR: u32 = 6;
pub const RDMA_CM_EVENT_UNREACHABLE: u32 = 7;
pub const RDMA_CM_EVENT_REJECTED: u32 = 8;
pub const RDMA_CM_EVENT_ESTABLISHED: u32 = 9;
pub const RDMA_CM_EVENT_DISCONNECTED: u32 = 10;
pub const RDMA_CM_EVENT_DEVICE_REMOVAL: u32 = 11;

pub const RAI_PASSIVE: c_int = 1;
pub const RAI_NUMERICHOST: c_int = 2;
/// Node RDMACM_1.4, as is [`RAI_DNS`].
pub const RAI_SA: c_int = 0x10;
pub const RAI_DNS: c_int = 0x20;

pub const IBV_QPT_UD: c_int = 4;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_ib_addr {
    pub sgid: ibv_gid,
    pub dgid: ibv_gid,
    pub pkey: u16,
}

#[repr(C)]
pub struct rdma_addr {
    pub src: Cell<Storage>,
    pub dst: Cell<Storage>,
    pub ibaddr: Cell<rdma_ib_addr>,
}

#[repr(C)]
pub struct rdma_route {
    pub addr: rdma_addr,
    pub path_rec: Cell<*mut ibv_sa_path_rec>,
    pub num_paths: Cell<c_int>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_sa_path_rec {
    pub dgid: ibv_gid,
    pub sgid: ibv_gid,
    pub dlid: u16,
    pub slid: u16,
    pub raw_traffic: c_int,
    pub flow_label: u32,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reversible: c_int,
    pub numb_path: u8,
    pub pkey: u16,
    pub sl: u8,
    pub mtu_selector: u8,
    pub mtu: u8,
    pub rate_selector: u8,
    pub rate: u8,
    pub packet_life_time_selector: u8,
    pub packet_life_time: u8,
    pub preference: u8,
}

#[repr(C)]
pub struct rdma_event_channel {
    pub fd: c_int,
}

#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: Cell<*mut ibv_context>,
    pub channel: Cell<*mut rdma_event_channel>,
    pub context: Cell<*mut c_void>,
    pub qp: Cell<*mut ibv_qp>,
    pub route: rdma_route,
    pub ps: Cell<c_int>,
    pub port_num: Cell<u8>,
    pub event: Cell<*mut rdma_cm_event>,
    pub send_cq_channel: Cell<*mut ibv_comp_channel>,
    pub send_cq: Cell<*mut ibv_cq>,
    pub recv_cq_channel: Cell<*mut ibv_comp_channel>,
    pub recv_cq: Cell<*mut ibv_cq>,
    pub srq: Cell<*mut ibv_srq>,
    pub pd: Cell<*mut ibv_pd>,
    pub qp_type: Cell<c_int>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_conn_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_ud_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub ah_attr: ibv_ah_attr,
    pub qp_num: u32,
    pub qkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union rdma_event_param {
    pub conn: rdma_conn_param,
    pub ud: rdma_ud_param,
    /// With `RDMA_CM_EVENT_USER`: node RDMACM_1.4.
    pub arg: u64,
}

#[repr(C)]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: u32,
    pub status: c_int,
    pub param: rdma_event_param,
}

#[repr(C)]
pub struct rdma_cm_join_mc_attr_ex {
    pub comp_mask: u32,
    pub join_flags: u32,
    pub addr: *mut libc::sockaddr,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_addrinfo {
    pub ai_flags: c_int,
    pub ai_family: c_int,
    pub ai_qp_type: c_int,
    pub ai_port_space: c_int,
    pub ai_src_len: libc::socklen_t,
    pub ai_dst_len: libc::socklen_t,
    pub ai_src_addr: *mut libc::sockaddr,
    pub ai_dst_addr: *mut libc::sockaddr,
    pub ai_src_canonname: *mut c_char,
    pub ai_dst_canonname: *mut c_char,
    pub ai_route_len: usize,
    pub ai_route: *mut c_void,
    pub ai_connect_len: usize,
    pub ai_connect: *mut c_void,
    pub ai_next: *mut rdma_addrinfo,
}

/// What librdmacm keeps behind an id, as far as the rsocket code that lives in the same library
/// looks into it: it reads `sync` of ids that it got from here, and the first three pointers must
/// not mislead it.
#[repr(C)]
pub struct IdHead {
    pub id: rdma_cm_id,
    pub cma_dev: *mut c_void,
    pub connect: *mut c_void,
    pub connect_len: usize,
    pub events_completed: c_int,
    pub connect_error: c_int,
    pub sync: Cell<c_int>,
}

/// Attributes of the queue pairs that a listener made by `rdma_create_ep` gives to its requests.
pub type QpInitAttr = ibv_qp_init_attr;

/// A C expression (`sizeof` or `offsetof`) and the value it has.
#[cfg(test)]
type LayoutFact = (&'static str, usize);

macro_rules! layout {
    ($($c:literal as $rust:ty: $size:literal {
        $($c_field:literal = $($field:ident).+ : $offset:literal),* $(,)?
    })*) => {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        const _: () = {
            $(
                assert!(size_of::<$rust>() == $size, concat!("size of ", $c));
                $(assert!(
                    core::mem::offset_of!($rust, $($field).+) == $offset,
                    concat!("offset in ", $c, " of ", $c_field),
                );)*
            )*
        };

        #[cfg(test)]
        const LAYOUT: &[LayoutFact] = &[
            $(
                (concat!("sizeof(", $c, ")"), $size),
                $((concat!("offsetof(", $c, ", ", $c_field, ")"), $offset),)*
            )*
        ];
    };
}

layout! {
    "struct rdma_cm_id" as rdma_cm_id: 416 {
        "verbs" = verbs: 0, "channel" = channel: 8, "context" = context: 16, "qp" = qp: 24,
        "route" = route: 32, "ps" = ps: 344, "port_num" = port_num: 348, "event" = event: 352,
        "send_cq_channel" = send_cq_channel: 360, "send_cq" = send_cq: 368,
        "recv_cq_channel" = recv_cq_channel: 376, "recv_cq" = recv_cq: 384, "srq" = srq: 392,
        "pd" = pd: 400, "qp_type" = qp_type: 408,
    }
    "struct rdma_route" as rdma_route: 312 {
        "addr.src_addr" = addr.src: 0, "addr.dst_addr" = addr.dst: 128,
        "addr.addr.ibaddr" = addr.ibaddr: 256, "path_rec" = path_rec: 296,
        "num_paths" = num_paths: 304,
    }
    "struct ibv_sa_path_rec" as ibv_sa_path_rec: 64 {
        "dgid" = dgid: 0, "sgid" = sgid: 16, "dlid" = dlid: 32, "slid" = slid: 34,
        "raw_traffic" = raw_traffic: 36, "flow_label" = flow_label: 40,
        "hop_limit" = hop_limit: 44, "traffic_class" = traffic_class: 45,
        "reversible" = reversible: 48, "numb_path" = numb_path: 52, "pkey" = pkey: 54,
        "sl" = sl: 56, "mtu_selector" = mtu_selector: 57, "mtu" = mtu: 58,
        "rate_selector" = rate_selector: 59, "rate" = rate: 60,
        "packet_life_time_selector" = packet_life_time_selector: 61,
        "packet_life_time" = packet_life_time: 62, "preference" = preference: 63,
    }
    "struct rdma_ib_addr" as rdma_ib_addr: 40 {
        "sgid" = sgid: 0, "dgid" = dgid: 16, "pkey" = pkey: 32,
    }
    "struct rdma_event_channel" as rdma_event_channel: 4 { "fd" = fd: 0 }
    "struct rdma_conn_param" as rdma_conn_param: 24 {
        "private_data" = private_data: 0, "private_data_len" = private_data_len: 8,
        "responder_resources" = responder_resources: 9, "initiator_depth" = initiator_depth: 10,
        "flow_control" = flow_control: 11, "retry_count" = retry_count: 12,
        "rnr_retry_count" = rnr_retry_count: 13, "srq" = srq: 14, "qp_num" = qp_num: 16,
    }
    "struct rdma_ud_param" as rdma_ud_param: 56 {
        "private_data_len" = private_data_len: 8, "ah_attr" = ah_attr: 16, "qp_num" = qp_num: 48,
        "qkey" = qkey: 52,
    }
    "struct rdma_cm_event" as rdma_cm_event: 80 {
        "id" = id: 0, "listen_id" = listen_id: 8, "event" = event: 16, "status" = status: 20,
        "param" = param: 24,
    }
    "struct rdma_addrinfo" as rdma_addrinfo: 96 {
        "ai_flags" = ai_flags: 0, "ai_family" = ai_family: 4, "ai_qp_type" = ai_qp_type: 8,
        "ai_port_space" = ai_port_space: 12, "ai_src_len" = ai_src_len: 16,
        "ai_dst_len" = ai_dst_len: 20, "ai_src_addr" = ai_src_addr: 24,
        "ai_dst_addr" = ai_dst_addr: 32, "ai_src_canonname" = ai_src_canonname: 40,
        "ai_dst_canonname" = ai_dst_canonname: 48, "ai_route_len" = ai_route_len: 56,
        "ai_route" = ai_route: 64, "ai_connect_len" = ai_connect_len: 72,
        "ai_connect" = ai_connect: 80, "ai_next" = ai_next: 88,
    }
}

/// Not in any header: fixed by the rsocket code in the library that is installed.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const _: () = {
    assert!(core::mem::offset_of!(IdHead, cma_dev) == 416);
    assert!(core::mem::offset_of!(IdHead, connect_len) == 432);
    assert!(core::mem::offset_of!(IdHead, sync) == 448);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::tests::measure;

    /// The values of an enumeration or macro that this crate gives its own name.
    const VALUES: &[(&str, usize)] = &[
        ("RDMA_PS_IPOIB", RDMA_PS_IPOIB as usize),
        ("RDMA_PS_TCP", RDMA_PS_TCP as usize),
        ("RDMA_PS_UDP", RDMA_PS_UDP as usize),
        ("RDMA_UDP_QKEY", RDMA_UDP_QKEY as usize),
        ("RDMA_OPTION_ID", RDMA_OPTION_ID as usize),
        ("RDMA_OPTION_IB", RDMA_OPTION_IB as usize),
        ("RDMA_OPTION_ID_TOS", RDMA_OPTION_ID_TOS as usize),
        ("RDMA_OPTION_ID_REUSEADDR", RDMA_OPTION_ID_REUSEADDR as usize),
        ("RDMA_OPTION_ID_AFONLY", RDMA_OPTION_ID_AFONLY as usize),
        ("RDMA_OPTION_ID_ACK_TIMEOUT", RDMA_OPTION_ID_ACK_TIMEOUT as usize),
        ("RAI_PASSIVE", RAI_PASSIVE as usize),
        ("RAI_NUMERICHOST", RAI_NUMERICHOST as usize),
        ("IBV_QPT_UD", IBV_QPT_UD as usize),
        ("RDMA_CM_EVENT_CONNECT_REQUEST", RDMA_CM_EVENT_CONNECT_REQUEST as usize),
        ("RDMA_CM_EVENT_ESTABLISHED", RDMA_CM_EVENT_ESTABLISHED as usize),
        ("RDMA_CM_EVENT_DEVICE_REMOVAL", RDMA_CM_EVENT_DEVICE_REMOVAL as usize),
        ("RDMA_CM_EVENT_TIMEWAIT_EXIT", 15),
    ];

    #[test]
    fn layouts_and_values_are_those_of_the_installed_header() {
        let figures: Vec<_> = LAYOUT.iter().chain(VALUES).collect();
        let measured = measure("cma", "rdma/rdma_cma.h", figures.iter().map(|(what, _)| *what));
        assert_eq!(measured.len(), figures.len());
        for ((expression, ours), theirs) in figures.into_iter().zip(measured) {
            assert_eq!(*ours, theirs, "{expression}");
        }
    }
}
