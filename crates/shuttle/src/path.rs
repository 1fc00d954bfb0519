//! Path: its route, and all state of sending and receiving on it.

use core::net::{IpAddr, SocketAddr};

use weft_wire::shuttle::frame::Ack;
use weft_wire::shuttle::{PathId, StreamId};
use weft_wire::tap::TapEnds;

use crate::ack::Arrivals;
use crate::ack_path::AckPath;
use crate::cc::{Controller, Make, Params, Saved};
use crate::config::ShuttleConfig;
use crate::flight::Flight;
use crate::mtu::MtuSearch;
use crate::mtu_suspect::{MtuSuspect, SuspectStep};
use crate::pacer::Cap;
use crate::path_budget::{Allowance, PathBudget, SHARED_BUDGET};
use crate::recovery::{AckOutcome, Recovery};
use crate::rtt::ack_interval_ns;
use crate::scheduler::PathOutlook;

/// Least interval between requests for an immediate acknowledgement, 1 ms.
const ASK_INTERVAL_NS: u64 = 1_000_000;
/// The same as a fraction of the round trip: 1/4.
const ASK_RTT_DIVISOR: u64 = 4;
/// Longest interval of acknowledgements that a peer may ask for, 1 s.
const INTERVAL_NS_MAX: u64 = 1_000_000_000;
/// Packets by which the floor must rise before the peer is told: fewer holes cost it no memory.
const FLOOR_STEP: u64 = 64;
/// Round trip below which the peer's socket buffer limits what is in flight, 2 ms: the peer may not
/// read once within it.
const SHORT_RTT_NS: u64 = 2_000_000;
/// A saved rate is used if the round trip differs by 1/5 at most (S-65).
const RESUME_DIVISOR: u64 = 5;
/// Unanswered Challenges after which a route is given up (S-72).
const CHALLENGES_MAX: u32 = 5;
/// Size of a Challenge and of a Response in bytes: the minimum path MTU, so that the route is known
/// to carry it. Where too little came from they are shorter (S-72).
pub(crate) const CHALLENGE_OCTETS: usize = 1200;
/// Bytes of Challenges that a route gets for each that came from it. With the Response, which is no
/// longer than what it answers, these are three (RFC 9000, section 8).
const CHALLENGE_FACTOR: usize = 2;

/// Local and remote address of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Address and port of this end.
    pub local: SocketAddr,
    /// Address and port of the peer.
    pub remote: SocketAddr,
}

impl Route {
    /// Whether both ends are one host.
    pub fn is_within_host(&self) -> bool {
        self.local.ip() == self.remote.ip()
    }
}

impl From<Route> for TapEnds {
    fn from(Route { local, remote }: Route) -> Self {
        Self { local, remote }
    }
}

/// Validation of a route in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Challenge {
    pub(crate) route: Route,
    pub(crate) token: u64,
    begun_ns: u64,
    next_ns: u64,
    tries: u32,
    /// Bytes that may still be sent there.
    credit_octets: usize,
}

impl Challenge {
    /// When it is to be sent (again), unless it waits for credit to be as long as `least_octets`.
    pub(crate) fn due_ns(&self, least_octets: usize) -> Option<u64> {
        (self.credit_octets >= least_octets).then_some(self.next_ns)
    }
}

/// State of one path of a connection.
pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) route: Route,
    /// The peer has answered a Challenge or the handshake on this route.
    pub(crate) validated: bool,
    pub(crate) challenge: Option<Challenge>,
    /// Token of a Challenge to answer, the route it came from, and the bytes of its datagram.
    pub(crate) response: Option<(u64, Route, usize)>,
    pub(crate) recovery: Recovery,
    pub(crate) arrivals: Arrivals,
    /// The shared budget, then those of streams with a controller of their own.
    budgets: Vec<PathBudget>,
    /// Index of each stream's budget, by stream number.
    budgets_of: Vec<u16>,
    pub(crate) datagram_octets: u16,
    /// Datagram size in bytes that every path of the connection is assumed to carry.
    pub(crate) base_octets: u16,
    pub(crate) mtu: MtuSearch,
    suspect: MtuSuspect,
    /// The path was down, and no larger size than the base has passed since: packets of the base
    /// size may be cut, since IPv4 has paths that carry less.
    pub(crate) may_cut: bool,
    /// A Ping is to be sent.
    pub(crate) ping: bool,
    /// Size of the peer's socket buffer, in bytes.
    pub(crate) room_octets: u64,
    /// Acknowledgement floor of the peer: every packet below arrived or is of no interest.
    pub(crate) peer_floor: u64,
    /// Rate limits by the network, and by the peer with the packet number of its Rate frame, in
    /// bits per second.
    pub(crate) granted_bps: u64,
    peer_rate: Option<(u64, u64)>,
    pub(crate) cap: Cap,
    /// Delay of the peer's acknowledgements; and the interval that the peer wants for ours, with
    /// the packet number of its Interval frame.
    pub(crate) ack_path: AckPath,
    peer_interval: (u64, u64),
    /// Rate limit for the peer in bits per second, and whether it has yet to be told.
    pub(crate) rate_wanted_bps: u64,
    pub(crate) rate_owed: bool,
    floor_told: u64,
    asked_ns: Option<u64>,
}

