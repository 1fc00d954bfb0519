//! Main loop of a test, the same on both sides: steps of the work, with the clock and the control
//! connection polled now and then.
//!
//! Order: [`prepare`] once all streams are connected; [`run`] once [`ControlMessage::Start`] was
//! said.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::time::{ClockId, clock_gettime};

use crate::bandwidth::Pump;
use crate::control::{ControlConn, ControlMessage, SideTotals, wait_readable};
use crate::histogram::LatencyHistogram;
use crate::latency::{Echo, Ping};
use crate::meeting::Meeting;
use crate::test::{Test, TestAmount, TestOperation};
use crate::verbs::VerbsDomain;

/// How often the other side and Ctrl-C are looked after.
const TICK: Duration = Duration::from_millis(50);
/// Time limit for delivered data to be seen.
const SEEING: Duration = Duration::from_secs(5);
/// How long the other side may take to look at its data.
const CHECKING: Duration = Duration::from_secs(60);
/// Interval of progress messages that the peer does not need.
const SIGN: Duration = Duration::from_secs(1);
/// Time limit without a control message and without progress. A machine that is too busy to send
/// one for so long measures nothing; one that was suspended resumes later.
pub const SILENT_MAX: Duration = Duration::from_secs(60);

/// Result of verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataCheck {
    /// Messages that were looked at.
    pub checked: u64,
    /// Messages with wrong data.
    pub wrong: u64,
}

/// One side's work in a test.
pub trait TestWork {
    /// Makes as much progress as possible without blocking; returns whether there was any.
    ///
    /// # Errors
    /// A request failed.
    fn turn(&mut self, now: Instant) -> Result<bool>;
    /// Begins no more requests.
    fn stop(&mut self);
    /// Own messages that are complete, by stream.
    fn own(&self) -> Vec<u64>;
    /// Whether own requests are complete and delivered.
    fn is_delivered(&self) -> bool;
    /// Whether anything goes on in turns only.
    fn needs_turns(&self) -> bool;
    /// Whether all that the peer has sent, by stream, was taken.
    fn has_heard(&self, theirs: &[u64]) -> bool;
    /// Looks at data that the peer has written, so many messages by stream.
    fn check(&mut self, theirs: &[u64]) -> DataCheck;
    /// The times that were taken since this was last asked.
    fn times(&mut self) -> Option<LatencyHistogram> {
        None
    }
}

/// One reporting interval.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Seconds since the start of the test.
    pub from_s: f64,
    /// Seconds since the start of the test.
    pub to_s: f64,
    /// Own messages completed.
    pub own: u64,
    /// The other side's messages, as it reports them.
    pub theirs: u64,
    /// Latencies taken in it.
    pub times: Option<LatencyHistogram>,
    /// Whether it is part of the ramp-up.
    pub omitted: bool,
}

/// Result of a test.
#[derive(Clone, Debug, Default)]
pub struct TestResult {
    /// Result of own requests.
    pub own: SideTotals,
    /// Result of the other side's requests.
    pub theirs: SideTotals,
    /// CPU seconds of this side and of the other one.
    pub cpu_s: [f64; 2],
    /// What this side and the other one found in the data.
    pub verdict: DataCheck,
    /// Latencies after the ramp-up.
    pub times: LatencyHistogram,
    /// Latencies during the ramp-up.
    pub ramp_times: LatencyHistogram,
    /// Whether it was ended early.
    pub stopped: bool,
}

/// A side of a test.
pub struct TestSide<'a> {
    /// What is measured.
    pub test: &'a Test,
    /// The other side.
    pub control: &'a mut ControlConn,
    /// Set when somebody wants it to end.
    pub interrupted: &'a AtomicBool,
    /// Whether the other side is to know at once how far this one is.
    pub tells: bool,
    /// How long the other side may say nothing while nothing goes on here.
    pub patience: Duration,
    /// Told of each interval.
    pub observe: &'a mut dyn FnMut(&Interval),
}

/// Connected streams, and what is to be done with them.
pub struct Prepared {
    domain: Rc<VerbsDomain>,
    work: Box<dyn TestWork>,
}

