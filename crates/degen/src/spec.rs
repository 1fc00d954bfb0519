//! A path in words: `70ms 0.1% 1gbit queue=2bdp back:rate=10mbit`.
//!
//! A word is a round-trip time, a loss, a rate, the name of a profile, the path of a file of
//! settings, or `key=value`; `forward:` or `back:` before a `key=value` means that direction only.
//! [`SETTINGS`] has the keys. Later words override earlier ones; `outage` and `step` add up. A file
//! says the same in TOML, so that everything is set by [`PathSpec::set`] alone.

mod values;

use std::fmt;

use serde::Serialize;

use crate::link::{
    Fading, FrameAggregation, Jitter, LinkConfig, Loss, Outage, PathHandover, Policer, Reorder,
    Stepped,
};
use crate::profile;
use values::{
    pair, parse_fading, parse_frames, parse_gilbert, parse_interval_ns, parse_jitter, parse_outage,
    parse_queue, parse_step,
};
use weft_units::{
    Bitrate, Malformed, Share, number, parse_bytes, parse_time_ns, show_bytes, show_time,
};

/// Both directions of a path, and what belongs to both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathSpec {
    /// From the near side to the far side.
    pub forward: Direction,
    /// From the far side to the near side.
    pub back: Direction,
    /// The largest IP packet, in bytes.
    pub mtu: u16,
    /// What all that is random follows from.
    pub seed: u64,
}

/// One direction as it is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Direction {
    delay_ns: u64,
    rate: Option<Bitrate>,
    queue: QueueSpec,
    loss: Share,
    burst_packets: Option<f64>,
    gilbert: Option<Loss>,
    jitter: Option<Jitter>,
    reorder: Option<Reorder>,
    duplicate: Share,
    corrupt: Share,
    outages: Vec<Outage>,
    steps: Vec<(u64, ScheduleStep)>,
    mark_above_ns: Option<u64>,
    policer: Option<Policer>,
    fading: Option<Fading>,
    frames: Option<FrameAggregation>,
    bunch_ns: Option<u64>,
    handover: Option<PathHandover>,
}

/// How long a queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum QueueSpec {
    /// One product of rate and round-trip time, and a hundred packets at least.
    #[default]
    Usual,
    /// This many products of rate and round-trip time.
    Bdp(f64),
    #[serde(rename = "octets")]
    Bytes(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ScheduleStep {
    Rate(Bitrate),
    Loss(Share),
    DelayNs(u64),
}

/// Which directions a setting is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Both.
    Both,
    /// From near to far.
    Forward,
    /// From far to near.
    Back,
}

/// A word that cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// What stands after the `=` is wrong.
    #[error("{key}: {wrong}")]
    Value {
        /// The key.
        key: String,
        /// What is wrong with it.
        wrong: Malformed,
    },
    /// There is no such setting.
    #[error("`{0}` is no setting; there are {names}", names = names())]
    Key(String),
    /// The setting belongs to the path and not to a direction.
    #[error("`{0}` is of the whole path, not of one direction")]
    WholePath(String),
    /// A word that begins like a number.
    #[error("`{0}` is no round-trip time (70ms), loss (0.1%) or rate (1gbit)")]
    Word(String),
    /// A profile or file that is not as it should be.
    #[error(transparent)]
    Profile(#[from] profile::ProfileError),
}

