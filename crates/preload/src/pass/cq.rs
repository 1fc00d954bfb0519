//! Completion queues of other providers: what the device completes is given to the application now
//! or later, and failures of the plan with it.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use weft_fault::Verb;
use weft_host::CqLimit;
use weft_os::clock::{self, Moment};
use weft_sync::{Mutex, RwLock};
use weft_verbs::{AsyncKind, WcOpcode, WcStatus};
use weft_verbs_abi::*;

use super::calls::refused;
use super::channel::PassChannel;
use super::context::{PassContext, next_number, with_real_events};
use super::cq_ex::CurrentCompletion;
use super::qp::PassQp;
use super::table::ObjectTable;
use super::work::{CompletionVerdict, DeviceCompletion, Effect, FailedRequests, QpWork};
use super::{channel, context, mr};
use crate::errno;

/// More completions than the application asks for that a queue has room for: those of requests that
/// are signaled for our sake, one of each queue pair and each fault at most.
const ROOM_FORCED: c_int = 16;

static CQS: ObjectTable<PassCq> = ObjectTable::new();

/// What is known of a completion queue.
pub fn find(cq: *mut ibv_cq) -> Option<Arc<PassCq>> {
    CQS.find(cq)
}

/// A completion queue.
pub struct PassCq {
    address: usize,
    context: Arc<PassContext>,
    channel: Option<Arc<PassChannel>>,
    limit: Option<CqLimit>,
    qps: RwLock<BTreeMap<u32, Weak<PassQp>>>,
    state: Mutex<CqState>,
    /// What the application reads field by field.
    pub current: CurrentCompletion,
    /// Events of the plan that the application has not acknowledged.
    unacked: AtomicU32,
}

#[derive(Default)]
struct CqState {
    /// Completions that the application has not got.
    ready: VecDeque<ReadyCompletion>,
    /// The application wants an event.
    armed: bool,
    /// Completions that the application got.
    given: u64,
    ended: bool,
}

/// A completion for the application.
struct ReadyCompletion {
    wc: ibv_wc,
    /// From when on; now if nothing is said.
    due: Option<Moment>,
    /// Of a send request.
    send: bool,
}

impl ReadyCompletion {
    fn is_of(&self, qpn: u32) -> bool {
        self.send && self.wc.qp_num == qpn
    }
}

impl CqState {
    /// Writes up to `room` completions that are due to `wc`; how many.
    ///
    /// # Safety
    /// There is room for them.
    unsafe fn give(&mut self, now: Moment, room: usize, wc: *mut ibv_wc) -> usize {
        let (mut written, mut index) = (0, 0);
        while written < room && index < self.ready.len() {
            if self.ready[index].due.is_some_and(|due| due > now) {
                index += 1;
                continue;
            }
            if let Some(ready) = self.ready.remove(index) {
                // SAFETY: room by contract.
                unsafe { wc.wrapping_add(written).write(ready.wc) };
                written += 1;
            }
        }
        self.given += written as u64;
        written
    }
}

impl PassCq {
    /// The address of its C structure.
    pub fn address(&self) -> usize {
        self.address
    }

    fn pointer(&self) -> *mut ibv_cq {
        self.address as *mut ibv_cq
    }

    /// Notes a queue pair that completes here.
    pub fn add_qp(&self, qp: &Arc<PassQp>) {
        self.qps.write().insert(qp.qpn, Arc::downgrade(qp));
    }

    /// Forgets a queue pair, and its completions.
    pub fn remove_qp(&self, qpn: u32) {
        self.qps.write().remove(&qpn);
        self.state.lock().ready.retain(|ready| ready.wc.qp_num != qpn);
    }

    fn qp(&self, qpn: u32) -> Option<Arc<PassQp>> {
        self.qps.read().get(&qpn)?.upgrade()
    }

    fn all_qps(&self) -> Vec<Arc<PassQp>> {
        self.qps.read().values().filter_map(Weak::upgrade).collect()
    }

