//! Zero-copy sending: memory of this side that the peer reads; one byte is sent along, the rest is
//! fetched (SD-40).

use weft_verbs::Misuse;
use weft_wire::sdp::{Advert, Flags, MessageId, Mode, SdpMessage};

use super::SdpConnection;
use crate::error::{SdpFault, Violation};
use crate::verbs::{AppMemory, Verbs};

/// Bytes that go along with an advertisement in combined mode; at least one must (SD-40).
const ALONG: u32 = 1;
/// Timeout of an advertisement, and of a cancellation, 1 s (SD-43).
const OFFER_NS: u64 = 1_000_000_000;
const CANCEL_NS: u64 = 5_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceStage {
    /// What was sent before still waits.
    Queued,
    /// The peer may read, for as long as this.
    Offered { until_ns: u64 },
    /// It shall stop, and say so, in this time.
    Cancelled { until_ns: u64 },
    /// It is written where the peer invited it.
    Writing,
}

/// Memory that is being sent from.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendSource {
    memory: AppMemory,
    /// Bytes that the peer has.
    taken: u32,
    stage: SourceStage,
    asked_ns: u64,
}

impl SendSource {
    /// Whether the peer may be reading it.
    fn is_read(&self) -> bool {
        matches!(self.stage, SourceStage::Offered { .. } | SourceStage::Cancelled { .. })
    }
}

impl SdpConnection {
    /// Whether `octets` are better sent by [`SdpConnection::send_from`], which is possible now.
    pub fn prefers_source(&self, octets: u64) -> bool {
        octets >= u64::from(self.config.zero_copy_octets.max(ALONG + 1))
            && self.terms.send != Mode::Buffered
            && self.source.is_none()
            && self.check_open().is_ok()
    }

    /// Lets the peer read `len` bytes from the address `addr` of this process, and sends them
    /// otherwise as far as it does not. [`SdpEvent::Sent`](crate::SdpEvent::Sent) tells how many it
    /// has; until then the memory must stay as it is, and [`SdpConnection::send`] takes nothing.
    /// The owner sends the rest, if there is one.
    ///
    /// # Errors
    /// [`SdpFault::Verbs`] if [`SdpConnection::prefers_source`] says no, or the memory cannot be
    /// registered; then the connection goes on.
    pub fn send_from(
        &mut self,
        verbs: &mut impl Verbs,
        addr: u64,
        len: u32,
        now_ns: u64,
    ) -> Result<(), SdpFault> {
        self.check_open()?;
        if !self.prefers_source(u64::from(len)) {
            return Err(Misuse::Busy.into());
        }
        let key = verbs.register(addr, len, false)?;
        let memory = AppMemory { addr, len, key };
        self.source =
            Some(SendSource { memory, taken: 0, stage: SourceStage::Queued, asked_ns: now_ns });
        self.try_to(verbs, Self::flush)
    }

    /// Takes back what the peer has not read; [`SdpEvent::Sent`](crate::SdpEvent::Sent) follows.
    ///
    /// # Errors
    /// Why the connection failed.
    pub fn cancel_source(&mut self, verbs: &mut impl Verbs, now_ns: u64) -> Result<(), SdpFault> {
        self.fault.map_or(Ok(()), Err)?;
        self.try_to(verbs, |this, verbs| {
            this.withdraw(verbs, now_ns)?;
            this.flush(verbs)
        })
    }

