//! A run from beginning to end, and what came out.

use std::collections::BTreeMap;

use degen::link::{Config, Counters, Link, Loss};
use serde::Serialize;
use weft_shuttle::cc::{self, Params, bits_per_second};

use crate::flow::{Flow, Tally};
use crate::meter::{Curves, Meter, TICK_NS, forward};
use crate::network::{Network, Route};
use crate::plan::{Run, RunFlow};
use crate::reference::ReferenceFlow;
use crate::stack::StackFlow;

/// What came out of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The run's name.
    pub name: String,
    /// What it had of the values that vary.
    pub values: BTreeMap<String, String>,
    /// What all that was random followed from.
    pub seed: u64,
    /// Seconds after the warm-up, over which rates and queues are means.
    pub counted_s: f64,
    /// All flows together.
    pub total: Total,
    /// By controller.
    pub groups: Vec<Group>,
    /// Each flow.
    pub flows: Vec<FlowOutcome>,
    /// Each link.
    pub links: Vec<LinkOutcome>,
    /// Packets sent and moved.
    pub events: u64,
    /// Equal for runs in which the same packets arrived at the same times.
    pub hash: String,
    /// Everything over time.
    pub curves: Curves,
}

/// All flows together. The ceiling of a link is what of its rate is not lost at random.
#[derive(Clone, Debug, Serialize)]
pub struct Total {
    /// What arrived, in bits of IP packets per second.
    pub goodput_bps: u64,
    /// Goodput as a share of the ceiling of the narrowest link.
    pub share_of_ceiling: f64,
    /// Time from the first start to half the ceiling, over a round trip.
    pub t50_ns: Option<u64>,
    /// To nine tenths.
    pub t90_ns: Option<u64>,
    /// Packets sent again for each packet that was lost.
    pub resent_per_loss: Option<f64>,
    /// Octets of acknowledgements for each octet that arrived.
    pub acks_per_data: f64,
}

/// The flows of one controller.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// The controller.
    pub controller: String,
    /// How many flows.
    pub flows: usize,
    /// Together, in bits of IP packets per second.
    pub goodput_bps: u64,
    /// Of all that arrived.
    pub share: f64,
    /// Jain's index of fairness among them.
    pub jain: f64,
}

/// A flow.
#[derive(Clone, Debug, Serialize)]
pub struct FlowOutcome {
    /// The controller.
    pub controller: String,
    /// What arrived after the warm-up, in bits of IP packets per second.
    pub goodput_bps: u64,
    /// The same without headers, as the controller counts.
    pub payload_bps: u64,
    /// From its start to the acknowledgement of all its data, if it had an end.
    pub completion_ns: Option<u64>,
    /// Packets sent.
    pub sent: u64,
    /// Of those, again.
    pub resent: u64,
    /// Declared lost.
    pub lost: u64,
    /// Declared lost but not lost.
    pub spurious: u64,
}

/// A link, forward.
#[derive(Clone, Debug, Serialize)]
pub struct LinkOutcome {
    /// Its name.
    pub name: String,
    /// What it does.
    pub path: String,
    /// What of its rate is not lost at random, when the run began; none without a rate.
    pub ceiling_bps: Option<u64>,
    /// Mean waiting time at its bottleneck.
    pub queue_mean_ns: u64,
    /// 99th percentile of that.
    pub queue_p99_ns: u64,
    /// What became of packets.
    pub counters: Counters,
}

/// A name that is no controller's.
#[derive(Debug, thiserror::Error)]
#[error("there is no controller `{0}`; there are {CONTROLLERS}")]
pub struct UnknownController(String);

const CONTROLLERS: &str = "weave, bbr1, cubic, fixed:RATE and none";

