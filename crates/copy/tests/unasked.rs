//! What a sender sends before the receiver has said what it wants.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use weft_copy::messages::{
    CopyOptions, FileOutcome, FilePiece, PIECE_MAX, ToReceiver, ToSender, parse_message,
    send_replies,
};
use weft_copy::meter::{Meter, ShowStyle};
use weft_copy::send;
use weft_session::MessageChannel;
use weft_testkit::Dir;

/// Bytes that may come unasked.
const UNASKED: u64 = 1024 * 1024;

/// A receiver that a test speaks for.
struct Script {
    channel: MessageChannel,
    /// The sender has said that all is listed.
    is_listed: AtomicBool,
}

impl Script {
    /// The next message that is no entry and no beginning.
    fn next(&self) -> ToReceiver {
        loop {
            let message = self.channel.receiver().recv().unwrap().expect("the sender has ended");
            match parse_message(&message.into_bytes().unwrap()).unwrap().0 {
                ToReceiver::Begin { .. } | ToReceiver::Entries(_) => {}
                said => {
                    let is_listed = matches!(said, ToReceiver::Listed { .. });
                    self.is_listed.fetch_or(is_listed, Ordering::Relaxed);
                    return said;
                }
            }
        }
    }

    /// Pieces of as many bytes as `until`.
    fn pieces(&self, until: u64) -> Vec<FilePiece> {
        let mut all = Vec::new();
        while count(&all) < until {
            if let ToReceiver::Pieces(pieces) = self.next() {
                all.extend(pieces);
            }
        }
        all
    }

    fn say(&self, what: &ToSender) {
        send_replies(&self.channel.sender(), std::slice::from_ref(what)).unwrap();
    }

    fn end(&self, outcome: FileOutcome) {
        // A receiver does not finish before.
        while !self.is_listed.load(Ordering::Relaxed) {
            self.next();
        }
        self.say(&ToSender::Closed { file: 0, outcome });
        self.say(&ToSender::Finished);
    }
}

fn count(pieces: &[FilePiece]) -> u64 {
    pieces.iter().map(|piece| piece.len).sum()
}

/// Sends a file of `size` bytes to a receiver that does as `script` says. Gives the bytes that
/// the sender counts as copied, and as there.
fn send_to(name: &str, size: u64, script: impl FnOnce(&Script) + Send) -> (u64, u64) {
    let dir = Dir::new(name);
    dir.write("file", vec![7; size as usize]);
    let (near_in, far_out) = std::io::pipe().unwrap();
    let (far_in, near_out) = std::io::pipe().unwrap();
    let near = MessageChannel::through(near_in, near_out);
    let far = Script {
        channel: MessageChannel::through(far_in, far_out),
        is_listed: AtomicBool::new(false),
    };
    let meter = Meter::new(ShowStyle::Silent, false);
    let source = dir.path("file").into_os_string().into_encoded_bytes();
    thread::scope(|scope| {
        scope.spawn(|| script(&far));
        send::send(&near, &[source], &CopyOptions::default(), &meter).unwrap();
        let _ = near.finish(Duration::ZERO);
    });
    (meter.bytes_moved.load(Ordering::Relaxed), meter.bytes_done.load(Ordering::Relaxed))
}

#[test]
fn the_first_mebibyte_comes_unasked_and_once() {
    let size = 3 * UNASKED + 5;
    let counted = send_to("unasked", size, |far| {
        let mut pieces = far.pieces(UNASKED);
        assert_eq!(count(&pieces), UNASKED, "nobody has asked for more");
        assert!(pieces.iter().all(|piece| piece.offset + piece.len <= UNASKED));
        far.say(&ToSender::Wants { file: 0, ranges: vec![(0, size)] });
        pieces.extend(far.pieces(size - UNASKED));
        pieces.sort_by_key(|piece| piece.offset);
        let mut at = 0;
        for piece in &pieces {
            assert_eq!(piece.offset, at, "{pieces:?}");
            at += piece.len;
        }
        assert_eq!(pieces.iter().filter(|piece| piece.is_last).count(), 1);
        far.end(FileOutcome::Complete);
    });
    assert_eq!(counted, (size, size));
}

#[test]
fn a_file_that_came_unasked_as_a_whole_needs_no_answer() {
    let size = PIECE_MAX + 1;
    let counted = send_to("whole", size, |far| {
        let pieces = far.pieces(size);
        assert_eq!(pieces.iter().filter(|piece| piece.is_last).count(), 1);
        far.say(&ToSender::Wants { file: 0, ranges: vec![(0, size)] });
        far.end(FileOutcome::Complete);
    });
    assert_eq!(counted, (size, size));
}

#[test]
fn what_is_there_already_does_not_count_as_copied() {
    let size = 2 * UNASKED;
    let counted = send_to("skipped", size, |far| {
        far.pieces(UNASKED);
        far.end(FileOutcome::Skipped);
    });
    assert_eq!(counted, (0, size));
}

#[test]
fn a_receiver_that_resumes_gets_the_last_word_without_bytes() {
    let size = 2 * UNASKED;
    let counted = send_to("resumed", size, |far| {
        far.pieces(UNASKED);
        // All behind it is there, and a part of it is not.
        far.say(&ToSender::Wants { file: 0, ranges: vec![(10, 20)] });
        let last = loop {
            if let ToReceiver::Pieces(pieces) = far.next() {
                break pieces;
            }
        };
        assert!(matches!(&last[..], [piece] if piece.is_last && piece.len == 0), "{last:?}");
        far.end(FileOutcome::Complete);
    });
    assert_eq!(counted, (UNASKED, size));
}
