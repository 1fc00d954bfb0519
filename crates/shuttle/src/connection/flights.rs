//! Data flights: which stream sends on which path, as windows and pacing allow (S-60 to S-70).
//!
//! The last packet before silence asks for its acknowledgement at once (S-40): the application's
//! request must be complete before the peer's reply arrives, as it is on hardware; perftest relies
//! on that.

use weft_wire::llp::{RegisteredMemory, UlpduSource};
use weft_wire::shuttle::frame::Frame;
use weft_wire::shuttle::{CtrlHeader, StreamId};

use super::{Ports, ShuttleConnection};
use crate::cc::octets_in;
use crate::config::MAX_PATHS;
use crate::flight::Cargo;
use crate::flight_builder::{FlightBuilder, Sendable};
use crate::path::Path;
use crate::path_budget::{Allowance, SHARED_BUDGET};
use crate::scheduler::{PathOutlook, arrival_ns};
use crate::stream::send::SendStream;
use crate::transmit::Transmit;

impl ShuttleConnection {
    /// Asks the peer what it has of stream `id`, in place of sending segments again whose memory is
    /// gone: it may have them, and the acknowledgement was lost (S-52). To be called instead of
    /// sending what [`ShuttleConnection::poll_transmit`] gave; nothing of the stream is sent again
    /// until the peer answers. `false` if it has done so, and lacks them.
    pub fn ask_instead(&mut self, now_ns: u64, id: StreamId) -> bool {
        let is_open = self.is_open();
        let asks = match self.streams.get_mut(id) {
            Some(stream) if is_open => stream.send.ask_instead(now_ns),
            _ => false,
        };
        self.streams.change(id);
        self.schedule_queries(now_ns);
        asks
    }

    /// Builds a flight of one stream on path `at`; `false` if none may leave.
    pub(super) fn put_flight<P: Ports>(
        &mut self,
        now_ns: u64,
        at: usize,
        ports: &mut P,
        memory: &impl RegisteredMemory,
        out: &mut Transmit,
    ) -> bool {
        if self.paths[at].recovery.probes() > 0 {
            return self.put_probes(now_ns, at, ports, memory, out);
        }
        // Shared and own controllers alternate.
        self.own_first = !self.own_first;
        let own_first = self.own_first;
        (own_first && self.put_own(now_ns, at, ports, memory, out))
            || self.put_shared(now_ns, at, ports, memory, out)
            || (!own_first && self.put_own(now_ns, at, ports, memory, out))
    }

    /// Builds probe packets with the oldest open segments, of whichever stream.
    fn put_probes<P: Ports>(
        &mut self,
        now_ns: u64,
        at: usize,
        ports: &mut P,
        memory: &impl RegisteredMemory,
        out: &mut Transmit,
    ) -> bool {
        let packets = u64::from(self.paths[at].recovery.probes());
        // If other paths carry the segments, a silent path gets a Ping only.
        let alone = !self.paths.iter().any(Path::is_well);
        if let Some(oldest) = self.paths[at].recovery.oldest_open()
            && let Some(stream) = self.streams.get_mut(oldest.stream)
        {
            let id = oldest.stream;
            let queued = alone && stream.send.queue_probes(packets);
            let own = stream.own.as_ref();
            let budget = own.map_or(SHARED_BUDGET, |own| self.paths[at].budget_of(id, own));
            self.streams.wake(id);
            if queued
                && self.put_stream_flight(now_ns, at, (id, budget), packets, ports, memory, out)
            {
                // A path that has become too small for the segment, and carries no fragments, would
                // never answer (S-55).
                let path = &mut self.paths[at];
                let is_large = out.lengths.iter().any(|octets| *octets > path.datagram_octets);
                path.ping = is_large && path.recovery.is_outage();
                return true;
            }
        }
        self.frames.clear();
        Frame::Ping.encode(&mut self.frames);
        self.put_timed(now_ns, at, Cargo::Frames, out);
        // What was posted meanwhile has not been looked for.
        self.dry = false;
        true
    }

    /// Builds a flight of the next stream under the path's shared controller (S-70).
    fn put_shared<P: Ports>(
        &mut self,
        now_ns: u64,
        at: usize,
        ports: &mut P,
        memory: &impl RegisteredMemory,
        out: &mut Transmit,
    ) -> bool {
        let Some(packets) = self.allowance(now_ns, at, SHARED_BUDGET) else { return false };
        let octets = self.paths[at].datagram_octets;
        while let Some((id, burst)) = self.streams.turn(now_ns, octets) {
            let packets = packets.min(burst);
            if self.put_stream_flight(now_ns, at, (id, SHARED_BUDGET), packets, ports, memory, out)
            {
                return true;
            }
            // The head of line is reserved for another path: leave it queued.
            if self.waits || !self.streams.retire() {
                break;
            }
        }
        self.paths[at].handle_app_limited(SHARED_BUDGET);
        false
    }

