//! Attributes of a queue pair for the path that an id has found.

use std::ffi::c_int;
use std::mem;
use std::net::IpAddr;

use weft_host::DeviceKind;
use weft_rdmacm::{CmId, HOP_LIMIT, PortSpace, RETRIES_MAX};
use weft_verbs::{Access, QpAttrMask as Mask, QpState};

use super::object::PKEY_DEFAULT;
use super::sockaddr;
use crate::ibv::{gid, query};
use weft_verbs_abi::cma::{RDMA_UDP_QKEY, ibv_sa_path_rec};
use weft_verbs_abi::{ibv_ah_attr, ibv_gid, ibv_qp_attr};

/// InfiniBand's largest packet, and what its connection manager sets on Ethernet: the time that an
/// acknowledgement has, and a receiver that is not ready.
const MTU_4096: c_int = 5;
const ACK_TIMEOUT: u8 = 19;
const MIN_RNR_TIMER: u8 = 0;
/// Those that a datagram to a group takes, and the least LID of a group.
const GROUP_HOP_LIMIT: u8 = 1;
const GROUP_LID: u16 = 0xc000;

/// In a path record: exactly what it says, and the time that Linux assumes on Ethernet that a
/// packet takes, 4.096 us x 2^16.
const EXACTLY: u8 = 2;
const PACKET_LIFE_TIME: u8 = 16;

/// The path to the peer as the connection manager of an adapter on Ethernet has it. There is none
/// over iWARP.
pub fn path_record(cm: &CmId) -> Option<ibv_sa_path_rec> {
    let device = cm.device().filter(|device| device.kind == DeviceKind::Roce)?;
    // SAFETY: zeroes are a valid record.
    let zeroes: ibv_sa_path_rec = unsafe { mem::zeroed() };
    Some(ibv_sa_path_rec {
        dgid: sockaddr::gid(cm.peer_addr()),
        sgid: sockaddr::gid(cm.local_addr()),
        hop_limit: HOP_LIMIT,
        traffic_class: cm.tos(),
        reversible: 1,
        numb_path: 1,
        pkey: PKEY_DEFAULT.to_be(),
        mtu_selector: EXACTLY,
        mtu: query::port_attr(device).active_mtu as u8,
        rate_selector: EXACTLY,
        packet_life_time_selector: EXACTLY,
        packet_life_time: PACKET_LIFE_TIME,
        ..zeroes
    })
}

/// The address vector of the way to the peer.
pub fn ah_attr(cm: &CmId) -> ibv_ah_attr {
    ah_attr_to(cm, sockaddr::gid(cm.peer_addr()), HOP_LIMIT)
}

/// The address vector of the way to a group.
pub fn group_ah_attr(cm: &CmId, group: IpAddr) -> ibv_ah_attr {
    let mut path = ah_attr_to(cm, sockaddr::gid(Some((group, 0).into())), GROUP_HOP_LIMIT);
    path.dlid = GROUP_LID;
    path
}

fn ah_attr_to(cm: &CmId, dgid: ibv_gid, hop_limit: u8) -> ibv_ah_attr {
    // SAFETY: zeroes are a valid address vector.
    let mut path: ibv_ah_attr = unsafe { mem::zeroed() };
    let own = sockaddr::gid(cm.local_addr());
    let table = cm.device().map(gid::table).unwrap_or_default();
    let row = table.iter().position(|row| row.raw == own.raw);
    path.is_global = 1;
    path.port_num = 1;
    path.grh.dgid = dgid;
    path.grh.sgid_index = row.and_then(|row| u8::try_from(row).ok()).unwrap_or(0);
    path.grh.hop_limit = hop_limit;
    path
}

/// Fills in what the state in `attr` needs; gives the mask of it, or nothing if no connection has
/// to do with that state.
pub fn attributes(cm: &CmId, attr: &mut ibv_qp_attr) -> Option<c_int> {
    let state = QpState::from_raw(u32::try_from(attr.qp_state).ok()?)?;
    let mask = match (cm.personality(), cm.space()) {
        (DeviceKind::Iwarp, _) => of_rnic(state, attr)?,
        (DeviceKind::Roce, PortSpace::Tcp) => of_adapter(cm, state, attr)?,
        (DeviceKind::Roce, PortSpace::Udp) => of_datagrams(state, attr)?,
    };
    Some(mask.bits() as c_int)
}

/// Rights on the way to it, and nothing for the state that only a connection leads to.
fn of_rnic(state: QpState, attr: &mut ibv_qp_attr) -> Option<Mask> {
    match state {
        QpState::Init | QpState::Rtr => {
            attr.qp_access_flags = (Access::REMOTE_WRITE | Access::REMOTE_READ).bits() as _;
            Some(Mask::STATE | Mask::ACCESS_FLAGS)
        }
        QpState::Rts => Some(Mask::empty()),
        _ => None,
    }
}

fn of_adapter(cm: &CmId, state: QpState, attr: &mut ibv_qp_attr) -> Option<Mask> {
    let (ird, ord) = cm.depths();
    let terms = cm.terms();
    match state {
        QpState::Init => {
            (attr.pkey_index, attr.port_num) = (0, 1);
            let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
            attr.qp_access_flags = rights.bits() as _;
            Some(Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::ACCESS_FLAGS)
        }
        QpState::Rtr => {
            attr.ah_attr = ah_attr(cm);
            attr.path_mtu = MTU_4096;
            attr.dest_qp_num = cm.peer_qp_num();
            attr.rq_psn = 0;
            attr.max_dest_rd_atomic = ird.min(255) as u8;
            attr.min_rnr_timer = MIN_RNR_TIMER;
            let path = Mask::AV | Mask::PATH_MTU | Mask::DEST_QPN | Mask::RQ_PSN;
            Some(Mask::STATE | path | Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER)
        }
        QpState::Rts => {
            attr.timeout = cm.ack_timeout().unwrap_or(ACK_TIMEOUT);
            attr.retry_cnt = terms.retry_count.min(RETRIES_MAX);
            attr.rnr_retry = terms.rnr_retry_count.min(RETRIES_MAX);
            attr.sq_psn = 0;
            attr.max_rd_atomic = ord.min(255) as u8;
            let retries = Mask::TIMEOUT | Mask::RETRY_CNT | Mask::RNR_RETRY;
            Some(Mask::STATE | retries | Mask::SQ_PSN | Mask::MAX_QP_RD_ATOMIC)
        }
        _ => None,
    }
}

fn of_datagrams(state: QpState, attr: &mut ibv_qp_attr) -> Option<Mask> {
    match state {
        QpState::Init => {
            (attr.pkey_index, attr.port_num, attr.qkey) = (0, 1, RDMA_UDP_QKEY);
            Some(Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::QKEY)
        }
        QpState::Rtr => Some(Mask::STATE),
        QpState::Rts => {
            attr.sq_psn = 0;
            Some(Mask::STATE | Mask::SQ_PSN)
        }
        _ => None,
    }
}
