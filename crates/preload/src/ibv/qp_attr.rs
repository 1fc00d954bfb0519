//! The attributes of queue pairs and address handles, between C's structures and Weft's.
//!
//! An application fills only what its mask names; the rest is not looked at.

use std::ffi::c_int;
use std::mem;

use weft_host::{DeviceId, DeviceKind};
use weft_verbs::{Access, AddressVector, AlternatePath, QpAttr, QpAttrMask, QpCap, QpState};

use super::gid::{self, Gid};
use weft_verbs_abi::*;

/// The attributes that `mask` names; `None` where a value is none, or a GID is not there.
pub fn from_c(attr: &ibv_qp_attr, mask: QpAttrMask, device: DeviceId) -> Option<QpAttr> {
    let state = |raw: c_int| u32::try_from(raw).ok().and_then(QpState::from_raw);
    let has = |bit| mask.contains(bit);
    let mut wanted = QpAttr {
        sqd_notify: attr.en_sqd_async_notify != 0,
        pkey_index: attr.pkey_index,
        port: attr.port_num,
        qkey: attr.qkey,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        rq_psn: attr.rq_psn,
        max_rd_atomic: attr.max_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        sq_psn: attr.sq_psn,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        dest_qp_num: attr.dest_qp_num,
        rate_limit: attr.rate_limit,
        ..QpAttr::default()
    };
    if has(QpAttrMask::STATE) {
        wanted.state = state(attr.qp_state)?;
    }
    if has(QpAttrMask::CUR_STATE) {
        wanted.cur_state = state(attr.cur_qp_state)?;
    }
    if has(QpAttrMask::ACCESS_FLAGS) {
        // Drivers take the right to an operation that the device does not have for nothing.
        wanted.access = Access::from_user(attr.qp_access_flags & !IBV_ACCESS_FLUSH)?;
    }
    if has(QpAttrMask::AV) {
        wanted.path = path_from_c(&attr.ah_attr, device)?;
    }
    if has(QpAttrMask::PATH_MTU) {
        wanted.path_mtu = u8::try_from(attr.path_mtu).ok()?;
    }
    if has(QpAttrMask::PATH_MIG_STATE) {
        wanted.path_mig_state = u8::try_from(attr.path_mig_state).ok()?;
    }
    if has(QpAttrMask::ALT_PATH) {
        wanted.alternate = AlternatePath {
            path: path_as_is(&attr.alt_ah_attr),
            pkey_index: attr.alt_pkey_index,
            port: attr.alt_port_num,
            timeout: attr.alt_timeout,
        };
    }
    Some(wanted)
}

/// All attributes, in C's structure.
pub fn to_c(attr: &QpAttr) -> ibv_qp_attr {
    // SAFETY: all zeroes is valid: integers.
    let mut full: ibv_qp_attr = unsafe { mem::zeroed() };
    full.qp_state = attr.state as c_int;
    full.cur_qp_state = attr.cur_state as c_int;
    full.path_mtu = c_int::from(attr.path_mtu);
    full.path_mig_state = c_int::from(attr.path_mig_state);
    full.qkey = attr.qkey;
    full.rq_psn = attr.rq_psn;
    full.sq_psn = attr.sq_psn;
    full.dest_qp_num = attr.dest_qp_num;
    full.qp_access_flags = attr.access.bits();
    full.cap = cap_to_c(attr.cap);
    full.ah_attr = path_to_c(&attr.path);
    full.alt_ah_attr = path_to_c(&attr.alternate.path);
    full.pkey_index = attr.pkey_index;
    full.alt_pkey_index = attr.alternate.pkey_index;
    full.en_sqd_async_notify = u8::from(attr.sqd_notify);
    full.sq_draining = u8::from(attr.sq_draining);
    full.max_rd_atomic = attr.max_rd_atomic;
    full.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    full.min_rnr_timer = attr.min_rnr_timer;
    full.port_num = attr.port;
    full.timeout = attr.timeout;
    full.retry_cnt = attr.retry_cnt;
    full.rnr_retry = attr.rnr_retry;
    full.alt_port_num = attr.alternate.port;
    full.alt_timeout = attr.alternate.timeout;
    full.rate_limit = attr.rate_limit;
    full
}

