//! Attributes of a device and its port.
//!
//! Capacities are those of `weft-host`; the port shows the machine's interfaces as they are at the
//! moment of the call.

use std::ffi::{c_char, c_int, c_uint};
use std::mem::{offset_of, size_of};
use std::{mem, ptr};

use weft_host::{DeviceId, DeviceKind};
use weft_os::calls::LibraryCall;
use weft_verbs::Limits;

use super::device::{copy_text, guid, system_guid};
use super::{context, device, gid};
use crate::pass;
use crate::real::pass_when_off;
use crate::{errno, rdma};
use weft_verbs_abi::*;

/// The only port.
pub const PORT: u8 = 1;

/// "WF" under a locally administered prefix, which is never assigned to a vendor, so that no
/// program takes the device for somebody's hardware.
const VENDOR_ID: u32 = 0x02_5746;

fn mtu_code(bytes: u32) -> c_int {
    match bytes {
        4096.. => IBV_MTU_4096,
        2048.. => IBV_MTU_2048,
        1024.. => IBV_MTU_1024,
        512.. => IBV_MTU_512,
        _ => IBV_MTU_256,
    }
}

/// The state of the port: active while the device has any address, be it loopback's.
pub fn port_attr(id: DeviceId) -> ibv_port_attr {
    // SAFETY: all zeroes is valid: integers.
    let mut attr: ibv_port_attr = unsafe { mem::zeroed() };
    let interfaces = device::interfaces(id);
    let state = rdma::host().device_state(id);
    let up = !interfaces.is_empty() && !state.down;
    attr.lid = state.lid;
    attr.state = if up { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN };
    attr.phys_state = if up { PHYS_LINK_UP } else { PHYS_DISABLED };
    attr.max_mtu = IBV_MTU_4096;
    attr.active_mtu = mtu_code(interfaces.first().map_or(0, |i| i.mtu));
    attr.gid_tbl_len = gid::table_len(id.kind) as c_int;
    attr.max_msg_sz = id.kind.limits().max_msg_size;
    attr.pkey_tbl_len = 1;
    attr.max_vl_num = 1;
    attr.active_width = WIDTH_4X;
    attr.active_speed = SPEED_EDR;
    attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    (attr.port_cap_flags, attr.flags) = match id.kind {
        DeviceKind::Iwarp => (IBV_PORT_CM_SUP | IBV_PORT_DEVICE_MGMT_SUP, 0),
        DeviceKind::Roce => (IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS, IBV_QPF_GRH_REQUIRED),
    };
    attr
}

/// A nominal 100 Gbit/s: of the rates that have a name, the next above what one core moves. No
/// interface tells the rate that a connection will get. UCX reckons from it from which size on a
/// message is fetched instead of copied, and copies 256 KiB where a device says 40.
const WIDTH_4X: u8 = 2;
const SPEED_EDR: u8 = 32;
/// The same in units of 100 Mbit/s.
const NOMINAL_RATE: u64 = 1000;

/// Capabilities of both devices, whatever the type of queue pair.
const COMMON_CAPS: c_uint = IBV_DEVICE_CURR_QP_STATE_MOD
    | IBV_DEVICE_SRQ_RESIZE
    | IBV_DEVICE_MEM_MGT_EXTENSIONS
    | IBV_DEVICE_MEM_WINDOW
    | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
const ADAPTER_CAPS: c_uint = COMMON_CAPS
    | IBV_DEVICE_UD_AV_PORT_ENFORCE
    | IBV_DEVICE_SYS_IMAGE_GUID
    | IBV_DEVICE_RC_RNR_NAK_GEN
    | IBV_DEVICE_XRC;

/// Groups, and memberships in them: each takes a socket, of which a process has so many.
const GROUPS_MAX: c_int = 1024;
const GROUP_MEMBERS_MAX: c_int = 1024;

