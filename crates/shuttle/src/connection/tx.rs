//! What leaves: handshake packets, control packets when something is owed, flights of segments as
//! window and pacing allow.

use weft_wire::llp::{Gather, RegisteredMemory, UlpduSource};
use weft_wire::shuttle::frame::{Frame, MAX_PLAIN_FRAME};
use weft_wire::shuttle::{CtrlHeader, DataHeader, StreamId};

use super::{Connection, Ports, State, Stats, Stream};
use crate::flight::{Cargo, Flight};
use crate::path::{Allowance, Path, Route};
use crate::protect::Guard;
use crate::stream::table::Table;

/// Octets of ranges in a control packet at most: beyond this, older runs take turns.
const RANGES_MAX: usize = 1000;
/// The longest wait before a Request or a Close is repeated.
const REPEAT_NS_MAX: u64 = 4_000_000_000;
/// Octets of the packets that try a route: what every path must carry.
const CHALLENGE_OCTETS: usize = 1200;

/// Datagrams that leave together over one route, to be sent with one call where the system can:
/// all of one length but the last, which may be shorter.
#[derive(Debug, Default)]
pub struct Transmit {
    /// The datagrams, one after the other.
    pub gather: Gather,
    /// Their lengths in octets.
    pub lengths: Vec<u16>,
    /// Where they go; set when there are any.
    pub route: Option<Route>,
    /// They are longer than the path is known to carry, because segments keep their size when
    /// they are sent again: the network may cut them.
    pub may_fragment: bool,
}

impl Transmit {
    fn clear(&mut self) {
        self.gather.clear();
        self.lengths.clear();
        self.route = None;
        self.may_fragment = false;
    }

    fn end_datagram(&mut self, start: usize) {
        self.lengths.push((self.gather.len() - start) as u16);
    }
}

impl Connection {
    /// Puts what may leave now into `out`, at most one burst; `false` when there is nothing.
    pub fn poll_transmit<P: Ports>(
        &mut self,
        now_ns: u64,
        ports: &mut P,
        memory: &impl RegisteredMemory,
        out: &mut Transmit,
    ) -> bool {
        out.clear();
        let sent = match &mut self.state {
            State::Requesting { .. } => self.put_request(now_ns, out),
            State::Open { reply: Some(_) } => self.put_reply(now_ns, out),
            State::Open { reply: None } => self.put_open(now_ns, ports, memory, out),
            State::Closing { .. } => self.put_close(now_ns, out),
            State::Ended { answer, .. } => {
                let owed = std::mem::take(answer);
                if owed {
                    self.put_alone(Frame::Closed, out);
                }
                owed
            }
        };
        self.stats.datagrams_out += out.lengths.len() as u64;
        sent
    }

    fn put_request(&mut self, now_ns: u64, out: &mut Transmit) -> bool {
        let State::Requesting { request, sent_ns, sent, next_ns, tries, .. } = &mut self.state
        else {
            return false;
        };
        if *next_ns > now_ns {
            return false;
        }
        (*sent_ns, *sent) = (now_ns, *sent + 1);
        let wait_ns = (3 * self.config.initial_rtt_ns) << (*tries).min(10);
        *next_ns = now_ns + wait_ns.min(REPEAT_NS_MAX);
        *tries += 1;
        put_hello(request, self.paths[0].route, out);
        true
    }

    fn put_reply(&mut self, now_ns: u64, out: &mut Transmit) -> bool {
        let State::Open { reply: Some(reply) } = &mut self.state else { return false };
        let owed = std::mem::take(&mut reply.owed);
        if owed {
            reply.sent_ns.get_or_insert(now_ns);
            put_hello(&reply.octets, self.paths[0].route, out);
        }
        owed
    }

    fn put_close(&mut self, now_ns: u64, out: &mut Transmit) -> bool {
        let wait_ns = self.paths[0].recovery.probe_timeout_ns();
        let State::Closing { reason, next_ns, tries } = &mut self.state else { return false };
        if *next_ns > now_ns || *tries == super::timer::CLOSES_MAX {
            return false;
        }
        *next_ns = now_ns + (wait_ns << *tries).min(REPEAT_NS_MAX);
        *tries += 1;
        let frame = Frame::Close { reason: *reason };
        self.put_alone(frame, out);
        true
    }

    /// A control packet with one frame that has its own timer.
    fn put_alone(&mut self, frame: Frame<'_>, out: &mut Transmit) {
        self.frames.clear();
        frame.encode(&mut self.frames);
        let route = self.paths[0].route;
        self.put_ctrl(0, route, out);
        self.paths[0].recovery.handle_sent_untimed();
    }

