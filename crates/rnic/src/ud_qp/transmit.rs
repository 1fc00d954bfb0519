//! Requests to packets: those to one destination, of one length, leave together.

use core::net::{IpAddr, SocketAddr, SocketAddrV6};

use weft_shuttle::{AddressPair, Route, SEALED_OVERHEAD, Sealer};
use weft_verbs::mr::RegionReader;
use weft_verbs::qp::SendWqe;
use weft_verbs::qp::send_queue::SendQueue;
use weft_verbs::{Destination, Qp, QpState, SendFlags, SendOp, WcStatus};
use weft_wire::datagram::{DatagramHeader, HEADER_LEN_MAX};
use weft_wire::llp::{Gather, Piece, RegisteredMemory};
use weft_wire::tap::{TapDirection, Tapped};

use super::UdQp;
use crate::batch::{Batch, Written};
use crate::event::Sending;
use crate::path;

/// The longest payload in bytes: the largest MTU that a port can have. A longer message leaves
/// without a packet and without an error, InfiniBand architecture, volume 1, C10-93.1.1.
const PAYLOAD_MAX: u32 = 4096;
/// Bytes handed to the kernel in one call, which cuts them into datagrams of one length.
const BURST_OCTETS: usize = 60_000;
/// Datagrams that the kernel cuts in one call (`UDP_MAX_SEGMENTS`).
const BURST_DATAGRAMS: usize = 64;

/// The memory of a request may not be read.
struct Unreadable;

