//! A path: where packets go, and everything that is learnt about the way there.

use core::net::SocketAddr;

use weft_wire::shuttle::frame::Ack;
use weft_wire::shuttle::{PathId, StreamId};

use crate::ack::Arrivals;
use crate::ack_path::AckPath;
use crate::cc::{Controller, Make, Params, Saved};
use crate::config::Config;
use crate::flight::Flight;
use crate::mtu::MtuSearch;
use crate::mtu_suspect::{MtuSuspect, SuspectStep};
use crate::pacer::Cap;
use crate::path_budget::{Allowance, PathBudget, SHARED_BUDGET};
use crate::recovery::{AckOutcome, Recovery};
use crate::rtt::ack_interval_ns;
use crate::scheduler::PathOutlook;

/// A sender asks for an immediate acknowledgement once in this at most, or in a part of the round
/// trip if that is shorter.
const ASK_INTERVAL_NS: u64 = 1_000_000;
const ASK_RTT_DIVISOR: u64 = 4;
/// The longest interval of acknowledgements that a peer may ask for.
const INTERVAL_NS_MAX: u64 = 1_000_000_000;
/// A floor is told when it has risen by this much: holes of fewer packets cost the peer nothing.
const FLOOR_STEP: u64 = 64;
/// On a path with a shorter round trip than this, what is in flight may all wait in the peer's
/// socket at once.
const SHORT_RTT_NS: u64 = 2_000_000;
/// A saved rate is used if the round trip differs by one part in so many at most.
const RESUME_DIVISOR: u64 = 5;
/// Challenges that go unanswered before a route is given up.
const CHALLENGES_MAX: u32 = 5;

/// Where packets of a path come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// This end.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
}

/// A route that is being tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Challenge {
    pub(crate) route: Route,
    pub(crate) token: u64,
    pub(crate) next_ns: u64,
    pub(crate) tries: u32,
}

/// A path of a connection.
pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) route: Route,
    /// The peer is known to receive at this route.
    pub(crate) validated: bool,
    pub(crate) challenge: Option<Challenge>,
    /// A token to send back, and where to.
    pub(crate) response: Option<(u64, Route)>,
    pub(crate) recovery: Recovery,
    pub(crate) arrivals: Arrivals,
    /// Its own budget, then those of streams with a controller of their own.
    budgets: Vec<PathBudget>,
    /// Which budget a stream has, by the stream's number.
    budgets_of: Vec<u16>,
    pub(crate) datagram_octets: u16,
    /// Octets of the datagrams that every path is taken to carry.
    pub(crate) base_octets: u16,
    pub(crate) mtu: MtuSearch,
    suspect: MtuSuspect,
    /// Something that is acknowledged should leave.
    pub(crate) ping: bool,
    /// Octets that the peer's socket holds.
    pub(crate) room_octets: u64,
    /// The lowest number that the peer still has holes above.
    pub(crate) peer_floor: u64,
    /// What the network grants, and what the peer wants at most.
    pub(crate) granted_bps: u64,
    peer_rate: Option<(u64, u64)>,
    pub(crate) cap: Cap,
    /// How the peer's acknowledgements come, and how far apart the peer wants ours, as it said in
    /// packet 0.
    pub(crate) ack_path: AckPath,
    peer_interval: (u64, u64),
    /// What the peer is to send at most, and whether it must hear of that.
    pub(crate) rate_wanted_bps: u64,
    pub(crate) rate_owed: bool,
    floor_told: u64,
    asked_ns: Option<u64>,
}

