//! Which file a process writes: one of its own, whatever other processes of the same run do.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use weft_os::plain_file;

/// Names that a process tries for a file.
const TRIES_MAX: u32 = 1000;

/// Makes a file of this `process`: the one at `path`, where `%p` is the process id, or the same
/// with the process id if that is there, as another process's or an earlier one of this. Gives the
/// name without a number, too, which the first of a `ring` has.
///
/// # Errors
/// Those of the system, and `InvalidInput` if there is something at `path` that is no regular file:
/// whoever names a device or a FIFO does not mean a file beside it.
pub(crate) fn claim(path: &Path, ring: bool, process: u32) -> io::Result<(PathBuf, File)> {
    let text = path.to_string_lossy();
    let base = match text.contains("%p") {
        true => PathBuf::from(text.replace("%p", &process.to_string())),
        false => path.to_path_buf(),
    };
    if fs::metadata(&base).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let open = |base: &Path| {
        let name = if ring { numbered(base, 1) } else { base.to_path_buf() };
        // The first file of a ring that went on is gone.
        match ring && has_ring(base) {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => OpenOptions::new().create_new(true).write(true).open(name),
        }
    };
    let mut own = base.clone();
    for number in 1..=TRIES_MAX {
        match open(&own) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                own = match number {
                    1 => with_suffix(&base, &process.to_string()),
                    _ => with_suffix(&base, &format!("{process}-{number}")),
                };
            }
            made => return Ok((own, made?)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// An empty file at `path`, whatever was there.
pub(crate) fn create_anew(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    Ok(plain_file::open_as(path, options.create(true).write(true).truncate(true))?.0)
}

/// One of the files of a ring.
pub(crate) fn numbered(base: &Path, number: u32) -> PathBuf {
    with_suffix(base, &format!("{number:05}"))
}

/// Whether there is a file of a ring with this base.
fn has_ring(base: &Path) -> bool {
    let directory = match base.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let stem = base.file_stem().unwrap_or_default().to_string_lossy();
    let is_of_ring = |path: &Path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let number = name.strip_prefix(&*stem).and_then(|rest| rest.strip_prefix('-'));
        let number = number.and_then(|digits| digits.parse().ok());
        path.extension() == base.extension()
            && number.is_some_and(|number| numbered(base, number).file_name() == path.file_name())
    };
    let Ok(entries) = fs::read_dir(directory) else { return false };
    entries.flatten().any(|entry| is_of_ring(Path::new(&entry.file_name())))
}

/// `out.pcapng` with the suffix `7` is `out-7.pcapng`.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(extension) => format!("{stem}-{suffix}.{}", extension.to_string_lossy()),
        None => format!("{stem}-{suffix}"),
    };
    path.with_file_name(name)
}

/// What the program of this process is called.
pub(crate) fn program_name() -> String {
    let name = std::env::args_os().next().unwrap_or_default();
    Path::new(&name).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_process_are_told_apart() {
        let dir = std::env::temp_dir().join(format!("weft-names-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let names: Vec<_> = (0..4).map(|_| claim(&dir.join("out"), false, 7).unwrap().0).collect();
        let wanted = ["out", "out-7", "out-7-2", "out-7-3"].map(|name| dir.join(name));
        assert_eq!(names, wanted);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_ring_whose_first_files_are_gone_is_not_taken_by_another_process() {
        let dir = std::env::temp_dir().join(format!("weft-rings-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let base = dir.join("out.pcapng");
        assert_eq!(claim(&base, true, 7).unwrap().0, base);
        std::fs::rename(numbered(&base, 1), numbered(&base, 12)).unwrap();
        assert_eq!(claim(&base, true, 8).unwrap().0, dir.join("out-8.pcapng"));
        assert!(numbered(&base, 12).exists());
        // Names that only look alike are no ring.
        std::fs::File::create(dir.join("two-7.pcapng")).unwrap();
        assert_eq!(claim(&dir.join("two.pcapng"), true, 9).unwrap().0, dir.join("two.pcapng"));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn nothing_is_made_beside_what_is_no_regular_file() {
        let dir = std::env::temp_dir().join(format!("weft-beside-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let pipe = dir.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::os::unix::fs::symlink("/dev/null", dir.join("null")).unwrap();
        std::fs::create_dir(dir.join("directory")).unwrap();
        for name in ["pipe", "null", "directory"] {
            for ring in [false, true] {
                let error = claim(&dir.join(name), ring, 7).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
            }
        }
        assert!(create_anew(&pipe).is_err());
        let there = std::fs::read_dir(&dir).unwrap().count();
        std::fs::remove_dir_all(dir).unwrap();
        assert_eq!(there, 3);
    }

    #[test]
    fn names_keep_their_extension() {
        assert_eq!(with_suffix(Path::new("/d/out.pcapng"), "7"), Path::new("/d/out-7.pcapng"));
        assert_eq!(numbered(Path::new("out"), 12), Path::new("out-00012"));
    }
}
