//! Flows of unreliable datagrams: two of the product's own queue pairs, one that sends numbered
//! datagrams at a fixed rate, and one that receives.
//!
//! Nothing acknowledges, repeats or controls the rate. Invariant: every completion of the receiver
//! is counted once, as delivered or as delivered before.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_rnic::shuttle::{AddressPair, Key, Opener, Route, SEALED_OVERHEAD, Sealer};
use weft_rnic::wire::datagram::{Cipher, HEADER_LEN_MAX, ROUTE_LEN};
use weft_rnic::wire::llp::Piece;
use weft_rnic::{Batch, RdmaDevice, UdConfig, UdPolicy, UdQp, Written};
use weft_verbs::limits::ROCE;
use weft_verbs::mr::{Backing, RegionSpec};
use weft_verbs::{
    Access, AddressVector, AsyncQueue, Cq, Destination, Qp, QpCap, QpInit, QpState, QpType, RecvWr,
    SendFlags, SendOp, SendWr, Sge, Wake, Wc,
};

use crate::agenda::NEVER_NS;
use crate::flow::{Datagram, FlowDirection, FlowPacket, FlowTally, PacketBody, SimFlow, Standing};
use crate::reference::Shape;

/// The largest payload of a datagram, in bytes: the largest MTU that a port can have.
const PAYLOAD_MAX: u32 = 4096;
/// Receives that are posted at a time.
const RECEIVES: u32 = 64;
const QKEY: u32 = 0x1111_2222;
/// The time of day at which simulations begin, by which datagrams are sealed.
const BEGIN_NS: u64 = 1_800_000_000_000_000_000;

/// A shape whose datagrams are as long as queue pairs for datagrams have them, in packets of UDP
/// of no more than `shape.datagram_octets` bytes.
pub fn fit(shape: Shape, is_sealed: bool) -> Shape {
    let sealed = if is_sealed { SEALED_OVERHEAD } else { 0 };
    let headers = (HEADER_LEN_MAX + sealed) as u32;
    let payload_octets = shape.datagram_octets.saturating_sub(headers).min(PAYLOAD_MAX);
    Shape { datagram_octets: payload_octets + headers, payload_octets, ..shape }
}

/// Numbered datagrams from one queue pair to another.
pub struct DatagramFlow {
    shape: Shape,
    interval_ns: u64,
    /// Who sends, and who receives.
    ends: [UdEnd; 2],
    next_ns: u64,
    sent: u64,
    waiting: VecDeque<FlowPacket>,
    /// Where a datagram is made whole again, to be opened in place.
    whole: Vec<u8>,
    deliveries: Deliveries,
}

/// What the receiver's completions say of the numbers of datagrams.
#[derive(Debug, Default)]
struct Deliveries {
    /// A bit for each number.
    seen: Vec<u64>,
    delivered: u64,
    twice: u64,
    late: u64,
    /// One more than the highest number.
    end: u64,
}

impl Deliveries {
    fn note(&mut self, number: u64) {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        self.seen.resize(self.seen.len().max(word + 1), 0);
        if self.seen[word] & bit != 0 {
            self.twice += 1;
            return;
        }
        self.seen[word] |= bit;
        self.delivered += 1;
        self.late += u64::from(number < self.end);
        self.end = self.end.max(number + 1);
    }

    /// Datagrams that did not arrive although later ones did.
    fn lost(&self) -> u64 {
        self.end - self.delivered
    }
}

/// One end: a device with a queue pair for datagrams.
struct UdEnd {
    /// Zeros to be sent, and the place for what is received, which nobody looks at.
    memory: Vec<u64>,
    key: u32,
    cq: Arc<Cq>,
    qp: Arc<Qp>,
    ud: UdQp,
    route: Route,
    payload_octets: u32,
}

impl DatagramFlow {
    /// A flow of `rate_bps` bits of IP packets per second, in a shape that [`fit`] has made;
    /// `seed` decides about keys.
    pub fn new(shape: Shape, rate_bps: u64, is_sealed: bool, seed: u64) -> Self {
        let ends = [0, 1].map(|end| UdEnd::new(end, shape.payload_octets, is_sealed, seed));
        (0..RECEIVES).for_each(|_| ends[1].post_recv());
        let packet = u64::from(shape.datagram_octets + shape.overhead_octets);
        Self {
            shape,
            interval_ns: (packet * 8_000_000_000).div_ceil(rate_bps.max(1)),
            ends,
            next_ns: shape.sends_from_ns(shape.start_ns),
            sent: 0,
            waiting: VecDeque::new(),
            whole: Vec::new(),
            deliveries: Deliveries::default(),
        }
    }

