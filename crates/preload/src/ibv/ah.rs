//! Address handles: where a datagram goes.
//!
//! A handle is a path that was found good when it was made. One is also made from what a received
//! datagram brought: its route header, which stands before the payload, names both ends.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use weft_fault::Verb;
use weft_host::{DeviceId, DeviceKind};
use weft_net::path;
use weft_verbs::usage::InUse;
use weft_verbs::{AddressVector, Destination, Misuse, Pd, WcFlags};

use super::context::Held;
use super::gid::{self, gid_of};
use super::object::{Object, handle};
use super::query::{PORT, device_of};
use super::{pd_mr, qp_attr};
use crate::errno::{self, needs_memory};
use crate::pass;
use crate::real::pass_when_off;
use crate::{net, rdma};
use weft_verbs_abi::*;

/// Private tail of the C structure of an address handle.
pub struct AhTail {
    /// The addresses and the hop limit of its path.
    pub path: AddressVector,
    _pd: InUse<Pd>,
    _context: Held,
}

type AhObject = Object<ibv_ah, AhTail>;

/// The private tail of `ah`.
///
/// # Safety
/// `ah` came from [`ibv_create_ah`] and is not destroyed while the reference lives.
pub unsafe fn tail<'a>(ah: *mut ibv_ah) -> &'a AhTail {
    // SAFETY: as this function's contract.
    unsafe { AhObject::tail(ah) }
}

/// The destination of a datagram that names `ah`.
///
/// # Safety
/// `ah` is NULL or alive.
pub unsafe fn destination(ah: *mut ibv_ah, qpn: u32, qkey: u32) -> Result<Destination, Misuse> {
    if ah.is_null() {
        return Err(Misuse::Invalid("a datagram needs an address handle"));
    }
    // SAFETY: alive by contract.
    let path = unsafe { tail(ah) }.path;
    Ok(Destination { path, qpn, qkey })
}

/// `ibv_create_ah`: an RNIC has no datagrams to send.
///
/// # Safety
/// `pd` is alive and `attr` readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    pass_when_off!(ibv_create_ah(pd, attr), pass::calls::create_ah);
    needs_memory!(errno::null);
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    // SAFETY: the context of a live domain is open.
    let held = unsafe { Held::new(context) };
    if held.tail().core.personality() == DeviceKind::Iwarp {
        return errno::null(libc::EOPNOTSUPP);
    }
    if let Err(misuse) = held.tail().core.refuse(Verb::CreateAh) {
        return errno::null(misuse.errno());
    }
    // SAFETY: readable by contract.
    let attr = unsafe { &*attr };
    let found = qp_attr::path_from_c(attr, held.tail().core.id());
    let ends = found.as_ref().and_then(|path| path::ends(path, true).ok());
    let (Some(path), Some((local, remote))) = (found, ends) else {
        return errno::null(libc::EINVAL);
    };
    let secrecy = rdma::host().secrecy();
    let permitted = match remote.is_multicast() {
        true => secrecy.permit_groups(),
        false => secrecy.permit(local, remote),
    };
    if let Err(refused) = permitted {
        return errno::null(refused.errno());
    }
    if !remote.is_multicast() {
        secrecy.add_destination(remote);
    }
    // SAFETY: alive by contract.
    let domain = &unsafe { pd_mr::pd_tail(pd) }.core;
    let tail = AhTail { path, _pd: InUse::of(domain), _context: held };
    AhObject::make(ibv_ah { context, pd, handle: handle() }, tail)
}

/// `ibv_destroy_ah`. Datagrams that were posted with it are not affected.
///
/// # Safety
/// `ah` is alive and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    pass_when_off!(ibv_destroy_ah(ah));
    // SAFETY: alive by contract, and not used afterwards.
    unsafe { AhObject::free(ah) };
    0
}

/// `ibv_init_ah_from_wc`: the way back to the sender of a datagram.
///
/// # Safety
/// `context` is open; `wc` is readable, and `grh` too, with 40 bytes, if the completion says that
/// there is one; `attr` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut c_void,
    attr: *mut ibv_ah_attr,
) -> c_int {
    pass_when_off!(ibv_init_ah_from_wc(context, port, wc, grh, attr));
    // SAFETY: open by contract.
    let device = unsafe { device_of(context) };
    // SAFETY: readable by contract.
    let wc = unsafe { &*wc };
    let flags = WcFlags::from_bits_retain(wc.wc_flags);
    if port != PORT || device.kind == DeviceKind::Iwarp || !flags.contains(WcFlags::GRH) {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: 40 readable bytes by contract.
    let header = unsafe { ptr::read_unaligned(grh.cast::<[u8; 40]>()) };
    let route = AhRoute::read(&header);
    let Some(sgid_index) = row_of(device, route.to) else {
        return errno::minus_one(libc::ENOENT);
    };
    let back = ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: gid_of(route.from) },
            flow_label: route.flow_label,
            sgid_index,
            hop_limit: 0xff,
            traffic_class: route.traffic_class,
        },
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        static_rate: 0,
        is_global: 1,
        port_num: port,
    };
    // SAFETY: writable by contract.
    unsafe { attr.write(back) };
    0
}