/// The attributes of a device.
pub fn device_attr(id: DeviceId) -> ibv_device_attr {
    // SAFETY: all zeroes is valid: integers.
    let mut attr: ibv_device_attr = unsafe { mem::zeroed() };
    copy_text(&mut attr.fw_ver, env!("CARGO_PKG_VERSION"));
    attr.node_guid = guid(id);
    attr.sys_image_guid = system_guid();
    attr.page_size_cap = 4096;
    attr.vendor_id = VENDOR_ID;
    attr.device_cap_flags = match id.kind {
        DeviceKind::Iwarp => COMMON_CAPS,
        DeviceKind::Roce => ADAPTER_CAPS,
    };
    fill_limits(&mut attr, id.kind.limits());
    if id.kind == DeviceKind::Roce {
        (attr.max_mcast_grp, attr.max_mcast_qp_attach) = (GROUPS_MAX, GROUP_MEMBERS_MAX);
        attr.max_total_mcast_qp_attach = GROUP_MEMBERS_MAX;
    }
    // Atomics are atomic among all queue pairs of this process and, being CPU instructions,
    // towards its threads; the iWARP device offers them to Weft peers only.
    attr.atomic_cap = IBV_ATOMIC_HCA;
    attr.max_pkeys = 1;
    attr.phys_port_cnt = 1;
    attr
}

fn fill_limits(attr: &mut ibv_device_attr, limits: &Limits) {
    let int = |limit: u32| c_int::try_from(limit).unwrap_or(c_int::MAX);
    attr.max_mr_size = limits.max_mr_size;
    attr.max_qp = int(limits.max_qp);
    attr.max_qp_wr = int(limits.max_qp_wr);
    attr.max_sge = int(limits.max_sge);
    attr.max_sge_rd = int(limits.max_sge_rd);
    attr.max_cq = int(limits.max_cq);
    attr.max_cqe = int(limits.max_cqe);
    attr.max_mr = int(limits.max_mr);
    attr.max_mw = int(limits.max_mw);
    attr.max_pd = int(limits.max_pd);
    attr.max_qp_rd_atom = int(limits.max_qp_rd_atom);
    attr.max_qp_init_rd_atom = int(limits.max_qp_init_rd_atom);
    attr.max_res_rd_atom = int(limits.max_qp_rd_atom.saturating_mul(limits.max_qp));
    attr.max_ah = int(limits.max_ah);
    attr.max_srq = int(limits.max_srq);
    attr.max_srq_wr = int(limits.max_srq_wr);
    attr.max_srq_sge = int(limits.max_srq_sge);
}

/// Slot `query_device_ex`: fills as much of the structure as the application's header has.
///
/// # Safety
/// `context` is open; `attr` has room for `size` bytes.
pub unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    let _call = LibraryCall::begin();
    // SAFETY: open by contract.
    if let Err(code) = unsafe { check_device(context) } {
        return errno::code(code);
    }
    // SAFETY: the caller passes NULL or a readable input.
    if !input.is_null() && unsafe { (*input).comp_mask } != 0 {
        return errno::code(libc::EINVAL);
    }
    if size < size_of::<ibv_device_attr>() {
        return errno::code(libc::EINVAL);
    }
    // SAFETY: all zeroes is valid: integers.
    let mut full: ibv_device_attr_ex = unsafe { mem::zeroed() };
    // SAFETY: open by contract.
    let id = unsafe { device_of(context) };
    let personality = id.kind;
    full.orig_attr = device_attr(id);
    full.device_cap_flags_ex = u64::from(full.orig_attr.device_cap_flags);
    if personality == DeviceKind::Roce {
        full.device_cap_flags_ex |= IBV_DEVICE_ATOMIC_WRITE;
    }
    (full.completion_timestamp_mask, full.hca_core_clock) = (u64::MAX, CLOCK_KHZ);
    // Nothing is pinned for anyone, so memory on demand is as good as any other.
    full.odp_general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
    full.odp_rc_uc_ud_caps = on_demand(personality);
    if personality == DeviceKind::Roce {
        // On-demand paging of shared receive queues is reported for reliable connections, too.
        full.xrc_odp_caps = full.odp_rc_uc_ud_caps[0];
    }
    full.max_dm_size = personality.limits().max_dm_octets;
    full.phys_port_cnt_ex = 1;
    // SAFETY: `attr` has `size` bytes by contract.
    unsafe { copy_prefix(&full, attr, size) };
    0
}

