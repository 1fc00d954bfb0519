//! The table of `weft top`, and what limits each connection: the word of most of its last samples.

use std::collections::HashMap;

use weft_observe::{ConnLimit, ConnReport, ProcessReport};

use super::figures::{scaled, share, table, time};
use super::sample::{ConnPace, Sample};
use super::ss::remark;

/// Samples that decide what limits a connection.
const SAMPLES: usize = 5;

/// What the keys do.
pub const HELP: &str = "\
weft top

  q        quit
  space    refresh now
  r        sort by rate
  t        sort by round trip
  l        sort by loss
  p        sort by process

LIMIT is what keeps a connection from being faster:
  application  this process posts no more than is sent
  receiver     messages wait for a receive, or the peer takes no more
  network      the rate control, which follows the path
  CPU          work is due, and nobody has come to do it

Any key goes back.
";

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// Fastest first.
    Rate,
    /// Longest round trip first.
    RoundTrip,
    /// Most losses first.
    Loss,
    /// By process id and queue pair.
    Process,
}

/// A connection, whose it is, and what it did since the last sample.
pub type Measured<'a> = (&'a ProcessReport, &'a ConnReport, ConnPace);

/// The table, with a memory of what limited each connection.
#[derive(Default)]
pub struct TopTable {
    limits: HashMap<(u32, String, u32), Vec<ConnLimit>>,
}

fn key((process, conn, _): &Measured<'_>) -> (u32, String, u32) {
    (process.pid, conn.device.clone(), conn.qpn)
}

impl TopTable {
    /// The text for a sample.
    pub fn text(&mut self, sample: &Sample, measured: &[Measured<'_>], sort: SortKey) -> String {
        self.note(measured);
        self.shown(sample, measured, sort)
    }

    /// Takes note of what limits the connections.
    pub fn note(&mut self, measured: &[Measured<'_>]) {
        let mut limits = HashMap::new();
        for one in measured {
            let mut last = self.limits.remove(&key(one)).unwrap_or_default();
            last.push(one.2.limit);
            if last.len() > SAMPLES {
                last.remove(0);
            }
            limits.insert(key(one), last);
        }
        self.limits = limits;
    }

    /// The text for a sample that was taken note of.
    pub fn shown(&self, sample: &Sample, measured: &[Measured<'_>], sort: SortKey) -> String {
        let mut sorted: Vec<&Measured<'_>> = measured.iter().collect();
        sorted.sort_by(|a, b| compare(a, b, sort));
        let rows: Vec<_> = sorted.into_iter().map(|one| self.row(one)).collect();
        let mut text = summary(sample, measured);
        text += &table(HEADING, &[1, 2, 4, 11], &rows);
        text + &sample.seen.iter().filter_map(remark).collect::<String>()
    }

    fn row(&self, one: &Measured<'_>) -> [String; 12] {
        let (process, conn, pace) = one;
        let gauges = &conn.gauges;
        let window = match gauges.window_bytes {
            0 => "-".to_owned(),
            window => scaled(window as f64),
        };
        [
            process.pid.to_string(),
            process.name.clone(),
            conn.device.clone(),
            format!("{:#x}", conn.qpn),
            if conn.peer.is_empty() { "-".to_owned() } else { conn.peer.clone() },
            scaled(pace.out_bps),
            scaled(pace.in_bps),
            time(gauges.rtt_ns),
            share(pace.lost, pace.packets),
            format!("{}/{}", gauges.sends, gauges.recvs),
            format!("{}/{window}", scaled(gauges.in_flight_bytes as f64)),
            self.limit(one).to_string(),
        ]
    }

    /// The word that most of the last samples have; the newest of those that are equally frequent.
    fn limit(&self, one: &Measured<'_>) -> ConnLimit {
        let last = self.limits.get(&key(one)).map_or(&[][..], Vec::as_slice);
        let often = |limit: &ConnLimit| last.iter().filter(|other| *other == limit).count();
        last.iter().max_by_key(|limit| often(limit)).copied().unwrap_or_default()
    }
}

const HEADING: [&str; 12] = [
    "PID",
    "PROCESS",
    "DEVICE",
    "QP",
    "PEER",
    "OUT b/s",
    "IN b/s",
    "RTT",
    "LOSS",
    "SEND/RECVQ",
    "FLIGHT/WINDOW",
    "LIMIT",
];

fn summary(sample: &Sample, measured: &[Measured<'_>]) -> String {
    let sum =
        |what: fn(&ConnPace) -> f64| scaled(measured.iter().map(|(_, _, pace)| what(pace)).sum());
    let (processes, connections) = (sample.seen.len(), measured.len());
    let (out, taken) = (sum(|pace| pace.out_bps), sum(|pace| pace.in_bps));
    let operations = sum(|pace| pace.operations);
    format!(
        "weft top: {processes} processes, {connections} connections, {out}b/s out, {taken}b/s in, \
         {operations} operations/s\n\n"
    )
}

fn compare(a: &Measured<'_>, b: &Measured<'_>, sort: SortKey) -> std::cmp::Ordering {
    let rate = |one: &Measured<'_>| one.2.out_bps + one.2.in_bps;
    let loss = |one: &Measured<'_>| one.2.lost as f64 / one.2.packets.max(1) as f64;
    let first = match sort {
        SortKey::Rate => rate(b).total_cmp(&rate(a)),
        SortKey::RoundTrip => b.1.gauges.rtt_ns.cmp(&a.1.gauges.rtt_ns),
        SortKey::Loss => loss(b).total_cmp(&loss(a)),
        SortKey::Process => std::cmp::Ordering::Equal,
    };
    first.then_with(|| (a.0.pid, a.1.qpn).cmp(&(b.0.pid, b.1.qpn)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn(qpn: u32, rtt_ns: u64) -> ConnReport {
        let mut conn = ConnReport { qpn, ..ConnReport::default() };
        conn.gauges.rtt_ns = rtt_ns;
        conn
    }

    #[test]
    fn rows_are_in_the_order_that_was_asked_for() {
        let process = ProcessReport::default();
        let (slow, fast) = (conn(1, 500), conn(2, 5));
        let pace = |out_bps| ConnPace { out_bps, ..ConnPace::default() };
        let mut both = [(&process, &slow, pace(1.0)), (&process, &fast, pace(9.0))];
        let mut first = |sort| {
            both.sort_by(|a, b| compare(a, b, sort));
            both[0].1.qpn
        };
        assert_eq!(first(SortKey::Rate), 2);
        assert_eq!(first(SortKey::RoundTrip), 1);
        assert_eq!(first(SortKey::Process), 1);
    }

    #[test]
    fn the_word_is_that_of_most_samples() {
        let (process, conn) = (ProcessReport::default(), conn(1, 0));
        let mut table = TopTable::default();
        let one = |limit| [(&process, &conn, ConnPace { limit, ..ConnPace::default() })];
        for limit in [ConnLimit::Network, ConnLimit::Cpu, ConnLimit::Network, ConnLimit::None] {
            table.note(&one(limit));
        }
        assert_eq!(table.limit(&one(ConnLimit::None)[0]), ConnLimit::Network);
        for _ in 0..SAMPLES {
            table.note(&one(ConnLimit::Receiver));
        }
        assert_eq!(table.limit(&one(ConnLimit::None)[0]), ConnLimit::Receiver);
    }
}