impl Path {
    pub(crate) fn new(
        id: PathId,
        route: Route,
        config: &ShuttleConfig,
        datagram_octets: u16,
    ) -> Self {
        let mut params = config.controller_params.clone();
        params.datagram_octets = datagram_octets;
        params.seed = params.seed.wrapping_add(u64::from(id.0));
        Self {
            id,
            route,
            validated: false,
            challenge: None,
            response: None,
            recovery: Recovery::new(config.initial_rtt_ns),
            arrivals: Arrivals::new(),
            budgets: vec![PathBudget::new((config.controller)(&params))],
            budgets_of: Vec::new(),
            datagram_octets,
            base_octets: datagram_octets,
            mtu: MtuSearch::new(datagram_octets, datagram_octets),
            suspect: MtuSuspect::new(),
            may_cut: false,
            ping: false,
            room_octets: u64::MAX,
            peer_floor: 0,
            granted_bps: u64::MAX,
            peer_rate: None,
            cap: Cap::default(),
            ack_path: AckPath::default(),
            peer_interval: (0, 0),
            rate_wanted_bps: u64::MAX,
            rate_owed: false,
            floor_told: 0,
            asked_ns: None,
        }
    }

    /// Controller of the shared budget.
    pub(crate) fn controller(&self) -> &dyn Controller {
        &*self.budgets[usize::from(SHARED_BUDGET)].controller
    }

    /// Whether the path is validated and answers.
    pub(crate) fn is_well(&self) -> bool {
        self.validated && self.recovery.is_well()
    }

    /// Estimated arrival time of the next packet, and the rate after it.
    pub(crate) fn outlook(&self, now_ns: u64) -> PathOutlook {
        let smoothed_ns = self.recovery.rtt().smoothed_ns;
        let (due_ns, rate_bps) =
            self.budgets[usize::from(SHARED_BUDGET)].outlook(now_ns, smoothed_ns);
        let rate_bps = rate_bps.min(self.cap.rate_bps());
        PathOutlook { arrives_ns: due_ns.saturating_add(smoothed_ns / 2), rate_bps }
    }

    /// Starts from the saved rate if the round trip is within 1/5 of the saved one (S-65).
    pub(crate) fn resume(&mut self, now_ns: u64, saved: Option<Saved>) {
        let rtt_ns = self.recovery.rtt().min_ns;
        let near =
            |saved: &Saved| rtt_ns.abs_diff(saved.min_rtt_ns) <= saved.min_rtt_ns / RESUME_DIVISOR;
        if let Some(saved) = saved.filter(near) {
            self.budgets[usize::from(SHARED_BUDGET)]
                .controller
                .on_path_changed(now_ns, Some(saved));
        }
    }

    /// Packets that may leave now in `budget`: the least of window, pacing, rate cap, peer's socket
    /// buffer and packet number window.
    pub(crate) fn allowance(&mut self, now_ns: u64, budget: u16) -> Allowance {
        let allowed = self.allow(now_ns, budget);
        if matches!(allowed, Allowance::Full) {
            self.let_go(budget);
        }
        allowed
    }

