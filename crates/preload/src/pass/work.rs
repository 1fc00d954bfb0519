//! What the faults of a plan do to the requests of one queue pair: the part without input and
//! output.
//!
//! Requests that are posted are either passed to the device or held back; completions of the device
//! are given to the application now, later, or not at all. A request that is to fail, and all
//! behind it, are held back until what is before it is complete. So that this is seen, the last
//! request before it is signaled even if the application did not ask for that; its completion is
//! swallowed then.
//!
//! Order of calls: [`QpWork::post`] under one lock with the post to the device, and
//! [`QpWork::undo`] if that fails; [`QpWork::completed`] for each completion of the device in its
//! order; [`QpWork::act`] at [`QpWork::next_time`]. Each may leave [`Effect`]s, which
//! [`QpWork::effects`] hands out in their order.

use std::collections::VecDeque;
use std::time::Duration;

use weft_fault::{Dice, FaultKind, PlannedFault, When};
use weft_host::{DrawnFault, Faults, Outages, Window};
use weft_os::clock::Moment;
use weft_verbs::WcStatus;

/// A request for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// The application's id of it.
    pub id: u64,
    /// The `ibv_wc_opcode` of its completion.
    pub opcode: u32,
    /// Whether the application is to see that it succeeds.
    pub signaled: bool,
}

/// What becomes of a request that is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostVerdict {
    /// The device gets it.
    Pass,
    /// The device gets it, signaled.
    PassSignaled,
    /// The device does not get it.
    Hold,
    /// The send queue is full of what is held back: `ENOMEM`.
    Full,
}

/// A completion of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCompletion {
    /// The id of the request.
    pub id: u64,
    /// Whether it succeeded.
    pub success: bool,
    /// Whether it is marked as one of a receive. Of a failed one this is a guess.
    pub receive: bool,
}

/// When the application gets a completion of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionVerdict {
    /// At once.
    Now,
    /// From then on; `send` says that it is of a send request.
    At { due: Moment, send: bool },
    /// Never.
    Swallow,
}

/// What is to be done to the device, and told to the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The fault at this place of the plan happens.
    Note(usize),
    /// The queue pair goes to ERR.
    ModifyToErr,
    /// Requests fail.
    Fail(FailedRequests),
    /// `IBV_EVENT_QP_FATAL`.
    QpFatal,
}

/// Requests that fail: the first as `status`, the others are flushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRequests {
    /// An `ibv_wc_status`.
    pub status: u32,
    /// In their order.
    pub requests: Vec<SendRequest>,
    /// Before them completions of sends that the application has not got yet because they are late.
    pub late: bool,
    /// The queue pair goes to ERR with them: what the device flushes then comes after them.
    pub modify: bool,
}

/// A request that the device has.
#[derive(Clone, Copy, Debug)]
struct SentRequest {
    request: SendRequest,
    /// It is signaled for our sake alone.
    forced: bool,
}

/// A fault of requests.
struct RequestFault {
    place: usize,
    status: Option<u32>,
    when: When,
    /// When it happens, if it is at a time.
    at: Option<Moment>,
    dice: Dice,
    posted: u64,
    spent: bool,
}

impl RequestFault {
    fn new(faults: &Faults, (place, fault, dice): DrawnFault<'_>) -> Option<Self> {
        let status = match fault.kind {
            FaultKind::QpError(status) => Some(status.code),
            FaultKind::Hang => None,
            _ => return None,
        };
        let at = match fault.when {
            When::AtNs(ns) => Some(faults.at(ns)),
            _ => None,
        };
        Some(Self { place, status, when: fault.when, at, dice, posted: 0, spent: false })
    }

    /// Whether the next request is the one; asked once about each.
    fn hits(&mut self) -> bool {
        self.posted += 1;
        match self.when {
            When::After(count) => self.posted > count,
            When::Chance(share) => self.dice.falls(share),
            When::AtNs(_) => false,
        }
    }
}

/// A fault that delays completions.
struct Lateness {
    place: usize,
    sends_alone: bool,
    delay_ns: u64,
    jitter_ns: u64,
    window: Window,
    dice: Dice,
}

