//! Protection domain and completion queue, shared by all connections of a side.

use std::ffi::{CStr, c_int};
use std::os::fd::BorrowedFd;
use std::ptr;

use anyhow::{Context, Result, bail};
use weft_verbs_abi::*;

use super::cm::{OwnedCmId, failed};
use super::library::Library;
use crate::terms::{PerfLimits, SuccessfulCompletion};

/// Completions that are taken at once.
const BATCH: usize = 32;

/// A protection domain with one queue of completions.
pub struct VerbsDomain {
    pub(super) context: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
    pub(super) cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
    pub(super) library: &'static Library,
    poll: PollCq,
    notify: ReqNotifyCq,
    limits: PerfLimits,
}

impl VerbsDomain {
    /// On the device of an id whose address is resolved, with room for so many completions.
    ///
    /// # Errors
    /// The device refuses.
    pub fn open(id: &OwnedCmId, completions: u32) -> Result<Self> {
        let (library, context) = (id.library(), id.context());
        if context.is_null() {
            bail!("the id has no device");
        }
        // SAFETY: the context is live; so its table is readable.
        let ops = unsafe { &(*context).ops };
        let poll = ops.poll_cq.context("the device cannot poll")?;
        let notify = ops.req_notify_cq.context("the device has no events")?;
        let limits = limits(library, context)?;
        let mut domain = Self {
            context,
            pd: ptr::null_mut(),
            cq: ptr::null_mut(),
            channel: ptr::null_mut(),
            library,
            poll,
            notify,
            limits,
        };
        // SAFETY: the context is live.
        domain.pd = made(unsafe { (library.ibv_alloc_pd)(context) }, "ibv_alloc_pd")?;
        // SAFETY: the context is live.
        let channel = unsafe { (library.ibv_create_comp_channel)(context) };
        domain.channel = made(channel, "ibv_create_comp_channel")?;
        let room = completions.min(limits.completions) as c_int;
        let create = library.ibv_create_cq;
        // SAFETY: the context and the channel are live.
        let cq = unsafe { create(context, room, ptr::null_mut(), domain.channel, 0) };
        domain.cq = made(cq, "ibv_create_cq")?;
        Ok(domain)
    }

    /// How much its device takes.
    pub fn limits(&self) -> PerfLimits {
        self.limits
    }

    /// Whether an id is on the same device.
    pub fn is_of(&self, id: &OwnedCmId) -> bool {
        self.context == id.context()
    }

    /// Polls completions and passes each to `each`; returns how many there were.
    ///
    /// # Errors
    /// A request failed.
    pub fn poll(&self, mut each: impl FnMut(SuccessfulCompletion) -> Result<()>) -> Result<usize> {
        let mut completions = [ibv_wc::default(); BATCH];
        // SAFETY: the queue is live, and there is room for as many.
        let count = unsafe { (self.poll)(self.cq, BATCH as c_int, completions.as_mut_ptr()) };
        let count = usize::try_from(count).context("the queue of completions has overflowed")?;
        for completion in &completions[..count.min(BATCH)] {
            if completion.status != 0 {
                bail!("a request failed: {}", self.status(completion.status));
            }
            each(SuccessfulCompletion { number: completion.wr_id })?;
        }
        Ok(count)
    }

    fn status(&self, status: u32) -> String {
        // SAFETY: the function takes any number.
        let text = unsafe { (self.library.ibv_wc_status_str)(status) };
        // SAFETY: what it gives is a string that is never freed.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Arms the completion queue. The caller polls once more before it sleeps.
    ///
    /// # Errors
    /// The device refuses.
    pub fn arm(&self) -> Result<()> {
        // SAFETY: the queue is live.
        if unsafe { (self.notify)(self.cq, 0) } != 0 {
            bail!("the device gives no events");
        }
        Ok(())
    }

    /// Descriptor of the channel: readable when an armed queue has an event.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is live.
        let fd = unsafe { (*self.channel).fd };
        // SAFETY: the descriptor is the channel's, which lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Takes an event; blocks until there is one.
    ///
    /// # Errors
    /// The channel cannot be read.
    pub fn take_event(&self) -> Result<()> {
        let (mut cq, mut own) = (ptr::null_mut(), ptr::null_mut());
        let get = self.library.ibv_get_cq_event;
        // SAFETY: the channel is live, and both places are writable.
        if unsafe { get(self.channel, &mut cq, &mut own) } != 0 {
            return Err(failed("reading an event of completions"));
        }
        // SAFETY: the queue has had one event that is not acknowledged.
        unsafe { (self.library.ibv_ack_cq_events)(cq, 1) };
        Ok(())
    }
}

impl Drop for VerbsDomain {
    fn drop(&mut self) {
        if !self.cq.is_null() {
            // SAFETY: queue pairs keep their domain, so none uses the queue any more.
            unsafe { (self.library.ibv_destroy_cq)(self.cq) };
        }
        if !self.channel.is_null() {
            // SAFETY: the only queue of the channel is gone.
            unsafe { (self.library.ibv_destroy_comp_channel)(self.channel) };
        }
        if !self.pd.is_null() {
            // SAFETY: regions and queue pairs keep their domain, so there is none left.
            unsafe { (self.library.ibv_dealloc_pd)(self.pd) };
        }
    }
}

fn limits(library: &Library, context: *mut ibv_context) -> Result<PerfLimits> {
    // SAFETY: all zeroes are attributes.
    let mut attributes: ibv_device_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the context is live, and the attributes are writable.
    if unsafe { (library.ibv_query_device)(context, &mut attributes) } != 0 {
        return Err(failed("ibv_query_device"));
    }
    Ok(PerfLimits {
        completions: u32::try_from(attributes.max_cqe).unwrap_or(0),
        reads: attributes.max_qp_rd_atom.clamp(0, 16) as u8,
    })
}

/// What a function that gives NULL on failure made.
pub(super) fn made<T>(object: *mut T, what: &'static str) -> Result<*mut T> {
    if object.is_null() { Err(failed(what)) } else { Ok(object) }
}