    fn allow(&mut self, now_ns: u64, budget: u16) -> Allowance {
        if self.recovery.is_outage() || !self.recovery.has_room() {
            return Allowance::Full;
        }
        let octets = self.datagram_octets;
        let left = self.room().saturating_sub(self.recovery.in_flight_octets());
        let left = left / u64::from(octets);
        if left == 0 && self.recovery.in_flight_octets() > 0 {
            return Allowance::Full;
        }
        let allowed = self.budgets[usize::from(budget)].allowance(now_ns, octets);
        match (allowed, self.cap.burst(now_ns, octets)) {
            (Allowance::Packets(packets), Ok(burst)) => {
                Allowance::Packets(packets.min(burst).min(left.max(1)))
            }
            (Allowance::Packets(_), Err(at_ns)) => Allowance::At(at_ns),
            (Allowance::At(a), Err(b)) => Allowance::At(a.max(b)),
            (other, _) => other,
        }
    }

    /// The budget of a stream with a controller of its own.
    pub(crate) fn budget_of(&mut self, stream: StreamId, own: &(Make, Params)) -> u16 {
        let at = usize::from(stream.0);
        if self.budgets_of.len() <= at {
            self.budgets_of.resize(at + 1, SHARED_BUDGET);
        }
        if self.budgets_of[at] == SHARED_BUDGET {
            let (make, params) = own;
            let mut params = params.clone();
            params.datagram_octets = self.datagram_octets;
            params.seed = params.seed.wrapping_add(u64::from(self.id.0));
            self.budgets_of[at] = self.budgets.len() as u16;
            self.budgets.push(PathBudget::new(make(&params)));
        }
        self.budgets_of[at]
    }

    /// Controller of the stream's own budget on this path.
    pub(crate) fn controller_of(&self, stream: StreamId) -> Option<&dyn Controller> {
        let budget = *self.budgets_of.get(usize::from(stream.0))?;
        let own = self.budgets.get(usize::from(budget)).filter(|_| budget != SHARED_BUDGET)?;
        Some(&*own.controller)
    }

    /// Lets the pacer of `budget` go: what leaves next has waited for something else.
    pub(crate) fn let_go(&mut self, budget: u16) {
        self.budgets[usize::from(budget)].let_go();
    }

    /// Notes that `budget` was application-limited: it allowed packets, and there were none.
    pub(crate) fn handle_app_limited(&mut self, budget: u16) {
        self.budgets[usize::from(budget)].handle_app_limited();
    }

    /// Limit of bytes in flight by the peer's socket buffer; none on a long path, where the peer
    /// reads many times per round trip.
    fn room(&self) -> u64 {
        if self.recovery.rtt().min_ns < SHORT_RTT_NS { self.room_octets } else { u64::MAX }
    }

    /// Charges a flight to its budget and to the cap.
    pub(crate) fn handle_sent(&mut self, now_ns: u64, flight: Flight) {
        self.cap.handle_sent(now_ns, flight.octets());
        let budget = &mut self.budgets[usize::from(flight.budget)];
        self.recovery.handle_sent(now_ns, flight, budget);
    }

    /// Handles a Rate frame of packet `pn`; older ones are ignored.
    pub(crate) fn handle_rate(&mut self, pn: u64, rate_bps: u64) {
        if self.peer_rate.is_none_or(|(newest, _)| pn > newest) {
            self.peer_rate = Some((pn, rate_bps));
            self.limit_rate();
        }
    }

    /// Applies the smaller of the network's and the peer's limits.
    pub(crate) fn limit_rate(&mut self) {
        let peer_bps = self.peer_rate.map_or(u64::MAX, |(_, rate_bps)| rate_bps);
        self.cap.set(self.granted_bps.min(peer_bps));
    }

    /// Handles expired timers.
    pub(crate) fn handle_timeout(&mut self, now_ns: u64, outcome: &mut AckOutcome) {
        let was_down = self.recovery.is_outage();
        self.recovery.handle_timeout(now_ns, &mut self.budgets, outcome);
        self.handle_probes(now_ns, outcome);
        if self.recovery.is_outage() && !was_down {
            let octets = self.mtu.handle_black_hole();
            self.use_datagrams_of(octets);
            self.suspect = MtuSuspect::new();
            self.may_cut = true;
        }
    }