/// Every setting: its key, the form of its value, and what it means.
pub const SETTINGS: [(&str, &str, &str); 21] = [
    ("rtt", "TIME", "round-trip time without queues, half in each direction"),
    ("delay", "TIME", "delay of one direction"),
    ("rate", "RATE", "rate of the bottleneck, over the bytes of IP packets"),
    ("queue", "SIZE | Nbdp", "what the bottleneck holds before it drops (1bdp, or 150 kB if more)"),
    ("loss", "SHARE", "packets lost at random, in each direction"),
    ("burst", "N", "losses come in bursts of N packets on average"),
    ("gilbert", "P:R[:BAD[:GOOD]]", "Gilbert-Elliott: to bad, to good, loss while bad and good"),
    ("jitter", "TIME[:reorder]", "delay varies by up to TIME; with `reorder` packets may overtake"),
    ("reorder", "SHARE:TIME", "packets that arrive later by TIME, out of order"),
    ("duplicate", "SHARE", "packets that arrive twice"),
    ("corrupt", "SHARE", "packets with one bit wrong"),
    ("outage", "AT+FOR[/EVERY]", "no packet arrives: when, from the start; how long; how often"),
    ("step", "AT:KEY=VALUE", "a new rate, loss or delay from then on"),
    ("ecn", "TIME", "a queue longer than TIME marks packets before it is full"),
    ("policer", "RATE:SIZE", "drops what exceeds a token bucket of this rate and size"),
    ("fading", "LEAST:MOST:EVERY", "a rate that changes at random between two limits, each EVERY"),
    ("frames", "N:TIME", "packets that arrive N together, or fewer after TIME"),
    ("bunch", "TIME", "packets that arrive together at every multiple of TIME"),
    ("handover", "EVERY:TIME", "another path each EVERY, longer by up to TIME"),
    ("mtu", "BYTES", "largest IP packet (1500)"),
    ("seed", "N", "the seed of all random decisions (1)"),
];

const MTU_MIN: u16 = 1280;
const QUEUE_BYTES_MIN: u64 = 150_000;
const BURST: &str = "a number of packets, 1 or more";
const BUCKET: &str = "a bucket that holds a packet, 1280 bytes or more";
const MTU: &str = "a number of bytes from 1280 to 65535";
const SEED: &str = "a whole number";

impl Default for PathSpec {
    /// A path that does nothing.
    fn default() -> Self {
        let idle = Direction::default();
        Self { forward: idle.clone(), back: idle, mtu: 1500, seed: 1 }
    }
}

impl PathSpec {
    /// Reads a path from words.
    ///
    /// # Errors
    /// The first word that cannot be understood.
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Self, SpecError> {
        let mut path = Self::default();
        for word in words {
            path.apply(word.as_ref())?;
        }
        Ok(path)
    }

    fn apply(&mut self, word: &str) -> Result<(), SpecError> {
        if let Some((key, value)) = word.split_once('=') {
            let (which, key) = match key.split_once(':') {
                Some(("forward", key)) => (Which::Forward, key),
                Some(("back", key)) => (Which::Back, key),
                _ => (Which::Both, key),
            };
            return self.set(which, key, value);
        }
        let lower = word.to_ascii_lowercase();
        // `10Gbps` is no time, and `10gbit/s` no file.
        let is_rate = ["bit", "bit/s", "bps", "b/s"].iter().any(|unit| lower.ends_with(unit));
        if begins_with_digit(word) && is_rate {
            return self.set(Which::Both, "rate", word);
        }
        if profile::is_file(word) || !begins_with_digit(word) || profile::is_built_in(word) {
            return Ok(profile::apply(self, word)?);
        }
        match lower {
            _ if lower.ends_with('%') => self.set(Which::Both, "loss", word),
            _ if lower.ends_with('s') => self.set(Which::Both, "rtt", word),
            _ => Err(SpecError::Word(word.to_owned())),
        }
    }

    /// Sets one thing, as `key=value` does.
    ///
    /// # Errors
    /// There is no such key, it is not of one direction, or the value is wrong.
    pub fn set(&mut self, which: Which, key: &str, value: &str) -> Result<(), SpecError> {
        if !SETTINGS.iter().any(|(name, ..)| *name == key) {
            return Err(SpecError::Key(key.to_owned()));
        }
        let wrong = |wrong| SpecError::Value { key: key.into(), wrong };
        if ["mtu", "seed", "rtt"].contains(&key) {
            if which != Which::Both {
                return Err(SpecError::WholePath(key.to_owned()));
            }
            return self.set_whole(key, value).map_err(wrong);
        }
        if which != Which::Back {
            self.forward.set(key, value).map_err(wrong)?;
        }
        if which != Which::Forward {
            self.back.set(key, value).map_err(wrong)?;
        }
        Ok(())
    }