    fn put_open<P: Ports>(
        &mut self,
        now_ns: u64,
        ports: &mut P,
        memory: &impl RegisteredMemory,
        out: &mut Transmit,
    ) -> bool {
        for at in 0..self.paths.len() {
            if self.put_path_check(now_ns, at, out) || self.put_frames(now_ns, at, out) {
                return true;
            }
        }
        self.send_at_ns = None;
        for at in 0..self.paths.len() {
            if self.paths[at].validated && self.put_flight(now_ns, at, ports, memory, out) {
                return true;
            }
            if self.put_mtu_probe(now_ns, at, out) {
                return true;
            }
            if std::mem::take(&mut self.paths[at].ping) {
                self.frames.clear();
                Frame::Ping.encode(&mut self.frames);
                self.put_timed(now_ns, at, Cargo::Frames, out);
                return true;
            }
        }
        self.schedule_queries(now_ns);
        false
    }

    /// Answers or asks whether a route works.
    fn put_path_check(&mut self, now_ns: u64, at: usize, out: &mut Transmit) -> bool {
        let path = &mut self.paths[at];
        let response = path.response.take().map(|(token, to)| (Frame::Response { token }, to));
        let check = response.or_else(|| {
            let (token, route) = path.poll_challenge(now_ns)?;
            Some((Frame::Challenge { token }, route))
        });
        let Some((frame, route)) = check else { return false };
        self.frames.clear();
        frame.encode(&mut self.frames);
        let overhead = self.session.as_ref().map_or(0, |s| s.guard.ctrl_overhead());
        self.frames.resize(CHALLENGE_OCTETS - overhead, 0);
        self.put_ctrl(at, route, out);
        self.paths[at].recovery.handle_sent_untimed();
        true
    }

    /// A Ping in a datagram of a size that is to be tried.
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
        true
    }

    /// A control packet on path `at`, if anything is owed there.
    fn put_frames(&mut self, now_ns: u64, at: usize, out: &mut Transmit) -> bool {
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
                path.arrivals.owe(now_ns, 0, true);
            }
        }
        if let Some(pn) = path.poll_floor() {
            Frame::Floor { path: path.id, pn }.encode(frames);
        }
        let before = frames.len();
        if at == 0 {
            put_queries(now_ns, streams, frames, budget);
        }
        let timed = frames.len() > before;
        if frames.is_empty() {
            return false;
        }
        if timed {
            self.put_timed(now_ns, at, Cargo::Frames, out);
        } else {
            let route = self.paths[at].route;
            self.put_ctrl(at, route, out);
            self.paths[at].recovery.handle_sent_untimed();
        }
        true
    }

    /// A control packet that is acknowledged for its own sake.
    fn put_timed(&mut self, now_ns: u64, at: usize, cargo: Cargo, out: &mut Transmit) {
        let route = self.paths[at].route;
        self.put_ctrl(at, route, out);
        let path = &mut self.paths[at];
        let octets = out.lengths[0];
        let mut flight = Flight::new(path.recovery.next_pn(), 1, octets, octets);
        flight.cargo = cargo;
        path.handle_sent(now_ns, flight);
    }

    /// What stands in `frames` as a packet of path `at`; the caller accounts for its number.
    fn put_ctrl(&mut self, at: usize, route: Route, out: &mut Transmit) {
        let Some(session) = &mut self.session else { return };
        let path = &self.paths[at];
        let pn = path.recovery.next_pn();
        let header = CtrlHeader {
            cid: session.peer_cid,
            path: path.id,
            pn: pn as u32,
            phase: session.guard.next_phase(),
            ack_now: false,
        };
        let start = out.gather.len();
        session.guard.put_ctrl(pn, &header, &self.frames, &mut out.gather);
        out.end_datagram(start);
        out.route = Some(route);
        self.stats.control_out += 1;
    }

    /// A flight of one stream on path `at`.
    fn put_flight<P: Ports>(
        &mut self,
        now_ns: u64,
        at: usize,
        ports: &mut P,
        memory: &impl RegisteredMemory,
        out: &mut Transmit,
    ) -> bool {
        let packets = match self.paths[at].allowance(now_ns) {
            Allowance::Packets(packets) => packets,
            Allowance::At(at_ns) => {
                self.send_at_ns = Some(self.send_at_ns.map_or(at_ns, |other| other.min(at_ns)));
                return false;
            }
            Allowance::Full => return false,
        };
        let probing = self.paths[at].recovery.probes() > 0;
        if probing {
            self.queue_probes(at, packets);
        }
        if let Some(flight) = self.load_turn(now_ns, at, packets, ports, memory, out) {
            self.stats.segments_out += u64::from(flight.count());
            let path = &mut self.paths[at];
            path.ping = false;
            path.handle_sent(now_ns, flight);
            return true;
        }
        let path = &mut self.paths[at];
        path.ping |= probing;
        path.recovery.handle_app_limited();
        false
    }

    /// Probes carry the oldest segments of the stream whose packets have been open for longest.
    fn queue_probes(&mut self, at: usize, packets: u64) {
        if let Some(oldest) = self.paths[at].recovery.oldest_open()
            && let Some(stream) = self.streams.get_mut(oldest.stream)
        {
            stream.send.queue_probes(packets);
            self.streams.prefer(oldest.stream);
        }
    }

    /// Deficit round robin over the streams (S-70): the flight of the first that has one.
    fn load_turn<P: Ports>(
        &mut self,
        now_ns: u64,
        at: usize,
        packets: u64,
        ports: &mut P,
        memory: &impl RegisteredMemory,
        out: &mut Transmit,
    ) -> Option<Flight> {
        let Self { session, paths, streams, segment, peeked, stats, .. } = self;
        let session = session.as_mut()?;
        while let Some(id) = streams.turn() {
            if let Some(stream) = streams.get_mut(id)
                && let Some(source) = ports.source(id)
            {
                let path = &mut paths[at];
                let guard = &mut session.guard;
                let cid = session.peer_cid.with_stream(id);
                let header = CtrlHeader { cid, path: path.id, pn: 0, phase: 0, ack_now: false };
                let mut loading =
                    Loading { now_ns, path, guard, header, source, segment, peeked, stats };
                if let Some(flight) = loading.load(id, stream, packets, memory, out) {
                    stream.send.deficit -= flight.octets() as i64;
                    streams.change(id);
                    out.route = Some(path.route);
                    return Some(flight);
                }
            }
            if !streams.retire() {
                return None;
            }
        }
        None
    }
}

