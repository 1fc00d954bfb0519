//! What cannot be done is said once, in words for users and not for programmers, with the status
//! that docs/statuses.md has.

use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use weft_testkit::{Dir, find, skip, without_settings};

use crate::common::{text, weft};

/// Status of an argument that cannot be used.
const WRONG: i32 = 125;
/// Words of the standard library about its own types.
const FOREIGN: [&str; 4] = ["invalid digit", "float literal", "target type", "panicked"];

/// Arguments that cannot be used, and what is said about them.
const REFUSED: [(&str, &str); 35] = [
    ("run --lib /nosuch.so true", "cannot use the library /nosuch.so: No such file"),
    ("run --fault drop=200% true", "a share such as 1%, from 0% to 100%"),
    ("run --fuzz-faults 5..3 true", "the first and one more than the last"),
    ("run --scenario nosuch.toml true", "cannot read the scenario nosuch.toml"),
    ("run --scenario /dev/zero true", "cannot read the scenario /dev/zero: too large for settings"),
    (
        "run --scenario /dev/null true",
        "/dev/null: there is neither a step nor an expectation in it",
    ),
    ("perf 127.0.0.1 -t x", "not a number such as 2 or 0.5"),
    ("perf 127.0.0.1 -t 0", "a time is 0.01 to 86400 seconds, not 0"),
    ("perf 127.0.0.1 -P 0", "1 to 256 streams, not 0"),
    ("perf server --patience x", "not a whole number, 0 or more"),
    ("perf server -1 -d nosuch", "there is no device nosuch here; there are weft0"),
    ("doctor --peer localhost:99999", "`99999` is no port from 1 to 65535"),
    ("perf --bogus", "unexpected argument '--bogus' found"),
    ("sim", "Usage: weft sim"),
    ("sim run nosuch", "there is no scenario `nosuch`; `weft sim list` names them"),
    ("sim show nosuch", "there is no scenario `nosuch`; `weft sim list` names them"),
    ("sim run junk.toml", "junk.toml: the plan is not valid TOML, or lacks something: TOML"),
    ("sim run nosuch.toml", "cannot read nosuch.toml: No such file"),
    ("sim run zero.toml", "cannot read zero.toml: too large for settings"),
    ("sim run loss --json no/file", "cannot write no/file: No such file"),
    ("sim run loss --svg junk.toml/dir", "cannot make the directory junk.toml/dir: Not a dir"),
    ("sim run loss --into nosuch.md", "cannot read nosuch.md: No such file"),
    ("sim run loss --jobs 0", "the number is at least 1"),
    ("wan 70ms loss=2 -- true", "`2` is not a share such as 0.1%, from 0% to 100%"),
    ("wan up --name a/b lan", "`a/b` is no name for a WAN"),
    ("key new junk.toml", "junk.toml exists, and is kept: name another file"),
    ("key new no/key", "cannot write a key into no/key: No such file"),
    ("key name", "WEFT_KEY is not set; set it, or name the file of a key"),
    ("trace show nosuch", "cannot read nosuch: No such file"),
    ("trace show /dev/zero", "/dev/zero is no trace of weft run --trace: it does not begin with"),
    ("cp nosuch other.invalid:", "cannot read nosuch: No such file"),
    ("forward -L 99999:a:1 other.invalid", "`99999` is no port from 1 to 65535"),
    ("forward -L 80:a:0 other.invalid", "`0` is no port from 1 to 65535"),
    ("cdi generate --output junk.toml/dir/file", "cannot make junk.toml/dir: Not a directory"),
    ("man --markdown no/page.md", "cannot write no/page.md: No such file"),
];

#[test]
fn a_wrong_argument_is_said_once() {
    let dir = Dir::new("refusals");
    dir.write("junk.toml", "nonsense\n");
    symlink("/dev/zero", dir.path("zero.toml")).unwrap();
    for (line, wanted) in REFUSED {
        let output = weft().args(line.split(' ')).current_dir(dir.root()).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(WRONG), "{line}\n{said}");
        assert_eq!(said.matches(wanted).count(), 1, "{line}: `{wanted}` is not in\n{said}");
        assert_plain(line, &said);
    }
}

#[cfg(feature = "bench")]
#[test]
fn a_measurement_of_a_path_that_cannot_be_is_refused() {
    for (line, wanted) in [
        ("bench --rounds 0 latency", "not a number of rounds, 1 or more"),
        ("bench table wan --rtt x", "`x` is not a time such as"),
        ("bench table wan --loss 200", "not a loss in per cent, from 0 to 100"),
        ("bench table wan --gbps 0", "not a rate in Gbit/s"),
        ("bench compare nosuch a", "cannot read nosuch: No such file"),
    ] {
        let output = weft().args(line.split(' ')).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(WRONG), "{line}\n{said}");
        assert_eq!(said.matches(wanted).count(), 1, "{line}: `{wanted}` is not in\n{said}");
    }
}

