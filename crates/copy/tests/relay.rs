//! From host to host: what passes between a sender and a receiver.

use std::thread;
use std::time::Duration;

use weft_copy::asked_names::AskedNames;
use weft_copy::messages::{
    ListedEntry, ListedKind, SourceTime, ToReceiver, parse_message, send_message,
};
use weft_copy::meter::{Meter, ShowStyle};
use weft_copy::relay;
use weft_session::MessageChannel;

/// Two ends that are joined in this process.
fn joined() -> (MessageChannel, MessageChannel) {
    let (near_in, far_out) = std::io::pipe().unwrap();
    let (far_in, near_out) = std::io::pipe().unwrap();
    (MessageChannel::through(near_in, near_out), MessageChannel::through(far_in, far_out))
}

/// Passes on what `sender` says of `sources`, to a receiver that only listens: how the copy ends,
/// and what the receiver has got.
fn relayed(
    sources: &[&str],
    sender: impl FnOnce(MessageChannel) + Send,
) -> (String, Vec<ToReceiver>) {
    let (from, sending) = joined();
    let (to, receiver) = joined();
    let meter = Meter::new(ShowStyle::Silent, false);
    let sources: Vec<_> = sources.iter().map(|source| source.as_bytes().to_vec()).collect();
    let asked = AskedNames::of(&sources, true);
    thread::scope(|scope| {
        scope.spawn(|| sender(sending));
        let hearing = scope.spawn(move || {
            let mut heard = Vec::new();
            while let Ok(Some(message)) = receiver.receiver().recv() {
                heard.push(parse_message(&message.into_bytes().unwrap()).unwrap().0);
                if matches!(heard.last(), Some(ToReceiver::Entries(_))) {
                    // It leaves with this, and ends the copy.
                    break;
                }
            }
            heard
        });
        let outcome = relay::relay(&from, &to, &asked, None, &meter);
        drop((from, to));
        (format!("{:#}", outcome.unwrap_err()), hearing.join().unwrap())
    })
}

fn entry(path: &str, kind: ListedKind) -> ListedEntry {
    ListedEntry {
        path: path.into(),
        kind,
        mode: 0o644,
        modified: SourceTime::default(),
        owner: (0, 0),
        xattrs: Vec::new(),
    }
}

#[test]
fn a_sender_that_leaves_early_ends_the_copy() {
    let (error, _) = relayed(&["file"], |sender| {
        let begin = ToReceiver::Begin { sources: 1, has_directory: false };
        send_message(&sender.sender(), &begin, &[]).unwrap();
        let _ = sender.finish(Duration::ZERO);
    });
    assert!(error.contains("stopped before the copy was over"), "{error}");
}

#[test]
fn what_the_sender_was_not_asked_for_is_not_passed_on() {
    let file = || ListedKind::File { size: 4, digest: None };
    let link = || ListedKind::Symlink { target: b"/etc/passwd".to_vec() };
    for (source, has_directory, path, kind) in [
        ("notes", false, ".ssh", file()),
        ("notes", true, ".ssh/authorized_keys", file()),
        ("notes", false, "notes", link()),
        ("notes/", false, "x", file()),
        ("notes", true, "notes", ListedKind::Hardlink { to: b".ssh/authorized_keys".to_vec() }),
    ] {
        let bad = entry(path, kind);
        let (error, heard) = relayed(&[source], |sender| {
            let begin = ToReceiver::Begin { sources: 1, has_directory };
            let to = sender.sender();
            send_message(&to, &begin, &[]).unwrap();
            send_message(&to, &ToReceiver::Entries(vec![bad]), &[]).unwrap();
            // Until the copy is ended: it is not the sender that leaves.
            while let Ok(Some(_)) = sender.receiver().recv() {}
        });
        assert!(error.contains("not asked for"), "{path}: {error}");
        assert!(!heard.iter().any(|it| matches!(it, ToReceiver::Entries(_))), "{heard:?}");
    }
}
