//! A run from beginning to end, and what came out.

use std::collections::BTreeMap;

use degen::link::{Counters, Link, LinkConfig, Loss};
use serde::Serialize;
use weft_shuttle::cc::{self, Params, Saved, bits_per_second};

use crate::datagrams::DatagramFlow;
use crate::flow::{FlowTally, SimFlow};
use crate::meter::{Curves, NetworkMeter, TICK_NS, forward};
use crate::network::{FlowRoute, Network};
use crate::plan::{Engine, RunFlow, SimRun};
use crate::reference::ReferenceFlow;
use crate::report::PublishedFigure;
use crate::stack::StackFlow;

/// What came out of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunOutcome {
    /// The run's name.
    pub name: String,
    /// What it had of the values that vary.
    pub values: BTreeMap<String, String>,
    /// What all that was random followed from.
    pub seed: u64,
    /// What others have published for the same.
    pub published: Vec<PublishedFigure>,
    /// Round trip over all links without queues, when the run began.
    pub rtt_ns: u64,
    /// Seconds after the warm-up, over which rates and queues are means.
    pub counted_s: f64,
    /// All flows together.
    pub total: Total,
    /// By label.
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
    /// From the end of the first outage, or from the first step, to nine tenths of the ceiling.
    pub back_ns: Option<u64>,
    /// From the last start until all rates were within a fifth of their mean for three seconds.
    pub fair_ns: Option<u64>,
    /// Packets sent again for each packet that was lost.
    pub resent_per_loss: Option<f64>,
    /// Bytes of acknowledgements for each byte that arrived.
    pub acks_per_data: f64,
}

/// The flows of one label.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// The label: the controller, unless the plan says something else.
    pub label: String,
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
    /// What it is counted as: the controller, unless the plan says something else.
    pub label: String,
    /// What arrived after the warm-up, in bits of IP packets per second.
    pub goodput_bps: u64,
    /// The same without headers: bytes of the application.
    pub payload_bps: u64,
    /// From its start to the acknowledgement of all its data, if it had an end.
    pub completion_ns: Option<u64>,
    /// That, over the time of its bytes at the ceiling and a round trip.
    pub slowdown: Option<f64>,
    /// Jain's index of fairness among its streams, if it has several.
    pub streams_jain: Option<f64>,
    /// Packets sent.
    pub sent: u64,
    /// Of those, again.
    pub resent: u64,
    /// Declared lost.
    pub lost: u64,
    /// Declared lost but not lost.
    pub spurious: u64,
    /// Packets of data that arrived, each counted once.
    pub arrived: u64,
    /// Datagrams given to the application that it had been given before.
    pub twice: u64,
    /// Datagrams given to the application after later ones.
    pub late: u64,
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
    /// What its queue dropped, as a part of the product of its first rate and round trip.
    pub dropped_bdp: f64,
    /// What the queue dropped and the policer took after the warm-up, of packets offered then.
    pub overrun: f64,
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
pub fn simulate(
    run: &SimRun,
    mut progress: impl FnMut(f64),
) -> Result<RunOutcome, UnknownController> {
    let mut network = build(run)?;
    let mut meter = NetworkMeter::new(run.links.len(), run.flows.len(), run.duration_ns);
    let mut before = Before {
        flows: vec![Counts::default(); run.flows.len()],
        links: vec![Counters::default(); run.links.len()],
    };
    let ticks = run.duration_ns / TICK_NS;
    for tick in 1..=ticks {
        network.run_until(tick * TICK_NS);
        meter.tick(&mut network, tick * TICK_NS > run.warmup_ns);
        if tick == run.warmup_ns / TICK_NS {
            before.flows = counts(&network, run.flows.len());
            let counters = |link| network.link(forward(link)).counters();
            before.links = (0..run.links.len()).map(counters).collect();
        }
        if tick.is_multiple_of(PROGRESS_TICKS) {
            progress(tick as f64 / ticks as f64);
        }
    }
    Ok(conclude(run, &network, meter, &before))
}

