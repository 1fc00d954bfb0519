//! Completion channels and their events.
//!
//! A queued event adds one to the channel's eventfd; [`ibv_get_cq_event`] takes one from it, in a
//! real `read` that waits, is interrupted or refuses as the application set the descriptor up, and
//! then the oldest event. A thread that often waits drives the connections meanwhile
//! ([`EventWaiter`]). Destroying a completion queue drops its queued events and takes their
//! count back.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use weft_fault::Verb;
use weft_host::{EventWaiter, after_lock};
use weft_verbs::CompChannel;

use super::context::{self, Held};
use super::cq;
use super::object::Object;
use super::registry::{self, EventSource};
use crate::errno::{self, needs_memory};
use crate::fd::{EventFd, Waker};
use crate::kept::keeping;
use crate::pass;
use crate::real::pass_when_off;
use weft_verbs_abi::*;

/// Private tail of the C structure of a channel.
pub struct CompChannelTail {
    /// The events that wait to be read.
    pub core: Arc<CompChannel>,
    /// What its threads wait by.
    pub waiter: Arc<EventWaiter>,
    fd: Arc<EventFd>,
    context: Held,
}

type CompChannelObject = Object<ibv_comp_channel, CompChannelTail>;

/// The private tail of `channel`.
///
/// # Safety
/// `channel` came from [`ibv_create_comp_channel`] and is not destroyed while the reference lives.
pub unsafe fn tail<'a>(channel: *mut ibv_comp_channel) -> &'a CompChannelTail {
    // SAFETY: as this function's contract.
    unsafe { CompChannelObject::tail(channel) }
}

impl CompChannelTail {
    /// Drops the queued events of a completion queue that goes away.
    pub fn forget(&self, cookie: u64) {
        self.fd.retract(self.core.forget(cookie));
    }
}

/// The number of completion queues that use `channel`.
///
/// # Safety
/// `channel` is alive while the reference lives.
pub unsafe fn users<'a>(channel: *mut ibv_comp_channel) -> &'a AtomicI32 {
    let count = channel.wrapping_byte_add(offset_of!(ibv_comp_channel, refcnt)).cast::<i32>();
    // SAFETY: alive by contract; applications do not touch this field.
    unsafe { AtomicI32::from_ptr(count) }
}

/// `ibv_create_comp_channel`.
///
/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    pass_when_off!(ibv_create_comp_channel(context), pass::channel::create);
    needs_memory!(errno::null);
    // SAFETY: open by contract.
    if let Err(misuse) = unsafe { context::tail(context) }.core.refuse(Verb::CreateCompChannel) {
        return errno::null(misuse.errno());
    }
    let fd = match EventFd::new() {
        Ok(fd) => Arc::new(fd),
        Err(code) => return errno::null(code),
    };
    let public = ibv_comp_channel { context, fd: fd.raw(), refcnt: 0 };
    let core = CompChannel::new(after_lock(Box::new(Waker(Arc::clone(&fd)))));
    let waiter = Arc::new(EventWaiter::new(Arc::clone(&core)));
    // SAFETY: open by contract.
    let context = unsafe { Held::new(context) };
    CompChannelObject::make(public, CompChannelTail { core, waiter, fd, context })
}

/// `ibv_destroy_comp_channel`: `EBUSY` while a completion queue uses it. A thread that waits for
/// its events is not woken.
///
/// # Safety
/// `channel` came from [`ibv_create_comp_channel`] and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    pass_when_off!(ibv_destroy_comp_channel(channel), pass::channel::destroy);
    // SAFETY: alive by contract.
    if unsafe { tail(channel) }.context.is_inherited() {
        return 0;
    }
    // SAFETY: alive by contract.
    if unsafe { users(channel) }.load(Ordering::Acquire) > 0 {
        return errno::code(libc::EBUSY);
    }
    // SAFETY: not used afterwards by contract.
    unsafe { CompChannelObject::free(channel) };
    0
}

/// `ibv_get_cq_event`: 0, or -1 with `errno`.
///
/// # Safety
/// `channel` is alive; `cq` and `cq_context` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    pass_when_off!(ibv_get_cq_event(channel, cq, cq_context), pass::channel::get_cq_event);
    // SAFETY: alive by contract.
    let tail = unsafe { tail(channel) };
    // The application may destroy the channel while this thread waits.
    let object = keeping(&tail.core, |core| {
        keeping(&tail.waiter, |waiter| keeping(&tail.fd, |fd| next_object(core, waiter, fd)))
    });
    let object = match object {
        Ok(object) => object,
        Err(code) => return errno::minus_one(code),
    };
    // SAFETY: writable by contract.
    unsafe { cq.write(object) };
    // SAFETY: the object is alive, as destruction waits for this event's acknowledgement.
    let context = unsafe { (*object).cq_context };
    // SAFETY: writable by contract.
    unsafe { cq_context.write(context) };
    0
}

/// The queue of the next event; else the errno of the system.
fn next_object(
    core: &CompChannel,
    waiter: &EventWaiter,
    fd: &EventFd,
) -> Result<*mut ibv_cq, c_int> {
    loop {
        waiter.wait(fd)?;
        // Nothing when the queue was destroyed after its event was counted.
        match core.pop() {
            None => {
                fd.settle();
            }
            Some(cookie) => {
                if let Some(object) = registry::report(cookie, EventSource::Completion) {
                    return Ok(object);
                }
            }
        }
    }
}

/// `ibv_ack_cq_events`.
///
/// # Safety
/// `cq` came from [`ibv_get_cq_event`], and `count` of its events are not acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: u32) {
    pass_when_off!(ibv_ack_cq_events(cq, count), pass::channel::ack_cq_events);
    if count > 0 {
        // SAFETY: alive by contract.
        unsafe { cq::completion_acks(cq).add(count) };
    }
}
