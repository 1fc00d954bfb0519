//! Completion channels of other providers: events of the device, and those of completions that the
//! plan made or held back.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Weak};

use weft_fault::Verb;
use weft_sync::Mutex;
use weft_verbs_abi::*;

use super::calls::refused;
use super::cq::PassCq;
use super::table::ObjectTable;
use super::wait::StandInFd;
use super::{context, cq};
use crate::errno;

static CHANNELS: ObjectTable<PassChannel> = ObjectTable::new();

/// What is known of a channel.
pub fn find(channel: *mut ibv_comp_channel) -> Option<Arc<PassChannel>> {
    CHANNELS.find(channel)
}

/// A completion channel.
pub struct PassChannel {
    fd: StandInFd,
    cqs: Mutex<Vec<(usize, Weak<PassCq>)>>,
    /// Held while the C structure shows the kernel's descriptor.
    swapped: Mutex<()>,
}

impl PassChannel {
    /// Notes a completion queue whose events come here.
    pub fn add_cq(self: &Arc<Self>, cq: &Arc<PassCq>) {
        let mut cqs = self.cqs.lock();
        cqs.retain(|(_, cq)| cq.strong_count() > 0);
        cqs.push((cq.address(), Arc::downgrade(cq)));
    }

    /// Does something with `channel`, which this is of, while its C structure shows the kernel's
    /// descriptor.
    ///
    /// # Safety
    /// `channel` is alive.
    pub unsafe fn with_real_fd<T>(
        &self,
        channel: *mut ibv_comp_channel,
        act: impl FnOnce() -> T,
    ) -> T {
        let _swapped = self.swapped.lock();
        // SAFETY: alive by contract.
        unsafe { (*channel).fd = self.fd.real() };
        let result = act();
        // SAFETY: as above.
        unsafe { (*channel).fd = self.fd.raw() };
        result
    }

    fn alive(&self) -> Vec<(usize, Arc<PassCq>)> {
        let cqs = self.cqs.lock();
        cqs.iter().filter_map(|(address, cq)| Some((*address, cq.upgrade()?))).collect()
    }

    /// Has the descriptor be readable when the next thing is due that the application waits for.
    pub fn schedule(&self) {
        self.fd.schedule(self.alive().iter().filter_map(|(_, cq)| cq.next_wanted()).min());
    }

    /// The queue that an event of the plan is due of, if there is one.
    fn take_event(&self) -> Option<*mut ibv_cq> {
        let cqs = self.alive();
        cqs.iter().for_each(|(_, cq)| cq.act());
        let found = cqs.iter().find(|(_, cq)| cq.take_event());
        found.map(|(address, _)| *address as *mut ibv_cq)
    }
}

/// `ibv_create_comp_channel`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn create(
    real: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_comp_channel,
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    if let Some(code) = refused(context, Verb::CreateCompChannel) {
        return errno::null(code);
    }
    // SAFETY: the caller's argument.
    let channel = unsafe { real(context) };
    let pass = super::faults().and_then(|_| context::find(context));
    if channel.is_null() || !pass.is_some_and(|pass| pass.needs.work) {
        return channel;
    }
    // SAFETY: just made.
    if let Some(fd) = StandInFd::new(unsafe { (*channel).fd }) {
        // SAFETY: as above; nobody else has it yet.
        unsafe { (*channel).fd = fd.raw() };
        let (cqs, swapped) = (Mutex::default(), Mutex::default());
        CHANNELS.add(channel, Arc::new(PassChannel { fd, cqs, swapped }));
    }
    channel
}

/// `ibv_destroy_comp_channel`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn destroy(
    real: unsafe extern "C" fn(*mut ibv_comp_channel) -> c_int,
    channel: *mut ibv_comp_channel,
) -> c_int {
    let Some(pass) = super::faults().and_then(|_| CHANNELS.remove(channel)) else {
        // SAFETY: the caller's argument.
        return unsafe { real(channel) };
    };
    // SAFETY: alive by contract; the provider closes what it opened.
    unsafe { (*channel).fd = pass.fd.real() };
    // SAFETY: the caller's argument.
    let result = unsafe { real(channel) };
    if result != 0 {
        // SAFETY: still alive.
        unsafe { (*channel).fd = pass.fd.raw() };
        CHANNELS.add(channel, pass);
    }
    result
}

/// `ibv_get_cq_event`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn get_cq_event(
    real: unsafe extern "C" fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int,
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    let Some(pass) = super::faults().and_then(|_| find(channel)) else {
        // SAFETY: the caller's arguments.
        return unsafe { real(channel, cq, cq_context) };
    };
    // SAFETY: alive by contract.
    let context = unsafe { (*channel).context };
    loop {
        let planned = pass.take_event();
        pass.schedule();
        if let Some(planned) = planned {
            // SAFETY: a queue is not destroyed while an event of it is not acknowledged.
            let context = unsafe { (*planned).cq_context };
            // SAFETY: writable by contract.
            unsafe { cq.write(planned) };
            // SAFETY: as above.
            unsafe { cq_context.write(context) };
            return 0;
        }
        // The real function reads the descriptor of the structure, and nothing else of it.
        let mut view = ibv_comp_channel { context, fd: pass.fd.real(), refcnt: 0 };
        // SAFETY: as the C function's contract.
        let result = unsafe { real(&raw mut view, cq, cq_context) };
        if result == 0 {
            // SAFETY: the provider has written the queue.
            if let Some(cq) = cq::find(unsafe { *cq }) {
                cq.disarm();
            }
            return 0;
        }
        if errno::get() != libc::EAGAIN {
            return result;
        }
        if let Err(code) = pass.fd.wait() {
            return errno::minus_one(code);
        }
    }
}

/// `ibv_ack_cq_events`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn ack_cq_events(
    real: unsafe extern "C" fn(*mut ibv_cq, u32),
    cq: *mut ibv_cq,
    count: u32,
) {
    let pass = super::faults().and_then(|_| cq::find(cq));
    let count = pass.map_or(count, |pass| pass.ack(count));
    if count > 0 {
        // SAFETY: the caller's arguments.
        unsafe { real(cq, count) };
    }
}
