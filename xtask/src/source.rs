//! A Rust file with everything that is not code taken out, so that a search finds code only.
//!
//! Invariant: the view has the same lines as the file, and the same number of characters in each;
//! comments are spaces, the insides of literals are quotation marks.

use crate::tree::TextFile;

/// The code of one file.
#[derive(Clone, Debug)]
pub struct Code {
    lines: Vec<String>,
    /// Index of the first line of the unit tests at the bottom; the number of lines without any.
    tests_at: usize,
}

impl Code {
    /// The code of `file`.
    pub fn of(file: &TextFile) -> Self {
        let lines: Vec<String> = blank(&file.text).lines().map(str::to_owned).collect();
        let whole = if file.is_test() { Some(0) } else { None };
        let tests_at = whole.or_else(|| bottom_tests(&lines)).unwrap_or(lines.len());
        Self { lines, tests_at }
    }

    /// Every line with its number, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines.iter().enumerate().map(|(i, line)| (i + 1, line.as_str()))
    }

    /// The lines above the unit tests.
    pub fn product(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().take(self.tests_at)
    }

    /// The whole view as one text.
    pub fn text(&self) -> String {
        self.lines.join("\n")
    }
}

/// Where `word` stands in `line` as a word of its own; `word` may be a path such as `std::net`.
pub fn find_word(line: &str, word: &str) -> Option<usize> {
    line.match_indices(word).map(|(at, _)| at).find(|&at| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The unit tests' first line, if the file ends in a module of them.
fn bottom_tests(lines: &[String]) -> Option<usize> {
    let at = lines.iter().rposition(|line| line.trim_end() == "#[cfg(test)]")?;
    let mut after = lines[at + 1..].iter().filter(|line| !line.starts_with("#["));
    let opens = after.next().is_some_and(|line| line.starts_with("mod ") && line.contains('{'));
    opens.then_some(at)
}

fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let (len, fill) = match special(rest, chars[..at].last().copied()) {
            Some(found) => found,
            None => (1, None),
        };
        for &c in &rest[..len] {
            out.push(if c == '\n' { c } else { fill.unwrap_or(c) });
        }
        at += len;
    }
    out
}

/// The length of the comment or literal that begins here, and what to fill it with.
fn special(rest: &[char], before: Option<char>) -> Option<(usize, Option<char>)> {
    match rest {
        ['/', '/', ..] => Some((line_comment(rest), Some(' '))),
        ['/', '*', ..] => Some((block_comment(rest), Some(' '))),
        ['"', ..] => Some((string(rest), Some('"'))),
        ['\'', ..] => character(rest).map(|len| (len, Some('"'))),
        ['r', '"' | '#', ..] if !before.is_some_and(|c| is_word(c) && c != 'b' && c != 'c') => {
            raw_string(rest).map(|len| (len, Some('"')))
        }
        _ => None,
    }
}

fn line_comment(rest: &[char]) -> usize {
    rest.iter().position(|&c| c == '\n').unwrap_or(rest.len())
}

fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string(rest: &[char]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|&&c| c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return None;
    }
    let body = 2 + hashes;
    let closes = |at: usize| {
        rest[at] == '"'
            && rest[at + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes
    };
    let end = (body..rest.len()).find(|&at| closes(at)).map_or(rest.len(), |at| at + 1 + hashes);
    Some(end)
}

/// The length of a character literal; none if the apostrophe begins a lifetime.
fn character(rest: &[char]) -> Option<usize> {
    match rest {
        ['\'', '\\', ..] => Some(3 + rest.get(3..)?.iter().position(|&c| c == '\'')? + 1),
        ['\'', _, '\'', ..] => Some(3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Code {
        Code::of(&TextFile { path: "src/a.rs".into(), text: text.into() })
    }

    #[test]
    fn comments_and_literals_vanish_and_lines_stay() {
        let text =
            "let a = \"unsafe \\\" {\"; // unsafe\n/* unsafe /* x */\n unsafe */ b('{', '\\'')";
        let view = code(text).text();
        assert!(!view.contains("unsafe"), "{view}");
        assert!(!view.contains('{'), "{view}");
        assert_eq!(view.lines().count(), text.lines().count());
        assert!(view.ends_with(')') && view.contains(" b("), "{view}");
        for (a, b) in view.lines().zip(text.lines()) {
            assert_eq!(a.chars().count(), b.chars().count());
        }
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        let view = code("f(br#\"unsafe \" \"#, r\"unsafe\\\", x); for_r#\"a").text();
        assert!(!view.contains("unsafe"), "{view}");
        assert!(view.contains(", x);"), "{view}");
    }

    #[test]
    fn lifetimes_are_code() {
        let view = code("fn f<'a>(x: &'a str, c: char) { c == 'a' || unsafe_ }").text();
        assert!(view.contains("<'a>(x: &'a str"), "{view}");
        assert!(view.contains("unsafe_"), "{view}");
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(find_word("forbid(unsafe_code)", "unsafe"), None);
        assert_eq!(find_word("unsafe_ unsafe {", "unsafe"), Some(8));
        assert_eq!(find_word("use std::network;", "std::net"), None);
        assert_eq!(find_word("use std::net::TcpStream;", "std::net"), Some(4));
    }

    #[test]
    fn unit_tests_at_the_bottom_are_not_the_product() {
        let view = code("fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n}\n");
        assert_eq!(view.product().count(), 1);
        let only_an_import = code("#[cfg(test)]\nuse a;\nfn a() {}\n");
        assert_eq!(only_an_import.product().count(), 3);
    }
}
