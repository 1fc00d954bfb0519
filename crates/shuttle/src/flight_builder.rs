//! Flights out of segments: each packet takes as many consecutive ones as fit (S-4).
//!
//! Nothing waits for more: a packet is what the source has now. Segments are as large as if each
//! had a packet of its own, so small messages share packets and large ones leave as before.

use weft_wire::llp::{Gather, RegisteredMemory, SegmentId, UlpduSource};
use weft_wire::shuttle::segments::{put_table, table_len};
use weft_wire::shuttle::{CtrlHeader, DataHeader, StreamId};
use weft_wire::tap::{PacketTap, TapDirection, Tapped};

use crate::flight::{Cargo, Flight};
use crate::path::Path;
use crate::protect::{Guard, copy_body};
use crate::stream::StreamState;
use crate::transmit::Transmit;

/// Segments of a stream that may leave on a path: retransmissions, and new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sendable {
    pub(crate) holes: bool,
    pub(crate) new: bool,
}

impl Sendable {
    /// Everything may leave.
    pub(crate) const ALL: Self = Self { holes: true, new: true };
}

/// Segments of a packet, gathered one behind the other.
#[derive(Default)]
pub(crate) struct DataBody {
    gather: Gather,
    lengths: Vec<u16>,
    /// Memory of it may change while it is on its way.
    may_change: bool,
}

impl DataBody {
    fn clear(&mut self) {
        self.gather.clear();
        self.lengths.clear();
        self.may_change = false;
    }

    fn count(&self) -> usize {
        self.lengths.len()
    }

    /// Adds segment `id` of `source` unless the body would exceed `room` bytes; whether it fits.
    fn add(&mut self, source: &impl UlpduSource, id: SegmentId, room: usize) -> bool {
        let before = self.gather.len();
        let room = room.saturating_sub(table_len(self.count() + 1));
        if before + id.len as usize > room {
            return false;
        }
        source.gather(&id, &mut self.gather);
        let fits = self.gather.len() <= room;
        if fits {
            self.lengths.push((self.gather.len() - before) as u16);
            self.may_change |= source.may_change(id);
        } else {
            self.gather.truncate(before);
        }
        fits
    }

    /// Ends the body with the lengths of its segments, if there are several.
    fn finish(&mut self) -> &Gather {
        put_table(&self.lengths, |part| self.gather.push_bytes(part));
        &self.gather
    }
}

/// Segment to send.
#[derive(Clone, Copy)]
pub(crate) struct NextSegment {
    dsn: u64,
    id: SegmentId,
    /// It is a retransmission.
    again: bool,
}

/// Packets of a flight so far: all of one size and with as many segments but the last.
struct FlightDraft {
    first_dsn: u64,
    packets: u8,
    octets: u16,
    last_octets: u16,
    each: u16,
    last_each: u16,
}

impl FlightDraft {
    /// Whether another packet is within the allowance: `packets` of up to `octets` bytes.
    fn has_room(&self, packets: u64, octets: u16) -> bool {
        let with_next = u64::from(self.packets) + 1;
        let fits = with_next * u64::from(self.octets) <= packets * u64::from(octets);
        with_next <= packets && fits
    }

    /// Whether a packet that begins with segment `dsn` may follow.
    fn takes(&self, dsn: u64) -> bool {
        let full = self.last_octets == self.octets && self.last_each == self.each;
        full && dsn == self.first_dsn + u64::from(self.packets) * u64::from(self.each)
    }

    fn append(draft: Option<Self>, first_dsn: u64, octets: u16, segments: u16) -> Self {
        let (last_octets, last_each) = (octets, segments);
        match draft {
            None => Self { first_dsn, packets: 1, octets, last_octets, each: segments, last_each },
            Some(draft) => Self { packets: draft.packets + 1, last_octets, last_each, ..draft },
        }
    }

    fn finish(self, first_pn: u64, stream: StreamId) -> Flight {
        let Self { first_dsn, packets, octets, last_octets, each, last_each } = self;
        let mut flight = Flight::new(first_pn, packets, octets, last_octets);
        flight.cargo = Cargo::Segments { stream, first_dsn, each, last_each };
        flight
    }
}

