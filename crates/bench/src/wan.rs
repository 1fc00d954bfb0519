//! `weft bench table wan`: bulk data across long and lossy paths, against kernel TCP and QUIC over
//! the same ones.

use std::num::NonZeroUsize;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use weft_chart::{markdown, number};

use crate::arguments::{self, wrong_argument};
use crate::lab::BenchLab;
use crate::output::OutputArgs;
use crate::probes::BenchProbe;
use crate::probes::wan::{Mover, PATIENCE_S, RECEIVER, SENDER, START, Transfer, TransferAmount};
use crate::reading::{Readings, speed_sentence};
use crate::rounds::{self, BenchResults};
use crate::sys;

/// The options of the WAN benchmark.
#[derive(Debug, Args)]
pub struct WanArgs {
    /// How many rounds; medians need five
    #[arg(long, value_name = "N", default_value = "5", value_parser = arguments::rounds)]
    rounds: NonZeroUsize,
    /// Over how many seconds each rate is measured, after those that are left out
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = arguments::seconds)]
    seconds: f64,
    /// How many seconds of the start to leave out of each rate; their cost has a column of its own
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    omit: u64,
    /// The bottleneck, in Gbit/s; more than the router keeps up with is no result
    #[arg(long, default_value_t = 1.0, value_parser = arguments::gbps)]
    gbps: f64,
    /// The round-trip time
    #[arg(long, default_value = "70ms", value_parser = arguments::time)]
    rtt: String,
    /// Losses, in per cent
    #[arg(long, value_delimiter = ',', default_values_t = [0.0, 0.1, 1.0, 5.0])]
    #[arg(default_values_if("quick", "true", ["0", "1"]), value_parser = arguments::percent)]
    loss: Vec<f64>,
    /// Connections at a time
    #[arg(long, value_delimiter = ',', default_values_t = [1, 3, 10, 25])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    streams: Vec<u64>,
    /// Amounts whose delivery is timed, in megabytes
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 100])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    megabytes: Vec<u64>,
    /// Only the measurements with this in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// One round of one connection, without loss and with 1 %: a look, not a result
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// The table's name in a page of Markdown.
const NAME: &str = "wan";

/// What of an IP packet of 1500 bytes is payload: that of TCP with timestamps. Of Shuttle's 4
/// bytes fewer are, of QUIC's fewer still.
pub const PAYLOAD: f64 = 1448.0 / 1500.0;

/// What the ratios of the others are to.
const REFERENCE_MOVER: Mover = Mover::Tcp(REFERENCE);
const REFERENCE: &str = "bbr";
const OF_REFERENCE: &str = "of bbr's";

const MOVERS: [Mover; 4] = [Mover::Weft, REFERENCE_MOVER, Mover::Tcp("cubic"), Mover::Quic];

/// Runs the benchmark and prints its result.
///
/// # Errors
/// A measurement failed, the result cannot be written, or the user interrupted.
pub fn run(options: &WanArgs) -> Result<()> {
    let rounds = if options.quick { 1 } else { options.rounds.get() };
    options.output.check(NAME).map_err(wrong_argument)?;
    sys::catch_interrupts()?;
    let lab = BenchLab::new("127.0.0.1", options.seconds)?;
    let results = rounds::measure(&lab, options.probes(), options.only.as_deref(), rounds)?;
    let text = match options.output.json {
        true => serde_json::to_string_pretty(&options.json(&results))? + "\n",
        false => options.markdown(&results),
    };
    options.output.write(NAME, &text)?;
    results.check()
}

fn rate_label(mover: Mover, loss: f64, streams: u64) -> String {
    format!("{}, {loss} %, streams {streams}", mover.label())
}

fn delivery_label(mover: Mover, loss: f64, megabytes: u64) -> String {
    format!("{}, {loss} %, {megabytes} MB", mover.label())
}

impl WanArgs {
    fn streams(&self) -> &[u64] {
        if self.quick { &self.streams[..1] } else { &self.streams }
    }

    fn probes(&self) -> Vec<Box<dyn BenchProbe>> {
        let mut probes: Vec<Box<dyn BenchProbe>> = Vec::new();
        for loss in &self.loss {
            let path = format!("{} {}gbit {loss}%", self.rtt, self.gbps);
            let add = |mover, streams, amount, label| -> Box<dyn BenchProbe> {
                let transfer = Transfer::new(mover, &path, streams, amount, label);
                Box::new(transfer.omitting(self.omit))
            };
            for mover in MOVERS {
                probes.extend(self.streams().iter().map(|streams| {
                    add(mover, *streams, TransferAmount::Time, rate_label(mover, *loss, *streams))
                }));
                probes.extend(self.megabytes.iter().map(|megabytes| {
                    let amount = TransferAmount::Bytes(megabytes * 1_000_000);
                    add(mover, 1, amount, delivery_label(mover, *loss, *megabytes))
                }));
            }
        }
        probes
    }

    /// The most payload that the path can carry at this loss, in Gbit/s. What is lost has used its
    /// share of the rate.
    fn ceiling_gbps(&self, loss: f64) -> f64 {
        self.gbps * PAYLOAD * (1.0 - loss / 100.0)
    }

    fn json(&self, results: &BenchResults) -> Value {
        let ceiling = |loss: &f64| json!({ "loss": loss, "gbps": self.ceiling_gbps(*loss) });
        let ceilings: Vec<Value> = self.loss.iter().map(ceiling).collect();
        let mut json = results.json();
        json["path"] = json!({ "rtt": self.rtt, "gbps": self.gbps, "ceilings": ceilings });
        json["omit"] = json!(self.omit);
        json
    }

