//! Queue pairs for datagrams: each posted request is one packet of UDP to the port that the
//! number of its destination says, and what arrives fills the next receive.
//!
//! Nothing is repeated and nothing is acknowledged: a request is complete when the kernel has it.
//! What arrives while no receive is posted stays with the socket, as if it were still under way;
//! a full socket loses it.

mod dropped;

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

use dropped::Head;
use weft_fault::Way;
use weft_net::buffers::Buffer;
use weft_net::udp::{BUNDLE_OCTETS, Bundle, Port};
use weft_net::{path, tcp};
use weft_os::clock;
use weft_reactor::{Interest, Source, Token};
use weft_rnic::Written;
use weft_rnic::shuttle::{AddressPair, Opener, Route, SEALED_OVERHEAD, Sealer, Unopened};
use weft_rnic::wire::capability::Capabilities;
use weft_rnic::wire::datagram::{
    GROUP_QPN, HEADER_LEN_MAX, Header, ROUTE_LEN, SealedHeader, route_header,
};
use weft_rnic::wire::llp::{Gather, Piece, RegisteredMemory};
use weft_verbs::mr::RegionReader;
use weft_verbs::qp::SendWqe;
use weft_verbs::{
    Destination, Misuse, Qp as VerbsQp, QpState, SendFlags, SendOp, Wake, WcFlags, WcStatus,
};

use crate::capability;
use crate::device_kind::Personality;
use crate::drive::{Drive, Notices, Turn, todo};
use crate::engine::Engine;
use crate::faults::Wire;
use crate::qp::Qp;
use crate::tally::Work;

/// The longest payload: the largest MTU that a port can have. A longer message leaves without a
/// packet and without an error, InfiniBand architecture, volume 1, C10-93.1.1.
const PAYLOAD_MAX: u32 = 4096;
/// Octets handed to the kernel in one call, which cuts them into datagrams of one length.
const BURST_OCTETS: usize = 60_000;
/// Bundles received in one go at most, so that one queue pair does not starve the others.
const RECEIVES_MAX: usize = 16;
/// Bundles of an earlier life of the queue pair that are thrown away.
const STALE_MAX: usize = 4096;

/// What the service level of a received datagram says in RoCE v2: the family of its route header.
const SL_IPV6: u8 = 1;
const SL_IPV4: u8 = 2;

impl Qp {
    /// What arrives is taken from now on.
    pub(crate) fn open_for_datagrams(&self) -> Result<(), Misuse> {
        let Some(port) = self.port() else {
            return Err(Misuse::Unsupported("queue pairs without a port"));
        };
        let (qp, waker) = (Arc::clone(self.inner()), self.cell.waker());
        self.cell.hold(Box::new(Mailbox::new(qp, Arc::clone(port), waker, None)));
        Ok(())
    }
}

/// A queue pair and its socket.
pub(crate) struct Mailbox {
    qp: Arc<VerbsQp>,
    port: Arc<Port>,
    /// The group that it is for; then it only receives.
    group: Option<IpAddr>,
    /// Datagrams to groups go where they may.
    groups_limited: bool,
    token: Option<Token>,
    /// Is woken when a receive is posted.
    waker: Weak<dyn Wake>,
    /// It will be: datagrams wait for one.
    waits: bool,
    /// What was received, in the room of the buffer, and how many octets of it are delivered.
    arrived: Option<(Buffer, Bundle, usize)>,
    staged: Vec<u8>,
    /// What seals and opens, if there is a key.
    letters: Option<(Sealer, Opener)>,
    /// The addresses between which clear text went last that may, so that not each datagram asks.
    trusted: Option<AddressPair>,
    /// What comes from outside by IPv6 is cut by the kernel, where clear text must not come from
    /// there.
    screened: bool,
    watched: Interest,
    turn: Turn,
    /// Octets of payload that left and arrived.
    moved: Work,
    closed: bool,
    wire: Option<Box<Wire<()>>>,
}

impl Mailbox {
    /// With a `group` it only receives, what comes to that.
    pub fn new(
        qp: Arc<VerbsQp>,
        port: Arc<Port>,
        waker: Weak<dyn Wake>,
        group: Option<IpAddr>,
    ) -> Self {
        let groups_limited = port.limit_groups(crate::Host::get().secrecy().group_hops());
        let screened = !crate::Host::get().secrecy().is_clear_text_kept() || port.screen();
        let mut scratch = Buffer::take();
        for _ in 0..STALE_MAX {
            if port.receive(&mut scratch.room()[..BUNDLE_OCTETS], None).is_none() {
                break;
            }
        }
        scratch.put();
        Self {
            qp,
            port,
            group,
            groups_limited,
            token: None,
            waker,
            waits: false,
            arrived: None,
            staged: Vec::new(),
            letters: crate::Host::get().secrecy().letters(group.is_some()),
            trusted: None,
            screened,
            watched: Interest::READ,
            turn: Turn::default(),
            moved: Work::default(),
            closed: false,
            wire: None,
        }
    }

