//! Any octets as start frames that are answered, and as a stream of frames.

use weft_mpa::negotiate::{Initiator, MpaReply, Responder};
use weft_mpa::{Agreed, MAX_FPDU_LEN, MpaOffer, MpaRole, MpaStream, RxFault};
use weft_wire::llp::{Placed, UlpduSink};

/// `data` as a Request to answer and as a Reply to take; our own answer must satisfy ourselves.
pub fn negotiate(data: &[u8]) {
    for enhanced in [false, true] {
        let offer = MpaOffer { enhanced, ..MpaOffer::new(8, 8) };
        let initiator = Initiator::new(offer.clone()).expect("no private data");
        if let Ok(MpaReply::Accepted(agreed)) = initiator.handle_reply(data) {
            assert!(agreed.crc && !agreed.markers_in);
            assert!(agreed.ord <= 8 && agreed.ird >= 8);
        }
        let Ok(responder) = Responder::handle_request(data) else { continue };
        responder.reject(&[]).expect("no private data");
        let (reply, agreed) = responder.accept(&offer).expect("no private data");
        assert!(agreed.crc && agreed.ird >= 8 && agreed.ord <= 8);
        let ours = initiator.handle_reply(&reply);
        assert!(
            !matches!(ours, Ok(MpaReply::Rejected { .. })),
            "an acceptance that reads otherwise"
        );
    }
}

/// `data` after its first two octets as a stream of frames: taken apart at once and in parts, which
/// must come to the same.
pub fn deframe(data: &[u8]) {
    let [flags, part, octets @ ..] = data else { return };
    let agreed = Agreed { crc: flags & 1 != 0, markers_in: flags & 2 != 0, ..Agreed::default() };
    let part = usize::from(*part) + 1;
    let whole = receive(&agreed, octets, octets.len().max(1));
    let parts = receive(&agreed, octets, part);
    assert_eq!(whole, parts);
}

/// What the sink saw, and how the stream ended.
type Outcome = (Vec<Vec<u8>>, u64, Option<RxFault<()>>);

fn receive(agreed: &Agreed, octets: &[u8], part: usize) -> Outcome {
    let mut stream = MpaStream::new(MpaRole::Responder, agreed);
    let mut sink = Sink::default();
    let mut start = 0;
    for end in (part..octets.len()).step_by(part).chain([octets.len()]) {
        match stream.handle_received(&octets[start..end], &mut sink) {
            Ok(consumed) => start += consumed,
            Err(fault) => return (sink.placed, sink.frontier, Some(fault)),
        }
        assert!(end - start < MAX_FPDU_LEN);
    }
    (sink.placed, sink.frontier, None)
}

#[derive(Default)]
struct Sink {
    placed: Vec<Vec<u8>>,
    frontier: u64,
}

impl UlpduSink for Sink {
    type Fault = ();

    /// Refuses segments without payload, so that this way out is taken too.
    fn place(&mut self, seq: u64, ulpdu: &[u8]) -> Result<Placed, ()> {
        assert_eq!(seq, self.placed.len() as u64);
        if ulpdu.is_empty() {
            return Err(());
        }
        self.placed.push(ulpdu.to_vec());
        Ok(Placed::Memory)
    }

    fn deliver(&mut self, frontier: u64) -> Result<(), ()> {
        assert!(frontier > self.frontier && frontier == self.placed.len() as u64);
        self.frontier = frontier;
        Ok(())
    }
}