/// Builder of a flight.
pub(crate) struct FlightBuilder<'a, S> {
    pub(crate) now_ns: u64,
    pub(crate) path: &'a mut Path,
    pub(crate) guard: &'a mut Guard,
    /// Header common to all packets but for packet number and request for an acknowledgement.
    pub(crate) header: CtrlHeader,
    pub(crate) source: S,
    pub(crate) body: &'a mut DataBody,
    pub(crate) sendable: Sendable,
    /// Nothing but duplicates of the tail follows.
    pub(crate) dry: bool,
    /// The peer has placed all that was sent before.
    pub(crate) is_alone: bool,
    /// Retransmitted segments, and their bytes.
    pub(crate) resent: (u64, u64),
    pub(crate) tap: Option<&'a mut (dyn PacketTap + 'static)>,
}

impl<S: UlpduSource> FlightBuilder<'_, S> {
    /// Builds up to `packets` packets with consecutive segments, retransmissions first; fewer of
    /// those that are larger than the path's. Also returns the segment that would follow.
    pub(crate) fn build(
        &mut self,
        id: StreamId,
        stream: &mut StreamState,
        packets: u64,
        memory: &impl RegisteredMemory,
        out: &mut Transmit,
    ) -> (Option<Flight>, Option<NextSegment>) {
        let first_pn = self.path.recovery.next_pn();
        let mut draft: Option<FlightDraft> = None;
        let mut next = self.next(stream);
        let octets = self.path.datagram_octets;
        let may_follow =
            |draft: &FlightDraft, dsn| draft.has_room(packets, octets) && draft.takes(dsn);
        while let Some(first) = next
            && draft.as_ref().is_none_or(|draft| may_follow(draft, first.dsn))
        {
            // A segment that is sent again may be larger than the path carries by now (S-52).
            let octets = draft.as_ref().map_or(self.path.datagram_octets, |draft| draft.octets);
            let room_first = if draft.is_none() { u16::MAX } else { octets };
            next = self.fill(stream, first, room_first, octets);
            if self.body.count() == 0 {
                break;
            }
            let pn = first_pn + draft.as_ref().map_or(0, |draft| u64::from(draft.packets));
            let frontier = stream.recv.frontier() as u32;
            let size = self.put_packet((pn, first.dsn, frontier), memory, out);
            draft = Some(FlightDraft::append(draft, first.dsn, size, self.body.count() as u16));
        }
        (draft.map(|draft| draft.finish(first_pn, id)), next)
    }

    /// Gathers segments from `first` on into the body of a packet of up to `octets` bytes, with
    /// `first` alone up to `octets_first`; none if that does not fit. Returns the segment that
    /// follows.
    fn fill(
        &mut self,
        stream: &mut StreamState,
        first: NextSegment,
        octets_first: u16,
        octets: u16,
    ) -> Option<NextSegment> {
        self.body.clear();
        let overhead = self.guard.data_overhead();
        let mut room = usize::from(octets_first - overhead);
        let mut next = Some(first);
        while let Some(segment) = next
            && segment.dsn == first.dsn + self.body.count() as u64
            && self.body.add(&self.source, segment.id, room)
        {
            self.note_sent(stream, segment);
            room = usize::from(octets - overhead);
            next = self.following(stream, segment);
        }
        next
    }

    fn note_sent(&mut self, stream: &mut StreamState, segment: NextSegment) {
        if segment.again {
            stream.send.resent(segment.dsn);
            let length = self.body.lengths.last().copied().unwrap_or(0);
            self.resent = (self.resent.0 + 1, self.resent.1 + u64::from(length));
        } else {
            stream.send.sent(self.now_ns);
        }
    }

    /// The segment after `segment`, which was sent; when there is none, the tail (S-56) and what
    /// was lost (S-57) once more.
    fn following(&mut self, stream: &mut StreamState, sent: NextSegment) -> Option<NextSegment> {
        let next = self.next(stream);
        self.dry = next.is_none();
        if self.dry {
            if !sent.again {
                stream.send.queue_tail();
            }
            if stream.send.queue_lost() || !sent.again {
                return self.next(stream);
            }
        }
        next
    }

    /// Appends the packet with the body; returns its size in bytes.
    fn put_packet(
        &mut self,
        (pn, dsn, frontier): (u64, u64, u32),
        memory: &impl RegisteredMemory,
        out: &mut Transmit,
    ) -> u16 {
        let mut ctrl = self.header;
        ctrl.pn = pn as u32;
        ctrl.phase = self.guard.next_phase();
        ctrl.ack_now = self.dry && self.path.may_ask(self.now_ns, self.is_alone);
        let several = self.body.count() > 1;
        let header = DataHeader { ctrl, several, dsn: dsn as u32, frontier };
        let start = out.gather.len();
        let may_change = self.body.may_change;
        let body = self.body.finish();
        self.guard.put_data(pn, &header, (body, may_change), memory, &mut out.gather);
        if let Some(tap) = &mut self.tap {
            let mut clear = Vec::with_capacity(body.len());
            copy_body(body, memory, &mut clear);
            let what = Tapped::ShuttleData { header: &header, body: &clear };
            tap.see(TapDirection::Sent, Some(self.path.route.into()), what);
        }
        out.end_datagram(start);
        let size = (out.gather.len() - start) as u16;
        out.may_fragment |= self.path.may_cut || size > self.path.datagram_octets;
        size
    }

    fn next(&mut self, stream: &mut StreamState) -> Option<NextSegment> {
        let send = &mut stream.send;
        if let Some(dsn) = send.next_resend().filter(|_| self.sendable.holes) {
            return Some(NextSegment { dsn, id: send.name(dsn), again: true });
        }
        if !self.sendable.new || !send.may_send_new() {
            return None;
        }
        let mulpdu = self.path.datagram_octets - self.guard.data_overhead();
        let id = send.peek(mulpdu, &mut self.source)?;
        Some(NextSegment { dsn: send.next_dsn(), id, again: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments with a header of ten bytes.
    struct Source;

    impl UlpduSource for Source {
        fn next(&mut self, _: u16) -> Option<SegmentId> {
            None
        }

        fn gather(&self, id: &SegmentId, out: &mut Gather) {
            out.push_bytes(&[1; 10]);
            out.push_bytes(&vec![2; id.len as usize]);
        }

        fn acked(&mut self, _: SegmentId) {}
    }

    #[test]
    fn a_body_takes_what_fits_with_its_table() {
        let (mut body, segment) = (DataBody::default(), |len| SegmentId { wqe: 0, offset: 0, len });
        // One alone has no table; two have two bytes each.
        for (room, count) in [(29, 0), (30, 1), (63, 1), (64, 2), (95, 2), (96, 3)] {
            body.clear();
            while body.count() < 3 && body.add(&Source, segment(20), room) {}
            assert_eq!(body.count(), count, "{room}");
            assert_eq!(body.finish().len(), 30 * count + table_len(count), "{room}");
        }
    }

    /// What is sent again may be larger than the path's datagrams, and messages of 800 bytes are
    /// smaller.
    #[test]
    fn a_flight_is_within_its_allowance_in_packets_and_in_bytes() {
        for (each, packets, octets, wanted) in
            [(890, 43, 1472, 43), (1472, 64, 1472, 64), (8952, 53, 1200, 7), (8952, 1, 1200, 1)]
        {
            let mut draft = FlightDraft::append(None, 0, each, 1);
            while draft.has_room(packets, octets) {
                let next = u64::from(draft.packets);
                draft = FlightDraft::append(Some(draft), next, each, 1);
            }
            assert_eq!(draft.packets, wanted, "{each} {packets} {octets}");
        }
    }

    #[test]
    fn a_flight_ends_with_a_packet_unlike_the_first() {
        let draft = FlightDraft::append(None, 100, 1000, 5);
        assert!(draft.takes(105) && !draft.takes(104) && !draft.takes(106));
        let draft = FlightDraft::append(Some(draft), 105, 1000, 5);
        assert!(draft.takes(110));
        let with_more = FlightDraft::append(Some(draft), 110, 1000, 6);
        assert!(!with_more.takes(115) && !with_more.takes(116));
        let flight = with_more.finish(7, StreamId(0));
        assert_eq!((flight.last_pn(), flight.segment_count(), flight.octets()), (9, 16, 3000));
        let shorter = FlightDraft::append(Some(FlightDraft::append(None, 0, 1000, 1)), 1, 999, 1);
        assert!(!shorter.takes(2));
    }
}