    fn set_whole(&mut self, key: &str, value: &str) -> Result<(), Malformed> {
        match key {
            "rtt" => {
                let rtt_ns = parse_time_ns(value)?;
                self.forward.delay_ns = rtt_ns / 2;
                self.back.delay_ns = rtt_ns - rtt_ns / 2;
            }
            "mtu" => {
                let mtu = value.parse().ok().filter(|mtu| *mtu >= MTU_MIN);
                self.mtu = mtu.ok_or_else(|| Malformed::new(value, MTU))?;
            }
            _ => self.seed = value.parse().map_err(|_| Malformed::new(value, SEED))?,
        }
        Ok(())
    }

    /// The round-trip time without queues.
    pub fn rtt_ns(&self) -> u64 {
        self.forward.delay_ns + self.back.delay_ns
    }

    /// The two directions as links have them, forward first.
    pub fn links(&self) -> [LinkConfig; 2] {
        [&self.forward, &self.back].map(|direction| direction.config(self.rtt_ns()))
    }

    /// How much may be under way in one direction: on the path and in its queue, in bytes.
    pub fn bytes_in_flight_max(&self) -> u64 {
        let rtt_ns = self.rtt_ns();
        let of = |direction: &Direction| {
            let rates = direction.steps.iter().filter_map(|(_, step)| match step {
                ScheduleStep::Rate(rate) => Some(*rate),
                _ => None,
            });
            let fastest = rates
                .chain(direction.rate)
                .chain(direction.fading.map(|fading| fading.most))
                .max()?;
            Some(fastest.bytes_in(rtt_ns).saturating_add(direction.queue_bytes_max(rtt_ns)))
        };
        [&self.forward, &self.back].into_iter().filter_map(of).max().unwrap_or(0)
    }
}

impl Direction {
    fn set(&mut self, key: &str, value: &str) -> Result<(), Malformed> {
        match key {
            "delay" => self.delay_ns = parse_time_ns(value)?,
            "rate" => {
                self.rate = Some(value.parse()?);
                self.fading = None;
            }
            "queue" => self.queue = parse_queue(value)?,
            "loss" => {
                self.loss = value.parse()?;
                self.gilbert = None;
            }
            "burst" => {
                let packets = number(value).filter(|packets| *packets >= 1.0);
                self.burst_packets = Some(packets.ok_or_else(|| Malformed::new(value, BURST))?);
                self.gilbert = None;
            }
            "gilbert" => self.gilbert = Some(parse_gilbert(value)?),
            "jitter" => self.jitter = Some(parse_jitter(value)?),
            "reorder" => {
                let (share, by) = pair(value)?;
                let (share, by_ns) = (share.parse()?, parse_time_ns(by)?);
                self.reorder = Some(Reorder { share, by_ns });
            }
            "duplicate" => self.duplicate = value.parse()?,
            "corrupt" => self.corrupt = value.parse()?,
            "outage" => self.outages.push(parse_outage(value)?),
            "step" => self.steps.push(parse_step(value)?),
            "ecn" => self.mark_above_ns = Some(parse_time_ns(value)?),
            "policer" => {
                let (rate, burst) = pair(value)?;
                let (rate, burst_bytes) = (rate.parse()?, parse_bytes(burst)?);
                if burst_bytes < u64::from(MTU_MIN) {
                    return Err(Malformed::new(burst, BUCKET));
                }
                self.policer = Some(Policer { rate, burst_bytes });
            }
            "fading" => self.fading = Some(parse_fading(value)?),
            "frames" => self.frames = Some(parse_frames(value)?),
            "bunch" => self.bunch_ns = Some(parse_interval_ns(value)?),
            "handover" => {
                let (every, by) = pair(value)?;
                let (every_ns, by_ns) = (parse_interval_ns(every)?, parse_time_ns(by)?);
                self.handover = Some(PathHandover { every_ns, by_ns });
            }
            other => unreachable!("{other} is in SETTINGS"),
        }
        Ok(())
    }

    fn queue_bytes_max(&self, rtt_ns: u64) -> u64 {
        let first_step = self.steps.iter().find_map(|(_, step)| match step {
            ScheduleStep::Rate(rate) => Some(*rate),
            _ => None,
        });
        let fading = self.fading.map(|fading| fading.mean());
        let bdp_bytes = fading.or(self.rate).or(first_step).map_or(0, |rate| rate.bytes_in(rtt_ns));
        match self.queue {
            QueueSpec::Usual => bdp_bytes.max(QUEUE_BYTES_MIN),
            QueueSpec::Bdp(times) => (bdp_bytes as f64 * times) as u64,
            QueueSpec::Bytes(bytes) => bytes,
        }
    }

