//! The attributes of a queue pair.

use crate::access::Access;
use crate::limits::Limits;
use crate::misuse::Misuse;

/// Service type of a queue pair; the values of `enum ibv_qp_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum QpType {
    /// Reliable connection: all operations.
    #[default]
    Rc = 2,
    /// Unreliable connection: Sends and Writes.
    Uc = 3,
    /// Unreliable datagrams: Sends.
    Ud = 4,
    /// Requester of an extended reliable connection: all operations; each message addresses a
    /// receive queue of the peer.
    XrcSend = 9,
    /// Responder of an extended reliable connection: receives for the queues of its domain.
    XrcRecv = 10,
}

impl QpType {
    /// The type with this value in `enum ibv_qp_type`, if it is one of these.
    pub fn from_raw(raw: u32) -> Option<Self> {
        let all = [Self::Rc, Self::Uc, Self::Ud, Self::XrcSend, Self::XrcRecv];
        all.into_iter().find(|t| *t as u32 == raw)
    }

    /// Whether it is an end of an extended reliable connection.
    pub fn is_xrc(self) -> bool {
        matches!(self, Self::XrcSend | Self::XrcRecv)
    }
}

/// The states of a queue pair; the values of `enum ibv_qp_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum QpState {
    /// After creation or reset.
    #[default]
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue drain: no new request is sent.
    Sqd = 4,
    /// The send queue failed.
    Sqe = 5,
    /// Failed or closed; everything posted is flushed.
    Err = 6,
}

impl QpState {
    /// The state with this value in `enum ibv_qp_state`.
    pub fn from_raw(raw: u32) -> Option<Self> {
        [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqd, Self::Sqe, Self::Err]
            .into_iter()
            .find(|s| *s as u32 == raw)
    }
}

/// Sizes of the queues of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCap {
    /// Send work requests.
    pub max_send_wr: u32,
    /// Receive work requests.
    pub max_recv_wr: u32,
    /// Gather entries of a send.
    pub max_send_sge: u32,
    /// Scatter entries of a receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
}

impl QpCap {
    /// What counts where receives come from elsewhere: those of the queue pair are ignored
    /// (`ibv_create_qp(3)`).
    pub(super) fn without_receives(self) -> Self {
        Self { max_recv_wr: 0, max_recv_sge: 0, ..self }
    }

    /// The sizes that the queue pair gets: at least those asked for, and at least one request of
    /// one entry and 64 bytes of inline data.
    ///
    /// # Errors
    /// [`Misuse::Invalid`] if a size exceeds `limits`.
    pub(super) fn granted(self, limits: &Limits) -> Result<Self, Misuse> {
        let fits = self.max_send_wr <= limits.max_qp_wr
            && self.max_recv_wr <= limits.max_qp_wr
            && self.max_send_sge <= limits.max_sge
            && self.max_recv_sge <= limits.max_sge
            && self.max_inline_data <= limits.max_inline_data;
        if !fits {
            return Err(Misuse::Invalid("the queue pair exceeds the limits of the device"));
        }
        Ok(Self {
            max_send_wr: self.max_send_wr.max(1),
            max_recv_wr: self.max_recv_wr.max(1),
            max_send_sge: self.max_send_sge.max(1),
            max_recv_sge: self.max_recv_sge.max(1),
            max_inline_data: self.max_inline_data.max(64),
        })
    }
}

/// Address of the peer: the values of `ibv_ah_attr`, and the GID that its index stood for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressVector {
    /// This side's GID, which [`Self::sgid_index`] stood for when the vector was set.
    pub sgid: [u8; 16],
    /// The network interface of that GID, as the kernel numbers it; 0 if unknown.
    pub interface: u32,
    /// The row of this side's GID.
    pub sgid_index: u8,
    /// Whether the GIDs count; otherwise the peer is the port itself.
    pub is_global: bool,
    /// The peer's GID: its IPv6 address, or its IPv4 address mapped into one.
    pub dgid: [u8; 16],
    /// Flow label.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Destination LID, which Ethernet does not have.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// Path bits of the source LID.
    pub src_path_bits: u8,
    /// Static rate.
    pub static_rate: u8,
    /// Port, from 1.
    pub port: u8,
}

