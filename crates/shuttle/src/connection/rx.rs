//! Reception: all checks come before any change of state (S-5), then placement or frames.

use weft_wire::ids::Msn;
use weft_wire::llp::UlpduSource;
use weft_wire::shuttle::frame::{Ack, Frame, Frames};
use weft_wire::shuttle::segments::PackedSegments;
use weft_wire::shuttle::{CtrlHeader, DataHeader, Packet, PathId, StreamId, widen};
use weft_wire::tap::{TapDirection, Tapped};

use super::{ConnectionState, Order, Ports, ShuttleConnection};
use crate::ack::AckPace;
use crate::config::MAX_PATHS;
use crate::error::ConnectionEnd;
use crate::path::Route;
use crate::stream::recv::Taken;

impl ShuttleConnection {
    /// Handles a datagram that arrived over `route`; `marked` if it carried ECN CE. A datagram that
    /// is not an intact packet of this connection changes nothing. Sealed packets are decrypted in
    /// place.
    ///
    /// # Errors
    /// The stream and the fault of a segment that must not be placed. The stream places nothing
    /// more; its source tells the peer why.
    pub fn handle_datagram<P: Ports>(
        &mut self,
        now_ns: u64,
        route: Route,
        marked: bool,
        datagram: &mut [u8],
        ports: &mut P,
    ) -> Result<(), (StreamId, P::Fault)> {
        match Packet::parse(datagram) {
            Ok(Packet::Data(header)) => {
                return self.handle_data(now_ns, route, marked, header, datagram, ports);
            }
            Ok(Packet::Ctrl(header)) => {
                return self.handle_ctrl(now_ns, route, marked, header, datagram, ports);
            }
            Ok(Packet::Hello { .. }) => {
                self.tap(TapDirection::Received, route, Tapped::ShuttleHello(datagram));
                self.handle_hello(now_ns, datagram);
            }
            Err(_) => self.stats.foreign_datagrams += 1,
        }
        Ok(())
    }

    fn handle_data<P: Ports>(
        &mut self,
        now_ns: u64,
        route: Route,
        marked: bool,
        header: DataHeader,
        datagram: &mut [u8],
        ports: &mut P,
    ) -> Result<(), (StreamId, P::Fault)> {
        let (id, octets) = (header.ctrl.cid.stream(), datagram.len());
        let open = matches!(self.state, ConnectionState::Open { .. });
        let known = usize::from(header.ctrl.path.0) < self.paths.len();
        let is_closing = matches!(self.state, ConnectionState::Closing { .. });
        if !(open || is_closing) || !known || u16::from(id.0) >= self.config.streams {
            self.stats.foreign_datagrams += 1;
            return Ok(());
        }
        let Some(pn) = self.fresh_number(&header.ctrl) else { return Ok(()) };
        let Some(session) = &mut self.session else { return Ok(()) };
        let order = session.order;
        let body = session.guard.open_data(pn, &header.ctrl, datagram);
        if let Some(tap) = &mut self.tap
            && let Some(body) = body
        {
            let what = Tapped::ShuttleData { header: &header, body };
            tap.see(TapDirection::Received, Some(route.into()), what);
        }
        let segments = body.and_then(|body| PackedSegments::parse(header.several, body).ok());
        let Some(segments) = segments else {
            self.stats.foreign_datagrams += 1;
            return Ok(());
        };
        if is_closing {
            // Not placed, but it shows the peer's address.
            self.note(now_ns, (&route, octets), marked, &header.ctrl, pn);
            return Ok(());
        }
        if ports.sink(id).is_none() {
            return Ok(());
        }
        self.confirm(now_ns, pn);
        if !self.is_open() {
            return Ok(());
        }
        self.calm_ns = self.config.keep_alive_ns;
        self.data_ns = self.data_ns.max(now_ns);
        // Before placement, so that a request is complete before the peer's reply to it is placed
        // (S-47).
        self.handle_frontier(now_ns, id, |known| widen(header.frontier, known), ports);
        let taken = self.take_segments(id, order, header.dsn, segments, ports);
        self.untold.insert(id);
        // A segment may be a request, whose answer is the source's next segment.
        self.streams.wake(id);
        if let Ok(false) = taken {
            self.heard_ns = self.heard_ns.max(now_ns);
            self.follow(now_ns, (&route, octets), &header.ctrl, pn);
            return Ok(());
        }
        self.note(now_ns, (&route, octets), marked, &header.ctrl, pn);
        self.paths[usize::from(header.ctrl.path.0)].arrivals.handle_octets(octets);
        let pace = header.ctrl.ack_now.then_some(AckPace::WithReply);
        self.owe_ack(now_ns, header.ctrl.path, pace);
        taken.map(drop).map_err(|fault| (id, fault))
    }

