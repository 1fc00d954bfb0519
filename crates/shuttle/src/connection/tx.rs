//! Transmission: handshake packets, control packets that are due, then segments (`flights`).

use weft_wire::llp::RegisteredMemory;
use weft_wire::shuttle::frame::{Frame, MAX_PLAIN_FRAME};
use weft_wire::shuttle::{CtrlHeader, StreamId};
use weft_wire::tap::{TapDirection, Tapped};

use super::{ConnectionState, Ports, ShuttleConnection};
use crate::ack::AckPace;
use crate::flight::{Cargo, Flight};
use crate::path::{CHALLENGE_OCTETS, Path, Route};
use crate::path_budget::SHARED_BUDGET;
use crate::stream::table::StreamTable;
use crate::stream::{Credit, StreamState};
use crate::transmit::Transmit;

/// Most bytes of acknowledgement ranges in a control packet; older runs rotate beyond that.
const RANGES_MAX: usize = 1000;
/// Packets in a row that the peer does not acknowledge after which it is to acknowledge one, 2^16:
/// by that the floor of an end that only receives rises, and its key can change (S-53, S-83).
const UNASKED_MAX: u64 = 1 << 16;
/// Longest interval between repetitions of a Request or a Close, 4 s.
const REPEAT_NS_MAX: u64 = 4_000_000_000;
/// Requests in a row that may not be cut on the way: later ones may meet a path of IPv4 that does
/// not carry a whole one.
const WHOLE_REQUESTS: u32 = 2;

/// Size of the frame Challenge in bytes: type and token.
const CHALLENGE_FRAME_OCTETS: usize = 1 + 8;

/// Most packets of a call: the limit of UDP segmentation offload.
const BUNDLE_PACKETS_MAX: usize = 64;
/// Most bytes of a call: IP allows less than 64 KiB.
const BUNDLE_OCTETS_MAX: usize = 64_000;

/// Whether the packet with the gathered frames is acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owed {
    /// Not acknowledged: acknowledgements and state that is repeated anyway.
    Untimed,
    /// Acknowledged and timed.
    Timed(Cargo),
}

impl ShuttleConnection {
    /// Puts at most one burst that may leave now into `out`; `false` if there is none.
    pub fn poll_transmit<P: Ports>(
        &mut self,
        now_ns: u64,
        ports: &mut P,
        memory: &impl RegisteredMemory,
        out: &mut Transmit,
    ) -> bool {
        out.clear();
        let sent = match &mut self.state {
            ConnectionState::Requesting { .. } => self.put_request(now_ns, out),
            ConnectionState::Open { reply: Some(_) } => self.put_reply(now_ns, out),
            ConnectionState::Open { reply: None } => self.put_open(now_ns, ports, memory, out),
            ConnectionState::Closing { .. } => {
                self.put_path_check(now_ns, 0, out) || self.put_close(now_ns, out)
            }
            ConnectionState::Ended { withdrawal: Some(_), .. } => self.put_withdrawal(out),
            ConnectionState::Ended { answer, .. } => match answer.take() {
                Some(route) => self.put_closed(route, out),
                None => false,
            },
        };
        self.stats.datagrams_out += out.lengths.len() as u64;
        sent
    }

    fn put_request(&mut self, now_ns: u64, out: &mut Transmit) -> bool {
        let ConnectionState::Requesting { request, sent_ns, sent, next_ns, tries, .. } =
            &mut self.state
        else {
            return false;
        };
        if *next_ns > now_ns {
            return false;
        }
        (*sent_ns, *sent) = (Some(now_ns), *sent + 1);
        let wait_ns = self.config.initial_rtt_ns.saturating_mul(1 << (*tries).min(10));
        *next_ns = now_ns + wait_ns.min(REPEAT_NS_MAX);
        out.may_fragment = *tries >= WHOLE_REQUESTS;
        *tries += 1;
        let route = self.paths[0].route;
        put_hello(request, route, out);
        self.tap(TapDirection::Sent, route, Tapped::ShuttleHello(out.gather.slab()));
        true
    }

