//! What `<infiniband/verbs.h>` and `<rdma/rdma_cma.h>` say of the structures that are used here.
//!
//! Invariant: sizes and offsets are the headers'; a test compares them with those that are
//! installed. What is not used is left as octets.
#![allow(non_camel_case_types, reason = "names are those of the C headers")]

use std::ffi::{c_char, c_int, c_uint, c_void};

pub const IBV_QPT_RC: c_int = 2;
pub const RDMA_PS_TCP: c_int = 0x0106;

pub const IBV_ACCESS_LOCAL_WRITE: c_int = 1;
pub const IBV_ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub const IBV_ACCESS_REMOTE_READ: c_int = 1 << 2;
pub const IBV_ACCESS_REMOTE_ATOMIC: c_int = 1 << 3;

pub const IBV_WR_RDMA_WRITE: c_int = 0;
pub const IBV_WR_SEND: c_int = 2;
pub const IBV_WR_RDMA_READ: c_int = 4;
pub const IBV_WR_ATOMIC_FETCH_AND_ADD: c_int = 6;

pub const IBV_SEND_SIGNALED: c_uint = 1 << 1;
pub const IBV_SEND_INLINE: c_uint = 1 << 3;

pub const RDMA_CM_EVENT_ADDR_RESOLVED: c_uint = 0;
pub const RDMA_CM_EVENT_ADDR_ERROR: c_uint = 1;
pub const RDMA_CM_EVENT_ROUTE_RESOLVED: c_uint = 2;
pub const RDMA_CM_EVENT_ROUTE_ERROR: c_uint = 3;
pub const RDMA_CM_EVENT_CONNECT_REQUEST: c_uint = 4;
pub const RDMA_CM_EVENT_CONNECT_ERROR: c_uint = 6;
pub const RDMA_CM_EVENT_UNREACHABLE: c_uint = 7;
pub const RDMA_CM_EVENT_REJECTED: c_uint = 8;
pub const RDMA_CM_EVENT_ESTABLISHED: c_uint = 9;
pub const RDMA_CM_EVENT_DISCONNECTED: c_uint = 10;
pub const RDMA_CM_EVENT_DEVICE_REMOVAL: c_uint = 11;

pub type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
pub type ReqNotifyCq = unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;
pub type PostSend =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
pub type PostRecv =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;

#[repr(C)]
pub struct ibv_device {
    _before: [u64; 3],
    pub name: [c_char; 64],
    _after: [u64; 72],
}

#[repr(C)]
pub struct ibv_context_ops {
    _before: [*mut c_void; 11],
    pub poll_cq: Option<PollCq>,
    pub req_notify_cq: Option<ReqNotifyCq>,
    _between: [*mut c_void; 12],
    pub post_send: Option<PostSend>,
    pub post_recv: Option<PostRecv>,
    _after: [*mut c_void; 5],
}

/// Longer than this; only pointers to it are held.
#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
}

#[repr(C)]
pub struct ibv_device_attr {
    _before: [u64; 14],
    _qp_and_caps: [c_int; 5],
    pub max_cqe: c_int,
    _objects: [c_int; 2],
    pub max_qp_rd_atom: c_int,
    _after: [c_int; 21],
}

/// Its fields are the library's own.
#[repr(C)]
pub struct ibv_pd {
    _opaque: [u8; 0],
}

/// Its fields are the library's own.
#[repr(C)]
pub struct ibv_cq {
    _opaque: [u8; 0],
}

/// Its fields are the library's own.
#[repr(C)]
pub struct ibv_qp {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
}

#[repr(C)]
pub struct ibv_mr {
    _before: [u64; 4],
    _handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut c_void,
    pub cap: ibv_qp_cap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// The union of targets, as far as it is used: a place, and the operands of an atomic.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct target {
    pub remote_addr: u64,
    /// The key of a Write or Read, the addend of an atomic.
    pub rkey_or_add: u64,
    pub swap: u64,
    pub atomic_rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: c_uint,
    pub imm_data: u32,
    pub wr: target,
    pub _after: [u64; 7],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    _after: [u32; 6],
}

#[repr(C)]
pub struct rdma_event_channel {
    pub fd: c_int,
}

