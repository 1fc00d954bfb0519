//! What fails is said once, with the filter and the reason, and everybody ends.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use weft_testkit::{Ended, Lab, Running};

const MICROSCOPE: &str = env!("CARGO_BIN_EXE_microscope");

fn run(lab: &Lab, line: &str) -> Ended {
    lab.program(MICROSCOPE).args(line).on_its_own().run()
}

/// A filter that waits, and where.
fn waiting(lab: &Lab, line: &str) -> (Running, String) {
    let filter = lab.program(MICROSCOPE).args(line).on_its_own().start();
    let filter = filter.complained("\n");
    let said = filter.stderr();
    let address = said.trim().rsplit(' ').next().expect("a word").to_owned();
    (filter, address)
}

/// A slide of which the tiles are not what they were.
fn spoilt(lab: &Lab) {
    assert!(run(lab, "slide s --size 256x256").status.success());
    let mut bytes = fs::read(lab.path("s")).expect("it is written");
    bytes[24..40_000].fill(0xff);
    lab.write("s", bytes);
}

#[test]
fn the_filter_that_failed_is_named() {
    let lab = Lab::with(&[]).expect("nothing is needed");
    spoilt(&lab);
    for way in ["", "--single"] {
        let ended = run(&lab, &format!("run s --objective 40 --size 256x256 --unit 1K {way}"));
        assert_eq!(ended.status.code(), Some(1), "{ended}");
        let start = "microscope: decompress: tile 0,0: not deflated";
        assert!(ended.stderr.starts_with(start), "{ended}");
        assert_eq!((ended.stderr.lines().count(), ended.stdout.as_str()), (1, ""), "{ended}");
    }
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let lab = Lab::with(&[]).expect("nothing is needed");
    assert!(run(&lab, "slide s --size 256x256").status.success());
    let refused = [
        ("run none", 1, "the slide none: No such file"),
        ("run s", 1, "leave the slide, which has 128x128"),
        ("slide t --size 100x100", 1, "multiples of 256"),
        ("run s --size 16x16 --out /nowhere/picture.png", 1, "view: writing /nowhere/picture.png"),
        ("run s --unit 100", 2, "a unit has from 1024"),
        ("filter glue", 2, "decompress"),
        ("filter read", 2, "<SLIDE>"),
        ("filter read s --size 16x16", 1, "read: --to says where decompress is"),
        ("filter read s --size 16x16 --to 127.0.0.1:1", 1, "connecting to decompress at"),
    ];
    for (line, status, reason) in refused {
        let ended = run(&lab, line);
        assert_eq!(ended.status.code(), Some(status), "{ended}");
        assert!(ended.stderr.contains(reason), "{reason}: {ended}");
    }
}

#[test]
fn a_stream_that_ends_too_early_is_not_this_filters_fault() {
    let lab = Lab::with(&[]).expect("nothing is needed");
    let (filter, address) = waiting(&lab, "filter view --listen 127.0.0.1:0");
    let hello = br#"{"program":"microscope","from":"zoom","unit":1024}"#;
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(&[&[1, 0, 0, hello.len() as u8], &hello[..]].concat()).expect("it reads");
    stream.shutdown(Shutdown::Write).expect("it is open");
    // Answers that nobody has read would make the end a reset.
    let _ = stream.read_to_end(&mut Vec::new());
    let ended = filter.wait();
    assert_eq!(ended.status.code(), Some(3), "{ended}");
    let reason = "microscope: the stream from zoom: it ended before its work did";
    assert!(ended.stderr.contains(reason), "{ended}");
}

#[test]
fn strangers_are_told_that_they_are_wrong() {
    let lab = Lab::with(&[]).expect("nothing is needed");
    let (filter, address) = waiting(&lab, "filter view --listen 127.0.0.1:0");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
    // It may close before it has read all of this, which is a reset.
    let _ = stream.read_to_end(&mut Vec::new());
    let ended = filter.wait();
    assert_eq!(ended.status.code(), Some(1), "{ended}");
    assert!(ended.stderr.contains("not a filter's stream"), "{ended}");
}

/// One that fails at the end of the chain tells those before it.
#[test]
fn a_failure_travels_up_the_chain() {
    let lab = Lab::with(&[]).expect("nothing is needed");
    assert!(run(&lab, "slide s --size 256x256").status.success());
    let (view, to) = waiting(&lab, "filter view --listen 127.0.0.1:0 --out /nowhere/p.png");
    let mut running = vec![view];
    let mut to = to;
    for name in ["zoom", "clip", "decompress"] {
        let (filter, address) =
            waiting(&lab, &format!("filter {name} --listen 127.0.0.1:0 --to {to}"));
        running.push(filter);
        to = address;
    }
    let read = run(&lab, &format!("filter read s --size 100x100 --to {to}"));
    let ended: Vec<Ended> = running.into_iter().map(Running::wait).chain([read]).collect();
    let statuses: Vec<Option<i32>> = ended.iter().map(|ended| ended.status.code()).collect();
    assert_eq!(statuses, [Some(1), Some(3), Some(3), Some(3), Some(3)], "{ended:?}");
    for one in ended {
        assert!(one.stderr.contains("view: writing /nowhere/p.png"), "{one}");
    }
}
