//! GID tables: which addresses of the machine stand for a port.
//!
//! Each call sees the machine's interfaces as they are. Rows keep their order while no interface
//! changes, which is as long as any program may count on an index; faults leave rows empty.

use std::ffi::c_int;
use std::net::IpAddr;

use weft_host::{DeviceId, DeviceKind, DeviceState};

use super::device::{self, guid};
use super::query::{PORT, check_device, copy_prefix, device_of};
use crate::net::NetInterface;
use crate::pass;
use crate::real::pass_when_off;
use crate::{errno, rdma};
use weft_verbs_abi::*;

/// Rows of the tables; unused ones are empty.
const RNIC_ROWS: u32 = 32;
const ADAPTER_ROWS: u32 = 128;

/// A GID and the interface it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    /// The address, or what an RNIC has in its place.
    pub raw: [u8; 16],
    /// The kernel's index of the interface.
    pub interface: u32,
}

impl Gid {
    /// A row that is not used.
    const EMPTY: Self = Self { raw: [0; 16], interface: 0 };

    /// Whether the row is not used.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }
}

/// Rows of the table of such a device, used or not.
pub fn table_len(kind: DeviceKind) -> u32 {
    match kind {
        DeviceKind::Iwarp => RNIC_ROWS,
        DeviceKind::Roce => ADAPTER_ROWS,
    }
}

/// The rows up to the last one that is used.
pub fn table(id: DeviceId) -> Vec<Gid> {
    let mut rows = change(rows(id), id.kind, rdma::host().device_state(id));
    rows.truncate(table_len(id.kind) as usize);
    rows
}

/// How many rows stand for addresses, while no fault changes them.
pub fn used_rows(id: DeviceId) -> usize {
    rows(id).len().saturating_sub(fixed_rows(id.kind))
}

fn rows(id: DeviceId) -> Vec<Gid> {
    let interfaces = device::interfaces(id);
    match id.kind {
        DeviceKind::Iwarp => rnic_rows(id, &interfaces),
        DeviceKind::Roce => adapter_rows(&interfaces),
    }
}

/// Rows that stand for no address: an RNIC's first.
fn fixed_rows(kind: DeviceKind) -> usize {
    usize::from(kind == DeviceKind::Iwarp)
}

/// The rows as faults have them: addresses that are gone leave theirs empty, and those that move
/// leave as many before them.
fn change(mut rows: Vec<Gid>, kind: DeviceKind, state: DeviceState) -> Vec<Gid> {
    let mut addresses = rows.split_off(fixed_rows(kind).min(rows.len()));
    if state.addresses_gone {
        addresses.clear();
    }
    rows.extend((0..state.gids_moved).map(|_| Gid::EMPTY));
    rows.append(&mut addresses);
    rows
}

/// The GID that stands for an address.
pub fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Row 0 is the Ethernet address followed by zeroes, as an RNIC has it; then come the machine's
/// addresses, IPv4 ones as IPv4-mapped.
fn rnic_rows(id: DeviceId, interfaces: &[NetInterface]) -> Vec<Gid> {
    let mut first = [0; 16];
    let named = interfaces.iter().find(|i| i.mac.is_some());
    match named.and_then(|i| i.mac) {
        // Several RNICs may share an interface, but no Ethernet address.
        Some(mac) if id.index() == 0 => first[..6].copy_from_slice(&mac),
        _ => first[..8].copy_from_slice(&guid(id).to_ne_bytes()),
    }
    let owner = named.or(interfaces.first()).map_or(0, |i| i.index);
    let mut rows = vec![Gid { raw: first, interface: owner }];
    let only_loopback = interfaces.iter().all(|i| i.loopback);
    for interface in interfaces.iter().filter(|i| only_loopback || !i.loopback) {
        let gids =
            interface.addresses.iter().map(|a| Gid { raw: gid_of(*a), interface: interface.index });
        rows.extend(gids);
    }
    rows
}