    /// Does what is due at a time.
    pub fn act(&self) {
        self.context.tick();
        self.all_qps().iter().for_each(|qp| qp.act());
    }

    /// Requests of a queue pair fail, and it goes to ERR by `modify` if it is to: meanwhile nobody
    /// polls, so that these completions are seen before what the device flushes.
    pub fn fail(&self, qpn: u32, failed: &FailedRequests, modify: impl FnOnce()) {
        let FailedRequests { status, requests, late, modify: is_modified } = failed;
        let now = clock::now();
        let mut statuses = std::iter::once(*status).chain(std::iter::repeat(FLUSHED));
        let mut status = || statuses.next().unwrap_or(FLUSHED);
        let mut state = self.state.lock();
        for ready in state.ready.iter_mut().filter(|ready| ready.is_of(qpn)) {
            if *late && ready.due.is_some_and(|due| due > now) {
                ready.wc.status = status();
                ready.due = None;
            }
        }
        let due = state.ready.iter().filter(|ready| ready.is_of(qpn)).filter_map(|one| one.due);
        let due = due.max();
        for request in requests {
            let mut wc = ibv_wc::new(request.id, qpn, WcOpcode::Send, WcStatus::WrFlushErr);
            (wc.opcode, wc.status) = (request.opcode, status());
            state.ready.push_back(ReadyCompletion { wc, due, send: true });
        }
        if *is_modified {
            modify();
        }
        drop(state);
        self.announce();
    }

    /// When something is due here, if the application waits for it.
    pub fn next_wanted(&self) -> Option<Moment> {
        let times = self.all_qps().into_iter().filter_map(|qp| qp.work.lock().next_time()).min();
        let state = self.state.lock();
        let now = clock::now();
        let ready = state.ready.iter().map(|ready| ready.due.unwrap_or(now)).min();
        let all = ready.into_iter().chain(times).chain(self.context.next_change());
        if state.armed { all.min() } else { None }
    }

    fn announce(&self) {
        if let Some(channel) = &self.channel {
            channel.schedule();
        }
    }

    /// Takes the event that the application wants, if a completion of the plan is due.
    pub fn take_event(&self) -> bool {
        let now = clock::now();
        let mut state = self.state.lock();
        let is_due = state.ready.iter().any(|ready| ready.due.is_none_or(|due| due <= now));
        let taken = state.armed && is_due;
        if taken {
            state.armed = false;
            self.unacked.fetch_add(1, Ordering::AcqRel);
        }
        taken
    }

    /// The application got an event of the device.
    pub fn disarm(&self) {
        self.state.lock().armed = false;
    }

    /// Takes up to `count` acknowledgements that are of events of the plan; how many are left.
    pub fn ack(&self, count: u32) -> u32 {
        let own = self.unacked.fetch_update(Ordering::AcqRel, Ordering::Acquire, |unacked| {
            Some(unacked.saturating_sub(count))
        });
        count.saturating_sub(own.unwrap_or(0))
    }

    /// `ibv_poll_cq`.
    ///
    /// # Safety
    /// There is room for as many completions at `wc`.
    pub unsafe fn poll(&self, room: usize, wc: *mut ibv_wc) -> c_int {
        let Some(real) = self.context.real.ops.poll_cq else { return -1 };
        mr::act();
        self.act();
        let mut given = 0;
        while given < room {
            // SAFETY: room by contract.
            let step = unsafe { self.step(real, room - given, wc.wrapping_add(given)) };
            let (written, effects) = match step {
                Ok(step) => step,
                Err(_) if given > 0 => break,
                Err(result) => return result,
            };
            given += written;
            if effects.is_empty() {
                break;
            }
            effects.into_iter().for_each(|(qp, effects)| qp.apply(effects));
        }
        given as c_int
    }