    /// Delivers what has arrived to the receives that are posted; whether anything was there.
    fn receive(&mut self) -> bool {
        let mut received = false;
        for _ in 0..RECEIVES_MAX {
            self.deliver();
            if self.arrived.is_some() {
                break;
            }
            let mut buffer = Buffer::take();
            let Some(bundle) = self.port.receive(&mut buffer.room()[..BUNDLE_OCTETS], None) else {
                buffer.put();
                break;
            };
            self.arrived = Some((buffer, bundle, 0));
            received = true;
        }
        received
    }

    fn waits_for_receive(&mut self) -> bool {
        self.waits = self.waits || !self.qp.await_recv(Weak::clone(&self.waker));
        self.waits
    }

    /// Delivers the datagrams of the bundle at hand, as far as there are receives.
    fn deliver(&mut self) {
        while let Some((mut buffer, bundle, mut done)) = self.arrived.take() {
            if done >= bundle.octets {
                buffer.put();
                return;
            }
            let end = (done + bundle.each).min(bundle.octets);
            // Who only sends has no receives, and is to hear of it all the same.
            if self.take_notice(&buffer.room()[done..end], &bundle.route) {
                self.arrived = Some((buffer, bundle, end));
                continue;
            }
            if self.waits_for_receive() {
                self.arrived = Some((buffer, bundle, done));
                return;
            }
            if let Some(datagram) = self.open(&mut buffer.room()[done..end], &bundle.route) {
                self.deliver_one(datagram, &bundle.route);
            }
            done = end;
            self.arrived = Some((buffer, bundle, done));
        }
    }