    /// Handles an acknowledgement. Returns whether every packet that it covers was sent; otherwise
    /// it is ignored (S-42).
    pub(crate) fn handle_ack(
        &mut self,
        now_ns: u64,
        ack: &Ack<'_>,
        outcome: &mut AckOutcome,
    ) -> bool {
        if ack.largest >= self.recovery.next_pn() {
            return false;
        }
        self.peer_floor = self.peer_floor.max(ack.floor);
        let rtt = self.recovery.rtt();
        let usual_ns = ack_interval_ns(rtt.smoothed_ns);
        let waited_ns = self.ack_path.handle_ack(now_ns, ack, rtt.min_ns, usual_ns);
        self.recovery.asked_interval_ns = self.ack_path.interval_ns();
        self.recovery.handle_ack(now_ns, ack, waited_ns, &mut self.budgets, outcome);
        self.handle_probes(now_ns, outcome);
        true
    }

    /// Sets the datagram size that every path is assumed to carry.
    pub(crate) fn set_base(&mut self, octets: u16) {
        self.base_octets = octets;
        self.use_datagrams_of(octets);
    }

    /// Restarts path MTU discovery up to `goal`: the route is new.
    pub(crate) fn search_mtu(&mut self, goal: u16) {
        self.use_datagrams_of(self.base_octets);
        self.mtu = MtuSearch::new(self.base_octets, goal);
        self.recovery.forget_sizes();
        self.suspect = MtuSuspect::new();
        self.may_cut = false;
    }

    /// Applies the fates of probes and of large and small packets to the datagram size.
    fn handle_probes(&mut self, now_ns: u64, outcome: &mut AckOutcome) {
        for (octets, fates) in outcome.fates.drain(..) {
            let octets = match self.suspect.handle(now_ns, octets > self.base_octets, fates) {
                Some(SuspectStep::Small) => self.base_octets,
                Some(SuspectStep::Large) => self.mtu.found(),
                Some(SuspectStep::GiveUp) => self.mtu.handle_suspect(),
                None => continue,
            };
            self.use_datagrams_of(octets);
        }
        self.rate_owed |= std::mem::take(&mut outcome.rate_lost);
        self.ack_path.owed |= std::mem::take(&mut outcome.interval_lost);
        for (octets, arrived) in outcome.probes.drain(..) {
            if !arrived {
                self.mtu.handle_lost(octets);
            } else if let Some(octets) = self.mtu.handle_acked(octets) {
                self.use_datagrams_of(octets);
                self.suspect = MtuSuspect::new();
                self.may_cut = false;
            }
        }
    }

    pub(crate) fn use_datagrams_of(&mut self, octets: u16) {
        self.datagram_octets = octets;
        for budget in &mut self.budgets {
            budget.controller.on_datagram_octets(octets);
        }
    }

    /// Interval of this end's acknowledgements.
    pub(crate) fn ack_interval_ns(&self) -> u64 {
        ack_interval_ns(self.recovery.rtt().smoothed_ns).max(self.peer_interval.1)
    }

    /// Handles an Interval frame of packet `pn`; older ones are ignored.
    pub(crate) fn handle_interval(&mut self, pn: u64, interval_us: u64) {
        if pn >= self.peer_interval.0 {
            let interval_ns = interval_us.saturating_mul(1000).min(INTERVAL_NS_MAX);
            self.peer_interval = (pn, interval_ns);
        }
    }

    /// Whether the next packet asks for an immediate acknowledgement; rare enough to cost nothing.
    /// A packet that leaves with nothing else in flight, or when the peer has placed all that was
    /// sent before (`is_alone`), always asks: an application must see its request complete before
    /// the peer's reply, as on hardware.
    pub(crate) fn may_ask(&mut self, now_ns: u64, is_alone: bool) -> bool {
        let interval = ASK_INTERVAL_NS.min(self.recovery.rtt().smoothed_ns / ASK_RTT_DIVISOR);
        let alone = is_alone || self.recovery.in_flight_octets() == 0;
        let may = alone || self.asked_ns.is_none_or(|asked_ns| now_ns >= asked_ns + interval);
        if may {
            self.asked_ns = Some(now_ns);
        }
        may
    }

    /// The floor, if the peer should be told.
    pub(crate) fn poll_floor(&mut self) -> Option<u64> {
        let floor = self.recovery.floor();
        let news = floor >= self.floor_told + FLOOR_STEP && floor > self.peer_floor;
        if news {
            self.floor_told = floor;
        }
        news.then_some(floor)
    }

    /// Handles a stop of this process: packets in flight have waited here too and measure nothing.
    pub(crate) fn handle_stop(&mut self) {
        self.recovery.handle_stop();
        self.budgets.iter_mut().for_each(PathBudget::handle_app_limited);
    }

