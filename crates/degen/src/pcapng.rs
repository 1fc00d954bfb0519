//! Packets in a file that Wireshark reads: pcapng (draft-ietf-opsawg-pcapng), raw IP, nanoseconds.

use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LINKTYPE_RAW: u16 = 101;
const OPTION_NAME: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_FLAGS: u16 = 2;
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// A capture with one interface.
#[derive(Debug)]
pub struct CaptureWriter<W: Write> {
    to: W,
    block: Vec<u8>,
    /// What went wrong first; nothing is written after it, so that the file is whole up to there.
    failed: Option<io::Error>,
}

impl<W: Write> CaptureWriter<W> {
    /// Begins a capture at the interface `name`.
    ///
    /// # Errors
    /// What `to` says.
    pub fn new(to: W, name: &str) -> io::Result<Self> {
        let mut writer = Self { to, block: Vec::new(), failed: None };
        writer.words(&[BYTE_ORDER]);
        writer.halves(&[1, 0]);
        writer.block.extend(u64::MAX.to_le_bytes());
        writer.finish(SECTION_HEADER)?;
        writer.halves(&[LINKTYPE_RAW, 0]);
        writer.words(&[0]);
        writer.option(OPTION_NAME, name.as_bytes());
        // Ten to the minus nine.
        writer.option(OPTION_RESOLUTION, &[9]);
        writer.halves(&[0, 0]);
        writer.finish(INTERFACE)?;
        Ok(writer)
    }

    /// Adds an IP packet; the time is nanoseconds since 1970. What goes wrong is told by
    /// [`CaptureWriter::flush`].
    pub fn packet(&mut self, time_ns: u64, inbound: bool, packet: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        let bytes = packet.len() as u32;
        self.words(&[0, (time_ns >> 32) as u32, time_ns as u32, bytes, bytes]);
        self.block.extend(packet);
        self.pad();
        let flags = if inbound { INBOUND } else { OUTBOUND };
        self.option(OPTION_FLAGS, &flags.to_le_bytes());
        self.halves(&[0, 0]);
        self.failed = self.finish(ENHANCED_PACKET).err();
    }

    /// Hands on what is still held back.
    ///
    /// # Errors
    /// The first thing that went wrong, once.
    pub fn flush(&mut self) -> io::Result<()> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.to.flush(),
        }
    }

    fn words(&mut self, words: &[u32]) {
        self.block.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    fn halves(&mut self, halves: &[u16]) {
        self.block.extend(halves.iter().flat_map(|half| half.to_le_bytes()));
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.halves(&[code, value.len() as u16]);
        self.block.extend(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn finish(&mut self, kind: u32) -> io::Result<()> {
        let bytes = self.block.len() as u32 + 12;
        self.to.write_all(&kind.to_le_bytes())?;
        self.to.write_all(&bytes.to_le_bytes())?;
        self.to.write_all(&self.block)?;
        self.to.write_all(&bytes.to_le_bytes())?;
        self.block.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_ends_the_file_and_is_told() {
        let mut disk = [0; 200];
        let mut writer = CaptureWriter::new(&mut disk[..], "near").unwrap();
        for _ in 0..100 {
            writer.packet(0, true, &[0x45; 60]);
        }
        assert!(writer.block.len() < 200);
        assert!(writer.flush().is_err());
    }

    #[test]
    fn blocks_have_the_length_they_say_twice() {
        let mut file = Vec::new();
        let mut writer = CaptureWriter::new(&mut file, "near").unwrap();
        for bytes in 20..24 {
            writer.packet(u64::from(u32::MAX) + 5, bytes % 2 == 0, &vec![0x45; bytes]);
        }
        writer.flush().unwrap();
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let (mut at, mut kinds) = (0, Vec::new());
        while at < file.len() {
            let bytes = word(at + 4) as usize;
            assert_eq!((bytes % 4, word(at + bytes - 4) as usize), (0, bytes));
            kinds.push(word(at));
            at += bytes;
        }
        let mut expected = vec![SECTION_HEADER, INTERFACE];
        expected.extend([ENHANCED_PACKET; 4]);
        assert_eq!((at, kinds), (file.len(), expected));
    }
}