    /// Places or holds the segments of a packet, in order. Returns whether all are; otherwise the
    /// packet is not acknowledged, and of those that come again the others are duplicates (S-43).
    fn take_segments<P: Ports>(
        &mut self,
        id: StreamId,
        order: Order,
        first_dsn: u32,
        segments: PackedSegments<'_>,
        ports: &mut P,
    ) -> Result<bool, P::Fault> {
        let Some(mut sink) = ports.sink(id) else { return Ok(false) };
        let recv = &mut self.stream(id, order).recv;
        let first = widen(first_dsn, recv.frontier());
        let mut duplicates = 0;
        let mut all = true;
        for (dsn, segment) in (first..).zip(segments) {
            match recv.handle_segment(dsn, segment, &mut sink)? {
                Taken::Yes => {}
                Taken::Duplicate => duplicates += 1,
                Taken::No => {
                    all = false;
                    break;
                }
            }
        }
        drop(sink);
        self.stats.duplicate_segments += duplicates;
        self.stats.unheld_segments += u64::from(!all);
        Ok(all)
    }

    fn handle_ctrl<P: Ports>(
        &mut self,
        now_ns: u64,
        route: Route,
        marked: bool,
        header: CtrlHeader,
        datagram: &mut [u8],
        ports: &mut P,
    ) -> Result<(), (StreamId, P::Fault)> {
        let near = self.paths.get(usize::from(header.path.0)).map_or(0, |p| p.arrivals.near());
        let Some(session) = &mut self.session else { return Ok(()) };
        let (pn, from) = (widen(header.pn, near), (route, datagram.len()));
        let Some(frames) = session.guard.open_ctrl(pn, &header, datagram) else {
            self.stats.foreign_datagrams += 1;
            return Ok(());
        };
        if let Some(tap) = &mut self.tap {
            let what = Tapped::ShuttleCtrl { header: &header, frames };
            tap.see(TapDirection::Received, Some(route.into()), what);
        }
        if self.may_open(header.path, frames) {
            // Those before may come later, or never.
            for id in self.paths.len()..=usize::from(header.path.0) {
                self.add_path(PathId(id as u8), route);
            }
        }
        if usize::from(header.path.0) >= self.paths.len() {
            self.stats.foreign_datagrams += 1;
            return Ok(());
        }
        let Some(pn) = self.fresh_number(&header) else { return Ok(()) };
        self.confirm(now_ns, pn);
        let silent_ns = now_ns.saturating_sub(self.heard_ns);
        self.note(now_ns, (&from.0, from.1), marked, &header, pn);
        let (mut elicits, mut taken) = (header.ack_now, Ok(()));
        for frame in Frames::new(frames).map_while(Result::ok) {
            elicits |= frame.elicits_ack();
            self.handle_wish(pn, &frame);
            let handled = self.handle_frame(now_ns, from, header.path, &frame, ports);
            taken = taken.and(handled);
        }
        if header.ack_now && silent_ns >= self.calm_ns / 2 {
            self.note_keep_alive();
        }
        if elicits && matches!(self.state, ConnectionState::Open { .. }) {
            self.owe_ack(now_ns, header.path, header.ack_now.then_some(AckPace::Now));
        }
        self.apply_outcome(now_ns);
        self.schedule_queries(now_ns);
        taken
    }

