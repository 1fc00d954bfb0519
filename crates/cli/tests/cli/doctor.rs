//! `weft doctor` says in plain words why a program does not reach Weft.

use std::process::Output;

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
