//! A queue pair for unreliable datagrams: each posted request is one packet of UDP to the port that
//! the number of its destination says, and what arrives fills the next receive.
//!
//! RDMAP and DDP are bypassed: one send is one packet with InfiniBand's headers, since nothing is
//! segmented or repeated.
//!
//! Nothing is acknowledged: a request is complete when the socket has it. A
//! datagram that comes while no receive is posted stays with the caller, as if it were still on its
//! way.
//!
//! Invariant: a receive is taken only for a datagram that opens, that the policy admits, and that
//! names the queue pair and its queue key.

mod transmit;

use core::net::IpAddr;
use std::collections::VecDeque;
use std::sync::Arc;

use weft_rdmap::StreamStats;
use weft_shuttle::{AddressPair, ConnectionEnd, Opener, Route, Sealer, Unopened};
use weft_verbs::{Qp, QpFailure, QpState, WcFlags, WcStatus};
use weft_wire::capability::{By, Capabilities, Component};
use weft_wire::datagram::{
    DatagramHeader, GROUP_QPN, HEADER_LEN_MAX, NOTICE_LEN, Notice, ROUTE_LEN, SealedHeader,
    route_header,
};
use weft_wire::tap::{PacketTap, TapDirection, Tapped};

use crate::batch::DatagramBurst;
use crate::event::{ConnEvent, DroppedDatagram};

/// What the service level of a received datagram says in RoCE v2: the family of its route header.
const SL_IPV6: u8 = 1;
const SL_IPV4: u8 = 2;

/// Events that are kept until they are polled: whoever sends what is dropped may send much of it.
const EVENTS_MAX: usize = 64;

/// What the host decides about datagrams in clear.
pub trait UdPolicy: Send {
    /// Whether what came between `ends` is taken. Asked once for datagrams that follow each other.
    fn admit(&self, ends: &AddressPair) -> bool;
    /// Whether anything may leave between `ends`.
    fn permit(&self, ends: &AddressPair) -> bool;
    /// Whether anything may leave to a multicast group.
    fn permit_groups(&self) -> bool;
}

/// What a queue pair for datagrams is made with.
pub struct UdConfig {
    /// The UDP port that it sends from and listens at.
    pub port: u16,
    /// The multicast group that it is for; then it only receives.
    pub group: Option<IpAddr>,
    /// What seals and opens, if there is a key.
    pub seals: Option<(Sealer, Opener)>,
    /// The protections of `wire::shuttle::hello` that are in use, if there is a key.
    pub protection: Option<u8>,
    /// Clear text by IPv6 comes from this machine if it says so: the kernel cuts what does not, and
    /// where it cannot, none is taken that did not come to the loopback address.
    pub screened: bool,
    /// What may be exchanged in clear.
    pub policy: Box<dyn UdPolicy>,
}

/// A queue pair for unreliable datagrams.
///
/// Order of calls: any of [`UdQp::receive`] and [`UdQp::poll_transmit`], the latter after work was
/// posted; then [`UdQp::poll_event`].
pub struct UdQp {
    qp: Arc<Qp>,
    config: UdConfig,
    /// The addresses between which clear text went last that may, so that not each datagram asks.
    trusted: Option<AddressPair>,
    burst: DatagramBurst,
    stats: StreamStats,
    events: VecDeque<ConnEvent>,
    state: IntakeState,
    tap: Option<Box<dyn PacketTap>>,
}

/// Whether datagrams are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IntakeState {
    Open,
    /// One waits for a receive.
    Held,
    Closed,
}

/// Who does what below the verbs for queue pairs for datagrams; `protection` as in [`UdConfig`].
pub fn ud_capabilities(protection: Option<u8>) -> Capabilities {
    let sealed = protection.map(weft_shuttle::capabilities);
    let cipher = sealed.map_or(By::Nobody, |sealed| sealed.by(Component::Encryption));
    let check = sealed.map_or(By::Kernel("UDP's checksum"), |sealed| sealed.by(Component::Crc));
    Capabilities::of_layer("datagrams over UDP")
        .with(Component::Crc, check)
        .with(Component::Demultiplexing, By::Kernel("a UDP socket for each queue pair"))
        .with(Component::Segmentation, By::Kernel("IP cuts what the path does not carry"))
        .with(Component::Encryption, cipher)
}

