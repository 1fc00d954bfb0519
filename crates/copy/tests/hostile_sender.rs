//! A sender that wants to write where it must not, or to be believed what is not so.

use std::ffi::OsStr;
use std::fs;
use std::io::PipeReader;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use weft_copy::asked_names::AskedNames;
use weft_copy::messages::{
    CopyOptions, FileOutcome, FilePiece, ListedEntry, ListedKind, SourceTime, ToReceiver, ToSender,
    parse_replies, send_message,
};
use weft_copy::meter::{Meter, ShowStyle};
use weft_copy::receive;
use weft_copy::rel_path::companion;
use weft_session::MessageChannel;
use weft_testkit::Dir;

/// Two ends that are joined in this process.
fn joined() -> (MessageChannel, MessageChannel) {
    let (near_in, far_out) = std::io::pipe().unwrap();
    let (far_in, near_out): (PipeReader, _) = std::io::pipe().unwrap();
    (MessageChannel::through(near_in, near_out), MessageChannel::through(far_in, far_out))
}

/// What the receiver says to a sender of these messages, each with its payload, if it asked for
/// what is in a directory.
fn receive_from(destination: &Path, messages: Vec<(ToReceiver, Vec<u8>)>) -> Result<u64, String> {
    receive_asked("dir/", destination, messages)
}

/// The same if it asked for `source`.
fn receive_asked(
    source: &str,
    destination: &Path,
    messages: Vec<(ToReceiver, Vec<u8>)>,
) -> Result<u64, String> {
    let (near, far) = joined();
    let is_file = |entry: &ListedEntry| matches!(entry.kind, ListedKind::File { .. });
    let files: usize = messages
        .iter()
        .map(|(message, _)| match message {
            ToReceiver::Entries(entries) => entries.iter().filter(|entry| is_file(entry)).count(),
            _ => 0,
        })
        .sum();
    let is_early = messages.len() < 3 + files;
    let far = Arc::new(far);
    let (closing, closed) = mpsc::channel::<()>();
    let reading = Arc::clone(&far);
    // As a true sender does, it hears what the receiver says while it sends.
    let hearing = thread::spawn(move || {
        let mut receiver = reading.receiver();
        while let Ok(Some(message)) = receiver.recv() {
            let bytes = message.into_bytes().unwrap();
            let is_end = |said: &ToSender| matches!(said, ToSender::Finished | ToSender::Fatal(_));
            if parse_replies(&bytes).unwrap().iter().any(is_end) {
                return drop(closing);
            }
        }
    });
    let sending = thread::spawn(move || {
        let sender = far.sender();
        for (message, payload) in messages {
            if send_message(&sender, &message, &payload).is_err() {
                break;
            }
        }
        if is_early {
            // It says that nothing follows, and does not wait for an answer.
            let _ = far.finish(Duration::ZERO);
        }
        // Until the receiver has finished or ended the copy: it may still speak.
        closed.iter().for_each(drop);
    });
    let meter = Meter::new(ShowStyle::Silent, false);
    let options = CopyOptions { recursive: true, ..CopyOptions::default() };
    let path = destination.as_os_str().as_encoded_bytes();
    let asked = AskedNames::of(&[source.as_bytes().to_vec()], true);
    let outcome = receive::receive(&near, path, &options, Some(asked), None, &meter);
    drop(near);
    sending.join().unwrap();
    hearing.join().unwrap();
    let failed = meter.failed.load(std::sync::atomic::Ordering::Relaxed);
    outcome.map(|()| failed).map_err(|error| format!("{error:#}"))
}

fn entry(path: &str, kind: ListedKind) -> ListedEntry {
    ListedEntry {
        path: path.into(),
        kind,
        mode: 0o6755,
        modified: SourceTime { secs: 1_000_000, nanos: 5 },
        owner: (u32::MAX, u32::MAX),
        xattrs: Vec::new(),
    }
}

fn file(path: &str, size: u64) -> ListedEntry {
    entry(path, ListedKind::File { size, digest: None })
}

fn begin() -> (ToReceiver, Vec<u8>) {
    (ToReceiver::Begin { sources: 2, has_directory: true }, Vec::new())
}

/// The beginning of a copy of one file.
fn begin_single() -> (ToReceiver, Vec<u8>) {
    (ToReceiver::Begin { sources: 1, has_directory: false }, Vec::new())
}

fn listed(entries: Vec<ListedEntry>) -> (ToReceiver, Vec<u8>) {
    (ToReceiver::Entries(entries), Vec::new())
}

fn piece(file: u64, offset: u64, bytes: &[u8], hash: [u8; 32]) -> (ToReceiver, Vec<u8>) {
    let len = bytes.len() as u64;
    let piece = FilePiece { file, offset, len, hash: Some(hash), is_last: true };
    (ToReceiver::Pieces(vec![piece]), bytes.to_vec())
}

