//! What the sender sends next: pieces of the files that the receiver wants, in the order in which
//! it asked, small ones together in one message. Without I/O.
//!
//! Invariant: each wanted byte is planned once; a message has [`PIECE_MAX`] bytes and
//! [`PIECES_MAX`] pieces at most; and memory grows with the ranges that are wanted, not with their
//! lengths.
//!
//! Order: [`SendPlan::want`] and [`SendPlan::forget`] as the receiver speaks;
//! [`SendPlan::next_pieces`] whenever there is room to send.

use std::collections::VecDeque;

use crate::messages::{PIECE_MAX, PIECES_MAX};

/// A piece that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedPiece {
    /// Number of the file.
    pub file: u64,
    /// Where it begins.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Whether it is a hole of the source, whose zeros need not be sent.
    pub is_hole: bool,
}

/// What is wanted and not planned yet.
#[derive(Debug, Default)]
pub struct SendPlan {
    waiting: VecDeque<PlannedPiece>,
}

impl SendPlan {
    /// The receiver wants these bytes, which may be many.
    pub fn want(&mut self, piece: PlannedPiece) {
        self.waiting.push_back(piece);
    }

    /// A file needs nothing more.
    pub fn forget(&mut self, file: u64) {
        self.waiting.retain(|piece| piece.file != file);
    }

    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The pieces of the next message; `None` if nothing is wanted.
    pub fn next_pieces(&mut self) -> Option<Vec<PlannedPiece>> {
        let mut room = PIECE_MAX;
        let mut pieces = Vec::new();
        while pieces.len() < PIECES_MAX
            && let Some(first) = self.waiting.front_mut()
        {
            if first.is_hole {
                pieces.extend(self.waiting.pop_front());
                continue;
            }
            let len = first.len.min(PIECE_MAX);
            if len > room {
                break;
            }
            room -= len;
            pieces.push(PlannedPiece { len, ..*first });
            first.offset += len;
            first.len -= len;
            if first.len == 0 {
                self.waiting.pop_front();
            }
        }
        (!pieces.is_empty()).then_some(pieces)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::byte_ranges::ByteRanges;

    proptest! {
        #[test]
        fn every_byte_is_planned_once(
            files in prop::collection::vec((0..3_000_000_u64, prop::bool::weighted(0.1)), 0..300),
        ) {
            let mut plan = SendPlan::default();
            for (file, &(len, is_hole)) in (0..).zip(&files) {
                plan.want(PlannedPiece { file, offset: 7, len, is_hole });
            }
            let mut seen = vec![ByteRanges::default(); files.len()];
            let mut messages = 0;
            while let Some(pieces) = plan.next_pieces() {
                messages += 1;
                prop_assert!(pieces.len() <= PIECES_MAX);
                let sent = pieces.iter().filter(|piece| !piece.is_hole);
                prop_assert!(sent.map(|piece| piece.len).sum::<u64>() <= PIECE_MAX);
                for piece in pieces {
                    let of = &mut seen[piece.file as usize];
                    let before = of.count();
                    of.insert(piece.offset..piece.offset + piece.len);
                    prop_assert_eq!(of.count(), before + piece.len);
                }
            }
            let planned = seen.iter().map(ByteRanges::count);
            prop_assert!(planned.eq(files.iter().map(|file| file.0)));
            let bytes: u64 = files.iter().map(|file| file.0).sum();
            prop_assert!(messages <= 2 * bytes / PIECE_MAX + files.len() as u64 / 90 + 2);
        }
    }

    #[test]
    fn small_files_share_a_message() {
        let mut plan = SendPlan::default();
        for file in 0..100 {
            plan.want(PlannedPiece { file, offset: 0, len: 4096, is_hole: false });
        }
        assert_eq!(plan.next_pieces().unwrap().len(), 64);
        plan.forget(70);
        assert_eq!(plan.next_pieces().unwrap().len(), 35);
        assert_eq!(plan.next_pieces(), None);
    }

    #[test]
    fn a_file_of_which_nothing_is_missing_has_one_empty_piece() {
        let mut plan = SendPlan::default();
        let piece = PlannedPiece { file: 0, offset: 0, len: 0, is_hole: true };
        plan.want(piece);
        assert_eq!(plan.next_pieces(), Some(vec![piece]));
        assert_eq!(plan.next_pieces(), None);
    }
}