/// Makes a run; `progress` hears what part of it is done.
///
/// # Errors
/// A flow names a controller that is not there.
pub fn simulate(run: &Run, mut progress: impl FnMut(f64)) -> Result<Outcome, UnknownController> {
    let mut network = build(run)?;
    let mut meter = Meter::new(run.links.len(), run.flows.len(), run.duration_ns);
    let mut before = vec![Tally::default(); run.flows.len()];
    let ticks = run.duration_ns / TICK_NS;
    for tick in 1..=ticks {
        network.run_until(tick * TICK_NS);
        meter.tick(&mut network, tick * TICK_NS > run.warmup_ns);
        if tick * TICK_NS <= run.warmup_ns {
            before = tallies(&network, run.flows.len());
        }
        if tick.is_multiple_of(PROGRESS_TICKS) {
            progress(tick as f64 / ticks as f64);
        }
    }
    Ok(conclude(run, &network, meter, &before))
}

const PROGRESS_TICKS: u64 = 64;

fn build(run: &Run) -> Result<Network, UnknownController> {
    let links = run.links.iter().zip(0u64..).flat_map(|(link, number)| {
        // Every direction draws from a stream of its own.
        let seed = |way| run.seed.wrapping_mul(1_000_003).wrapping_add(2 * number + way);
        let [there, back] = link.configs.clone();
        [Link::new(there, seed(0)), Link::new(back, seed(1))]
    });
    let mut flows: Vec<(Box<dyn Flow>, Route)> = Vec::new();
    for (number, flow) in run.flows.iter().enumerate() {
        let route = Route {
            forward: flow.via.iter().map(|link| forward(*link)).collect(),
            back: flow.via.iter().rev().map(|link| forward(*link) + 1).collect(),
        };
        let seed = run.seed.wrapping_add(7919 * (number as u64 + 1));
        let (make, params) = controller(flow, seed)?;
        let flow: Box<dyn Flow> = match flow.whole_stack {
            true => Box::new(StackFlow::new(flow.shape, make, params)),
            false => Box::new(ReferenceFlow::new(flow.shape, make(&params))),
        };
        flows.push((flow, route));
    }
    Ok(Network::new(links.collect(), flows))
}

fn controller(flow: &RunFlow, seed: u64) -> Result<(cc::Make, Params), UnknownController> {
    let unknown = || UnknownController(flow.controller.clone());
    let (name, rate) = match flow.controller.split_once(':') {
        Some((name, rate)) => (name, Some(rate)),
        None => (flow.controller.as_str(), None),
    };
    let rate = rate.map(|rate| rate.parse::<degen::units::Bitrate>().map_err(|_| unknown()));
    let params = Params {
        datagram_octets: flow.shape.datagram_octets as u16,
        initial_rate_bps: rate.transpose()?.map(|rate| rate.bps()),
        seed,
        ..Params::default()
    };
    Ok((cc::by_name(name).ok_or_else(unknown)?, params))
}

fn tallies(network: &Network, flows: usize) -> Vec<Tally> {
    (0..flows).map(|flow| network.flow(flow).tally()).collect()
}

fn conclude(run: &Run, network: &Network, meter: Meter, before: &[Tally]) -> Outcome {
    let counted_ns = run.duration_ns - run.warmup_ns;
    let after = tallies(network, run.flows.len());
    let flows: Vec<FlowOutcome> = run
        .flows
        .iter()
        .zip(before.iter().zip(&after))
        .map(|(flow, (before, after))| flow_outcome(flow, before, after, counted_ns))
        .collect();
    let links: Vec<LinkOutcome> =
        (0..run.links.len()).map(|link| link_outcome(run, link, network, &meter)).collect();
    Outcome {
        name: run.name.clone(),
        values: run.values.clone(),
        seed: run.seed,
        counted_s: counted_ns as f64 / 1e9,
        total: total(run, &flows, &links, &meter, &after),
        groups: groups(&flows),
        flows,
        links,
        events: network.events(),
        hash: format!("{:016x}", network.hash()),
        curves: meter.into_curves(),
    }
}