    fn config(&self, rtt_ns: u64) -> LinkConfig {
        let loss = |share| match self.burst_packets {
            Some(packets) => Loss::bursts(share, packets),
            None if share == Share::NONE => Loss::None,
            None => Loss::Independent(share),
        };
        let mut config = LinkConfig {
            queue_bytes_max: self.queue_bytes_max(rtt_ns),
            jitter: self.jitter,
            reorder: self.reorder,
            duplicate: self.duplicate,
            corrupt: self.corrupt,
            outages: self.outages.clone(),
            mark_above_ns: self.mark_above_ns,
            policer: self.policer,
            fading: self.fading,
            frames: self.frames,
            bunch_ns: self.bunch_ns,
            handover: self.handover,
            ..LinkConfig::default()
        };
        config.rate = self.stepped(self.rate, |step| match step {
            ScheduleStep::Rate(rate) => Some(Some(rate)),
            _ => None,
        });
        config.loss =
            self.stepped(self.gilbert.unwrap_or_else(|| loss(self.loss)), |step| match step {
                ScheduleStep::Loss(share) => Some(loss(share)),
                _ => None,
            });
        config.delay_ns = self.stepped(self.delay_ns, |step| match step {
            ScheduleStep::DelayNs(delay_ns) => Some(delay_ns),
            _ => None,
        });
        config
    }

    /// A value with the steps that are its own.
    fn stepped<T: Copy>(&self, first: T, own: impl Fn(ScheduleStep) -> Option<T>) -> Stepped<T> {
        let steps = self.steps.iter();
        Stepped::new(first, steps.filter_map(|(at_ns, step)| Some((*at_ns, own(*step)?))).collect())
    }
}

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} round trip", show_time(self.rtt_ns()))?;
        if (Direction { delay_ns: 0, ..self.forward.clone() })
            == (Direction { delay_ns: 0, ..self.back.clone() })
        {
            return self.forward.describe(self.rtt_ns(), f);
        }
        f.write_str("; forward")?;
        self.forward.describe(self.rtt_ns(), f)?;
        f.write_str("; back")?;
        self.back.describe(self.rtt_ns(), f)
    }
}

impl Direction {
    /// What it does beside delaying.
    fn describe(&self, rtt_ns: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Fading { least, most, .. }) = self.fading {
            let queue = show_bytes(self.queue_bytes_max(rtt_ns));
            write!(f, ", {least} to {most}, queue {queue}")?;
        } else if let Some(rate) = self.rate {
            let queue = show_bytes(self.queue_bytes_max(rtt_ns));
            write!(f, ", {rate}, queue {queue}")?;
        }
        if self.loss > Share::NONE {
            write!(f, ", loss {}", self.loss)?;
        }
        let rest = [
            (self.burst_packets.is_some() || self.gilbert.is_some(), "bursts of loss"),
            (self.jitter.is_some(), "jitter"),
            (self.reorder.is_some(), "reordering"),
            (self.duplicate > Share::NONE, "duplicates"),
            (self.corrupt > Share::NONE, "corruption"),
            (!self.outages.is_empty(), "outages"),
            (!self.steps.is_empty(), "steps"),
            (self.mark_above_ns.is_some(), "ECN"),
            (self.policer.is_some(), "a policer"),
            (self.frames.is_some(), "frames"),
            (self.bunch_ns.is_some(), "bunches"),
            (self.handover.is_some(), "handovers"),
        ];
        rest.iter().filter(|(is_on, _)| *is_on).try_for_each(|(_, name)| write!(f, ", {name}"))
    }
}

/// Whether a text begins as a number does, so that its unit is what may be wrong.
fn begins_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || c == '.')
}