/// Makes everything ready for the other side's requests and for own ones. To be called before the
/// other side is told that this one is ready: it may read what is made here at once.
pub fn prepare(meeting: Meeting, test: &Test, client: bool) -> Prepared {
    let Meeting { mut links, domain, .. } = meeting;
    let answered = matches!(test.operation, TestOperation::Send | TestOperation::Write);
    let shared = domain.clone();
    let work: Box<dyn TestWork> = match (test.latency, client) {
        (true, true) => Box::new(Ping::new(shared, links.remove(0), test)),
        (true, false) if answered => Box::new(Echo::new(shared, links.remove(0), test)),
        _ => Box::new(Pump::new(shared, links, test)),
    };
    Prepared { domain, work }
}

/// Does a test to its end.
///
/// # Errors
/// A request failed, or the other side is gone or has failed.
pub fn run(side: TestSide<'_>, Prepared { domain, work }: Prepared) -> Result<TestResult> {
    let mut running = RunningTest::new(side, domain, work);
    running.turns()?;
    running.conclude()
}

struct RunningTest<'a> {
    side: TestSide<'a>,
    domain: Rc<VerbsDomain>,
    work: Box<dyn TestWork>,
    start: Instant,
    cpu_s: f64,
    next_tick: Instant,
    next_sign: Instant,
    /// When the other side said something, or something went on here.
    alive: Instant,
    next_report: Instant,
    reported: Reported,
    /// When what counts began, and own messages until then.
    ramp: Option<(Instant, u64)>,
    /// What the other side says it has done so far.
    progress: u64,
    said: bool,
    theirs: Option<SideTotals>,
    ended: TestResult,
}

/// As of the last report.
#[derive(Clone, Copy, Debug)]
struct Reported {
    at: Instant,
    own: u64,
    theirs: u64,
}

impl<'a> RunningTest<'a> {
    fn new(side: TestSide<'a>, domain: Rc<VerbsDomain>, work: Box<dyn TestWork>) -> Self {
        let start = Instant::now();
        let next_report = start + Duration::from_secs_f64(side.test.interval_s);
        Self {
            side,
            domain,
            work,
            start,
            cpu_s: cpu_s(),
            next_tick: start,
            next_sign: start + SIGN,
            alive: start,
            next_report,
            reported: Reported { at: start, own: 0, theirs: 0 },
            ramp: None,
            progress: 0,
            said: false,
            theirs: None,
            ended: TestResult::default(),
        }
    }

    fn turns(&mut self) -> Result<()> {
        loop {
            let now = Instant::now();
            let busy = self.work.turn(now)?;
            if busy {
                self.alive = now;
            }
            if now >= self.next_tick {
                self.tick(now)?;
            }
            if !self.said && self.work.is_delivered() {
                self.say_done()?;
            }
            if self.said && self.theirs.is_some() {
                return Ok(());
            }
            if !busy {
                self.rest()?;
            }
        }
    }

    fn tick(&mut self, now: Instant) -> Result<()> {
        self.next_tick = now + TICK;
        if self.side.interrupted.load(Ordering::Relaxed) && !self.ended.stopped {
            self.side.control.say(&ControlMessage::Stop)?;
            self.stop();
        }
        // Once both are done, what is said next is a verdict.
        while !(self.said && self.theirs.is_some())
            && let Some(message) = self.side.control.hear(now)?
        {
            self.alive = now;
            self.take(message)?;
        }
        let patience = self.side.patience;
        ensure!(
            now < self.alive + patience,
            "the other side has said nothing for {} s in the middle of a test, and nothing came",
            patience.as_secs()
        );
        if self.side.tells && !self.said || now >= self.next_sign {
            self.next_sign = now + SIGN;
            self.side.control.say(&ControlMessage::Progress { messages: self.own() })?;
        }
        let omit = Duration::from_secs_f64(self.side.test.omit_s);
        if self.ramp.is_none() && now >= self.start + omit {
            if omit > Duration::ZERO {
                self.report(now, true)?;
            }
            self.ramp = Some((now, self.own()));
        }
        if now >= self.next_report {
            self.report(now, self.ramp.is_none())?;
        }
        if let TestAmount::Seconds(seconds) = self.side.test.amount
            && now >= self.start + omit + Duration::from_secs_f64(seconds)
        {
            self.work.stop();
        }
        Ok(())
    }

