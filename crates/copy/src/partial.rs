//! A file that is being received: what of it is verified, what of that is durable, and in which
//! order it becomes so. Without I/O: the shell carries out what is said here.
//!
//! Invariant: the record never names a byte that a power failure could take away: the bytes of a
//! checkpoint are chosen before the data is flushed, and written down only afterwards. The file has
//! its name only when all its bytes are verified and flushed; its record goes after that.
//!
//! Order: [`PartialFile::new`]; [`PartialFile::written`] for each piece whose hash is right;
//! meanwhile [`PartialFile::begin_checkpoint`], flush the data, [`PartialFile::flushed`], replace
//! the record durably; when [`PartialFile::is_whole`], the steps of [`FINISH`] one by one.

use std::ops::Range;

use anyhow::{Result, ensure};

use crate::byte_ranges::ByteRanges;
use crate::messages::RANGES_MAX;
use crate::record::{CopyRecord, SourceIdentity};

/// What a whole file needs, in order.
pub const FINISH: [FinishStep; 5] = [
    FinishStep::SetAttributes,
    FinishStep::FlushFile,
    FinishStep::Rename,
    FinishStep::FlushDirectory,
    FinishStep::RemoveRecord,
];

/// A step that makes a whole file one of its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishStep {
    /// Permissions, owner, times.
    SetAttributes,
    /// Data and attributes reach the disk.
    FlushFile,
    /// From the partial file's name to its own.
    Rename,
    /// The new name reaches the disk.
    FlushDirectory,
    /// Nobody needs the record any more.
    RemoveRecord,
}

/// A file that is being received.
#[derive(Clone, Debug)]
pub struct PartialFile {
    /// What is verified and durable.
    durable: CopyRecord,
    /// What is verified and written.
    written: ByteRanges,
    /// What the checkpoint in progress makes durable.
    checkpoint: Option<ByteRanges>,
    is_sent: bool,
}

impl PartialFile {
    /// A file of `source`, in a partial file of `inode`, which is what `record` says, if that is
    /// about the same source and the same partial file.
    pub fn new(source: SourceIdentity, inode: u64, record: Option<CopyRecord>) -> Self {
        let usable = record.filter(|record| record.matches(source, inode));
        let verified = usable.map(|record| record.verified).unwrap_or_default();
        let written = verified.clone();
        let durable = CopyRecord { source, inode, verified };
        Self { durable, written, checkpoint: None, is_sent: false }
    }

    /// What is missing: [`RANGES_MAX`] ranges at most. If there are more, the last one has some of
    /// what is there.
    pub fn wants(&self) -> Vec<Range<u64>> {
        let mut gaps = self.written.gaps(self.durable.source.size);
        let end = gaps.last().map_or(0, |last| last.end);
        gaps.truncate(RANGES_MAX);
        if let Some(last) = gaps.last_mut() {
            last.end = end;
        }
        gaps
    }

    /// How many bytes need not be sent.
    pub fn kept(&self) -> u64 {
        self.written.count()
    }

    /// A piece was verified and written.
    ///
    /// # Errors
    /// It reaches beyond the end of the file.
    pub fn written(&mut self, offset: u64, len: u64) -> Result<()> {
        self.check(offset, len)?;
        self.written.insert(offset..offset + len);
        Ok(())
    }

