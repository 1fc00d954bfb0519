//! Work requests.

use weft_verbs::{SendFlags, SendOp, Sge};

use crate::address::Address;
use crate::device::ProtectionDomain;
use crate::region::{RegionSlice, RemoteKey};
use crate::{Error, Result};

/// Slices of one request: a slice, or a reference to several.
#[derive(Clone, Copy, Debug)]
pub struct Slices<'a>(pub(crate) &'a [RegionSlice]);

impl<'a> From<&'a RegionSlice> for Slices<'a> {
    fn from(one: &'a RegionSlice) -> Self {
        Self(std::slice::from_ref(one))
    }
}

impl<'a> From<&'a [RegionSlice]> for Slices<'a> {
    fn from(many: &'a [RegionSlice]) -> Self {
        Self(many)
    }
}

impl<'a, const N: usize> From<&'a [RegionSlice; N]> for Slices<'a> {
    fn from(many: &'a [RegionSlice; N]) -> Self {
        Self(many)
    }
}

impl<'a> From<&'a Vec<RegionSlice>> for Slices<'a> {
    fn from(many: &'a Vec<RegionSlice>) -> Self {
        Self(many)
    }
}

/// Slices that a request may have, at most: what the devices offer.
const SLICES_MAX: usize = 32;

/// The entries that the engine takes.
pub(crate) struct Entries {
    all: [Sge; SLICES_MAX],
    count: usize,
}

impl Entries {
    /// The entries of slices of regions of `domain`.
    pub fn new(
        during: &'static str,
        domain: &ProtectionDomain,
        slices: &[RegionSlice],
    ) -> Result<Self> {
        if slices.iter().any(|slice| !slice.region().is_in(domain)) {
            return Err(Error::invalid(during, "a region is of another protection domain"));
        }
        if slices.len() > SLICES_MAX {
            return Err(Error::invalid(during, "a request has 32 slices at most"));
        }
        let mut all = [Sge::default(); SLICES_MAX];
        for (entry, slice) in all.iter_mut().zip(slices) {
            *entry = slice.entry();
        }
        Ok(Self { all, count: slices.len() })
    }

    pub fn as_slice(&self) -> &[Sge] {
        &self.all[..self.count]
    }
}

/// Where the bytes of a request are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// In regions.
    Slices(&'a [RegionSlice]),
    /// In ordinary memory, to be copied when it is posted.
    Inline(&'a [u8]),
}

/// A request for a send queue, for [`QueuePair::post`](crate::QueuePair::post).
#[derive(Clone, Copy, Debug)]
#[must_use = "work does nothing unless it is posted"]
pub struct Work<'a> {
    op: SendOp,
    pub(crate) payload: Payload<'a>,
    remote: Option<RemoteKey>,
    imm: Option<u32>,
    invalidates: Option<u32>,
    pub(crate) flags: SendFlags,
    pub(crate) to: Option<Address>,
}

impl<'a> Work<'a> {
    fn new(op: SendOp, payload: Payload<'a>, remote: Option<RemoteKey>) -> Self {
        let (imm, invalidates, to) = (None, None, None);
        Self { op, payload, remote, imm, invalidates, flags: SendFlags::SIGNALED, to }
    }

    /// Sends slices to a receive of the peer.
    pub fn send(slices: impl Into<Slices<'a>>) -> Self {
        Self::new(SendOp::Send, Payload::Slices(slices.into().0), None)
    }

    /// Sends bytes that are copied when the request is posted: as many as
    /// [`QueuePairOptions::inline_bytes`](crate::QueuePairOptions::inline_bytes) at most.
    pub fn send_inline(bytes: &'a [u8]) -> Self {
        let work = Self::new(SendOp::Send, Payload::Inline(bytes), None);
        Self { flags: work.flags | SendFlags::INLINE, ..work }
    }

    /// Writes slices into memory of the peer.
    pub fn write(slices: impl Into<Slices<'a>>, remote: RemoteKey) -> Self {
        let op = SendOp::Write { to: remote.addr, stag: remote.rkey };
        Self::new(op, Payload::Slices(slices.into().0), Some(remote))
    }

