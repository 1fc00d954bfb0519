//! Every `weft` command of README.md and docs/ is one that `weft` understands.

use std::fs;
use std::path::Path;

use clap::Parser;

use crate::args::Cli;

/// What stands for something else and is no argument.
const PLACEHOLDERS: [&str; 2] = ["[", ".."];

#[test]
fn documented_commands_are_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    let docs = fs::read_dir(root.join("docs")).unwrap().flatten();
    pages.extend(docs.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "md")));
    let mut count = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for line in text.split("```").skip(1).step_by(2).flat_map(str::lines) {
            let Some(words) = command(line) else { continue };
            count += 1;
            if let Err(error) = Cli::try_parse_from(&words)
                && error.use_stderr()
            {
                panic!("{}: {line}\n{error}", page.display());
            }
        }
    }
    assert!(count > 40, "{count} commands are too few to be all");
}

/// The words of a line that calls weft, up to what follows it in the shell.
fn command(line: &str) -> Option<Vec<String>> {
    let line = line.trim();
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let line = line.split("  ").next()?;
    if PLACEHOLDERS.iter().any(|placeholder| line.contains(placeholder)) {
        return None;
    }
    let mut words = shell_words(line);
    while words.first().is_some_and(|word| word.contains('=')) {
        words.remove(0);
    }
    let is_call = words.first().is_some_and(|word| word == "weft");
    // `weft perf: listening` is what a command says.
    let has_command = words.get(1).is_some_and(|word| !word.ends_with(':'));
    (is_call && has_command).then_some(words)
}

/// Splits as a shell does, with its single and double quotes, and ends at what is no argument.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => quote = Some(c),
            (None, '|' | '>' | '<' | '&' | ';' | '#') => break,
            (None, ' ') => words.push(std::mem::take(&mut word)),
            (None, c) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn commands_are_taken_out_of_lines() {
    let words = |line| command(line).unwrap_or_default().join("|");
    assert_eq!(words("$ A=b weft run -- sh -c 'a & b' | less"), "weft|run|--|sh|-c|a & b");
    assert_eq!(words("weft wan lan      # a comment"), "weft|wan|lan");
    assert_eq!(words("weft bench table lan [--rounds N]"), "");
    assert_eq!(words("weft: error: what"), "");
}
