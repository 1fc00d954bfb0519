//! `weft doctor` says in plain words why a program does not reach Weft.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Output, Stdio};

use crate::common::{Dir, text, weft};

const NOTHING: &str = "int main(void) { return 0; }\n";

fn doctor(args: &[&str]) -> Output {
    weft().arg("doctor").args(args).output().unwrap()
}

/// What is said about `program`, which must not be well.
fn complaint(program: &str) -> String {
    let output = doctor(&[program]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout)
}

#[test]
fn a_machine_and_a_program_that_are_well_are_0() {
    for args in [&[][..], &["true"], &["sh", "-c", "exit 9"]] {
        let output = doctor(args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
        assert_eq!(text(&output.stderr), "");
    }
    let said = text(&doctor(&["true"]).stdout);
    for check in ["library", "program", "memlock", "ports", "mtu", "gso/gro", "buffers", "wan"] {
        assert!(said.contains(check), "no {check} in {said}");
    }
    assert!(said.contains("links neither libibverbs nor librdmacm"), "{said}");
}

#[test]
fn what_cannot_be_intercepted_is_explained() {
    let scratch = Dir::new("doctor");
    let still = scratch.compile("still", NOTHING, &["-static"]);
    assert!(complaint(&still).contains("statically linked"));
    // As the Go compiler marks its programs.
    let mark = "__attribute__((section(\".go.buildinfo\"), used)) static char mark[16];\n";
    let gopher = scratch.compile("gopher", &[mark, NOTHING].concat(), &["-static"]);
    assert!(complaint(&gopher).contains("a Go program without cgo"));
    let mut foreign = std::fs::read(scratch.compile("plain", NOTHING, &[])).unwrap();
    foreign[18] ^= 1;
    let path = scratch.script("foreign", "");
    std::fs::write(&path, foreign).unwrap();
    assert!(complaint(&path).contains("another kind of machine"));
    assert!(complaint("/nonexistent/program").contains("is not there"));
    assert!(text(&doctor(&["env", "-i", "true"]).stdout).contains("clears the environment"));
}

#[test]
fn a_library_that_is_missing_is_named() {
    let scratch = Dir::new("missing");
    let library = scratch.compile("libgone.so", "int gone(void) { return 0; }\n", &["-shared"]);
    let source = "int gone(void);\nint main(void) { return gone(); }\n";
    let program = scratch.compile(
        "orphan",
        source,
        &["-Wl,--no-as-needed,--allow-shlib-undefined", &library],
    );
    assert_eq!(doctor(&[&program]).status.code(), Some(0));
    std::fs::remove_file(&library).unwrap();
    let said = complaint(&program);
    assert!(said.contains("libgone.so, which is not installed"), "{said}");
}

#[test]
fn a_sanitizer_is_noted_and_nothing_to_worry_about() {
    let scratch = Dir::new("sanitized");
    let program = scratch.compile("clean", NOTHING, &["-fsanitize=address"]);
    let output = doctor(&[&program]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("libasan"));
}

#[test]
fn programs_can_read_it() {
    let output = doctor(&["--json", "/nonexistent/program"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["ok"], false);
    let findings = json["findings"].as_array().unwrap();
    let wrong = findings.iter().filter(|finding| finding["outcome"] == "wrong");
    assert_eq!(wrong.map(|f| f["check"].as_str().unwrap()).collect::<Vec<_>>(), ["program"]);
}

#[test]
fn switching_weft_off_is_found() {
    let output = weft().arg("doctor").env("WEFT", "off").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("WEFT=off"));
}

const KEY: &str = "weft1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Exchanges of which one has to find no loss.
const EXCHANGES: usize = 4;

/// `weft doctor --serve` at a port that the kernel chooses, ended with this value.
struct Serving {
    child: Child,
    port: u16,
    /// It says more at the end of each exchange.
    _stdout: BufReader<ChildStdout>,
}

impl Serving {
    fn start() -> Self {
        let mut command = weft();
        command.args(["doctor", "--serve", "--port", "0"]).env("WEFT_KEY", KEY);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let port = line.split_whitespace().nth(5).and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("no port in {line}"));
        Self { child, port, _stdout: stdout }
    }

    fn asked(&self, key: &str) -> Output {
        let peer = format!("127.0.0.1:{}", self.port);
        weft().args(["doctor", "--peer", &peer]).env("WEFT_KEY", key).output().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_peer_that_is_reached_is_well_and_another_key_is_not() {
    let serving = Serving::start();
    let found = [
        "both are 0.",
        "of 100 probes",
        "datagrams of 8952 bytes come back whole",
        "arrives at ports that sent nothing",
        "the peer sees this host as 127.0.0.1",
    ];
    let exchange = || {
        let output = serving.asked(KEY);
        let said = text(&output.stdout);
        let is_well = output.status.success() && found.iter().all(|found| said.contains(found));
        if is_well { Ok(()) } else { Err(said) }
    };
    // On a busy machine an answer may come later than it is waited for, which is a loss.
    let said: Vec<_> = (0..EXCHANGES).map_while(|_| exchange().err()).collect();
    assert!(said.len() < EXCHANGES, "not each of {found:?} in {said:?}");
    let output = serving.asked(&KEY.replace("weft1:00", "weft1:ff"));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("copy the key file"), "{}", text(&output.stdout));
}

#[test]
fn a_peer_that_is_not_there_or_is_something_else_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = listener.local_addr().unwrap().to_string();
    let foreign = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH\r\n").unwrap();
    });
    let said = text(&doctor(&["--peer", &peer]).stdout);
    foreign.join().unwrap();
    assert!(said.contains("is not weft doctor --serve"), "{said}");
    let output = doctor(&["--peer", &peer]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("no process listens at"), "{}", text(&output.stdout));
    let said = text(&doctor(&["--peer", "no.such.host.invalid"]).stdout);
    assert!(said.contains("WRONG peer"), "{said}");
}