    fn put_reply(&mut self, now_ns: u64, out: &mut Transmit) -> bool {
        let ConnectionState::Open { reply: Some(reply) } = &mut self.state else { return false };
        let owed = std::mem::take(&mut reply.owed);
        if owed {
            reply.sent_ns.get_or_insert(now_ns);
            let route = self.paths[0].route;
            put_hello(&reply.octets, route, out);
            self.tap(TapDirection::Sent, route, Tapped::ShuttleHello(out.gather.slab()));
        }
        owed
    }

    fn put_withdrawal(&mut self, out: &mut Transmit) -> bool {
        let ConnectionState::Ended { withdrawal, .. } = &mut self.state else { return false };
        let Some(octets) = withdrawal.take() else { return false };
        let route = self.paths[0].route;
        put_hello(&octets, route, out);
        self.tap(TapDirection::Sent, route, Tapped::ShuttleHello(out.gather.slab()));
        true
    }

    /// Index of the path for the next Close after `tries`: another one each time, since the one
    /// that was heard last may be dead.
    fn close_on(&self, tries: u32) -> usize {
        let (lead, count) = (self.lead(), self.paths.len());
        let in_turn = (0..count).map(|more| (lead + more) % count);
        let mut well = in_turn.filter(|at| self.paths[*at].is_well()).cycle();
        well.nth(tries as usize).unwrap_or(lead)
    }

    fn put_close(&mut self, now_ns: u64, out: &mut Transmit) -> bool {
        let ConnectionState::Closing { tries, .. } = self.state else { return false };
        let at = self.close_on(tries);
        let wait_ns = self.paths[at].recovery.probe_timeout_ns();
        let ConnectionState::Closing { reason, next_ns, tries } = &mut self.state else {
            return false;
        };
        if *next_ns > now_ns || *tries == super::timer::CLOSES_MAX {
            return false;
        }
        *next_ns = now_ns + (wait_ns << *tries).min(REPEAT_NS_MAX);
        *tries += 1;
        let close = Frame::Close { reason: *reason };
        self.frames.clear();
        // The peer learns here, for the last time, what was placed.
        let budget = usize::from(self.paths[at].datagram_octets) / 2;
        for (id, stream) in self.streams.iter() {
            if self.frames.len() + MAX_PLAIN_FRAME <= budget {
                let frontier = stream.recv.frontier();
                Frame::Stream { stream: id, frontier }.encode(&mut self.frames);
            }
        }
        close.encode(&mut self.frames);
        self.put_untimed(at, self.paths[at].route, out);
        true
    }

    /// The answer to a Close goes to the address that it came from.
    fn put_closed(&mut self, route: Route, out: &mut Transmit) -> bool {
        self.frames.clear();
        Frame::Closed.encode(&mut self.frames);
        let start = out.gather.len();
        self.put_untimed(0, route, out);
        if let ConnectionState::Ended { closed, .. } = &mut self.state {
            out.gather.slab()[start..].clone_into(closed);
        }
        true
    }

    fn put_untimed(&mut self, at: usize, route: Route, out: &mut Transmit) {
        self.put_ctrl(at, route, false, out);
        self.paths[at].recovery.handle_sent_untimed();
    }