impl Lateness {
    fn new(faults: &Faults, (place, fault, dice): DrawnFault<'_>) -> Option<Self> {
        let (sends_alone, delay_ns, jitter_ns) = match fault.kind {
            FaultKind::SlowAck { delay_ns, jitter_ns } => (true, delay_ns, jitter_ns),
            FaultKind::Delay { delay_ns, jitter_ns } => (false, delay_ns, jitter_ns),
            _ => return None,
        };
        let window = Window::of(faults, fault);
        Some(Self { place, sends_alone, delay_ns, jitter_ns, window, dice })
    }
}

/// Whether a fault is one of a queue pair's requests and completions.
pub fn is_of_work(fault: &PlannedFault) -> bool {
    matches!(
        fault.kind,
        FaultKind::QpError(_)
            | FaultKind::Hang
            | FaultKind::SlowAck { .. }
            | FaultKind::Delay { .. }
    )
}

/// What a queue pair does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkState {
    /// The application still sets it up.
    SettingUp,
    /// It was seen to work.
    Working,
    /// It is in ERR: what is posted goes to the device, which flushes it.
    Broken,
}

/// The requests of a queue pair and what goes wrong with them.
pub struct QpWork {
    faults: Vec<RequestFault>,
    lateness: Vec<Lateness>,
    outages: Outages,
    state: WorkState,
    /// Requests that the send queue has room for.
    room: usize,
    /// The fault of the request that is posted next, if it has one.
    next: Option<usize>,
    /// The fault for which requests are held back.
    holding: Option<usize>,
    sent: VecDeque<SentRequest>,
    held: VecDeque<SendRequest>,
    /// Requests whose failure was told already, whatever the device says of them.
    doomed: VecDeque<u64>,
    /// When the last completion that is late is due, of sends and receives.
    last_due: [Option<Moment>; 2],
    effects: Vec<Effect>,
}