    /// Posts one datagram, which leaves at once.
    fn send(&mut self, now_ns: u64) {
        let to = self.ends[1].as_destination();
        let shape = self.shape;
        let waiting = &mut self.waiting;
        self.ends[0].post_send(self.sent as u32, &to);
        self.ends[0].ud.poll_transmit(
            || BEGIN_NS + now_ns,
            |batch| {
                let datagrams = datagrams_of(batch);
                let written = datagrams.iter().map(Vec::len).sum();
                waiting.extend(datagrams.into_iter().map(|octets| FlowPacket {
                    way: FlowDirection::Forward,
                    lane: 0,
                    octets: octets.len() as u32 + shape.overhead_octets,
                    markable: shape.ecn,
                    body: PacketBody::Datagram(Datagram { octets, ..Datagram::default() }),
                }));
                Written::Octets(written)
            },
        );
        // It was complete at once, and its place is free again once that is polled.
        assert_eq!(self.ends[0].completed().len(), 1, "a datagram did not leave");
        self.sent += 1;
        let is_done = self.sent >= shape.size_packets();
        let next_ns = shape.sends_from_ns(now_ns + self.interval_ns);
        self.next_ns = if is_done { NEVER_NS } else { next_ns };
    }
}

/// The datagrams of a batch, all of which are staged.
fn datagrams_of(batch: &Batch<'_>) -> Vec<Vec<u8>> {
    let mut staged = Vec::new();
    for piece in batch.gather.pieces() {
        if let Piece::Slab { start, len } = piece {
            staged.extend_from_slice(batch.gather.staged(*start, *len));
        }
    }
    let mut rest = &staged[batch.written..];
    let mut next = |length: &u16| {
        let (datagram, after) = rest.split_at(usize::from(*length));
        rest = after;
        datagram.to_vec()
    };
    batch.lengths.iter().map(&mut next).collect()
}

