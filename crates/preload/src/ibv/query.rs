//! What the device, its port and its GID table say about themselves.
//!
//! Capacities are those of the engine; the port and the GIDs show the machine's interfaces as
//! they are at the moment of the call.

use std::ffi::{c_char, c_int};
use std::mem::{offset_of, size_of};
use std::net::IpAddr;
use std::{mem, ptr};

use weft_verbs::limits::IWARP;

use super::device::{copy_text, guid};
use crate::abi::*;
use crate::errno;
use crate::net::{self, Interface};
use crate::real::pass_when_off;

/// Rows of the GID table; unused ones are empty.
pub const GID_TABLE_LEN: u32 = 32;

/// The only port.
pub const PORT: u8 = 1;

/// "WF" under a locally administered prefix, which is never assigned to a vendor, so that no
/// program takes the device for somebody's hardware.
const VENDOR_ID: u32 = 0x02_5746;

/// A GID and the interface it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gid {
    raw: [u8; 16],
    interface: u32,
}

/// The GID table: row 0 is the Ethernet address followed by zeroes, as an RNIC has it; then come
/// the machine's addresses, IPv4 ones as IPv4-mapped.
fn gid_table(interfaces: &[Interface]) -> Vec<Gid> {
    let mut first = [0; 16];
    let named = interfaces.iter().find(|i| i.mac.is_some());
    match named.and_then(|i| i.mac) {
        Some(mac) => first[..6].copy_from_slice(&mac),
        None => first[..8].copy_from_slice(&guid().to_ne_bytes()),
    }
    let owner = named.or(interfaces.first()).map_or(0, |i| i.index);
    let mut table = vec![Gid { raw: first, interface: owner }];
    let only_loopback = interfaces.iter().all(|i| i.loopback);
    for interface in interfaces.iter().filter(|i| only_loopback || !i.loopback) {
        let gids =
            interface.addresses.iter().map(|a| Gid { raw: gid_of(*a), interface: interface.index });
        table.extend(gids);
    }
    table.truncate(GID_TABLE_LEN as usize);
    table
}

/// The GID that stands for an address.
pub fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn mtu_code(octets: u32) -> c_int {
    match octets {
        4096.. => IBV_MTU_4096,
        2048.. => IBV_MTU_2048,
        1024.. => IBV_MTU_1024,
        512.. => IBV_MTU_512,
        _ => IBV_MTU_256,
    }
}

/// The state of the port: active while the machine has any address, be it loopback's.
pub fn port_attr() -> ibv_port_attr {
    // SAFETY: all zeroes is valid: integers.
    let mut attr: ibv_port_attr = unsafe { mem::zeroed() };
    let interfaces = net::interfaces();
    let up = !interfaces.is_empty();
    attr.state = if up { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN };
    attr.phys_state = if up { PHYS_LINK_UP } else { PHYS_DISABLED };
    attr.max_mtu = IBV_MTU_4096;
    attr.active_mtu = mtu_code(interfaces.first().map_or(0, |i| i.mtu));
    attr.gid_tbl_len = GID_TABLE_LEN as c_int;
    attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_DEVICE_MGMT_SUP;
    attr.max_msg_sz = IWARP.max_msg_size;
    attr.pkey_tbl_len = 1;
    attr.max_vl_num = 1;
    attr.active_width = WIDTH_4X;
    attr.active_speed = SPEED_QDR;
    attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    attr
}

/// A nominal 40 Gbit/s, which is what one core moves over TCP; no interface tells the rate that
/// a stream will get.
const WIDTH_4X: u8 = 2;
const SPEED_QDR: u8 = 4;

/// The attributes of the device.
pub fn device_attr() -> ibv_device_attr {
    // SAFETY: all zeroes is valid: integers.
    let mut attr: ibv_device_attr = unsafe { mem::zeroed() };
    copy_text(&mut attr.fw_ver, env!("CARGO_PKG_VERSION"));
    attr.node_guid = guid();
    attr.sys_image_guid = guid();
    attr.max_mr_size = IWARP.max_mr_size;
    attr.page_size_cap = 4096;
    attr.vendor_id = VENDOR_ID;
    attr.device_cap_flags =
        IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_MGT_EXTENSIONS;
    fill_limits(&mut attr);
    // Atomics of RFC 7306 are atomic among all queue pairs of this process and, being CPU
    // instructions, towards its threads; they are offered to Weft peers only.
    attr.atomic_cap = IBV_ATOMIC_HCA;
    attr.max_pkeys = 1;
    attr.phys_port_cnt = 1;
    attr
}

