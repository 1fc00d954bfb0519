//! Rules for every text file: width, white space, reminders, paths of somebody's machine.

use crate::finding::Finding;
use crate::tree::TextFile;

/// The widest line, in characters.
const COLUMNS: usize = 100;

/// Kinds of file whose lines may be long: prose wraps where it is read, data where it was made.
const WIDE: [&str; 6] = ["md", "json", "csv", "svg", "hex", "txt"];

/// Words that announce work; they need an issue, as in `TODO(#12)`. In two halves, so that this
/// list does not announce any.
const REMINDERS: [[&str; 2]; 3] = [["TO", "DO"], ["FIX", "ME"], ["X", "XX"]];

/// Directories outside of the project, which exist on one machine only. In two halves for the same
/// reason.
const SOMEBODYS: [[&str; 2]; 4] =
    [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"], ["../sh", "ared/"]];

/// Checks one file.
pub fn check(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let wide = WIDE.iter().any(|kind| file.is(kind));
    for (index, line) in file.text.lines().enumerate() {
        let width = line.chars().count();
        let too_wide = !wide && width > COLUMNS;
        let faults = [
            too_wide.then(|| format!("{width} columns; at most {COLUMNS}")),
            (line.trim_end() != line).then(|| String::from("trailing white space")),
            reminder(line).map(|word| format!("{word} without an issue, as in {word}(#12)")),
            somebodys(line).map(|path| format!("{path} exists on one machine only")),
        ];
        let faults = faults.into_iter().flatten();
        findings.extend(faults.map(|fault| Finding::new(&file.path, index + 1, fault)));
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        let last = file.text.lines().count();
        findings.push(Finding::new(&file.path, last, "the last line does not end"));
    }
    findings
}

fn reminder(line: &str) -> Option<String> {
    let word = REMINDERS.iter().map(|halves| halves.concat()).find(|word| {
        let at = crate::source::find_word(line, word);
        at.is_some_and(|at| !names_issue(&line[at + word.len()..]))
    })?;
    Some(word)
}

fn names_issue(after: &str) -> bool {
    after
        .split_once('#')
        .is_some_and(|(_, number)| number.starts_with(|c: char| c.is_ascii_digit()))
}

fn somebodys(line: &str) -> Option<String> {
    let inside = |c: char| c.is_alphanumeric() || "._-})*".contains(c);
    SOMEBODYS.iter().map(|halves| halves.concat()).find(|path| {
        let mut hits = line.match_indices(path.as_str());
        hits.any(|(at, _)| !line[..at].chars().next_back().is_some_and(inside))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(name: &str, text: &str) -> Vec<String> {
        let file = TextFile { path: name.into(), text: text.into() };
        check(&file).into_iter().map(|f| f.to_string()).collect()
    }

    #[test]
    fn lines_are_at_most_a_hundred_columns() {
        let wide = format!("{}\n", "ä".repeat(101));
        assert_eq!(faults("a.rs", &wide), ["a.rs:1: 101 columns; at most 100"]);
        assert!(faults("a.md", &wide).is_empty());
        assert!(faults("a.rs", &format!("{}\n", "ä".repeat(100))).is_empty());
    }

    #[test]
    fn white_space_at_the_end_shows() {
        assert_eq!(faults("Makefile", "a:\n\tb \n"), ["Makefile:2: trailing white space"]);
        assert_eq!(faults("a.md", "a\t\n").len(), 1);
        assert_eq!(faults("a.md", "a\nb"), ["a.md:2: the last line does not end"]);
    }

    #[test]
    fn reminders_need_an_issue() {
        for halves in REMINDERS {
            let word = halves.concat();
            assert_eq!(faults("a.rs", &format!("// {word}: later\n")).len(), 1, "{word}");
            assert_eq!(faults("a.rs", &format!("// {word} # later\n")).len(), 1, "{word}");
            assert!(faults("a.rs", &format!("// {word}(#3): later\n")).is_empty(), "{word}");
        }
        assert!(faults("a.sh", "mktemp /tmp/a.XXXXXX\n").is_empty());
    }

    #[test]
    fn paths_of_one_machine_fail() {
        for halves in SOMEBODYS {
            let path = halves.concat();
            assert_eq!(faults("a.sh", &format!("cd {path}main\n")).len(), 1, "{path}");
            assert_eq!(faults("a.md", &format!("see `{path}x`\n")).len(), 1, "{path}");
        }
        assert!(faults("a.md", "crates/work/src, ${dir}/work/x, $dir/home/x\n").is_empty());
    }
}
