//! Responses of the peer to Reads and Atomics, and their placement.
//!
//! Invariant: a response is placed only in the sink that an outstanding request advertised.

use weft_verbs::Access;
use weft_verbs::mr::SegmentPayload;
use weft_verbs::sge::parts;
use weft_wire::ddp::{TaggedHeader, UntaggedHeader};
use weft_wire::llp::Placed;
use weft_wire::rdmap::AtomicResponse;
use weft_wire::terminate::TerminateCode;

use crate::fault::{StreamFault, tagged_code};
use crate::outbound::Expected;
use crate::rx::{RxPort, single, take_number};
use crate::sink;

impl RxPort<'_> {
    /// Fault of a response; if its sink is gone, the peer is not to blame.
    pub(crate) fn refuse_answer(&mut self, fault: StreamFault) -> StreamFault {
        match (self.unplaceable.take(), fault) {
            (Some(seq), StreamFault::PeerMisbehaved { terminate, .. }) => {
                StreamFault::SinkGone { seq, terminate }
            }
            (_, fault) => fault,
        }
    }

    pub(crate) fn read_response(
        &mut self,
        seq: u64,
        header: &TaggedHeader,
        payload: SegmentPayload<'_>,
    ) -> Result<Placed, TerminateCode> {
        if self.any_order() {
            return self.read_response_in_any_order(seq, header, payload);
        }
        let unexpected = TerminateCode::RdmapUnexpectedOpcode;
        let request = self.stream.outbound.front_mut().ok_or(unexpected)?;
        let id = request.seq;
        let Expected::Read { stag, to, size, done } = &mut request.expected else {
            return Err(unexpected);
        };
        let empty = *size == 0 && payload.is_empty();
        if !empty {
            if header.stag != *stag {
                return Err(TerminateCode::TaggedInvalidStag);
            }
            let left = u64::from(*size - *done);
            if header.to != to.wrapping_add(u64::from(*done)) || payload.len() as u64 > left {
                return Err(TerminateCode::TaggedBounds);
            }
        }
        *done += payload.len() as u32;
        if header.last != (*done == *size) {
            return Err(TerminateCode::TaggedBounds);
        }
        if !payload.is_empty() {
            self.place_answer(seq, id, header, payload).inspect_err(|_| self.unplaceable = id)?;
            self.stream.stats.octets_in += payload.len() as u64;
        }
        if header.last {
            self.finish_request(id);
        }
        Ok(Placed::Memory)
    }

    /// Places a segment of the response to `request`, across its scatter list.
    fn place_answer(
        &mut self,
        seq: u64,
        request: Option<u32>,
        header: &TaggedHeader,
        payload: SegmentPayload<'_>,
    ) -> Result<(), TerminateCode> {
        let (qp, right) = (self.qp, Access::LOCAL_WRITE);
        if !sink::is_list(header.stag) {
            return self.place_tagged(seq, header.stag.0, header.to, payload, right);
        }
        let sq = qp.sq();
        let entries = request.map_or(&[][..], |request| sq.sinks(request));
        let parts = || parts(entries, header.to, payload.len() as u64);
        for part in parts() {
            let len = u64::from(part.length);
            let allowed = qp.regions().check(part.lkey, qp.pd(), part.addr, len, right);
            allowed.map_err(tagged_code)?;
        }
        let mut rest = payload;
        for part in parts() {
            let (now, later) = rest.split_at(part.length as usize);
            rest = later;
            self.place_tagged(seq, part.lkey, part.addr, now, right)?;
        }
        Ok(())
    }

    /// Places a segment of the response to any outstanding Read; the last segment belongs to the
    /// oldest.
    ///
    /// Reads may share a sink, so a segment cannot be attributed to one of them, and its bytes are
    /// not counted. Shuttle guarantees that all precede the last one.
    fn read_response_in_any_order(
        &mut self,
        seq: u64,
        header: &TaggedHeader,
        payload: SegmentPayload<'_>,
    ) -> Result<Placed, TerminateCode> {
        let (len, last) = (payload.len() as u64, header.last);
        let fits = |expected: &Expected| {
            let Expected::Read { stag, to, size, .. } = *expected else { return false };
            let empty = size == 0 && len == 0;
            let offset = header.to.wrapping_sub(to);
            // Room in the sink from this offset on, if it lies within.
            let Some(room) = u64::from(size).checked_sub(offset) else { return false };
            let fits = if last { len == room } else { len <= room };
            empty || stag == header.stag && fits
        };
        let queue = &self.stream.outbound;
        let found = if last {
            queue.front().filter(|request| fits(&request.expected))
        } else {
            queue.iter().find(|request| fits(&request.expected))
        };
        let request = found.ok_or(TerminateCode::TaggedBounds)?.seq;
        if len > 0 {
            self.place_answer(seq, request, header, payload)
                .inspect_err(|_| self.unplaceable = request)?;
            self.stream.stats.octets_in += len;
        }
        if last {
            self.finish_request(request);
        }
        Ok(Placed::Memory)
    }

    fn finish_request(&mut self, seq: Option<u32>) {
        let request = self.stream.outbound.pop();
        if let Some(last) = request.and_then(|request| request.confirms) {
            self.stream.progress.handle_confirmed(last);
            self.confirmed(last);
        }
        if let Some(seq) = seq {
            let mut sq = self.qp.sq();
            sq.responded(seq);
            sq.complete(self.qp.num(), self.qp.send_cq());
            self.qp.check_drained(&sq);
        }
    }

    pub(crate) fn atomic_response(
        &mut self,
        header: &UntaggedHeader,
        payload: &[u8],
    ) -> Result<Placed, TerminateCode> {
        single(header)?;
        let response = AtomicResponse::parse(payload).map_err(|_| TerminateCode::LlpFraming)?;
        let unexpected = TerminateCode::RdmapUnexpectedOpcode;
        let request = *self.stream.outbound.front().ok_or(unexpected)?;
        if (request.expected != Expected::Atomic { id: response.id }) || request.seq.is_none() {
            return Err(unexpected);
        }
        // It may be early, and offered again: nothing is counted before it is placed.
        let mut expected = self.stream.expect_atomic_response;
        take_number(&mut expected, header)?;
        if let Some(seq) = request.seq {
            let sink = self.qp.sq().get(seq).sges().first().copied().unwrap_or_default();
            let value = response.value.to_ne_bytes();
            let (pd, right) = (self.qp.pd(), Access::LOCAL_WRITE);
            self.qp
                .regions()
                .write(sink.lkey, pd, sink.addr, &value, right)
                .map_err(|_| TerminateCode::RdmapStreamCatastrophic)
                .inspect_err(|_| self.unplaceable = request.seq)?;
        }
        self.stream.expect_atomic_response = expected;
        self.finish_request(request.seq);
        Ok(Placed::Memory)
    }
}
