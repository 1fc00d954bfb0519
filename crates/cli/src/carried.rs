//! The libraries that `weft` carries, unpacked where nobody else can write.
//!
//! A `weft` that was copied alone puts them into `weft/lib-ID` of the user's cache directory and
//! uses them there. Invariant: the directory is this user's, and nobody else may write to it; and
//! each run compares the SHA-256 of the files with those that the program carries, so that what was
//! changed or cut off is replaced before it is used.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::StatVfsMountFlags;
use rustix::process::geteuid;
use weft_session::CarriedFiles;

/// Rights of the directory: its owner's alone.
const OWNERS_ALONE: u32 = 0o700;
/// Rights to write that others must not have.
const OTHERS_WRITE: u32 = 0o022;

/// Where the carried libraries are, if there are any.
///
/// # Errors
/// They cannot be put there, or could be changed there by others.
pub fn directory() -> Result<Option<PathBuf>> {
    let Some(carried) = CarriedFiles::of_this_program()? else { return Ok(None) };
    let cache = cache_directory(|name| std::env::var_os(name).map(PathBuf::from));
    let unpacked = cache.and_then(|cache| unpack(&carried, &cache));
    unpacked.map(Some).context(
        "the libraries that weft carries cannot be unpacked; name a directory of yours by \
         XDG_CACHE_HOME, or run `weft unpack DIR` and name DIR/libweft.so by WEFT_LIB",
    )
}

/// Writes the carried libraries into `dir`, which is made if it is not there.
///
/// # Errors
/// There are none, or they cannot be written.
pub fn write_into(dir: &Path) -> Result<()> {
    let carried = CarriedFiles::of_this_program()?;
    let carried = carried.context(
        "this weft carries no libraries: those of a build or package lie in files of their own",
    )?;
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    carried.unpack(dir)
}

fn cache_directory(variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf> {
    let named = variable("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let home = || variable("HOME").filter(|path| path.is_absolute());
    let cache = named.or_else(|| home().map(|home| home.join(".cache")));
    cache.context("neither XDG_CACHE_HOME nor HOME names a directory")
}

fn unpack(carried: &CarriedFiles, cache: &Path) -> Result<PathBuf> {
    let dir = cache.join("weft").join(format!("lib-{}", &carried.id()[..16]));
    let made = DirBuilder::new().recursive(true).mode(OWNERS_ALONE).create(&dir);
    made.with_context(|| format!("cannot make {}", dir.display()))?;
    check_owner(&dir)?;
    carried.unpack(&dir)?;
    let flags = rustix::fs::statvfs(&dir).map(|of| of.f_flag);
    if flags.is_ok_and(|flags| flags.contains(StatVfsMountFlags::NOEXEC)) {
        bail!("{} is on a file system without programs (noexec)", dir.display());
    }
    Ok(dir)
}

/// Refuses a directory that others own or may write to, and a link to one.
fn check_owner(dir: &Path) -> Result<()> {
    let is = fs::symlink_metadata(dir).with_context(|| dir.display().to_string())?;
    let own = is.is_dir() && is.uid() == geteuid().as_raw();
    ensure!(own, "{} is no directory of this user", dir.display());
    let open = is.mode() & OTHERS_WRITE != 0;
    ensure!(!open, "other users may write to {}; remove that permission", dir.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_cache_is_the_users() {
        let with = |named: &'static str, home: &'static str| {
            cache_directory(|name| {
                let value = if name == "HOME" { home } else { named };
                Some(PathBuf::from(value)).filter(|value| !value.as_os_str().is_empty())
            })
        };
        assert_eq!(with("/c", "/h").unwrap(), Path::new("/c"));
        assert_eq!(with("c", "/h").unwrap(), Path::new("/h/.cache"));
        assert_eq!(with("", "/h").unwrap(), Path::new("/h/.cache"));
        assert!(with("", "").unwrap_err().to_string().contains("XDG_CACHE_HOME"));
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let dir = std::env::temp_dir().join(format!("weft-cache-{}", std::process::id()));
        let [own, link] = ["own", "link"].map(|name| dir.join(name));
        fs::create_dir_all(&own).unwrap();
        std::os::unix::fs::symlink(&own, &link).unwrap();
        let set = |mode| fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
        set(0o755);
        check_owner(&own).unwrap();
        assert!(check_owner(&link).unwrap_err().to_string().contains("no directory of this user"));
        for mode in [0o775, 0o757] {
            set(mode);
            let error = check_owner(&own).unwrap_err().to_string();
            assert!(error.contains("other users may write"), "{error}");
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
