//! CMD's executable, as far as `LD_PRELOAD` is concerned: can it be intercepted, and is it linked
//! with a sanitizer that must come first?
//!
//! A file that cannot be found or read is no finding: `exec` reports that more precisely.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use weft_os::plain_file;

use crate::elf::{self, BinaryKind, Elf};
use crate::preload;

/// Largest number of nested interpreters of a script, the kernel's.
const INTERPRETERS_MAX: usize = 4;
/// Bytes of a script's first line that the kernel reads.
const FIRST_LINE_MAX: usize = 256;
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;

/// The program that the kernel will load for CMD: CMD, or the interpreter of a script.
#[derive(Clone, Debug)]
pub struct Executable {
    path: PathBuf,
    kind: BinaryKind,
}

impl Executable {
    /// The program behind `command`, found along `path` as `execvp` finds it.
    pub fn find(command: &OsStr, path: Option<&OsStr>) -> Option<Self> {
        let mut file = locate(command, path)?;
        for _ in 0..=INTERPRETERS_MAX {
            match elf::read(&file).ok()? {
                BinaryKind::NotElf => file = interpreter(&file)?,
                kind => return Some(Self { path: file, kind }),
            }
        }
        None
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it asks of the dynamic linker, if it is for this machine.
    pub fn elf(&self) -> Option<&Elf> {
        match &self.kind {
            BinaryKind::Native(elf) => Some(elf),
            _ => None,
        }
    }

    /// What the dynamic linker would load for it, with `preload` before everything and `path`
    /// as `LD_LIBRARY_PATH`: a line for each library, and what it complains about.
    ///
    /// # Errors
    /// It has no dynamic linker, or that cannot be run.
    pub fn trace(&self, preload: &OsStr, path: &OsStr) -> io::Result<Output> {
        let linker = self.elf().and_then(|elf| elf.interpreter.as_ref());
        let linker = linker.ok_or(io::ErrorKind::Unsupported)?;
        let mut command = Command::new(OsStr::from_bytes(linker));
        command.env("LD_PRELOAD", preload).env("LD_LIBRARY_PATH", path);
        command.arg("--list").arg(&self.path).output()
    }

    /// Why Weft cannot be put before this program, if it cannot. `user` and `group` are the
    /// caller's.
    pub fn obstacle(&self, user: u32, group: u32) -> Option<String> {
        let path = self.path.display();
        match &self.kind {
            BinaryKind::Foreign => return Some(format!("{path} is for another kind of machine")),
            // The dynamic linker, run by name, obeys LD_PRELOAD as it does for others.
            BinaryKind::Native(elf) if elf.interpreter.is_none() && !elf.is_library => {
                return Some(format!("{path} is statically linked"));
            }
            _ => {}
        }
        let file = fs::metadata(&self.path).ok()?;
        let mode = file.permissions().mode();
        let changes_user = mode & SET_USER != 0 && file.uid() != user;
        let changes_group = mode & SET_GROUP != 0 && file.gid() != group;
        (changes_user || changes_group).then(|| format!("{path} runs as another user or group"))
    }

    /// The runtime of AddressSanitizer that this program is linked with: its path, or its bare
    /// name for the dynamic linker to look for.
    pub fn sanitizer(&self) -> Option<PathBuf> {
        let BinaryKind::Native(elf) = &self.kind else { return None };
        let name = elf.needed.iter().find(|name| preload::is_sanitizer(name))?;
        let name = OsStr::from_bytes(name);
        Some(self.resolve(elf, name).unwrap_or_else(|| PathBuf::from(name)))
    }

    /// Where the dynamic linker finds `library` for this program: it is asked.
    fn resolve(&self, elf: &Elf, library: &OsStr) -> Option<PathBuf> {
        listed(&self.list(elf)?, library.as_bytes())
    }

    /// The paths of the libraries that the dynamic linker finds for this program: it is asked.
    pub fn libraries(&self) -> Vec<PathBuf> {
        let list = self.elf().and_then(|elf| self.list(elf)).unwrap_or_default();
        list.split(|&b| b == b'\n').filter_map(|line| Some(resolved(line)?.1)).collect()
    }

    fn list(&self, elf: &Elf) -> Option<Vec<u8>> {
        let linker = OsStr::from_bytes(elf.interpreter.as_ref()?);
        Some(Command::new(linker).arg("--list").arg(&self.path).output().ok()?.stdout)
    }
}

/// The path of `library` in the dynamic linker's list.
fn listed(list: &[u8], library: &[u8]) -> Option<PathBuf> {
    let mut found = list.split(|&b| b == b'\n').filter_map(resolved);
    found.find_map(|(name, path)| (name.as_bytes() == library).then_some(path))
}

/// Name and path in a line `library => path (address)` of that list.
fn resolved(line: &[u8]) -> Option<(String, PathBuf)> {
    let line = String::from_utf8_lossy(line);
    let (name, rest) = line.trim().split_once(" => ")?;
    let (path, _) = rest.rsplit_once(" (")?;
    path.starts_with('/').then(|| (name.to_owned(), PathBuf::from(path)))
}

/// The file that `execvp` would try to run.
fn locate(command: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(command));
    }
    let standard = OsString::from("/bin:/usr/bin");
    let dirs = std::env::split_paths(path.unwrap_or(&standard)).collect::<Vec<_>>();
    let runs = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    dirs.iter().map(|dir| dir.join(command)).find(runs)
}