#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut rdma_event_channel,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
    _after: [u64; 48],
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
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: c_uint,
    pub status: c_int,
    pub conn: rdma_conn_param,
    _after: [u64; 4],
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};
    use std::process::Command;

    use super::*;

    macro_rules! figures {
        ($($c:literal $rust:ty { $($name:literal = $field:ident),* })*) => {
            vec![$($((format!("offsetof(struct {}, {})", $c, $name),
                offset_of!($rust, $field)),)*)*]
        };
    }

    fn figures() -> Vec<(String, usize)> {
        let mut all = figures! {
            "ibv_device" ibv_device { "name" = name }
            "ibv_context" ibv_context { "device" = device, "ops" = ops }
            "ibv_context_ops" ibv_context_ops {
                "poll_cq" = poll_cq, "req_notify_cq" = req_notify_cq, "post_send" = post_send,
                "post_recv" = post_recv
            }
            "ibv_device_attr" ibv_device_attr {
                "max_cqe" = max_cqe, "max_qp_rd_atom" = max_qp_rd_atom
            }
            "ibv_comp_channel" ibv_comp_channel { "fd" = fd }
            "ibv_mr" ibv_mr { "lkey" = lkey, "rkey" = rkey }
            "ibv_qp_init_attr" ibv_qp_init_attr {
                "send_cq" = send_cq, "recv_cq" = recv_cq, "cap" = cap, "qp_type" = qp_type,
                "sq_sig_all" = sq_sig_all
            }
            "ibv_sge" ibv_sge { "length" = length, "lkey" = lkey }
            "ibv_send_wr" ibv_send_wr {
                "next" = next, "sg_list" = sg_list, "num_sge" = num_sge, "opcode" = opcode,
                "send_flags" = send_flags, "wr" = wr
            }
            "ibv_recv_wr" ibv_recv_wr { "next" = next, "sg_list" = sg_list, "num_sge" = num_sge }
            "ibv_wc" ibv_wc { "status" = status, "opcode" = opcode, "byte_len" = byte_len }
            "rdma_cm_id" rdma_cm_id { "verbs" = verbs, "qp" = qp }
            "rdma_conn_param" rdma_conn_param {
                "private_data_len" = private_data_len, "rnr_retry_count" = rnr_retry_count,
                "qp_num" = qp_num
            }
            "rdma_cm_event" rdma_cm_event { "event" = event, "status" = status, "param" = conn }
        };
        let places = [
            ("wr.rdma.rkey", offset_of!(target, rkey_or_add)),
            ("wr.atomic.compare_add", offset_of!(target, rkey_or_add)),
            ("wr.atomic.rkey", offset_of!(target, atomic_rkey)),
        ];
        all.extend(places.map(|(name, at)| {
            (format!("offsetof(struct ibv_send_wr, {name})"), offset_of!(ibv_send_wr, wr) + at)
        }));
        let sizes = [
            ("ibv_send_wr", size_of::<ibv_send_wr>()),
            ("ibv_recv_wr", size_of::<ibv_recv_wr>()),
            ("ibv_wc", size_of::<ibv_wc>()),
            ("ibv_qp_init_attr", size_of::<ibv_qp_init_attr>()),
            ("ibv_device_attr", size_of::<ibv_device_attr>()),
            ("rdma_conn_param", size_of::<rdma_conn_param>()),
        ];
        all.extend(sizes.map(|(name, size)| (format!("sizeof(struct {name})"), size)));
        all
    }

    fn values() -> Vec<(String, usize)> {
        let all = [
            ("IBV_QPT_RC", IBV_QPT_RC as usize),
            ("RDMA_PS_TCP", RDMA_PS_TCP as usize),
            ("IBV_ACCESS_REMOTE_ATOMIC", IBV_ACCESS_REMOTE_ATOMIC as usize),
            ("IBV_WR_RDMA_WRITE", IBV_WR_RDMA_WRITE as usize),
            ("IBV_WR_SEND", IBV_WR_SEND as usize),
            ("IBV_WR_RDMA_READ", IBV_WR_RDMA_READ as usize),
            ("IBV_WR_ATOMIC_FETCH_AND_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD as usize),
            ("IBV_SEND_SIGNALED", IBV_SEND_SIGNALED as usize),
            ("IBV_SEND_INLINE", IBV_SEND_INLINE as usize),
            ("RDMA_CM_EVENT_CONNECT_REQUEST", RDMA_CM_EVENT_CONNECT_REQUEST as usize),
            ("RDMA_CM_EVENT_ESTABLISHED", RDMA_CM_EVENT_ESTABLISHED as usize),
            ("RDMA_CM_EVENT_DEVICE_REMOVAL", RDMA_CM_EVENT_DEVICE_REMOVAL as usize),
        ];
        all.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// The headers are a prerequisite of the tests.
    #[test]
    fn layouts_and_values_are_those_of_the_installed_headers() {
        let dir = std::env::temp_dir().join(format!("weft-perf-layout-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (source, program) = (dir.join("layout.c"), dir.join("layout"));
        let all: Vec<_> = figures().into_iter().chain(values()).collect();
        let lines: Vec<String> =
            all.iter().map(|(what, _)| format!("printf(\"%zu\\n\", (size_t)({what}));")).collect();
        let code = format!(
            "#include <stdio.h>\n#include <stddef.h>\n#include <rdma/rdma_cma.h>\n\
             int main(void) {{ {} return 0; }}\n",
            lines.join("\n")
        );
        std::fs::write(&source, code).unwrap();
        let built = Command::new("cc").arg("-o").arg(&program).arg(&source).status().unwrap();
        assert!(built.success());
        let out = Command::new(&program).output().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let theirs: Vec<usize> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(theirs.len(), all.len());
        for ((what, ours), theirs) in all.into_iter().zip(theirs) {
            assert_eq!(ours, theirs, "{what}");
        }
    }
}