    /// One look at the queue; the completions that the application gets, and what follows.
    ///
    /// # Safety
    /// As for [`Self::poll`].
    unsafe fn step(
        &self,
        real: PollCq,
        room: usize,
        wc: *mut ibv_wc,
    ) -> Result<(usize, QpEffects), c_int> {
        let now = clock::now();
        let mut state = self.state.lock();
        if state.ended {
            return Err(self.result_when_ended());
        }
        let left = self.limit.map_or(u64::MAX, |limit| limit.completions - state.given);
        if left == 0 {
            return self.look_past_limit(state, real, now);
        }
        let room = room.min(usize::try_from(left).unwrap_or(usize::MAX));
        // SAFETY: room by contract.
        let mut written = unsafe { state.give(now, room, wc) };
        let mut effects = Vec::new();
        let (count, from) = ((room - written) as c_int, wc.wrapping_add(written));
        // SAFETY: the queue is alive by contract, with room for so many.
        let found = if count > 0 { unsafe { real(self.pointer(), count, from) } } else { 0 };
        if found < 0 && written == 0 {
            return Err(found);
        }
        for index in 0..found.max(0) as usize {
            // SAFETY: the provider has written so many.
            let done = unsafe { from.wrapping_add(index).read() };
            if self.is_for_now(&mut state, done, now, &mut effects) {
                // SAFETY: no further than what was read.
                unsafe { wc.wrapping_add(written).write(done) };
                written += 1;
                state.given += 1;
            }
        }
        Ok((written, effects))
    }

    /// Whether the application gets a completion of the device now; else it is kept, or swallowed.
    fn is_for_now(
        &self,
        state: &mut CqState,
        wc: ibv_wc,
        now: Moment,
        effects: &mut QpEffects,
    ) -> bool {
        let Some(qp) = self.qp(wc.qp_num) else { return true };
        let (success, receive) = (wc.is_success(), wc.opcode & WcOpcode::Recv as u32 != 0);
        let done = DeviceCompletion { id: wc.wr_id, success, receive };
        let mut work = qp.work.lock();
        let verdict = work.completed(done, now);
        let follows = work.effects();
        drop(work);
        if !follows.is_empty() {
            effects.push((qp, follows));
        }
        if let CompletionVerdict::At { due, send } = verdict {
            state.ready.push_back(ReadyCompletion { wc, due: Some(due), send });
        }
        verdict == CompletionVerdict::Now
    }

    fn result_when_ended(&self) -> c_int {
        if self.limit.is_some_and(|limit| limit.is_overrun) { 0 } else { -1 }
    }

    /// The application has all that it gets: with one more the queue is over.
    fn look_past_limit(
        &self,
        mut state: weft_sync::MutexGuard<'_, CqState>,
        real: PollCq,
        now: Moment,
    ) -> Result<(usize, QpEffects), c_int> {
        let mut one = ibv_wc::default();
        let is_due = state.ready.iter().any(|ready| ready.due.is_none_or(|due| due <= now));
        // SAFETY: the queue is alive by contract, and there is room for one.
        if !is_due && unsafe { real(self.pointer(), 1, &raw mut one) } <= 0 {
            return Ok((0, Vec::new()));
        }
        state.ended = true;
        drop(state);
        if let Some(limit) = self.limit {
            self.context.faults.note(limit.place);
        }
        if let Some(events) = &self.context.events {
            events.push(AsyncKind::CqErr, self.pointer());
        }
        self.all_qps().iter().for_each(|qp| qp.with_work(QpWork::end_with_queue));
        Err(self.result_when_ended())
    }
}

const FLUSHED: u32 = WcStatus::WrFlushErr as u32;

/// What follows for queue pairs, in its order.
type QpEffects = Vec<(Arc<PassQp>, Vec<Effect>)>;

