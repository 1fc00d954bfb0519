//! What is measured while a simulation runs, at even intervals.

use serde::Serialize;

use crate::network::Network;

/// How often queues and arrivals are looked at.
pub const TICK_NS: u64 = 1_000_000;
/// Points that a curve has at most.
const POINTS: u64 = 400;
/// Flows that have a curve, at most.
const CURVES_MAX: usize = 64;
const SECOND_NS: u64 = 1_000_000_000;
/// Flows whose rates are compared, at most.
const COMPARED_MAX: usize = 1000;
/// How long rates must be alike to count as fair, and how much.
const FAIR_SECONDS: usize = 3;
const FAIR_PART: f64 = 0.2;

/// A flow over time; rates are bytes of IP packets that arrived.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlowCurve {
    /// Mean rate since the point before, in bits per second.
    pub rate_bps: Vec<u64>,
    /// The newest round trip, in nanoseconds.
    pub rtt_ns: Vec<u64>,
    /// Bytes in flight.
    pub in_flight_octets: Vec<u64>,
}

/// Everything over time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Curves {
    /// When each point was taken.
    pub at_ns: Vec<u64>,
    /// The first flows.
    pub flows: Vec<FlowCurve>,
    /// How long a packet would wait at each link's bottleneck, forward, in nanoseconds.
    pub queue_ns: Vec<Vec<u64>>,
}

/// Watches a network.
#[derive(Debug)]
pub struct NetworkMeter {
    point_ns: u64,
    next_point_ns: u64,
    curves: Curves,
    arrived_before: Vec<u64>,
    /// Waiting times after the warm-up, link by link.
    waits_ns: Vec<Vec<u32>>,
    /// Bytes that had arrived at each tick, of all flows together.
    arrived: Vec<u64>,
    /// Bytes that had arrived at each second, flow by flow.
    by_second: Vec<Vec<u64>>,
}

impl NetworkMeter {
    /// A meter for a network of `links` (both directions counted once) and `flows`.
    pub fn new(links: usize, flows: usize, duration_ns: u64) -> Self {
        let point_ns = (duration_ns / POINTS).next_multiple_of(TICK_NS).max(TICK_NS);
        Self {
            point_ns,
            next_point_ns: point_ns,
            curves: Curves {
                at_ns: Vec::new(),
                flows: vec![FlowCurve::default(); flows.min(CURVES_MAX)],
                queue_ns: vec![Vec::new(); links],
            },
            arrived_before: vec![0; flows],
            waits_ns: vec![Vec::new(); links],
            arrived: vec![0],
            by_second: vec![vec![0; flows]],
        }
    }

    /// Looks at the network, at every [`TICK_NS`].
    pub fn tick(&mut self, network: &mut Network, counts: bool) {
        for (link, waits_ns) in self.waits_ns.iter_mut().enumerate() {
            if counts {
                let wait_ns = network.queue_ns(forward(link));
                waits_ns.push(u32::try_from(wait_ns).unwrap_or(u32::MAX));
            }
        }
        let arrived = |flow| network.flow(flow).tally().arrived_octets;
        let arrived: Vec<u64> = (0..self.arrived_before.len()).map(arrived).collect();
        self.arrived.push(arrived.iter().sum());
        if network.now_ns().is_multiple_of(SECOND_NS) && arrived.len() <= COMPARED_MAX {
            self.by_second.push(arrived);
        }
        if network.now_ns() >= self.next_point_ns {
            self.point(network);
        }
    }

    fn point(&mut self, network: &mut Network) {
        self.next_point_ns += self.point_ns;
        self.curves.at_ns.push(network.now_ns());
        for (number, curve) in self.curves.flows.iter_mut().enumerate() {
            let flow = network.flow(number);
            let arrived = flow.tally().arrived_octets;
            let news = arrived.saturating_sub(self.arrived_before[number]);
            self.arrived_before[number] = arrived;
            curve.rate_bps.push(weft_shuttle::cc::bits_per_second(news, self.point_ns));
            curve.rtt_ns.push(flow.standing().rtt_ns);
            curve.in_flight_octets.push(flow.standing().in_flight_octets);
        }
        for (link, queue_ns) in self.curves.queue_ns.iter_mut().enumerate() {
            queue_ns.push(network.queue_ns(forward(link)));
        }
    }

    /// Mean and 99th percentile of the waiting time at a link, in nanoseconds.
    pub fn queue_ns(&self, link: usize) -> (u64, u64) {
        let mut waits_ns = self.waits_ns[link].clone();
        if waits_ns.is_empty() {
            return (0, 0);
        }
        waits_ns.sort_unstable();
        let sum: u64 = waits_ns.iter().map(|wait_ns| u64::from(*wait_ns)).sum();
        let p99 = waits_ns[(waits_ns.len() - 1) * 99 / 100];
        (sum / waits_ns.len() as u64, u64::from(p99))
    }

    /// When all flows together first reached `rate_bps` over a time of `over_ns` that began at
    /// `start_ns` or later, counted from there.
    pub fn reached_ns(&self, rate_bps: f64, over_ns: u64, start_ns: u64) -> Option<u64> {
        let span = over_ns.div_ceil(TICK_NS).max(1) as usize;
        let wanted = (rate_bps * (span as u64 * TICK_NS) as f64 / 8e9) as u64;
        if wanted == 0 {
            return None;
        }
        let start = start_ns.div_ceil(TICK_NS) as usize;
        let mut windows = self.arrived.get(start..)?.windows(span + 1);
        let at = windows.position(|window| window[span].saturating_sub(window[0]) >= wanted)?;
        Some(((start + at + span) as u64 * TICK_NS).saturating_sub(start_ns))
    }

    /// When the rates of all flows were first within a fifth of their mean, over three seconds that
    /// began at `start_ns` or later, counted from there.
    pub fn fair_ns(&self, start_ns: u64) -> Option<u64> {
        let start = start_ns.div_ceil(SECOND_NS) as usize;
        let is_fair = |window: &[Vec<u64>]| {
            let news = || window[FAIR_SECONDS].iter().zip(&window[0]).map(|(after, at)| after - at);
            let mean = news().sum::<u64>() as f64 / window[0].len() as f64;
            mean > 0.0 && news().all(|octets| (octets as f64 / mean - 1.0).abs() <= FAIR_PART)
        };
        let at = self.by_second.get(start..)?.windows(FAIR_SECONDS + 1).position(is_fair)?;
        Some(((start + at + FAIR_SECONDS) as u64 * SECOND_NS).saturating_sub(start_ns))
    }

    /// What was seen over time.
    pub fn into_curves(self) -> Curves {
        self.curves
    }
}

/// The number of a link's forward direction in the network.
pub fn forward(link: usize) -> usize {
    2 * link
}
