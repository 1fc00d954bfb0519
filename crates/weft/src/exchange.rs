//! Connections between queue pairs whose applications carry their addresses to each other.

use std::net::IpAddr;

use weft_verbs::{QpAttr, QpAttrMask, QpState, QpType};

use crate::address::{Address, check_local};
use crate::qp::QueuePair;
use crate::{Error, Result};

/// InfiniBand's code for packets of 4096 bytes.
const MTU_4096: u8 = 5;
/// Reads and Atomics of a queue pair that are outstanding at once.
const READS: u8 = 16;
/// A packet is repeated 7 times, first after 4.096 us times two to this power: 1 s.
const TIMEOUT: u8 = 18;
/// The highest count of three bits; for messages without a receive it means for ever.
const RETRIES: u8 = 7;
/// Numbers of queue pairs have 24 bits.
const NUMBER_MAX: u32 = (1 << 24) - 1;
/// InfiniBand's code for 0.64 ms.
const RNR_TIMER: u8 = 12;

impl QueuePair {
    /// Its address, where `ip` is one of this host that the peer reaches.
    pub fn address(&self, ip: IpAddr) -> Address {
        Address { ip, number: self.number(), qkey: self.options().qkey }
    }

    /// Connects it to the queue pair at `peer`, from the address `local` of this host. The peer
    /// does the same, in any order, and each end names the address that the other one connects
    /// from. What is posted before the peer has done so waits. If the peer never
    /// comes, that fails with [`WcStatus::RetryExcErr`](crate::WcStatus::RetryExcErr), after 10 s
    /// on [`DeviceKind::Roce`](crate::DeviceKind::Roce) and after 60 s on
    /// [`DeviceKind::Iwarp`](crate::DeviceKind::Iwarp). Receives alone wait without end, also
    /// when the peer has come and gone: see [`QueuePair::fail`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for a queue pair that has a peer or had one, or is for datagrams, and for
    /// a number of more than 24 bits; [`Error::System`] if `local` is no address of this host;
    /// [`Error::Forbidden`] if this host has no key for the peer.
    pub fn connect_to(&self, local: IpAddr, peer: Address) -> Result<()> {
        use QpAttrMask as Mask;
        let during = "connecting a queue pair";
        let kind = self.options().kind;
        if kind == QpType::Ud {
            return Err(Error::invalid(during, "a datagram names its peer itself"));
        }
        // What a reset of the device has ended is told so below.
        if !matches!(self.state(), QpState::Init | QpState::Err) {
            let why = "it has a peer or had one, and each connection needs a new queue pair";
            return Err(Error::invalid(during, why));
        }
        if peer.number > NUMBER_MAX {
            return Err(Error::invalid(during, "the number of a queue pair has 24 bits"));
        }
        check_local(during, local)?;
        let attr = QpAttr {
            port: 1,
            path: peer.path(local),
            path_mtu: MTU_4096,
            dest_qp_num: peer.number,
            max_dest_rd_atomic: READS,
            max_rd_atomic: READS,
            min_rnr_timer: RNR_TIMER,
            timeout: TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: RETRIES,
            ..QpAttr::default()
        };
        let mut rtr = Mask::AV | Mask::PATH_MTU | Mask::DEST_QPN | Mask::RQ_PSN;
        let mut rts = Mask::SQ_PSN;
        if kind == QpType::Rc {
            rtr |= Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER;
            rts |= Mask::TIMEOUT | Mask::RETRY_CNT | Mask::RNR_RETRY | Mask::MAX_QP_RD_ATOMIC;
        }
        self.step(during, &attr, QpState::Rtr, rtr)?;
        self.step(during, &attr, QpState::Rts, rts)
    }
}
