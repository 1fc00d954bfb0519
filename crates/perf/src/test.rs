//! Description of a test, from which both sides work.
//!
//! Invariant: a [`Test`] from a peer is used only after [`Test::check`], so what it makes this side
//! allocate, and how long it keeps it, is bounded.

use std::fmt;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Version of the control protocol; both sides must have the same.
pub const VERSION: u32 = 2;
/// Queue pairs of one direction.
pub const STREAMS_MAX: u16 = 256;
/// Requests outstanding on one.
pub const DEPTH_MAX: u32 = 16384;
/// The largest message, in bytes.
pub const BYTES_MAX: u32 = 1 << 30;
/// The longest test, in seconds.
pub const SECONDS_MAX: f64 = 86_400.0;
/// Memory that one test may take on a side, in bytes.
const MEMORY_MAX: u64 = 2 << 30;
/// Bytes that an Atomic works on.
const ATOMIC_BYTES: u32 = 8;
/// Requests are posted in lists of this many bytes together, where the depth allows it.
const LIST_BYTES: u32 = 1 << 20;
/// The longest list.
const LIST_MAX: u32 = 64;
/// Bytes outstanding by default, more than three bandwidth-delay products of 1 Gbit/s and 70 ms.
const IN_FLIGHT_BYTES: u32 = 32 << 20;

/// The operation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum TestOperation {
    /// RDMA Write
    Write,
    /// RDMA Read
    Read,
    /// Send, into a receive
    Send,
    /// Fetch and add, of 8 bytes
    Atomic,
}

impl fmt::Display for TestOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Send => "send",
            Self::Atomic => "atomic",
        })
    }
}

/// Amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TestAmount {
    /// For so many seconds.
    Seconds(f64),
    /// So many messages on each stream.
    Messages(u64),
}

/// A measurement of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// [`VERSION`].
    pub version: u32,
    /// The operation.
    pub operation: TestOperation,
    /// Whether each message waits for the one before it, and its time is taken.
    pub latency: bool,
    /// Bytes of a message.
    #[serde(rename = "octets")]
    pub bytes: u32,
    /// Queue pairs of each direction.
    pub streams: u16,
    /// Whether the client begins requests.
    pub up: bool,
    /// Whether the server does.
    pub down: bool,
    /// Amount of work.
    pub amount: TestAmount,
    /// Ramp-up before that, in seconds; reported apart.
    pub omit_s: f64,
    /// Requests outstanding on each queue pair.
    pub depth: u32,
    /// Whether the sides sleep until something is complete, instead of polling.
    pub events: bool,
    /// Whether data is verified.
    pub verify: bool,
    /// Seconds between two reports.
    pub interval_s: f64,
}