const PROGRESS_TICKS: u64 = 64;

fn build(run: &SimRun) -> Result<Network, UnknownController> {
    let links = run.links.iter().zip(0u64..).flat_map(|(link, number)| {
        // Every direction draws from a stream of its own.
        let seed = |way| run.seed.wrapping_mul(1_000_003).wrapping_add(2 * number + way);
        let [there, back] = link.configs.clone();
        [Link::new(there, seed(0)), Link::new(back, seed(1))]
    });
    let mut flows: Vec<(Box<dyn SimFlow>, Vec<FlowRoute>)> = Vec::new();
    for (number, flow) in run.flows.iter().enumerate() {
        let over = |links: &[usize]| FlowRoute {
            forward: links.iter().map(|link| forward(*link)).collect(),
            back: links.iter().rev().map(|link| forward(*link) + 1).collect(),
        };
        let routes: Vec<FlowRoute> = match flow.spread {
            true => flow.via.chunks(1).map(over).collect(),
            false => vec![over(&flow.via)],
        };
        let seed = run.seed.wrapping_add(7919 * (number as u64 + 1));
        let (make, params) = controller(flow, seed)?;
        let min_rtt_ns = flow.via.iter().map(|link| run.links[*link].rtt_ns).sum();
        let saved = flow.saved_bps.map(|rate_bps| Saved { rate_bps, min_rtt_ns });
        let flow: Box<dyn SimFlow> = match flow.engine {
            Engine::Datagrams { is_sealed } => {
                let rate_bps = params.initial_rate_bps.unwrap_or(0);
                Box::new(DatagramFlow::new(flow.shape, rate_bps, is_sealed, seed))
            }
            Engine::Shuttle(whole) => {
                let make = (make, params, saved);
                Box::new(StackFlow::new(flow.shape, whole, make, routes.len() as u8))
            }
            Engine::Reference => {
                let mut controller = make(&params);
                if saved.is_some() {
                    controller.on_path_changed(0, saved);
                }
                Box::new(ReferenceFlow::new(flow.shape, controller))
            }
        };
        flows.push((flow, routes));
    }
    Ok(Network::new(links.collect(), flows))
}

fn controller(flow: &RunFlow, seed: u64) -> Result<(cc::Make, Params), UnknownController> {
    let unknown = || UnknownController(flow.controller.clone());
    let (name, rate) = match flow.controller.split_once(':') {
        Some((name, rate)) => (name, Some(rate)),
        None => (flow.controller.as_str(), None),
    };
    let rate = rate.map(|rate| rate.parse::<weft_units::Bitrate>().map_err(|_| unknown()));
    let initial_rate_bps = rate.transpose()?.map(|rate| rate.bps());
    let mut params = Params {
        datagram_octets: flow.shape.datagram_octets as u16,
        initial_rate_bps,
        seed,
        ..Params::default()
    };
    if name == "fixed" {
        // The plan's rate is what is asked for, however low.
        params.min_rate_bps = 1;
    }
    Ok((cc::by_name(name).ok_or_else(unknown)?, params))
}

/// What a flow has done, and each of its streams.
#[derive(Clone, Debug, Default)]
struct Counts {
    tally: FlowTally,
    streams: Vec<u64>,
}

/// What had happened when the warm-up ended.
struct Before {
    flows: Vec<Counts>,
    links: Vec<Counters>,
}

fn counts(network: &Network, flows: usize) -> Vec<Counts> {
    let of = |flow: &dyn SimFlow| Counts { tally: flow.tally(), streams: flow.streams() };
    (0..flows).map(|flow| of(network.flow(flow))).collect()
}