fn flow_outcome(flow: &RunFlow, before: &Tally, after: &Tally, counted_ns: u64) -> FlowOutcome {
    let octets = after.arrived_octets.saturating_sub(before.arrived_octets);
    let goodput_bps = bits_per_second(octets, counted_ns);
    let shape = flow.shape;
    let whole = f64::from(shape.datagram_octets + shape.overhead_octets);
    FlowOutcome {
        controller: flow.controller.clone(),
        goodput_bps,
        payload_bps: (goodput_bps as f64 * f64::from(shape.datagram_octets) / whole) as u64,
        completion_ns: after.finished_ns.map(|finished_ns| finished_ns - shape.start_ns),
        sent: after.sent,
        resent: after.resent,
        lost: after.lost,
        spurious: after.spurious,
    }
}

fn link_outcome(run: &Run, link: usize, network: &Network, meter: &Meter) -> LinkOutcome {
    let (queue_mean_ns, queue_p99_ns) = meter.queue_ns(link);
    LinkOutcome {
        name: run.links[link].name.clone(),
        path: run.links[link].described.clone(),
        ceiling_bps: ceiling_bps(&run.links[link].configs[0]),
        queue_mean_ns,
        queue_p99_ns,
        counters: network.link(forward(link)).counters(),
    }
}

fn ceiling_bps(config: &Config) -> Option<u64> {
    let rate = config.rate.clone().at(0)?;
    let lost = match config.loss.clone().at(0) {
        Loss::None => 0.0,
        Loss::Independent(share) => share.probability(),
        Loss::Gilbert { to_bad, to_good, bad, good } => {
            let [to_bad, to_good] = [to_bad, to_good].map(|share| share.probability());
            let is_bad = if to_bad > 0.0 { to_bad / (to_bad + to_good) } else { 0.0 };
            is_bad * bad.probability() + (1.0 - is_bad) * good.probability()
        }
    };
    Some((rate.bps() as f64 * (1.0 - lost)) as u64)
}

fn total(
    run: &Run,
    flows: &[FlowOutcome],
    links: &[LinkOutcome],
    meter: &Meter,
    tallies: &[Tally],
) -> Total {
    let goodput_bps: u64 = flows.iter().map(|flow| flow.goodput_bps).sum();
    let ceiling = links.iter().filter_map(|link| link.ceiling_bps).min().unwrap_or(u64::MAX) as f64;
    let rtt_ns = run.links.iter().map(|link| link.rtt_ns).sum();
    let start_ns = run.flows.iter().map(|flow| flow.shape.start_ns).min().unwrap_or(0);
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>() as f64;
    let lost = sum(|tally| tally.lost - tally.spurious);
    Total {
        goodput_bps,
        share_of_ceiling: goodput_bps as f64 / ceiling,
        t50_ns: meter.reached_ns(0.5 * ceiling, rtt_ns, start_ns),
        t90_ns: meter.reached_ns(0.9 * ceiling, rtt_ns, start_ns),
        resent_per_loss: (lost > 0.0).then(|| sum(|tally| tally.resent) / lost),
        acks_per_data: sum(|tally| tally.ack_octets) / sum(|tally| tally.arrived_octets).max(1.0),
    }
}

fn groups(flows: &[FlowOutcome]) -> Vec<Group> {
    let mut by_controller: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for flow in flows {
        by_controller.entry(&flow.controller).or_default().push(flow.goodput_bps as f64);
    }
    let all: f64 = by_controller.values().flatten().sum();
    let group = |(controller, rates): (&str, Vec<f64>)| Group {
        controller: controller.to_owned(),
        flows: rates.len(),
        goodput_bps: rates.iter().sum::<f64>() as u64,
        share: rates.iter().sum::<f64>() / all.max(1.0),
        jain: jain(&rates),
    };
    by_controller.into_iter().map(group).collect()
}

/// Jain's index: 1 if all are equal, 1/n if one has all. Jain, Chiu and Hawe, "A Quantitative
/// Measure of Fairness and Discrimination", 1984.
pub fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    if squares > 0.0 { sum * sum / (rates.len() as f64 * squares) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_has_its_bounds() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[3.0, 0.0, 0.0]), 1.0 / 3.0);
        assert_eq!(jain(&[0.0, 0.0]), 1.0);
    }
}
