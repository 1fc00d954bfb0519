//! Transmission: which message is posted when.

use weft_wire::sdp::{self, Flags, MessageId, SdpMessage};

use super::SdpConnection;
use crate::config::SdpStyle;
use crate::error::SdpFault;
use crate::verbs::{AppMemory, SdpWork, Verbs};

impl SdpConnection {
    /// Posts whatever may be posted now. To be called after everything that can change that.
    pub(super) fn flush(&mut self, verbs: &mut impl Verbs) -> Result<(), SdpFault> {
        while self.step(verbs)? {}
        self.note_room();
        Ok(())
    }

    /// Posts one message; tells whether there was one. What answers the peer goes before payload
    /// of ours, and what only counts receives goes last, because all others tell that too.
    fn step(&mut self, verbs: &mut impl Verbs) -> Result<bool, SdpFault> {
        let control = self.outbox.has_control() && self.credits.permit_control();
        if control && let Some(message) = self.controls.pop_front() {
            self.post_control(verbs, message)?;
        } else if self.permit_data() {
            self.post_data(verbs)?;
        } else if self.write_invited(verbs)? || self.advertise(verbs)? {
            // That is its message.
        } else if control && self.owes_end() {
            self.ends.told = true;
            self.post_control(verbs, SdpMessage::Plain(MessageId::DisConn))?;
        } else if control && self.outbox.has_urgent() && !self.urgent_told
            || self.outbox.has_control() && self.credits.owes_update()
        {
            self.post_control(verbs, SdpMessage::Plain(MessageId::Data))?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn permit_data(&mut self) -> bool {
        if self.style == SdpStyle::Enhanced {
            let flying = self.outbox.flying();
            let limit =
                if self.below_takes { self.config.high_octets } else { self.config.low_octets };
            self.below_takes = flying < u64::from(limit.max(1));
        }
        let closed = self.outbox.is_empty() || self.is_source_open();
        // What was written where the peer invited it is told before anything else is sent.
        !closed && self.controls.is_empty() && self.below_takes && self.credits.permit_data()
    }

    fn owes_end(&self) -> bool {
        self.ends.shut && !self.ends.told && self.outbox.is_empty() && self.source.is_none()
    }

    fn post_data(&mut self, verbs: &mut impl Verbs) -> Result<(), SdpFault> {
        let urgent = self.pending_flag();
        let Some(draft) = self.outbox.pop() else { return Ok(()) };
        self.decline_invitation();
        self.invitations.sent = self.invitations.sent.wrapping_add(1);
        let present = if draft.urgent { Flags::OOB_PRESENT.0 } else { 0 };
        let flags = Flags(urgent.0 | present);
        self.post_message(
            verbs,
            draft.slot,
            SdpMessage::Plain(MessageId::Data),
            draft.len,
            None,
            flags,
        )
    }

    fn post_control(
        &mut self,
        verbs: &mut impl Verbs,
        message: SdpMessage,
    ) -> Result<(), SdpFault> {
        let flags = self.pending_flag();
        let Some(slot) = self.outbox.take_control() else { return Ok(()) };
        self.post_message(verbs, slot, message, 0, None, flags)
    }

    /// Every message tells of an urgent byte that waits, or is in it (SD-30).
    fn pending_flag(&mut self) -> Flags {
        if !self.outbox.has_urgent() {
            return Flags::default();
        }
        self.urgent_told = true;
        Flags::OOB_PENDING
    }

    /// Puts the header in front of `payload` bytes that lie in `slot`, and posts the message with
    /// `tail` behind it.
    pub(super) fn post_message(
        &mut self,
        verbs: &mut impl Verbs,
        slot: u16,
        message: SdpMessage,
        payload: u32,
        tail: Option<AppMemory>,
        flags: Flags,
    ) -> Result<(), SdpFault> {
        let base = self.credits.stamp(flags);
        self.head.clear();
        let tail_len = tail.map_or(0, |tail| tail.len);
        sdp::encode(&base, &message, payload + tail_len, &mut self.head);
        let at = self.layout.send(slot);
        verbs.fill(at, &self.head)?;
        let len = self.head.len() as u32 + payload;
        verbs.post_send(SdpWork::Send(slot), at, len, tail, flags != Flags::default())?;
        Ok(())
    }

    /// Tells the peer that this side gives up, where that is allowed (SD-22).
    pub(super) fn say_abort(&mut self, verbs: &mut impl Verbs) {
        let may = self.ends.heard && self.outbox.has_control() && self.credits.permit_control();
        if may {
            // The queue pair ends either way.
            let _ = self.post_control(verbs, SdpMessage::Plain(MessageId::AbortConn));
        }
    }
}
