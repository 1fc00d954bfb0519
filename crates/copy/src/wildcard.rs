//! Wildcards in the names of sources at the far end, as scp takes them, without a shell.
//!
//! `*` stands for any bytes of a name, `?` for one, `[a-z]` for one of a set and `[!a-z]` for one
//! outside of it; `\` takes the special meaning from the byte behind it. A name that begins with a
//! dot is matched only by a pattern that does. By hand, since names are bytes and the libraries for
//! this take text.
//!
//! Invariant: what exists as it was named is meant as it was named, so that a file whose name has
//! these bytes can be copied; and a pattern that matches nothing is left, to be told as missing.
//!
//! Order: [`expand`] at the far end, [`is_meant`] at the near one.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::destination::expand_home;

/// The paths of the sources that `named` stands for, sorted by name. None has a `~` that means the
/// home directory.
pub fn expand(named: &[u8]) -> Vec<Vec<u8>> {
    let path = expand_home(named);
    if !has_wildcard(named) || fs::symlink_metadata(&path).is_ok() {
        return vec![path.into_os_string().into_vec()];
    }
    let bytes = path.as_os_str().as_bytes();
    let mut found = vec![PathBuf::from(if bytes.starts_with(b"/") { "/" } else { "" })];
    for part in bytes.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        found = found.iter().flat_map(|dir| step(dir, part)).collect();
    }
    // A slash at the end means what is in the directories that match.
    let end: &[u8] = if bytes.ends_with(b"/") { b"/" } else { b"" };
    let all = found.into_iter().map(|path| [path.as_os_str().as_bytes(), end].concat());
    let all: Vec<_> = all.collect();
    if all.is_empty() { vec![bytes.to_vec()] } else { all }
}

fn has_wildcard(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| b"*?[".contains(byte))
}

/// What is in `dir` under a name that matches.
fn step(dir: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    if !has_wildcard(pattern) {
        let path = dir.join(OsStr::from_bytes(pattern));
        return fs::symlink_metadata(&path).map(|_| path).into_iter().collect();
    }
    let at = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    // One that cannot be read has nothing that matches, as for a shell.
    let names = fs::read_dir(at).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().into_vec());
    let mut names: Vec<_> = names.filter(|name| is_meant(pattern, name)).collect();
    names.sort_unstable();
    names.into_iter().map(|name| dir.join(OsString::from_vec(name))).collect()
}

/// Whether a source whose last part is `pattern` may stand for `name`: it is that, or matches.
pub fn is_meant(pattern: &[u8], name: &[u8]) -> bool {
    let is_hidden = name.starts_with(b".") && !pattern.starts_with(b".");
    pattern == name || has_wildcard(pattern) && !is_hidden && is_match(pattern, name)
}

/// Whether `name` matches all of `pattern`. Goes back to the last `*` only, so its time is bounded
/// by the product of both lengths.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    let (mut rest, mut at) = (pattern, 0);
    let mut star: Option<(&[u8], usize)> = None;
    loop {
        if let Some((b'*', after)) = rest.split_first() {
            star = Some((after, at));
            rest = after;
            continue;
        }
        let next = name.get(at).and_then(|byte| match_one(rest, *byte));
        match (next, &mut star) {
            (Some(after), _) => (rest, at) = (after, at + 1),
            (None, _) if at == name.len() && rest.is_empty() => return true,
            (None, Some((after, from))) if *from < name.len() => {
                *from += 1;
                (rest, at) = (after, *from);
            }
            _ => return false,
        }
    }
}

/// The pattern behind what matches one byte, if that does.
fn match_one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', set @ ..] => match match_set(set, byte) {
            Some((is_in, rest)) => is_in.then_some(rest),
            // Without an end it is a byte as any other.
            None => (byte == b'[').then_some(set),
        },
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte).then_some(rest),
        [] => None,
    }
}

/// Whether a set, which is behind its `[`, has the byte, and what follows the set.
fn match_set(set: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (is_negated, set) = match set {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, set),
    };
    // A `]` that comes first is one of the set.
    let end = 1 + set.get(1..)?.iter().position(|byte| *byte == b']')?;
    let (mut members, mut is_in) = (&set[..end], false);
    while let Some((first, rest)) = members.split_first() {
        (is_in, members) = match rest {
            [b'-', last, rest @ ..] => (is_in || (*first..=*last).contains(&byte), rest),
            _ => (is_in || *first == byte, rest),
        };
    }
    Some((is_in != is_negated, &set[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_for_a_shell() {
        for (pattern, name, wanted) in [
            ("*", "", true),
            ("*.txt", "a.txt", true),
            ("*.txt", "a.txt.gz", false),
            ("a*b*c", "a--b-b--c", true),
            ("a*b*c", "a--b-b--", false),
            ("?", "", false),
            ("?x", "yx", true),
            ("[a-c]1", "b1", true),
            ("[!a-c]1", "b1", false),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("[ab", "[ab", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("x", "", false),
        ] {
            assert_eq!(is_match(pattern.as_bytes(), name.as_bytes()), wanted, "{pattern} {name}");
        }
        // What would take exponential time for one that goes back to every `*`.
        assert!(!is_match(&b"*a".repeat(200), &[b'a'; 199]));
    }

    #[test]
    fn sources_are_found_step_by_step() {
        let dir = weft_testkit::Dir::new("wildcard");
        let path = |name: &str| dir.path(name);
        for sub in ["x1", "x2", ".x3"] {
            fs::create_dir(path(sub)).unwrap();
            fs::write(path(sub).join("a.log"), "").unwrap();
        }
        fs::write(path("a[1]"), "").unwrap();
        fs::write(path("a1"), "").unwrap();
        let of = |pattern: &str| -> Vec<String> {
            let found = expand(path(pattern).as_os_str().as_bytes());
            let root = dir.root().as_os_str().len() + 1;
            found.iter().map(|path| String::from_utf8(path[root..].to_vec()).unwrap()).collect()
        };
        assert_eq!(of("x*/*.log"), ["x1/a.log", "x2/a.log"]);
        assert_eq!(of("x?/"), ["x1/", "x2/"]);
        assert_eq!(of("a[1]"), ["a[1]"], "what is there is meant");
        assert_eq!(of("a[12]"), ["a1"]);
        assert_eq!(of("none*"), ["none*"]);
    }

    #[test]
    fn the_home_directory_is_named_here_and_nowhere_else() {
        let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else {
            return weft_testkit::skip("there is no home directory");
        };
        let path = |path: PathBuf| vec![path.into_os_string().into_vec()];
        let none = "none of this name";
        assert_eq!(expand(b"~"), path(home.components().collect()));
        assert_eq!(expand(b"~/"), path(home.join("")), "what is in it");
        assert_eq!(expand(format!("~/{none}").as_bytes()), path(home.join(none)));
        assert_eq!(expand(format!("~/{none}*").as_bytes()), path(home.join(format!("{none}*"))));
        assert_eq!(expand(b"./~"), path("./~".into()));
    }
}
