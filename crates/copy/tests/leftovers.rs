//! A tree in which an earlier copy was interrupted is copied on.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use weft_copy::messages::{CopyOptions, PIECE_MAX};
use weft_copy::meter::{Meter, ShowStyle};
use weft_copy::rel_path::companion;
use weft_copy::{receive, send};
use weft_session::MessageChannel;
use weft_testkit::Dir;

#[test]
fn a_partial_file_in_the_source_does_not_become_the_file() {
    let dir = Dir::new("leftovers");
    fs::create_dir_all(dir.path("from/sub")).unwrap();
    let whole = vec![1; 3 * PIECE_MAX as usize];
    for sub in ["from", "from/sub"] {
        let at = |name: &OsStr| dir.path(sub).join(name);
        let part = companion(OsStr::new("big"), "weft-part");
        fs::write(at(OsStr::new("big")), &whole).unwrap();
        // The one of an update; it has the name of what the receiver writes.
        fs::write(at(OsStr::from_bytes(&part)), vec![2; 2 * PIECE_MAX as usize]).unwrap();
        let record = companion(OsStr::new("big"), "weft-record");
        fs::write(at(OsStr::from_bytes(&record)), "record").unwrap();
    }
    let (near_in, far_out) = std::io::pipe().unwrap();
    let (far_in, near_out) = std::io::pipe().unwrap();
    let near = MessageChannel::through(near_in, near_out);
    let far = MessageChannel::through(far_in, far_out);
    let options = CopyOptions { recursive: true, ..CopyOptions::default() };
    let meters = [(); 2].map(|()| Meter::new(ShowStyle::Silent, false));
    let [source, to] =
        ["from/", "to"].map(|name| dir.path(name).into_os_string().into_encoded_bytes());
    thread::scope(|scope| {
        scope.spawn(|| {
            send::send(&far, &[source], &options, &meters[0]).unwrap();
            let _ = far.finish(Duration::ZERO);
        });
        receive::receive(&near, &to, &options, None, None, &meters[1]).unwrap();
    });
    for sub in ["to", "to/sub"] {
        assert!(fs::read(dir.path(sub).join("big")).unwrap() == whole, "{sub}");
    }
    // Each has `big`, and the first `sub`.
    let count = |sub| fs::read_dir(dir.path(sub)).unwrap().count();
    assert_eq!((count("to"), count("to/sub")), (2, 1));
    let told = meters.map(|meter| meter.failed.load(Ordering::Relaxed));
    assert_eq!(told, [1, 1], "both ends hear of it once");
}