impl UdQp {
    /// Opens `qp` for datagrams.
    pub fn new(qp: Arc<Qp>, config: UdConfig) -> Self {
        Self {
            qp,
            config,
            trusted: None,
            burst: DatagramBurst::default(),
            stats: StreamStats::default(),
            events: VecDeque::new(),
            state: IntakeState::Open,
            tap: None,
        }
    }

    /// Has `tap` see every datagram from now on.
    pub fn set_tap(&mut self, tap: Box<dyn PacketTap>) {
        self.tap = Some(tap);
    }

    /// The queue pair.
    pub fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    /// Who does what below the verbs.
    pub fn capabilities(&self) -> Capabilities {
        ud_capabilities(self.config.protection)
    }

    /// Counters: datagrams, and the bytes of their payload.
    pub fn stats(&self) -> StreamStats {
        self.stats
    }

    /// Whether a datagram waits for a receive.
    pub fn is_held(&self) -> bool {
        self.state == IntakeState::Held
    }

    /// Whether it was closed.
    pub fn is_dead(&self) -> bool {
        self.state == IntakeState::Closed
    }

    /// What is dropped, what receivers say of it, and the end.
    pub fn poll_event(&mut self) -> Option<ConnEvent> {
        self.events.pop_front()
    }

    /// Takes nothing any more. The requests are the queue pair's.
    pub fn close(&mut self) {
        if self.state != IntakeState::Closed {
            self.state = IntakeState::Closed;
            self.events.push_back(ConnEvent::Ended {
                end: ConnectionEnd::Local,
                private_data: Vec::new(),
            });
        }
    }

    /// Takes a datagram, which is opened in place, at the time of day `now_ns`. Gives how many of
    /// its bytes are consumed: all, or none if it waits for a receive.
    pub fn receive(&mut self, now_ns: u64, route: &Route, datagram: &mut [u8]) -> usize {
        let whole = datagram.len();
        // Who only sends has no receives, and is to hear of it all the same.
        if self.state == IntakeState::Closed || self.take_notice(datagram, route) {
            return whole;
        }
        if !self.qp.has_recv() {
            self.state = IntakeState::Held;
            return 0;
        }
        self.state = IntakeState::Open;
        if let Some(datagram) = self.open(now_ns, route, datagram) {
            if let Some(tap) = &mut self.tap {
                let what = Tapped::Datagram(datagram);
                tap.see(TapDirection::Received, Some((*route).into()), what);
            }
            Self::deliver(&self.qp, &mut self.stats, self.config.group, route, datagram);
        }
        whole
    }