    fn put_open<P: Ports>(
        &mut self,
        now_ns: u64,
        ports: &mut P,
        memory: &impl RegisteredMemory,
        out: &mut Transmit,
    ) -> bool {
        if let Some((at, frames)) = self.late.take() {
            self.put_ready(now_ns, at, frames, out);
            return true;
        }
        // With one path, control frames follow a flight in its bundle if they fit; with several
        // they do not wait for the flights of other paths. One that never answers has neither.
        let has_traffic = |path: &Path| path.validated || path.arrivals.due_ns().is_some();
        let several = self.paths.len() > 1 && self.paths[1..].iter().any(has_traffic);
        for at in 0..self.paths.len() {
            if self.put_path_check(now_ns, at, out) || several && self.put_frames(now_ns, at, out) {
                return true;
            }
        }
        self.send_at_ns = None;
        self.streams.unpark(now_ns);
        for at in 0..self.paths.len() {
            if self.paths[at].validated && self.put_flight(now_ns, at, ports, memory, out) {
                self.put_behind(now_ns, at, out);
                out.is_last = !several && self.is_drained(now_ns);
                return true;
            }
            if !several && self.put_frames(now_ns, at, out) || self.put_mtu_probe(now_ns, at, out) {
                return true;
            }
            if std::mem::take(&mut self.paths[at].ping) {
                self.frames.clear();
                Frame::Ping.encode(&mut self.frames);
                self.put_timed(now_ns, at, Cargo::Ping, out);
                return true;
            }
        }
        self.schedule_queries(now_ns);
        false
    }

    /// Whether the flight just built took all there was, so that polling again would find nothing:
    /// the common case of a ping-pong.
    fn is_drained(&mut self, now_ns: u64) -> bool {
        let alone = self.dry && self.late.is_none() && self.streams.is_one_shared();
        let path = &self.paths[0];
        let drained = alone
            && path.recovery.probes() == 0
            && !path.mtu.is_due(now_ns)
            && path.arrivals.due_ns().is_none_or(|due_ns| due_ns > now_ns)
            && self.allowance(now_ns, 0, SHARED_BUDGET).is_some();
        if drained {
            self.paths[0].handle_app_limited(SHARED_BUDGET);
            self.schedule_queries(now_ns);
        }
        drained
    }

    /// Size in bytes of the shortest packet that holds a Challenge.
    pub(super) fn challenge_octets_least(&self) -> usize {
        CHALLENGE_FRAME_OCTETS + self.session.as_ref().map_or(0, |s| s.guard.ctrl_overhead())
    }

    /// Sends a Response or a Challenge.
    fn put_path_check(&mut self, now_ns: u64, at: usize, out: &mut Transmit) -> bool {
        let least_octets = self.challenge_octets_least();
        let path = &mut self.paths[at];
        // Nobody has shown that the peer is where the Challenge came from: what goes there is no
        // longer than that was.
        let response = path.response.take().map(|(token, to, octets)| {
            (Frame::Response { token }, to, octets.min(CHALLENGE_OCTETS))
        });
        let check = response.or_else(|| {
            let (token, route, octets) = path.poll_challenge(now_ns, least_octets)?;
            Some((Frame::Challenge { token }, route, octets))
        });
        let Some((frame, route, octets)) = check else { return false };
        self.frames.clear();
        frame.encode(&mut self.frames);
        let overhead = self.session.as_ref().map_or(0, |s| s.guard.ctrl_overhead());
        let len = self.frames.len().max(octets.saturating_sub(overhead));
        self.frames.resize(len, 0);
        self.put_ctrl(at, route, false, out);
        self.paths[at].recovery.handle_sent_untimed();
        true
    }

    /// Sends an MTU probe: a Ping padded to the size to try.
    fn put_mtu_probe(&mut self, now_ns: u64, at: usize, out: &mut Transmit) -> bool {
        let path = &mut self.paths[at];
        if !path.validated || path.recovery.is_outage() {
            return false;
        }
        let Some(octets) = path.mtu.poll(now_ns) else { return false };
        let overhead = self.session.as_ref().map_or(0, |s| s.guard.ctrl_overhead());
        self.frames.clear();
        Frame::Ping.encode(&mut self.frames);
        self.frames.resize(usize::from(octets) - overhead, 0);
        self.put_timed(now_ns, at, Cargo::MtuProbe, out);
        self.frames = Vec::new();
        out.holds_probe = true;
        true
    }

    /// Sends a control packet on path `at`, if frames are due.
    fn put_frames(&mut self, now_ns: u64, at: usize, out: &mut Transmit) -> bool {
        let owed = self.gather_frames(now_ns, at);
        if let Some(frames) = owed {
            self.put_ready(now_ns, at, frames, out);
        }
        owed.is_some()
    }

