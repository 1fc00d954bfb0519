//! The C program of docs/first-program.md is built and run as the page says.

use std::process::Command;

use weft_testkit::{Dir, find, skip, text, without_settings};

use super::read;

#[test]
fn the_first_program_sees_both_devices() {
    if find("cc").is_none() {
        return skip("cc is not installed");
    }
    let page = read("docs/first-program.md");
    let code = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    let dir = Dir::new("first-program");
    std::fs::write(dir.root().join("first.c"), code.expect("a program in C")).expect("first.c");
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        without_settings(&mut command);
        let output = command.args(args).current_dir(dir.root()).output().expect(program);
        assert!(output.status.success(), "{program}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    run("cc", &["-o", "first", "first.c", "-libverbs"]);
    let said = run(env!("CARGO_BIN_EXE_weft"), &["run", "./first"]);
    for device in ["weft0: key 0x", "weft_iw0: key 0x"] {
        assert!(said.contains(device), "{said}");
    }
}