    fn markdown(&self, results: &BenchResults) -> String {
        let Self { rtt, gbps, omit, .. } = self;
        let sentence = format!(
            "A path of {rtt} and {gbps} Gbit/s, lossy both ways. Rates are of payload, without the \
             first {omit} s; the ceiling is rate x 1448/1500 x (1 - loss). What the start cost is \
             those {omit} s, less the time that what they delivered takes at the rate that \
             followed. What each has of {REFERENCE}'s is of the same round: the median and the \
             range of these ratios. A time with ~ is reckoned from the rate of the first \
             {PATIENCE_S} s."
        );
        let head = results.head(&sentence);
        let (rates, deliveries) = (self.rates(results), self.deliveries(results));
        let unsteady = self.unsteady(&results.readings);
        format!("{head}\n{rates}\n{deliveries}{unsteady}{}", results.gaps())
    }

    /// A line for each loss, number of streams and way of moving data.
    fn rates(&self, results: &BenchResults) -> String {
        let mut rows = Vec::new();
        for (loss, streams) in pairs(&self.loss, self.streams()) {
            for mover in MOVERS {
                let label = rate_label(mover, loss, streams);
                let cell = |aspect: &str, scale: f64| {
                    let series = results.readings.get(&format!("{label}{aspect}"));
                    series.map_or(String::from("-"), |series| number(series.median() * scale))
                };
                rows.push(vec![
                    format!("{loss}"),
                    format!("{streams}"),
                    mover.label().to_owned(),
                    cell("", 1.0),
                    cell("", 100.0 / self.ceiling_gbps(loss)),
                    own_range(&results.readings, &label),
                    share(&results.readings, &label, &rate_label(REFERENCE_MOVER, loss, streams)),
                    cell(START, 1.0),
                    cell(SENDER, 1.0),
                    cell(RECEIVER, 1.0),
                ]);
            }
        }
        let head = ["loss %", "streams", "by", "Gbit/s", "% of the ceiling", "range, Gbit/s"];
        let of_reference = [OF_REFERENCE, "the start cost, s"];
        let cpu = ["sender's CPU s/GB", "receiver's CPU s/GB"];
        markdown(&[&head[..], &of_reference[..], &cpu[..]].concat(), &rows)
    }

    /// A line for each loss and number of streams at which the reference changed its rate.
    fn unsteady(&self, readings: &Readings) -> String {
        let line = |(loss, streams)| {
            let label = rate_label(REFERENCE_MOVER, loss, streams);
            let change = readings.get(&label)?.speed_change()?;
            Some(format!("\n- {label}: {}.", speed_sentence(change)))
        };
        let lines: String = pairs(&self.loss, self.streams()).filter_map(line).collect();
        if lines.is_empty() { lines } else { lines + "\n" }
    }

    /// A line for each loss and amount: seconds until it was delivered.
    fn deliveries(&self, results: &BenchResults) -> String {
        let mut rows = Vec::new();
        for (loss, megabytes) in pairs(&self.loss, &self.megabytes) {
            let mut row = vec![format!("{loss}"), format!("{megabytes}")];
            row.extend(MOVERS.map(|mover| {
                let series = results.readings.get(&delivery_label(mover, loss, megabytes));
                series.map_or(String::from("-"), |series| duration(series.median()))
            }));
            let of = |mover| delivery_label(mover, loss, megabytes);
            row.push(share(&results.readings, &of(Mover::Weft), &of(REFERENCE_MOVER)));
            rows.push(row);
        }
        let titles = MOVERS.map(|mover| format!("{}, s", mover.label()));
        let mut head = vec!["loss %", "MB"];
        head.extend(titles.iter().map(String::as_str));
        head.push("weft0's of bbr's");
        markdown(&head, &rows)
    }
}

fn own_range(readings: &Readings, label: &str) -> String {
    readings.get(label).map_or(String::from("-"), |series| {
        let (low, high) = series.range();
        format!("{} to {}", number(low), number(high))
    })
}

/// What one series has of another, round by round.
fn share(readings: &Readings, label: &str, reference: &str) -> String {
    let both = readings.get(label).zip(readings.get(reference));
    let ratio = both.and_then(|(own, reference)| own.ratio_to(reference));
    ratio.map_or(String::from("-"), |ratio| {
        let (low, high) = ratio.range;
        format!("{} ({} to {})", number(ratio.median), number(low), number(high))
    })
}

fn duration(seconds: f64) -> String {
    format!("{}{}", if seconds > PATIENCE_S { "~" } else { "" }, number(seconds))
}

fn pairs<'a>(losses: &'a [f64], others: &'a [u64]) -> impl Iterator<Item = (f64, u64)> + 'a {
    losses.iter().flat_map(|loss| others.iter().map(|other| (*loss, *other)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: WanArgs,
    }

    fn options(line: &str) -> WanArgs {
        Cli::parse_from(std::iter::once("wan").chain(line.split_whitespace())).options
    }

    #[test]
    fn every_way_of_moving_data_has_a_name_of_its_own() {
        let names: Vec<String> = options("").probes().iter().map(|probe| probe.name()).collect();
        let unique: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!((names.len(), unique.len()), (112, 112));
        assert_eq!(options("--quick").loss, [0.0, 1.0]);
        let quick = options("--quick --loss 1 --megabytes 10").probes();
        let names: Vec<String> = quick.iter().map(|probe| probe.name()).collect();
        assert_eq!(names[..2], ["weft0, 1 %, streams 1", "weft0, 1 %, 10 MB"]);
    }

    #[test]
    fn the_ceiling_is_what_is_left_of_the_link() {
        let ceiling = |loss| options("--gbps 2").ceiling_gbps(loss);
        assert!((ceiling(0.0) - 1.930_667).abs() < 1e-6);
        assert!((ceiling(5.0) - 1.930_667 * 0.95).abs() < 1e-6);
    }
}