    /// Reads memory of the peer into slices.
    pub fn read(slices: impl Into<Slices<'a>>, remote: RemoteKey) -> Self {
        let op = SendOp::Read { to: remote.addr, stag: remote.rkey };
        Self::new(op, Payload::Slices(slices.into().0), Some(remote))
    }

    /// Adds to the 64 bits at `remote`, a multiple of 8; the old value comes into the slice.
    pub fn fetch_add(old: &'a RegionSlice, remote: RemoteKey, add: u64) -> Self {
        let op = SendOp::FetchAdd { to: remote.addr, stag: remote.rkey, add };
        Self::new(op, Payload::Slices(Slices::from(old).0), Some(remote))
    }

    /// Sets the 64 bits at `remote`, a multiple of 8, to `swap` if they are `compare`; the old
    /// value comes into the slice.
    pub fn compare_swap(old: &'a RegionSlice, remote: RemoteKey, compare: u64, swap: u64) -> Self {
        let op = SendOp::CmpSwap { to: remote.addr, stag: remote.rkey, compare, swap };
        Self::new(op, Payload::Slices(Slices::from(old).0), Some(remote))
    }

    /// The same, with four bytes of immediate data: they come with the completion of the peer's
    /// receive, which a Write then takes too.
    pub fn with_imm(self, imm: u32) -> Self {
        Self { imm: Some(imm), ..self }
    }

    /// The same Send, which also takes the key of a region from the peer (Send with Invalidate):
    /// neither side can use the region in requests any more once the message is there. The peer
    /// finds the key in [`Completion::invalidated`](crate::Completion::invalidated).
    pub fn invalidating(self, key: RemoteKey) -> Self {
        Self { invalidates: Some(key.rkey), ..self }
    }

    /// The same, begun only when all earlier Reads and Atomics of the queue are complete.
    pub fn fenced(self) -> Self {
        Self { flags: self.flags | SendFlags::FENCE, ..self }
    }

    /// The same, without a completion if it succeeds. It keeps its regions until a later request
    /// of its queue completes, and its place in the queue as long, so post one with a completion
    /// now and then.
    pub fn silent(self) -> Self {
        Self { flags: self.flags - SendFlags::SIGNALED, ..self }
    }

    /// The same, as a datagram to the queue pair at `address`.
    pub fn to(self, address: Address) -> Self {
        Self { to: Some(address), ..self }
    }

    /// The engine's operation.
    pub(crate) fn operation(&self, during: &'static str) -> Result<SendOp> {
        self.check_remote(during)?;
        match (self.op, self.imm.map(u32::to_be), self.invalidates) {
            (op, None, None) => Ok(op),
            (SendOp::Send, None, Some(stag)) => Ok(SendOp::SendInv { stag }),
            (SendOp::Send, Some(imm), None) => Ok(SendOp::SendImm { imm }),
            (SendOp::Write { to, stag }, Some(imm), None) => Ok(SendOp::WriteImm { to, stag, imm }),
            (_, _, None) => Err(Error::invalid(during, "immediate data goes with Send and Write")),
            (SendOp::Send, ..) => {
                Err(Error::invalid(during, "a Send with immediate data invalidates no key"))
            }
            (..) => Err(Error::invalid(during, "only a Send invalidates a key")),
        }
    }

    fn check_remote(&self, during: &'static str) -> Result<()> {
        let (Some(remote), Payload::Slices(slices)) = (self.remote, self.payload) else {
            return Ok(());
        };
        let len = slices.iter().map(|slice| u64::from(slice.len())).sum();
        if self.op.is_atomic() && len != size_of::<u64>() as u64 {
            return Err(Error::invalid(during, "the result of an Atomic has 8 bytes"));
        }
        if len > remote.len {
            return Err(Error::Range { during, offset: 0, len, size: remote.len });
        }
        Ok(())
    }
}
