//! From host to host: what passes between a sender and a receiver.

use std::thread;
use std::time::Duration;

use weft_copy::messages::{ToReceiver, send_message};
use weft_copy::meter::{Meter, ShowStyle};
use weft_copy::relay;
use weft_session::MessageChannel;

/// Two ends that are joined in this process.
fn joined() -> (MessageChannel, MessageChannel) {
    let (near_in, far_out) = std::io::pipe().unwrap();
    let (far_in, near_out) = std::io::pipe().unwrap();
    (MessageChannel::through(near_in, near_out), MessageChannel::through(far_in, far_out))
}

#[test]
fn a_sender_that_leaves_early_ends_the_copy() {
    let (from, sender) = joined();
    let (to, receiver) = joined();
    let meter = Meter::new(ShowStyle::Silent, false);
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            let begin = ToReceiver::Begin { sources: 1, has_directory: false };
            send_message(&sender.sender(), &begin, &[]).unwrap();
            let _ = sender.finish(Duration::ZERO);
        });
        // A receiver that waits for what has not come.
        scope.spawn(|| while let Ok(Some(_)) = receiver.receiver().recv() {});
        let outcome = relay::relay(&from, &to, None, &meter);
        drop((from, to));
        outcome
    });
    let error = format!("{:#}", outcome.unwrap_err());
    assert!(error.contains("stopped before the copy was over"), "{error}");
}
