//! Paths of the preloaded libraries.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::carried;
use crate::elf::{self, BinaryKind};

/// Library with the verbs devices.
pub const VERBS: &str = "libweft.so";
/// Library that carries sockets by SDP.
pub const SOCKETS: &str = "libweft_sockets.so";

/// The library `name`, as an absolute path: `given` if there is one, else the first that lies
/// where a build or an installation puts it, seen from the directory of `weft` itself; for a `weft`
/// that was copied alone, then the one that it carries, and that of an installation in one of the
/// usual places.
///
/// # Errors
/// There is none, it is not a library of this machine, or what was given is another library.
pub fn find(name: &str, given: Option<&Path>, own_dir: &Path) -> Result<PathBuf> {
    let found = match given {
        Some(path) => path.to_path_buf(),
        None => search(name, own_dir, &prefixes(std::env::var_os("HOME").as_deref()), || {
            carried::directory()
        })?,
    };
    let path = found.canonicalize();
    let path = path.with_context(|| format!("cannot use the library {}", found.display()))?;
    match elf::read(&path).with_context(|| format!("{}", path.display()))? {
        BinaryKind::Native(elf) if given.is_none() || elf.mark == Some(mark_of(name)) => Ok(path),
        BinaryKind::Native(_) => bail!("{} is not Weft's {name}", path.display()),
        BinaryKind::Foreign => bail!("{} is not for this machine", path.display()),
        BinaryKind::NotElf => bail!("{} is not a shared library", path.display()),
    }
}

/// The mark of the library of this name.
fn mark_of(name: &str) -> &'static str {
    elf::MARKS[usize::from(name == SOCKETS)]
}

/// Where installations go by default: that of the user's own, of the machine, of a package.
fn prefixes(home: Option<&OsStr>) -> Vec<PathBuf> {
    let own = home.filter(|home| !home.is_empty()).map(|home| Path::new(home).join(".local"));
    own.into_iter().chain(["/usr/local", "/usr"].map(PathBuf::from)).collect()
}

/// `unpack` gives the directory of what `weft` carries, if it carries libraries.
fn search(
    name: &str,
    own_dir: &Path,
    prefixes: &[PathBuf],
    unpack: impl FnOnce() -> Result<Option<PathBuf>>,
) -> Result<PathBuf> {
    let beside = ["", "../lib", "../lib/weft"].map(|place| own_dir.join(place).join(name));
    if let Some(found) = beside.iter().find(|path| path.is_file()) {
        return Ok(found.clone());
    }
    if let Some(dir) = unpack()? {
        return Ok(dir.join(name));
    }
    let installed = prefixes.iter().map(|prefix| prefix.join("lib/weft").join(name));
    let places: Vec<_> = beside.into_iter().chain(installed).collect();
    let found = places.iter().find(|path| path.is_file());
    let tried = || places.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ");
    found.cloned().with_context(|| {
        format!("{name} is in none of {}; give its path with --lib or WEFT_LIB{LACK}", tried())
    })
}

/// Why the static program finds none of its own.
const LACK: &str = if weft_perf::USES_LIBRARIES {
    ""
} else {
    ". The static weft carries no libraries; that of a package or archive does"
};

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A directory of this test's own, with a copy of a real ELF file at `place`.
    fn installation(test: &str, place: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("weft-library-{}-{test}", std::process::id()));
        let library = dir.join(place);
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        fs::create_dir_all(dir.join("bin")).unwrap();
        fs::copy(std::env::current_exe().unwrap(), library).unwrap();
        dir
    }

    #[test]
    fn builds_and_installations_are_found() {
        for (test, place) in
            [("a", "bin/libweft.so"), ("b", "lib/libweft.so"), ("c", "lib/weft/libweft.so")]
        {
            let dir = installation(test, place);
            let expected = dir.join(place).canonicalize().unwrap();
            assert_eq!(find(VERBS, None, &dir.join("bin")).unwrap(), expected);
            fs::remove_dir_all(dir).unwrap();
        }
    }

    #[test]
    fn a_weft_that_was_copied_alone_finds_an_installation() {
        let dir = installation("d", ".local/lib/weft/libweft.so");
        let prefixes = prefixes(Some(dir.as_os_str()));
        let lonely = Path::new("/nonexistent");
        let found = search(VERBS, lonely, &prefixes, || Ok(None)).unwrap();
        assert_eq!(found, dir.join(".local/lib/weft/libweft.so"));
        // What it carries is of its own version.
        let found = search(VERBS, lonely, &prefixes, || Ok(Some("/cache".into()))).unwrap();
        assert_eq!(found, Path::new("/cache/libweft.so"));
        let beside = dir.join(".local/lib/weft");
        let found = search(VERBS, &beside, &[], || bail!("not needed")).unwrap();
        assert_eq!(found, dir.join(".local/lib/weft/libweft.so"));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_missing_library_is_explained() {
        let error = search(VERBS, Path::new("/nonexistent"), &[], || Ok(None));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("../lib/weft/libweft.so") && error.contains("WEFT_LIB"), "{error}");
    }

    #[test]
    fn a_given_path_must_be_a_library() {
        let error =
            find(VERBS, Some(Path::new("/nonexistent/libweft.so")), Path::new("/")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/libweft.so"));
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = find(VERBS, Some(&text), Path::new("/")).unwrap_err();
        assert!(error.to_string().contains("not a shared library"));
        let other = std::env::current_exe().unwrap();
        let error = find(VERBS, Some(&other), Path::new("/")).unwrap_err().to_string();
        assert!(error.contains("is not Weft's libweft.so"), "{error}");
    }
}
