//! A receiver that wants more than it may.

use std::thread;

use weft_copy::messages::{CopyOptions, PIECE_MAX, RANGES_MAX, ToSender, send_replies};
use weft_copy::meter::{Meter, ShowStyle};
use weft_copy::send;
use weft_session::MessageChannel;
use weft_testkit::Dir;

/// Sends a file of `size` bytes to a receiver that wants `count` bytes of it, each by itself; why
/// that ends.
fn send_ranges(size: u64, count: usize) -> String {
    let dir = Dir::new("many-ranges");
    dir.write("file", vec![7; size as usize]);
    let (near_in, far_out) = std::io::pipe().unwrap();
    let (far_in, near_out) = std::io::pipe().unwrap();
    let near = MessageChannel::through(near_in, near_out);
    let far = MessageChannel::through(far_in, far_out);
    let source = dir.path("file").into_os_string().into_encoded_bytes();
    let outcome = thread::scope(|scope| {
        scope.spawn(move || {
            // The beginning, and the entry.
            for _ in 0..2 {
                far.receiver().recv().unwrap().unwrap();
            }
            let ranges = (0..count as u64).map(|at| (2 * at, 2 * at + 1)).collect();
            send_replies(&far.sender(), &[ToSender::Wants { file: 0, ranges }]).unwrap();
            // It says nothing else, and hears what still comes.
            send_replies(&far.sender(), &[ToSender::Fatal("enough".into())]).ok();
            while let Ok(Some(_)) = far.receiver().recv() {}
        });
        let meter = Meter::new(ShowStyle::Silent, false);
        let outcome = send::send(&near, &[source], &CopyOptions::default(), &meter);
        drop(near);
        outcome
    });
    format!("{:#}", outcome.unwrap_err())
}

#[test]
fn more_ranges_of_a_file_than_agreed_end_the_copy() {
    let large = 2 * PIECE_MAX;
    assert_eq!(send_ranges(large, RANGES_MAX), "enough");
    let why = send_ranges(large, RANGES_MAX + 1);
    assert!(why.contains("wants 4097 ranges of") && why.contains("file: more than 4096"), "{why}");
    assert_eq!(send_ranges(1000, 1), "enough");
    let why = send_ranges(1000, 2);
    assert!(why.contains("wants 2 ranges of") && why.contains("file: more than 1"), "{why}");
}
