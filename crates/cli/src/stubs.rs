//! Stubs of rdma-core's libraries, for programs that are linked with libraries that this machine
//! does not have.
//!
//! They lie beside the preloaded library, each in a directory of its own: `stubs/NAME/NAME.so.1`.
//! A directory of theirs goes into CMD's `LD_LIBRARY_PATH` only if the dynamic linker would not
//! find the library otherwise, because that list comes before the system's own places.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::elf::{self, BinaryKind};
use crate::program::Executable;

/// The libraries that have a stub.
const LIBRARIES: [&str; 4] = ["libibverbs", "librdmacm", "libmlx5", "libefa"];
/// The dynamic linker's list of the libraries in the system's directories.
const CACHE: &str = "/etc/ld.so.cache";

/// Directories of the stubs beside `preloaded` of what neither the machine nor `program` has.
/// `path` is CMD's `LD_LIBRARY_PATH`.
pub fn needed(preloaded: &Path, path: &OsStr, program: Option<&Executable>) -> Vec<PathBuf> {
    let stubs = preloaded.with_file_name("stubs");
    if !stubs.is_dir() {
        return Vec::new();
    }
    let cache = std::fs::read(CACHE).unwrap_or_default();
    let lacks = |name: &&str| !is_installed(&file_of(name), path, &cache);
    let lacking: Vec<&str> = LIBRARIES.into_iter().filter(lacks).collect();
    if lacking.is_empty() {
        return Vec::new();
    }
    // A program may bring a library of its own, in a place that it names itself.
    let brought = program.map(Executable::libraries).unwrap_or_default();
    let brings = |name: &str| brought.iter().any(|path| path.ends_with(file_of(name)));
    let wanted = lacking.into_iter().filter(|name| !brings(name));
    let dirs = wanted.map(|name| (stubs.join(name), file_of(name)));
    dirs.filter(|(dir, file)| dir.join(file).is_file()).map(|(dir, _)| dir).collect()
}

/// `LD_LIBRARY_PATH` with `dirs` at its end.
pub fn extended(path: &OsStr, dirs: &[PathBuf]) -> OsString {
    let before = Some(path).filter(|path| !path.is_empty());
    let parts: Vec<&OsStr> = before.into_iter().chain(dirs.iter().map(|d| d.as_os_str())).collect();
    parts.join(OsStr::new(":"))
}

fn file_of(name: &str) -> String {
    format!("{name}.so.1")
}

/// Whether the dynamic linker finds `file` for programs that name no place themselves.
fn is_installed(file: &str, path: &OsStr, cache: &[u8]) -> bool {
    let arch = std::env::consts::ARCH;
    let standard = ["/lib", "/usr/lib", "/lib64", "/usr/lib64"].map(PathBuf::from);
    let multiarch =
        ["/lib", "/usr/lib"].map(|dir| Path::new(dir).join(format!("{arch}-linux-gnu")));
    let listed = std::env::split_paths(path).filter(|dir| !dir.as_os_str().is_empty());
    let mut places = listed.chain(standard).chain(multiarch).map(|dir| dir.join(file));
    places.any(|place| is_native(&place)) || cached(file, cache).any(|place| is_native(&place))
}

/// The paths of `file` in the dynamic linker's list: its strings have NULs between them.
fn cached(file: &str, cache: &[u8]) -> impl Iterator<Item = PathBuf> {
    let paths = cache.split(|&byte| byte == 0).filter(|text| text.starts_with(b"/"));
    let paths = paths.map(|text| PathBuf::from(OsStr::from_bytes(text)));
    paths.filter(move |path| path.file_name() == Some(OsStr::new(file)))
}

fn is_native(path: &Path) -> bool {
    matches!(elf::read(path), Ok(BinaryKind::Native(_)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_library_that_is_here_is_found() {
        let (none, cache) = (OsStr::new(""), fs::read(CACHE).unwrap_or_default());
        assert!(is_installed("libc.so.6", none, &cache));
        assert!(!is_installed("libnone.so.1", none, &cache));
        let dir = std::env::temp_dir().join(format!("weft-stubs-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::copy(std::env::current_exe().unwrap(), dir.join("libnone.so.1")).unwrap();
        assert!(is_installed("libnone.so.1", dir.as_os_str(), b""));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_list_of_the_linker_is_read_by_paths() {
        let list = b"\x01\x02\0liba.so.1\0/x/liba.so.1\0/y/libba.so.1\0/z/liba.so.1\0";
        let found: Vec<_> = cached("liba.so.1", list).collect();
        assert_eq!(found, [Path::new("/x/liba.so.1"), Path::new("/z/liba.so.1")]);
    }

    #[test]
    fn the_path_grows_at_its_end() {
        let dirs = ["/s/a", "/s/b"].map(PathBuf::from);
        assert_eq!(extended(OsStr::new(""), &dirs), "/s/a:/s/b");
        assert_eq!(extended(OsStr::new("/own"), &dirs[..1]), "/own:/s/a");
    }

    #[test]
    fn without_stubs_nothing_is_supplied() {
        let dirs = needed(Path::new("/nonexistent/libweft.so"), OsStr::new(""), None);
        assert_eq!(dirs, Vec::<PathBuf>::new());
    }
}
