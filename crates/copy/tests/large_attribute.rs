//! An extended attribute that the file system has no room for, though the disk has.

use std::sync::atomic::Ordering;
use std::thread;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use weft_copy::messages::{
    CopyOptions, ListedEntry, ListedKind, SourceTime, ToReceiver, ToSender, parse_replies,
    send_message,
};
use weft_copy::meter::{Meter, ShowStyle};
use weft_copy::receive;
use weft_session::MessageChannel;
use weft_testkit::{Dir, skip};

/// Bytes of the attribute: less than the kernel carries, and more than a block of ext4.
const LEN: usize = 60_000;

fn entry(path: &str, kind: ListedKind, xattr_len: usize) -> ListedEntry {
    ListedEntry {
        path: path.into(),
        kind,
        mode: 0o755,
        modified: SourceTime::default(),
        owner: (u32::MAX, u32::MAX),
        xattrs: vec![(b"user.weft".to_vec(), vec![7; xattr_len])],
    }
}

#[test]
fn it_is_the_failure_of_its_file_and_not_the_end_of_the_copy() {
    let dir = Dir::new("large-attribute");
    let probe = dir.write("probe", "");
    let set = |len| rustix::fs::setxattr(&probe, "user.weft", &vec![7; len], XattrFlags::empty());
    if set(10).is_err() || set(LEN) != Err(Errno::NOSPC) {
        return skip("the file system has room for a large attribute, or none for any");
    }
    let empty = || ListedKind::File { size: 0, digest: None };
    let entries = vec![
        entry("large", empty(), LEN),
        entry("dir", ListedKind::Directory, LEN),
        entry("dir/small", empty(), 10),
    ];
    let (near_in, far_out) = std::io::pipe().unwrap();
    let (far_in, near_out) = std::io::pipe().unwrap();
    let near = MessageChannel::through(near_in, near_out);
    let far = MessageChannel::through(far_in, far_out);
    let meter = Meter::new(ShowStyle::Silent, false);
    let options = CopyOptions { recursive: true, xattrs: true, ..CopyOptions::default() };
    let to = dir.path("to").into_os_string().into_encoded_bytes();
    thread::scope(|scope| {
        scope.spawn(move || {
            let begin = ToReceiver::Begin { sources: 1, has_directory: true };
            let end = ToReceiver::Listed { files: 2, bytes: 0 };
            for message in [begin, ToReceiver::Entries(entries), end] {
                send_message(&far.sender(), &message, &[]).unwrap();
            }
            // Until the receiver has said its last word.
            while let Ok(Some(message)) = far.receiver().recv() {
                let said = parse_replies(&message.into_bytes().unwrap()).unwrap();
                if said.iter().any(|it| matches!(it, ToSender::Finished | ToSender::Fatal(_))) {
                    break;
                }
            }
        });
        receive::receive(&near, &to, &options, None, None, &meter).unwrap();
    });
    assert_eq!(meter.failed.load(Ordering::Relaxed), 2, "the file, and the directory's attribute");
    let left: Vec<_> = std::fs::read_dir(dir.path("to")).unwrap().map(|it| it.unwrap()).collect();
    assert_eq!(left.iter().map(|it| it.file_name()).collect::<Vec<_>>(), ["dir"]);
    let there = rustix::fs::getxattr(dir.path("to/dir/small"), "user.weft", &mut [0_u8; 16][..]);
    assert_eq!(there, Ok(10));
}
