//! Paths below the destination, as a sender names them, and how names are shown to people.
//!
//! Invariant: a [`RelPath`] cannot lead out of the directory that it begins in: it has no `..`, no
//! empty name, no `/` at its start and no NUL; links on it are the business of who opens it.
//!
//! Order: [`RelPath::parse`], then the rest.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, ensure};

/// Bytes of a name, at most, as Linux has it.
const NAME_MAX: usize = 255;
/// Bytes of a path, at most.
const PATH_MAX: usize = 32 * 1024;
/// Bytes of a file's name that the names of its partial file and record keep.
const KEPT_MAX: usize = 200;
/// Digits of the hash in such a name.
const HASH_DIGITS: usize = 8;

/// How the name of a partial file ends.
pub(crate) const PART: &str = "weft-part";
/// That of the record of what is in it.
pub(crate) const RECORD: &str = "weft-record";
/// That of a record that is being written.
pub(crate) const NEW_RECORD: &str = "weft-record-new";
/// That of a link that is being made.
pub(crate) const LINK: &str = "weft-link";
const SUFFIXES: [&str; 4] = [PART, RECORD, NEW_RECORD, LINK];

/// The name at the top of the destination that a source has; `None` if its content is meant: with
/// `/` or `/.` at the end, or without a name of its own.
pub(crate) fn own_name(source: &[u8]) -> Option<Vec<u8>> {
    let means_content = source.ends_with(b"/") || source.ends_with(b"/.");
    let name = Path::new(OsStr::from_bytes(source)).file_name().filter(|_| !means_content)?;
    Some(name.as_bytes().to_vec())
}

/// A path below the destination; empty for the destination itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(Vec<u8>);

impl RelPath {
    /// A path as a sender named it.
    ///
    /// # Errors
    /// It leads elsewhere, or cannot be one.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        ensure!(bytes.len() <= PATH_MAX, "the far end named a path of {} bytes", bytes.len());
        let is_name = |name: &[u8]| {
            !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_MAX && !name.contains(&0)
        };
        let is_sound = bytes.is_empty() || bytes.split(|byte| *byte == b'/').all(is_name);
        ensure!(is_sound, "the far end named `{}`, which is no path here", escape(bytes));
        Ok(Self(bytes.to_vec()))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is the destination itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The directory that it is in, and its name there; `None` for the destination itself.
    pub fn split(&self) -> Option<(Self, &OsStr)> {
        if self.is_root() {
            return None;
        }
        let at = self.0.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = match at {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (&b""[..], &self.0[..]),
        };
        Some((Self(parent.to_vec()), OsStr::from_bytes(name)))
    }

    /// The names on it.
    pub fn names(&self) -> impl Iterator<Item = &OsStr> {
        let parts = self.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        parts.map(OsStr::from_bytes)
    }
}

/// The name of what a copy keeps beside the file `name` while it lasts.
pub fn companion(name: &OsStr, suffix: &str) -> Vec<u8> {
    let bytes = name.as_bytes();
    let kept = &bytes[..bytes.len().min(KEPT_MAX)];
    // Long names that begin alike are told apart by their hash.
    let hash = blake3::hash(bytes).to_hex();
    let mut out = b".".to_vec();
    out.extend(kept);
    out.extend(format!(".{}.{suffix}", &hash[..HASH_DIGITS]).into_bytes());
    out
}

/// Whether a name is one that [`companion`] makes. A copy lists none of these and takes none: a
/// file of this name and the one that it belongs to would be written in one place.
pub fn is_companion(name: &OsStr) -> bool {
    let is_of = |suffix: &&str| {
        let rest = name.as_bytes().strip_prefix(b".")?.strip_suffix(suffix.as_bytes())?;
        let (rest, hash) = rest.strip_suffix(b".")?.split_last_chunk::<HASH_DIGITS>()?;
        let kept = rest.strip_suffix(b".")?;
        Some(match kept.len() < KEPT_MAX {
            true => companion(OsStr::from_bytes(kept), suffix) == name.as_bytes(),
            // The rest of the name, of which the hash is, is not known.
            false => kept.len() == KEPT_MAX && hash.iter().all(u8::is_ascii_hexdigit),
        })
    };
    SUFFIXES.iter().any(|suffix| is_of(suffix).unwrap_or(false))
}

/// A name as a person may read it: what a terminal would obey, and what is no UTF-8, is escaped.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let is_odd = c.is_control() || c == '\\' || is_invisible(c);
            // Writing to a string does not fail.
            let _ = match (is_odd, c) {
                (false, c) => write!(out, "{c}"),
                (true, '\\') => write!(out, r"\\"),
                (true, c) if c.is_ascii() => write!(out, "\\x{:02x}", c as u32),
                (true, c) => write!(out, "\\u{{{:x}}}", c as u32),
            };
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// Marks that change the direction of what follows, or cannot be seen.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        let bad: [&[u8]; 9] =
            [b"..", b"a/../b", b"/etc", b"a//b", b"a/", b".", b"a\0b", b"a/.", &[b'x'; 256]];
        for path in bad {
            assert!(RelPath::parse(path).is_err(), "{}", escape(path));
        }
        for path in [&b""[..], b"a", b"...", b"a/..b/ \n", b"\xff/\xfe"] {
            assert!(RelPath::parse(path).is_ok(), "{}", escape(path));
        }
    }

    #[test]
    fn a_path_falls_into_its_names() {
        let path = RelPath::parse(b"a/b/c").unwrap();
        let (parent, name) = path.split().unwrap();
        assert_eq!((parent.as_bytes(), name.as_bytes()), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(path.names().count(), 3);
        assert!(RelPath::default().split().is_none());
        assert_eq!(RelPath::default().names().count(), 0);
    }

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        assert_eq!(escape(b"a\x1b[2J\n\xff"), r"a\x1b[2J\x0a\xff");
        assert_eq!(escape("ä\u{9b}\u{202e}".as_bytes()), r"ä\u{9b}\u{202e}");
    }

    #[test]
    fn companions_are_names_and_differ() {
        let long = |end: char| format!("{}{end}", "x".repeat(254));
        let (a, b) = (long('a'), long('b'));
        let of = |name: &str| companion(OsStr::new(name), "weft-part");
        assert_ne!(of(&a), of(&b));
        assert!(of(&a).len() <= NAME_MAX);
        assert!(of("f").starts_with(b".f.") && of("f").ends_with(b".weft-part"));
    }

    #[test]
    fn companions_are_told_from_other_names() {
        for name in ["f", ".f.", "x".repeat(199).as_str(), &"x".repeat(200), &"x".repeat(255)] {
            for suffix in SUFFIXES {
                let made = companion(OsStr::new(name), suffix);
                assert!(is_companion(OsStr::from_bytes(&made)), "{}", escape(&made));
            }
        }
        let long = format!(".{}.0123456x.weft-part", "x".repeat(200));
        for name in [".f.weft-part", ".f.01234567.weft-part", "weft-part", ".weft-part", &long] {
            assert!(!is_companion(OsStr::new(name)), "{name}");
        }
    }
}
