//! Each command of README.md and docs/ is run: by this test, or by another one that commands.txt
//! names. What no test can run stands there too, with the reason.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use weft_testkit::{Dir, find, text, without_settings};

use super::{pages, read, root};

const LIST: &str = "crates/cli/tests/documents/commands.txt";
/// What a line of a page begins with if it is a command: Weft's own, not output or configuration.
const PROGRAMS: [&str; 4] = ["weft", "make", "degen", "sh"];

/// How each command is held.
fn list() -> BTreeMap<String, String> {
    let text = read(LIST);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let entry = |line: &str| {
        let (how, command) = line.split_once(" | ").unwrap_or_else(|| panic!("{line}"));
        (command.to_owned(), how.to_owned())
    };
    lines.map(entry).collect()
}

#[test]
fn every_documented_command_is_held_by_something() {
    let list = list();
    let mut missing = Vec::new();
    for page in pages() {
        for command in commands(&read(&page)) {
            if !list.contains_key(&command) {
                missing.push(format!("{page}: {command}"));
            }
        }
    }
    assert!(missing.is_empty(), "{LIST} lacks these:\n{}", missing.join("\n"));
}

#[test]
fn what_holds_a_command_is_there() {
    for (command, how) in list() {
        match how.split_once(' ') {
            Some(("by", place)) => {
                let file = root().join(place);
                let alone = PathBuf::from(format!("{}.rs", file.display()));
                assert!(file.exists() || alone.exists(), "{command}: {place} is not there");
            }
            Some(("run", status)) => assert!(status.parse::<i32>().is_ok(), "{command}: {how}"),
            Some(("not:", why)) => assert!(why.len() > 8, "{command}: {how}"),
            _ => panic!("{command}: {how}"),
        }
    }
}

#[test]
fn commands_that_can_be_run_here_do_what_they_should() {
    let home = Dir::new("documents");
    let weft = PathBuf::from(env!("CARGO_BIN_EXE_weft"));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", weft.parent().expect("a directory").display());
    let text_of_list = read(LIST);
    // In their order: keys are made before they are used.
    for line in text_of_list.lines().filter(|line| line.starts_with("run ")) {
        let (how, command) = line.split_once(" | ").expect("checked above");
        let wanted: i32 = how["run ".len()..].parse().expect("checked above");
        let lacking = ["ibv_devinfo", "rping"]
            .into_iter()
            .find(|program| command.contains(program) && find(program).is_none());
        if let Some(program) = lacking {
            weft_testkit::skip(&format!("{program} is not installed"));
            continue;
        }
        let mut shell = Command::new("timeout");
        without_settings(&mut shell);
        shell.args(["-s", "KILL", "60", "bash", "-c", command]).current_dir(home.root());
        shell.env("HOME", home.root()).env("PATH", &path).stdin(Stdio::null());
        let output = shell.output().expect("bash starts");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(wanted), "{command}\n{said}");
    }
}

/// The commands in the blocks of code of a page.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("```").skip(1).step_by(2);
    let lines = blocks.flat_map(|block| block.lines().skip(1));
    lines.filter_map(command).collect()
}

/// The command of a line, without its prompt and the comment behind it.
fn command(line: &str) -> Option<String> {
    let line = line.trim();
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let line = line.split("  ").next()?.split(" # ").next()?.trim();
    let mut words = line.split(' ').skip_while(|word| {
        word.split_once('=').is_some_and(|(name, _)| name.chars().all(is_of_name))
    });
    let is_command = words.next().is_some_and(|word| PROGRAMS.contains(&word));
    // `weft perf: listening` is what a command says.
    let is_output = words.next().is_some_and(|word| word.ends_with(':'));
    (is_command && !is_output).then(|| line.to_owned())
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_uppercase() || c == '_'
}
