//! Events for the owner of a connection.

use crate::error::Fault;

/// An event, reported once when it occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// More was received, and there is as much as
    /// [`Config::readable_octets`](crate::Config::readable_octets) says.
    Readable,
    /// There is room again after a send that had too little, as much as
    /// [`Config::writable_octets`](crate::Config::writable_octets) says.
    Writable,
    /// Urgent data has arrived or was announced.
    Urgent,
    /// The memory of a [`Connection::send_from`](crate::Connection::send_from) is the owner's
    /// again, and the peer has so many bytes of it.
    Sent(u32),
    /// The memory of a [`Connection::receive_into`](crate::Connection::receive_into) is the
    /// owner's again, with so many bytes in it.
    Received(u32),
    /// End of the stream: the peer has shut down its sending half.
    End,
    /// The connection failed.
    Failed(Fault),
}

/// Events not reported yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pending {
    /// See [`Event::Readable`].
    pub readable: bool,
    /// See [`Event::Writable`].
    pub writable: bool,
    /// See [`Event::Urgent`].
    pub urgent: bool,
    /// See [`Event::Sent`].
    pub sent: Option<u32>,
    /// See [`Event::Received`].
    pub received: Option<u32>,
    /// See [`Event::End`].
    pub end: bool,
    /// See [`Event::Failed`].
    pub failed: Option<Fault>,
}

impl Pending {
    /// Takes the next event.
    pub fn take(&mut self) -> Option<Event> {
        let told = |flag: &mut bool, event| std::mem::take(flag).then_some(event);
        told(&mut self.urgent, Event::Urgent)
            .or_else(|| told(&mut self.readable, Event::Readable))
            .or_else(|| told(&mut self.writable, Event::Writable))
            .or_else(|| self.sent.take().map(Event::Sent))
            .or_else(|| self.received.take().map(Event::Received))
            .or_else(|| told(&mut self.end, Event::End))
            .or_else(|| self.failed.take().map(Event::Failed))
    }
}
