//! Memory of a reader that the peer writes, in pipelined mode (SD-44 to SD-46).

use weft_verbs::Misuse;
use weft_wire::sdp::{Advert, MessageId, Mode, SdpMessage};

use super::SdpConnection;
use crate::error::{SdpFault, Violation};
use crate::verbs::{AppMemory, SdpWork, Verbs};

/// Invitations to write: ours, and the peer's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Invitations {
    /// Memory that the peer may write.
    ours: Option<AppMemory>,
    /// The peer has not confirmed yet that it will not.
    cancelling: bool,
    /// Memory of the peer that may be written.
    theirs: Option<Advert>,
    /// Messages with payload, advertisements that were not discarded, and changes of the half's
    /// mode, which were sent and received; by these both ends know whether an invitation came too
    /// late (SD-45).
    pub sent: u32,
    pub received: u32,
}

impl SdpConnection {
    /// Lets the peer write at most `len` bytes to the address `addr` of this process.
    /// [`SdpEvent::Received`](crate::SdpEvent::Received) tells how many it has; until then the
    /// memory is not to be touched. None have come if the peer sends payload, or ends its half.
    ///
    /// # Errors
    /// [`SdpFault::Verbs`] if the peer's half is not in pipelined mode, there is something to read,
    /// or the memory cannot be registered; then the connection goes on.
    pub fn invite(&mut self, verbs: &mut impl Verbs, addr: u64, len: u32) -> Result<(), SdpFault> {
        self.fault.map_or(Ok(()), Err)?;
        let idle = self.inbox.len() == 0 && self.offer.is_none() && !self.ends.heard;
        let asks = &self.invitations;
        let first = asks.ours.is_none() && !asks.cancelling;
        if !(idle && first && len > 0 && self.terms.receive == Mode::Pipelined) {
            return Err(Misuse::Busy.into());
        }
        let key = verbs.register(addr, len, true)?;
        self.invitations.ours = Some(AppMemory { addr, len, key });
        let advert = Advert { size: len, rkey: key, addr };
        let non_discards = self.invitations.received;
        self.try_to(verbs, |this, verbs| {
            this.queue(SdpMessage::SinkAvail { advert, non_discards })?;
            this.flush(verbs)
        })
    }

    /// Takes the invitation back; [`SdpEvent::Received`](crate::SdpEvent::Received) follows.
    ///
    /// # Errors
    /// Why the connection failed.
    pub fn cancel_invitation(&mut self, verbs: &mut impl Verbs) -> Result<(), SdpFault> {
        self.fault.map_or(Ok(()), Err)?;
        if self.invitations.ours.is_none() || self.invitations.cancelling {
            return Ok(());
        }
        self.invitations.cancelling = true;
        self.try_to(verbs, |this, verbs| {
            this.queue(SdpMessage::Plain(MessageId::SinkAvailCancel))?;
            this.flush(verbs)
        })
    }

    /// Whether the peer waits to be written to.
    pub fn is_invited(&self) -> bool {
        self.invitations.theirs.is_some()
    }

    /// Writes the memory that is to be sent from where the peer invited it, if it did.
    pub(super) fn write_invited(&mut self, verbs: &mut impl Verbs) -> Result<bool, SdpFault> {
        if !self.outbox.is_empty() || !self.is_source_queued() {
            return Ok(false);
        }
        let Some(to) = self.invitations.theirs.take() else { return Ok(false) };
        let Some(from) = self.begin_write(to.size) else { return Ok(false) };
        verbs.post_write(SdpWork::Write, from, Advert { size: from.len, ..to })?;
        // It is posted behind the Write, and so arrives behind it.
        self.queue(SdpMessage::RdmaWrCompl(from.len))?;
        Ok(true)
    }

    /// The peer invites; not if its invitation has crossed payload of ours (SD-45).
    pub(super) fn handle_invitation(
        &mut self,
        verbs: &mut impl Verbs,
        advert: Advert,
        non_discards: u32,
    ) -> Result<(), SdpFault> {
        if self.invitations.theirs.is_some() || advert.size == 0 {
            return Err(Violation::Unexpected("more invitations than are taken").into());
        }
        if self.terms.send != Mode::Pipelined || self.ends.told {
            return Ok(());
        }
        // The peer discards an advertisement for the sake of its invitation, if that is not void
        // already because of what was sent before the advertisement.
        let crossed = self.is_source_offered();
        let before = self.invitations.sent.wrapping_sub(u32::from(crossed));
        if non_discards != before {
            return Ok(());
        }
        if crossed {
            self.invitations.sent = before;
            self.recall_source(verbs);
        }
        self.invitations.theirs = Some(advert);
        Ok(())
    }

    /// The peer takes its invitation back.
    pub(super) fn handle_invitation_cancel(&mut self) -> Result<(), SdpFault> {
        self.invitations.theirs = None;
        self.queue(SdpMessage::Plain(MessageId::SinkCancelAck))
    }

    /// The peer will not write any more, and has not.
    pub(super) fn handle_invitation_end(&mut self, verbs: &mut impl Verbs) -> Result<(), SdpFault> {
        if !std::mem::take(&mut self.invitations.cancelling) {
            return Err(Violation::Unexpected("it confirms what was not taken back").into());
        }
        self.void_invitation(verbs);
        Ok(())
    }

    /// The peer has written `octets`.
    pub(super) fn handle_written(
        &mut self,
        verbs: &mut impl Verbs,
        octets: u32,
    ) -> Result<(), SdpFault> {
        let ours = self.invitations.ours.filter(|memory| (1..=memory.len).contains(&octets));
        let Some(memory) = ours else {
            return Err(Violation::Unexpected("it has written more than it was invited to").into());
        };
        self.invitations.ours = None;
        verbs.deregister(memory.key);
        self.pending.received = Some(octets);
        Ok(())
    }

    /// Whether an advertisement of the peer is discarded, because it has crossed an invitation.
    pub(super) fn discards_offers(&self) -> bool {
        self.invitations.ours.is_some()
    }

    /// Payload is posted, or the mode changes: the invitation will be void at the peer, too.
    pub(super) fn decline_invitation(&mut self) {
        self.invitations.theirs = None;
    }

    /// The peer does not follow the invitation: the memory is the owner's again.
    pub(super) fn void_invitation(&mut self, verbs: &mut impl Verbs) {
        let Some(memory) = self.invitations.ours.take() else { return };
        verbs.deregister(memory.key);
        self.pending.received = Some(0);
    }
}