/// `ibv_create_ah_from_wc`.
///
/// # Safety
/// `pd` is alive; `wc` is readable, and `grh` too, with 40 bytes, if the completion says that
/// there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut c_void,
    port: u8,
) -> *mut ibv_ah {
    pass_when_off!(ibv_create_ah_from_wc(pd, wc, grh, port));
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    // SAFETY: all zeroes is valid: integers.
    let mut attr: ibv_ah_attr = unsafe { std::mem::zeroed() };
    // SAFETY: as this function's contract.
    if unsafe { ibv_init_ah_from_wc(context, port, wc, grh, &raw mut attr) } != 0 {
        return ptr::null_mut();
    }
    // SAFETY: as this function's contract.
    unsafe { ibv_create_ah(pd, &raw mut attr) }
}

/// `ibv_resolve_eth_l2_from_gid`: the Ethernet address behind a GID where it is plain to see: one
/// of this machine, or a link-local address that was made from it.
///
/// # Safety
/// `attr` is readable; `mac` has room for six bytes and `vlan` for one number, unless NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut ibv_context,
    attr: *mut ibv_ah_attr,
    mac: *mut u8,
    vlan: *mut u16,
) -> c_int {
    pass_when_off!(ibv_resolve_eth_l2_from_gid(context, attr, mac, vlan));
    const NO_VLAN: u16 = 0xffff;
    // SAFETY: readable by contract.
    let raw = unsafe { (*attr).grh.dgid.raw };
    let Some(found) = mac_of(Ipv6Addr::from(raw).to_canonical()) else {
        return errno::code(libc::EHOSTUNREACH);
    };
    // SAFETY: room for six bytes by contract.
    unsafe { mac.cast::<[u8; 6]>().write(found) };
    if !vlan.is_null() {
        // SAFETY: writable by contract.
        unsafe { vlan.write(NO_VLAN) };
    }
    0
}

fn mac_of(address: IpAddr) -> Option<[u8; 6]> {
    if let Some(own) = net::interfaces().iter().find(|i| i.addresses.contains(&address)) {
        return Some(own.mac.unwrap_or_default());
    }
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => match v6.octets()[8..] {
            [a, b, c, 0xff, 0xfe, d, e, f] => Some([a ^ 2, b, c, d, e, f]),
            _ => None,
        },
        _ => None,
    }
}

/// The row of the GID that a datagram came to; for one that came to a group any of its family.
fn row_of(device: DeviceId, to: IpAddr) -> Option<u8> {
    let rows = gid::table(device);
    let is_v4 = |raw: [u8; 16]| Ipv6Addr::from(raw).to_ipv4_mapped().is_some();
    let found = rows.iter().position(|row| match to.is_multicast() {
        true => is_v4(row.raw) == to.is_ipv4(),
        false => row.raw == gid_of(to),
    });
    found.and_then(|row| u8::try_from(row).ok())
}

/// Addresses and traffic class from a route header.
#[derive(Debug, PartialEq, Eq)]
struct AhRoute {
    from: IpAddr,
    to: IpAddr,
    traffic_class: u8,
    flow_label: u32,
}

impl AhRoute {
    /// Reads the header before the payload of a datagram: one of IPv6, or one of IPv4 in the last
    /// 20 bytes, which its version, length and checksum tell.
    fn read(header: &[u8; 40]) -> Self {
        if let Some(v4) = header.last_chunk::<20>()
            && v4[0] == 0x45
            && is_sound(v4)
        {
            let at = |i: usize| Ipv4Addr::new(v4[i], v4[i + 1], v4[i + 2], v4[i + 3]).into();
            return Self { from: at(12), to: at(16), traffic_class: v4[1], flow_label: 0 };
        }
        let gid = |i: usize| -> [u8; 16] { std::array::from_fn(|at| header[i + at]) };
        let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        Self {
            from: Ipv6Addr::from(gid(8)).to_canonical(),
            to: Ipv6Addr::from(gid(24)).to_canonical(),
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0x000f_ffff,
        }
    }
}

/// Whether the checksum of an IPv4 header is right, RFC 1071.
fn is_sound(header: &[u8; 20]) -> bool {
    let words = header.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_headers_of_both_families_name_both_ends() {
        let mut header = [0u8; 40];
        let v4 = [0x45, 7, 0, 60, 0, 0, 0, 0, 64, 17, 0xf6, 0xa6, 192, 0, 2, 1, 192, 0, 2, 2];
        header[20..].copy_from_slice(&v4);
        let route = AhRoute::read(&header);
        assert_eq!(route.from, "192.0.2.1".parse::<IpAddr>().unwrap());
        assert_eq!(route.to, "192.0.2.2".parse::<IpAddr>().unwrap());
        assert_eq!(route.traffic_class, 7);

        header[30] ^= 1;
        assert!(AhRoute::read(&header).from.is_ipv6());
        let mut header = [0u8; 40];
        header[..4].copy_from_slice(&[0x61, 0x23, 0x45, 0x67]);
        header[23] = 1;
        header[39] = 2;
        let (from, to) = ("::1".parse().unwrap(), "::2".parse().unwrap());
        let expected = AhRoute { from, to, traffic_class: 0x12, flow_label: 0x34567 };
        assert_eq!(AhRoute::read(&header), expected);
    }

    #[test]
    fn ethernet_addresses_are_found_where_they_are_plain_to_see() {
        assert_eq!(mac_of(Ipv4Addr::LOCALHOST.into()), Some([0; 6]));
        let local = "fe80::0011:22ff:fe33:4455".parse().unwrap();
        assert_eq!(mac_of(local), Some([2, 0x11, 0x22, 0x33, 0x44, 0x55]));
        assert_eq!(mac_of("192.0.2.250".parse().unwrap()), None);
    }
}