impl QpWork {
    /// For a queue pair with `room` for send requests, of which `drawn` are the faults; nothing
    /// comes from the device during its `outages`.
    pub fn new<'a>(
        faults: &Faults,
        drawn: impl Iterator<Item = DrawnFault<'a>> + Clone,
        outages: Outages,
        room: usize,
    ) -> Self {
        let mut work = Self {
            faults: drawn.clone().filter_map(|one| RequestFault::new(faults, one)).collect(),
            lateness: drawn.filter_map(|one| Lateness::new(faults, one)).collect(),
            outages,
            state: WorkState::SettingUp,
            room,
            next: None,
            holding: None,
            sent: VecDeque::new(),
            held: VecDeque::new(),
            doomed: VecDeque::new(),
            last_due: [None; 2],
            effects: Vec::new(),
        };
        work.next = work.draw();
        work
    }

    /// What is to be done now, in its order; the caller does it without the lock of this.
    #[must_use]
    pub fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn draw(&mut self) -> Option<usize> {
        // Each is asked, so that each counts every request.
        let mut hit = None;
        for (index, fault) in self.faults.iter_mut().enumerate() {
            hit = hit.or((!fault.spent && fault.hits()).then_some(index));
        }
        hit
    }

    /// Whether the next `count` requests, and the one after them, are none that is to fail, and
    /// this is known before they are posted.
    pub fn passes(&self, count: usize) -> bool {
        let misses = |fault: &RequestFault| match fault.when {
            When::After(after) => fault.spent || fault.posted.saturating_add(count as u64) <= after,
            When::AtNs(_) => true,
            When::Chance(_) => fault.spent,
        };
        let holds = self.holding.is_some() || self.next.is_some();
        self.state == WorkState::Broken || (!holds && self.faults.iter().all(misses))
    }

    /// A request is posted.
    pub fn post(&mut self, request: SendRequest) -> PostVerdict {
        if self.state == WorkState::Broken {
            return PostVerdict::Pass;
        }
        self.state = WorkState::Working;
        if self.holding.is_none() {
            self.holding = self.next.take();
        }
        if self.holding.is_some() {
            if self.held.len() >= self.room.max(1) {
                return PostVerdict::Full;
            }
            self.held.push_back(request);
            self.take_turn();
            return PostVerdict::Hold;
        }
        self.next = self.draw();
        let forced = self.next.is_some() && !request.signaled;
        self.sent.push_back(SentRequest { request, forced });
        if forced { PostVerdict::PassSignaled } else { PostVerdict::Pass }
    }

    /// The device did not take the `count` requests that were passed last: they do not count.
    pub fn undo(&mut self, count: usize) {
        self.sent.truncate(self.sent.len().saturating_sub(count));
        for fault in &mut self.faults {
            fault.posted = fault.posted.saturating_sub(count as u64);
        }
        // None of them was to fail, or they would not have been passed.
        self.next = None;
    }

    /// Fails the request that is held back once everything before it is complete.
    fn take_turn(&mut self) {
        let Some(index) = self.holding else { return };
        if self.sent.is_empty() && !self.faults[index].spent {
            self.faults[index].spent = true;
            self.effects.push(Effect::Note(self.faults[index].place));
            if let Some(status) = self.faults[index].status {
                self.fail(status, false);
            }
        }
    }

    /// The queue pair fails: its oldest request as `status`, or by an event if it has none. With
    /// `late` some of its requests may be done, unknown to the application.
    fn fail(&mut self, status: u32, late: bool) {
        self.state = WorkState::Broken;
        self.holding = None;
        self.doomed.extend(self.sent.iter().map(|sent| sent.request.id));
        let sent = self.sent.drain(..).map(|sent| sent.request);
        let requests: Vec<_> = sent.chain(self.held.drain(..)).collect();
        if (requests.is_empty() && !late) || status == WcStatus::FatalErr as u32 {
            self.effects.push(Effect::QpFatal);
        }
        self.effects.push(Effect::Fail(FailedRequests { status, requests, late, modify: true }));
    }

    /// The queue pair is in ERR, by the application or the device: what was held back is flushed,
    /// once all that the device has is complete.
    fn flush_held(&mut self) {
        self.state = WorkState::Broken;
        let waits = self.sent.iter().any(|sent| sent.request.signaled || sent.forced);
        if waits || self.held.is_empty() {
            return;
        }
        self.holding = None;
        let requests = self.held.drain(..).collect();
        let status = WcStatus::WrFlushErr as u32;
        let failed = FailedRequests { status, requests, late: false, modify: false };
        self.effects.push(Effect::Fail(failed));
    }

    /// The device is reset: everything is flushed.
    pub fn end_with_device(&mut self) {
        if self.state != WorkState::Broken {
            self.fail(WcStatus::WrFlushErr as u32, true);
            self.effects.retain(|effect| *effect != Effect::QpFatal);
        }
    }

    /// The completion queue is of no use any more.
    pub fn end_with_queue(&mut self) {
        if self.state != WorkState::Broken {
            self.state = WorkState::Broken;
            self.held.clear();
            self.effects.extend([Effect::ModifyToErr, Effect::QpFatal]);
        }
    }

    /// The application moves the queue pair to a state: RTS, ERR or RESET count.
    pub fn modified(&mut self, state: i32) {
        const RESET: i32 = 0;
        const RTS: i32 = 3;
        const ERR: i32 = 6;
        match state {
            RTS if self.state == WorkState::SettingUp => self.state = WorkState::Working,
            ERR => self.flush_held(),
            RESET => {
                self.state = WorkState::SettingUp;
                self.holding = None;
                self.sent.clear();
                self.held.clear();
                self.doomed.clear();
            }
            _ => {}
        }
    }

    /// A completion that the device gave.
    pub fn completed(&mut self, done: DeviceCompletion, now: Moment) -> CompletionVerdict {
        if self.state == WorkState::SettingUp {
            self.state = WorkState::Working;
        }
        let is_doomed = !done.receive && self.doomed.contains(&done.id);
        if is_doomed {
            while self.doomed.pop_front().is_some_and(|id| id != done.id) {}
            return CompletionVerdict::Swallow;
        }
        let known = !done.receive && self.sent.iter().any(|sent| sent.request.id == done.id);
        let send = if done.success { !done.receive } else { known };
        let verdict = self.verdict(send, done.success, now);
        if !send {
            if !done.success {
                self.flush_held();
            }
            return verdict;
        }
        let is_last = |sent: &SentRequest| {
            if done.success {
                sent.request.signaled || sent.forced
            } else {
                sent.request.id == done.id
            }
        };
        let mut last = None;
        while let Some(sent) = self.sent.pop_front() {
            if is_last(&sent) {
                last = Some(sent);
                break;
            }
        }
        if done.success {
            self.take_turn();
        } else {
            self.flush_held();
        }
        let forced = done.success && last.is_some_and(|sent| sent.forced);
        if forced { CompletionVerdict::Swallow } else { verdict }
    }

    /// When the application gets a completion that comes now.
    fn verdict(&mut self, send: bool, success: bool, now: Moment) -> CompletionVerdict {
        let mut late = Duration::ZERO;
        if success {
            for one in self.lateness.iter_mut().filter(|one| send || !one.sends_alone) {
                if one.window.is_open() {
                    late += Duration::from_nanos(
                        one.delay_ns + one.dice.below(one.jitter_ns.saturating_add(1)),
                    );
                    self.effects.push(Effect::Note(one.place));
                }
            }
        }
        late += self.outages.left(now).unwrap_or_default();
        let last = &mut self.last_due[usize::from(!send)];
        let due = last.map_or(now + late, |last| last.max(now + late));
        if due <= now {
            return CompletionVerdict::Now;
        }
        *last = Some(due);
        CompletionVerdict::At { due, send }
    }

    /// Does what it is time for.
    pub fn act(&mut self, now: Moment) {
        for index in 0..self.faults.len() {
            let fault = &mut self.faults[index];
            let is_due = fault.at.is_some_and(|at| at <= now) && !fault.spent;
            if is_due && self.state == WorkState::Working {
                fault.spent = true;
                self.effects.push(Effect::Note(fault.place));
                if let Some(status) = fault.status {
                    let late = self.last_due[0].is_some_and(|due| due > now);
                    self.fail(status, late);
                }
            }
        }
    }

    /// When [`Self::act`] has something to do, as far as that is known.
    pub fn next_time(&self) -> Option<Moment> {
        if self.state == WorkState::Broken {
            return None;
        }
        self.faults.iter().filter(|fault| !fault.spent).filter_map(|fault| fault.at).min()
    }
}

