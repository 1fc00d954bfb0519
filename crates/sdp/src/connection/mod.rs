//! Connection: commands and events of its owner.
//!
//! Sending is in `tx`, what arrives in `rx`. A connection fails once, in [`SdpConnection::fail`];
//! what was received before that can still be read.

mod invite;
mod rx;
mod sink;
mod source;
mod terms;
mod tx;

use std::collections::VecDeque;

use weft_wire::sdp::{MessageId, SdpMessage};

use crate::config::{SdpConfig, SdpStyle};
use crate::credits::Credits;
use crate::error::{SdpFault, Violation};
use crate::event::{Pending, SdpEvent};
use crate::inbox::Inbox;
use crate::layout::{Layout, Stretch};
use crate::outbox::SdpOutbox;
use crate::verbs::{SdpCompletion, SdpWork, Verbs};

/// Messages without payload that may wait for credits, slots or both. A sound peer asks for fewer.
const CONTROLS_WAITING: usize = 16;

/// Progress of the end of each half.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    /// This side has shut down its sending half.
    shut: bool,
    /// The DisConn is posted.
    told: bool,
    /// The peer's DisConn has arrived.
    heard: bool,
    /// The owner does not read any more.
    deaf: bool,
    /// The queue pair is disconnected.
    parted: bool,
}

/// An open connection.
#[derive(Debug)]
pub struct SdpConnection {
    config: SdpConfig,
    style: SdpStyle,
    layout: Layout,
    credits: Credits,
    outbox: SdpOutbox,
    inbox: Inbox,
    terms: terms::SdpTerms,
    invitations: invite::Invitations,
    source: Option<source::SendSource>,
    offer: Option<sink::PeerAdvert>,
    /// Messages without payload that wait.
    controls: VecDeque<SdpMessage>,
    ends: Ends,
    /// Enhanced style: the layer below takes more.
    below_takes: bool,
    /// A send had too little room.
    wants_room: bool,
    /// The peer knows of the urgent byte that waits.
    urgent_told: bool,
    pending: Pending,
    fault: Option<SdpFault>,
    /// The headers of the message that is posted.
    head: Vec<u8>,
}

impl SdpConnection {
    /// Receives are posted; the peer has posted `peer_bufs` of `peer_octets`.
    pub(crate) fn new(
        config: &SdpConfig,
        style: SdpStyle,
        peer_octets: u32,
        peer_bufs: u16,
    ) -> Self {
        let layout = Layout::new(config);
        Self {
            config: *config,
            style,
            layout,
            credits: Credits::new(style == SdpStyle::Basic, config.buffers, peer_bufs),
            outbox: SdpOutbox::new(layout, peer_octets, style == SdpStyle::Enhanced),
            inbox: Inbox::default(),
            terms: terms::SdpTerms::new(style, config.buffer_octets),
            invitations: invite::Invitations::default(),
            source: None,
            offer: None,
            controls: VecDeque::new(),
            ends: Ends::default(),
            below_takes: true,
            wants_room: false,
            urgent_told: false,
            pending: Pending::default(),
            fault: None,
            head: Vec::new(),
        }
    }

    /// The style that both sides agreed on.
    pub fn style(&self) -> SdpStyle {
        self.style
    }

    /// Cause of its failure, if it failed.
    pub fn fault(&self) -> Option<SdpFault> {
        self.fault
    }

    /// Bytes to read.
    pub fn readable(&self) -> u64 {
        self.inbox.len()
    }

    /// Bytes that a send would accept.
    pub fn writable(&self) -> u64 {
        let open = !self.ends.shut && self.fault.is_none() && self.source.is_none();
        if open { self.outbox.room() } else { 0 }
    }

    /// Bytes posted and not sent by the layer below.
    pub fn flying(&self) -> u64 {
        self.outbox.flying()
    }

    /// Whether everything that the peer sent has been read, and it will send no more.
    pub fn is_at_end(&self) -> bool {
        self.ends.heard && self.inbox.len() == 0 && self.offer.is_none()
    }

    /// Whether the next read begins behind the urgent byte, as `sockatmark` tells.
    pub fn is_at_mark(&self) -> bool {
        self.inbox.is_at_mark()
    }

    /// Whether both halves have ended: the caller disconnects the queue pair.
    pub fn is_over(&self) -> bool {
        let said = self.ends.told && self.ends.heard && self.outbox.is_landed();
        said || self.fault.is_some() || self.ends.parted
    }

    /// Whether the peer has everything that this side sent, its end included.
    pub fn is_flushed(&self) -> bool {
        self.ends.told && self.outbox.is_landed()
    }

    /// The next event since the last call.
    pub fn poll_event(&mut self) -> Option<SdpEvent> {
        self.pending.take()
    }

