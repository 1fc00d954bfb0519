//! A rate is for what is sent: nothing waits for it once the copy is over.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use weft_copy::messages::{
    CopyOptions, FileOutcome, ToReceiver, ToSender, parse_message, send_replies,
};
use weft_copy::meter::{Meter, ShowStyle};
use weft_copy::send;
use weft_session::MessageChannel;
use weft_testkit::{Dir, LIMIT};

/// At this rate the first mebibyte, which is sent unasked, takes two hours.
const RATE_BPS: u64 = 1000;

/// Sends a file of a mebibyte to a receiver whose last words are these.
fn send_at_rate(name: &str, last: &[ToSender]) -> Result<(), String> {
    let dir = Dir::new(name);
    let source = dir.write("file", vec![7; 1 << 20]).into_os_string().into_encoded_bytes();
    let (near_in, far_out) = std::io::pipe().unwrap();
    let (far_in, near_out) = std::io::pipe().unwrap();
    let near = MessageChannel::through(near_in, near_out);
    let far = MessageChannel::through(far_in, far_out);
    let (ending, ended) = mpsc::channel();
    thread::spawn(move || {
        let meter = Meter::new(ShowStyle::Silent, false);
        let options = CopyOptions { limit_bps: Some(RATE_BPS), ..CopyOptions::default() };
        let outcome = send::send(&near, &[source], &options, &meter);
        let _ = ending.send(outcome.map_err(|error| format!("{error:#}")));
    });
    loop {
        let message = far.receiver().recv().unwrap().unwrap().into_bytes().unwrap();
        if matches!(parse_message(&message).unwrap().0, ToReceiver::Listed { .. }) {
            break;
        }
    }
    send_replies(&far.sender(), last).unwrap();
    ended.recv_timeout(LIMIT.min(Duration::from_secs(60))).expect("it waits for its rate")
}

#[test]
fn a_file_that_is_there_already_is_not_waited_for() {
    let skipped = ToSender::Closed { file: 0, outcome: FileOutcome::Skipped };
    assert_eq!(send_at_rate("limit-skipped", &[skipped, ToSender::Finished]), Ok(()));
}

#[test]
fn a_copy_that_has_failed_is_not_waited_for() {
    let outcome = send_at_rate("limit-fatal", &[ToSender::Fatal("the disk is full".into())]);
    assert!(outcome.is_err_and(|why| why.contains("the disk is full")));
}
