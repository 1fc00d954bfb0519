//! What leaves in one call.

use weft_wire::llp::Gather;

use crate::path::Route;

/// Datagrams to send over one route, in one call where the system can: all of one length but the
/// last, which may be shorter.
#[derive(Debug, Default)]
pub struct Transmit {
    /// Contents of the datagrams, concatenated.
    pub gather: Gather,
    /// Length of each datagram in bytes.
    pub lengths: Vec<u16>,
    /// Route; set if there are any datagrams.
    pub route: Option<Route>,
    /// Retransmitted segments keep their size, and may exceed the path MTU: IP fragmentation is
    /// allowed.
    pub may_fragment: bool,
    /// Nothing more is to be sent now.
    pub is_last: bool,
    /// An MTU probe: its buffer, up to 128 KB on loopback, is not kept.
    pub(crate) holds_probe: bool,
}

impl Transmit {
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.holds_probe) {
            self.gather = Gather::new();
        }
        self.gather.clear();
        self.lengths.clear();
        self.route = None;
        self.may_fragment = false;
        self.is_last = false;
    }

    /// Ends a datagram that began with byte `start` of the contents.
    pub(crate) fn end_datagram(&mut self, start: usize) {
        self.lengths.push((self.gather.len() - start) as u16);
    }
}
