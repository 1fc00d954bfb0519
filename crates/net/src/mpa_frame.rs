//! Reads exactly one MPA start frame from a stream, as it comes: not a byte of what follows is
//! taken, because that is the first FPDU's.

use std::io::{self, Read};

use weft_rnic::cm::Failure;
use weft_rnic::wire::mpa::{HEADER_LEN, StartKind, frame_len};

/// How far the frame is.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameProgress {
    /// More has to come.
    Pending,
    /// This is it.
    Whole(Vec<u8>),
    /// It will never be.
    Broken(Failure),
}

/// A start frame that is being read.
pub struct FrameReader {
    kind: StartKind,
    bytes: Vec<u8>,
    /// Bytes until the next decision: first the header's, then the frame's.
    wanted: usize,
}

impl FrameReader {
    /// Reads a frame of this kind.
    pub fn new(kind: StartKind) -> FrameReader {
        FrameReader { kind, bytes: Vec::with_capacity(HEADER_LEN), wanted: HEADER_LEN }
    }

    /// Whether nothing of the frame has come yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes what there is. An end of the stream is a [`Failure::Reset`].
    pub fn read(&mut self, mut stream: impl Read) -> FrameProgress {
        loop {
            match self.fill(&mut stream) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return FrameProgress::Pending,
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    return FrameProgress::Broken(Failure::Reset);
                }
                Err(e) => {
                    return FrameProgress::Broken(Failure::from_errno(
                        e.raw_os_error().unwrap_or(libc::EIO),
                    ));
                }
            }
            match self.whole_len() {
                Ok(len) if len == self.bytes.len() => {
                    return FrameProgress::Whole(std::mem::take(&mut self.bytes));
                }
                Ok(len) => self.wanted = len,
                Err(failure) => return FrameProgress::Broken(failure),
            }
        }
    }

    fn whole_len(&self) -> Result<usize, Failure> {
        let header = self.bytes.first_chunk().ok_or(Failure::Protocol)?;
        frame_len(header, self.kind).map_err(|_| Failure::Protocol)
    }

    fn fill(&mut self, stream: &mut impl Read) -> io::Result<()> {
        let mut chunk = [0u8; 256];
        while self.bytes.len() < self.wanted {
            let most = (self.wanted - self.bytes.len()).min(chunk.len());
            match stream.read(&mut chunk[..most]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.bytes.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives out its bytes a few at a time, and would block in between.
    struct Drip<'a> {
        bytes: &'a [u8],
        step: usize,
        dry: bool,
    }

    impl Read for Drip<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.dry = !self.dry;
            if !self.dry {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let n = self.step.min(out.len()).min(self.bytes.len());
            let (now, later) = self.bytes.split_at(n);
            out[..n].copy_from_slice(now);
            self.bytes = later;
            Ok(n)
        }
    }

    fn request(private_data: &[u8]) -> Vec<u8> {
        let mut frame = b"MPA ID Req Frame\x40\x01".to_vec();
        frame.extend_from_slice(&(private_data.len() as u16).to_be_bytes());
        frame.extend_from_slice(private_data);
        frame
    }

    #[test]
    fn takes_one_frame_and_not_an_octet_more() {
        for len in [0, 1, 5, 256, 512] {
            for step in [1, 7, 1000] {
                let frame = request(&vec![0xAB; len]);
                let mut stream = frame.clone();
                stream.extend_from_slice(b"first FPDU");
                let mut drip = Drip { bytes: &stream, step, dry: false };
                let mut reader = FrameReader::new(StartKind::Request);
                let whole = loop {
                    match reader.read(&mut drip) {
                        FrameProgress::Pending => {}
                        other => break other,
                    }
                };
                assert_eq!(whole, FrameProgress::Whole(frame), "{len} octets in steps of {step}");
                assert_eq!(drip.bytes, b"first FPDU");
            }
        }
    }

    #[test]
    fn a_stream_that_ends_early_is_a_reset() {
        let frame = request(b"hello");
        for cut in 0..frame.len() {
            let mut reader = FrameReader::new(StartKind::Request);
            assert_eq!(reader.read(&frame[..cut]), FrameProgress::Broken(Failure::Reset));
            assert_eq!(reader.is_empty(), cut == 0);
        }
    }

    #[test]
    fn nonsense_is_known_by_its_header() {
        let mut reader = FrameReader::new(StartKind::Request);
        assert_eq!(
            reader.read(&b"GET / HTTP/1.1\r\nHost: x\r\n"[..]),
            FrameProgress::Broken(Failure::Protocol)
        );
        let mut long = request(b"");
        long[18..20].copy_from_slice(&513u16.to_be_bytes());
        let mut reader = FrameReader::new(StartKind::Request);
        assert_eq!(reader.read(&long[..]), FrameProgress::Broken(Failure::Protocol));
        // Two initiators: each gets the other's Request where it awaits a Reply.
        let mut reader = FrameReader::new(StartKind::Reply);
        assert_eq!(reader.read(&request(b"")[..]), FrameProgress::Broken(Failure::Protocol));
    }
}
