//! How sources and destinations are named: `path`, `host:path`, `user@host:path`, `[::1]:path`, and
//! `-` for standard input or output.
//!
//! Invariant: what has a `/` before its first `:` is a path here, as with scp; `./a:b` names a file
//! with a colon.
//!
//! Order: [`CopyTarget::parse`] for each argument.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Where something is or is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyTarget {
    /// A path here.
    Local(Vec<u8>),
    /// A path at a far end, relative to the home directory there.
    Remote {
        /// The host as ssh takes it, with a user if one was named.
        host: String,
        /// The path.
        path: Vec<u8>,
    },
    /// Standard input or output.
    Stdio,
}

impl CopyTarget {
    /// What an argument names.
    pub fn parse(argument: &OsStr) -> Self {
        let bytes = argument.as_bytes();
        if bytes == b"-" {
            return Self::Stdio;
        }
        match Self::split(bytes) {
            Some((host, path)) => {
                let path = if path.is_empty() { b"." } else { path };
                Self::Remote { host, path: path.to_vec() }
            }
            None => Self::Local(bytes.to_vec()),
        }
    }

    fn split(bytes: &[u8]) -> Option<(String, &[u8])> {
        let head = bytes.split(|byte| *byte == b':').next()?;
        let user_end = head.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
        let (user, rest) = bytes.split_at(user_end);
        let (host, path) = if let Some(inner) = rest.strip_prefix(b"[") {
            let end = inner.iter().position(|byte| *byte == b']')?;
            (&inner[..end], inner[end + 1..].strip_prefix(b":")?)
        } else {
            (&head[user_end..], bytes.get(head.len() + 1..)?)
        };
        let is_path = user.contains(&b'/') || host.contains(&b'/') || host.is_empty();
        if is_path {
            return None;
        }
        let host = [user, host].concat();
        Some((String::from_utf8(host).ok()?, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_scp_reads_them() {
        let parse = |text: &str| CopyTarget::parse(OsStr::new(text));
        let local = |text: &str| CopyTarget::Local(text.into());
        let remote =
            |host: &str, path: &str| CopyTarget::Remote { host: host.into(), path: path.into() };
        for (text, wanted) in [
            ("a", local("a")),
            ("./a:b", local("./a:b")),
            ("/a:b", local("/a:b")),
            (":a", local(":a")),
            ("a/b@c:d", local("a/b@c:d")),
            ("h:", remote("h", ".")),
            ("h:a:b", remote("h", "a:b")),
            ("u@h:/x/", remote("u@h", "/x/")),
            ("[::1]:x", remote("::1", "x")),
            ("u@[fe80::1%eth0]:x", remote("u@fe80::1%eth0", "x")),
            ("h:me@there", remote("h", "me@there")),
            ("-", CopyTarget::Stdio),
        ] {
            assert_eq!(parse(text), wanted, "{text}");
        }
    }
}