/// Capacities, in C's structure.
pub fn cap_to_c(cap: QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// A path with the GID that its index stands for now; `None` if there is no such row. An adapter's
/// port on Ethernet has no LID that a path without GIDs could name.
pub fn path_from_c(attr: &ibv_ah_attr, device: DeviceId) -> Option<AddressVector> {
    let mut path = path_as_is(attr);
    let rnic = device.kind == DeviceKind::Iwarp;
    if !path.is_global {
        return rnic.then_some(path);
    }
    let row = gid::table(device).get(usize::from(path.sgid_index)).copied();
    let row = row.filter(|row| !row.is_empty());
    // Applications that leave the connection to rdma-cm may name any row of an RNIC.
    let row = if rnic { row.unwrap_or(Gid { raw: path.sgid, interface: 0 }) } else { row? };
    (path.sgid, path.interface) = (row.raw, row.interface);
    Some(path)
}

fn path_as_is(attr: &ibv_ah_attr) -> AddressVector {
    AddressVector {
        sgid: [0; 16],
        interface: 0,
        sgid_index: attr.grh.sgid_index,
        is_global: attr.is_global != 0,
        dgid: attr.grh.dgid.raw,
        flow_label: attr.grh.flow_label,
        hop_limit: attr.grh.hop_limit,
        traffic_class: attr.grh.traffic_class,
        dlid: attr.dlid,
        sl: attr.sl,
        src_path_bits: attr.src_path_bits,
        static_rate: attr.static_rate,
        port: attr.port_num,
    }
}

/// The row of `device` that a path begins at: rdma-cm knows the address only.
pub fn sgid_index(path: &AddressVector, device: DeviceId) -> u8 {
    let rows = gid::table(device);
    let stands_for_it = |row: &Gid| row.raw == path.sgid;
    if rows.get(usize::from(path.sgid_index)).is_some_and(stands_for_it) {
        return path.sgid_index;
    }
    let row = rows.iter().position(stands_for_it).and_then(|row| u8::try_from(row).ok());
    row.unwrap_or(path.sgid_index)
}

/// A path as the application set it.
fn path_to_c(path: &AddressVector) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: path.dgid },
            flow_label: path.flow_label,
            sgid_index: path.sgid_index,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
        },
        dlid: path.dlid,
        sl: path.sl,
        src_path_bits: path.src_path_bits,
        static_rate: path.static_rate,
        is_global: u8::from(path.is_global),
        port_num: path.port,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr() -> ibv_qp_attr {
        // SAFETY: all zeroes is valid: integers.
        unsafe { mem::zeroed() }
    }

    #[test]
    fn attributes_come_back_as_they_were_set() {
        let mut given = attr();
        (given.timeout, given.retry_cnt, given.path_mtu) = (14, 7, 3);
        (given.dest_qp_num, given.sq_psn, given.alt_timeout) = (0x12_3456, 9, 5);
        (given.ah_attr.grh.dgid.raw[15], given.ah_attr.is_global) = (7, 1);
        let mask = QpAttrMask::AV | QpAttrMask::PATH_MTU | QpAttrMask::ALT_PATH;
        let back = to_c(&from_c(&given, mask, DeviceKind::Iwarp.into()).unwrap());
        assert_eq!((back.timeout, back.retry_cnt, back.path_mtu), (14, 7, 3));
        assert_eq!((back.dest_qp_num, back.sq_psn, back.alt_timeout), (0x12_3456, 9, 5));
        assert_eq!((back.ah_attr.grh.dgid.raw[15], back.ah_attr.is_global), (7, 1));
    }

    #[test]
    fn values_that_are_none_are_refused_where_the_mask_names_them() {
        let mut given = attr();
        (given.qp_state, given.path_mtu) = (99, -1);
        let parse = |mask| from_c(&given, mask, DeviceKind::Roce.into());
        assert!(parse(QpAttrMask::STATE).is_none());
        assert!(parse(QpAttrMask::PATH_MTU).is_none());
        assert!(parse(QpAttrMask::TIMEOUT).is_some());
    }

    #[test]
    fn an_index_stands_for_the_gid_in_its_row() {
        let rows = gid::table(DeviceKind::Roce.into());
        let mut given = attr().ah_attr;
        given.is_global = 1;
        given.grh.sgid_index = (rows.len() - 1) as u8;
        let path = path_from_c(&given, DeviceKind::Roce.into()).unwrap();
        assert_eq!(path.sgid, rows.last().unwrap().raw);
        given.grh.sgid_index = rows.len() as u8;
        assert!(path_from_c(&given, DeviceKind::Roce.into()).is_none());
        given.is_global = 0;
        given.grh.sgid_index = 0;
        assert!(path_from_c(&given, DeviceKind::Roce.into()).is_none());
        assert!(path_from_c(&given, DeviceKind::Iwarp.into()).is_some());
    }
}
