//! Each command of README.md and docs/ is run: by this test, or by another one that commands.txt
//! names. What no test can run stands there too, with the reason.
//!
//! A block of code without a language, or with that of a shell, has commands. If one of its lines
//! begins with the prompt `$ `, lines without one are output. Otherwise every line is a command,
//! except those that continue the line above, which begin with a space. Anything else is marked:
//! `text`, `toml`, `c` and so on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use weft_testkit::{Dir, FixedPort, find, text, without_settings};

use super::{pages, read, root};

const LIST: &str = "crates/cli/tests/documents/commands.txt";
/// Languages of blocks with commands.
const SHELLS: [&str; 4] = ["", "sh", "bash", "console"];
const PROMPT: &str = "$ ";
/// Where rping's server waits if it is told nothing.
const RPING_PORT: u16 = 7174;
/// Runs of which one must do as it should, where a command starts two programs at once.
const ATTEMPTS: usize = 3;
/// A shorter word says nothing about a command.
const WORD_MIN: usize = 4;

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
    assert!(
        missing.is_empty(),
        "{LIST} lacks these (a block without commands is marked ```text):\n{}",
        missing.join("\n")
    );
}

#[test]
fn every_command_of_the_list_is_on_a_page() {
    let documented: BTreeSet<String> =
        pages().iter().flat_map(|page| commands(&read(page))).collect();
    let lines = list();
    let stale: Vec<_> = lines.keys().filter(|command| !documented.contains(*command)).collect();
    assert!(stale.is_empty(), "{LIST} has commands that no page has: {stale:#?}");
}

#[test]
fn what_holds_a_command_is_there() {
    for (command, how) in list() {
        match how.split_once(' ') {
            Some(("by", place)) => {
                let file = root().join(place);
                let alone = PathBuf::from(format!("{}.rs", file.display()));
                let tests = text_of(&file) + &text_of(&alone);
                assert!(!tests.is_empty(), "{command}: {place} is not there");
                assert!(mentions(&tests, &command), "{command}: {place} does not run it");
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
        let run = || {
            let mut shell = Command::new("timeout");
            without_settings(&mut shell);
            shell.args(["-s", "KILL", "60", "bash", "-c", command]).current_dir(home.root());
            shell.env("HOME", home.root()).env("PATH", &path).stdin(Stdio::null());
            let output = shell.output().expect("bash starts");
            let said = text(&output.stdout) + &text(&output.stderr);
            if output.status.code() == Some(wanted) { Ok(()) } else { Err(said) }
        };
        let _port = command.contains("rping").then(|| FixedPort::claim(RPING_PORT));
        // Of two programs that are started at once, the one may be held up for longer than the
        // other waits for it.
        let attempts = if command.contains(" & ") { ATTEMPTS } else { 1 };
        let said: Vec<_> = (0..attempts).map_while(|_| run().err()).collect();
        assert!(said.len() < attempts, "{command}: not {wanted}\n{said:?}");
    }
}

/// All text of a file, or of the files of a directory; empty if there is none.
fn text_of(place: &Path) -> String {
    let Ok(entries) = fs::read_dir(place) else {
        return fs::read_to_string(place).unwrap_or_default();
    };
    entries.flatten().map(|entry| text_of(&entry.path())).collect()
}

/// Whether `tests` have a word of the command in them, other than the name of Weft itself.
fn mentions(tests: &str, command: &str) -> bool {
    let words = command.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
    let mut telling = words.filter(|word| word.len() >= WORD_MIN && *word != "weft");
    telling.any(|word| tests.contains(word))
}

/// The commands in the blocks of code of a page.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let shells = blocks.filter(|(language, _)| SHELLS.contains(&language.trim()));
    shells.flat_map(|(_, lines)| commands_of_block(lines)).collect()
}

fn commands_of_block(block: &str) -> Vec<String> {
    let has_prompts = block.lines().any(|line| line.starts_with(PROMPT));
    let lines = block.lines().filter_map(|line| match line.strip_prefix(PROMPT) {
        Some(line) => Some(line),
        None => (!has_prompts && !line.starts_with([' ', '#'])).then_some(line),
    });
    let lines = lines.map(without_comment).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

/// A command without the comment behind it.
fn without_comment(line: &str) -> &str {
    let line = line.split("  ").next().unwrap_or_default();
    line.split(" # ").next().unwrap_or_default().trim()
}

#[test]
fn lines_of_a_block_are_commands_or_output() {
    let of = |block: &str| commands(&format!("text\n```{block}```\n"));
    assert_eq!(of("\nA=b tar c .  # why\n    --more\n# no\nweft ss\n"), ["A=b tar c .", "weft ss"]);
    assert_eq!(of("console\n$ tshark -r x   as it is\nout\n  put\n"), ["tshark -r x"]);
    assert_eq!(of("text\nweft: error: what\n"), [""; 0]);
}