impl UdQp {
    /// Gives what is posted to `write`, burst by burst; `clock_ns` is the time of day.
    pub fn poll_transmit(
        &mut self,
        mut clock_ns: impl FnMut() -> u64,
        mut write: impl FnMut(&Batch<'_>) -> Written,
    ) -> Sending {
        let sends = self.config.group.is_none();
        while sends && self.qp.state() == QpState::Rts {
            if let Some(end) = self.transmit_burst(&mut clock_ns, &mut write) {
                return end;
            }
        }
        Sending::Done
    }

    /// Sends requests to one destination together; `None` if there may be more.
    fn transmit_burst(
        &mut self,
        clock_ns: &mut impl FnMut() -> u64,
        write: &mut impl FnMut(&Batch<'_>) -> Written,
    ) -> Option<Sending> {
        let qp = std::sync::Arc::clone(&self.qp);
        let mut sq = qp.sq();
        let Some((first, wqe)) = sq.peek() else { return Some(Sending::Done) };
        let Some(to) = sq.destination(first).copied() else { return Some(Sending::Done) };
        let fits = wqe.len <= PAYLOAD_MAX;
        let route = self.route(&to);
        let staged = match fits {
            true => self.stage(&qp, &sq, first, &to, route.as_ref(), clock_ns),
            false => Ok(1),
        };
        let failed = match staged {
            Err(Unreadable) => Some(WcStatus::LocProtErr),
            Ok(_) if route.is_some_and(|route| !self.may_send(&route)) => {
                Some(WcStatus::LocQpOpErr)
            }
            Ok(_) => None,
        };
        if let Some(status) = failed {
            drop(sq);
            qp.fail_sends(first, status);
            return Some(Sending::Done);
        }
        let count = staged.unwrap_or(0);
        let route = route.filter(|_| fits);
        let gone = match route {
            Some(route) => {
                let gone = self.write_burst(write);
                self.show(&qp, &sq, (first, gone), &to, route);
                gone
            }
            None => count,
        };
        for seq in (0..gone as u32).map(|i| first.wrapping_add(i)) {
            if route.is_some() {
                self.stats.segments_out += 1;
                self.stats.octets_out += u64::from(sq.get(seq).len);
            }
            sq.segment_out(seq, true);
            sq.segments_acked(seq, 1);
        }
        sq.complete(qp.num(), qp.send_cq());
        (gone < count).then_some(Sending::Blocked)
    }

    /// Stages the packets of `first` and of those that may leave with it; gives how many they are.
    fn stage(
        &mut self,
        qp: &Qp,
        sq: &SendQueue,
        first: u32,
        to: &Destination,
        route: Option<&Route>,
        clock_ns: &mut impl FnMut() -> u64,
    ) -> Result<usize, Unreadable> {
        let ends = route.map(|route| AddressPair { from: route.local.ip(), to: route.remote.ip() });
        let regions = qp.regions().reader();
        let out = &mut self.burst.transmit;
        out.gather.clear();
        out.lengths.clear();
        out.route = route.copied();
        let mut each = 0;
        while out.lengths.len() < BURST_DATAGRAMS {
            let seq = first.wrapping_add(out.lengths.len() as u32);
            let room = BURST_OCTETS.saturating_sub(out.gather.len());
            let joins = sq.is_pending(seq) && sq.destination(seq) == Some(to) && each <= room;
            if !joins || sq.get(seq).len > PAYLOAD_MAX {
                break;
            }
            let sealer = self.config.seals.as_mut().map(|(sealer, _)| sealer).zip(ends);
            let wqe = sq.get(seq);
            let len = packet_len(wqe, sealer.is_some());
            if each != 0 && len != each {
                break;
            }
            each = len;
            let stage = |slab: &mut Vec<u8>| match sealer {
                None => stage_text(qp, wqe, to, &regions, slab),
                Some((sealer, ends)) => {
                    let start = slab.len();
                    slab.resize(start + Sealer::HEADER_LEN, 0);
                    let staged = stage_text(qp, wqe, to, &regions, slab);
                    if staged {
                        sealer.seal(slab, start, &ends, clock_ns());
                    }
                    staged
                }
            };
            if !out.gather.push_with(stage) {
                // It fails when its turn comes; what is staged of it lies behind all datagrams.
                return if out.lengths.is_empty() {
                    Err(Unreadable)
                } else {
                    Ok(out.lengths.len())
                };
            }
            out.lengths.push(len as u16);
        }
        Ok(out.lengths.len())
    }

    /// Has the tap see the packets of `count` requests from `first` on, which have left.
    fn show(
        &mut self,
        qp: &Qp,
        sq: &SendQueue,
        (first, count): (u32, usize),
        to: &Destination,
        route: Route,
    ) {
        let Some(tap) = &mut self.tap else { return };
        let regions = qp.regions().reader();
        for seq in (0..count as u32).map(|i| first.wrapping_add(i)) {
            let mut text = Vec::new();
            if stage_text(qp, sq.get(seq), to, &regions, &mut text) {
                tap.see(TapDirection::Sent, Some(route.into()), Tapped::Datagram(&text));
            }
        }
    }

    /// Writes what is staged; gives how many datagrams the socket took, or never will.
    fn write_burst(&mut self, write: &mut impl FnMut(&Batch<'_>) -> Written) -> usize {
        let all = self.burst.transmit.lengths.len();
        self.burst.restart();
        while let Some(next) = self.burst.lengths().first().copied() {
            let octets = match write(&self.burst.batch()) {
                Written::Blocked => break,
                Written::Octets(octets) => octets.max(next.into()),
                // What the system refuses is lost, as on the path.
                Written::Failed | Written::Gone => next.into(),
            };
            self.burst.advance(octets);
        }
        all - self.burst.lengths().len()
    }

    /// Whether datagrams may leave by `route`.
    fn may_send(&mut self, route: &Route) -> bool {
        if route.remote.ip().is_multicast() {
            return self.config.policy.permit_groups();
        }
        // As what comes from there has them.
        let ends = AddressPair { from: route.remote.ip(), to: route.local.ip() };
        let sent = AddressPair { from: ends.to, to: ends.from };
        if self.trusted != Some(ends) && !self.config.policy.permit(&sent) {
            return false;
        }
        self.trusted = Some(ends);
        true
    }

    /// The path to a destination; none to where nothing can be.
    fn route(&self, to: &Destination) -> Option<Route> {
        let (local, remote) = path::ends(&to.path, true).ok()?;
        let at = |ip: IpAddr, port: u16| match ip {
            IpAddr::V6(v6) if v6.is_unicast_link_local() || v6.is_multicast() => {
                SocketAddrV6::new(v6, port, 0, to.path.interface).into()
            }
            ip => SocketAddr::new(ip, port),
        };
        let remote = at(remote, (to.qpn >> 8) as u16);
        Some(Route { local: at(local, self.config.port), remote })
    }
}

/// Bytes of the packet of a request.
fn packet_len(wqe: &SendWqe, sealed: bool) -> usize {
    let header = header_of(wqe, 0, 0, 0).len();
    header + wqe.len as usize + if sealed { SEALED_OVERHEAD } else { 0 }
}

fn header_of(wqe: &SendWqe, to: u32, from: u32, qkey: u32) -> DatagramHeader {
    let immediate = match wqe.op {
        SendOp::SendImm { imm } => Some(imm.to_ne_bytes()),
        _ => None,
    };
    DatagramHeader {
        to,
        from,
        qkey,
        immediate,
        solicited: wqe.flags.contains(SendFlags::SOLICITED),
    }
}

/// Appends the headers and the payload of a request; `false` if its memory may not be read.
fn stage_text(
    qp: &Qp,
    wqe: &SendWqe,
    to: &Destination,
    regions: &RegionReader<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let header = header_of(wqe, to.qpn, qp.num(), to.qkey);
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