    /// Whether a piece lies in the file.
    ///
    /// # Errors
    /// It does not.
    pub fn check(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len);
        let is_inside = end.is_some_and(|end| end <= self.durable.source.size);
        ensure!(is_inside, "the far end sent bytes beyond the end of the file");
        Ok(())
    }

    /// Whether a piece in the file was verified and written before.
    pub fn has(&self, offset: u64, len: u64) -> bool {
        self.written.contains(offset..offset + len)
    }

    /// The sender has sent all of it, and the source has not changed meanwhile.
    pub fn sent(&mut self) {
        self.is_sent = true;
    }

    /// Whether it is all there, and is what the source is.
    pub fn is_whole(&self) -> bool {
        self.is_sent && self.written.contains(0..self.durable.source.size)
    }

    /// Bytes that a crash would lose now.
    pub fn at_risk(&self) -> u64 {
        self.written.count() - self.durable.verified.count()
    }

    /// Chooses what the next flush of the data makes durable; whether that is anything new.
    pub fn begin_checkpoint(&mut self) -> bool {
        if self.written == self.durable.verified {
            return false;
        }
        self.checkpoint = Some(self.written.clone());
        true
    }

    /// Where the last of the bytes ends that the checkpoint in progress makes durable.
    pub fn checkpoint_end(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, ByteRanges::end)
    }

    /// The data was flushed after the checkpoint had begun: gives the record to write.
    pub fn flushed(&mut self) -> Option<Vec<u8>> {
        self.durable.verified = self.checkpoint.take()?;
        Some(self.durable.encode())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::messages::SourceTime;

    const SIZE: usize = 48;
    const SOURCE: SourceIdentity = SourceIdentity {
        size: SIZE as u64,
        modified: SourceTime { secs: 5, nanos: 0 },
        digest: None,
    };
    const SHORT: SourceIdentity = SourceIdentity { size: 10, ..SOURCE };

    /// A disk with a cache: what is flushed survives a power failure, of the rest chance decides.
    #[derive(Clone, Default)]
    struct Disk {
        /// The bytes of the partial file as processes see them, and as they are on the disk.
        cached: Vec<u8>,
        stored: Vec<u8>,
        record: Option<Vec<u8>>,
        stored_record: Option<Vec<u8>>,
        /// The file under its own name: its bytes, and whether that reached the disk.
        named: Option<(Vec<u8>, bool)>,
        has_partial: bool,
    }

    impl Disk {
        fn open(&mut self) -> u64 {
            if !self.has_partial {
                self.has_partial = true;
                self.cached = vec![0xee; SIZE];
                self.stored = vec![0xdd; SIZE];
            }
            9
        }

        fn flush(&mut self) {
            self.stored = self.cached.clone();
        }

        fn replace_record(&mut self, record: Vec<u8>) {
            self.record = Some(record.clone());
            self.stored_record = Some(record);
        }

        /// A power failure: each byte that was not flushed is there or not; so is a rename.
        fn lose_power(&mut self, chance: &mut impl FnMut() -> bool) {
            for (cached, stored) in self.cached.iter_mut().zip(&mut self.stored) {
                if chance() {
                    *stored = *cached;
                }
                *cached = *stored;
            }
            if let Some((bytes, false)) = self.named.take_if(|named| !named.1)
                && chance()
            {
                self.named = Some((bytes, true));
                self.has_partial = false;
            } else if self.named.is_none() {
                self.has_partial |= !self.cached.is_empty();
            }
            self.record = self.stored_record.clone();
        }

        fn finish(&mut self, step: FinishStep) {
            match step {
                FinishStep::SetAttributes => {}
                FinishStep::FlushFile => self.flush(),
                FinishStep::Rename => {
                    self.named = Some((self.cached.clone(), false));
                    self.has_partial = false;
                }
                FinishStep::FlushDirectory => {
                    if let Some(named) = &mut self.named {
                        named.1 = true;
                    }
                }
                FinishStep::RemoveRecord => {
                    self.record = None;
                    self.stored_record = None;
                }
            }
        }
    }

    fn source() -> Vec<u8> {
        (0..SIZE).map(|at| at as u8).collect()
    }

    /// What the record says of the partial file must be so, whatever happened.
    fn check(disk: &Disk) {
        if let Some((bytes, _)) = &disk.named {
            assert_eq!(*bytes, source(), "a file under its name is whole");
        }
        let record = disk.record.as_deref().and_then(CopyRecord::decode);
        for range in record.iter().flat_map(|record| record.verified.iter()) {
            let range = range.start as usize..range.end as usize;
            if disk.has_partial {
                assert_eq!(disk.cached[range.clone()], source()[range]);
            }
        }
    }

    /// One run of the receiver: `actions` decide what happens next; it ends when they do, or when
    /// the file has its name.
    fn run(disk: &mut Disk, actions: &mut impl Iterator<Item = u8>) {
        if disk.named.is_some() {
            return;
        }
        let had_partial = disk.has_partial;
        let inode = disk.open();
        let record = disk.record.as_deref().and_then(CopyRecord::decode);
        let record = record.filter(|_| had_partial);
        let mut file = PartialFile::new(SOURCE, inode, record);
        let mut wants: Vec<u64> = file.wants().into_iter().flatten().collect();
        let mut finish = FINISH.iter();
        let mut is_flushed = false;
        for action in actions.by_ref() {
            if file.is_whole() {
                let Some(step) = finish.next() else { return };
                disk.finish(*step);
                check(disk);
                continue;
            }
            match action % 8 {
                0..=4 if !wants.is_empty() => {
                    let at = wants.swap_remove(action as usize % wants.len());
                    disk.cached[at as usize] = at as u8;
                    file.written(at, 1).unwrap();
                }
                5 => {
                    is_flushed = false;
                    file.begin_checkpoint();
                }
                6 if file.checkpoint.is_some() => {
                    disk.flush();
                    is_flushed = true;
                }
                7 if is_flushed => {
                    if let Some(record) = file.flushed() {
                        disk.replace_record(record);
                    }
                }
                _ => {}
            }
            if wants.is_empty() {
                file.sent();
            }
            check(disk);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Crashes at every step, of the process or of the machine: what is left is never wrong,
        /// and the next run ends with the whole file.
        #[test]
        fn crashes_lose_nothing_that_was_recorded(
            runs in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..90), any::<u64>()),
                1..8,
            ),
        ) {
            let mut disk = Disk::default();
            for (actions, seed) in runs {
                run(&mut disk, &mut actions.into_iter());
                let mut bits = seed;
                if seed % 3 > 0 {
                    disk.lose_power(&mut || {
                        bits = bits.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        bits >> 63 == 1
                    });
                }
                check(&disk);
            }
            run(&mut disk, &mut std::iter::repeat_n(4, 10 * SIZE));
            prop_assert_eq!(disk.named.map(|named| named.0), Some(source()));
        }
    }

    #[test]
    fn what_comes_during_a_flush_is_not_recorded() {
        let mut file = PartialFile::new(SHORT, 1, None);
        file.written(0, 4).unwrap();
        assert!(file.begin_checkpoint());
        file.written(4, 4).unwrap();
        let record = CopyRecord::decode(&file.flushed().unwrap()).unwrap();
        assert!(record.verified.contains(0..4) && record.verified.end() == 4);
        assert_eq!(file.at_risk(), 4);
    }

    #[test]
    fn another_source_or_partial_file_starts_anew() {
        let record =
            CopyRecord { source: SHORT, inode: 1, verified: std::iter::once(0..10).collect() };
        let kept = |record: &CopyRecord, source, inode| {
            PartialFile::new(source, inode, Some(record.clone())).kept()
        };
        assert_eq!(kept(&record, SHORT, 1), 10);
        let longer = SourceIdentity { size: 11, ..SHORT };
        let later = SourceIdentity { modified: SourceTime { secs: 6, nanos: 0 }, ..SHORT };
        let others = [kept(&record, longer, 1), kept(&record, later, 1), kept(&record, SHORT, 2)];
        assert_eq!(others, [0; 3]);
        // Content counts where it is compared.
        let compared = |byte| SourceIdentity { digest: Some([byte; 32]), ..SHORT };
        let first = CopyRecord { source: compared(1), ..record.clone() };
        assert_eq!((kept(&first, compared(1), 1), kept(&first, SHORT, 1)), (10, 10));
        assert_eq!((kept(&first, compared(2), 1), kept(&record, compared(1), 1)), (0, 0));
    }

    #[test]
    fn not_more_ranges_are_wanted_than_agreed() {
        let size = 10 * RANGES_MAX as u64;
        let mut file = PartialFile::new(SourceIdentity { size, ..SOURCE }, 1, None);
        (0..size / 2).for_each(|at| file.written(2 * at, 1).unwrap());
        let wanted = file.wants();
        assert_eq!(wanted.len(), RANGES_MAX);
        assert_eq!(wanted.last().unwrap().end, size);
        for range in wanted {
            file.written(range.start, range.end - range.start).unwrap();
        }
        file.sent();
        assert!(file.is_whole());
    }

    #[test]
    fn bytes_beyond_the_end_are_refused() {
        let mut file = PartialFile::new(SHORT, 1, None);
        assert!(file.written(9, 2).is_err() && file.written(u64::MAX, 2).is_err());
        file.written(0, 10).unwrap();
        assert!(!file.is_whole(), "the sender has not said that it is all");
        file.sent();
        assert!(file.is_whole());
    }
}
