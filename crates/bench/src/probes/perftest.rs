//! perftest's programs over Weft: over `weft_iw0`, connected by rdma-cm, or over `weft0`, by
//! themselves. With `-e` they sleep until an event of the completion queue.

use anyhow::Result;

use super::route::WeftRoute;
use super::{BenchProbe, LatencyTaken, Pace, last_numbers};
use crate::lab::BenchLab;
use crate::pair::{Pair, ServerEnds};
use crate::process::Spec;
use crate::reading::{ProbeReading, ReadingUnit};

const BITS_PER_GIGABIT: f64 = 1e9;

/// Both sides have it; nobody else needs to be kept out.
const KEY: &str = "weft1:5b3f1e9c07d2a84466c1b0f29e8d37a55b3f1e9c07d2a84466c1b0f29e8d37a5";

/// A program of perftest, and how it is run.
#[derive(Clone, Copy, Debug)]
struct PerftestRun {
    program: &'static str,
    route: WeftRoute,
    sealed: bool,
    size: u64,
    options: &'static str,
}

impl PerftestRun {
    fn new(program: &'static str, size: u64) -> Self {
        Self { program, route: WeftRoute::IWARP, sealed: false, size, options: "" }
    }

    fn pair(&self, lab: &BenchLab, options: &str) -> Result<Pair> {
        let Self { program, route, size, .. } = *self;
        let how = if route.is_iwarp() { "-R" } else { "-d weft0" };
        lab.pair(ServerEnds::ByItself, |port| {
            let line = format!("{how} -F -p {port} -s {size} {options} {}", self.options);
            let side = Spec::new(program).args(&line);
            let side = if self.sealed { side.env("WEFT_KEY", KEY) } else { side };
            let (server, client) = (side.clone(), side.args(&lab.address));
            (route.carry(server, &lab.weft), route.carry(client, &lab.weft))
        })
    }
}

/// One of the `ib_*_bw` programs, at one size.
#[derive(Debug)]
pub struct Bandwidth {
    run: PerftestRun,
    counts_cpu: bool,
    label: String,
    pace: Pace,
    /// A run of next to no data, for what is not CPU time of the data.
    least: Option<Throughput>,
}

/// What a run of it comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Payload, in Gbit/s.
    pub gbps: f64,
    /// Messages in a second, in millions.
    pub mps: f64,
    /// Bytes moved.
    bytes: f64,
    /// Processor seconds of both sides.
    cpu_s: f64,
}

/// The messages of a run whose CPU time is that of everything but the data. perftest spends
/// a quarter of a second and more in each process to find out how fast the CPU's clock is.
const HARDLY_ANY: u64 = 8;

impl Bandwidth {
    /// `program` over `weft_iw0` with messages of `size` bytes. `label` begins the names of its
    /// series.
    pub fn new(program: &'static str, size: u64, label: &str) -> Self {
        let label = label.to_owned();
        // A tenth of a second on a fast path, a few seconds on a slow one.
        let pace = Pace::beginning_with((300_000_000 / size).clamp(256, 20_000));
        let run = PerftestRun::new(program, size);
        Self { run, counts_cpu: false, label, pace, least: None }
    }

    /// The same by this route.
    pub fn over(mut self, route: WeftRoute) -> Self {
        self.run.route = route;
        self
    }

    /// The same under a key.
    pub fn sealed(mut self) -> Self {
        self.run.sealed = true;
        self
    }

    /// The same with more options.
    pub fn with(mut self, options: &'static str) -> Self {
        self.run.options = options;
        self
    }

    /// The same with a series of its CPU time per byte.
    pub fn counting_cpu(mut self) -> Self {
        self.counts_cpu = true;
        self
    }

    /// Measures once.
    pub fn measure(&self, lab: &BenchLab) -> Result<Throughput> {
        let run = |count| self.messages(lab, count);
        self.pace.measure(lab.seconds, run, |result| result.mps * 1e6)
    }

    fn messages(&self, lab: &BenchLab, count: u64) -> Result<Throughput> {
        let options = format!("-n {count} --report_gbits -N");
        throughput(&self.run.pair(lab, &options)?, self.run.size)
    }
}

impl Throughput {
    /// Processor seconds of both sides for 10^9 bytes more than `least` moved.
    fn cpu_s_per_gb_above(&self, least: &Self) -> f64 {
        (self.cpu_s - least.cpu_s) / ((self.bytes - least.bytes) / 1e9)
    }
}

impl BenchProbe for Bandwidth {
    fn name(&self) -> String {
        self.label.clone()
    }

