//! Bandwidth test: lists of requests, as many outstanding as the depth allows.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::link::{LinkCompletion, StreamLink, meaning};
use crate::pattern;
use crate::run::{DataCheck, TestWork};
use crate::terms::Act;
use crate::test::{Test, TestAmount, TestOperation};
use crate::verbs::VerbsDomain;

/// All streams of a side, active and passive ends.
pub struct Pump {
    domain: Rc<VerbsDomain>,
    lanes: Vec<Lane>,
    /// Whether something was complete, or posted, in the turn.
    completed: Vec<(usize, LinkCompletion)>,
}

/// A stream's end.
struct Lane {
    link: StreamLink,
    plan: LanePlan,
    state: LaneState,
    posted: u64,
    /// Own messages that are complete, or those received.
    done: u64,
    /// How many messages the peer has receives for.
    allowed: u64,
    lists: VecDeque<u32>,
    outstanding: u32,
    wrong: u64,
    /// Where a message is made or looked at.
    draft: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneState {
    Passive,
    Posting,
    Draining,
    Flushing,
    Delivered,
}

/// State common to all streams of a side.
#[derive(Clone, Copy, Debug)]
struct LanePlan {
    operation: TestOperation,
    depth: u32,
    list: u32,
    receives: u64,
    verify: bool,
    messages: Option<u64>,
}

impl Pump {
    /// Begins as soon as it gets its first turn.
    pub fn new(domain: Rc<VerbsDomain>, links: Vec<StreamLink>, test: &Test) -> Self {
        let plan = LanePlan {
            operation: test.operation,
            depth: test.depth,
            list: test.list(),
            receives: test.receives().into(),
            verify: test.verify,
            messages: match test.amount {
                TestAmount::Messages(count) => Some(count),
                TestAmount::Seconds(_) => None,
            },
        };
        let lanes = links.into_iter().map(|link| Lane::new(link, plan, test)).collect();
        Self { domain, lanes, completed: Vec::new() }
    }
}

impl TestWork for Pump {
    fn turn(&mut self, _now: Instant) -> Result<bool> {
        let Self { domain, lanes, completed } = self;
        completed.clear();
        let mut busy = domain.poll(|completion| {
            completed.push(meaning(completion.number));
            Ok(())
        })? > 0;
        for &(index, what) in completed.iter() {
            lanes[index].complete(what)?;
        }
        for lane in lanes {
            busy |= lane.feed()?;
        }
        Ok(busy)
    }

    fn stop(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.state == LaneState::Posting) {
            lane.state = LaneState::Draining;
        }
    }

    fn own(&self) -> Vec<u64> {
        let active = self.lanes.iter().filter(|lane| lane.link.active);
        active.map(|lane| lane.done).collect()
    }

    fn is_delivered(&self) -> bool {
        self.lanes
            .iter()
            .all(|lane| matches!(lane.state, LaneState::Delivered | LaneState::Passive))
    }

    fn needs_turns(&self) -> bool {
        self.lanes.iter().any(|lane| match lane.state {
            LaneState::Passive => lane.plan.operation == TestOperation::Send,
            state => state != LaneState::Delivered,
        })
    }

    fn has_heard(&self, theirs: &[u64]) -> bool {
        let passive = self.lanes.iter().filter(|lane| lane.state == LaneState::Passive);
        passive
            .zip(theirs)
            .all(|(lane, sent)| lane.plan.operation != TestOperation::Send || lane.done >= *sent)
    }

    fn check(&mut self, theirs: &[u64]) -> DataCheck {
        let mut verdict = DataCheck::default();
        let mut theirs = theirs.iter();
        for lane in &mut self.lanes {
            let written = match lane.state {
                LaneState::Passive => *theirs.next().unwrap_or(&0),
                _ => 0,
            };
            let (checked, wrong) = lane.check(written);
            verdict.checked += checked;
            verdict.wrong += wrong;
        }
        verdict
    }
}

impl Lane {
    fn new(mut link: StreamLink, plan: LanePlan, test: &Test) -> Self {
        let state = if link.active { LaneState::Posting } else { LaneState::Passive };
        match (link.active, plan.operation) {
            (true, TestOperation::Write) => link.prepare(Act::Write, plan.list),
            (true, TestOperation::Read) => link.prepare(Act::Read, plan.list),
            (true, TestOperation::Send) => link.prepare(Act::Send, plan.list),
            (true, TestOperation::Atomic) => link.prepare(Act::FetchAdd, plan.list),
            (false, TestOperation::Send) => link.prepare_credit(),
            (false, _) => {}
        }
        let draft = if plan.verify { vec![0; test.bytes as usize] } else { Vec::new() };
        let mut lane = Self {
            link,
            plan,
            state,
            posted: 0,
            done: 0,
            allowed: if plan.operation == TestOperation::Send { plan.receives } else { u64::MAX },
            lists: VecDeque::new(),
            outstanding: 0,
            wrong: 0,
            draft,
        };
        if plan.verify && plan.operation == TestOperation::Read && state == LaneState::Passive {
            (0..lane.link.slots()).for_each(|slot| lane.fill(slot, slot));
        }
        lane
    }

