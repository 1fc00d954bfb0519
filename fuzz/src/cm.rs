//! Any bytes as the stream that a connection request of rdma-cm comes by: one start frame is taken
//! whole, at once or in parts, and not a byte of what follows it.

use std::io::{self, Read};

use frame::{FrameProgress, FrameReader};
use weft_rnic::mpa::MpaOffer;
use weft_rnic::mpa::negotiate::{Initiator, Responder};
use weft_rnic::wire::mpa::{HEADER_LEN, StartKind};

// The module by itself: the engine around it has threads.
#[allow(dead_code)]
#[path = "../../crates/net/src/mpa_frame.rs"]
mod frame;

/// Private data of a start frame at most (RFC 5044, section 7.1.1).
const PRIVATE_DATA_MAX: usize = 512;

/// `data` after its first two bytes, which choose the kind of frame and the size of the parts.
pub fn frame(data: &[u8]) {
    let [choice, part, stream @ ..] = data else { return };
    let kind = if choice & 1 == 0 { StartKind::Request } else { StartKind::Reply };
    let (whole, left) = read(kind, stream, usize::MAX);
    assert_eq!((&whole, left), (&read(kind, stream, usize::from(*part) + 1).0, left));
    let FrameProgress::Whole(bytes) = whole else { return };
    assert_eq!(bytes, stream[..stream.len() - left]);
    assert!(bytes.len() <= HEADER_LEN + PRIVATE_DATA_MAX);
    // What rdma-cm does with it next; whether it is good is for these to say.
    let initiator = Initiator::new(MpaOffer::new(8, 8)).expect("no private data");
    let _ = (Responder::handle_request(&bytes), initiator.handle_reply(&bytes));
}

/// How the frame ends, and how many bytes are left behind it.
fn read(kind: StartKind, stream: &[u8], part: usize) -> (FrameProgress, usize) {
    let mut drip = Drip { bytes: stream, part, dry: false };
    let mut reader = FrameReader::new(kind);
    loop {
        match reader.read(&mut drip) {
            FrameProgress::Pending => {}
            ended => return (ended, drip.bytes.len()),
        }
    }
}

/// Gives out its bytes in parts, and would block in between.
struct Drip<'a> {
    bytes: &'a [u8],
    part: usize,
    dry: bool,
}

impl Read for Drip<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.dry = !self.dry;
        if !self.dry {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let len = self.part.min(out.len()).min(self.bytes.len());
        let (now, later) = self.bytes.split_at(len);
        out[..len].copy_from_slice(now);
        self.bytes = later;
        Ok(len)
    }
}