/// The machine's addresses in the order in which applications that take a row without looking are
/// best served: where Linux has its default GID, the link-local address of the interface that IPv4
/// goes through; then IPv4, the wider IPv6 addresses, the other link-local ones, and loopback.
fn adapter_rows(interfaces: &[NetInterface]) -> Vec<Gid> {
    let serves = |i: &&NetInterface| !i.loopback && i.addresses.iter().any(IpAddr::is_ipv4);
    let main = interfaces.iter().find(serves).map(|i| i.index);
    let mut rows: Vec<(u8, Gid)> = Vec::new();
    let mut default_is_open = true;
    for interface in interfaces {
        for address in &interface.addresses {
            let local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
            let default = local && main == Some(interface.index) && default_is_open;
            default_is_open &= !default;
            let rank = match (interface.loopback, address) {
                _ if default => 0,
                (false, IpAddr::V4(_)) => 1,
                (false, IpAddr::V6(_)) if !local => 2,
                (false, IpAddr::V6(_)) => 3,
                (true, _) => 4,
            };
            rows.push((rank, Gid { raw: gid_of(*address), interface: interface.index }));
        }
    }
    rows.sort_by_key(|(rank, _)| *rank);
    rows.into_iter().map(|(_, gid)| gid).collect()
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
    pass_when_off!(ibv_query_gid(context, port, index, gid), pass::query::query_gid);
    // SAFETY: open by contract.
    if let Err(code) = unsafe { check_device(context) } {
        return errno::minus_one(code);
    }
    // SAFETY: open by contract.
    let device = unsafe { device_of(context) };
    let rows = table_len(device.kind) as c_int;
    if port != PORT || !(0..rows).contains(&index) {
        return errno::minus_one(libc::EINVAL);
    }
    let raw = table(device).get(index as usize).map_or([0; 16], |g| g.raw);
    // SAFETY: writable by contract.
    unsafe { gid.write(ibv_gid { raw }) };
    0
}

/// `ibv_query_gid_ex` behind its inline wrapper; an empty row answers `ENODATA`.
///
/// # Safety
/// `context` is open; `entry` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    pass_when_off!(
        _ibv_query_gid_ex(context, port, index, entry, flags, size),
        pass::query::query_gid_ex
    );
    // SAFETY: open by contract.
    if let Err(code) = unsafe { check_device(context) } {
        return errno::code(code);
    }
    // SAFETY: open by contract.
    let device = unsafe { device_of(context) };
    if flags != 0 || port != u32::from(PORT) || index >= table_len(device.kind) {
        return errno::code(libc::EINVAL);
    }
    let table = table(device);
    let found = table.get(index as usize).filter(|gid| !gid.is_empty());
    let Some(gid) = found else { return errno::code(libc::ENODATA) };
    // SAFETY: `entry` has `size` bytes by contract.
    unsafe { copy_prefix(&row(device.kind, index, *gid), entry, size) };
    0
}

fn row(kind: DeviceKind, index: u32, gid: Gid) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: gid.raw },
        gid_index: index,
        port_num: u32::from(PORT),
        gid_type: match kind {
            DeviceKind::Iwarp => IBV_GID_TYPE_IB,
            DeviceKind::Roce => IBV_GID_TYPE_ROCE_V2,
        },
        ndev_ifindex: gid.interface,
    }
}