    fn program(&self) -> Option<&str> {
        Some(self.run.program)
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let result = self.measure(lab)?;
        let series = |what: &str| format!("{}{what}", self.label);
        let mut readings = vec![
            ProbeReading::new(series(""), ReadingUnit::GigabitsPerSecond, result.gbps),
            ProbeReading::new(series(", messages"), ReadingUnit::MegamessagesPerSecond, result.mps),
        ];
        if self.counts_cpu {
            let least = match self.least {
                Some(least) => least,
                None => self.messages(lab, HARDLY_ANY)?,
            };
            self.least = Some(least);
            let cpu = result.cpu_s_per_gb_above(&least);
            readings.push(ProbeReading::new(
                series(", CPU"),
                ReadingUnit::CpuSecondsPerGigabyte,
                cpu,
            ));
        }
        Ok(readings)
    }
}

/// One of the `ib_*_lat` programs, at one size.
#[derive(Debug)]
pub struct Latency {
    run: PerftestRun,
    label: String,
    pace: Pace,
}

impl Latency {
    /// `program` over `weft_iw0` with messages of `size` bytes. `label` begins the names of its
    /// series.
    pub fn new(program: &'static str, size: u64, label: &str) -> Self {
        let (run, pace) = (PerftestRun::new(program, size), Pace::beginning_with(2_000));
        Self { run, label: label.to_owned(), pace }
    }

    /// The same by this route.
    pub fn over(mut self, route: WeftRoute) -> Self {
        self.run.route = route;
        self
    }

    /// The same with more options.
    pub fn with(mut self, options: &'static str) -> Self {
        self.run.options = options;
        self
    }
}

impl BenchProbe for Latency {
    fn name(&self) -> String {
        self.label.clone()
    }

    fn program(&self) -> Option<&str> {
        Some(self.run.program)
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let run = |count| {
            let pair = self.run.pair(lab, &format!("-n {count}"))?;
            latency(&pair.client.stdout)
        };
        // What is called the latency of a Send or Write is half of a round trip.
        let latency = self.pace.measure(lab.seconds, run, |taken| 0.5e6 / taken.mean_us)?;
        Ok(latency.readings(&self.label))
    }
}

/// Reads `size iterations peak average messages`.
fn throughput(pair: &Pair, size: u64) -> Result<Throughput> {
    let numbers = last_numbers(&pair.client.stdout, 5)?;
    let (count, gbps) = (numbers[1], numbers[3]);
    let bytes = count * size as f64;
    // The program rounds its own message rate to six digits after the point, in millions.
    let mps = gbps * BITS_PER_GIGABIT / 8.0 / size as f64 / 1e6;
    Ok(Throughput { gbps, mps, bytes, cpu_s: pair.cpu().as_secs_f64() })
}

/// Reads `size iterations min max typical average deviation 99% 99.9%`; what is typical is the
/// median.
fn latency(stdout: &str) -> Result<LatencyTaken> {
    let numbers = last_numbers(stdout, 9)?;
    Ok(LatencyTaken { p50_us: Some(numbers[4]), mean_us: numbers[5] })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::process::Finished;

    fn pair(stdout: &str, cpu: Duration) -> Pair {
        let side =
            |stdout: &str| Finished { stdout: stdout.to_owned(), stderr: String::new(), cpu };
        Pair { server: side(""), client: side(stdout), elapsed: Duration::ZERO }
    }

    #[test]
    fn bandwidth_is_read() {
        let table = "\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    1000             0.00               40.00  \t\t   0.004768
---------------------------------------------------------------------------------------
";
        let result = throughput(&pair(table, Duration::from_millis(100)), 1 << 20).unwrap();
        assert_eq!(result.gbps, 40.0);
        assert!((result.mps - 0.004768).abs() < 1e-6);
        let least = Throughput { bytes: 48576000.0, cpu_s: 0.1, ..result };
        assert!((result.cpu_s_per_gb_above(&least) - 0.1).abs() < 1e-9);
        assert!(throughput(&pair("nothing", Duration::ZERO), 1).is_err());
    }

    #[test]
    fn latency_is_read() {
        let row = " 64 1000 5.00 9.00 5.50 \t 5.75 \t0.36 \t\t6.24 \t\t9.26\n";
        let table = format!(" #bytes #iterations    t_min[usec]    t_max[usec]\n{row}-----\n");
        let taken = latency(&table).unwrap();
        assert_eq!(taken, LatencyTaken { p50_us: Some(5.5), mean_us: 5.75 });
    }
}
