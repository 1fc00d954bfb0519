//! Paths of the preloaded libraries.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::elf::{self, BinaryKind};

/// Library with the verbs devices.
pub const VERBS: &str = "libweft.so";
/// Library that carries sockets by SDP.
pub const SOCKETS: &str = "libweft_sockets.so";

/// The library `name`, as an absolute path: `given` if there is one, else the first that lies
/// where a build or an installation puts it, seen from the directory of `weft` itself.
///
/// # Errors
/// There is none, it is not a library of this machine, or what was given is another library.
pub fn find(name: &str, given: Option<&Path>, own_dir: &Path) -> Result<PathBuf> {
    let found = match given {
        Some(path) => path.to_path_buf(),
        None => search(name, own_dir)?,
    };
    let path = found.canonicalize().with_context(|| format!("{}", found.display()))?;
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

fn search(name: &str, own_dir: &Path) -> Result<PathBuf> {
    let places = ["", "../lib", "../lib/weft"].map(|place| own_dir.join(place).join(name));
    let found = places.iter().find(|path| path.is_file());
    let tried = || places.each_ref().map(|path| path.display().to_string()).join(", ");
    found.cloned().with_context(|| {
        format!("{name} is in none of {}; give its path with --lib or WEFT_LIB", tried())
    })
}

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
    fn a_missing_library_is_explained() {
        let error = find(VERBS, None, Path::new("/nonexistent")).unwrap_err().to_string();
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