    /// Builds a flight of the first stream whose own controller allows one.
    fn put_own<P: Ports>(
        &mut self,
        now_ns: u64,
        at: usize,
        ports: &mut P,
        memory: &impl RegisteredMemory,
        out: &mut Transmit,
    ) -> bool {
        for _ in 0..self.streams.own_count() {
            let Some(id) = self.streams.next_own() else { break };
            let Some(stream) = self.streams.get(id) else { continue };
            let path = &mut self.paths[at];
            let budget = stream.own.as_ref().map_or(SHARED_BUDGET, |own| path.budget_of(id, own));
            let burst = match stream.cap.burst(now_ns, path.datagram_octets) {
                Ok(burst) => burst,
                Err(at_ns) => {
                    self.wait_until(at_ns);
                    continue;
                }
            };
            let Some(packets) = self.allowance(now_ns, at, budget) else { continue };
            if self.put_stream_flight(
                now_ns,
                at,
                (id, budget),
                packets.min(burst),
                ports,
                memory,
                out,
            ) {
                return true;
            }
            self.paths[at].handle_app_limited(budget);
            if !self.waits {
                self.streams.retire_own(id);
            }
        }
        false
    }

    /// Packets that may leave now on path `at` in `budget`; if none, schedules the time at which
    /// some may.
    pub(super) fn allowance(&mut self, now_ns: u64, at: usize, budget: u16) -> Option<u64> {
        // A path that does not answer carries probes only, as long as others do (S-74).
        if !self.paths[at].is_well() && self.paths.iter().any(Path::is_well) {
            self.paths[at].let_go(budget);
            return None;
        }
        let path = &mut self.paths[at];
        match path.allowance(now_ns, budget) {
            Allowance::Packets(packets) => match self.cap.burst(now_ns, path.datagram_octets) {
                Ok(burst) => return Some(packets.min(burst)),
                Err(at_ns) => self.wait_until(at_ns),
            },
            Allowance::At(at_ns) => self.wait_until(at_ns),
            Allowance::Full => {}
        }
        None
    }

    fn wait_until(&mut self, at_ns: u64) {
        self.send_at_ns = Some(self.send_at_ns.map_or(at_ns, |other| other.min(at_ns)));
    }

    /// Builds a flight of up to `packets` packets of a stream, in a budget of path `at`; `false` if
    /// the stream has nothing to send.
    #[expect(clippy::too_many_arguments, reason = "the caller's arguments and three of its own")]
    fn put_stream_flight<P: Ports>(
        &mut self,
        now_ns: u64,
        at: usize,
        (id, budget): (StreamId, u16),
        packets: u64,
        ports: &mut P,
        memory: &impl RegisteredMemory,
        out: &mut Transmit,
    ) -> bool {
        let Self {
            session, paths, streams, body, stats, cap, waits, dry, tap, advanced_ns, ..
        } = self;
        (*waits, *dry) = (false, false);
        let is_only = paths.len() == 1 && streams.is_one_shared();
        let (Some(session), Some(stream), Some(source)) =
            (session, streams.get_mut(id), ports.source(id))
        else {
            return false;
        };
        let mut sendable = choose(now_ns, paths, at, &stream.send, &source);
        sendable.holes &= stream.send.asked_ns().is_none();
        let had_all = stream.send.is_settled();
        *waits = sendable != Sendable::ALL;
        let (path, guard) = (&mut paths[at], &mut session.guard);
        let cid = session.peer_cid.with_stream(id);
        let header = CtrlHeader { cid, path: path.id, pn: 0, phase: 0, ack_now: false };
        let mut builder = FlightBuilder {
            now_ns,
            path,
            guard,
            header,
            source,
            body,
            sendable,
            dry: true,
            is_alone: is_only && had_all,
            resent: (0, 0),
            tap: tap.as_deref_mut(),
        };
        let (flight, next) = builder.build(id, stream, packets, memory, out);
        stats.segments_resent += builder.resent.0;
        stats.octets_resent += builder.resent.1;
        *dry = next.is_none();
        let Some(mut flight) = flight else { return false };
        if had_all {
            *advanced_ns = now_ns.max(*advanced_ns);
        }
        flight.budget = budget;
        stream.send.deficit -= flight.octets() as i64;
        stream.cap.handle_sent(now_ns, flight.octets());
        cap.handle_sent(now_ns, flight.octets());
        stats.segments_out += flight.segment_count();
        let path = &mut paths[at];
        path.ping = false;
        path.arrivals.handle_data_sent(now_ns, is_only && stream.recv.is_unbroken());
        out.route = Some(path.route);
        path.handle_sent(now_ns, flight);
        streams.change(id);
        true
    }
}

