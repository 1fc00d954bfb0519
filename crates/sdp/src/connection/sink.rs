//! Zero-copy reception: memory of the peer that this side reads into the memory of its own reader
//! (SD-41).

use weft_verbs::Misuse;
use weft_wire::sdp::{Advert, MessageId, Mode, SdpMessage};

use super::SdpConnection;
use crate::error::{SdpFault, Violation};
use crate::verbs::{AppMemory, SdpWork, Verbs};

/// Advertisement of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAdvert {
    /// The rest to read.
    rest: Advert,
    /// Where the read that is under way puts it.
    reading: Option<AppMemory>,
    /// The peer cancelled it.
    cancelled: bool,
}

impl SdpConnection {
    /// Bytes behind those that are [`readable`](SdpConnection::readable) which
    /// [`SdpConnection::receive_into`] can fetch.
    pub fn advertised(&self) -> u32 {
        self.offer.filter(|offer| offer.reading.is_none()).map_or(0, |offer| offer.rest.size)
    }

    /// Fetches at most `len` bytes from the peer's memory to the address `addr` of this process.
    /// [`SdpEvent::Received`](crate::SdpEvent::Received) tells how many; until then the memory is
    /// not to be touched.
    ///
    /// # Errors
    /// [`SdpFault::Verbs`] if nothing is advertised, or something has to be read first, or the
    /// memory cannot be registered; then the connection goes on.
    pub fn receive_into(
        &mut self,
        verbs: &mut impl Verbs,
        addr: u64,
        len: u32,
    ) -> Result<(), SdpFault> {
        self.fault.map_or(Ok(()), Err)?;
        let len = len.min(self.advertised());
        let Some(offer) = self.offer.as_mut().filter(|_| len > 0 && self.inbox.len() == 0) else {
            return Err(Misuse::Busy.into());
        };
        let key = verbs.register(addr, len, true)?;
        let memory = AppMemory { addr, len, key };
        offer.reading = Some(memory);
        let from = Advert { size: len, ..offer.rest };
        self.try_to(verbs, |_, verbs| Ok(verbs.post_read(SdpWork::Read, memory, from)?))
    }

    /// The peer advertises memory, of which `along` bytes came with the message.
    pub(super) fn handle_offer(
        &mut self,
        verbs: &mut impl Verbs,
        advert: &Advert,
        along: u32,
    ) -> Result<(), SdpFault> {
        let sound = [
            (self.terms.receive != Mode::Buffered, "an advertisement in buffered mode"),
            (self.offer.is_none(), "more advertisements than are taken"),
            (!self.ends.heard, "an advertisement after the end of the stream"),
            (
                (self.terms.receive == Mode::Combined) == (along > 0),
                "octets beside what it advertises",
            ),
            (along < advert.size, "an advertisement of what came with it"),
            (advert.addr.checked_add(u64::from(advert.size)).is_some(), "memory that wraps"),
        ];
        if let Some((_, what)) = sound.into_iter().find(|(holds, _)| !holds) {
            return Err(Violation::Unexpected(what).into());
        }
        let (size, addr) = (advert.size - along, advert.addr + u64::from(along));
        let rest = Advert { size, addr, ..*advert };
        self.invitations.received = self.invitations.received.wrapping_add(1);
        self.offer = Some(PeerAdvert { rest, reading: None, cancelled: false });
        self.handle_crossing(verbs)
    }

    /// A read is complete.
    pub(super) fn handle_fetched(&mut self, verbs: &mut impl Verbs) -> Result<(), SdpFault> {
        let Some(offer) = &mut self.offer else { return Ok(()) };
        let Some(memory) = offer.reading.take() else { return Ok(()) };
        offer.rest.size -= memory.len;
        offer.rest.addr += u64::from(memory.len);
        let (left, cancelled) = (offer.rest.size, offer.cancelled);
        verbs.deregister(memory.key);
        self.pending.received = Some(memory.len);
        self.queue(SdpMessage::RdmaRdCompl(memory.len))?;
        match (left, cancelled) {
            (0, _) => self.offer = None,
            (_, true) => self.decline()?,
            _ => {}
        }
        Ok(())
    }

    /// The peer wants its memory back. If it has all been read, it knows or will.
    pub(super) fn handle_cancel(&mut self) -> Result<(), SdpFault> {
        match &mut self.offer {
            Some(offer) if offer.reading.is_some() => offer.cancelled = true,
            Some(_) => self.decline()?,
            None => {}
        }
        Ok(())
    }

    /// Asks for what is left by Sends: its reader has no memory for it. Not while it is read.
    pub(super) fn decline(&mut self) -> Result<(), SdpFault> {
        if self.offer.take_if(|offer| offer.reading.is_none()).is_some() {
            self.queue(SdpMessage::Plain(MessageId::SendSm))?;
        }
        Ok(())
    }

    /// The memory that is read into is the owner's again.
    pub(super) fn drop_offer(&mut self, verbs: &mut impl Verbs) {
        let Some(memory) = self.offer.take().and_then(|offer| offer.reading) else { return };
        verbs.deregister(memory.key);
        self.pending.received = Some(0);
    }
}