/// `ibv_query_gid_table` behind its inline wrapper: the number of rows, or a negative errno.
///
/// # Safety
/// `context` is open; `entries` has room for `room` rows of `size` bytes each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    room: usize,
    flags: u32,
    size: usize,
) -> isize {
    pass_when_off!(
        _ibv_query_gid_table(context, entries, room, flags, size),
        pass::query::query_gid_table
    );
    // SAFETY: open by contract.
    if let Err(code) = unsafe { check_device(context) } {
        return -(code as isize);
    }
    // SAFETY: open by contract.
    let device = unsafe { device_of(context) };
    let table = table(device);
    let used = || table.iter().enumerate().filter(|(_, gid)| !gid.is_empty());
    let count = used().count();
    if flags != 0 || count > room || size == 0 {
        return -(libc::EINVAL as isize);
    }
    for (place, (index, gid)) in used().enumerate() {
        let to = entries.cast::<u8>().wrapping_add(place * size).cast::<ibv_gid_entry>();
        // SAFETY: row `place` is within the `room` rows of `size` bytes.
        unsafe { copy_prefix(&row(device.kind, index as u32, *gid), to, size) };
    }
    count as isize
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
    // SAFETY: open by contract.
    let device = unsafe { device_of(context) };
    if port != PORT || index >= table_len(device.kind) {
        return errno::minus_one(libc::EINVAL);
    }
    let value = match device.kind {
        DeviceKind::Iwarp => IBV_GID_TYPE_SYSFS_IB,
        DeviceKind::Roce => IBV_GID_TYPE_SYSFS_ROCE_V2,
    };
    // SAFETY: writable by contract.
    unsafe { kind.write(value) };
    0
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn interface(index: u32, loopback: bool, addresses: &[&str]) -> NetInterface {
        NetInterface {
            name: vec![b'x'],
            index,
            loopback,
            mac: (!loopback).then_some([2, 0, 0, 0, 0, index as u8]),
            mtu: 1500,
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn rows_of_addresses_that_are_gone_or_have_moved_are_empty() {
        let row = |last| Gid { raw: [last; 16], interface: 1 };
        let rows = || vec![row(1), row(2)];
        let moved = DeviceState { gids_moved: 1, ..DeviceState::default() };
        let expected = [Gid::EMPTY, row(1), row(2)];
        assert_eq!(change(rows(), DeviceKind::Roce, moved), expected);
        assert_eq!(change(rows(), DeviceKind::Iwarp, moved), [row(1), Gid::EMPTY, row(2)]);
        let gone = DeviceState { addresses_gone: true, ..DeviceState::default() };
        assert_eq!(change(rows(), DeviceKind::Roce, gone), []);
        assert_eq!(change(rows(), DeviceKind::Iwarp, gone), [row(1)]);
        assert_eq!(change(rows(), DeviceKind::Roce, DeviceState::default()), rows());
    }

    #[test]
    fn an_rnic_has_its_mac_and_then_the_addresses() {
        let all =
            [interface(2, false, &["192.0.2.7", "fe80::1"]), interface(1, true, &["127.0.0.1"])];
        let table = rnic_rows(DeviceKind::Iwarp.into(), &all);
        assert_eq!(table.len(), 3);
        assert_eq!(table[0].raw[..7], [2, 0, 0, 0, 0, 2, 0]);
        assert_eq!(table[1].raw, gid_of("::ffff:192.0.2.7".parse().unwrap()));
        assert_eq!(table[2].raw, gid_of("fe80::1".parse().unwrap()));
        assert!(table.iter().all(|g| g.interface == 2));
    }

    #[test]
    fn loopback_serves_when_there_is_nothing_else() {
        let table = rnic_rows(DeviceKind::Iwarp.into(), &[interface(1, true, &["127.0.0.1"])]);
        assert_eq!(table.len(), 2);
        assert_ne!(table[0].raw, [0; 16]);
        assert_eq!(table[1].raw[10..], [0xff, 0xff, 127, 0, 0, 1]);
    }

    #[test]
    fn an_adapter_has_every_address_and_the_ones_to_be_used_first() {
        let all = [
            interface(2, false, &["fe80::2"]),
            interface(3, false, &["192.0.2.7", "2001:db8::7", "fe80::3"]),
            interface(4, false, &["192.0.2.9"]),
            interface(1, true, &["127.0.0.1", "::1"]),
        ];
        let rows = adapter_rows(&all);
        let shown: Vec<(String, u32)> = rows
            .iter()
            .map(|g| (Ipv6Addr::from(g.raw).to_canonical().to_string(), g.interface))
            .collect();
        let expected = [
            ("fe80::3", 3),
            ("192.0.2.7", 3),
            ("192.0.2.9", 4),
            ("2001:db8::7", 3),
            ("fe80::2", 2),
            ("127.0.0.1", 1),
            ("::1", 1),
        ];
        assert_eq!(shown, expected.map(|(a, i)| (a.to_string(), i)));
        let alone = adapter_rows(&[interface(1, true, &["127.0.0.1", "::1"])]);
        assert_eq!(alone[0].raw, gid_of("127.0.0.1".parse().unwrap()));
    }
}