    /// When [`SdpConnection::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<u64> {
        match self.source.as_ref().filter(|_| self.fault.is_none())?.stage {
            SourceStage::Queued | SourceStage::Writing => None,
            SourceStage::Offered { until_ns } | SourceStage::Cancelled { until_ns } => {
                Some(until_ns)
            }
        }
    }

    /// Does what is due at `now_ns`, on the clock of [`SdpConnection::send_from`].
    pub fn handle_timeout(&mut self, verbs: &mut impl Verbs, now_ns: u64) {
        let Some(_) = self.poll_timeout().filter(|due| *due <= now_ns) else { return };
        // What failed is kept, and told as an event.
        let _ = self.try_to(verbs, |this, verbs| match this.source.map(|source| source.stage) {
            Some(SourceStage::Cancelled { .. }) => Err(SdpFault::Reset),
            _ => {
                this.withdraw(verbs, now_ns)?;
                this.flush(verbs)
            }
        });
    }

    /// Whether the memory that is sent from waits for its turn.
    pub(super) fn is_source_queued(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.stage == SourceStage::Queued)
    }

    /// Has at most `octets` of the memory written; gives it.
    pub(super) fn begin_write(&mut self, octets: u32) -> Option<AppMemory> {
        let source = self.source.as_mut()?;
        let len = source.memory.len.min(octets);
        (source.stage, source.taken) = (SourceStage::Writing, len);
        Some(AppMemory { len, ..source.memory })
    }

    /// Whether the memory is advertised.
    pub(super) fn is_source_offered(&self) -> bool {
        self.source.as_ref().is_some_and(SendSource::is_read)
    }

    /// The peer has discarded the advertisement. Its turn comes again, unless it was to be taken
    /// back.
    pub(super) fn recall_source(&mut self, verbs: &mut impl Verbs) {
        let Some(source) = &mut self.source else { return };
        match source.stage {
            SourceStage::Offered { .. } => source.stage = SourceStage::Queued,
            SourceStage::Cancelled { .. } => self.finish_source(verbs),
            SourceStage::Queued | SourceStage::Writing => {}
        }
    }

    /// Whether payload must wait for the memory that is sent from.
    pub(super) fn is_source_open(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.stage != SourceStage::Queued)
    }

    /// Advertises the memory, if it is its turn; tells whether it was.
    pub(super) fn advertise(&mut self, verbs: &mut impl Verbs) -> Result<bool, SdpFault> {
        let turn =
            self.outbox.is_empty() && self.outbox.has_control() && self.credits.permit_data();
        let Some(source) = self.source.as_mut().filter(|s| turn && s.stage == SourceStage::Queued)
        else {
            return Ok(false);
        };
        self.invitations.sent = self.invitations.sent.wrapping_add(1);
        source.stage = SourceStage::Offered { until_ns: source.asked_ns + OFFER_NS };
        let along = AppMemory { len: ALONG, ..source.memory };
        let along = (self.terms.send == Mode::Combined).then_some(along);
        source.taken = along.map_or(0, |along| along.len);
        let AppMemory { addr, len, key } = source.memory;
        let message = SdpMessage::SrcAvail(Advert { size: len, rkey: key, addr });
        let Some(slot) = self.outbox.take_control() else { return Ok(false) };
        self.post_message(verbs, slot, message, 0, along, Flags::default())?;
        Ok(true)
    }

    /// The peer has read `octets` more.
    pub(super) fn handle_read(
        &mut self,
        verbs: &mut impl Verbs,
        octets: u32,
    ) -> Result<(), SdpFault> {
        let Some(source) = self.source.as_mut().filter(|s| s.is_read()) else {
            return Err(Violation::Unexpected("it has read what was not advertised").into());
        };
        let left = source.memory.len - source.taken;
        if octets == 0 || octets > left {
            return Err(Violation::Unexpected("it has read more than was advertised").into());
        }
        source.taken += octets;
        if octets == left {
            self.finish_source(verbs);
        }
        Ok(())
    }

    /// The peer wants the rest by Sends.
    pub(super) fn handle_decline(&mut self, verbs: &mut impl Verbs) -> Result<(), SdpFault> {
        if !self.is_source_offered() {
            return Err(Violation::Unexpected("it declines what was not advertised").into());
        }
        self.finish_source(verbs);
        Ok(())
    }

    /// The peer advertises, too: both would wait for each other's reads (SD-42).
    pub(super) fn handle_crossing(&mut self, verbs: &mut impl Verbs) -> Result<(), SdpFault> {
        let asked_ns = self.source.as_ref().map_or(0, |source| source.asked_ns);
        if self.is_source_open() { self.withdraw(verbs, asked_ns) } else { Ok(()) }
    }

    fn withdraw(&mut self, verbs: &mut impl Verbs, now_ns: u64) -> Result<(), SdpFault> {
        let Some(source) = &mut self.source else { return Ok(()) };
        match source.stage {
            SourceStage::Queued => self.finish_source(verbs),
            SourceStage::Offered { .. } => {
                source.stage = SourceStage::Cancelled { until_ns: now_ns + CANCEL_NS };
                self.queue(SdpMessage::Plain(MessageId::SrcAvailCancel))?;
            }
            SourceStage::Cancelled { .. } | SourceStage::Writing => {}
        }
        Ok(())
    }

    /// The memory is the owner's again.
    pub(super) fn finish_source(&mut self, verbs: &mut impl Verbs) {
        let Some(source) = self.source.take() else { return };
        verbs.deregister(source.memory.key);
        self.pending.sent = Some(source.taken);
    }
}