fn names() -> String {
    // By a `Vec`: with the array's own `map` an optimized build of this crate may take for ever
    // (constraint elimination of LLVM 22).
    SETTINGS.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(words: &str) -> PathSpec {
        PathSpec::parse(&words.split_whitespace().collect::<Vec<_>>()).unwrap()
    }

    fn refused(word: &str) -> String {
        PathSpec::parse(&[word]).unwrap_err().to_string()
    }

    #[test]
    fn the_three_short_words_are_settings() {
        assert_eq!(path("70ms 0.1% 1gbit"), path("rtt=70ms loss=0.1% rate=1gbit"));
        assert_eq!(path("70ms").to_string(), "70 ms round trip");
        assert_eq!(path("70ms 1Gbit/s"), path("70ms 1gbit"));
        let text = "70 ms round trip, 1 Gbit/s, queue 8.75 MB, loss 0.1%";
        assert_eq!(path("70ms 0.1% 1gbit").to_string(), text);
    }

    #[test]
    fn directions_differ_when_told() {
        let [forward, mut back] = path("10ms 1gbit back:rate=10mbit forward:loss=1%").links();
        assert_eq!(forward.loss, Stepped::constant(Loss::Independent(Share::new(0.01))));
        assert_eq!(back.loss, Stepped::constant(Loss::None));
        assert_eq!(back.rate.at(0), Some(Bitrate::new(10_000_000)));
    }

    #[test]
    fn queues_are_bytes_or_products() {
        let queue = |words| path(words).links()[0].queue_bytes_max;
        assert_eq!(queue("70ms 1gbit"), 8_750_000);
        assert_eq!(queue("1ms 10mbit"), QUEUE_BYTES_MIN);
        assert_eq!(queue("70ms 1gbit queue=0.1bdp"), 875_000);
        assert_eq!(queue("70ms 1gbit queue=64KiB"), 65536);
        assert_eq!(queue("step=1s:rate=1mbit queue=64KiB"), 65536);
        assert_eq!(queue("70ms step=1s:rate=1gbit"), 8_750_000);
        let endless = path("70ms 1gbit queue=99999999999999999bdp");
        assert_eq!(endless.bytes_in_flight_max(), u64::MAX);
        assert_eq!(path("70ms 1gbit step=1s:rate=2gbit").bytes_in_flight_max(), 26_250_000);
    }

    #[test]
    fn every_setting_is_read() {
        let words = "rtt=10ms delay=6ms rate=1mbit queue=2bdp loss=1% burst=4 duplicate=1% \
            gilbert=1%:20%:90%:1% jitter=1ms:reorder reorder=1%:2ms corrupt=1% ecn=5ms \
            outage=1s+100ms/5s step=2s:loss=5% step=1s:delay=9ms policer=2mbit:16KiB \
            fading=1mbit:2mbit:20ms frames=32:4ms bunch=8ms handover=15s:9ms \
            mtu=9000 seed=7";
        let path = path(words);
        assert!(SETTINGS.iter().all(|(key, ..)| words.contains(&format!("{key}="))));
        assert_eq!((path.mtu, path.seed, path.rtt_ns()), (9000, 7, 12_000_000));
        assert_eq!(path.forward.steps.len(), 2);
        assert_eq!(path.links()[1].outages[0].every_ns, Some(5_000_000_000));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(refused("bandwidth=1gbit").contains("rate"));
        assert!(refused("rate=fast").contains("rate: `fast`"));
        assert!(refused("70").contains("70ms"));
        for word in ["10Gbps", "10mbps", "10Mb/s"] {
            assert!(refused(word).contains("is not a rate such as"), "{word}");
        }
        assert!(refused("./5gbit.toml").contains("./5gbit.toml: "));
        assert!(refused("back:mtu=1500").contains("whole path"));
        assert!(refused("mtu=100").contains("1280"));
        for word in [
            "outage=1s+1s/1s",
            "policer=1mbit:100B",
            "burst=0",
            "gilbert=1%",
            "outage=1s",
            "step=1s:queue=1B",
            "jitter=1ms:x",
            "fading=2mbit:1mbit:20ms",
            "fading=1mbit:2mbit:0ms",
            "frames=0:1ms",
            "bunch=0ms",
            "handover=0s:1ms",
            "9%%",
        ] {
            refused(word);
        }
    }
}
