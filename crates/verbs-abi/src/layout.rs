//! Sizes and offsets of the C structures on x86-64 and aarch64, asserted at compile time for the
//! GNU C library: musl, with which only the program without devices is made, has other mutexes.
//!
//! Where the two differ it is `x86-64 | aarch64`: a mutex of the C library has 40 bytes on the
//! former and 48 on the latter, and what follows one moves.
//! [`LAYOUT`] lists the same figures under their C names; the test below prints them with the C
//! compiler from the installed header and compares.

use core::mem::{offset_of, size_of};

use super::*;

/// A C expression (`sizeof` or `offsetof`) and the value it has on this architecture.
pub type LayoutFigure = (&'static str, usize);

macro_rules! layout {
    ($($c:literal as $rust:ty: $size:literal $(| $size_arm:literal)? {
        $($field:ident $(. $sub:ident)* $(= $alias:literal)?
            : $offset:literal $(| $offset_arm:literal)?),* $(,)?
    })*) => {
        #[cfg(all(target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
        const _: () = {
            $(
                assert!(
                    size_of::<$rust>() == layout!(@here $size $(| $size_arm)?),
                    concat!("size of ", $c),
                );
                $(assert!(
                    offset_of!($rust, $field $(. $sub)*)
                        == layout!(@here $offset $(| $offset_arm)?),
                    concat!("offset in ", $c, " of ", stringify!($field $(. $sub)*)),
                );)*
            )*
        };

        /// Every figure asserted here.
        pub const LAYOUT: &[LayoutFigure] = &[
            $(
                (concat!("sizeof(", $c, ")"), layout!(@here $size $(| $size_arm)?)),
                $((
                    concat!(
                        "offsetof(", $c, ", ", layout!(@name $field $(. $sub)* $(= $alias)?), ")"
                    ),
                    layout!(@here $offset $(| $offset_arm)?)
                ),)*
            )*
        ];
    };
    (@here $figure:literal) => { $figure };
    (@here $x86:literal | $arm:literal) => {
        if cfg!(target_arch = "aarch64") { $arm } else { $x86 }
    };
    (@name $field:ident $(. $sub:ident)* = $alias:literal) => { $alias };
    (@name $field:ident $(. $sub:ident)*) => { stringify!($field $(. $sub)*) };
}

layout! {
    "struct ibv_device" as ibv_device: 664 {
        node_type: 16, transport_type: 20, name: 24, dev_name: 88, dev_path: 152, ibdev_path: 408,
    }
    "struct ibv_context_ops" as ibv_context_ops: 256 {
        alloc_mw: 56, bind_mw: 64, dealloc_mw: 72, poll_cq: 88, req_notify_cq: 96,
        post_srq_recv: 160, post_send: 200, post_recv: 208,
    }
    "struct ibv_context" as ibv_context: 328 | 336 {
        device: 0, ops: 8, cmd_fd: 264, async_fd: 268, num_comp_vectors: 272, mutex: 280,
        abi_compat: 320 | 328,
    }
    "struct verbs_context" as verbs_context: 648 | 656 {
        query_port: 0, advise_mr: 8, alloc_null_mr: 16, read_counters: 24, alloc_parent_domain: 112,
        dealloc_td: 120, alloc_td: 128, modify_cq: 136, query_rt_values: 192, create_cq_ex: 200,
        private = "priv": 208, query_device_ex: 216, ibv_destroy_flow: 224, ibv_create_flow: 240,
        open_qp: 256, create_qp_ex: 264, get_srq_num: 272, create_srq_ex: 280, open_xrcd: 288,
        close_xrcd: 296, sz: 312, context: 320,
    }
    "union ibv_gid" as ibv_gid: 16 { raw: 0 }
    "struct ibv_gid_entry" as ibv_gid_entry: 32 {
        gid: 0, gid_index: 16, port_num: 20, gid_type: 24, ndev_ifindex: 28,
    }
    "struct ibv_port_attr" as ibv_port_attr: 52 {
        state: 0, max_mtu: 4, active_mtu: 8, gid_tbl_len: 12, port_cap_flags: 16, max_msg_sz: 20,
        pkey_tbl_len: 32, lid: 34, lmc: 38, max_vl_num: 39, active_width: 43, active_speed: 44,
        phys_state: 45, link_layer: 46, flags: 47, port_cap_flags2: 48,
    }
    "struct ibv_device_attr" as ibv_device_attr: 232 {
        fw_ver: 0, node_guid: 64, sys_image_guid: 72, max_mr_size: 80, page_size_cap: 88,
        vendor_id: 96, hw_ver: 104, max_qp: 108, device_cap_flags: 116, max_sge: 120,
        max_sge_rd: 124, max_cqe: 132, max_pd: 140, max_qp_rd_atom: 144, atomic_cap: 164,
        max_mw: 176, max_srq: 212, max_srq_sge: 220, max_pkeys: 224, phys_port_cnt: 227,
    }
    "struct ibv_device_attr_ex" as ibv_device_attr_ex: 400 {
        orig_attr: 0, comp_mask: 232, odp_general_caps = "odp_caps": 240,
        completion_timestamp_mask: 264, hca_core_clock: 272, device_cap_flags_ex: 280,
        tso_caps: 288, rss_caps: 296, max_wq_type_rq: 328, packet_pacing_caps: 332,
        raw_packet_caps: 344, tm_caps: 348, cq_mod_caps: 368, max_dm_size: 376,
        pci_atomic_caps: 384, xrc_odp_caps: 392, phys_port_cnt_ex: 396,
    }
    "struct ibv_pd" as ibv_pd: 16 { context: 0, handle: 8 }
    "struct ibv_td" as ibv_td: 8 { context: 0 }
    "struct ibv_mr" as ibv_mr: 48 { pd: 8, addr: 16, length: 24, handle: 32, lkey: 36, rkey: 40 }
    "struct ibv_mw" as ibv_mw: 32 { pd: 8, rkey: 16, handle: 20, mw_type = "type": 24 }
    "struct ibv_ah" as ibv_ah: 24 { pd: 8, handle: 16 }
    "struct ibv_comp_channel" as ibv_comp_channel: 16 { context: 0, fd: 8, refcnt: 12 }
    "struct ibv_cq" as ibv_cq: 128 | 136 {
        channel: 8, cq_context: 16, handle: 24, cqe: 28, mutex: 32, cond: 72 | 80,
        comp_events_completed: 120 | 128, async_events_completed: 124 | 132,
    }
    "struct ibv_cq_ex" as ibv_cq_ex: 288 | 296 {
        comp_mask: 128 | 136, status: 132 | 140, wr_id: 136 | 144, start_poll: 144 | 152,
        next_poll: 152 | 160, end_poll: 160 | 168, read_opcode: 168 | 176,
        read_vendor_err: 176 | 184, read_byte_len: 184 | 192, read_imm_data: 192 | 200,
        read_qp_num: 200 | 208, read_src_qp: 208 | 216, read_wc_flags: 216 | 224,
        read_slid: 224 | 232, read_sl: 232 | 240, read_dlid_path_bits: 240 | 248,
        read_completion_ts: 248 | 256, read_completion_wallclock_ns: 280 | 288,
    }
    "struct ibv_srq" as ibv_srq: 128 | 136 {
        srq_context: 8, pd: 16, handle: 24, mutex: 32, cond: 72 | 80, events_completed: 120 | 128,
    }
    "struct ibv_qp" as ibv_qp: 160 | 168 {
        qp_context: 8, pd: 16, send_cq: 24, recv_cq: 32, srq: 40, handle: 48, qp_num: 52, state: 56,
        qp_type: 60, mutex: 64, cond: 104 | 112, events_completed: 152 | 160,
    }
    "struct ibv_qp_ex" as ibv_qp_ex: 352 | 360 {
        comp_mask: 160 | 168, wr_id: 168 | 176, wr_flags: 176 | 184, wr_atomic_cmp_swp: 184 | 192,
        wr_atomic_fetch_add: 192 | 200, wr_bind_mw: 200 | 208, wr_local_inv: 208 | 216,
        wr_rdma_read: 216 | 224, wr_rdma_write: 224 | 232, wr_rdma_write_imm: 232 | 240,
        wr_send: 240 | 248, wr_send_imm: 248 | 256, wr_send_inv: 256 | 264, wr_send_tso: 264 | 272,
        wr_set_xrc_srqn: 280 | 288, wr_set_inline_data: 288 | 296,
        wr_set_inline_data_list: 296 | 304, wr_set_sge: 304 | 312, wr_set_sge_list: 312 | 320,
        wr_start: 320 | 328, wr_complete: 328 | 336, wr_abort: 336 | 344,
        wr_atomic_write: 344 | 352,
    }
    "struct ibv_data_buf" as ibv_data_buf: 16 { addr: 0, length: 8 }
    "struct ibv_async_event" as ibv_async_event: 16 { element: 0, event_type: 8 }
    "struct ibv_global_route" as ibv_global_route: 24 { flow_label: 16, traffic_class: 22 }
    "struct ibv_ah_attr" as ibv_ah_attr: 32 { grh: 0, dlid: 24, is_global: 29, port_num: 30 }
    "struct ibv_srq_attr" as ibv_srq_attr: 12 { max_wr: 0, max_sge: 4, srq_limit: 8 }
    "struct ibv_srq_init_attr" as ibv_srq_init_attr: 24 { srq_context: 0, attr: 8 }
    "struct ibv_srq_init_attr_ex" as ibv_srq_init_attr_ex: 64 {
        comp_mask: 20, srq_type: 24, pd: 32, xrcd: 40, cq: 48, tm_cap: 56,
    }
    "struct ibv_xrcd_init_attr" as ibv_xrcd_init_attr: 12 { comp_mask: 0, fd: 4, oflags: 8 }
    "struct ibv_qp_cap" as ibv_qp_cap: 20 { max_send_wr: 0, max_inline_data: 16 }
    "struct ibv_qp_init_attr" as ibv_qp_init_attr: 64 {
        send_cq: 8, recv_cq: 16, srq: 24, cap: 32, qp_type: 52, sq_sig_all: 56,
    }
    "struct ibv_qp_init_attr_ex" as ibv_qp_init_attr_ex: 136 {
        sq_sig_all: 56, comp_mask: 60, pd: 64, xrcd: 72, create_flags: 80, max_tso_header: 84,
        rwq_ind_tbl: 88, rx_hash_conf: 96, source_qpn: 120, send_ops_flags: 128,
    }
    "struct ibv_qp_attr" as ibv_qp_attr: 144 {
        cur_qp_state: 4, path_mtu: 8, qkey: 16, dest_qp_num: 28, qp_access_flags: 32, cap: 36,
        ah_attr: 56, alt_ah_attr: 88, pkey_index: 120, en_sqd_async_notify: 124,
        max_rd_atomic: 126, max_dest_rd_atomic: 127, min_rnr_timer: 128, port_num: 129,
        timeout: 130, retry_cnt: 131, rnr_retry: 132, rate_limit: 136,
    }
    "struct ibv_cq_init_attr_ex" as ibv_cq_init_attr_ex: 56 {
        cqe: 0, cq_context: 8, channel: 16, comp_vector: 24, wc_flags: 32, comp_mask: 40,
        flags: 44, parent_domain: 48,
    }
    "struct ibv_parent_domain_init_attr" as ibv_parent_domain_init_attr: 48 {
        pd: 0, td: 8, comp_mask: 16, alloc: 24, free: 32, pd_context: 40,
    }
    "struct ibv_ece" as ibv_ece: 12 { vendor_id: 0, options: 4, comp_mask: 8 }
    "struct ibv_sge" as ibv_sge: 16 { addr: 0, length: 8, lkey: 12 }
    "struct ibv_wc" as ibv_wc: 48 {
        wr_id: 0, status: 8, opcode: 12, vendor_err: 16, byte_len: 20, imm_data: 24, qp_num: 28,
        src_qp: 32, wc_flags: 36, pkey_index: 40, slid: 42, sl: 44, dlid_path_bits: 45,
    }
    "struct ibv_mw_bind_info" as ibv_mw_bind_info: 32 { mr: 0, addr: 8, mw_access_flags: 24 }
    "struct ibv_mw_bind" as ibv_mw_bind: 48 { wr_id: 0, send_flags: 8, bind_info: 16 }
    "struct ibv_dm" as ibv_dm: 32 {
        context: 0, memcpy_to_dm: 8, memcpy_from_dm: 16, comp_mask: 24, handle: 28,
    }
    "struct ibv_values_ex" as ibv_values_ex: 24 { comp_mask: 0, raw_clock: 8 }
    "struct ibv_alloc_dm_attr" as ibv_alloc_dm_attr: 16 {
        length: 0, log_align_req: 8, comp_mask: 12,
    }
    "struct ibv_send_wr" as ibv_send_wr: 128 {
        wr_id: 0, next: 8, sg_list: 16, num_sge: 24, opcode: 28, send_flags: 32, imm_data: 36,
        wr.rdma.remote_addr: 40, wr.rdma.rkey: 48, wr.atomic.compare_add: 48,
        wr.atomic.swap: 56, wr.atomic.rkey: 64, wr.ud.remote_qpn: 48,
        remote_srqn = "qp_type.xrc.remote_srqn": 72, bind_mw: 80,
    }
    "struct ibv_recv_wr" as ibv_recv_wr: 32 { next: 8, sg_list: 16, num_sge: 24 }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::Command;

    use weft_testkit::{Dir, text};

    use super::*;

    /// The values that C expressions have with an installed header; `name` tells measurements apart
    /// that are made at once.
    pub(crate) fn measure<'a>(
        name: &str,
        header: &str,
        expressions: impl Iterator<Item = &'a str>,
    ) -> Vec<usize> {
        let lines: String =
            expressions.map(|what| format!("printf(\"%zu\\n\", (size_t)({what}));\n")).collect();
        let code = format!(
            "#include <stdio.h>\n#include <stddef.h>\n#include <{header}>\n\
             int main(void) {{\n{lines}return 0; }}\n"
        );
        let dir = Dir::new(name);
        let out = Command::new(dir.compile("layout", &code, &[])).output().unwrap();
        text(&out.stdout).lines().map(|line| line.parse().unwrap()).collect()
    }

    /// The header decides, where there is one: rdma-core's development files are a prerequisite
    /// of the tests.
    #[test]
    fn figures_are_those_of_the_installed_header() {
        let measured =
            measure("layout", "infiniband/verbs.h", LAYOUT.iter().map(|(what, _)| *what));
        assert_eq!(measured.len(), LAYOUT.len());
        let wrong: Vec<_> =
            LAYOUT.iter().zip(&measured).filter(|((_, ours), c)| ours != *c).collect();
        assert!(wrong.is_empty(), "ours differs from the header's: {wrong:#?}");
    }

    #[test]
    fn values_are_those_of_the_installed_header() {
        let values = [
            ("IBV_QPT_RC", IBV_QPT_RC),
            ("IBV_ACCESS_REMOTE_ATOMIC", IBV_ACCESS_REMOTE_ATOMIC),
            ("IBV_WR_RDMA_WRITE", IBV_WR_RDMA_WRITE),
            ("IBV_WR_SEND", IBV_WR_SEND),
            ("IBV_WR_RDMA_READ", IBV_WR_RDMA_READ),
            ("IBV_WR_ATOMIC_FETCH_AND_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD),
            ("IBV_SEND_SIGNALED", IBV_SEND_SIGNALED as i32),
            ("IBV_SEND_INLINE", IBV_SEND_INLINE as i32),
        ];
        let measured =
            measure("values", "infiniband/verbs.h", values.iter().map(|(name, _)| *name));
        assert_eq!(values.map(|(_, value)| value as usize).to_vec(), measured);
    }
}
