//! Two queue pairs that are connected by what they know of each other, and a transfer that is
//! checked byte by byte.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use weft_host::{Context, DeviceKind, Host, HostCq, HostQp, Pd};
use weft_verbs::{
    Access, AddressVector, QpAttr, QpAttrMask, QpCap, QpState, RecvWr, SendFlags, SendOp, SendWr,
    Sge, Wc, WcStatus,
};

use super::side::{Silent, host, reliable};

/// How long anything may take before a test gives up.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Requests of a queue.
const DEPTH: u32 = 1024;
/// Requests that a transfer keeps outstanding.
const WINDOW: usize = 16;

/// One end, with memory that the peer may write to.
pub struct End {
    context: Arc<Context>,
    _pd: Arc<Pd>,
    pub cq: Arc<HostCq>,
    pub qp: Arc<HostQp>,
    bytes: Vec<u8>,
    key: u32,
}

impl End {
    /// An end with `octets` of memory.
    pub fn new(octets: usize) -> Self {
        Self::of(host(), DeviceKind::Roce, octets)
    }

    /// An end on `host`, of a device of this kind.
    pub fn of(host: &Arc<Host>, kind: DeviceKind, octets: usize) -> Self {
        let context = Context::open(host, kind, Box::new(Silent)).unwrap();
        let pd = context.alloc_pd();
        let cq = context.create_cq(4 * DEPTH, None, 1).unwrap();
        let cap = QpCap {
            max_send_wr: DEPTH,
            max_recv_wr: DEPTH,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let qp = context.create_qp(reliable(&pd, &cq, cap)).unwrap();
        let bytes = vec![0; octets];
        let addr = bytes.as_ptr() as u64;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let key = context.reg_mr(&pd, addr, octets as u64, addr, access).unwrap();
        Self { context, _pd: pd, cq, qp, bytes, key }
    }

    /// Its UDP port.
    pub fn port(&self) -> u16 {
        (self.qp.num() >> 8) as u16
    }

    /// Walks the queue pair to RTS; the peer is where `remote` and its number `qpn` say.
    pub fn connect(&self, local: Ipv4Addr, remote: Ipv4Addr, qpn: u32) {
        use QpAttrMask as Mask;
        let gid = |ip: Ipv4Addr| ip.to_ipv6_mapped().octets();
        let path = AddressVector {
            sgid: gid(local),
            dgid: gid(remote),
            is_global: true,
            port: 1,
            ..AddressVector::default()
        };
        let attr = |state| QpAttr {
            state,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ,
            port: 1,
            path,
            path_mtu: 5,
            dest_qp_num: qpn,
            max_dest_rd_atomic: 4,
            max_rd_atomic: 4,
            // Two minutes in all: the ways of these tests break for shorter times.
            timeout: 22,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            ..QpAttr::default()
        };
        let init = Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::ACCESS_FLAGS;
        let connected = Mask::STATE | Mask::AV | Mask::PATH_MTU | Mask::DEST_QPN | Mask::RQ_PSN;
        let rtr = connected | Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER;
        let retries = Mask::TIMEOUT | Mask::RETRY_CNT | Mask::RNR_RETRY;
        let rts = Mask::STATE | Mask::SQ_PSN | retries | Mask::MAX_QP_RD_ATOMIC;
        for (state, mask) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
            self.qp.modify(&attr(state), mask).unwrap();
        }
    }

    /// Takes the queue pair back to where it began; its number stays.
    pub fn reset(&self) {
        let attr = QpAttr { state: QpState::Reset, ..QpAttr::default() };
        self.qp.modify(&attr, QpAttrMask::STATE).unwrap();
    }

    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        let addr = self.bytes.as_ptr() as u64 + offset as u64;
        Sge { addr, length: length as u32, lkey: self.key }
    }

    /// Fills the memory.
    pub fn fill(&mut self, octet: impl Fn(usize) -> u8) {
        self.bytes.iter_mut().enumerate().for_each(|(at, place)| *place = octet(at));
    }

    /// Puts a number at `offset`.
    pub fn set(&mut self, offset: usize, number: u64) {
        self.bytes[offset..offset + 8].copy_from_slice(&number.to_ne_bytes());
    }

    /// The number at `offset`.
    pub fn get(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(std::array::from_fn(|i| self.bytes[offset + i]))
    }

    /// What is in the memory.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Posts a request for the bytes from `offset` on.
    pub fn post(&self, wr_id: u64, op: SendOp, offset: usize, length: usize) {
        let sges = &[self.sge(offset, length)];
        self.qp.post_send(&SendWr { wr_id, op, flags: SendFlags::SIGNALED, sges }).unwrap();
        self.qp.ring();
    }

    /// Posts a receive.
    pub fn post_recv(&self, wr_id: u64, offset: usize, length: usize) {
        self.qp.post_recv(&RecvWr { wr_id, sges: &[self.sge(offset, length)] }).unwrap();
    }

    /// Polls once; a completion with an error fails the test.
    pub fn poll(&self) -> Vec<Wc> {
        let mut out = [Wc::default(); 16];
        let count = self.cq.poll(&mut out).unwrap();
        for wc in &out[..count] {
            assert_eq!(wc.status, WcStatus::Success as u32, "{wc:?}");
        }
        out[..count].to_vec()
    }

    /// Writes all of its memory to that of `peer` in pieces of `piece` bytes, and calls `between`
    /// with the number of pieces that are complete whenever that has changed.
    pub fn write_all(&self, peer: &Self, piece: usize, mut between: impl FnMut(usize)) {
        let pieces = self.bytes.len() / piece;
        let start = weft_os::clock::now();
        let (mut posted, mut done) = (0, 0);
        while done < pieces {
            while posted < pieces && posted - done < WINDOW {
                let offset = posted * piece;
                let to = peer.bytes.as_ptr() as u64 + offset as u64;
                let op = SendOp::Write { to, stag: peer.key };
                self.post(posted as u64, op, offset, piece);
                posted += 1;
            }
            let completed = self.poll();
            for wc in &completed {
                assert_eq!(wc.wr_id, done as u64, "in order, and each once");
                done += 1;
            }
            if !completed.is_empty() {
                between(done);
            }
            assert!(start.elapsed() < DEADLINE, "{done} of {pieces} pieces");
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.qp.destroy().unwrap();
        self.context.dereg_mr(self.key).unwrap();
    }
}