impl Path {
    pub(crate) fn new(id: PathId, route: Route, config: &Config, datagram_octets: u16) -> Self {
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

    /// The controller of the path itself.
    pub(crate) fn controller(&self) -> &dyn Controller {
        &*self.budgets[usize::from(SHARED_BUDGET)].controller
    }

    /// Whether packets other than probes are worth sending: nothing makes it look dead.
    pub(crate) fn is_well(&self) -> bool {
        self.validated && self.recovery.is_well()
    }

    /// What a packet that leaves at the next turn may count on.
    pub(crate) fn outlook(&self, now_ns: u64) -> PathOutlook {
        let smoothed_ns = self.recovery.rtt().smoothed_ns;
        let (due_ns, rate_bps) =
            self.budgets[usize::from(SHARED_BUDGET)].outlook(now_ns, smoothed_ns);
        let rate_bps = rate_bps.min(self.cap.rate_bps());
        PathOutlook { arrives_ns: due_ns.saturating_add(smoothed_ns / 2), rate_bps }
    }

    /// Begins with what an earlier connection learnt, if the path is still as long (S-65).
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

    /// What may leave now in `budget`.
    pub(crate) fn allowance(&mut self, now_ns: u64, budget: u16) -> Allowance {
        let allowed = self.allow(now_ns, budget);
        if matches!(allowed, Allowance::Full) {
            self.budgets[usize::from(budget)].let_go();
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

    /// The controller that a stream has of its own here.
    pub(crate) fn controller_of(&self, stream: StreamId) -> Option<&dyn Controller> {
        let budget = *self.budgets_of.get(usize::from(stream.0))?;
        let own = self.budgets.get(usize::from(budget)).filter(|_| budget != SHARED_BUDGET)?;
        Some(&*own.controller)
    }

    /// Nothing was left to send although `budget` would have let it go.
    pub(crate) fn handle_app_limited(&mut self, budget: u16) {
        self.budgets[usize::from(budget)].handle_app_limited();
    }

    /// On a long path the peer reads many times in a round trip, and its socket limits nothing.
    fn room(&self) -> u64 {
        if self.recovery.rtt().min_ns < SHORT_RTT_NS { self.room_octets } else { u64::MAX }
    }

    /// A flight left.
    pub(crate) fn handle_sent(&mut self, now_ns: u64, flight: Flight) {
        self.cap.handle_sent(now_ns, flight.octets());
        let budget = &mut self.budgets[usize::from(flight.budget)];
        self.recovery.handle_sent(now_ns, flight, budget);
    }

    /// The peer wants no more than `rate_bps`; it said so in packet `pn`. Older news is ignored.
    pub(crate) fn handle_rate(&mut self, pn: u64, rate_bps: u64) {
        if self.peer_rate.is_none_or(|(newest, _)| pn > newest) {
            self.peer_rate = Some((pn, rate_bps));
            self.limit_rate();
        }
    }

    /// Applies what network and peer allow.
    pub(crate) fn limit_rate(&mut self) {
        let peer_bps = self.peer_rate.map_or(u64::MAX, |(_, rate_bps)| rate_bps);
        self.cap.set(self.granted_bps.min(peer_bps));
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now_ns: u64, outcome: &mut AckOutcome) {
        let was_down = self.recovery.is_outage();
        self.recovery.handle_timeout(now_ns, &mut self.budgets, outcome);
        self.handle_probes(now_ns, outcome);
        if self.recovery.is_outage() && !was_down {
            let octets = self.mtu.handle_black_hole();
            self.use_datagrams_of(octets);
            self.suspect = MtuSuspect::new();
        }
    }

    /// An acknowledgement arrived.
    pub(crate) fn handle_ack(&mut self, now_ns: u64, ack: &Ack<'_>, outcome: &mut AckOutcome) {
        self.peer_floor = self.peer_floor.max(ack.floor);
        let rtt = self.recovery.rtt();
        let usual_ns = ack_interval_ns(rtt.smoothed_ns);
        let waited_ns = self.ack_path.handle_ack(now_ns, ack, rtt.min_ns, usual_ns);
        self.recovery.asked_interval_ns = self.ack_path.interval_ns();
        self.recovery.handle_ack(now_ns, ack, waited_ns, &mut self.budgets, outcome);
        self.handle_probes(now_ns, outcome);
    }

    /// Every path is taken to carry datagrams of `octets`.
    pub(crate) fn set_base(&mut self, octets: u16) {
        self.base_octets = octets;
        self.use_datagrams_of(octets);
    }

    /// Looks for datagrams of up to `goal` octets. Whatever was found before, was on another path.
    pub(crate) fn search_mtu(&mut self, goal: u16) {
        self.use_datagrams_of(self.base_octets);
        self.mtu = MtuSearch::new(self.base_octets, goal);
        self.suspect = MtuSuspect::new();
    }

    /// Applies what became of datagrams of some size.
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
            }
        }
    }

    pub(crate) fn use_datagrams_of(&mut self, octets: u16) {
        self.datagram_octets = octets;
        for budget in &mut self.budgets {
            budget.controller.on_datagram_octets(octets);
        }
    }

