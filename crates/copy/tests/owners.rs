//! A receiver that is root and may not give files away, as on NFS or in a container.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use weft_copy::messages::{
    CopyOptions, FilePiece, ListedEntry, ListedKind, SourceTime, ToReceiver, ToSender,
    parse_replies, send_message,
};
use weft_copy::meter::{Meter, ShowStyle};
use weft_copy::receive;
use weft_session::MessageChannel;
use weft_testkit::{Dir, is_root, skip};

/// A number that nobody has here.
const OWNER: u32 = 54_321;

fn entry(path: &str, kind: ListedKind) -> ListedEntry {
    ListedEntry {
        path: path.into(),
        kind,
        mode: 0o6755,
        modified: SourceTime { secs: 1_000_000, nanos: 5 },
        owner: (OWNER, OWNER),
        xattrs: Vec::new(),
    }
}

/// Sends a directory with two files; what the receiver says that is a problem.
fn send(far: &MessageChannel) -> Vec<String> {
    let file = |size| ListedKind::File { size, digest: None };
    let entries = vec![
        entry("dir", ListedKind::Directory),
        entry("dir/empty", file(0)),
        entry("dir/small", file(4)),
    ];
    let hash = Some(*blake3::hash(b"good").as_bytes());
    let piece = FilePiece { file: 2, offset: 0, len: 4, hash, is_last: true };
    let say = |message, payload: &[u8]| send_message(&far.sender(), &message, payload).unwrap();
    say(ToReceiver::Begin { sources: 1, has_directory: true }, &[]);
    say(ToReceiver::Entries(entries), &[]);
    say(ToReceiver::Pieces(vec![piece]), b"good");
    say(ToReceiver::Listed { files: 2, bytes: 4 }, &[]);
    let mut problems = Vec::new();
    while let Ok(Some(message)) = far.receiver().recv() {
        for said in parse_replies(&message.into_bytes().unwrap()).unwrap() {
            match said {
                ToSender::Problem(why) => problems.push(why),
                ToSender::Finished | ToSender::Fatal(_) => return problems,
                _ => {}
            }
        }
    }
    problems
}

#[test]
fn files_arrive_though_they_cannot_be_given_to_their_owner() {
    if !is_root() {
        return skip("only root gives files to their owners");
    }
    let dir = Dir::new("owners");
    let (near_in, far_out) = std::io::pipe().unwrap();
    let (far_in, near_out) = std::io::pipe().unwrap();
    let near = MessageChannel::through(near_in, near_out);
    let far = MessageChannel::through(far_in, far_out);
    let to = dir.path("to").into_os_string().into_encoded_bytes();
    let problems = thread::scope(|scope| {
        // It leaves with its last word, which the receiver waits for.
        let sending = scope.spawn(move || send(&far));
        // Of this thread, and of those that it begins.
        let receiving = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::CHOWN);
            set_capabilities(None, sets).unwrap();
            let meter = Meter::new(ShowStyle::Silent, false);
            let options = CopyOptions { recursive: true, ..CopyOptions::default() };
            receive::receive(&near, &to, &options, None, None, &meter).unwrap();
        });
        receiving.join().unwrap();
        sending.join().unwrap()
    });
    assert!(
        problems.len() == 1 && problems[0].contains("not given to their owners"),
        "{problems:?}"
    );
    assert_eq!(fs::read(dir.path("to/dir/small")).unwrap(), b"good");
    for name in ["to/dir", "to/dir/empty", "to/dir/small"] {
        let there = fs::metadata(dir.path(name)).unwrap();
        assert_eq!((there.uid(), there.mode() & 0o7777, there.mtime()), (0, 0o755, 1_000_000));
    }
}
