//! Completion queues: creation, polling, arming, destruction.
//!
//! Every queue is allocated as an `ibv_cq_ex`, whose head is an `ibv_cq`; [`super::cq_ex`] fills
//! the rest where an application asked for it.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::{self, offset_of};
use std::ptr::slice_from_raw_parts_mut;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_host::HostCq;

use super::channel;
use super::context::Held;
use super::object::{AckCounts, Object, SpanLock, handle};
use super::registry;
use crate::errno::{self, needs_memory};
use crate::pass;
use crate::real::pass_when_off;
use weft_verbs_abi::*;

/// Private tail of the C structure of a completion queue.
pub struct CqTail {
    /// The queue in `weft-host`.
    pub core: Arc<HostCq>,
    cookie: u64,
    context: Held,
    /// Held from `start_poll` to `end_poll`, unless the application promised to use one thread.
    pub span: Option<SpanLock>,
    /// The completion that the `read_*` functions read.
    pub current: UnsafeCell<ibv_wc>,
}

// SAFETY: `current` is only touched between `start_poll` and `end_poll`, which `span` makes
// exclusive or the application promised to be.
unsafe impl Sync for CqTail {}

type CqObject = Object<ibv_cq_ex, CqTail>;

/// The private tail of `cq`, an `ibv_cq` or `ibv_cq_ex`.
///
/// # Safety
/// `cq` came from [`create`] and is not destroyed while the reference lives.
pub unsafe fn tail<'a, Q>(cq: *mut Q) -> &'a CqTail {
    // SAFETY: as this function's contract.
    unsafe { CqObject::tail(cq) }
}

/// The arguments of a creation, by whichever verb.
pub struct CqRequest {
    /// Entries, at least.
    pub cqe: u32,
    /// The application's pointer, which events carry back.
    pub cq_context: *mut c_void,
    /// The channel of its events, or NULL.
    pub channel: *mut ibv_comp_channel,
    /// Must be below `num_comp_vectors`.
    pub comp_vector: u32,
    /// Whether completions carry the time.
    pub stamped: bool,
    /// Whether `start_poll` may leave the lock out.
    pub single_threaded: bool,
}

/// Makes a queue; NULL with `errno` set when it cannot be made.
///
/// # Safety
/// `context` is open; the channel is NULL or alive.
pub unsafe fn create(context: *mut ibv_context, request: &CqRequest) -> *mut ibv_cq_ex {
    needs_memory!(errno::null);
    // SAFETY: open by contract.
    let vectors = unsafe { (*context).num_comp_vectors };
    if request.cqe == 0 || request.comp_vector >= vectors as u32 {
        return errno::null(libc::EINVAL);
    }
    let events = (!request.channel.is_null()).then(|| {
        // SAFETY: alive by contract.
        unsafe { channel::tail(request.channel) }
    });
    let cookie = registry::cookie();
    // SAFETY: open by contract.
    let held = unsafe { Held::new(context) };
    let (host_context, channel) = (&held.tail().core, events.map(|e| e.core.clone()));
    let core = host_context.create_stamped_cq(request.cqe, channel, cookie, request.stamped);
    let core = match core {
        Ok(core) => core,
        Err(misuse) => return errno::null(misuse.errno()),
    };
    if let Some(events) = events {
        events.waiter.serve(&core);
        // SAFETY: alive by contract.
        unsafe { channel::users(request.channel) }.fetch_add(1, Ordering::AcqRel);
    }
    // SAFETY: all zeroes is valid: integers, null pointers, absent functions.
    let mut public: ibv_cq_ex = unsafe { mem::zeroed() };
    public.base = head(context, request, core.cqe());
    let span = (!request.single_threaded).then(SpanLock::new);
    let current = UnsafeCell::new(ibv_wc::default());
    let cq = CqObject::make(public, CqTail { core, cookie, context: held, span, current });
    registry::add(cookie, cq);
    cq
}

fn head(context: *mut ibv_context, request: &CqRequest, cqe: u32) -> ibv_cq {
    ibv_cq {
        context,
        channel: request.channel,
        cq_context: request.cq_context,
        handle: handle(),
        cqe: c_int::try_from(cqe).unwrap_or(c_int::MAX),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        comp_events_completed: 0,
        async_events_completed: 0,
    }
}