/// A flight being put together.
struct Loading<'a, S> {
    now_ns: u64,
    path: &'a mut Path,
    guard: &'a mut Guard,
    /// Of every packet, but for number and request.
    header: CtrlHeader,
    source: S,
    segment: &'a mut Gather,
    peeked: &'a mut Gather,
    stats: &'a mut Stats,
}

impl<S: UlpduSource> Loading<'_, S> {
    /// Up to `packets` packets with consecutive segments: of those to be sent again first.
    fn load(
        &mut self,
        id: StreamId,
        stream: &mut Stream,
        packets: u64,
        memory: &impl RegisteredMemory,
        out: &mut Transmit,
    ) -> Option<Flight> {
        let overhead = self.guard.data_overhead();
        let mulpdu = self.path.datagram_octets - overhead;
        let first_pn = self.path.recovery.next_pn();
        let (mut first_dsn, mut octets, mut last_octets, mut count) = (0, 0, 0, 0_u8);
        while u64::from(count) < packets {
            let Some((dsn, name, again)) = self.next(stream, mulpdu) else { break };
            if count > 0 && dsn != first_dsn + u64::from(count) {
                break;
            }
            self.segment.clear();
            self.source.gather(name, self.segment);
            let size = overhead + self.segment.len() as u16;
            if count > 0 && (size > octets || last_octets < octets) {
                break;
            }
            if count == 0 {
                (first_dsn, octets) = (dsn, size);
            }
            if again {
                stream.send.resent(dsn);
                self.stats.segments_resent += 1;
                self.stats.octets_resent += u64::from(size);
            } else {
                stream.send.sent(self.now_ns);
            }
            let dry = self.next(stream, mulpdu).is_none();
            if dry && !again {
                stream.send.queue_tail();
            }
            let mut ctrl = self.header;
            let pn = first_pn + u64::from(count);
            ctrl.pn = pn as u32;
            ctrl.phase = self.guard.next_phase();
            ctrl.ack_now = dry && self.path.may_ask(self.now_ns);
            let start = out.gather.len();
            let header = DataHeader { ctrl, dsn: dsn as u32 };
            self.guard.put_data(pn, &header, self.segment, memory, &mut out.gather);
            out.end_datagram(start);
            out.may_fragment |= size > self.path.datagram_octets;
            last_octets = size;
            count += 1;
        }
        let mut flight = (count > 0).then(|| Flight::new(first_pn, count, octets, last_octets))?;
        flight.cargo = Cargo::Segments { stream: id, first_dsn };
        Some(flight)
    }

    /// Number and name of the next segment to send, and whether it is sent again.
    fn next(
        &mut self,
        stream: &mut Stream,
        mulpdu: u16,
    ) -> Option<(u64, weft_wire::llp::SegmentId, bool)> {
        let send = &mut stream.send;
        if let Some(dsn) = send.next_resend() {
            return Some((dsn, send.name(dsn), true));
        }
        if !send.may_send_new() {
            return None;
        }
        let name = send.peek(mulpdu, &mut self.source, self.peeked)?;
        Some((send.next_dsn(), name, false))
    }
}

fn put_hello(octets: &[u8], route: Route, out: &mut Transmit) {
    out.gather.push_bytes(octets);
    out.end_datagram(0);
    out.route = Some(route);
}

fn put_stream(id: StreamId, stream: &Stream, frames: &mut Vec<u8>) {
    Frame::Stream { stream: id, frontier: stream.recv.frontier() }.encode(frames);
    if let Some(limit) = stream.credit {
        Frame::Credit { stream: id, limit: limit.0 }.encode(frames);
    }
}

fn put_queries(now_ns: u64, streams: &mut Table, frames: &mut Vec<u8>, budget: usize) {
    while frames.len() + MAX_PLAIN_FRAME <= budget
        && let Some(id) = streams.poll_query(now_ns)
    {
        let query = streams.get_mut(id).and_then(|stream| stream.send.poll_query(now_ns, id));
        if let Some(query) = query {
            query.encode(frames);
        }
    }
}