impl UdEnd {
    fn new(number: u8, payload_octets: u32, is_sealed: bool, seed: u64) -> Self {
        let device = RdmaDevice::new(&ROCE, entropy(seed ^ u64::from(number)));
        let pd = device.alloc_pd();
        let events = AsyncQueue::new(Box::new(UnheardEvents));
        let cq = Arc::new(Cq::new(2 * RECEIVES, None, Arc::clone(&events), 0));
        let memory = vec![0u64; (ROUTE_LEN + PAYLOAD_MAX as usize).div_ceil(8)];
        let (addr, len) = (memory.as_ptr() as u64, 8 * memory.len() as u64);
        let access = Access::LOCAL_WRITE;
        let backing = Backing::Mapped;
        let spec = RegionSpec { pd: Arc::clone(&pd), addr, len, iova: addr, access, backing };
        let key = device.register(&spec).expect("the memory is there");
        let cap = QpCap {
            max_send_wr: 1,
            max_recv_wr: RECEIVES,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QpInit {
            kind: QpType::Ud,
            start: QpState::Init,
            pd,
            send_cq: Arc::clone(&cq),
            recv_cq: Arc::clone(&cq),
            srq: None,
            xrcd: None,
            cap,
            sq_sig_all: false,
            cookie: 0,
        };
        let qp = Arc::new(device.create_qp(init, &events).expect("the device is empty"));
        qp.set_attrs(|attrs| attrs.qkey = QKEY);
        qp.enter(QpState::Rts);
        let config = config(&qp, is_sealed, seed.wrapping_add(number.into()));
        let ud = UdQp::new(Arc::clone(&qp), config);
        let at = |end: u8| ([10, 0, 0, end + 1], (qp.num() >> 8) as u16).into();
        let route = Route { local: at(number), remote: at(1 - number) };
        Self { memory, key, cq, qp, ud, route, payload_octets }
    }

    fn sge(&self, length: u32) -> Sge {
        Sge { addr: self.memory.as_ptr() as u64, length, lkey: self.key }
    }

    fn post_recv(&self) {
        let sges = [self.sge(ROUTE_LEN as u32 + self.payload_octets)];
        self.qp.post_recv(&RecvWr { wr_id: 0, sges: &sges }).expect("there is room for it");
    }

    /// Posts a datagram that carries its number as immediate data.
    fn post_send(&self, imm: u32, to: &Destination) {
        let sges = [self.sge(self.payload_octets)];
        let (op, flags) = (SendOp::SendImm { imm }, SendFlags::SIGNALED);
        let wr = SendWr { wr_id: 0, op, flags, sges: &sges };
        self.qp.post_datagram(&wr, to).expect("the one before has left");
    }

    fn as_destination(&self) -> Destination {
        let gid = |at: std::net::SocketAddr| match at.ip() {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(v6) => v6.octets(),
        };
        let (sgid, dgid) = (gid(self.route.remote), gid(self.route.local));
        let path =
            AddressVector { sgid, dgid, is_global: true, port: 1, ..AddressVector::default() };
        Destination { path, qpn: self.qp.num(), qkey: QKEY }
    }

    /// Takes a datagram; gives the numbers of those that completed a receive.
    fn receive(&mut self, now_ns: u64, datagram: &mut [u8]) -> Vec<u32> {
        self.ud.receive(BEGIN_NS + now_ns, &self.route, datagram);
        // What is dropped as a replay is told to nobody here.
        while self.ud.poll_event().is_some() {}
        let completed = self.completed();
        completed.iter().for_each(|_| self.post_recv());
        completed.iter().map(|wc| wc.imm_data).collect()
    }

    /// What has completed.
    fn completed(&self) -> Vec<Wc> {
        let mut completions = [Wc::default(); 4];
        let count = self.cq.poll(&mut completions).expect("it has room for all requests");
        let completed = &completions[..count];
        assert!(completed.iter().all(|wc| wc.status == 0), "{completed:?}");
        completed.to_vec()
    }
}

fn config(qp: &Qp, is_sealed: bool, salt: u64) -> UdConfig {
    let key = Key::new([7; 32]);
    let seals = is_sealed.then(|| {
        let sealer = Sealer::new(&key, Cipher::Aes128Gcm, BEGIN_NS, salt);
        (sealer, Opener::new(&key, BEGIN_NS, false))
    });
    UdConfig {
        port: (qp.num() >> 8) as u16,
        group: None,
        seals,
        protection: None,
        screened: true,
        policy: Box::new(AdmitAll),
    }
}

/// Names and keys of a device, from a seed (an LCG with the constants of PCG's, upper half).
fn entropy(seed: u64) -> Box<dyn Fn() -> u32 + Send + Sync> {
    let state = std::sync::Mutex::new(seed);
    Box::new(move || {
        let mut state = state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (*state >> 32) as u32
    })
}

/// Whom events wake: the simulation asks by itself.
struct UnheardEvents;

impl Wake for UnheardEvents {
    fn wake(&self) {}
}

/// Everything may be exchanged in clear.
struct AdmitAll;

impl UdPolicy for AdmitAll {
    fn admit(&self, _: &AddressPair) -> bool {
        true
    }

    fn permit(&self, _: &AddressPair) -> bool {
        true
    }

    fn permit_groups(&self) -> bool {
        true
    }
}

impl SimFlow for DatagramFlow {
    fn handle(&mut self, now_ns: u64, _: FlowDirection, _: u8, body: PacketBody, _: bool) {
        let PacketBody::Datagram(datagram) = body else { return };
        datagram.restore(&mut self.whole);
        for number in self.ends[1].receive(now_ns, &mut self.whole) {
            self.deliveries.note(number.into());
        }
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<FlowPacket> {
        if self.waiting.is_empty() && self.next_ns <= now_ns {
            self.send(now_ns);
        }
        self.waiting.pop_front()
    }

    fn next_due_ns(&self) -> u64 {
        self.next_ns
    }

    fn tally(&self) -> FlowTally {
        let Deliveries { delivered, twice, late, .. } = self.deliveries;
        let packet = u64::from(self.shape.datagram_octets + self.shape.overhead_octets);
        FlowTally {
            sent: self.sent,
            lost: self.deliveries.lost(),
            twice,
            late,
            arrived: delivered,
            arrived_octets: delivered * packet,
            payload_octets: delivered * u64::from(self.shape.payload_octets),
            ..FlowTally::default()
        }
    }

    fn standing(&self) -> Standing {
        Standing::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_are_counted_once_and_out_of_turn_ones_as_late() {
        let mut deliveries = Deliveries::default();
        [0, 1, 4, 2, 4, 70].into_iter().for_each(|number| deliveries.note(number));
        let Deliveries { delivered, twice, late, .. } = deliveries;
        assert_eq!((delivered, twice, late, deliveries.lost()), (5, 1, 1, 66));
    }
}
