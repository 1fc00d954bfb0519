//! What devices of other providers say of themselves, as the plan changes it.

use std::ffi::c_int;

use weft_host::DeviceState;
use weft_verbs_abi::*;

use super::calls::is_gone;
use super::context;
use crate::errno;
use crate::ibv::gid::_ibv_query_gid_table;
use crate::real::next;

/// The port that the plan is of.
const PORT: u8 = 1;
/// Rows of a table of GIDs that are counted at most.
const GIDS_MAX: usize = 256;

/// What a device is said to be like, if something is planned for it.
fn state_of(context: *mut ibv_context) -> Option<DeviceState> {
    super::faults()?;
    Some(context::find(context)?.state())
}

/// By how many rows the table of GIDs of a device has moved.
pub fn gids_moved(context: *mut ibv_context) -> u32 {
    state_of(context).map_or(0, |state| state.gids_moved)
}

/// Rows of the table of GIDs that are used.
pub fn used_gids(context: *mut ibv_context) -> usize {
    let empty = ibv_gid_entry {
        gid: ibv_gid { raw: [0; 16] },
        gid_index: 0,
        port_num: 0,
        gid_type: 0,
        ndev_ifindex: 0,
    };
    let mut rows = vec![empty; GIDS_MAX];
    let (entries, size, flags) = (rows.as_mut_ptr(), size_of::<ibv_gid_entry>(), 0_u32);
    let Some(real) = next!(_ibv_query_gid_table(context, entries, GIDS_MAX, flags, size)) else {
        return 1;
    };
    // SAFETY: the context is open, and there is room for as many rows as is said.
    let used: isize = unsafe { real(context, entries, GIDS_MAX, flags, size) };
    usize::try_from(used).unwrap_or(1)
}

/// Changes what was said of a port.
///
/// # Safety
/// `attr` has the fields up to `port_cap_flags2`.
unsafe fn change_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) {
    let Some(state) = state_of(context).filter(|_| port == PORT) else { return };
    if state.down {
        // SAFETY: writable by contract.
        unsafe { (*attr).state = IBV_PORT_DOWN };
        // SAFETY: as above.
        unsafe { (*attr).phys_state = PHYS_DISABLED };
    }
    if state.lid != 0 {
        // SAFETY: writable by contract.
        unsafe { (*attr).lid = state.lid };
    }
}

/// `ibv_query_port` in a context.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C" fn query_port_of_context(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    let real = context::find(context).and_then(|pass| pass.real.query_port);
    let Some(real) = real else { return errno::code(libc::EOPNOTSUPP) };
    if is_gone(context) {
        return errno::code(libc::EIO);
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real(context, port, attr, size) };
    if result == 0 {
        // SAFETY: written by the provider; all sizes have these fields.
        unsafe { change_port(context, port, attr) };
    }
    result
}

/// `ibv_query_port` as it is exported.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn query_port(
    real: unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int,
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    if is_gone(context) {
        return errno::code(libc::EIO);
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real(context, port, attr) };
    if result == 0 {
        // SAFETY: written by the provider.
        unsafe { change_port(context, port, attr) };
    }
    result
}

/// `ibv_query_device`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn query_device(
    real: unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int,
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    if is_gone(context) {
        return errno::code(libc::EIO);
    }
    // SAFETY: the caller's arguments.
    unsafe { real(context, attr) }
}

/// `ibv_query_qp`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn query_qp(
    real: unsafe extern "C" fn(
        *mut ibv_qp,
        *mut ibv_qp_attr,
        c_int,
        *mut ibv_qp_init_attr,
    ) -> c_int,
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: alive by contract.
    if is_gone(unsafe { (*qp).context }) {
        return errno::code(libc::EIO);
    }
    // SAFETY: the caller's arguments.
    unsafe { real(qp, attr, mask, init) }
}

/// `ibv_query_pkey`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn query_pkey(
    real: unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut u16) -> c_int,
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { real(context, port, index, pkey) };
    let changed = state_of(context).filter(|state| state.pkey != DeviceState::default().pkey);
    if let Some(state) = changed.filter(|_| result == 0 && port == PORT && index == 0) {
        // SAFETY: writable by contract.
        unsafe { pkey.write(state.pkey.to_be()) };
    }
    result
}