/// An alternate path. Nothing migrates to it; it is kept for queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlternatePath {
    /// Address of the peer on it.
    pub path: AddressVector,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Port, from 1.
    pub port: u8,
    /// Acknowledgement timeout.
    pub timeout: u8,
}

bitflags::bitflags! {
    /// Which attributes a modify sets; the values of `enum ibv_qp_attr_mask`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QpAttrMask: u32 {
        /// The state.
        const STATE = 1;
        /// The state that the caller believes it is in.
        const CUR_STATE = 1 << 1;
        /// Whether a drained send queue is announced.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// Rights of the peer.
        const ACCESS_FLAGS = 1 << 3;
        /// Index of the partition key.
        const PKEY_INDEX = 1 << 4;
        /// The port.
        const PORT = 1 << 5;
        /// The queue key of datagrams.
        const QKEY = 1 << 6;
        /// Address of the peer.
        const AV = 1 << 7;
        /// Payload bytes of a packet.
        const PATH_MTU = 1 << 8;
        /// Acknowledgement timeout.
        const TIMEOUT = 1 << 9;
        /// Retransmissions of an unanswered packet.
        const RETRY_CNT = 1 << 10;
        /// Retransmissions after receiver-not-ready.
        const RNR_RETRY = 1 << 11;
        /// The first packet number that is expected.
        const RQ_PSN = 1 << 12;
        /// Outbound Reads and Atomics.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// The alternate path.
        const ALT_PATH = 1 << 14;
        /// RNR timer: wait of a peer after receiver-not-ready.
        const MIN_RNR_TIMER = 1 << 15;
        /// The first packet number that is sent.
        const SQ_PSN = 1 << 16;
        /// Inbound Reads and Atomics.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// The state of path migration.
        const PATH_MIG_STATE = 1 << 18;
        /// The sizes.
        const CAP = 1 << 19;
        /// The peer's number.
        const DEST_QPN = 1 << 20;
        /// The rate limit.
        const RATE_LIMIT = 1 << 25;
        /// Bits of later headers.
        const _ = !0;
    }
}

/// Attributes of a queue pair. Those without meaning for a device are kept as set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttr {
    /// The state.
    pub state: QpState,
    /// The state that the caller believes it is in.
    pub cur_state: QpState,
    /// Whether a drained send queue is announced.
    pub sqd_notify: bool,
    /// Whether a draining send queue still has requests under way; only asked, never set.
    pub sq_draining: bool,
    /// Rights of the peer.
    pub access: Access,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Port, from 1.
    pub port: u8,
    /// The queue key of datagrams.
    pub qkey: u32,
    /// Address of the peer.
    pub path: AddressVector,
    /// Payload bytes of a packet, as in `enum ibv_mtu`: 1 is 256, 5 is 4096.
    pub path_mtu: u8,
    /// Acknowledgement timeout: 4.096 us times two to the power of this; 0 is for ever.
    pub timeout: u8,
    /// How often an unanswered packet is repeated, up to 7.
    pub retry_cnt: u8,
    /// How often a packet that found no receive is repeated; 7 is for ever.
    pub rnr_retry: u8,
    /// The first packet number that is expected, 24 bits.
    pub rq_psn: u32,
    /// ORD.
    pub max_rd_atomic: u8,
    /// The alternate path.
    pub alternate: AlternatePath,
    /// How long a peer waits that found no receive, as a row of InfiniBand's table.
    pub min_rnr_timer: u8,
    /// The first packet number that is sent, 24 bits.
    pub sq_psn: u32,
    /// IRD.
    pub max_dest_rd_atomic: u8,
    /// The state of path migration.
    pub path_mig_state: u8,
    /// Sizes.
    pub cap: QpCap,
    /// The peer's number, 24 bits.
    pub dest_qp_num: u32,
    /// The rate limit in kbit/s, which only raw packets have.
    pub rate_limit: u32,
}

