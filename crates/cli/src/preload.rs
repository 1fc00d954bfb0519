//! The value of `LD_PRELOAD`.
//!
//! Invariant: a sanitizer's runtime stands first, because it refuses to run otherwise; then
//! our library, once; then whatever was there before, in its order.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use anyhow::{Result, ensure};

/// Weft's two libraries: a program gets one of them, by the innermost `weft run`.
const LIBRARIES: [&[u8]; 2] = [b"libweft.so", b"libweft_sockets.so"];

/// The list with `library` in it, and `sanitizer` if CMD needs one.
///
/// # Errors
/// The dynamic linker splits the list at spaces and colons, so a path must have none.
pub fn with(existing: &OsStr, library: &Path, sanitizer: Option<&Path>) -> Result<OsString> {
    for path in [Some(library), sanitizer].into_iter().flatten() {
        ensure!(
            !path.as_os_str().as_bytes().iter().any(|&b| is_separator(b)),
            "LD_PRELOAD cannot hold a path with a space or a colon: {}; move weft to another \
             directory, or `weft unpack DIR` into one and set WEFT_LIB to the library there",
            path.display()
        );
    }
    let kept: Vec<&[u8]> = others(existing).collect();
    let (mut list, rest): (Vec<&[u8]>, Vec<&[u8]>) =
        kept.into_iter().partition(|entry| is_sanitizer(file_name(entry)));
    if let Some(path) = sanitizer.map(|path| path.as_os_str().as_bytes())
        && !list.iter().any(|entry| file_name(entry) == file_name(path))
    {
        list.push(path);
    }
    list.push(library.as_os_str().as_bytes());
    list.extend(rest);
    Ok(OsString::from_vec(list.join(&b':')))
}

/// The list without our libraries, for a run without Weft inside one with it.
pub fn without(existing: &OsStr) -> OsString {
    OsString::from_vec(others(existing).collect::<Vec<_>>().join(&b':'))
}

/// Whether a library is the runtime of AddressSanitizer, gcc's or clang's.
pub fn is_sanitizer(name: &[u8]) -> bool {
    name.starts_with(b"libasan.so") || name.starts_with(b"libclang_rt.asan")
}

/// The entries that are not ours.
fn others(list: &OsStr) -> impl Iterator<Item = &[u8]> {
    let entries = list.as_bytes().split(|&b| is_separator(b));
    entries.filter(|entry| !entry.is_empty() && !LIBRARIES.contains(&file_name(entry)))
}

fn is_separator(byte: u8) -> bool {
    byte == b':' || byte == b' '
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(existing: &str, sanitizer: Option<&str>) -> String {
        let made = with(OsStr::new(existing), Path::new("/w/libweft.so"), sanitizer.map(Path::new));
        made.unwrap().into_string().unwrap()
    }

    #[test]
    fn what_was_there_stays_behind() {
        assert_eq!(list("", None), "/w/libweft.so");
        assert_eq!(list("/a.so:/b.so c.so", None), "/w/libweft.so:/a.so:/b.so:c.so");
    }

    #[test]
    fn twice_is_once() {
        assert_eq!(list("/old/libweft_sockets.so:/a.so", None), "/w/libweft.so:/a.so");
        assert_eq!(list(&list("/a.so", None), None), "/w/libweft.so:/a.so");
        assert_eq!(list("/old/libweft.so:/a.so", None), "/w/libweft.so:/a.so");
    }

    #[test]
    fn sanitizers_go_first() {
        assert_eq!(list("/a.so", Some("/l/libasan.so.8")), "/l/libasan.so.8:/w/libweft.so:/a.so");
        let given = "/a.so:libasan.so.8";
        assert_eq!(list(given, None), "libasan.so.8:/w/libweft.so:/a.so");
        assert_eq!(list(given, Some("/l/libasan.so.8")), "libasan.so.8:/w/libweft.so:/a.so");
    }

    #[test]
    fn without_removes_ours_only() {
        assert_eq!(without(OsStr::new("/w/libweft.so:/a.so")), "/a.so");
        assert_eq!(without(OsStr::new("/w/libweft.so")), "");
    }

    #[test]
    fn paths_that_would_be_split_are_refused() {
        let error = with(OsStr::new(""), Path::new("/a b/libweft.so"), None).unwrap_err();
        assert!(error.to_string().contains("/a b/libweft.so"));
    }
}