impl Test {
    /// Whether it is one that can be done, and in bounds.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<()> {
        let (bytes, depth) = (self.bytes, self.depth);
        ensure!(self.version == VERSION, "the other side's weft perf is of another version");
        ensure!((1..=BYTES_MAX).contains(&bytes), "a size is 1 byte to 1 GiB, not {bytes}");
        let atomic = self.operation == TestOperation::Atomic;
        ensure!(!atomic || bytes == ATOMIC_BYTES, "an atomic has 8 bytes, not {bytes}");
        ensure!(
            (1..=STREAMS_MAX).contains(&self.streams),
            "there can be 1 to {STREAMS_MAX} streams, not {}",
            self.streams
        );
        ensure!((1..=DEPTH_MAX).contains(&depth), "a depth is 1 to {DEPTH_MAX}, not {depth}");
        ensure!(self.up || self.down, "neither side would begin a request");
        self.check_times()?;
        if self.latency {
            ensure!(self.up && !self.down, "--latency is without -R and -b");
            ensure!(self.streams == 1, "--latency is of one stream: leave out -P");
            ensure!(!self.verify, "--verify is not for --latency");
            let watched = self.operation == TestOperation::Write && self.events;
            ensure!(!watched, "a Write gives its receiver no event: with -e use --op send");
        }
        ensure!(!(atomic && self.verify), "--verify is not for --op atomic");
        let total = self.region_bytes() as u64 * self.ends().len() as u64;
        ensure!(
            total <= MEMORY_MAX,
            "this takes {} MiB of memory on each side, and 2048 are the most",
            total >> 20
        );
        Ok(())
    }

    fn check_times(&self) -> Result<()> {
        let whole = 0.0..=SECONDS_MAX;
        let some = 0.01..=SECONDS_MAX;
        ensure!(whole.contains(&self.omit_s), "--omit is 0 to {SECONDS_MAX} seconds");
        ensure!(some.contains(&self.interval_s), "an interval is 0.01 to {SECONDS_MAX} seconds");
        match self.amount {
            TestAmount::Seconds(time) => {
                ensure!(
                    some.contains(&time),
                    "a time is 0.01 to {SECONDS_MAX} seconds, not {time}"
                );
            }
            TestAmount::Messages(count) => {
                ensure!(count > 0, "-n is 1 or more, not {count}");
                // All of them may be over before the measurement begins.
                ensure!(self.omit_s == 0.0, "--omit is for a time: leave out -n");
            }
        }
        Ok(())
    }

    /// For each stream whether the client is its active end.
    pub fn ends(&self) -> Vec<bool> {
        let streams = usize::from(self.streams);
        let of = |there: bool, up: bool| vec![up; if there { streams } else { 0 }];
        [of(self.up, true), of(self.down, false)].concat()
    }

    /// How many messages are posted, and complete, together.
    pub fn list(&self) -> u32 {
        (LIST_BYTES / self.bytes).min(LIST_MAX).min(self.depth / 4).max(1)
    }

    /// Receives that are posted on a stream, which is whole lists.
    pub fn receives(&self) -> u32 {
        self.depth / self.list() * self.list()
    }

    /// Places for messages in a region.
    pub fn slots(&self) -> u32 {
        match (self.latency, self.verify) {
            (true, _) => 2,
            (false, true) => self.depth,
            (false, false) => 1,
        }
    }

    /// Where in a region there are eight bytes for other purposes.
    pub fn scratch_at(&self) -> usize {
        (self.slots() as usize * self.bytes as usize).next_multiple_of(8)
    }

    /// Bytes of a region.
    pub fn region_bytes(&self) -> usize {
        self.scratch_at() + 8
    }
}

/// The depth for a size, where none is asked for: enough that all streams fill a long path.
pub fn depth_for(bytes: u32, streams: u16) -> u32 {
    (IN_FLIGHT_BYTES / bytes.max(1) / u32::from(streams.max(1))).clamp(16, 1024)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A valid test.
    pub fn test() -> Test {
        Test {
            version: VERSION,
            operation: TestOperation::Write,
            latency: false,
            bytes: 65536,
            streams: 1,
            up: true,
            down: false,
            amount: TestAmount::Seconds(1.0),
            omit_s: 0.0,
            depth: 128,
            events: false,
            verify: false,
            interval_s: 1.0,
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        test().check().unwrap();
        let wrong: [fn(&mut Test); 15] = [
            |t| t.version = VERSION + 1,
            |t| t.bytes = 0,
            |t| t.bytes = BYTES_MAX + 1,
            |t| t.operation = TestOperation::Atomic,
            |t| t.streams = 0,
            |t| t.streams = STREAMS_MAX + 1,
            |t| t.depth = 0,
            |t| t.depth = DEPTH_MAX + 1,
            |t| t.up = false,
            |t| t.amount = TestAmount::Seconds(f64::NAN),
            |t| t.amount = TestAmount::Messages(0),
            |t| t.omit_s = -1.0,
            |t| (t.amount, t.omit_s) = (TestAmount::Messages(9), 1.0),
            |t| t.interval_s = 0.0,
            |t| (t.verify, t.bytes) = (true, BYTES_MAX),
        ];
        for (index, spoil) in wrong.iter().enumerate() {
            let mut test = test();
            spoil(&mut test);
            assert!(test.check().is_err(), "{index}");
        }
    }

    #[test]
    fn a_latency_is_of_one_stream_one_way() {
        let latency = Test { latency: true, ..test() };
        latency.check().unwrap();
        assert!(Test { down: true, ..latency.clone() }.check().is_err());
        assert!(Test { streams: 2, ..latency.clone() }.check().is_err());
        assert!(Test { events: true, ..latency }.check().is_err());
    }

    #[test]
    fn lists_fit_into_the_depth() {
        for bytes in [1, 64, 4096, 65536, 1 << 20, BYTES_MAX] {
            for depth in [1, 2, 16, 100, depth_for(bytes, 1), DEPTH_MAX] {
                let test = Test { bytes, depth, ..test() };
                assert!((1..=depth).contains(&test.list()));
                assert!((test.list()..=depth).contains(&test.receives()));
                assert_eq!(test.receives() % test.list(), 0);
            }
        }
    }
}