fn conclude(run: &SimRun, network: &Network, meter: NetworkMeter, before: &Before) -> RunOutcome {
    let counted_ns = run.duration_ns - run.warmup_ns;
    let after = counts(network, run.flows.len());
    let flows: Vec<FlowOutcome> = run
        .flows
        .iter()
        .zip(before.flows.iter().zip(&after))
        .map(|(flow, (before, after))| flow_outcome(run, flow, before, after))
        .collect();
    let links: Vec<LinkOutcome> = (0..run.links.len())
        .map(|link| link_outcome(run, link, network, &meter, &before.links))
        .collect();
    RunOutcome {
        name: run.name.clone(),
        values: run.values.clone(),
        seed: run.seed,
        published: run.published.clone(),
        rtt_ns: run.links.iter().map(|link| link.rtt_ns).sum(),
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

fn flow_outcome(run: &SimRun, flow: &RunFlow, before: &Counts, counts: &Counts) -> FlowOutcome {
    let after = &counts.tally;
    let rate_bps = |of: fn(&FlowTally) -> u64| {
        let octets = of(after).saturating_sub(of(&before.tally));
        bits_per_second(octets, run.duration_ns - run.warmup_ns)
    };
    let earlier = before.streams.iter().copied().chain(std::iter::repeat(0));
    let streams: Vec<f64> =
        counts.streams.iter().zip(earlier).map(|(after, before)| (after - before) as f64).collect();
    let completion_ns = after.finished_ns.map(|finished_ns| finished_ns - flow.shape.start_ns);
    FlowOutcome {
        label: flow.label.clone(),
        goodput_bps: rate_bps(|tally| tally.arrived_octets),
        payload_bps: rate_bps(|tally| tally.payload_octets),
        completion_ns,
        slowdown: completion_ns.zip(ideal_ns(run, flow)).map(|(ns, ideal_ns)| ns as f64 / ideal_ns),
        streams_jain: (streams.len() > 1).then(|| jain(&streams)),
        sent: after.sent,
        resent: after.resent,
        lost: after.lost,
        spurious: after.spurious,
        arrived: after.arrived,
        twice: after.twice,
        late: after.late,
    }
}

/// What the flow would take alone, at the ceiling from its first moment on.
fn ideal_ns(run: &SimRun, flow: &RunFlow) -> Option<f64> {
    let links = || flow.via.iter().map(|link| &run.links[*link]);
    let ceilings = || links().filter_map(|link| ceiling_bps(&link.configs[0], 0));
    let rtts = || links().map(|link| link.rtt_ns);
    let (rtt_ns, ceiling_bps): (u64, u64) = match flow.spread {
        true => (rtts().max()?, ceilings().sum()),
        false => (rtts().sum(), ceilings().min()?),
    };
    let shape = flow.shape;
    let packet = f64::from(shape.datagram_octets + shape.overhead_octets);
    let octets = shape.size_octets? as f64 * packet / f64::from(shape.payload_octets);
    Some(octets * 8e9 / ceiling_bps as f64 + rtt_ns as f64)
}

fn link_outcome(
    run: &SimRun,
    link: usize,
    network: &Network,
    meter: &NetworkMeter,
    before: &[Counters],
) -> LinkOutcome {
    let (queue_mean_ns, queue_p99_ns) = meter.queue_ns(link);
    let config = &run.links[link].configs[0];
    let counters = network.link(forward(link)).counters();
    let rate = config.fading.map(|fading| fading.mean()).or(config.rate.clone().at(0));
    let bdp_octets = rate.map_or(0, |rate| rate.bytes_in(run.links[link].rtt_ns));
    let packet = counters.offered_bytes as f64 / counters.offered.max(1) as f64;
    LinkOutcome {
        name: run.links[link].name.clone(),
        path: run.links[link].described.clone(),
        ceiling_bps: ceiling_bps(config, 0),
        queue_mean_ns,
        queue_p99_ns,
        overrun: overrun(&before[link], &counters),
        dropped_bdp: counters.dropped_queue as f64 * packet / bdp_octets.max(1) as f64,
        counters,
    }
}

/// What the queue dropped and the policer took between two readings, of what was offered.
fn overrun(before: &Counters, after: &Counters) -> f64 {
    let dropped = |counters: &Counters| counters.dropped_queue + counters.dropped_policer;
    let offered = after.offered - before.offered;
    (dropped(after) - dropped(before)) as f64 / offered.max(1) as f64
}

/// What of a link's rate is not lost at random, and not policed.
fn ceiling_bps(config: &LinkConfig, at_ns: u64) -> Option<u64> {
    let policed = config.policer.map(|policer| policer.rate);
    let fading = config.fading.map(|fading| fading.mean());
    let rate = fading.or(config.rate.clone().at(at_ns)).into_iter().chain(policed).min()?;
    let lost = match config.loss.clone().at(at_ns) {
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
    run: &SimRun,
    flows: &[FlowOutcome],
    links: &[LinkOutcome],
    meter: &NetworkMeter,
    counts: &[Counts],
) -> Total {
    let goodput_bps: u64 = flows.iter().map(|flow| flow.goodput_bps).sum();
    let ceilings = || links.iter().filter_map(|link| link.ceiling_bps);
    let ceiling = match run.flows.iter().any(|flow| flow.spread) {
        true => ceilings().sum(),
        false => ceilings().min().unwrap_or(u64::MAX),
    } as f64;
    let rtt_ns = run.links.iter().map(|link| link.rtt_ns).sum();
    let starts = || run.flows.iter().map(|flow| flow.shape.start_ns);
    let start_ns = starts().min().unwrap_or(0);
    let sum = |of: fn(&FlowTally) -> u64| {
        counts.iter().map(|counts| of(&counts.tally)).sum::<u64>() as f64
    };
    let lost = sum(|tally| tally.lost - tally.spurious);
    Total {
        goodput_bps,
        // Where nothing can arrive, nothing is missing.
        share_of_ceiling: if ceiling > 0.0 { goodput_bps as f64 / ceiling } else { 0.0 },
        t50_ns: meter.reached_ns(0.5 * ceiling, rtt_ns, start_ns),
        t90_ns: meter.reached_ns(0.9 * ceiling, rtt_ns, start_ns),
        back_ns: change_ns(run).and_then(|at_ns| {
            let links = run.links.iter();
            let ceiling = links.filter_map(|link| ceiling_bps(&link.configs[0], at_ns)).min()?;
            meter.reached_ns(0.9 * ceiling as f64, rtt_ns, at_ns)
        }),
        fair_ns: meter.fair_ns(starts().max().unwrap_or(0)),
        resent_per_loss: (lost > 0.0).then(|| sum(|tally| tally.resent) / lost),
        acks_per_data: sum(|tally| tally.ack_octets) / sum(|tally| tally.arrived_octets).max(1.0),
    }
}

/// When the first outage of all links ends, or the first step is made.
fn change_ns(run: &SimRun) -> Option<u64> {
    let of = |config: &LinkConfig| {
        let outages = config.outages.iter().map(|outage| outage.at_ns + outage.for_ns);
        let steps = [config.rate.next_change_ns(), config.delay_ns.next_change_ns()];
        outages.chain(steps.into_iter().flatten()).min()
    };
    run.links.iter().filter_map(|link| of(&link.configs[0])).min()
}

fn groups(flows: &[FlowOutcome]) -> Vec<Group> {
    let mut by_label: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for flow in flows {
        by_label.entry(&flow.label).or_default().push(flow.goodput_bps as f64);
    }
    let all: f64 = by_label.values().flatten().sum();
    let group = |(label, rates): (&str, Vec<f64>)| Group {
        label: label.to_owned(),
        flows: rates.len(),
        goodput_bps: rates.iter().sum::<f64>() as u64,
        share: rates.iter().sum::<f64>() / all.max(1.0),
        jain: jain(&rates),
    };
    by_label.into_iter().map(group).collect()
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
