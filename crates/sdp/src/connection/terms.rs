//! Later agreements of the ends: the mode of each half, and larger buffers (SD-50, SD-51).

use weft_verbs::Misuse;
use weft_wire::sdp::{Mode, SdpMessage};

use super::SdpConnection;
use crate::config::SdpStyle;
use crate::error::{SdpFault, Violation};
use crate::verbs::Verbs;

/// The modes of both halves, and what is known of sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SdpTerms {
    /// Mode of the half that this side sends on.
    pub send: Mode,
    /// Mode of the other half.
    pub receive: Mode,
    /// The peer has been asked for larger buffers.
    asked: bool,
    /// What it has been told of ours, in bytes.
    told_octets: u32,
}

impl SdpTerms {
    /// The initial modes.
    pub fn new(style: SdpStyle, told_octets: u32) -> Self {
        let mode = if style == SdpStyle::Basic { Mode::Combined } else { Mode::Buffered };
        Self { send: mode, receive: mode, asked: false, told_octets }
    }
}

/// Whether the end that sends may change the mode of its half so.
fn may_change(from: Mode, to: Mode) -> bool {
    matches!(
        (from, to),
        (Mode::Combined, Mode::Buffered | Mode::Pipelined) | (Mode::Pipelined, Mode::Combined)
    )
}

impl SdpConnection {
    /// The modes of the half that this side sends on, and of the other.
    pub fn modes(&self) -> (Mode, Mode) {
        (self.terms.send, self.terms.receive)
    }

    /// Changes the mode of the half that this side sends on: from combined to another, or from
    /// pipelined to combined.
    ///
    /// # Errors
    /// [`SdpFault::Verbs`] if it may not be changed so, or memory is being sent from; then nothing
    /// has changed.
    pub fn set_send_mode(&mut self, verbs: &mut impl Verbs, mode: Mode) -> Result<(), SdpFault> {
        self.check_open()?;
        if self.source.is_some() {
            return Err(Misuse::Busy.into());
        }
        if !may_change(self.terms.send, mode) {
            return Err(Misuse::Invalid("modes change from or to combined").into());
        }
        self.terms.send = mode;
        self.decline_invitation();
        self.invitations.sent = self.invitations.sent.wrapping_add(1);
        self.change_mode(verbs, false, mode)
    }

    /// Lets the peer advertise memory again, after it had changed its half to buffered mode.
    ///
    /// # Errors
    /// [`SdpFault::Verbs`] if its half is not in buffered mode, or the style has no other; then
    /// nothing has changed.
    pub fn allow_source(&mut self, verbs: &mut impl Verbs) -> Result<(), SdpFault> {
        self.fault.map_or(Ok(()), Err)?;
        if self.terms.receive != Mode::Buffered || self.style == SdpStyle::Enhanced {
            return Err(Misuse::Invalid("the half is not in buffered mode").into());
        }
        self.terms.receive = Mode::Combined;
        self.change_mode(verbs, true, Mode::Combined)
    }

    fn change_mode(
        &mut self,
        verbs: &mut impl Verbs,
        send_half: bool,
        mode: Mode,
    ) -> Result<(), SdpFault> {
        self.try_to(verbs, |this, verbs| {
            this.queue(SdpMessage::ModeChange { send_half, mode })?;
            this.flush(verbs)
        })
    }

    /// The peer has changed a mode: of its receive half, which is our send half, or of the other.
    pub(super) fn handle_mode_change(
        &mut self,
        send_half: bool,
        mode: Mode,
    ) -> Result<(), SdpFault> {
        let (half, sound) = if send_half {
            let sound = (self.terms.send, mode) == (Mode::Buffered, Mode::Combined);
            (&mut self.terms.send, sound)
        } else {
            let sound = may_change(self.terms.receive, mode) && self.offer.is_none();
            self.invitations.received = self.invitations.received.wrapping_add(1);
            (&mut self.terms.receive, sound)
        };
        if !sound || self.style == SdpStyle::Enhanced {
            return Err(Violation::Unexpected("a change of mode that is not its to make").into());
        }
        *half = mode;
        Ok(())
    }

    /// Asks for larger buffers, once, if `octets` would fill ours but not the peer's.
    pub(super) fn ask_for_room(&mut self, octets: usize) -> Result<(), SdpFault> {
        let (theirs, ours) = (self.outbox.payload_max() as usize, self.outbox.payload_limit());
        if self.terms.asked
            || self.style == SdpStyle::Enhanced
            || octets <= theirs
            || theirs >= ours
        {
            return Ok(());
        }
        self.terms.asked = true;
        self.queue(SdpMessage::ChRcvBuf(self.layout.octets))
    }

    /// The peer wants buffers of `octets`. They are as large as they get already (SD-51).
    pub(super) fn handle_resize(&mut self, octets: u32) -> Result<(), SdpFault> {
        let granted = octets.min(self.layout.octets);
        self.terms.told_octets = self.terms.told_octets.max(granted);
        self.queue(SdpMessage::ChRcvBufAck(self.terms.told_octets))
    }

    /// The peer's buffers have `octets` now.
    pub(super) fn handle_resized(&mut self, octets: u32) -> Result<(), SdpFault> {
        if !self.terms.asked || !self.outbox.enlarge(octets) {
            return Err(Violation::Unexpected("buffers of a size that nobody asked for").into());
        }
        Ok(())
    }
}