/// The acknowledged completion events of `cq`.
pub fn completion_acks(cq: *mut ibv_cq) -> AckCounts {
    let completed = offset_of!(ibv_cq, comp_events_completed);
    AckCounts::at(cq, [offset_of!(ibv_cq, mutex), offset_of!(ibv_cq, cond), completed])
}

/// The acknowledged asynchronous events of `cq`.
pub fn async_acks(cq: *mut ibv_cq) -> AckCounts {
    let completed = offset_of!(ibv_cq, async_events_completed);
    AckCounts::at(cq, [offset_of!(ibv_cq, mutex), offset_of!(ibv_cq, cond), completed])
}

/// `ibv_create_cq`.
///
/// # Safety
/// `context` is open; `channel` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    pass_when_off!(
        ibv_create_cq(context, cqe, cq_context, channel, comp_vector),
        pass::cq::create_cq
    );
    let (Ok(cqe), Ok(comp_vector)) = (u32::try_from(cqe), u32::try_from(comp_vector)) else {
        return errno::null(libc::EINVAL);
    };
    let (stamped, single_threaded) = (false, false);
    let request = CqRequest { cqe, cq_context, channel, comp_vector, stamped, single_threaded };
    // SAFETY: as this function's contract.
    unsafe { create(context, &request) }.cast()
}

/// `ibv_resize_cq`.
///
/// # Safety
/// `cq` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    pass_when_off!(ibv_resize_cq(cq, cqe));
    let Ok(wanted) = u32::try_from(cqe) else { return errno::code(libc::EINVAL) };
    if wanted == 0 {
        return errno::code(libc::EINVAL);
    }
    // SAFETY: alive by contract.
    let tail = unsafe { tail(cq) };
    let result = errno::positive(tail.core.resize(wanted));
    if result == 0 {
        // SAFETY: alive by contract.
        unsafe { (*cq).cqe = tail.core.cqe() as c_int };
    }
    result
}

/// `ibv_destroy_cq`: `EBUSY` while a queue pair uses it. Waits until the application has
/// acknowledged every event that it was given.
///
/// # Safety
/// `cq` is alive and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    pass_when_off!(ibv_destroy_cq(cq), pass::cq::destroy_cq);
    // SAFETY: alive by contract.
    let tail = unsafe { tail(cq) };
    if tail.context.is_inherited() {
        return 0;
    }
    match tail.core.destroy() {
        Ok(dropped) => tail.context.tail().events.retract(dropped),
        Err(misuse) => return errno::code(misuse.errno()),
    }
    // SAFETY: alive by contract.
    let channel = unsafe { (*cq).channel };
    if !channel.is_null() {
        // SAFETY: a channel with users is not destroyed.
        unsafe { channel::tail(channel) }.forget(tail.cookie);
    }
    let reported = registry::remove(tail.cookie);
    // SAFETY: alive by contract.
    unsafe { completion_acks(cq).wait(reported.completion) };
    // SAFETY: alive by contract.
    unsafe { async_acks(cq).wait(reported.asynchronous) };
    if !channel.is_null() {
        // SAFETY: a channel with users is not destroyed.
        unsafe { channel::users(channel) }.fetch_sub(1, Ordering::AcqRel);
    }
    // SAFETY: not used afterwards by contract.
    unsafe { CqObject::free(cq) };
    0
}

/// Slot `poll_cq`: how many completions, or -1 after an overflow.
///
/// # Safety
/// `cq` is alive; `wc` has room for `room` completions.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, room: c_int, wc: *mut ibv_wc) -> c_int {
    let Ok(room) = usize::try_from(room) else { return -1 };
    if room == 0 {
        return 0;
    }
    // SAFETY: alive by contract.
    let core = unsafe { &tail(cq).core };
    if !wc.is_aligned() {
        let mut one = ibv_wc::default();
        let Ok(count) = core.poll(slice::from_mut(&mut one)) else { return -1 };
        if count > 0 {
            // SAFETY: writable by contract; a packed structure has it at any address.
            unsafe { wc.write_unaligned(one) };
        }
        return count as c_int;
    }
    let out = slice_from_raw_parts_mut(wc, room);
    // SAFETY: `room` completions are writable by contract, and every bit pattern is one.
    let out = unsafe { &mut *out };
    core.poll(out).map_or(-1, |count| count as c_int)
}

/// Slot `req_notify_cq`.
///
/// # Safety
/// `cq` is alive.
pub unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: alive by contract.
    unsafe { tail(cq) }.core.req_notify(solicited_only != 0);
    0
}