    /// A datagram as it was before it was sealed; none that strangers have sent.
    fn open<'a>(&mut self, now_ns: u64, route: &Route, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        let ends = AddressPair { from: route.remote.ip(), to: route.local.ip() };
        if self.config.group.is_some_and(|group| group != ends.to) {
            return None;
        }
        if let Some((_, opener)) = &mut self.config.seals {
            // It is opened in place.
            let head = datagram.first_chunk().copied();
            return match opener.open(datagram, &ends, now_ns) {
                Ok(text) => Some(text),
                Err(why) => {
                    self.note_dropped(Some(why), head, route);
                    None
                }
            };
        }
        let head = datagram.first_chunk().copied();
        if SealedHeader::parse(datagram).is_some() || SealedHeader::is_foreign(datagram) {
            self.note_dropped(Some(Unopened::Foreign), head, route);
            return None;
        }
        // Only what is for this queue pair is worth a question.
        let wanted =
            DatagramHeader::parse(datagram).is_some_and(|(header, _)| self.is_wanted(&header));
        (wanted && self.admits(ends, head, route)).then_some(datagram)
    }

    /// Whether clear text that begins with `head` and came by `route` is taken.
    fn admits(&mut self, ends: AddressPair, head: Option<NoticeHead>, route: &Route) -> bool {
        let claims = ends.from.is_ipv6() && !ends.to.is_loopback();
        if claims && !self.config.screened {
            return false;
        }
        if self.trusted != Some(ends) && !self.config.policy.admit(&ends) {
            self.note_dropped(None, head, route);
            return false;
        }
        self.trusted = Some(ends);
        true
    }

    /// Has the sender of a datagram told why it is dropped. Not that of one to a group, which all
    /// members would answer.
    fn note_dropped(
        &mut self,
        unopened: Option<Unopened>,
        head: Option<NoticeHead>,
        route: &Route,
    ) {
        let head = head.filter(|_| self.config.group.is_none());
        let names_qp = head.is_some_and(|head| self.is_named_by(&head));
        let dropped = DroppedDatagram { unopened, head, names_qp, route: *route };
        self.note(ConnEvent::Dropped(dropped));
    }

    fn note(&mut self, event: ConnEvent) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        }
    }

    /// Takes a notice; whether the datagram was one. It must be about one that this queue pair has
    /// sent.
    fn take_notice(&mut self, datagram: &[u8], route: &Route) -> bool {
        let Some(notice) = Notice::parse(datagram) else { return false };
        let is_own = match &self.config.seals {
            Some((sealer, _)) => notice.is_of_sender(sealer.sender()),
            None => {
                let (to, from) = notice.queue_pairs();
                from == self.qp.num() && to >> 8 == u32::from(route.remote.port())
            }
        };
        if is_own && self.config.group.is_none() {
            self.note(ConnEvent::Notice { notice, from: route.remote.ip() });
        }
        true
    }

    /// Whether a datagram that begins with `head` names the queue pair. What the head leaves out is
    /// immediate data at most.
    fn is_named_by(&self, head: &NoticeHead) -> bool {
        let mut whole = [0; HEADER_LEN_MAX];
        whole[..head.len()].copy_from_slice(head);
        DatagramHeader::parse(&whole).is_some_and(|(header, _)| self.is_wanted(&header))
    }

    fn is_wanted(&self, header: &DatagramHeader) -> bool {
        is_for(&self.qp, self.config.group, header)
    }

    /// Fills a receive with a datagram, if it is one for this queue pair.
    fn deliver(
        qp: &Qp,
        stats: &mut StreamStats,
        group: Option<IpAddr>,
        route: &Route,
        datagram: &[u8],
    ) {
        let Some((header, payload)) = DatagramHeader::parse(datagram) else { return };
        let listens =
            matches!(qp.state(), QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe);
        if !listens || !is_for(qp, group, &header) {
            return;
        }
        // Another queue pair may have taken the last one of a shared queue.
        let Some(wqe) = qp.take_recv() else { return };
        let whole = ROUTE_LEN + payload.len();
        if wqe.room() < whole as u64 {
            qp.fail_recv(&wqe, WcStatus::LocLenErr);
            return;
        }
        let (from, to) = (route.remote.ip(), route.local.ip());
        let routed = route_header(from, to, payload.len() as u16);
        let (pd, regions) = (qp.recv_pd(&wqe), qp.regions());
        let placed = regions
            .scatter(pd, wqe.sges(), 0, &routed)
            .and_then(|()| regions.scatter(pd, wqe.sges(), ROUTE_LEN as u64, payload));
        if placed.is_err() {
            qp.failure().note(QpFailure::Request(WcStatus::LocProtErr));
            qp.fail_recv(&wqe, WcStatus::LocProtErr);
            qp.fail(None);
            return;
        }
        stats.segments_in += 1;
        stats.octets_in += payload.len() as u64;
        qp.complete_recv(&wqe, header.solicited, |wc| {
            wc.byte_len = whole as u32;
            wc.src_qp = header.from;
            wc.sl = if from.is_ipv4() { SL_IPV4 } else { SL_IPV6 };
            wc.wc_flags = WcFlags::GRH.bits();
            if let Some(immediate) = header.immediate {
                wc.wc_flags |= WcFlags::WITH_IMM.bits();
                wc.imm_data = u32::from_ne_bytes(immediate);
            }
        });
    }
}

/// What a notice repeats, and what comes before that.
type NoticeHead = [u8; NOTICE_LEN];

/// Whether a datagram names the queue pair, or its group, and its queue key.
fn is_for(qp: &Qp, group: Option<IpAddr>, header: &DatagramHeader) -> bool {
    let number = group.map_or(qp.num(), |_| GROUP_QPN);
    header.to == number && header.qkey == qp.attrs().qkey
}