    /// Whether anything has come from the peer since the Hellos.
    pub fn has_heard(&self) -> bool {
        self.credits.has_received()
    }

    /// Sends a message that says nothing: the peer learns that this side goes on.
    ///
    /// # Errors
    /// As [`SdpConnection::send`].
    pub fn greet(&mut self, verbs: &mut impl Verbs) -> Result<(), SdpFault> {
        self.check_open()?;
        self.try_to(verbs, |this, verbs| {
            this.queue(SdpMessage::Plain(MessageId::Data))?;
            this.flush(verbs)
        })
    }

    /// Takes the bytes at the start of `data` that there is room for; tells how many. After less
    /// than all, [`SdpEvent::Writable`] follows.
    ///
    /// # Errors
    /// [`SdpFault::Shut`] after [`SdpConnection::shutdown`]; else why the connection failed.
    pub fn send(&mut self, verbs: &mut impl Verbs, data: &[u8]) -> Result<usize, SdpFault> {
        self.check_open()?;
        self.try_to(verbs, |this, verbs| {
            let taken = this.queue_payload(verbs, data)?;
            this.flush(verbs)?;
            Ok(taken)
        })
    }

    /// Where the next bytes to be sent may be put by whoever has the private memory, one stretch
    /// behind the other, in enhanced style: they lie where the layer below sends them from, and
    /// [`SdpConnection::commit`] sends them. In basic style private buffers are SDP's alone.
    pub fn vacant(&self) -> impl Iterator<Item = Stretch> {
        let open = self.style == SdpStyle::Enhanced && self.writable() > 0;
        open.then(|| self.outbox.vacant()).into_iter().flatten()
    }

    /// Sends the first `octets` of [`SdpConnection::vacant`], which are no more than it has.
    ///
    /// # Errors
    /// As [`SdpConnection::send`].
    pub fn commit(&mut self, verbs: &mut impl Verbs, octets: u32) -> Result<(), SdpFault> {
        self.check_open()?;
        self.try_to(verbs, |this, verbs| {
            this.outbox.extend(octets);
            this.flush(verbs)
        })
    }

    /// Sends a byte that is urgent; tells whether there was room for it.
    ///
    /// # Errors
    /// As [`SdpConnection::send`].
    pub fn send_urgent(&mut self, verbs: &mut impl Verbs, octet: u8) -> Result<bool, SdpFault> {
        self.check_open()?;
        self.try_to(verbs, |this, verbs| {
            let taken = this.queue_payload(verbs, &[octet])? == 1;
            if taken {
                this.outbox.mark_urgent();
                this.urgent_told = false;
            }
            this.flush(verbs)?;
            Ok(taken)
        })
    }

    /// Reads into `into`; tells how many bytes. None are there for now, or for ever if
    /// [`SdpConnection::is_at_end`]. A read does not pass an urgent byte (SD-31). One that finds
    /// nothing but an advertisement has the peer send it (SD-41).
    ///
    /// # Errors
    /// Why the connection failed, once all that came before has been read.
    pub fn receive(&mut self, verbs: &mut impl Verbs, into: &mut [u8]) -> Result<usize, SdpFault> {
        let copied = self.peek(verbs, into)?;
        // This reader has no memory to fetch into.
        if copied == 0 && !into.is_empty() && self.fault.is_none() {
            self.try_to(verbs, |this, _| this.decline())?;
        }
        self.consume(verbs, copied)?;
        Ok(copied)
    }

    /// Where the bytes that were received lie, in enhanced style, for whoever has the private
    /// memory to read them there, until [`SdpConnection::consume`]. They end where a read does.
    pub fn arrived(&self) -> impl Iterator<Item = Stretch> {
        let open = self.style == SdpStyle::Enhanced;
        open.then(|| self.inbox.arrived()).into_iter().flatten()
    }

    /// The first `octets` of what has arrived, which are that many at least, have been read.
    ///
    /// # Errors
    /// Why the connection failed meanwhile.
    pub fn consume(&mut self, verbs: &mut impl Verbs, octets: usize) -> Result<(), SdpFault> {
        let mut free = Vec::new();
        self.inbox.consume(octets, |slot| free.push(slot));
        if self.fault.is_some() {
            return Ok(());
        }
        self.try_to(verbs, |this, verbs| {
            free.into_iter().try_for_each(|slot| this.post(verbs, slot))?;
            this.flush(verbs)
        })
    }

    /// Does as [`SdpConnection::receive`] without taking anything.
    ///
    /// # Errors
    /// As there.
    pub fn peek(&self, verbs: &impl Verbs, into: &mut [u8]) -> Result<usize, SdpFault> {
        match (self.inbox.copy(verbs, into)?, self.fault) {
            (0, Some(fault)) if !into.is_empty() => Err(fault),
            (copied, _) => Ok(copied),
        }
    }