    fn take(&mut self, message: ControlMessage) -> Result<()> {
        match message {
            ControlMessage::Progress { messages } => self.progress = self.progress.max(messages),
            ControlMessage::Stop => self.stop(),
            ControlMessage::Done { moved } => {
                self.progress = self.progress.max(moved.total());
                self.theirs = Some(moved);
            }
            other => bail!("the other side said {other:?} in the middle of a test"),
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.ended.stopped = true;
        self.work.stop();
    }

    fn own(&self) -> u64 {
        self.work.own().iter().sum()
    }

    fn report(&mut self, now: Instant, omitted: bool) -> Result<()> {
        let Reported { at, own, theirs } = self.reported;
        let seconds = |instant: Instant| (instant - self.start).as_secs_f64();
        let times = self.work.times();
        if let Some(times) = &times {
            let total = if omitted { &mut self.ended.ramp_times } else { &mut self.ended.times };
            total.add(times);
        }
        self.reported = Reported { at: now, own: self.own(), theirs: self.progress };
        (self.side.observe)(&Interval {
            from_s: seconds(at),
            to_s: seconds(now),
            own: self.reported.own - own,
            theirs: self.reported.theirs - theirs,
            times,
            omitted,
        });
        let interval = Duration::from_secs_f64(self.side.test.interval_s);
        self.next_report = self.next_report.max(now) + interval;
        Ok(())
    }

    fn say_done(&mut self) -> Result<()> {
        let now = Instant::now();
        // A test that ends within the ramp-up has no result.
        let (began, ramp_messages) = self.ramp.unwrap_or((now, self.own()));
        self.ended.own = SideTotals {
            streams: self.work.own(),
            ramp_messages,
            ramp_s: (began - self.start).as_secs_f64(),
            seconds: (now - began).as_secs_f64(),
        };
        self.said = true;
        self.side.control.say(&ControlMessage::Done { moved: self.ended.own.clone() })
    }

    /// Blocks until an event, if the test does not poll.
    fn rest(&mut self) -> Result<()> {
        let until = self.next_tick.min(self.next_report);
        let control = self.side.control.fd();
        if !self.work.needs_turns() {
            if wait_readable(&[control], until)? {
                self.next_tick = self.start;
            }
            return Ok(());
        }
        if !self.side.test.events {
            return Ok(());
        }
        self.domain.arm()?;
        // Completions before arming give no event, so the queue is polled once more.
        if self.work.turn(Instant::now())? {
            return Ok(());
        }
        wait_readable(&[self.domain.fd(), control], until)?;
        if wait_readable(&[self.domain.fd()], self.start)? {
            self.domain.take_event()?;
        }
        if wait_readable(&[control], self.start)? {
            self.next_tick = self.start;
        }
        Ok(())
    }

    fn conclude(mut self) -> Result<TestResult> {
        let now = Instant::now();
        if self.reported.own < self.own() || self.reported.theirs < self.progress {
            self.report(now, self.ramp.is_none())?;
        }
        let theirs = self.theirs.take().unwrap_or_default();
        let deadline = now + SEEING;
        while !self.work.has_heard(&theirs.streams) {
            self.work.turn(now)?;
            ensure!(Instant::now() < deadline, "not all that was sent has arrived");
        }
        let own = self.work.check(&theirs.streams);
        let cpu_s = cpu_s() - self.cpu_s;
        let DataCheck { checked, wrong } = own;
        self.side.control.say(&ControlMessage::Verdict { checked, wrong, cpu_s })?;
        let (checked, wrong, their_cpu_s) = self.verdict()?;
        self.ended.theirs = theirs;
        self.ended.cpu_s = [cpu_s, their_cpu_s];
        self.ended.verdict = DataCheck {
            checked: own.checked.saturating_add(checked),
            wrong: own.wrong.saturating_add(wrong),
        };
        Ok(self.ended)
    }

    /// What the other side says last. A wish to end may have crossed its end.
    fn verdict(&mut self) -> Result<(u64, u64, f64)> {
        loop {
            match self.side.control.expect(CHECKING)? {
                ControlMessage::Verdict { checked, wrong, cpu_s } => {
                    return Ok((checked, wrong, cpu_s));
                }
                ControlMessage::Stop => self.ended.stopped = true,
                // It did not know yet that this side was done.
                ControlMessage::Progress { .. } => {}
                other => bail!("the other side said {other:?} instead of a verdict"),
            }
        }
    }
}

/// CPU seconds of this process, all threads.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