#[cfg(test)]
mod tests {
    use weft_fault::FaultPlan;

    use super::*;

    const RETRY_EXC: u32 = WcStatus::RetryExcErr as u32;

    fn work(plan: &str) -> QpWork {
        let faults = Faults::for_other_devices(FaultPlan::parse(plan).unwrap());
        let drawn: Vec<_> = faults.of_named(1, Some(9), "siw0").collect();
        let outages = faults.changes_of("siw0").outages();
        QpWork::new(&faults, drawn.into_iter(), outages, 4)
    }

    fn signaled(id: u64) -> SendRequest {
        SendRequest { id, opcode: 0, signaled: true }
    }

    fn unsignaled(id: u64) -> SendRequest {
        SendRequest { signaled: false, ..signaled(id) }
    }

    fn done(id: u64) -> DeviceCompletion {
        DeviceCompletion { id, success: true, receive: false }
    }

    fn now() -> Moment {
        weft_os::clock::now()
    }

    fn failed(status: u32, requests: &[SendRequest]) -> Effect {
        let requests = requests.to_vec();
        Effect::Fail(FailedRequests { status, requests, late: false, modify: true })
    }

    fn flushed(requests: &[SendRequest]) -> Effect {
        let (status, requests) = (WcStatus::WrFlushErr as u32, requests.to_vec());
        Effect::Fail(FailedRequests { status, requests, late: false, modify: false })
    }

    #[test]
    fn what_is_before_the_request_that_fails_completes_first() {
        let mut work = work("qp-error:after=2");
        assert!(work.passes(1) && !work.passes(2));
        assert_eq!(work.post(signaled(0)), PostVerdict::Pass);
        assert_eq!(work.post(signaled(1)), PostVerdict::Pass);
        assert_eq!([2, 3].map(|id| work.post(signaled(id))), [PostVerdict::Hold; 2]);
        assert_eq!(work.completed(done(0), now()), CompletionVerdict::Now);
        assert_eq!(work.effects(), []);
        assert_eq!(work.completed(done(1), now()), CompletionVerdict::Now);
        let fail = failed(RETRY_EXC, &[signaled(2), signaled(3)]);
        assert_eq!(work.effects(), [Effect::Note(0), fail]);
        // What is posted now is the device's, which flushes it.
        assert_eq!(work.post(signaled(4)), PostVerdict::Pass);
    }

