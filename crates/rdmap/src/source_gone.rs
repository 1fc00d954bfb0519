//! Memory that is to be sent and is not there any more: which request or response it is of.

use weft_verbs::mr::RegionReader;
use weft_verbs::qp::SendWqe;
use weft_verbs::{RegionFault, WcStatus};

use crate::fault::StreamFault;
use crate::inbound::Inbound;
use crate::tx::TxPort;

/// Whether the request is sent from the application's memory, and is not acknowledged.
fn is_sent_from(wqe: &SendWqe) -> bool {
    !wqe.op.awaits_response() && wqe.inline().is_none() && wqe.is_out()
}

impl TxPort<'_> {
    /// Fault of memory that was to be sent and is unmapped: the first request or response that uses
    /// it.
    pub fn fault_of_gone(self) -> StreamFault {
        let Some(regions) = self.regions else { return StreamFault::Closed };
        match self.request_gone(regions) {
            Some(seq) => StreamFault::Request { seq, status: WcStatus::LocProtErr },
            None if self.stream.inbound.iter().any(|read| self.is_gone(regions, read)) => {
                StreamFault::SourceGone(RegionFault::Bounds)
            }
            // The application has mapped other memory there since.
            None => StreamFault::Closed,
        }
    }

    /// Fault of memory that was lent to the peer, which could not read it: that of memory that is
    /// gone, or else of the oldest request that is not acknowledged. Pages that may only be written
    /// are there for some CPUs, but not for a kernel that reads them for another process.
    pub fn fault_of_unread(self) -> StreamFault {
        let oldest = self.sq.find(is_sent_from);
        match (self.fault_of_gone(), oldest) {
            (StreamFault::Closed, Some(seq)) => {
                StreamFault::Request { seq, status: WcStatus::LocProtErr }
            }
            (fault, _) => fault,
        }
    }

    /// Whether the memory that is unmapped or deregistered is of responses alone that are sent
    /// whole: the peer may have them.
    pub fn misses_sent_responses_only(&self) -> bool {
        let Some(regions) = self.regions else { return false };
        let parts = self.stream.inbound.sent_and_unsent();
        let gone = parts.map(|mut reads| reads.any(|read| self.is_gone(regions, read)));
        gone == [true, false] && self.request_gone(regions).is_none()
    }

    /// The first request whose memory is sent from, and is gone.
    fn request_gone(&self, regions: &RegionReader<'_>) -> Option<u32> {
        let pd = self.qp.pd();
        self.sq.find(|wqe| is_sent_from(wqe) && regions.is_gone(pd, wqe.sges()))
    }

    /// Whether memory is gone that this request of the peer reads.
    fn is_gone(&self, regions: &RegionReader<'_>, request: &Inbound) -> bool {
        let who = self.qp.accessor();
        match request {
            Inbound::Read(r) => regions.is_region_gone(r.src_stag.0, who, r.src_to, r.size),
            Inbound::Atomic { .. } => false,
        }
    }
}