fn good_piece(file: u64, bytes: &[u8]) -> (ToReceiver, Vec<u8>) {
    piece(file, 0, bytes, *blake3::hash(bytes).as_bytes())
}

fn done() -> (ToReceiver, Vec<u8>) {
    (ToReceiver::Listed { files: 0, bytes: 0 }, Vec::new())
}

/// A directory with a destination, and one beside it that must stay as it is.
fn places(name: &str) -> Dir {
    let dir = Dir::new(name);
    fs::create_dir(dir.path("to")).unwrap();
    fs::create_dir(dir.path("outside")).unwrap();
    dir.write("outside/kept", "kept");
    dir
}

fn assert_untouched(dir: &Dir) {
    let names: Vec<_> = fs::read_dir(dir.path("outside")).unwrap().collect();
    assert_eq!(names.len(), 1);
    assert_eq!(fs::read(dir.path("outside/kept")).unwrap(), b"kept");
    assert_eq!(fs::read_dir(dir.root()).unwrap().count(), 2);
}

#[test]
fn paths_that_lead_out_end_the_copy() {
    for path in ["../outside/kept", "/tmp/weft-hostile", "a/../../outside/x", "..", "a//b"] {
        let dir = places("paths");
        let messages = vec![begin(), listed(vec![file(path, 4)]), good_piece(0, b"evil"), done()];
        receive_from(&dir.path("to"), messages).unwrap_err();
        assert_untouched(&dir);
    }
}

#[test]
fn links_that_it_made_are_not_followed() {
    let dir = places("links");
    let target = dir.path("outside").into_os_string().into_encoded_bytes();
    let link = entry("link", ListedKind::Symlink { target });
    let inside = entry("link/sub", ListedKind::Directory);
    let messages = vec![
        begin(),
        listed(vec![link, file("link/kept", 4), inside]),
        good_piece(1, b"evil"),
        done(),
    ];
    let failed = receive_from(&dir.path("to"), messages).unwrap();
    assert_eq!(failed, 2);
    assert_untouched(&dir);
    assert!(dir.path("to/link").is_symlink(), "the link itself is copied as it is");
}

#[test]
fn a_file_replaces_a_link_and_not_what_it_leads_to() {
    let dir = places("replaced");
    std::os::unix::fs::symlink("../outside/kept", dir.path("to/f")).unwrap();
    let messages = vec![begin(), listed(vec![file("f", 4)]), good_piece(0, b"good"), done()];
    assert_eq!(receive_from(&dir.path("to"), messages).unwrap(), 0);
    assert_untouched(&dir);
    assert_eq!(fs::read(dir.path("to/f")).unwrap(), b"good");
    assert!(!dir.path("to/f").is_symlink());
}

#[test]
fn the_destination_itself_is_followed_to_a_file_and_not_replaced() {
    let dir = places("followed");
    let copy = || vec![begin_single(), listed(vec![file("f", 4)]), good_piece(0, b"good"), done()];
    fs::write(dir.path("outside/other"), "old").unwrap();
    for target in ["../outside/other", "../outside/new"] {
        let link = dir.path("to/link");
        std::os::unix::fs::symlink(target, &link).unwrap();
        assert_eq!(receive_asked("f", &link, copy()).unwrap(), 0);
        assert_eq!(fs::read(dir.path("to").join(target)).unwrap(), b"good");
        assert_eq!(fs::read_link(&link).unwrap(), Path::new(target));
        fs::remove_file(link).unwrap();
    }
    let device = dir.path("to/device");
    std::os::unix::fs::symlink("/dev/null", &device).unwrap();
    assert_eq!(receive_asked("f", &device, copy()).unwrap(), 1);
    assert!(device.is_symlink());
}

/// The same command again would write where such a link leads.
#[test]
fn a_link_does_not_come_in_place_of_what_was_asked_for() {
    let link = |path| {
        let target = b"../outside/kept".to_vec();
        listed(vec![entry(path, ListedKind::Symlink { target })])
    };
    for (source, begin, path, to) in [
        // Under the name that the destination gives it, and under its own.
        ("notes", begin_single(), "notes", "to/notes"),
        ("no*", begin_single(), "notes", "to/notes"),
        ("notes", begin_single(), "notes", "to"),
        ("notes", begin(), "notes", "to"),
        // Where a directory is to be.
        ("notes/", begin_single(), "x", "to/notes"),
    ] {
        let dir = places("link-for-file");
        let messages = vec![begin, link(path), done()];
        let error = receive_asked(source, &dir.path(to), messages).unwrap_err();
        assert!(error.contains("not asked for"), "{source} {to}: {error}");
        assert!(!dir.path("to/notes").is_symlink(), "{source} {to}");
        assert_untouched(&dir);
    }
}

