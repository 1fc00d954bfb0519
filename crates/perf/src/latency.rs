//! Latency test: one message at a time, from an end that times the round trips and an end that
//! answers.
//!
//! Over Sends and Writes the answer is a message of the same kind, and a time is half of the round
//! trip; a Read or Atomic is a round trip by itself. A Write is seen by the last byte of where it
//! goes, which is another one each time.

use std::rc::Rc;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::histogram::LatencyHistogram;
use crate::link::{LinkCompletion, StreamLink, meaning};
use crate::run::{DataCheck, TestWork};
use crate::terms::Act;
use crate::test::{Test, TestAmount, TestOperation};
use crate::verbs::VerbsDomain;

/// Where messages are sent from, and where they arrive.
const FROM: u64 = 0;
const INTO: u64 = 1;

/// Polls of memory per poll of the completion queue.
const LOOKS: u32 = 1 << 16;

/// State common to both ends.
struct LatencyEnd {
    domain: Rc<VerbsDomain>,
    link: StreamLink,
    operation: TestOperation,
    /// Own requests that are not complete.
    outstanding: u32,
    /// Messages that were received and not answered yet.
    received: u32,
    /// What the next Write that arrives will end with.
    mark: u8,
    /// Memory polls so far.
    watched: u32,
}

impl LatencyEnd {
    fn new(domain: Rc<VerbsDomain>, mut link: StreamLink, operation: TestOperation) -> Self {
        let act = match operation {
            TestOperation::Write => Act::Write,
            TestOperation::Read => Act::Read,
            TestOperation::Send => Act::Send,
            TestOperation::Atomic => Act::FetchAdd,
        };
        link.prepare(act, 1);
        let theirs = if operation == TestOperation::Write { INTO } else { FROM };
        link.aim(0, FROM, theirs);
        Self { domain, link, operation, outstanding: 0, received: 0, mark: 1, watched: 0 }
    }

    fn post(&mut self) -> Result<()> {
        if self.operation == TestOperation::Write {
            self.link.set_mark(FROM, self.mark);
        }
        self.outstanding += 1;
        self.link.post(1)
    }

    /// Takes what is complete, and whether anything was. Of the peer's Writes nothing is to come,
    /// so there memory alone is watched, as perftest does; now and then errors are looked for.
    fn poll(&mut self) -> Result<bool> {
        self.watched = self.watched.wrapping_add(1);
        let nothing_to_come = self.operation == TestOperation::Write && self.outstanding == 0;
        if nothing_to_come && !self.watched.is_multiple_of(LOOKS) {
            std::hint::spin_loop();
            return Ok(false);
        }
        let Self { domain, link, outstanding, received, .. } = self;
        let count = domain.poll(|completion| {
            match meaning(completion.number).1 {
                LinkCompletion::Sent if *outstanding > 0 => *outstanding -= 1,
                LinkCompletion::Sent => bail!("more requests are complete than were posted"),
                LinkCompletion::Received => {
                    *received += 1;
                    link.receive(0)?;
                }
            }
            Ok(())
        })?;
        Ok(count > 0)
    }

    /// Whether a message has arrived, which is then taken.
    fn take(&mut self) -> bool {
        let arrived = match self.operation {
            TestOperation::Send => self.received > 0,
            TestOperation::Write => self.link.mark(INTO) == self.mark,
            TestOperation::Read | TestOperation::Atomic => self.outstanding == 0,
        };
        self.received -= u32::from(arrived && self.operation == TestOperation::Send);
        arrived
    }

    /// Advances the mark, 1 to 255, after each round trip.
    fn turn_mark(&mut self) {
        self.mark = self.mark % u8::MAX + 1;
    }
}

/// The end that sends first and takes the time.
pub struct Ping {
    end: LatencyEnd,
    asked: Option<Instant>,
    left: u64,
    done: u64,
    times: LatencyHistogram,
    stopping: bool,
}

impl Ping {
    /// Begins with its first turn.
    pub fn new(domain: Rc<VerbsDomain>, link: StreamLink, test: &Test) -> Self {
        let left = match test.amount {
            TestAmount::Messages(count) => count,
            TestAmount::Seconds(_) => u64::MAX,
        };
        let end = LatencyEnd::new(domain, link, test.operation);
        Self {
            end,
            asked: None,
            left,
            done: 0,
            times: LatencyHistogram::default(),
            stopping: false,
        }
    }

    fn note(&mut self, asked: Instant) {
        let round_trip = asked.elapsed().as_nanos() as u64;
        let halves = matches!(self.end.operation, TestOperation::Send | TestOperation::Write);
        self.times.record(if halves { round_trip / 2 } else { round_trip });
        self.end.turn_mark();
        self.done += 1;
        self.left -= 1;
    }
}

impl TestWork for Ping {
    fn turn(&mut self, _now: Instant) -> Result<bool> {
        let mut busy = self.end.poll()?;
        if let Some(asked) = self.asked
            && self.end.take()
        {
            self.note(asked);
            self.asked = None;
            busy = true;
        }
        let idle = self.asked.is_none() && self.end.outstanding == 0;
        if idle && !self.stopping && self.left > 0 {
            self.asked = Some(Instant::now());
            self.end.post()?;
            busy = true;
        }
        Ok(busy)
    }

    fn stop(&mut self) {
        self.stopping = true;
    }

    fn own(&self) -> Vec<u64> {
        vec![self.done]
    }

    fn is_delivered(&self) -> bool {
        let ended = self.stopping || self.left == 0;
        ended && self.asked.is_none() && self.end.outstanding == 0
    }

    fn needs_turns(&self) -> bool {
        !self.is_delivered()
    }

    fn has_heard(&self, _theirs: &[u64]) -> bool {
        true
    }

    fn check(&mut self, _theirs: &[u64]) -> DataCheck {
        DataCheck::default()
    }

    fn times(&mut self) -> Option<LatencyHistogram> {
        Some(std::mem::take(&mut self.times))
    }
}

/// The end that answers.
pub struct Echo(LatencyEnd);

impl Echo {
    /// Answers from its first turn on.
    pub fn new(domain: Rc<VerbsDomain>, link: StreamLink, test: &Test) -> Self {
        Self(LatencyEnd::new(domain, link, test.operation))
    }
}

impl TestWork for Echo {
    fn turn(&mut self, _now: Instant) -> Result<bool> {
        let mut busy = self.0.poll()?;
        // What an answer is sent from is not changed while an earlier one leaves.
        if self.0.outstanding == 0 && self.0.take() {
            self.0.post()?;
            self.0.turn_mark();
            busy = true;
        }
        Ok(busy)
    }

    fn stop(&mut self) {}

    fn own(&self) -> Vec<u64> {
        Vec::new()
    }

    fn is_delivered(&self) -> bool {
        true
    }

    fn needs_turns(&self) -> bool {
        true
    }

    fn has_heard(&self, _theirs: &[u64]) -> bool {
        true
    }

    fn check(&mut self, _theirs: &[u64]) -> DataCheck {
        DataCheck::default()
    }
}
