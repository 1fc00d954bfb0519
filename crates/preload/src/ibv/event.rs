//! Asynchronous events.

use std::ffi::c_int;

use weft_host::{Context, EventCounter};
use weft_verbs::{AsyncEvent, AsyncKind};

use super::object::AckCounts;
use super::query::PORT;
use super::registry::{self, EventSource};
use super::{context, cq, qp, srq};
use crate::errno;
use crate::fd::EventFd;
use crate::kept::keeping;
use crate::pass;
use crate::real::pass_when_off;
use weft_verbs_abi::*;

/// `ibv_get_async_event`: 0, or -1 with `errno`.
///
/// # Safety
/// `context` is open and `event` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    pass_when_off!(ibv_get_async_event(context, event), pass::events::get_async_event);
    // SAFETY: open by contract.
    let tail = unsafe { context::tail(context) };
    let next = |core: &Context, fd: &EventFd| {
        loop {
            fd.take()?;
            match core.poll_async() {
                None => {
                    fd.settle();
                }
                Some(event) => {
                    if let Some(found) = resolve(event) {
                        return Ok(found);
                    }
                }
            }
        }
    };
    match keeping(&tail.core, |core| keeping(&tail.events, |fd| next(core, fd))) {
        Ok(found) => {
            // SAFETY: writable by contract.
            unsafe { event.write(found) };
            0
        }
        Err(code) => errno::minus_one(code),
    }
}

/// The event in C, if its object is still there.
fn resolve(event: AsyncEvent) -> Option<ibv_async_event> {
    let element = match event.kind {
        AsyncKind::CqErr => ibv_async_element { cq: find(event.cookie)? },
        AsyncKind::SrqErr | AsyncKind::SrqLimitReached => {
            ibv_async_element { srq: find(event.cookie)? }
        }
        AsyncKind::PortErr
        | AsyncKind::PortActive
        | AsyncKind::DeviceFatal
        | AsyncKind::LidChange
        | AsyncKind::PkeyChange
        | AsyncKind::GidChange => ibv_async_element { port_num: PORT.into() },
        _ => ibv_async_element { qp: find(event.cookie)? },
    };
    Some(ibv_async_event { element, event_type: event.kind as c_int })
}

fn find<T>(cookie: u64) -> Option<*mut T> {
    registry::report(cookie, EventSource::Asynchronous)
}

/// `ibv_ack_async_event`.
///
/// # Safety
/// `event` came from [`ibv_get_async_event`] and is acknowledged once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    pass_when_off!(ibv_ack_async_event(event), pass::events::ack_async_event);
    // SAFETY: readable by contract.
    let event = unsafe { *event };
    if let Some(acks) = acks(event) {
        // SAFETY: the object lives until this event is acknowledged.
        unsafe { acks.add(1) };
    }
}

fn acks(event: ibv_async_event) -> Option<AckCounts> {
    let element = event.element;
    Some(match event.event_type {
        // SAFETY: events of this type name a completion queue.
        IBV_EVENT_CQ_ERR => cq::async_acks(unsafe { element.cq }),
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
            // SAFETY: events of these types name a shared receive queue.
            srq::acks(unsafe { element.srq })
        }
        IBV_EVENT_QP_FATAL
        | IBV_EVENT_QP_REQ_ERR
        | IBV_EVENT_QP_ACCESS_ERR
        | IBV_EVENT_COMM_EST
        | IBV_EVENT_SQ_DRAINED
        | IBV_EVENT_PATH_MIG
        | IBV_EVENT_PATH_MIG_ERR
        | IBV_EVENT_QP_LAST_WQE_REACHED => {
            // SAFETY: events of these types name a queue pair.
            qp::acks(unsafe { element.qp })
        }
        _ => return None,
    })
}