#[test]
fn a_directory_that_was_asked_for_does_not_come_as_a_file() {
    let dir = places("file-for-directory");
    let at = dir.path("to/results");
    let messages = vec![begin_single(), listed(vec![file("f", 4)]), good_piece(0, b"evil"), done()];
    receive_asked("results/", &at, messages).unwrap_err();
    assert!(!at.exists());
}

#[test]
fn a_file_does_not_have_the_name_of_a_partial_one() {
    let dir = places("partial-name");
    let part = companion(OsStr::new("f"), "weft-part");
    let part = file(std::str::from_utf8(&part).unwrap(), 4);
    let messages = vec![
        begin(),
        listed(vec![part, file("f", 4)]),
        good_piece(0, b"evil"),
        good_piece(1, b"good"),
        done(),
    ];
    assert_eq!(receive_from(&dir.path("to"), messages).unwrap(), 1);
    assert_eq!(fs::read(dir.path("to/f")).unwrap(), b"good");
    assert_eq!(fs::read_dir(dir.path("to")).unwrap().count(), 1);
}

#[test]
fn hard_links_reach_nothing_outside() {
    let dir = places("hardlinks");
    let target = dir.path("outside").into_os_string().into_encoded_bytes();
    let link = entry("link", ListedKind::Symlink { target });
    let hard = entry("hard", ListedKind::Hardlink { to: b"link/kept".to_vec() });
    let failed = receive_from(&dir.path("to"), vec![begin(), listed(vec![link, hard]), done()]);
    assert_eq!(failed.unwrap(), 1);
    assert!(!dir.path("to/hard").exists());
    let out = entry("hard", ListedKind::Hardlink { to: b"../outside/kept".to_vec() });
    receive_from(&dir.path("to"), vec![begin(), listed(vec![out]), done()]).unwrap_err();
    assert_untouched(&dir);
}

#[test]
fn a_link_to_a_file_that_has_failed_leaves_what_is_there() {
    let dir = places("failed-target");
    dir.write("to/f", "older");
    dir.write("to/g", "mine");
    let wrong = piece(0, 0, b"evil", *blake3::hash(b"good").as_bytes());
    let link = entry("g", ListedKind::Hardlink { to: b"f".to_vec() });
    let messages = vec![begin(), listed(vec![file("f", 4), link]), wrong, done()];
    assert_eq!(receive_from(&dir.path("to"), messages).unwrap(), 2);
    assert_eq!(fs::read(dir.path("to/g")).unwrap(), b"mine");
}

#[test]
fn a_damaged_piece_makes_no_file() {
    let dir = places("damaged");
    let wrong = piece(0, 0, b"evil", *blake3::hash(b"good").as_bytes());
    let messages = vec![begin(), listed(vec![file("f", 4)]), wrong, done()];
    assert_eq!(receive_from(&dir.path("to"), messages).unwrap(), 1);
    assert!(!dir.path("to/f").exists());
}

#[test]
fn a_file_that_fails_after_it_is_closed_leaves_the_others() {
    let dir = places("late");
    let failed = ToReceiver::Failed { file: 0, why: "gone".into() };
    let messages = vec![
        begin(),
        listed(vec![file("empty", 0), file("f", 4)]),
        (failed, Vec::new()),
        good_piece(1, b"good"),
        done(),
    ];
    assert_eq!(receive_from(&dir.path("to"), messages).unwrap(), 0);
    assert_eq!(fs::read(dir.path("to/f")).unwrap(), b"good");
}

