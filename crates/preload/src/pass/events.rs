//! Asynchronous events: those of the device, and those of the plan between them.

use std::collections::VecDeque;
use std::ffi::c_int;

use weft_os::clock::{self, Moment};
use weft_sync::Mutex;
use weft_verbs::AsyncKind;
use weft_verbs_abi::*;

use super::context;
use super::wait::StandInFd;
use crate::errno;

/// The port of events of devices and ports: the plan is of the first one.
const PORT: c_int = 1;

/// What has an address of its own and is told of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EventKey {
    object: usize,
    kind: c_int,
}

#[derive(Default)]
struct PlannedEvents {
    queued: VecDeque<(AsyncKind, usize)>,
    /// Events of the plan that the application has not acknowledged: the provider knows nothing of
    /// them.
    unacked: Vec<(EventKey, u32)>,
}

/// The events of a context.
pub struct PassEvents {
    fd: StandInFd,
    planned: Mutex<PlannedEvents>,
    /// Held while the C structure shows the kernel's descriptor.
    swapped: Mutex<()>,
}

impl PassEvents {
    /// For a context whose descriptor is `async_fd`; none if the system has no more descriptors.
    pub fn new(async_fd: c_int) -> Option<Self> {
        let fd = StandInFd::new(async_fd)?;
        Some(Self { fd, planned: Mutex::default(), swapped: Mutex::default() })
    }

    /// The descriptor that the application waits on.
    pub fn raw(&self) -> c_int {
        self.fd.raw()
    }

    /// The kernel's descriptor.
    pub fn real(&self) -> c_int {
        self.fd.real()
    }

    /// Becomes readable at `next`, or now if an event is queued.
    pub fn schedule(&self, next: Option<Moment>) {
        let is_queued = !self.planned.lock().queued.is_empty();
        self.fd.schedule(if is_queued { Some(clock::now()) } else { next });
    }

    /// Queues an event of the port or the device; the caller schedules.
    pub fn push_of_port(&self, kind: AsyncKind) {
        self.planned.lock().queued.push_back((kind, PORT as usize));
    }

    /// Tells of an event of `object`.
    pub fn push<P>(&self, kind: AsyncKind, object: *mut P) {
        self.planned.lock().queued.push_back((kind, object as usize));
        self.fd.schedule(Some(clock::now()));
    }

    /// Forgets events of an object that is destroyed.
    pub fn forget<P>(&self, object: *mut P) {
        let object = object as usize;
        let mut planned = self.planned.lock();
        planned.queued.retain(|(_, other)| *other != object);
        planned.unacked.retain(|(key, _)| key.object != object);
    }

    fn pop(&self) -> Option<ibv_async_event> {
        let mut planned = self.planned.lock();
        let (kind, object) = planned.queued.pop_front()?;
        let key = EventKey { object, kind: kind as c_int };
        if object == PORT as usize {
            let element = ibv_async_element { port_num: PORT };
            return Some(ibv_async_event { element, event_type: key.kind });
        }
        match planned.unacked.iter_mut().find(|(other, _)| *other == key) {
            Some((_, count)) => *count += 1,
            None => planned.unacked.push((key, 1)),
        }
        let element = ibv_async_element { qp: object as *mut ibv_qp };
        Some(ibv_async_event { element, event_type: key.kind })
    }

    /// Takes an acknowledgement that is of an event of the plan.
    fn ack(&self, key: EventKey) -> bool {
        let mut planned = self.planned.lock();
        let own = planned.unacked.iter_mut().find(|(other, count)| *other == key && *count > 0);
        own.map(|(_, count)| *count -= 1).is_some()
    }

    /// Does something while `context`, which this is of, shows the kernel's descriptor: reads from
    /// it, which never waits, or makes an object, of which the kernel is told where its events go.
    ///
    /// # Safety
    /// `context` is open.
    pub unsafe fn with_real_fd<T>(&self, context: *mut ibv_context, act: impl FnOnce() -> T) -> T {
        let _swapped = self.swapped.lock();
        // SAFETY: open by contract. An application that reads the number at this moment gets the
        // kernel's, by which it still sees the events of the device.
        unsafe { (*context).async_fd = self.fd.real() };
        let result = act();
        // SAFETY: as above.
        unsafe { (*context).async_fd = self.fd.raw() };
        result
    }
}

/// The type of `ibv_get_async_event`.
type GetAsyncEvent = unsafe extern "C" fn(*mut ibv_context, *mut ibv_async_event) -> c_int;

/// `ibv_get_async_event`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn get_async_event(
    real: GetAsyncEvent,
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let pass = super::faults().and_then(|_| context::find(context));
    let with_events = pass.as_ref().and_then(|pass| Some((pass, pass.events.as_ref()?)));
    let Some((pass, events)) = with_events else {
        // SAFETY: the caller's arguments.
        return unsafe { real(context, event) };
    };
    loop {
        pass.tick();
        let planned = events.pop();
        events.schedule(pass.next_change());
        if let Some(planned) = planned {
            // SAFETY: writable by contract.
            unsafe { event.write(planned) };
            return 0;
        }
        // SAFETY: the caller's arguments.
        let read = || unsafe { real(context, event) };
        // SAFETY: open by contract.
        let result = unsafe { events.with_real_fd(context, read) };
        if result == 0 || errno::get() != libc::EAGAIN {
            return result;
        }
        if let Err(code) = events.fd.wait() {
            return errno::minus_one(code);
        }
    }
}

/// `ibv_ack_async_event`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn ack_async_event(
    real: unsafe extern "C" fn(*mut ibv_async_event),
    event: *mut ibv_async_event,
) {
    // SAFETY: readable by contract.
    let ibv_async_event { element, event_type: kind } = unsafe { *event };
    if matches!(kind, IBV_EVENT_CQ_ERR | IBV_EVENT_QP_FATAL) && super::faults().is_some() {
        // SAFETY: events of these kinds have the address of an object.
        let object = unsafe { element.qp } as usize;
        let key = EventKey { object, kind };
        let mut all = context::all().into_iter();
        if all.any(|context| context.events.as_ref().is_some_and(|events| events.ack(key))) {
            return;
        }
    }
    // SAFETY: the caller's argument.
    unsafe { real(event) }
}