    /// Starts the validation of `route`, from which a packet of `octets` bytes came, unless it is
    /// in progress, or has just begun for another one: whoever can send the peer's packets again
    /// has nobody sent more than a Challenge in a probe timeout, and few bytes for theirs.
    pub(crate) fn challenge(&mut self, now_ns: u64, (route, octets): (Route, usize), token: u64) {
        let credit_octets = octets.saturating_mul(CHALLENGE_FACTOR);
        let wait_ns = self.recovery.probe_timeout_ns();
        match &mut self.challenge {
            Some(challenge) if challenge.route == route => {
                let sum = challenge.credit_octets.saturating_add(credit_octets);
                challenge.credit_octets = sum;
            }
            Some(other) if now_ns < other.begun_ns.saturating_add(wait_ns) => {}
            _ => self.begin_challenge(now_ns, route, token, credit_octets),
        }
    }

    /// Starts the validation of the route that this end has chosen for the path (S-71).
    pub(crate) fn open(&mut self, now_ns: u64, token: u64) {
        self.begin_challenge(now_ns, self.route, token, usize::MAX);
    }

    fn begin_challenge(&mut self, now_ns: u64, route: Route, token: u64, credit_octets: usize) {
        let (begun_ns, next_ns, tries) = (now_ns, now_ns, 0);
        self.challenge = Some(Challenge { route, token, begun_ns, next_ns, tries, credit_octets });
    }

    /// Token, route and size in bytes of a Challenge that is due, `least_octets` or more; the
    /// interval doubles each time.
    pub(crate) fn poll_challenge(
        &mut self,
        now_ns: u64,
        least_octets: usize,
    ) -> Option<(u64, Route, usize)> {
        let is_due = |challenge: &&mut Challenge| {
            challenge.due_ns(least_octets).is_some_and(|at| at <= now_ns)
        };
        let challenge = self.challenge.as_mut().filter(is_due)?;
        let wait_ns = self.recovery.probe_timeout_ns();
        if challenge.tries == CHALLENGES_MAX {
            self.challenge = None;
            return None;
        }
        challenge.next_ns = now_ns + (wait_ns << challenge.tries);
        challenge.tries += 1;
        let octets = CHALLENGE_OCTETS.min(challenge.credit_octets);
        challenge.credit_octets -= octets;
        Some((challenge.token, challenge.route, octets))
    }

    /// Sends from the address of `local` what was sent from `lost`, which the host has no more
    /// (S-72), and from its port what was sent from the port `before`. Returns whether the path did
    /// so.
    pub(crate) fn relocate(
        &mut self,
        now_ns: u64,
        lost: IpAddr,
        (before, local): (u16, SocketAddr),
    ) -> bool {
        let moved = |from: SocketAddr| {
            let port = if from.port() == before { local.port() } else { from.port() };
            SocketAddr::new(local.ip(), port)
        };
        let challenge = self.challenge.iter_mut().map(|challenge| &mut challenge.route);
        let response = self.response.iter_mut().map(|(_, route, _)| route);
        for route in challenge.chain(response).filter(|route| route.local.ip() == lost) {
            route.local = moved(route.local);
        }
        if self.route.local.ip() != lost {
            return false;
        }
        self.route.local = moved(self.route.local);
        self.begin_anew(now_ns);
        self.ping = true;
        true
    }

    /// The route is another: nothing that was measured holds, and nothing in flight measures it
    /// (S-72).
    fn begin_anew(&mut self, now_ns: u64) {
        self.use_datagrams_of(self.base_octets);
        for budget in &mut self.budgets {
            budget.controller.on_path_changed(now_ns, None);
        }
        self.recovery.handle_new_route();
        self.ack_path.handle_new_route();
    }

    /// Handles a Response (S-71, S-72). Returns whether the route is new.
    pub(crate) fn handle_response(&mut self, now_ns: u64, token: u64) -> bool {
        let Some(challenge) = self.challenge.take_if(|challenge| challenge.token == token) else {
            return false;
        };
        let moved = std::mem::replace(&mut self.route, challenge.route) != challenge.route;
        if moved && self.validated {
            self.begin_anew(now_ns);
        }
        let news = moved || !self.validated;
        self.validated = true;
        news
    }
}

#[cfg(test)]
mod tests;
