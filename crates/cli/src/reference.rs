//! The page of all commands, made from what the parser knows: `docs/commands.md`.

use std::fmt::Write;

use clap::{Arg, Command};

/// Columns of the page's text.
const COLUMNS: usize = 100;

const HEAD: &str = "\
# Commands

Every command and option of `weft`, as `weft COMMAND --help` has them. This page is made from the
program itself: `weft man --markdown docs/commands.md` writes it, and a test holds it.
The exit statuses of all commands stand side by side in [statuses.md](statuses.md).
";

/// The page.
pub fn page(mut all: Command) -> String {
    all.build();
    let mut page = String::from(HEAD);
    sections(&mut page, &all, "weft");
    page
}

/// A section for each command below `parent` that is not hidden.
fn sections(page: &mut String, parent: &Command, name: &str) {
    for command in parent.get_subcommands() {
        if command.is_hide_set() || command.get_name() == "help" {
            continue;
        }
        let name = format!("{name} {}", command.get_name());
        section(page, command, &name);
        sections(page, command, &name);
    }
}

fn section(page: &mut String, command: &Command, name: &str) {
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let usage: Vec<String> = usage.lines().map(|line| format!("`{}`", line.trim())).collect();
    let usage = prose(&format!("Usage: {}", usage.join(" or ")), "");
    let _ = write!(page, "\n## {name}\n\n{}\n\n{usage}\n", prose(&about, ""));
    let arguments: Vec<&Arg> = command.get_arguments().filter(|arg| is_shown(arg)).collect();
    if !arguments.is_empty() {
        page.push('\n');
    }
    for argument in arguments {
        let text = argument.get_long_help().or(argument.get_help());
        let text = text.map(ToString::to_string).unwrap_or_default();
        let item = format!("- `{}`: {}{}", title(argument), text.trim(), values(argument));
        let _ = writeln!(page, "{}", prose(&item, "  "));
    }
    if let Some(more) = command.get_after_long_help() {
        let _ = write!(page, "\n```text\n{}\n```\n", more.to_string().trim_end());
    }
}

fn is_shown(argument: &Arg) -> bool {
    !argument.is_hide_set() && !matches!(argument.get_id().as_str(), "help" | "version")
}

/// The names of an argument and of its value.
fn title(argument: &Arg) -> String {
    let mut names = Vec::new();
    names.extend(argument.get_short().map(|short| format!("-{short}")));
    names.extend(argument.get_long().map(|long| format!("--{long}")));
    let value = if argument.get_action().takes_values() {
        let names = argument.get_value_names().unwrap_or_default();
        names.iter().map(|name| format!(" <{name}>")).collect()
    } else {
        String::new()
    };
    format!("{}{value}", names.join(", ")).trim().to_owned()
}

/// The default and the values that there are, as the help has them.
fn values(argument: &Arg) -> String {
    let mut text = String::new();
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && argument.get_action().takes_values() {
        let _ = write!(text, " [default: {}]", defaults.join(","));
    }
    let known: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| value.get_name().to_owned())
        .collect();
    if !known.is_empty() && argument.get_action().takes_values() {
        let _ = write!(text, " [one of: {}]", known.join(", "));
    }
    text
}

/// `text` in lines of the page's width, each paragraph by itself. All lines but the first begin
/// with `indent`.
fn prose(text: &str, indent: &str) -> String {
    let paragraphs = text.split("\n\n").enumerate().map(|(number, paragraph)| {
        let mut lines = vec![String::from(if number == 0 { "" } else { indent })];
        for word in paragraph.split_whitespace() {
            let line = lines.last_mut().map_or("", |line| line.as_str());
            if !line.trim().is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS
            {
                lines.push(String::from(indent));
            }
            if let Some(line) = lines.last_mut() {
                if !line.trim().is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
        }
        lines.join("\n")
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn the_page_is_that_of_these_commands() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            kept == page(Cli::command()),
            "docs/commands.md is old: `weft man --markdown docs/commands.md` writes it"
        );
    }

    #[test]
    fn hidden_commands_stay_hidden() {
        let page = page(Cli::command());
        assert!(page.contains("\n## weft run\n") && page.contains("\n## weft wan up\n"));
        for hidden in ["far-end", "perf-inside", "weft man\n", "floor"] {
            assert!(!page.contains(&format!("## weft {hidden}")), "{hidden}");
        }
        assert!(page.lines().all(|line| line.chars().count() <= COLUMNS), "too wide");
    }
}
