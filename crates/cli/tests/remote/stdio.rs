//! `-`: standard input as a file at a host, and a file there as standard output.

use std::fs;
use std::process::Stdio;

use weft_testkit::text;

use crate::far_host::{FarHost, assert_same, noise};

#[test]
fn stdin_becomes_a_file_and_a_file_stdout() {
    let Some(host) = FarHost::start("cp-stdio") else { return };
    for (name, len) in [("a", 1_000_000), ("empty", 0), ("piece", 256 * 1024)] {
        let from = host.dir.write(name, noise(5, len));
        let to = format!("{name}-there");
        let mut up = host.weft("cp");
        let input = fs::File::open(&from).unwrap();
        up.args(["-q", "-", &host.far(&to)]).stdin(input);
        let output = up.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_same(&from, &host.dir.path(&to));
        let down = host.cp(&["-q", &host.far(&to), "-"]);
        assert!(down.status.success(), "{}", text(&down.stderr));
        assert!(down.stdout == fs::read(&from).unwrap(), "{name}");
    }
}

#[test]
fn a_stream_that_does_not_get_there_is_no_file() {
    let Some(host) = FarHost::start("cp-stdio-fails") else { return };
    fs::create_dir(host.dir.path("there")).unwrap();
    let into_directory = host.cp(&["-q", "-", &host.far("there")]);
    assert_eq!(into_directory.status.code(), Some(2));
    let said = text(&into_directory.stderr);
    assert!(said.contains("a stream needs a name"), "{said}");
    let missing = host.cp(&["-q", &host.far("missing"), "-"]);
    assert_eq!((missing.status.code(), missing.stdout.len()), (Some(2), 0));
    assert!(text(&missing.stderr).contains("No such file"), "{}", text(&missing.stderr));
    // A far end that is killed: what it has got is no file.
    fs::remove_dir(host.dir.path("there")).unwrap();
    fs::create_dir(host.dir.path("there")).unwrap();
    let mut killed = host.weft("cp");
    killed.args(["-q", "-", &host.far("there/x")]).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = killed.spawn().unwrap();
    while fs::read_dir(host.dir.path("there")).unwrap().count() == 0 {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before anything was there");
        std::thread::yield_now();
    }
    for id in host.far_ends() {
        let id = rustix::process::Pid::from_raw(id).unwrap();
        // One that had begun the others may end with them.
        let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
    }
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert!(!host.dir.path("there/x").exists());
    let verified = &["--verify", "disk", "-", "far:a"];
    for refused in [&["-", "a"][..], &["--json", "far:a", "-"], &["-n", "-", "far:a"], verified] {
        assert_eq!(host.cp(refused).status.code(), Some(125), "{refused:?}");
    }
}