    /// Whether a packet opens the path `id`: that is a new one for which there is room, and the
    /// packet holds a Challenge (S-71).
    fn may_open(&self, id: PathId, frames: &[u8]) -> bool {
        let challenges = |frame| matches!(frame, Ok(Frame::Challenge { .. }));
        let is_new = (self.paths.len()..MAX_PATHS).contains(&usize::from(id.0));
        self.is_open() && is_new && Frames::new(frames).any(challenges)
    }

    /// Full packet number, if the packet is new.
    fn fresh_number(&mut self, header: &CtrlHeader) -> Option<u64> {
        if header.cid.base() != self.identity.cid {
            self.stats.foreign_datagrams += 1;
            return None;
        }
        let arrivals = &self.paths[usize::from(header.path.0)].arrivals;
        let pn = widen(header.pn, arrivals.near());
        if arrivals.is_stale(pn) {
            self.stats.stale_packets += 1;
            return None;
        }
        Some(pn)
    }

    /// Records an authentic new packet, of so many bytes.
    fn note(
        &mut self,
        now_ns: u64,
        from: (&Route, usize),
        marked: bool,
        header: &CtrlHeader,
        pn: u64,
    ) {
        self.heard_ns = self.heard_ns.max(now_ns);
        self.stats.packets_in += 1;
        self.follow(now_ns, from, header, pn);
        self.heard_on = usize::from(header.path.0);
        let path = &mut self.paths[self.heard_on];
        path.arrivals.handle_packet(now_ns, pn);
        path.arrivals.marked += u64::from(marked);
    }

    /// Challenges a new route from which the newest packet of a path came. Late packets of the old
    /// route do not move the path back (S-72).
    fn follow(&mut self, now_ns: u64, from: (&Route, usize), header: &CtrlHeader, pn: u64) {
        let at = usize::from(header.path.0);
        let path = &self.paths[at];
        if *from.0 != path.route && pn >= path.arrivals.near() {
            self.challenge(now_ns, at, (*from.0, from.1));
        }
    }

    /// Out of line: packets hardly ever come from elsewhere.
    #[cold]
    fn challenge(&mut self, now_ns: u64, at: usize, from: (Route, usize)) {
        let token = self.token();
        self.paths[at].challenge(now_ns, from, token);
    }

    /// Schedules an acknowledgement on `path`, an interval after the last or sooner.
    fn owe_ack(&mut self, now_ns: u64, path: PathId, sooner: Option<AckPace>) {
        let path = &mut self.paths[usize::from(path.0)];
        let pace = sooner.unwrap_or(AckPace::Interval(path.ack_interval_ns()));
        path.arrivals.owe(now_ns, pace);
    }

    /// Handles a frame of a datagram that came over `route` and had so many bytes.
    fn handle_frame<P: Ports>(
        &mut self,
        now_ns: u64,
        (route, octets): (Route, usize),
        path: PathId,
        frame: &Frame<'_>,
        ports: &mut P,
    ) -> Result<(), (StreamId, P::Fault)> {
        let over = !matches!(self.state, ConnectionState::Open { .. });
        let is_closing = matches!(self.state, ConnectionState::Closing { .. });
        match *frame {
            Frame::Close { reason } => self.handle_close(now_ns, route, reason),
            Frame::Closed if is_closing => self.end(now_ns, ConnectionEnd::Local),
            // The Close must find a peer that has moved.
            Frame::Response { token } if is_closing || !over => {
                self.handle_response(now_ns, path, token);
            }
            _ if over => {}
            Frame::Ping => {}
            Frame::Ack(ref ack) => self.handle_ack(now_ns, ack),
            Frame::Stream { stream, frontier } => {
                self.handle_frontier(now_ns, stream, |_| frontier, ports);
                self.note_answer(stream);
            }
            Frame::Credit { stream, limit, wait_us } => {
                if let (Some(_), Some(mut source)) =
                    (self.streams.get(stream), ports.source(stream))
                {
                    source.receiver_not_ready(Msn(limit), wait_us);
                }
            }
            Frame::Query { stream } => {
                if self.streams.get(stream).is_some() {
                    self.untold.insert(stream);
                    self.owe_ack(now_ns, path, Some(AckPace::Now));
                }
            }
            Frame::Floor { path, pn } => {
                if let Some(path) = self.paths.get_mut(usize::from(path.0)) {
                    path.arrivals.handle_floor(pn);
                }
            }
            Frame::Challenge { token } => {
                let at = usize::from(path.0);
                self.paths[at].response = Some((token, route, octets));
                // From another address it is challenged as any packet is.
                if !self.paths[at].validated && self.paths[at].route == route {
                    self.challenge(now_ns, at, (route, octets));
                }
            }
            Frame::Skip { stream, dsn } => {
                return self.handle_skip(now_ns, path, stream, dsn, ports);
            }
            Frame::Closed | Frame::Response { .. } => {}
            // Handled by `handle_wish`, with the packet number.
            Frame::Rate { .. } | Frame::Interval { .. } => {}
        }
        Ok(())
    }

