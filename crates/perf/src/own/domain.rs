//! Protection domain and completion queue, shared by all connections of a side.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use weft_host::{Context, HostCq, Pd, after_lock};
use weft_verbs::{CompChannel, Misuse, Wake, Wc, WcStatus};

use super::cm::HostCmId;
use super::{EventBell, host};
use crate::terms::{PerfLimits, SuccessfulCompletion};

/// Completions that are taken at once.
const BATCH: usize = 32;
/// Reads and Atomics under way that are asked for, as of every other device.
const READS_MAX: u32 = 16;

/// A protection domain with one queue of completions.
pub struct HostDomain {
    pub(super) context: Arc<Context>,
    pub(super) pd: Arc<Pd>,
    pub(super) cq: Arc<HostCq>,
    channel: Arc<CompChannel>,
    bell: EventBell,
}

/// Events of the device, which matter to nobody here: what they say of a connection is seen there.
struct DeviceEvents;

impl Wake for DeviceEvents {
    fn wake(&self) {}
}

impl HostDomain {
    /// On the device of an id whose address is resolved, with room for so many completions.
    ///
    /// # Errors
    /// The device refuses.
    pub fn open(id: &HostCmId, completions: u32) -> Result<Self> {
        let device = id.device_id().context("the id has no device")?;
        let context = Context::open(host(), device, Box::new(DeviceEvents));
        let context = context.map_err(refused("opening the device"))?;
        let bell = EventBell::new()?;
        let channel = CompChannel::new(after_lock(bell.wake()));
        let room = completions.min(limits(&context).completions);
        let cq = context.create_cq(room, Some(Arc::clone(&channel)), 0);
        let cq = cq.map_err(refused("making a completion queue"))?;
        let pd = context.alloc_pd();
        Ok(Self { context, pd, cq, channel, bell })
    }

    /// How much its device takes.
    pub fn limits(&self) -> PerfLimits {
        limits(&self.context)
    }

    /// Whether an id is on the same device.
    pub fn is_of(&self, id: &HostCmId) -> bool {
        id.device_id() == Some(self.context.id())
    }

    /// Polls completions and passes each to `each`; returns how many there were.
    ///
    /// # Errors
    /// A request failed.
    pub fn poll(&self, mut each: impl FnMut(SuccessfulCompletion) -> Result<()>) -> Result<usize> {
        let mut completions = [Wc::default(); BATCH];
        let count = self.cq.poll(&mut completions);
        let count = count.map_err(|_| anyhow!("the queue of completions has overflowed"))?;
        for completion in &completions[..count.min(BATCH)] {
            if completion.status != WcStatus::Success as u32 {
                bail!("a request failed: {}", status(completion.status));
            }
            each(SuccessfulCompletion { number: completion.wr_id })?;
        }
        Ok(count)
    }

    /// Arms the completion queue. The caller polls once more before it sleeps.
    ///
    /// # Errors
    /// None; another device may refuse.
    pub fn arm(&self) -> Result<()> {
        self.cq.req_notify(false);
        Ok(())
    }

    /// Readable when an armed queue has an event.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.fd()
    }

    /// Takes an event; blocks until there is one.
    ///
    /// # Errors
    /// The descriptor cannot be read.
    pub fn take_event(&self) -> Result<()> {
        self.bell.take()?;
        self.channel.pop();
        Ok(())
    }
}

impl Drop for HostDomain {
    fn drop(&mut self) {
        // Queue pairs and regions keep their domain, so that there is none left, and both calls
        // succeed.
        let _ = self.cq.destroy();
        let _ = self.context.dealloc_pd(&self.pd);
    }
}

fn limits(context: &Context) -> PerfLimits {
    let of = context.limits();
    PerfLimits { completions: of.max_cqe, reads: of.max_qp_rd_atom.min(READS_MAX) as u8 }
}

/// What failed, and why.
pub(super) fn refused(what: &'static str) -> impl FnOnce(Misuse) -> anyhow::Error {
    move |misuse| anyhow!("{what}: {misuse}")
}

/// The words of `ibv_wc_status_str` for what connections of this command end with.
fn status(raw: u32) -> String {
    let known = [
        (WcStatus::LocLenErr, "local length error"),
        (WcStatus::LocProtErr, "local protection error"),
        (WcStatus::WrFlushErr, "flushed"),
        (WcStatus::RemInvReqErr, "remote invalid request"),
        (WcStatus::RemAccessErr, "remote access error"),
        (WcStatus::RemOpErr, "remote operation error"),
        (WcStatus::RetryExcErr, "retries exceeded"),
        (WcStatus::RnrRetryExcErr, "receiver-not-ready retries exceeded"),
        (WcStatus::FatalErr, "fatal error"),
    ];
    let found = known.iter().find(|(status, _)| *status as u32 == raw);
    found.map_or_else(|| format!("status {raw}"), |(_, text)| (*text).to_owned())
}