/// The device's clock counts nanoseconds since the machine started.
const CLOCK_KHZ: u64 = 1_000_000;

/// Slot `query_rt_values`: the count of the device's clock, where adapters have theirs.
///
/// # Safety
/// `context` is open; `values` is readable and writable.
pub unsafe extern "C" fn query_rt_values(_: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    // SAFETY: as this function's contract.
    let values = unsafe { &mut *values };
    let wants_clock = values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK != 0;
    values.comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
    if wants_clock {
        let tv_nsec = weft_os::clock::ticks_ns() as i64;
        values.raw_clock = libc::timespec { tv_sec: 0, tv_nsec };
    }
    0
}

/// Operations of RC, UC and UD queue pairs on memory that is registered on demand.
fn on_demand(personality: DeviceKind) -> [u32; 3] {
    let datagrams = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    let unreliable = datagrams | IBV_ODP_SUPPORT_WRITE;
    let reliable = unreliable | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
    match personality {
        DeviceKind::Iwarp => [reliable, 0, 0],
        DeviceKind::Roce => [reliable | IBV_ODP_SUPPORT_ATOMIC_WRITE, unreliable, datagrams],
    }
}

/// Whether the device of `context` can be used: after a reset it cannot, with `EIO`.
///
/// # Safety
/// `context` is open.
pub unsafe fn check_device(context: *mut ibv_context) -> Result<(), c_int> {
    // SAFETY: open by contract.
    unsafe { context::tail(context) }.core.check_device().map_err(|misuse| misuse.errno())
}

/// The first key of the table.
///
/// # Safety
/// `context` is open.
unsafe fn first_pkey(context: *mut ibv_context) -> u16 {
    // SAFETY: open by contract.
    rdma::host().device_state(unsafe { device_of(context) }).pkey
}

/// The kind of the device of `context`.
///
/// # Safety
/// `context` is open.
pub unsafe fn personality(context: *mut ibv_context) -> DeviceKind {
    // SAFETY: open by contract.
    unsafe { context::tail(context) }.core.personality()
}

/// The device of `context`.
///
/// # Safety
/// `context` is open.
pub unsafe fn device_of(context: *mut ibv_context) -> DeviceId {
    // SAFETY: open by contract.
    unsafe { context::tail(context) }.core.id()
}

/// Slot `query_port`.
///
/// # Safety
/// `context` is open; `attr` has room for `size` bytes.
pub unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    let _call = LibraryCall::begin();
    // SAFETY: open by contract.
    if let Err(code) = unsafe { check_device(context) } {
        return errno::code(code);
    }
    if port != PORT {
        return errno::code(libc::EINVAL);
    }
    // SAFETY: open by contract.
    let full = port_attr(unsafe { device_of(context) });
    // SAFETY: `attr` has `size` bytes by contract.
    unsafe { copy_prefix(&full, attr, size) };
    0
}

/// Copies the first `size` bytes of `from`; what the target has beyond our own structure is
/// zeroed, as for a field that this device does not have.
///
/// # Safety
/// `to` has room for `size` bytes.
pub unsafe fn copy_prefix<T>(from: &T, to: *mut T, size: usize) {
    let common = size.min(size_of::<T>());
    let to = to.cast::<u8>();
    // SAFETY: both sides have `common` bytes and do not overlap.
    unsafe { ptr::copy_nonoverlapping(ptr::from_ref(from).cast::<u8>(), to, common) };
    // SAFETY: `size - common` bytes of the target follow.
    unsafe { to.wrapping_add(common).write_bytes(0, size - common) };
}

/// `ibv_query_device`.
///
/// # Safety
/// `context` is open and `attr` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    pass_when_off!(ibv_query_device(context, attr), pass::query::query_device);
    // SAFETY: open by contract.
    if let Err(code) = unsafe { check_device(context) } {
        return errno::code(code);
    }
    // SAFETY: open by contract.
    let full = device_attr(unsafe { device_of(context) });
    // SAFETY: writable by contract.
    unsafe { attr.write(full) };
    0
}