    /// Takes the last urgent byte, which is there once in each case.
    pub fn receive_urgent(&mut self) -> Option<u8> {
        self.inbox.take_urgent()
    }

    /// Whether urgent bytes that arrive stay in the stream, as SO_OOBINLINE asks.
    pub fn set_urgent_inline(&mut self, inline: bool) {
        self.inbox.set_inline(inline);
    }

    /// This side will send no more: the peer finds the end of the stream after what was sent.
    ///
    /// # Errors
    /// Why the connection failed.
    pub fn shutdown(&mut self, verbs: &mut impl Verbs) -> Result<(), SdpFault> {
        self.fault.map_or(Ok(()), Err)?;
        self.ends.shut = true;
        self.try_to(verbs, |this, verbs| this.flush(verbs))
    }

    /// Nobody will read or send any more. What was sent still arrives; if something was received
    /// and not read, or arrives now, the connection is aborted (RFC 1122, section 4.2.2.13).
    pub fn close(&mut self, verbs: &mut impl Verbs) {
        self.ends.deaf = true;
        if self.inbox.len() > 0 || self.offer.is_some() {
            return self.abort(verbs);
        }
        // A failure is known to whoever asks; nobody does.
        let _ = self.shutdown(verbs);
    }

    /// Gives the connection up; the caller disconnects at once.
    pub fn abort(&mut self, verbs: &mut impl Verbs) {
        if self.fault.is_none() {
            self.say_abort(verbs);
            self.fail(verbs, SdpFault::Aborted);
        }
    }

    /// Handles a completion.
    pub fn handle_completion(&mut self, verbs: &mut impl Verbs, completion: SdpCompletion) {
        if let SdpWork::Send(slot) = completion.work {
            self.outbox.complete(slot);
        }
        if self.fault.is_some() {
            return;
        }
        if !completion.ok {
            return self.handle_disconnect(verbs);
        }
        // What failed is kept, and told as an event.
        let _ = self.try_to(verbs, |this, verbs| {
            match completion.work {
                SdpWork::Recv(slot) => this.handle_message(verbs, slot, completion.octets)?,
                SdpWork::Send(_) => {}
                SdpWork::Read => this.handle_fetched(verbs)?,
                SdpWork::Write => this.finish_source(verbs),
            }
            this.flush(verbs)
        });
    }

    /// The queue pair is disconnected.
    pub fn handle_disconnect(&mut self, verbs: &mut impl Verbs) {
        // Both halves had ended: that was the peer's to do as much as ours.
        if self.ends.told && self.ends.heard {
            self.ends.parted = true;
        } else {
            self.fail(verbs, SdpFault::Reset);
        }
    }

    fn check_open(&self) -> Result<(), SdpFault> {
        self.fault.map_or(Ok(()), Err)?;
        if self.ends.shut { Err(SdpFault::Shut) } else { Ok(()) }
    }

    /// Queues the bytes at the start of `data` that there is room for.
    fn queue_payload(&mut self, verbs: &mut impl Verbs, data: &[u8]) -> Result<usize, SdpFault> {
        // What follows the memory that is sent from must wait until all of it is known to be sent.
        let free = self.source.is_none();
        self.ask_for_room(data.len())?;
        let taken = if free { self.outbox.push(verbs, data)? } else { 0 };
        self.wants_room |= taken < data.len();
        Ok(taken)
    }

    /// Queues a message without payload.
    fn queue(&mut self, message: SdpMessage) -> Result<(), SdpFault> {
        if self.controls.len() >= CONTROLS_WAITING {
            return Err(Violation::Unexpected("more to answer than it makes room for").into());
        }
        self.controls.push_back(message);
        Ok(())
    }

    /// Runs `what`; an error fails the connection.
    fn try_to<V: Verbs, T>(
        &mut self,
        verbs: &mut V,
        act: impl FnOnce(&mut Self, &mut V) -> Result<T, SdpFault>,
    ) -> Result<T, SdpFault> {
        act(self, verbs).inspect_err(|fault| self.fail(verbs, *fault))
    }

    fn fail(&mut self, verbs: &mut impl Verbs, fault: SdpFault) {
        if self.fault.is_none() {
            self.fault = Some(fault);
            self.pending.failed = Some(fault);
            self.finish_source(verbs);
            self.drop_offer(verbs);
            self.void_invitation(verbs);
            self.controls.clear();
            self.outbox.clear();
        }
    }

    /// Reports room that a send lacked.
    fn note_room(&mut self) {
        let enough = u64::from(self.config.writable_octets.min(self.outbox.payload_max()));
        if self.wants_room && self.writable() >= enough {
            self.wants_room = false;
            self.pending.writable = true;
        }
    }
}