/// The interpreter that a script names in its first line; the shell for a text without one.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut first = Vec::new();
    let (file, _) = plain_file::open(script).ok()?;
    file.take(FIRST_LINE_MAX as u64).read_to_end(&mut first).ok()?;
    let Some(line) = first.strip_prefix(b"#!") else {
        return Some(PathBuf::from("/bin/sh"));
    };
    let line = line.split(|&b| b == b'\n').next()?.trim_ascii_start();
    let path = line.split(|b| b.is_ascii_whitespace()).next()?;
    (!path.is_empty()).then(|| PathBuf::from(OsString::from_vec(path.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(command: &str, path: &str) -> Option<Executable> {
        Executable::find(OsStr::new(command), Some(OsStr::new(path)))
    }

    #[test]
    fn path_is_searched_as_execvp_does() {
        assert!(find("sh", "/nonexistent:/bin").is_some());
        assert!(find("sh", "/nonexistent").is_none());
        assert!(find("/bin/sh", "").is_some());
        assert!(find("passwd", "/etc").is_none(), "a file that nobody may run");
        assert!(Executable::find(OsStr::new("sh"), None).is_some());
    }

    #[test]
    fn a_dynamic_program_has_no_obstacle_and_no_sanitizer() {
        let shell = find("sh", "/bin").unwrap();
        assert_eq!(shell.obstacle(0, 0), None);
        assert_eq!(shell.sanitizer(), None);
    }

    #[test]
    fn scripts_lead_to_their_interpreter() {
        let dir = std::env::temp_dir().join(format!("weft-program-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let script = |name: &str, text: String| {
            let path = dir.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let one = script("one", String::from("#! /bin/sh -e\n"));
        let two = script("two", format!("#!{}\n", one.display()));
        let bare = script("bare", String::from("true\n"));
        let circle = script("circle", format!("#!{}/circle\n", dir.display()));
        for path in [&one, &two, &bare] {
            let program = Executable::find(path.as_os_str(), None).unwrap();
            assert_eq!(program.path, Path::new("/bin/sh"));
        }
        assert!(Executable::find(circle.as_os_str(), None).is_none());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_program_that_changes_user_is_an_obstacle_to_others() {
        let su = find("su", "/bin:/usr/bin").unwrap();
        assert!(su.obstacle(1000, 1000).unwrap().contains("another user"));
        assert_eq!(su.obstacle(0, 0), None);
    }

    #[test]
    fn the_linkers_list_is_read() {
        let list =
            b"\tlinux-vdso.so.1 (0x1)\n\tlibasan.so.8 => /l/libasan.so.8 (0x2)\n\tb => not found\n";
        assert_eq!(listed(list, b"libasan.so.8"), Some(PathBuf::from("/l/libasan.so.8")));
        assert_eq!(listed(list, b"b"), None);
    }
}