    #[test]
    fn the_last_one_before_is_signaled_and_its_completion_swallowed() {
        let mut work = work("qp-error:after=2");
        assert_eq!(work.post(unsignaled(0)), PostVerdict::Pass);
        assert_eq!(work.post(unsignaled(1)), PostVerdict::PassSignaled);
        assert_eq!(work.post(unsignaled(2)), PostVerdict::Hold);
        assert_eq!(work.completed(done(1), now()), CompletionVerdict::Swallow);
        assert_eq!(work.effects().pop(), Some(failed(RETRY_EXC, &[unsignaled(2)])));
    }

    #[test]
    fn a_request_that_hangs_is_flushed_when_the_connection_ends() {
        let mut work = work("hang:after=1");
        assert_eq!(work.post(signaled(0)), PostVerdict::Pass);
        assert_eq!([1, 2, 3, 4].map(|id| work.post(signaled(id))), [PostVerdict::Hold; 4]);
        assert_eq!(work.post(signaled(5)), PostVerdict::Full);
        work.completed(done(0), now());
        assert_eq!(work.effects(), [Effect::Note(0)]);
        work.modified(6);
        assert_eq!(work.effects(), [flushed(&[1, 2, 3, 4].map(signaled))]);
    }

    #[test]
    fn what_the_device_flushes_comes_before_what_was_held_back() {
        let mut work = work("hang:after=1");
        work.post(signaled(0));
        work.post(signaled(1));
        let error = DeviceCompletion { id: 8, success: false, receive: true };
        assert_eq!(work.completed(error, now()), CompletionVerdict::Now);
        assert_eq!(work.effects(), []);
        let error = DeviceCompletion { id: 0, success: false, receive: false };
        assert_eq!(work.completed(error, now()), CompletionVerdict::Now);
        assert_eq!(work.effects(), [flushed(&[signaled(1)])]);
    }

    #[test]
    fn at_its_time_the_oldest_request_fails_whatever_the_device_says_of_it() {
        let mut work = work("qp-error:at=1ns,status=rem-access");
        work.act(now());
        assert_eq!(work.effects(), [], "it is not connected yet");
        work.post(signaled(0));
        work.post(signaled(1));
        work.act(now() + Duration::from_secs(1));
        let fail = failed(WcStatus::RemAccessErr as u32, &[signaled(0), signaled(1)]);
        assert_eq!(work.effects(), [Effect::Note(0), fail]);
        assert_eq!(
            [0, 1].map(|id| work.completed(done(id), now())),
            [CompletionVerdict::Swallow; 2]
        );
    }

    #[test]
    fn completions_that_are_late_keep_their_order() {
        let mut work = work("slow-ack=5ms:until=3600s");
        let start = now();
        for id in 0..3 {
            work.post(signaled(id));
        }
        let at = |ms| start + Duration::from_millis(ms);
        let due = |ms| CompletionVerdict::At { due: at(ms), send: true };
        assert_eq!(work.completed(done(0), at(0)), due(5));
        assert_eq!(work.completed(done(1), at(3)), due(8));
        let receive = DeviceCompletion { id: 9, success: true, receive: true };
        assert_eq!(work.completed(receive, at(4)), CompletionVerdict::Now);
        // A failure is no acknowledgement, and does not overtake.
        let error = DeviceCompletion { success: false, ..done(2) };
        assert_eq!(work.completed(error, at(4)), due(8));
    }

    #[test]
    fn what_was_not_taken_is_not_counted() {
        let mut work = work("qp-error:after=2");
        work.post(signaled(0));
        work.undo(1);
        assert_eq!(
            [0, 1, 2].map(|id| work.post(signaled(id)) == PostVerdict::Hold),
            [false, false, true]
        );
    }
}
