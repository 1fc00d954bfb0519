//! Reception of messages.

use weft_wire::sdp::{self, Base, Flags, HEAD_LEN_MAX, MessageId, SdpMessage};

use super::SdpConnection;
use crate::error::{SdpFault, Violation};
use crate::verbs::{SdpWork, Verbs};

/// Payload of a message: where it lies, and how long it is.
#[derive(Clone, Copy, Debug)]
struct MessagePayload {
    slot: u16,
    at: u64,
    len: u32,
}

impl SdpConnection {
    /// A message of `len` bytes has arrived in `slot`.
    pub(super) fn handle_message(
        &mut self,
        verbs: &mut impl Verbs,
        slot: u16,
        len: u32,
    ) -> Result<(), SdpFault> {
        let mut head = [0; HEAD_LEN_MAX];
        let start = self.layout.recv(slot);
        let first = HEAD_LEN_MAX.min(len as usize);
        verbs.fetch(start, &mut head[..first])?;
        let (base, message, behind) = sdp::parse_head(&head[..first], len)?;
        self.credits.accept(&base).map_err(SdpFault::Peer)?;
        let head_len = (first - behind.len()) as u32;
        let at = start + u64::from(head_len);
        let payload = MessagePayload { slot, at, len: len - head_len };
        if base.flags.contains(Flags::OOB_PENDING) || base.flags.contains(Flags::OOB_PRESENT) {
            self.pending.urgent = true;
        }
        if self.dispatch(verbs, &base, &message, payload)? {
            return Ok(());
        }
        self.post(verbs, slot)
    }

    /// Handles a message; returns whether its slot is kept for its payload.
    fn dispatch(
        &mut self,
        verbs: &mut impl Verbs,
        base: &Base,
        message: &SdpMessage,
        payload: MessagePayload,
    ) -> Result<bool, SdpFault> {
        let unexpected = |what| Err(Violation::Unexpected(what).into());
        if payload.len > 0 {
            return match message {
                SdpMessage::Plain(MessageId::Data) if self.offer.is_some() => {
                    unexpected("data behind an advertisement")
                }
                SdpMessage::Plain(MessageId::Data) => {
                    self.void_invitation(verbs);
                    self.invitations.received = self.invitations.received.wrapping_add(1);
                    self.take_payload(verbs, base, payload)
                }
                SdpMessage::SrcAvail(advert) => {
                    self.handle_offer(verbs, advert, payload.len)?;
                    self.take_payload(verbs, base, payload)
                }
                _ => unexpected("payload in a message that has none"),
            };
        }
        match message {
            SdpMessage::Plain(MessageId::Data) => {}
            SdpMessage::Plain(MessageId::DisConn) if self.ends.heard || self.offer.is_some() => {
                return unexpected("an end of the stream that was not the end");
            }
            SdpMessage::Plain(MessageId::DisConn) => {
                self.void_invitation(verbs);
                self.ends.heard = true;
                self.pending.end = true;
            }
            SdpMessage::SrcAvail(advert) if !self.discards_offers() => {
                self.handle_offer(verbs, advert, 0)?;
                self.pending.readable = true;
            }
            SdpMessage::SrcAvail(_) => {}
            SdpMessage::SinkAvail { advert, non_discards } => {
                self.handle_invitation(verbs, *advert, *non_discards)?;
            }
            SdpMessage::RdmaWrCompl(octets) => self.handle_written(verbs, *octets)?,
            SdpMessage::Plain(MessageId::SinkAvailCancel) => self.handle_invitation_cancel()?,
            SdpMessage::Plain(MessageId::SinkCancelAck) => self.handle_invitation_end(verbs)?,
            SdpMessage::ModeChange { send_half, mode } => {
                if !send_half {
                    self.void_invitation(verbs);
                }
                self.handle_mode_change(*send_half, *mode)?;
            }
            SdpMessage::ChRcvBuf(octets) => self.handle_resize(*octets)?,
            SdpMessage::ChRcvBufAck(octets) => self.handle_resized(*octets)?,
            SdpMessage::RdmaRdCompl(octets) => self.handle_read(verbs, *octets)?,
            SdpMessage::Plain(MessageId::SendSm) => self.handle_decline(verbs)?,
            SdpMessage::Plain(MessageId::SrcAvailCancel) => self.handle_cancel()?,
            SdpMessage::Plain(MessageId::AbortConn) => return Err(SdpFault::Reset),
            _ => return unexpected("a message that has no place in an open connection"),
        }
        Ok(false)
    }

    fn take_payload(
        &mut self,
        verbs: &mut impl Verbs,
        base: &Base,
        payload: MessagePayload,
    ) -> Result<bool, SdpFault> {
        if self.ends.heard {
            return Err(Violation::AfterEnd.into());
        }
        if self.ends.deaf {
            // Nobody will ever read it, and the peer must not believe so.
            self.say_abort(verbs);
            return Err(SdpFault::Aborted);
        }
        let urgent = base.flags.contains(Flags::OOB_PRESENT);
        let kept = self.inbox.push(verbs, payload.slot, payload.at, payload.len, urgent)?;
        let enough = self.inbox.len() >= u64::from(self.config.readable_octets);
        // A peer that cannot send more must not wait for a reader that waits for more.
        self.pending.readable |= enough || self.credits.is_pinched();
        Ok(kept)
    }

    /// Posts the receive of `slot` again.
    pub(super) fn post(&mut self, verbs: &mut impl Verbs, slot: u16) -> Result<(), SdpFault> {
        verbs.post_recv(SdpWork::Recv(slot), self.layout.recv(slot), self.layout.octets)?;
        self.credits.post();
        Ok(())
    }
}