    /// Sends control frames of path `at` behind the flight in `out`: in its bundle, or in the next
    /// call.
    fn put_behind(&mut self, now_ns: u64, at: usize, out: &mut Transmit) {
        let Some(frames) = self.gather_frames(now_ns, at) else { return };
        let overhead = self.session.as_ref().map_or(0, |s| s.guard.ctrl_overhead());
        let each = out.lengths.first().copied().map_or(0, usize::from);
        let fits = self.frames.len() + overhead <= each
            && out.lengths.last() == out.lengths.first()
            && out.gather.len() + each <= BUNDLE_OCTETS_MAX
            && out.lengths.len() < BUNDLE_PACKETS_MAX;
        if fits {
            self.put_ready(now_ns, at, frames, out);
        } else {
            self.late = Some((at, frames));
        }
    }

    /// Sends the contents of `frames` on path `at`.
    fn put_ready(&mut self, now_ns: u64, at: usize, frames: Owed, out: &mut Transmit) {
        match frames {
            Owed::Timed(cargo) => self.put_timed(now_ns, at, cargo, out),
            Owed::Untimed => {
                let route = self.paths[at].route;
                self.put_ctrl(at, route, false, out);
                self.paths[at].recovery.handle_sent_untimed();
            }
        }
    }

    /// Collects frames due on path `at` in `frames`.
    fn gather_frames(&mut self, now_ns: u64, at: usize) -> Option<Owed> {
        let asks = at == self.lead();
        let Self { paths, frames, streams, untold, .. } = self;
        let path = &mut paths[at];
        frames.clear();
        let budget = usize::from(path.datagram_octets) - 64;
        if path.arrivals.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            let limit = RANGES_MAX.min(budget / 2);
            path.arrivals.report(now_ns, path.id, limit, |ack| Frame::Ack(ack).encode(frames));
            while frames.len() + 2 * MAX_PLAIN_FRAME <= budget
                && let Some(id) = untold.pop_first()
            {
                if let Some(stream) = streams.get(id) {
                    put_stream(id, stream, frames);
                }
            }
            if !untold.is_empty() {
                path.arrivals.owe(now_ns, AckPace::Now);
            }
        }
        if let Some(pn) = path.poll_floor() {
            Frame::Floor { path: path.id, pn }.encode(frames);
        }
        let before = frames.len();
        if asks {
            put_queries(now_ns, streams, frames, budget);
        }
        if path.recovery.unasked() >= UNASKED_MAX {
            Frame::Ping.encode(frames);
        }
        let cargo = put_wish(path, frames).or((frames.len() > before).then_some(Cargo::Frames));
        let owed = cargo.map_or(Owed::Untimed, Owed::Timed);
        (!frames.is_empty()).then_some(owed)
    }

    /// Sends a control packet that elicits an acknowledgement.
    pub(super) fn put_timed(&mut self, now_ns: u64, at: usize, cargo: Cargo, out: &mut Transmit) {
        let route = self.paths[at].route;
        self.put_ctrl(at, route, cargo == Cargo::Ping, out);
        let path = &mut self.paths[at];
        let Some(octets) = out.lengths.last().copied() else { return };
        let mut flight = Flight::new(path.recovery.next_pn(), 1, octets, octets);
        flight.cargo = cargo;
        path.handle_sent(now_ns, flight);
    }

    /// Encodes `frames` as a packet of path `at`; the caller accounts for its number.
    fn put_ctrl(&mut self, at: usize, route: Route, ack_now: bool, out: &mut Transmit) {
        let Some(session) = &mut self.session else { return };
        let path = &self.paths[at];
        let pn = path.recovery.next_pn();
        let header = CtrlHeader {
            cid: session.peer_cid,
            path: path.id,
            pn: pn as u32,
            phase: session.guard.next_phase(),
            ack_now,
        };
        let start = out.gather.len();
        session.guard.put_ctrl(pn, &header, &self.frames, &mut out.gather);
        if let Some(tap) = &mut self.tap {
            let what = Tapped::ShuttleCtrl { header: &header, frames: &self.frames };
            tap.see(TapDirection::Sent, Some(route.into()), what);
        }
        out.end_datagram(start);
        out.route = Some(route);
        self.stats.control_out += 1;
    }
}

