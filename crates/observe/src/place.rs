//! Where processes and who watches them meet: a directory of the user's alone.
//!
//! It is `weft` in `XDG_RUNTIME_DIR`, or `/tmp/weft-UID` where that is not set or too long for the
//! name of a socket. Network namespaces
//! share it, so that `weft top` sees what runs in them; containers have their own.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::{Pid, geteuid, test_kill_process};

/// Permissions of the directory.
const MODE: u32 = 0o700;
/// What may not be permitted to anybody else.
const OTHERS: u32 = 0o077;
/// How the names of sockets end, and those of sockets that are about to get such a name.
const SUFFIX: &str = ".sock";
const UNNAMED_SUFFIX: &str = ".new";
/// Bytes of the directory that is given, at most: the address of a socket has 107.
const GIVEN_BYTES_MAX: usize = 107 - "/weft/4294967295-4294967295.sock".len();
/// Sockets that are looked at, at most: many may be of processes that have ended.
const SOCKETS_MAX: usize = 16_384;
/// Sockets that a process removes when it makes its own, at most, and that it tries.
const REMOVED_MAX: usize = 16;
const TRIED_MAX: usize = 256;

/// The directory, by `variable`, which reads the environment. It may not exist.
pub fn directory(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let given = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    let fits = |dir: &PathBuf| dir.is_absolute() && dir.as_os_str().len() <= GIVEN_BYTES_MAX;
    match given.filter(fits) {
        Some(dir) => dir.join("weft"),
        None => PathBuf::from(format!("/tmp/weft-{}", geteuid().as_raw())),
    }
}

/// Makes the directory, if it is not there.
///
/// # Errors
/// It cannot be made, or is not this user's alone.
pub fn make(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(MODE).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => check(dir),
    }
}

/// Whether nobody else can put anything there.
///
/// # Errors
/// Somebody can, or it is not there.
pub fn check(dir: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(dir)?;
    let own = found.uid() == geteuid().as_raw() && found.mode() & OTHERS == 0;
    match found.is_dir() && own {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} is not a directory of this user alone", dir.display()),
        )),
    }
}

/// As [`check`], for a reader: where the directory is not there, nobody is seen yet.
///
/// # Errors
/// Somebody else can put something there, or it cannot be looked at.
pub fn check_for_reading(dir: &Path) -> io::Result<()> {
    match check(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        checked => checked,
    }
}

/// The path of a process's socket; `number` is another one if that is taken.
pub fn socket_path(dir: &Path, pid: u32, number: u32) -> PathBuf {
    dir.join(format!("{pid}-{number}{SUFFIX}"))
}

/// Where the socket that is to be at [`socket_path`] is made: nobody looks there.
pub fn unnamed_path(dir: &Path, pid: u32, number: u32) -> PathBuf {
    dir.join(format!("{pid}-{number}{UNNAMED_SUFFIX}"))
}

/// The process id that the name of a socket has.
pub(crate) fn pid_of(path: &Path) -> Option<u32> {
    pid_before(SUFFIX, path)
}

fn pid_before(suffix: &str, path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_suffix(suffix)?;
    name.split_once('-')?.0.parse().ok()
}

/// The sockets in the directory; none if it is not to be trusted.
pub(crate) fn sockets(dir: &Path) -> Vec<PathBuf> {
    listed(dir, |path| pid_of(path).is_some())
}

fn listed(dir: &Path, is_one: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let listed = check(dir).and_then(|()| fs::read_dir(dir));
    let entries = listed.into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| is_one(path)).take(SOCKETS_MAX).collect();
    found.sort();
    found
}

/// Removes sockets that ended processes have left: one that is killed removes none, not even one
/// that has no name yet. Those of other PID namespaces stay, whose processes cannot be seen, if
/// somebody listens there; who makes one does not know that, and makes another if it is gone.
pub fn remove_left(dir: &Path) {
    let any_pid = |path: &Path| pid_of(path).or_else(|| pid_before(UNNAMED_SUFFIX, path));
    let is_gone = |path: &Path| {
        let pid = any_pid(path).and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    };
    let left = listed(dir, is_gone).into_iter().take(TRIED_MAX);
    for path in left.filter(|path| !is_heard(path)).take(REMOVED_MAX) {
        remove_socket(&path);
    }
}

/// Removes a socket; what else has its name is somebody's file.
pub(crate) fn remove_socket(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        // Another process may have done it.
        let _ = fs::remove_file(path);
    }
}

/// Whether somebody listens there, without waiting for that.
fn is_heard(path: &Path) -> bool {
    let connect = || {
        let (kind, flags) = (SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
    };
    connect() != Err(Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Duration;

    use super::*;
    use crate::reader::{ReadLimits, read_all};

    #[test]
    fn the_environment_decides() {
        let with = |value: &str| directory(|_| Some(value.into()));
        assert_eq!(with("/run/user/5"), Path::new("/run/user/5/weft"));
        assert!(with("relative").starts_with("/tmp"));
        assert!(with(&format!("/run/{}", "x".repeat(100))).starts_with("/tmp"));
        assert_eq!(pid_of(&socket_path(Path::new("/x"), 12, 3)), Some(12));
        assert_eq!(pid_of(Path::new("/x/y-1.sock")), None);
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        let base = std::env::temp_dir().join(format!("weft-place-{}", std::process::id()));
        let own = base.join("own");
        fs::create_dir(&base).unwrap();
        make(&own).unwrap();
        make(&own).unwrap();
        symlink(&own, base.join("link")).unwrap();
        assert!(check(&base.join("link")).is_err(), "somebody may have put it there");
        fs::set_permissions(&own, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(make(&own).is_err());
        fs::write(own.join("1-0.sock"), "").unwrap();
        assert!(sockets(&own).is_empty());
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_directory_that_is_not_there_is_no_fault_of_a_reader() {
        let base = std::env::temp_dir().join(format!("weft-unread-{}", std::process::id()));
        assert!(check_for_reading(&base).is_ok());
        fs::write(&base, "").unwrap();
        let checked = check_for_reading(&base);
        fs::remove_file(&base).unwrap();
        assert!(checked.unwrap_err().to_string().contains("not a directory of this user alone"));
    }

    #[test]
    fn what_is_no_socket_stays() {
        let dir = std::env::temp_dir().join(format!("weft-kept-{}", std::process::id()));
        make(&dir).unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let [file, link, pipe] = [0, 1, 2].map(|number| socket_path(&dir, ended.id(), number));
        fs::write(&file, "somebody's").unwrap();
        symlink(&file, link).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
        remove_left(&dir);
        let limits = ReadLimits { each: Duration::ZERO, all: Duration::ZERO };
        assert_eq!(read_all(&dir, limits), []);
        let left = fs::read_dir(&dir).unwrap().count();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(left, 3);
    }

    #[test]
    fn sockets_of_ended_processes_are_removed_and_others_stay() {
        let dir = std::env::temp_dir().join(format!("weft-left-{}", std::process::id()));
        make(&dir).unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let (own, past) = (std::process::id(), ended.id());
        ended.wait().unwrap();
        for path in [socket_path, unnamed_path] {
            let [own, past, heard] = [(own, 0), (past, 0), (past, 1)].map(|(pid, number)| {
                let path = path(&dir, pid, number);
                (std::os::unix::net::UnixListener::bind(&path).unwrap(), path)
            });
            drop((own.0, past.0));
            remove_left(&dir);
            // The last one is as of another PID namespace.
            let mut left = vec![own.1, heard.1.clone()];
            left.sort();
            assert_eq!(listed(&dir, |_| true), left);
            left.iter().for_each(|path| fs::remove_file(path).unwrap());
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