/// The waiting times that a receiver without a receive names, in units of 10 us, by their row
/// (InfiniBand architecture, volume 1, table 45).
const RNR_WAITS_10US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl QpAttr {
    /// How long a peer should wait that found no receive, in microseconds.
    pub fn rnr_wait_us(&self) -> u32 {
        10 * RNR_WAITS_10US[usize::from(self.min_rnr_timer & 31)]
    }

    /// Takes over the attributes of `from` that `mask` names, except state and sizes.
    pub fn take(&mut self, from: &Self, mask: QpAttrMask) {
        macro_rules! take {
            ($($bit:ident => $field:ident;)*) => {
                $(if mask.contains(QpAttrMask::$bit) { self.$field = from.$field; })*
            };
        }
        take! {
            EN_SQD_ASYNC_NOTIFY => sqd_notify;
            ACCESS_FLAGS => access;
            PKEY_INDEX => pkey_index;
            PORT => port;
            QKEY => qkey;
            AV => path;
            PATH_MTU => path_mtu;
            TIMEOUT => timeout;
            RETRY_CNT => retry_cnt;
            RNR_RETRY => rnr_retry;
            RQ_PSN => rq_psn;
            MAX_QP_RD_ATOMIC => max_rd_atomic;
            ALT_PATH => alternate;
            MIN_RNR_TIMER => min_rnr_timer;
            SQ_PSN => sq_psn;
            MAX_DEST_RD_ATOMIC => max_dest_rd_atomic;
            PATH_MIG_STATE => path_mig_state;
            DEST_QPN => dest_qp_num;
            RATE_LIMIT => rate_limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_without_a_receive_is_that_of_its_row() {
        let wait = |min_rnr_timer| QpAttr { min_rnr_timer, ..QpAttr::default() }.rnr_wait_us();
        assert_eq!([0, 1, 12, 31].map(wait), [655_360, 10, 640, 491_520]);
        assert!((1..31).all(|row| wait(row) < wait(row + 1)));
    }

    #[test]
    fn queues_as_large_as_the_device_allows_are_granted_and_none_larger_by_one() {
        let limits = crate::limits::IWARP;
        let largest = QpCap {
            max_send_wr: limits.max_qp_wr,
            max_recv_wr: limits.max_qp_wr,
            max_send_sge: limits.max_sge,
            max_recv_sge: limits.max_sge,
            max_inline_data: limits.max_inline_data,
        };
        assert_eq!(largest.granted(&limits), Ok(largest));
        for larger in [
            QpCap { max_send_wr: limits.max_qp_wr + 1, ..largest },
            QpCap { max_recv_wr: limits.max_qp_wr + 1, ..largest },
            QpCap { max_send_sge: limits.max_sge + 1, ..largest },
            QpCap { max_recv_sge: limits.max_sge + 1, ..largest },
            QpCap { max_inline_data: limits.max_inline_data + 1, ..largest },
        ] {
            assert!(matches!(larger.granted(&limits), Err(Misuse::Invalid(_))), "{larger:?}");
        }
        let least = QpCap {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        };
        assert_eq!(QpCap::default().granted(&limits), Ok(least));
    }

    #[test]
    fn only_what_the_mask_names_is_taken() {
        let mut attr = QpAttr { timeout: 3, ..QpAttr::default() };
        let from = QpAttr { timeout: 14, retry_cnt: 7, state: QpState::Err, ..attr };
        attr.take(&from, QpAttrMask::RETRY_CNT | QpAttrMask::STATE);
        assert_eq!((attr.timeout, attr.retry_cnt, attr.state), (3, 7, QpState::Reset));
    }
}