#[test]
fn nobody_gets_programs_that_run_as_somebody_else() {
    use std::os::unix::fs::MetadataExt;
    let dir = places("setuid");
    let messages = vec![begin(), listed(vec![file("f", 4)]), good_piece(0, b"good"), done()];
    assert_eq!(receive_from(&dir.path("to"), messages).unwrap(), 0);
    assert_eq!(fs::metadata(dir.path("to/f")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn extended_attributes_that_were_not_asked_for_are_not_set() {
    let dir = places("unasked-xattrs");
    let mut with = file("f", 4);
    with.xattrs.push((b"user.weft".to_vec(), b"value".to_vec()));
    let messages = vec![begin(), listed(vec![with]), good_piece(0, b"good"), done()];
    assert_eq!(receive_from(&dir.path("to"), messages).unwrap(), 0);
    let value = rustix::fs::getxattr(dir.path("to/f"), "user.weft", &mut [0_u8; 16][..]);
    assert!(value.is_err(), "{value:?}");
}

#[test]
fn bytes_beyond_the_end_or_of_other_files_are_not_written() {
    let dir = places("beyond");
    let large = 1 << 20;
    let bytes = [7; 100];
    let hash = *blake3::hash(&bytes).as_bytes();
    for offset in [large - 99, u64::MAX - 50, u64::MAX] {
        let messages =
            vec![begin(), listed(vec![file("f", large)]), piece(0, offset, &bytes, hash), done()];
        assert_eq!(receive_from(&dir.path("to"), messages), Ok(1), "{offset}");
    }
    // A file that was not listed, and one that is not whole when the sender says that it is done.
    let unlisted = vec![begin(), good_piece(5, b"evil"), done()];
    assert_eq!(receive_from(&dir.path("to"), unlisted), Ok(0));
    let early = vec![begin(), listed(vec![file("f", large)]), done()];
    receive_from(&dir.path("to"), early).unwrap_err();
    assert!(!dir.path("to/f").exists());
    assert_untouched(&dir);
}

#[test]
fn a_file_that_is_too_long_for_any_is_named() {
    let dir = places("too-long");
    for size in [u64::MAX, 1 << 63] {
        let problem = ToSender::Closed {
            file: 0,
            outcome: FileOutcome::Failed(format!(
                "{}: the far end says that it has {size} bytes, more than a file can",
                dir.path("to/f").display()
            )),
        };
        let (near, far) = joined();
        let sending = thread::spawn(move || {
            let messages = [begin(), listed(vec![file("f", size), file("g", 4)])];
            for (message, payload) in messages.into_iter().chain([good_piece(1, b"good"), done()]) {
                send_message(&far.sender(), &message, &payload).unwrap();
            }
            let mut said = Vec::new();
            let is_end = |said: &ToSender| matches!(said, ToSender::Finished | ToSender::Fatal(_));
            while !said.iter().any(is_end) {
                let message = far.receiver().recv().unwrap().unwrap();
                said.extend(parse_replies(&message.into_bytes().unwrap()).unwrap());
            }
            said
        });
        let meter = Meter::new(ShowStyle::Silent, false);
        let path = dir.path("to").into_os_string().into_encoded_bytes();
        let options = CopyOptions { recursive: true, ..CopyOptions::default() };
        receive::receive(&near, &path, &options, None, None, &meter).unwrap();
        let said = sending.join().unwrap();
        assert!(said.contains(&problem), "{said:?}");
        assert_eq!(fs::read(dir.path("to/g")).unwrap(), b"good");
        fs::remove_file(dir.path("to/g")).unwrap();
    }
}

#[test]
fn more_open_files_than_agreed_are_refused() {
    let dir = places("many");
    let many = (0..10_000).map(|n| file(&format!("f{n}"), 4)).collect::<Vec<_>>();
    let mut messages = vec![begin()];
    messages.extend(many.chunks(500).map(|chunk| listed(chunk.to_vec())));
    messages.push(done());
    let error = receive_from(&dir.path("to"), messages).unwrap_err();
    assert!(error.contains("stopped before the copy was over"), "{error}");
}

/// Receives from a sender that says this, reads nothing and does not close.
fn receive_unread(name: &str, messages: &[ToReceiver]) -> Result<(), String> {
    let dir = places(name);
    let (near, far) = joined();
    let path = dir.path("to").into_os_string().into_encoded_bytes();
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            // It fails where the receiver takes no more.
            messages.iter().try_for_each(|message| send_message(&far.sender(), message, &[]))
        });
        let meter = Meter::new(ShowStyle::Silent, false);
        let options = CopyOptions { recursive: true, ..CopyOptions::default() };
        let asked = AskedNames::of(&[b"dir/".to_vec()], true);
        receive::receive(&near, &path, &options, Some(asked), None, &meter)
    });
    outcome.map_err(|error| format!("{error:#}"))
}

#[test]
fn nonsense_of_a_sender_that_does_not_read_ends_the_copy() {
    // Links without a directory: what is said of them is more than a pipe holds.
    let missing = "d/".repeat(2000);
    let link = |number: u32| {
        entry(&format!("{missing}{number}"), ListedKind::Symlink { target: b"x".to_vec() })
    };
    let mut messages = vec![begin().0];
    for first in [0, 50, 100, 150] {
        messages.push(ToReceiver::Entries((first..first + 50).map(link).collect()));
    }
    messages.push(begin().0);
    let error = receive_unread("unread-nonsense", &messages).unwrap_err();
    assert!(error.contains("began twice"), "{error}");
}

#[test]
fn a_sender_that_does_not_close_ends_no_later() {
    receive_unread("unclosed", &[begin().0, done().0]).unwrap();
}
