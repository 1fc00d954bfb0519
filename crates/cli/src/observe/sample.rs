//! What all processes say at a moment, and what happened between two moments.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use weft_observe::{
    ConnLimit, ConnReport, Counters, PastSums, ProcessReport, ReadLimits, ReaderAnswer,
    SeenProcess, place, read_with_ended,
};
use weft_os::clock::{self, Moment};

/// How long processes have for their answers.
const LIMITS: ReadLimits =
    ReadLimits { each: Duration::from_millis(100), all: Duration::from_secs(2) };
/// The share of its busy time from which on the peer's full window is what limits TCP: a half.
const MOSTLY: u64 = 2;

/// All processes at a moment.
pub struct Sample {
    /// When it was taken.
    pub at: Moment,
    /// What they said, by process id.
    pub seen: Vec<SeenProcess>,
    /// What ended processes did.
    pub ended: PastSums,
}

impl Sample {
    /// Asks everybody in `dir`.
    ///
    /// # Errors
    /// The directory is not this user's alone, so that no process is to be seen there.
    pub fn take(dir: &Path) -> io::Result<Self> {
        place::check_for_reading(dir)?;
        let (mut seen, ended) = read_with_ended(dir, LIMITS);
        seen.sort_by_key(|seen| seen.pid);
        Ok(Self { at: clock::now(), seen, ended })
    }

    /// Those that have answered.
    pub fn reports(&self) -> impl Iterator<Item = &ProcessReport> {
        self.seen.iter().filter_map(|seen| match &seen.answer {
            ReaderAnswer::Report(report) => Some(&**report),
            ReaderAnswer::Silent | ReaderAnswer::Nonsense => None,
        })
    }
}

/// What a connection did since the last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConnPace {
    /// Bits of payload sent per second.
    pub out_bps: f64,
    /// Bits received.
    pub in_bps: f64,
    /// Requests completed per second.
    pub operations: f64,
    /// Packets lost, and sent.
    pub lost: u64,
    /// Packets sent.
    pub packets: u64,
    /// What kept it from being faster.
    pub limit: ConnLimit,
}

type ConnKey = (u32, String, u32);

/// The last sample, to compare with.
#[derive(Default)]
pub struct Paces {
    before: HashMap<ConnKey, (Counters, (u64, u64))>,
    at_ns: HashMap<u32, u64>,
}

impl Paces {
    /// What every connection of `sample` did since the last call, in its order.
    pub fn of<'a>(
        &mut self,
        sample: &'a Sample,
    ) -> Vec<(&'a ProcessReport, &'a ConnReport, ConnPace)> {
        let mut now = Self::default();
        let mut paces = Vec::new();
        for process in sample.reports() {
            now.at_ns.insert(process.pid, process.at_ns);
            let since = self.at_ns.get(&process.pid).copied().unwrap_or(process.at_ns);
            let seconds = process.at_ns.saturating_sub(since) as f64 / 1e9;
            for conn in &process.connections {
                let key = (process.pid, conn.device.clone(), conn.qpn);
                let busy = (conn.gauges.busy_us, conn.gauges.peer_full_us);
                let before = self.before.get(&key).copied();
                paces.push((process, conn, pace(conn, before, seconds)));
                now.before.insert(key, (conn.counters, busy));
            }
        }
        *self = now;
        paces
    }
}

fn pace(conn: &ConnReport, before: Option<(Counters, (u64, u64))>, seconds: f64) -> ConnPace {
    let Some((before, (busy, full))) = before.filter(|_| seconds > 0.0) else {
        return ConnPace { limit: conn.limit, ..ConnPace::default() };
    };
    let since = |number: fn(&Counters) -> u64| {
        number(&conn.counters) - number(&before).min(number(&conn.counters))
    };
    let per_second = |count: u64| count as f64 / seconds;
    let busy = conn.gauges.busy_us.saturating_sub(busy);
    let full = conn.gauges.peer_full_us.saturating_sub(full);
    let limit = match busy > 0 && full.saturating_mul(MOSTLY) >= busy {
        true => ConnLimit::Receiver,
        false => conn.limit,
    };
    ConnPace {
        out_bps: 8.0 * per_second(since(|counters| counters.bytes_out)),
        in_bps: 8.0 * per_second(since(|counters| counters.bytes_in)),
        operations: per_second(since(|counters| counters.operations)),
        lost: since(|counters| counters.lost),
        packets: since(|counters| counters.packets_out),
        limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ns: u64, bytes_out: u64, full: u64) -> Sample {
        let mut conn = ConnReport { qpn: 1, limit: ConnLimit::Network, ..ConnReport::default() };
        conn.counters.bytes_out = bytes_out;
        (conn.gauges.busy_us, conn.gauges.peer_full_us) = (at_ns / 1000, full);
        let report =
            ProcessReport { pid: 5, at_ns, connections: vec![conn], ..ProcessReport::default() };
        let seen = vec![SeenProcess { pid: 5, answer: ReaderAnswer::Report(Box::new(report)) }];
        Sample { at: clock::now(), seen, ended: PastSums::default() }
    }

    #[test]
    fn a_pace_is_what_happened_between_two_samples() {
        let mut paces = Paces::default();
        assert_eq!(paces.of(&sample(1_000_000_000, 500, 0))[0].2.out_bps, 0.0);
        let next = sample(3_000_000_000, 1500, 0);
        let (_, _, pace) = paces.of(&next)[0];
        assert_eq!((pace.out_bps, pace.limit), (4000.0, ConnLimit::Network));
        let last = sample(4_000_000_000, 100, 600_000);
        let (_, _, pace) = paces.of(&last)[0];
        assert_eq!((pace.out_bps, pace.limit), (0.0, ConnLimit::Receiver), "it is another one");
    }
}