    /// Time in which an acknowledgement is owed.
    pub(crate) fn ack_interval_ns(&self) -> u64 {
        ack_interval_ns(self.recovery.rtt().smoothed_ns).max(self.peer_interval.1)
    }

    /// The peer wants acknowledgements no more often than this; it said so in packet `pn`.
    pub(crate) fn handle_interval(&mut self, pn: u64, interval_us: u64) {
        if pn >= self.peer_interval.0 {
            let interval_ns = interval_us.saturating_mul(1000).min(INTERVAL_NS_MAX);
            self.peer_interval = (pn, interval_ns);
        }
    }

    /// Whether to ask for an acknowledgement at once; that is rare enough to cost nothing. What
    /// leaves while nothing else is under way always asks: a program that answers it must not be
    /// heard before the request is known to be complete, which it is on hardware.
    pub(crate) fn may_ask(&mut self, now_ns: u64) -> bool {
        let interval = ASK_INTERVAL_NS.min(self.recovery.rtt().smoothed_ns / ASK_RTT_DIVISOR);
        let alone = self.recovery.in_flight_octets() == 0;
        let may = alone || self.asked_ns.is_none_or(|asked_ns| now_ns >= asked_ns + interval);
        if may {
            self.asked_ns = Some(now_ns);
        }
        may
    }

    /// The floor, if the peer should hear of it.
    pub(crate) fn poll_floor(&mut self) -> Option<u64> {
        let floor = self.recovery.floor();
        let news = floor >= self.floor_told + FLOOR_STEP && floor > self.peer_floor;
        if news {
            self.floor_told = floor;
        }
        news.then_some(floor)
    }

    /// Nobody ran at this end for a while: what is on its way now has waited here, and not only on
    /// the path.
    pub(crate) fn handle_stop(&mut self) {
        self.recovery.handle_stop();
        self.budgets.iter_mut().for_each(PathBudget::handle_app_limited);
    }

    /// Begins to try `route`, unless it is being tried.
    pub(crate) fn challenge(&mut self, now_ns: u64, route: Route, token: u64) {
        if self.challenge.is_none_or(|challenge| challenge.route != route) {
            self.challenge = Some(Challenge { route, token, next_ns: now_ns, tries: 0 });
        }
    }

    /// The next Challenge if one is due; each waits twice as long for its answer.
    pub(crate) fn poll_challenge(&mut self, now_ns: u64) -> Option<(u64, Route)> {
        let challenge = self.challenge.as_mut().filter(|challenge| challenge.next_ns <= now_ns)?;
        let wait_ns = self.recovery.probe_timeout_ns();
        if challenge.tries == CHALLENGES_MAX {
            self.challenge = None;
            return None;
        }
        challenge.next_ns = now_ns + (wait_ns << challenge.tries);
        challenge.tries += 1;
        Some((challenge.token, challenge.route))
    }

    /// A Response arrived (S-71, S-72). Gives whether the path has moved.
    pub(crate) fn handle_response(&mut self, now_ns: u64, token: u64) -> bool {
        let Some(challenge) = self.challenge.take_if(|challenge| challenge.token == token) else {
            return false;
        };
        let moved = std::mem::replace(&mut self.route, challenge.route) != challenge.route;
        if moved && self.validated {
            for budget in &mut self.budgets {
                budget.controller.on_path_changed(now_ns, None);
            }
        }
        let news = moved || !self.validated;
        self.validated = true;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::PN_WINDOW;

    /// The receiver has a bit for each packet from the oldest of interest on: a packet beyond them
    /// would count as stale, so none is sent until the oldest is settled.
    #[test]
    fn nothing_leaves_beyond_what_the_receiver_can_note() {
        let at = ([10, 0, 0, 1], 4000).into();
        let route = Route { local: at, remote: at };
        let mut path = Path::new(PathId(0), route, &Config::default(), 1200);
        path.handle_sent(0, Flight::new(0, 1, 1200, 1200));
        let now_ns = 1_000_000_000;
        // A burst has up to 64 packets, and they must fit.
        while path.recovery.next_pn() + 64 < PN_WINDOW - 1 {
            path.recovery.handle_sent_untimed();
        }
        assert!(matches!(path.allowance(now_ns, SHARED_BUDGET), Allowance::Packets(_)));
        path.recovery.handle_sent_untimed();
        assert_eq!(path.allowance(now_ns, SHARED_BUDGET), Allowance::Full);
    }
}