fn fill_limits(attr: &mut ibv_device_attr) {
    let int = |limit: u32| c_int::try_from(limit).unwrap_or(c_int::MAX);
    attr.max_qp = int(IWARP.max_qp);
    attr.max_qp_wr = int(IWARP.max_qp_wr);
    attr.max_sge = int(IWARP.max_sge);
    attr.max_sge_rd = int(IWARP.max_sge_rd);
    attr.max_cq = int(IWARP.max_cq);
    attr.max_cqe = int(IWARP.max_cqe);
    attr.max_mr = int(IWARP.max_mr);
    attr.max_pd = int(IWARP.max_pd);
    attr.max_qp_rd_atom = int(IWARP.max_qp_rd_atom);
    attr.max_qp_init_rd_atom = int(IWARP.max_qp_init_rd_atom);
    attr.max_res_rd_atom = int(IWARP.max_qp_rd_atom.saturating_mul(IWARP.max_qp));
    attr.max_srq = int(IWARP.max_srq);
    attr.max_srq_wr = int(IWARP.max_srq_wr);
    attr.max_srq_sge = int(IWARP.max_srq_sge);
}

/// Slot `query_device_ex`: fills as much of the structure as the program's header has.
///
/// # Safety
/// `attr` has room for `size` octets.
pub unsafe extern "C" fn query_device_ex(
    _context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    // SAFETY: the caller passes NULL or a readable input.
    if !input.is_null() && unsafe { (*input).comp_mask } != 0 {
        return errno::code(libc::EINVAL);
    }
    if size < size_of::<ibv_device_attr>() {
        return errno::code(libc::EINVAL);
    }
    // SAFETY: all zeroes is valid: integers.
    let mut full: ibv_device_attr_ex = unsafe { mem::zeroed() };
    full.orig_attr = device_attr();
    full.device_cap_flags_ex = u64::from(full.orig_attr.device_cap_flags);
    full.phys_port_cnt_ex = 1;
    // SAFETY: `attr` has `size` octets by contract.
    unsafe { copy_prefix(&full, attr, size) };
    0
}

/// Slot `query_port`.
///
/// # Safety
/// `attr` has room for `size` octets.
pub unsafe extern "C" fn query_port(
    _context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    if port != PORT {
        return errno::code(libc::EINVAL);
    }
    // SAFETY: `attr` has `size` octets by contract.
    unsafe { copy_prefix(&port_attr(), attr, size) };
    0
}

/// Copies the first `size` octets of `from`; what the target has beyond our own structure is
/// zeroed, as for a field that this device does not have.
///
/// # Safety
/// `to` has room for `size` octets.
unsafe fn copy_prefix<T>(from: &T, to: *mut T, size: usize) {
    let common = size.min(size_of::<T>());
    let to = to.cast::<u8>();
    // SAFETY: both sides have `common` octets and do not overlap.
    unsafe { ptr::copy_nonoverlapping(ptr::from_ref(from).cast::<u8>(), to, common) };
    // SAFETY: `size - common` octets of the target follow.
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
    pass_when_off!(ibv_query_device(context, attr));
    // SAFETY: writable by contract.
    unsafe { attr.write(device_attr()) };
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
    pass_when_off!(ibv_query_port(context, port, attr));
    // SAFETY: the caller's structure ends where that field begins.
    unsafe { query_port(context, port, attr, offset_of!(ibv_port_attr, port_cap_flags2)) }
}

/// `ibv_query_gid`: an empty row is all zeroes.
///
/// # Safety
/// `context` is open and `gid` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    pass_when_off!(ibv_query_gid(context, port, index, gid));
    if port != PORT || !(0..GID_TABLE_LEN as c_int).contains(&index) {
        return errno::minus_one(libc::EINVAL);
    }
    let table = gid_table(&net::interfaces());
    let raw = table.get(index as usize).map_or([0; 16], |g| g.raw);
    // SAFETY: writable by contract.
    unsafe { gid.write(ibv_gid { raw }) };
    0
}

/// `ibv_query_gid_ex` behind its inline wrapper; an empty row answers `ENODATA`.
///
/// # Safety
/// `context` is open; `entry` has room for `size` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    pass_when_off!(_ibv_query_gid_ex(context, port, index, entry, flags, size));
    if flags != 0 || port != u32::from(PORT) || index >= GID_TABLE_LEN {
        return errno::code(libc::EINVAL);
    }
    let table = gid_table(&net::interfaces());
    let Some(gid) = table.get(index as usize) else { return errno::code(libc::ENODATA) };
    // SAFETY: `entry` has `size` octets by contract.
    unsafe { copy_prefix(&gid_entry(index, *gid), entry, size) };
    0
}

fn gid_entry(index: u32, gid: Gid) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: gid.raw },
        gid_index: index,
        port_num: u32::from(PORT),
        gid_type: IBV_GID_TYPE_IB,
        ndev_ifindex: gid.interface,
    }
}