/// The type of `ibv_create_cq`.
type CreateCq = unsafe extern "C" fn(
    *mut ibv_context,
    c_int,
    *mut c_void,
    *mut ibv_comp_channel,
    c_int,
) -> *mut ibv_cq;

/// `ibv_create_cq`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn create_cq(
    real: CreateCq,
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    if let Some(code) = refused(context, Verb::CreateCq) {
        return errno::null(code);
    }
    // SAFETY: the caller's arguments, but for the size.
    let make = |cqe| unsafe { real(context, cqe, cq_context, channel, comp_vector) };
    // SAFETY: open and alive by contract.
    let make = |cqe| unsafe { with_real_fds(context, channel, || make(cqe)) };
    let pass = super::faults().and_then(|_| context::find(context));
    let Some(pass) = pass.filter(|pass| pass.needs.work) else { return make(cqe) };
    let mut cq = make(cqe.saturating_add(ROOM_FORCED));
    if cq.is_null() {
        cq = make(cqe);
    }
    if !cq.is_null() {
        adopt(&pass, cq, channel);
    }
    cq
}

/// Makes a queue by `make`, while the structures of the device and the channel show the kernel's
/// descriptors, which it is told.
///
/// # Safety
/// `context` is open, and `channel` alive or NULL.
pub unsafe fn with_real_fds<T>(
    context: *mut ibv_context,
    channel: *mut ibv_comp_channel,
    make: impl FnOnce() -> T,
) -> T {
    // SAFETY: open by contract.
    let make = || unsafe { with_real_events(context, make) };
    match super::faults().and_then(|_| channel::find(channel)) {
        // SAFETY: alive by contract.
        Some(own) => unsafe { own.with_real_fd(channel, make) },
        None => make(),
    }
}

/// Notes a queue that was made.
pub fn adopt(context: &Arc<PassContext>, cq: *mut ibv_cq, channel: *mut ibv_comp_channel) {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let limit = context.faults.limit_of(next_number(&MADE), &context.name);
    let channel = channel::find(channel);
    let pass = Arc::new(PassCq {
        address: cq as usize,
        context: Arc::clone(context),
        channel,
        limit,
        qps: RwLock::new(BTreeMap::new()),
        state: Mutex::default(),
        current: CurrentCompletion::default(),
        unacked: AtomicU32::new(0),
    });
    if let Some(channel) = &pass.channel {
        channel.add_cq(&pass);
    }
    CQS.add(cq, pass);
}

/// `ibv_destroy_cq`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn destroy_cq(
    real: unsafe extern "C" fn(*mut ibv_cq) -> c_int,
    cq: *mut ibv_cq,
) -> c_int {
    let pass = super::faults().and_then(|_| CQS.remove(cq));
    // SAFETY: the caller's argument.
    let result = unsafe { real(cq) };
    if let Some(pass) = pass {
        if result != 0 {
            CQS.add(cq, pass);
        } else if let Some(events) = &pass.context.events {
            events.forget(cq);
        }
    }
    result
}

/// `ibv_poll_cq`.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, room: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: alive by contract.
    let context = context::find(unsafe { (*cq).context });
    let Some(real) = context.and_then(|context| context.real.ops.poll_cq) else { return -1 };
    match find(cq) {
        // SAFETY: the caller's arguments.
        Some(pass) => unsafe { pass.poll(room.max(0) as usize, wc) },
        None => {
            mr::act();
            // SAFETY: as above.
            unsafe { real(cq, room, wc) }
        }
    }
}

/// `ibv_req_notify_cq`.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: alive by contract.
    let context = context::find(unsafe { (*cq).context });
    let Some(real) = context.and_then(|context| context.real.ops.req_notify_cq) else {
        return errno::code(libc::ENODEV);
    };
    // SAFETY: the caller's arguments.
    let result = unsafe { real(cq, solicited_only) };
    if result == 0
        && let Some(pass) = find(cq)
    {
        pass.state.lock().armed = true;
        pass.announce();
    }
    result
}