/// Chooses what of a stream leaves on path `at` (S-73): nothing that would arrive earlier over the
/// other paths.
fn choose(
    now_ns: u64,
    paths: &[Path],
    at: usize,
    send: &SendStream,
    source: &impl UlpduSource,
) -> Sendable {
    if paths.len() == 1 {
        return Sendable::ALL;
    }
    let mut outlooks = [PathOutlook { arrives_ns: u64::MAX, rate_bps: 0 }; MAX_PATHS];
    let mut count = 0;
    let (mut room, mut octets) = (0, 0);
    for path in paths.iter().filter(|path| path.is_well()) {
        outlooks[count] = path.outlook(now_ns);
        // A path without a rate limit has room for everything.
        let of_path = octets_in(outlooks[count].rate_bps, path.recovery.rtt().smoothed_ns);
        room = u64::saturating_add(room, of_path);
        octets = octets.max(u64::from(path.datagram_octets));
        count += 1;
    }
    if count < 2 || !paths[at].is_well() {
        return Sendable::ALL;
    }
    let outlooks = &mut outlooks[..count];
    let here_ns = paths[at].outlook(now_ns).arrives_ns;
    let holes = send.holes(room / octets + 1) * octets;
    let left = holes.saturating_add(source.left(room));
    Sendable {
        holes: holes == 0 || here_ns <= arrival_ns(outlooks, holes),
        new: left >= room || here_ns <= arrival_ns(outlooks, left),
    }
}

#[cfg(test)]
mod tests {
    use weft_wire::llp::{Gather, SegmentId};
    use weft_wire::shuttle::PathId;

    use super::*;
    use crate::config::ShuttleConfig;
    use crate::path::Route;
    use crate::stream::Repair;

    const MS: u64 = 1_000_000;

    /// A source that has so many bytes left.
    struct Source(u64);

    impl UlpduSource for Source {
        fn next(&mut self, mulpdu: u16) -> Option<SegmentId> {
            Some(SegmentId { wqe: 0, offset: 0, len: mulpdu.into() })
        }

        fn left(&self, enough: u64) -> u64 {
            self.0.min(enough)
        }

        fn gather(&self, _: &SegmentId, _: &mut Gather) {}

        fn acked(&mut self, _: SegmentId) {}
    }

    /// Two paths of 100 Mbit/s whose packets arrive after 5 ms and after 250 ms. The near one
    /// delivers 3.0625 MB until the first packet arrives on the far one; together they hold
    /// 6.375 MB.
    fn near_and_far() -> [Path; 2] {
        [(0, 10 * MS), (1, 500 * MS)].map(|(id, rtt_ns)| {
            let at = ([10, 0, 0, 1], 4000).into();
            let (route, config) = (Route { local: at, remote: at }, ShuttleConfig::default());
            let mut path = Path::new(PathId(id), route, &config, 1200);
            path.recovery.handle_handshake_rtt(rtt_ns);
            path.validated = true;
            path
        })
    }

    fn lost_segments(count: u64) -> SendStream {
        let mut send = SendStream::new(1, Repair::Full);
        for _ in 0..count {
            send.peek(1000, &mut Source(0));
            send.sent(0);
        }
        if count > 0 {
            send.handle_lost(0, count - 1);
        }
        send
    }

    /// S-73.
    #[test]
    fn the_far_path_carries_what_would_arrive_no_earlier_on_the_near_one() {
        let paths = near_and_far();
        let none = lost_segments(0);
        for (left, on_far) in
            [(1, false), (3_060_000, false), (3_100_000, true), (6_375_000, true), (u64::MAX, true)]
        {
            let new = |at| choose(0, &paths, at, &none, &Source(left)).new;
            assert!(new(0), "{left}");
            assert_eq!(new(1), on_far, "{left}");
        }
    }

    /// S-73: holes precede all else.
    #[test]
    fn holes_leave_by_the_same_rule_as_if_nothing_followed() {
        let paths = near_and_far();
        for (count, left, far) in [
            (0, u64::MAX, Sendable::ALL),
            (1, u64::MAX, Sendable { holes: false, new: true }),
            (1, 0, Sendable { holes: false, new: false }),
            // 2500 of 1200 bytes are too few, and the rest makes up for it.
            (2500, 0, Sendable { holes: false, new: false }),
            (2500, 100_000, Sendable { holes: false, new: true }),
            (2600, 0, Sendable::ALL),
        ] {
            let send = lost_segments(count);
            assert_eq!(choose(0, &paths, 0, &send, &Source(left)), Sendable::ALL);
            assert_eq!(choose(0, &paths, 1, &send, &Source(left)), far, "{count} and {left}");
        }
    }

    #[test]
    fn a_path_waits_for_none_that_does_not_answer() {
        let mut paths = near_and_far();
        paths[0].validated = false;
        let none = lost_segments(0);
        assert_eq!(choose(0, &paths, 1, &none, &Source(1)), Sendable::ALL);
        assert_eq!(choose(0, &paths, 0, &none, &Source(1)), Sendable::ALL);
        assert_eq!(choose(0, &near_and_far()[1..], 0, &none, &Source(1)), Sendable::ALL);
    }
}