/// `ibv_query_gid`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn query_gid(
    real: unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int,
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let moved = gids_moved(context) as c_int;
    if port == PORT && (0..moved).contains(&index) {
        // SAFETY: writable by contract.
        unsafe { gid.write(ibv_gid { raw: [0; 16] }) };
        return 0;
    }
    let by = if port == PORT { moved } else { 0 };
    // SAFETY: the caller's arguments, but for the row.
    unsafe { real(context, port, index - by, gid) }
}

/// `ibv_query_gid_ex` behind its inline wrapper.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn query_gid_ex(
    real: unsafe extern "C" fn(*mut ibv_context, u32, u32, *mut ibv_gid_entry, u32, usize) -> c_int,
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    let moved = if port == u32::from(PORT) { gids_moved(context) } else { 0 };
    let Some(row) = index.checked_sub(moved) else { return errno::code(libc::ENODATA) };
    // SAFETY: the caller's arguments, but for the row.
    let result = unsafe { real(context, port, row, entry, flags, size) };
    if result == 0 && moved > 0 {
        // SAFETY: written by the provider.
        unsafe { (*entry).gid_index = index };
    }
    result
}

/// `ibv_query_gid_table` behind its inline wrapper.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn query_gid_table(
    real: unsafe extern "C" fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize,
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    room: usize,
    flags: u32,
    size: usize,
) -> isize {
    // SAFETY: the caller's arguments.
    let count = unsafe { real(context, entries, room, flags, size) };
    let moved = gids_moved(context);
    for place in 0..usize::try_from(count).unwrap_or(0).min(if moved > 0 { room } else { 0 }) {
        let entry = entries.wrapping_byte_add(place * size);
        // SAFETY: the provider has written so many rows of this size.
        let row = unsafe { &mut *entry };
        if row.port_num == u32::from(PORT) {
            row.gid_index += moved;
        }
    }
    count
}

/// The address that the device is to get where the application says `attr`: the row of its table
/// of GIDs is another one if the table has moved.
///
/// # Errors
/// The row is empty: `EINVAL`.
pub fn real_address(context: *mut ibv_context, attr: ibv_ah_attr) -> Result<ibv_ah_attr, c_int> {
    let moved = gids_moved(context);
    if moved == 0 || attr.is_global == 0 || attr.port_num != PORT {
        return Ok(attr);
    }
    let row = u32::from(attr.grh.sgid_index).checked_sub(moved).ok_or(libc::EINVAL)?;
    let grh = ibv_global_route { sgid_index: row as u8, ..attr.grh };
    Ok(ibv_ah_attr { grh, ..attr })
}

/// `rdma_init_qp_attr`: the kernel's row of the table of GIDs becomes that of the application,
/// which librdmacm passes on to `ibv_modify_qp`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn init_qp_attr(
    real: unsafe extern "C" fn(*mut cma::rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int,
    id: *mut cma::rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { real(id, attr, mask) };
    // SAFETY: readable by contract.
    let context = unsafe { &(*id).verbs }.get();
    // SAFETY: as above.
    if result == 0 && unsafe { *mask } & IBV_QP_AV != 0 {
        // SAFETY: written by librdmacm.
        let grh = unsafe { &mut (*attr).ah_attr.grh };
        grh.sgid_index = grh.sgid_index.saturating_add(gids_moved(context) as u8);
    }
    result
}

/// `ibv_get_device_list`: without the devices that are being reset.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn get_device_list(
    real: unsafe extern "C" fn(*mut c_int) -> *mut *mut ibv_device,
    count: *mut c_int,
) -> *mut *mut ibv_device {
    // SAFETY: the caller's argument.
    let list = unsafe { real(count) };
    let Some(faults) = super::faults().filter(|_| !list.is_null()) else { return list };
    let (mut from, mut to) = (list, list);
    loop {
        // SAFETY: entries up to the NULL behind them.
        let device = unsafe { *from };
        // SAFETY: a device of the list.
        let is_gone = |device| faults.state_of(&unsafe { context::name_of(device) }).resetting;
        if device.is_null() || !is_gone(device) {
            // SAFETY: no further than what was read.
            unsafe { to.write(device) };
            to = to.wrapping_add(1);
        }
        if device.is_null() {
            break;
        }
        from = from.wrapping_add(1);
    }
    if !count.is_null() {
        // The NULL at the end does not count.
        let left = (to as usize - list as usize) / size_of::<*mut ibv_device>() - 1;
        // SAFETY: writable by contract.
        unsafe { count.write(left as c_int) };
    }
    list
}
