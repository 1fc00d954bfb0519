//! Events for the owner of a connection.

use crate::error::SdpFault;

/// An event, reported once when it occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SdpEvent {
    /// More was received, and there is as much as
    /// [`SdpConfig::readable_octets`](crate::SdpConfig::readable_octets) says.
    Readable,
    /// There is room again after a send that had too little, as much as
    /// [`SdpConfig::writable_octets`](crate::SdpConfig::writable_octets) says.
    Writable,
    /// Urgent data has arrived or was announced.
    Urgent,
    /// The memory of a [`SdpConnection::send_from`](crate::SdpConnection::send_from) is the owner's
    /// again, and the peer has so many bytes of it.
    Sent(u32),
    /// The memory of a [`SdpConnection::receive_into`](crate::SdpConnection::receive_into) is the
    /// owner's again, with so many bytes in it.
    Received(u32),
    /// End of the stream: the peer has shut down its sending half.
    End,
    /// The connection failed.
    Failed(SdpFault),
}

/// Events not reported yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pending {
    /// See [`SdpEvent::Readable`].
    pub readable: bool,
    /// See [`SdpEvent::Writable`].
    pub writable: bool,
    /// See [`SdpEvent::Urgent`].
    pub urgent: bool,
    /// See [`SdpEvent::Sent`].
    pub sent: Option<u32>,
    /// See [`SdpEvent::Received`].
    pub received: Option<u32>,
    /// See [`SdpEvent::End`].
    pub end: bool,
    /// See [`SdpEvent::Failed`].
    pub failed: Option<SdpFault>,
}

impl Pending {
    /// Takes the next event.
    pub fn take(&mut self) -> Option<SdpEvent> {
        let told = |flag: &mut bool, event| std::mem::take(flag).then_some(event);
        told(&mut self.urgent, SdpEvent::Urgent)
            .or_else(|| told(&mut self.readable, SdpEvent::Readable))
            .or_else(|| told(&mut self.writable, SdpEvent::Writable))
            .or_else(|| self.sent.take().map(SdpEvent::Sent))
            .or_else(|| self.received.take().map(SdpEvent::Received))
            .or_else(|| told(&mut self.end, SdpEvent::End))
            .or_else(|| self.failed.take().map(SdpEvent::Failed))
    }
}