fn put_hello(octets: &[u8], route: Route, out: &mut Transmit) {
    out.gather.push_bytes(octets);
    out.end_datagram(0);
    out.route = Some(route);
}

/// Appends a Rate or Interval frame, if one is due.
fn put_wish(path: &mut Path, frames: &mut Vec<u8>) -> Option<Cargo> {
    if std::mem::take(&mut path.rate_owed) {
        Frame::Rate { path: path.id, rate_bps: path.rate_wanted_bps }.encode(frames);
        return Some(Cargo::Rate);
    }
    let owed = std::mem::take(&mut path.ack_path.owed);
    let interval_us = path.ack_path.interval_ns() / 1000;
    owed.then(|| Frame::Interval { path: path.id, interval_us }.encode(frames))?;
    Some(Cargo::Interval)
}

fn put_stream(id: StreamId, stream: &StreamState, frames: &mut Vec<u8>) {
    Frame::Stream { stream: id, frontier: stream.recv.frontier() }.encode(frames);
    if let Some(Credit { limit, wait_us }) = stream.credit {
        Frame::Credit { stream: id, limit: limit.0, wait_us }.encode(frames);
    }
}

fn put_queries(now_ns: u64, streams: &mut StreamTable, frames: &mut Vec<u8>, budget: usize) {
    while frames.len() + MAX_PLAIN_FRAME <= budget
        && let Some(id) = streams.poll_query(now_ns)
    {
        let query = streams.get_mut(id).and_then(|stream| stream.send.poll_query(now_ns, id));
        if let Some(query) = query {
            query.encode(frames);
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_wire::shuttle::PathId;
    use weft_wire::shuttle::frame::{Ack, Frames, Ranges};

    use super::*;
    use crate::config::ShuttleConfig;

    const MS: u64 = 1_000_000;

    /// A path of 64 ms back on which acknowledgements come 2 ms apart, and wait for 6 ms: half as
    /// many would not.
    fn crowded() -> Path {
        let at = ([10, 0, 0, 1], 4000).into();
        let route = Route { local: at, remote: at };
        let mut path = Path::new(PathId(0), route, &ShuttleConfig::default(), 1200);
        for number in 0..6 {
            let left_ns = 1000 * MS + number * 2 * MS;
            let late_ns = if number == 0 { 0 } else { 6 * MS };
            let mut room = Vec::new();
            let (ranges, _) = Ranges::encode([(0, 0)], 9, &mut room).unwrap();
            let (id, arrived_us) = (PathId(0), (left_ns / 1000) as u32);
            let (largest, floor, delay_us, marked, dropped) = (0, 0, 0, 0, 0);
            let ack =
                Ack { path: id, largest, floor, delay_us, arrived_us, marked, dropped, ranges };
            path.ack_path.handle_ack(left_ns + late_ns, &ack, 64 * MS, MS);
        }
        path
    }

    #[test]
    fn a_wish_is_told_once_and_a_rate_before_an_interval() {
        let mut path = crowded();
        (path.rate_owed, path.rate_wanted_bps) = (true, 5000);
        let told = |path: &mut Path| {
            let mut frames = Vec::new();
            let cargo = put_wish(path, &mut frames)?;
            let frame = Frames::new(&frames).next().unwrap().unwrap();
            match frame {
                Frame::Rate { path: PathId(0), rate_bps } => Some((cargo, rate_bps)),
                Frame::Interval { path: PathId(0), interval_us } => Some((cargo, interval_us)),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(told(&mut path), Some((Cargo::Rate, 5000)));
        assert_eq!(told(&mut path), Some((Cargo::Interval, 4000)));
        assert_eq!(told(&mut path), None);
    }
}