    fn fill(&mut self, slot: u64, number: u64) {
        pattern::fill(&mut self.draft, self.link.index as u64, number);
        self.link.write(slot, &self.draft);
    }

    /// Whether a slot holds a message, as it should.
    fn holds(&mut self, slot: u64, number: u64) -> bool {
        self.link.read(slot, &mut self.draft);
        pattern::matches(&self.draft, self.link.index as u64, number)
    }

    fn complete(&mut self, what: LinkCompletion) -> Result<()> {
        match (self.state, what) {
            (LaneState::Passive, LinkCompletion::Received) => self.receive(),
            // Completion of a credit message.
            (LaneState::Passive, LinkCompletion::Sent) => Ok(()),
            (LaneState::Flushing, LinkCompletion::Sent) => {
                self.state = LaneState::Delivered;
                Ok(())
            }
            (_, LinkCompletion::Sent) => self.sent(),
            (_, LinkCompletion::Received) => {
                self.allowed += u64::from(self.plan.list);
                self.link.receive(0)
            }
        }
    }

    fn receive(&mut self) -> Result<()> {
        if self.plan.verify && !self.holds(self.done % self.plan.receives, self.done) {
            self.wrong += 1;
        }
        self.done += 1;
        let list = u64::from(self.plan.list);
        if self.done.is_multiple_of(list) {
            self.link.receive(self.done - list)?;
            self.link.post(1)?;
        }
        Ok(())
    }

    fn sent(&mut self) -> Result<()> {
        let count = self.lists.pop_front().unwrap_or(0);
        ensure!(count > 0, "more requests are complete than were posted");
        self.outstanding -= count;
        if self.plan.verify && self.plan.operation == TestOperation::Read {
            for number in self.done..self.done + u64::from(count) {
                let slot = number % self.link.slots();
                self.wrong += u64::from(!self.holds(slot, slot));
                // Reset, so that the arrival of the next one is seen.
                self.draft.fill(0);
                self.link.write(slot, &self.draft);
            }
        }
        self.done += u64::from(count);
        Ok(())
    }

    /// Posts what may be posted; whether anything was.
    fn feed(&mut self) -> Result<bool> {
        let mut busy = false;
        while self.state == LaneState::Posting {
            let left = self.plan.messages.map_or(u64::MAX, |all| all - self.posted);
            if left == 0 {
                self.state = LaneState::Draining;
                break;
            }
            let whole = left.min(self.plan.list.into());
            let room = u64::from(self.plan.depth - self.outstanding);
            if room.min(self.allowed - self.posted) < whole {
                break;
            }
            self.post(whole as u32)?;
            busy = true;
        }
        if self.state == LaneState::Draining && self.outstanding == 0 {
            self.link.flush()?;
            self.state = LaneState::Flushing;
        }
        Ok(busy)
    }

    fn post(&mut self, count: u32) -> Result<()> {
        // Without slots to go around, the list stays as it was made, but for its first time.
        if self.posted == 0 || self.plan.verify {
            for at in 0..count {
                let number = self.posted + u64::from(at);
                let slot = number % self.link.slots();
                if self.plan.verify && self.plan.operation != TestOperation::Read {
                    self.fill(slot, number);
                }
                self.link.aim(at as usize, slot, slot);
            }
        }
        self.link.post(count)?;
        self.posted += u64::from(count);
        self.outstanding += count;
        self.lists.push_back(count);
        Ok(())
    }

    /// Looks at what was written, the last message of each slot; or says what was found before.
    fn check(&mut self, written: u64) -> (u64, u64) {
        if !self.plan.verify {
            return (0, 0);
        }
        match (self.state, self.plan.operation) {
            (LaneState::Passive, TestOperation::Send)
            | (LaneState::Delivered, TestOperation::Read) => (self.done, self.wrong),
            (LaneState::Passive, TestOperation::Write) => {
                let first = written.saturating_sub(self.link.slots());
                let wrong = (first..written)
                    .filter(|&number| !self.holds(number % self.link.slots(), number))
                    .count();
                (written - first, wrong as u64)
            }
            _ => (0, 0),
        }
    }
}
