//! Groups that queue pairs for datagrams are attached to. The GID of a group is its IP address.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr};

use weft_host::{DeviceKind, HostQp};
use weft_verbs::Misuse;

use super::qp;
use crate::errno::{self, needs_memory};
use crate::net;
use crate::real::pass_when_off;
use weft_verbs_abi::*;

/// The network interfaces by which datagrams to a group of an id with the address `local` come.
pub fn interfaces_of(local: Option<IpAddr>) -> Vec<u32> {
    let all = net::interfaces();
    let of_local = |i: &&net::NetInterface| local.is_none_or(|local| i.addresses.contains(&local));
    all.iter().filter(of_local).map(|i| i.index).collect()
}

/// # Safety
/// `qp` is alive and `gid` readable.
unsafe fn change(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    change: impl FnOnce(&HostQp, IpAddr) -> Result<(), Misuse>,
) -> c_int {
    // SAFETY: alive by contract.
    let tail = unsafe { qp::tail(qp) };
    if tail.personality() == DeviceKind::Iwarp {
        return errno::code(libc::EOPNOTSUPP);
    }
    // SAFETY: readable by contract.
    let group = Ipv6Addr::from(unsafe { (*gid).raw }).to_canonical();
    errno::positive(change(&tail.core, group))
}

/// `ibv_attach_mcast`: by every network interface.
///
/// # Safety
/// `qp` is alive and `gid` readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    pass_when_off!(ibv_attach_mcast(qp, gid, lid));
    needs_memory!(errno::code);
    // SAFETY: as this function's contract.
    unsafe { change(qp, gid, |core, group| core.attach_group(group, &interfaces_of(None))) }
}

/// `ibv_detach_mcast`.
///
/// # Safety
/// `qp` is alive and `gid` readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    pass_when_off!(ibv_detach_mcast(qp, gid, lid));
    // SAFETY: as this function's contract.
    unsafe { change(qp, gid, HostQp::detach_group) }
}