/// `ibv_query_port` as old programs know it, without the fields that were added later.
///
/// # Safety
/// `context` is open; `attr` has room for the fields up to `port_cap_flags2`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    pass_when_off!(ibv_query_port(context, port, attr), pass::query::query_port);
    // SAFETY: the caller's structure ends where that field begins.
    unsafe { query_port(context, port, attr, offset_of!(ibv_port_attr, port_cap_flags2)) }
}

/// `ibv_query_pkey`: one key, the default one, in network byte order.
///
/// # Safety
/// `context` is open and `pkey` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    pass_when_off!(ibv_query_pkey(context, port, index, pkey), pass::query::query_pkey);
    // SAFETY: open by contract.
    if let Err(code) = unsafe { check_device(context) } {
        return errno::minus_one(code);
    }
    if port != PORT || index != 0 {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: open by contract.
    let first = unsafe { first_pkey(context) };
    // SAFETY: writable by contract.
    unsafe { pkey.write(first.to_be()) };
    0
}

/// `ibv_get_pkey_index`.
///
/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut ibv_context,
    port: u8,
    pkey: u16,
) -> c_int {
    pass_when_off!(ibv_get_pkey_index(context, port, pkey));
    // SAFETY: open by contract.
    if port == PORT && pkey == unsafe { first_pkey(context) }.to_be() { 0 } else { -1 }
}

/// `ibv_query_port_speed`, in units of 100 Mbit/s: the nominal rate.
///
/// # Safety
/// `context` is open, `speed` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    pass_when_off!(ibv_query_port_speed(context, port, speed));
    if port != u32::from(PORT) || speed.is_null() {
        return errno::code(libc::EINVAL);
    }
    // SAFETY: writable by contract.
    unsafe { speed.write(NOMINAL_RATE) };
    0
}

/// The release of Weft, for the files in sysfs that applications look for.
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Copies a C string for a caller with `room` bytes; gives the length that was copied.
///
/// # Safety
/// `to` has room for `room` bytes.
pub unsafe fn copy_to_caller(text: &str, to: *mut c_char, room: usize) -> usize {
    let len = text.len().min(room.saturating_sub(1));
    // SAFETY: both sides have `len` bytes.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), to, len) };
    if room > 0 {
        // SAFETY: `len` is below `room`.
        unsafe { to.wrapping_add(len).write(0) };
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_structure_is_not_overrun_and_a_longer_one_is_zeroed() {
        let mut small = [0xaa_u8; 8];
        let from = 0x0102_0304_0506_0708_u64;
        // SAFETY: four of the eight bytes.
        unsafe { copy_prefix(&from, small.as_mut_ptr().cast(), 4) };
        assert_eq!(small[4..], [0xaa; 4]);
        let mut large = [0xaa_u8; 16];
        // SAFETY: all sixteen bytes.
        unsafe { copy_prefix(&from, large.as_mut_ptr().cast(), 16) };
        assert_eq!(large[8..], [0; 8]);
    }

    #[test]
    fn attributes_are_what_clients_insist_on() {
        for personality in [DeviceKind::Iwarp, DeviceKind::Roce] {
            let attr = device_attr(personality.into());
            assert!(attr.vendor_id != 0 && attr.page_size_cap >= 4096 && attr.node_guid != 0);
            assert!(attr.max_cqe >= 4 << 20 && attr.max_qp_wr >= 16 << 10 && attr.max_sge >= 16);
            assert!(attr.max_srq > 0 && attr.max_srq_sge > 0 && attr.max_sge_rd >= 1);
            assert!((16..=128).contains(&attr.max_qp_rd_atom) && attr.max_pkeys >= 1);
            let port = port_attr(personality.into());
            assert_eq!((port.state, port.phys_state), (IBV_PORT_ACTIVE, 5));
            assert!(port.gid_tbl_len >= 2);
        }
        assert!(device_attr(DeviceKind::Roce.into()).max_ah > 0);
        assert_eq!(port_attr(DeviceKind::Roce.into()).flags, IBV_QPF_GRH_REQUIRED);
        let codes = [0, 256, 512, 1500, 2048, 9000, 65536].map(mtu_code);
        assert_eq!(codes, [1, 1, 2, 3, 4, 5, 5]);
    }
}