/// `ibv_query_gid_table` behind its inline wrapper: the number of rows, or a negative errno.
///
/// # Safety
/// `context` is open; `entries` has room for `room` rows of `size` octets each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    room: usize,
    flags: u32,
    size: usize,
) -> isize {
    pass_when_off!(_ibv_query_gid_table(context, entries, room, flags, size));
    let table = gid_table(&net::interfaces());
    if flags != 0 || table.len() > room || size == 0 {
        return -(libc::EINVAL as isize);
    }
    for (index, gid) in table.iter().enumerate() {
        let row = entries.cast::<u8>().wrapping_add(index * size).cast::<ibv_gid_entry>();
        // SAFETY: row `index` is within the `room` rows of `size` octets.
        unsafe { copy_prefix(&gid_entry(index as u32, *gid), row, size) };
    }
    table.len() as isize
}

/// `ibv_query_gid_type`, which ibv_devinfo uses although it is not in the header; an RNIC's GIDs
/// have the oldest type.
///
/// # Safety
/// `context` is open and `kind` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: u32,
    kind: *mut c_int,
) -> c_int {
    pass_when_off!(ibv_query_gid_type(context, port, index, kind));
    if port != PORT || index >= GID_TABLE_LEN {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: writable by contract.
    unsafe { kind.write(0) };
    0
}

/// `ibv_query_pkey`: one default key, in network byte order.
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
    pass_when_off!(ibv_query_pkey(context, port, index, pkey));
    if port != PORT || index != 0 {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: writable by contract.
    unsafe { pkey.write(0xffff) };
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
    if port == PORT && pkey == 0xffff { 0 } else { -1 }
}

/// The release of Weft, for the files in sysfs that programs look for.
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Copies a C string for a caller with `room` octets; gives the length that was copied.
///
/// # Safety
/// `to` has room for `room` octets.
pub unsafe fn copy_to_caller(text: &str, to: *mut c_char, room: usize) -> usize {
    let len = text.len().min(room.saturating_sub(1));
    // SAFETY: both sides have `len` octets.
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

    fn interface(index: u32, loopback: bool, addresses: &[&str]) -> Interface {
        Interface {
            name: vec![b'x'],
            index,
            loopback,
            mac: (!loopback).then_some([2, 0, 0, 0, 0, index as u8]),
            mtu: 1500,
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn the_gid_table_is_the_mac_and_then_the_addresses() {
        let all =
            [interface(2, false, &["192.0.2.7", "fe80::1"]), interface(1, true, &["127.0.0.1"])];
        let table = gid_table(&all);
        assert_eq!(table.len(), 3);
        assert_eq!(table[0].raw[..7], [2, 0, 0, 0, 0, 2, 0]);
        assert_eq!(table[1].raw, gid_of("::ffff:192.0.2.7".parse().unwrap()));
        assert_eq!(table[2].raw, gid_of("fe80::1".parse().unwrap()));
        assert!(table.iter().all(|g| g.interface == 2));
    }

    #[test]
    fn loopback_serves_when_there_is_nothing_else() {
        let table = gid_table(&[interface(1, true, &["127.0.0.1"])]);
        assert_eq!(table.len(), 2);
        assert_ne!(table[0].raw, [0; 16]);
        assert_eq!(table[1].raw[10..], [0xff, 0xff, 127, 0, 0, 1]);
    }

    #[test]
    fn a_short_structure_is_not_overrun_and_a_longer_one_is_zeroed() {
        let mut small = [0xaa_u8; 8];
        let from = 0x0102_0304_0506_0708_u64;
        // SAFETY: four of the eight octets.
        unsafe { copy_prefix(&from, small.as_mut_ptr().cast(), 4) };
        assert_eq!(small[4..], [0xaa; 4]);
        let mut large = [0xaa_u8; 16];
        // SAFETY: all sixteen octets.
        unsafe { copy_prefix(&from, large.as_mut_ptr().cast(), 16) };
        assert_eq!(large[8..], [0; 8]);
    }

    #[test]
    fn attributes_are_what_clients_insist_on() {
        let attr = device_attr();
        assert!(attr.vendor_id != 0 && attr.page_size_cap >= 4096 && attr.node_guid != 0);
        assert!(attr.max_cqe >= 4 << 20 && attr.max_qp_wr >= 16 << 10 && attr.max_sge >= 16);
        assert!(attr.max_srq > 0 && attr.max_srq_sge > 0 && attr.max_sge_rd == 1);
        assert!((16..=128).contains(&attr.max_qp_rd_atom) && attr.max_pkeys >= 1);
        let port = port_attr();
        assert_eq!((port.state, port.phys_state), (IBV_PORT_ACTIVE, 5));
        assert!(port.gid_tbl_len >= 2);
        let codes = [0, 256, 512, 1500, 2048, 9000, 65536].map(mtu_code);
        assert_eq!(codes, [1, 1, 2, 3, 4, 5, 5]);
    }
}