#[test]
fn what_is_no_file_is_not_removed_for_a_capture_or_a_trace() {
    let dir = Dir::new("no-file");
    let pipe = dir.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let name = pipe.display().to_string();
    for option in ["--pcap", "--trace"] {
        let output = weft().args(["run", option, &name, "true"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(WRONG), "{option}\n{said}");
        assert!(said.contains("is not a regular file"), "{said}");
        assert!(pipe.exists());
    }
}

#[test]
fn a_link_is_not_removed_for_a_capture_or_a_trace() {
    let dir = Dir::new("links");
    let (link, empty) = (dir.path("link"), dir.path("empty"));
    std::fs::write(&empty, "").unwrap();
    let name = link.display().to_string();
    for (option, target) in
        [("--pcap", &empty), ("--trace", &empty), ("--pcap", &dir.path("nowhere"))]
    {
        std::os::unix::fs::symlink(target, &link).unwrap();
        let output = weft().args(["run", option, &name, "true"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(WRONG), "{option}\n{said}");
        assert!(said.contains(&format!("is a link to {}", target.display())), "{said}");
        std::fs::remove_file(&link).unwrap();
    }
}

#[test]
fn the_dynamic_linker_is_no_static_program() {
    let linkers = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
    let Some(linker) = linkers.into_iter().find(|path| Path::new(path).exists()) else {
        return skip("no dynamic linker of glibc where it usually is");
    };
    let output = weft().args(["run", linker, "/bin/true"]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let at = format!("127.0.0.1:{port}");
    for (line, place) in [
        (
            ["perf", "server", "-p", &port],
            format!("cannot listen at port {port} (-p takes another)"),
        ),
        (["doctor", "--serve", "--port", &port], format!("cannot listen at port {port}: ")),
        (["metrics", "--listen", &at, "--"], format!("cannot listen at {at}: ")),
    ] {
        let output = weft().args(line).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(WRONG), "{line:?}\n{said}");
        assert!(said.contains(&place) && said.contains("Address already in use"), "{said}");
    }
    drop(taken);
    let output = weft().args(["perf", "127.0.0.1", "-p", &port]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "nothing listens there:\n{said}");
    assert!(said.contains("refused; is `weft perf server` running there?"), "{said}");
}

#[test]
fn a_variable_without_effect_is_said_once() {
    if find("ibv_devices").is_none() {
        return skip("ibv_devices is not installed");
    }
    let wrong = [
        ("WEFT", "perhaps"),
        ("WEFT_LOG", "loud"),
        ("WEFT_LOG_FORMAT", "xml"),
        ("WEFT_INSECURE", "2"),
        ("WEFT_FAULT", "bogus"),
        ("WEFT_PCAP", ",x"),
        ("WEFT_KEYS", "1"),
    ];
    // The library in a program says it, and `weft run` in its place; `weft run` inside of another
    // does not repeat it.
    for (name, value) in wrong {
        let library = Path::new(env!("CARGO_BIN_EXE_weft")).with_file_name("libweft.so");
        let mut alone = Command::new("timeout");
        without_settings(&mut alone);
        alone.args(["-s", "KILL", "30", "ibv_devices"]).env("LD_PRELOAD", library);
        let mut run = weft();
        run.args(["run", "ibv_devices"]);
        let mut nested = weft();
        nested.args(["run", env!("CARGO_BIN_EXE_weft"), "run", "ibv_devices"]);
        for mut command in [alone, run, nested] {
            let output = command.env(name, value).output().unwrap();
            let said = text(&output.stderr);
            assert!(output.status.success(), "{command:?}\n{said}");
            let about = said.lines().filter(|line| line.contains(name)).count();
            assert_eq!(about, 1, "{name}={value}: {command:?}\n{said}");
        }
    }
}

/// No line stands there twice, and none is about the types of a program.
fn assert_plain(line: &str, said: &str) {
    let mut lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let count = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), count, "{line}: a line is there twice\n{said}");
    let foreign = FOREIGN.iter().find(|word| said.contains(**word));
    assert_eq!(foreign, None, "{line}\n{said}");
}

#[test]
fn what_cannot_be_said_ends_no_command_by_a_signal() {
    for (line, status) in [("perf 127.0.0.1 -p 1", 1), ("bench --resume /nosuch", WRONG)] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = weft().args(line.split(' ')).stderr(full).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{line}");
    }
}

#[test]
fn what_cannot_be_written_is_no_success() {
    for (line, status) in [("completions zsh", WRONG), ("bench --list", 1)] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = weft().args(line.split(' ')).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{line}");
        assert!(text(&output.stderr).contains("No space left on device"), "{line}");
    }
}
