//! Queue pairs that a program connects by itself, with what it learned over a socket of its own.

use core::net::IpAddr;

use weft_verbs::Misuse;

use crate::qp::Qp;

/// What the program said about the peer on the way to RTR.
#[allow(dead_code)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// This side's address.
    pub local: IpAddr,
    /// The peer's address, of the same family.
    pub remote: IpAddr,
    /// The network interface of the local address, for addresses that are good on one link only;
    /// 0 if unknown.
    pub interface: u32,
    /// The peer's queue pair number, 24 bits.
    pub qpn: u32,
    /// Payload octets of a packet.
    pub path_mtu_octets: u32,
    /// Reads and Atomics of the peer that this side serves at once.
    pub max_dest_rd_atomic: u8,
    /// How long the peer waits when it found no receive, as a row of InfiniBand's table.
    pub min_rnr_timer: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

/// What the program said about its own requests on the way to RTS.
#[allow(dead_code)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester {
    /// Reads and Atomics that this side keeps outstanding.
    pub max_rd_atomic: u8,
    /// Acknowledgement timeout: 4.096 us times two to the power of this; 0 is for ever.
    pub timeout_exp: u8,
    /// How often what is not acknowledged is repeated.
    pub retry_cnt: u8,
    /// How often what found no receive is repeated; 7 is for ever.
    pub rnr_retry: u8,
}

impl Qp {
    /// The peer is known: what it sends is taken from now on.
    pub(crate) fn reach(&self, _peer: Peer) -> Result<(), Misuse> {
        Ok(())
    }

    /// Requests may be sent from now on.
    pub(crate) fn speak(&self, _requester: Requester) -> Result<(), Misuse> {
        Ok(())
    }
}