    /// Handles an Ack. One of a packet that was never sent changes nothing, nor any key (S-42).
    fn handle_ack(&mut self, now_ns: u64, ack: &Ack<'_>) {
        if let Some(path) = self.paths.get_mut(usize::from(ack.path.0))
            && path.handle_ack(now_ns, ack, &mut self.outcome)
            && let Some(session) = &mut self.session
        {
            session.guard.handle_acked(ack.path, ack.largest);
        }
        // Where the peer's answer may have waited, the first packet measures the round trip.
        if self.paths[0].recovery.has_rtt() {
            self.resume_saved(now_ns);
        }
    }

    /// Begins with what an earlier connection learnt, once the round trip is known (S-65).
    pub(super) fn resume_saved(&mut self, now_ns: u64) {
        if let Some(saved) = self.config.saved.take() {
            self.paths[0].resume(now_ns, Some(saved));
        }
    }

    /// Handles the peer's frontier of a stream, computed by `frontier` from the known one.
    fn handle_frontier<P: Ports>(
        &mut self,
        now_ns: u64,
        id: StreamId,
        frontier: impl FnOnce(u64) -> u64,
        ports: &mut P,
    ) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let known = stream.send.frontier();
        let frontier = frontier(known);
        if frontier > known
            && let Some(mut source) = ports.source(id)
            && stream.send.handle_frontier(frontier, &mut source)
        {
            self.advanced_ns = self.advanced_ns.max(now_ns);
            self.streams.wake(id);
        }
    }

    /// The peer has told its frontier: whoever asked for it has its answer, if it acknowledges what
    /// was sent since.
    fn note_answer(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id)
            && let Some(asked_ns) = stream.send.asked_ns()
            && self.paths.iter().any(|path| path.recovery.has_acked_since(asked_ns))
        {
            stream.send.handle_answer();
        }
    }

    /// Handles a Skip: the peer gave up segments, and is told that they are not waited for (S-37).
    fn handle_skip<P: Ports>(
        &mut self,
        now_ns: u64,
        path: PathId,
        id: StreamId,
        dsn: u64,
        ports: &mut P,
    ) -> Result<(), (StreamId, P::Fault)> {
        let order = self.session.as_ref().map(|session| session.order);
        let (Some(order), Some(mut sink), true) =
            (order, ports.sink(id), u16::from(id.0) < self.config.streams)
        else {
            return Ok(());
        };
        let skipped = self.stream(id, order).recv.handle_skip(dsn, &mut sink);
        drop(sink);
        self.untold.insert(id);
        self.owe_ack(now_ns, path, Some(AckPace::Now));
        skipped.map_err(|fault| (id, fault))
    }

    /// Handles Rate and Interval frames; those of the newest packet hold (S-46, S-64).
    fn handle_wish(&mut self, pn: u64, frame: &Frame<'_>) {
        let (Frame::Rate { path: id, .. } | Frame::Interval { path: id, .. }) = *frame else {
            return;
        };
        let Some(path) = self.paths.get_mut(usize::from(id.0)) else { return };
        match *frame {
            Frame::Rate { rate_bps, .. } => path.handle_rate(pn, rate_bps),
            Frame::Interval { interval_us, .. } => path.handle_interval(pn, interval_us),
            _ => {}
        }
    }

    fn handle_response(&mut self, now_ns: u64, id: PathId, token: u64) {
        let Some(session) = &self.session else { return };
        let peer_octets = session.peer_limits.datagram_octets;
        let path = &mut self.paths[usize::from(id.0)];
        if path.handle_response(now_ns, token) {
            let route = path.route;
            path.search_mtu(self.config.datagram_octets_goal.min(peer_octets));
            // What was acknowledged since the peer has moved went to its address of before.
            path.arrivals.owe(now_ns, AckPace::Now);
            self.events.push_back(super::ShuttleEvent::PathValidated { path: id, route });
            // No Close has reached the peer at its new address.
            if let ConnectionState::Closing { next_ns, tries, .. } = &mut self.state {
                (*next_ns, *tries) = (now_ns, tries.saturating_sub(1));
            }
        }
    }

    fn handle_close(&mut self, now_ns: u64, route: Route, reason: u64) {
        self.end(now_ns, ConnectionEnd::Peer(reason));
        if let ConnectionState::Ended { answer, .. } = &mut self.state {
            *answer = Some(route);
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_wire::shuttle::ConnectionId;
    use weft_wire::shuttle::frame::Ranges;
    use weft_wire::shuttle::hello::{Modules, protection};
    use zeroize::Zeroizing;

    use super::super::Session;
    use super::*;
    use crate::config::{Identity, ShuttleConfig};
    use crate::protect::Guard;
    use crate::stream::{Placement, Repair};

    /// An open connection under a cipher, whose keys are due to change with each packet.
    fn open() -> ShuttleConnection {
        let (at, config) = (([10, 0, 0, 1], 4000).into(), ShuttleConfig::default());
        let identity = Identity { cid: ConnectionId(0), nonce: 1, seed: 2, entropy: [3; 32] };
        let secrets = Zeroizing::new([[4; 32], [5; 32]]);
        let guard = Guard::new(protection::AES128GCM, [6, 7], true, Some(&secrets), 1);
        let session = Session {
            peer_cid: ConnectionId(0x100),
            peer_limits: config.limits(),
            modules: Modules::default(),
            order: Order { placement: Placement::Tail, repair: Repair::Full },
            guard,
            peer_key: None,
            peer_addresses: None,
            idle_ns: config.idle_ns,
        };
        let route = Route { local: at, remote: at };
        let state = ConnectionState::Open { reply: None };
        let mut connection = ShuttleConnection::new(config, identity, true, route, 0, state);
        connection.session = Some(session);
        connection
    }

    /// A key is only left behind when the peer has shown that it has it (S-83). What the peer says
    /// of packets that it cannot have shows nothing.
    #[test]
    fn an_ack_of_a_packet_never_sent_changes_no_key() {
        let (mut connection, mut out) = (open(), crate::transmit::Transmit::default());
        connection.frames = vec![1];
        connection.put_timed(0, 0, crate::flight::Cargo::Frames, &mut out);
        let mut room = Vec::new();
        for (largest, phase) in [(1, 0), (9, 0), (0, 1)] {
            let (ranges, _) = Ranges::encode([(largest, largest)], 100, &mut room).unwrap();
            let (delay_us, arrived_us, marked, dropped) = (0, 0, 0, 0);
            let (path, floor) = (PathId(0), 0);
            let ack = Ack { path, largest, floor, delay_us, arrived_us, marked, dropped, ranges };
            connection.handle_ack(1, &ack);
            let session = connection.session.as_mut().unwrap();
            assert_eq!(session.guard.next_phase(), phase, "{largest}");
        }
    }
}