    /// A datagram as it was before it was sealed; none that strangers have sent.
    fn open<'a>(&mut self, datagram: &'a mut [u8], route: &Route) -> Option<&'a [u8]> {
        let from = route.remote.ip();
        if self.group.is_some_and(|group| group != route.local.ip()) {
            return None;
        }
        let head: Option<Head> = datagram.first_chunk().copied();
        if let Some((_, opener)) = &mut self.letters {
            let ends = AddressPair { from, to: route.local.ip() };
            let opened = opener.open(datagram, &ends, clock::time_of_day_ns());
            return opened.inspect_err(|why| self.drop_unopened(head, *why, route)).ok();
        }
        if SealedHeader::parse(datagram).is_some() || SealedHeader::is_foreign(datagram) {
            self.drop_unopened(head, Unopened::Foreign, route);
            return None;
        }
        // Only what is for this queue pair is worth a question.
        let wanted = Header::parse(datagram).is_some_and(|(header, _)| self.is_wanted(&header));
        (wanted && self.hears(head, route)).then_some(datagram)
    }

    /// Whether clear text that begins with `head` and came by `route` is taken.
    fn hears(&mut self, head: Option<Head>, route: &Route) -> bool {
        let claims = route.remote.is_ipv6() && !route.local.ip().is_loopback();
        if claims && !self.screened {
            return false;
        }
        let ends = AddressPair { from: route.remote.ip(), to: route.local.ip() };
        if self.trusted != Some(ends) && !self.admits(head, route) {
            return false;
        }
        self.trusted = Some(ends);
        true
    }

    fn is_wanted(&self, header: &Header) -> bool {
        let number = self.group.map_or(self.qp.num(), |_| GROUP_QPN);
        header.to == number && header.qkey == self.qp.attrs().qkey
    }

    /// Whether datagrams may leave by `route`.
    fn may_send(&mut self, route: &Route) -> bool {
        if route.remote.ip().is_multicast() {
            return self.groups_limited && crate::Host::get().secrecy().permit_groups().is_ok();
        }
        let ends = AddressPair { from: route.remote.ip(), to: route.local.ip() };
        if self.trusted != Some(ends)
            && crate::Host::get().secrecy().permit(ends.to, ends.from).is_err()
        {
            return false;
        }
        self.trusted = Some(ends);
        true
    }

    /// Fills a receive with a datagram, if it is one for this queue pair.
    fn deliver_one(&mut self, datagram: &[u8], route: &Route) {
        // What is changed on the way fails UDP's checksum.
        if let Some(wire) = &mut self.wire
            && (wire.loses(Way::In) || wire.spoil(&mut datagram.to_vec()))
        {
            return;
        }
        let Some((header, payload)) = Header::parse(datagram) else { return };
        let listens =
            matches!(self.qp.state(), QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe);
        if !listens || !self.is_wanted(&header) {
            return;
        }
        // Another queue pair may have taken the last one of a shared queue.
        let Some(wqe) = self.qp.take_recv() else { return };
        let whole = ROUTE_LEN + payload.len();
        if wqe.room() < whole as u64 {
            self.qp.fail_recv(&wqe, WcStatus::LocLenErr);
            return;
        }
        let (from, to) = (route.remote.ip(), route.local.ip());
        let routed = route_header(from, to, payload.len() as u16);
        let (pd, regions) = (self.qp.recv_pd(&wqe), self.qp.regions());
        let placed = regions
            .scatter(pd, wqe.sges(), 0, &routed)
            .and_then(|()| regions.scatter(pd, wqe.sges(), ROUTE_LEN as u64, payload));
        if placed.is_err() {
            self.qp.fail_recv(&wqe, WcStatus::LocProtErr);
            return;
        }
        self.moved.octets_in += payload.len() as u64;
        self.qp.complete_recv(&wqe, header.solicited, |wc| {
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

    /// Sends what is posted, burst by burst.
    fn transmit(&mut self) {
        self.turn.blocked = false;
        let sends = self.group.is_none();
        while sends && self.qp.state() == QpState::Rts && self.transmit_burst() {}
    }

    /// Sends requests to one destination together; whether there may be more.
    fn transmit_burst(&mut self) -> bool {
        let qp = Arc::clone(&self.qp);
        let mut sq = qp.sq();
        let Some((first, wqe)) = sq.peek() else { return false };
        let Some(to) = sq.destination(first).copied() else { return false };
        let drop_it = wqe.len > PAYLOAD_MAX;
        let route = self.route(&to);
        let ends = route.map(|route| AddressPair { from: route.local.ip(), to: route.remote.ip() });
        self.staged.clear();
        let (mut count, mut each) = (0_u32, 0);
        let regions = qp.regions().reader();
        while sq.is_pending(first.wrapping_add(count)) {
            let seq = first.wrapping_add(count);
            let before = self.staged.len();
            if sq.destination(seq) != Some(&to) || before + each > BURST_OCTETS {
                break;
            }
            let sealer = self.letters.as_mut().map(|(sealer, _)| sealer).zip(ends);
            if !stage(&qp, sq.get(seq), &to, &regions, sealer, &mut self.staged) {
                if count > 0 {
                    break;
                }
                drop(regions);
                drop(sq);
                qp.fail_sends(first, WcStatus::LocProtErr);
                return false;
            }
            let added = self.staged.len() - before;
            if count > 0 && added != each {
                self.staged.truncate(before);
                break;
            }
            each = added;
            count += 1;
            if drop_it {
                break;
            }
        }
        drop(regions);
        if let Some(route) = &route
            && !self.may_send(route)
        {
            drop(sq);
            qp.fail_sends(first, WcStatus::LocQpOpErr);
            return false;
        }
        if !drop_it
            && let Some(route) = &route
            && !self.send(route, each)
        {
            self.turn.blocked = true;
            return false;
        }
        for seq in (0..count).map(|i| first.wrapping_add(i)) {
            self.moved.octets_out += u64::from(sq.get(seq).len);
            sq.segment_out(seq, true);
            sq.segments_acked(seq, 1);
        }
        sq.complete(qp.num(), qp.send_cq());
        true
    }

    /// Sends what is staged; whether the socket took it, or will never.
    fn send(&mut self, route: &Route, each: usize) -> bool {
        if let Some(wire) = &mut self.wire {
            for one in self.staged.chunks(each) {
                if !wire.loses(Way::Out) {
                    self.port.send_staged(route, one, each);
                }
            }
            return true;
        }
        match self.port.send_staged(route, &self.staged, each) {
            Written::Octets(_) => true,
            Written::Blocked => false,
            // Datagrams that are longer than the path takes are not sent together.
            Written::Failed if self.staged.len() > each => {
                for one in self.staged.chunks(each) {
                    self.port.send_staged(route, one, each);
                }
                true
            }
            Written::Failed | Written::Gone => true,
        }
    }

    /// The way to a destination; none to where nothing can be.
    fn route(&self, to: &Destination) -> Option<Route> {
        let (local, remote) = path::ends(&to.path, true).ok()?;
        let at = |ip: IpAddr, port: u16| match ip {
            IpAddr::V6(v6) if v6.is_unicast_link_local() || v6.is_multicast() => {
                SocketAddrV6::new(v6, port, 0, to.path.interface).into()
            }
            ip => SocketAddr::new(ip, port),
        };
        let remote = at(remote, (to.qpn >> 8) as u16);
        Some(Route { local: at(local, self.port.number()), remote })
    }

    fn watch(&mut self) {
        let read = !self.waits;
        let interest = match self.turn.leased {
            true => Interest::NONE,
            false => Interest { read, write: self.turn.blocked },
        };
        if interest != self.watched
            && let Some(token) = self.token
        {
            self.watched = interest;
            Engine::get().modify(token, interest);
        }
    }
}

/// Appends the packet of a request; `false` if its memory may not be read.
fn stage(
    qp: &VerbsQp,
    wqe: &SendWqe,
    to: &Destination,
    regions: &RegionReader<'_>,
    sealer: Option<(&mut Sealer, AddressPair)>,
    out: &mut Vec<u8>,
) -> bool {
    if wqe.len > PAYLOAD_MAX {
        return true;
    }
    let start = out.len();
    if sealer.is_some() {
        out.resize(start + Sealer::HEADER_LEN, 0);
    }
    if !stage_text(qp, wqe, to, regions, out) {
        out.truncate(start);
        return false;
    }
    if let Some((sealer, ends)) = sealer {
        sealer.seal(out, start, &ends, clock::time_of_day_ns());
    }
    true
}

/// Appends the headers and the payload of a request; `false` if its memory may not be read.
fn stage_text(
    qp: &VerbsQp,
    wqe: &SendWqe,
    to: &Destination,
    regions: &RegionReader<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let header = Header {
        to: to.qpn,
        from: qp.num(),
        qkey: to.qkey,
        immediate: match wqe.op {
            SendOp::SendImm { imm } => Some(imm.to_ne_bytes()),
            _ => None,
        },
        solicited: wqe.flags.contains(SendFlags::SOLICITED),
    };
    out.reserve(HEADER_LEN_MAX + wqe.len as usize + SEALED_OVERHEAD);
    out.extend_from_slice(&header.to_bytes()[..header.len()]);
    if let Some(inline) = wqe.inline() {
        out.extend_from_slice(inline);
        return true;
    }
    let mut pieces = Gather::new();
    if regions.gather(qp.pd(), wqe.sges(), 0, wqe.len.into(), &mut pieces).is_err() {
        return false;
    }
    for piece in pieces.pieces() {
        if let Piece::Memory(memory) = piece {
            regions.copy_to(*memory, out);
        }
    }
    !regions.found_gone()
}

impl Drive for Mailbox {
    fn register(&mut self, source: Arc<dyn Source>) {
        self.token = Some(Engine::get().add(self.port.as_fd(), Interest::READ, source));
    }

    fn capabilities(&self) -> Option<Capabilities> {
        Some(capability::datagrams(crate::Host::get()))
    }

    fn qp(&self) -> &Arc<VerbsQp> {
        &self.qp
    }

    fn spoil(&mut self, number: u32) {
        self.wire = Wire::of(crate::Host::get().faults(), number);
    }

    fn lose_peer(&mut self) {
        if let Some(wire) = &mut self.wire {
            wire.cut();
        }
    }

    fn work_done(&self) -> (Personality, Work) {
        let operations = if self.group.is_none() { self.qp.sq().succeeded() } else { 0 };
        (Personality::Roce, Work { operations, ..self.moved })
    }

    fn turn(&mut self) -> &mut Turn {
        &mut self.turn
    }

    fn is_over(&self) -> bool {
        self.closed
    }

    fn look(&self) -> u8 {
        let receive = if self.waits { 0 } else { todo::RECEIVE };
        match () {
            () if self.closed => 0,
            () if !self.turn.blocked => receive,
            () if tcp::ready(self.port.as_fd()).write => receive | todo::SEND | todo::WRITABLE,
            () => receive,
        }
    }

    fn has_arrivals(&self) -> bool {
        !self.waits && tcp::ready(self.port.as_fd()).read
    }

    fn work(&mut self, work: u8, _now: Instant) {
        if self.closed {
            return;
        }
        if work & todo::POSTED != 0 {
            self.waits = false;
        }
        if work & (todo::RECEIVE | todo::POSTED) != 0 {
            self.receive();
        }
        let open = !self.turn.blocked || work & todo::WRITABLE != 0;
        if open && work & (todo::SEND | todo::WRITABLE) != 0 {
            self.transmit();
        }
    }

    fn finds_nothing(&mut self, _now: Instant) -> bool {
        !self.receive() && !self.closed
    }

    fn disconnect(&mut self) {
        self.transmit();
        self.closed = true;
    }

    fn abandon(&mut self) {
        self.closed = true;
    }

    fn conclude(&mut self, _now: Instant, _this: &Weak<dyn Source>) -> Notices {
        let mut notices = Notices::default();
        if self.closed {
            notices.finished = self.token.take();
        } else {
            self.watch();
        }
        notices
    }

    fn flush_at_exit(&mut self, until: Instant) {
        self.transmit();
        while self.turn.blocked && clock::now() < until {
            tcp::wait(self.port.as_fd(), true);
            self.transmit();
        }
    }
}
