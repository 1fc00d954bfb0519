//! How other processes find a path that is up, and what they may ask of it.
//!
//! Each path listens on a socket `NAME.sock` in a directory that only its user may enter. A request
//! is a line; the answer is all that comes until the end of the stream. A socket at which nobody
//! listens belongs to a path that was killed, and is removed by whoever meets it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// What may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// A [`crate::stats::PathReport`] in JSON.
    Stat,
    /// The same for people.
    Show,
    /// A [`PathNamespaces`] in JSON.
    Where,
    /// To end. The stream ends when it has.
    Down,
}

/// Where the namespaces of a path can be found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathNamespaces {
    /// The process that routes.
    pub pid: u32,
    /// Its descriptors of the two namespaces, near first.
    pub sides: [i32; 2],
}

/// The socket of a path; gone when this is.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    closed: PipeReader,
    /// Dropping it closes the door.
    open: Mutex<Option<PipeWriter>>,
}

const SUFFIX: &str = ".sock";
const NAME_BYTES_MAX: usize = 32;
/// Bytes of the directory's path at most: the address of a socket has 107.
const DIRECTORY_BYTES_MAX: usize = 107 - 1 - NAME_BYTES_MAX - SUFFIX.len();
const REQUEST_BYTES_MAX: u64 = 64;
const ANSWER_BYTES_MAX: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

impl ControlRequest {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Stat, "stat"), (Self::Show, "show"), (Self::Where, "where"), (Self::Down, "down")];

    fn word(self) -> &'static str {
        let found = Self::ALL.iter().find(|(request, _)| *request == self);
        found.map_or("", |(_, word)| word)
    }
}

/// The first directory that is there and whose sockets' names are not too long for the system.
fn place(runtime: Option<OsString>, temporary: &Path, user: u32) -> PathBuf {
    let own = format!("degen-{user}");
    let runtime = runtime.map(PathBuf::from).map(|at| at.join("degen"));
    let fits = |path: &PathBuf| {
        path.as_os_str().len() <= DIRECTORY_BYTES_MAX && path.parent().is_some_and(Path::is_dir)
    };
    let usual = runtime.into_iter().chain([temporary.join(&own)]).find(fits);
    usual.unwrap_or_else(|| Path::new("/tmp").join(own))
}

/// The directory of this user's paths. To be asked before the process becomes another user.
///
/// # Errors
/// It cannot be made, or belongs to somebody else.
pub fn directory() -> Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let path = place(std::env::var_os("XDG_RUNTIME_DIR"), &std::env::temp_dir(), user);
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("{}", path.display()));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(&path).with_context(|| format!("{}", path.display()))?;
    ensure!(
        found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0,
        "{} is not a directory of this user alone",
        path.display()
    );
    Ok(path)
}

impl ControlSocket {
    /// Listens for requests to the path `name`.
    ///
    /// # Errors
    /// There is such a path already, or the name cannot be one.
    pub fn open(directory: &Path, name: &str) -> Result<Self> {
        let path = socket_of(directory, name)?;
        match ask(&path, ControlRequest::Where) {
            Ok(_) => bail!("a WAN named `{name}` is up already"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => bail!("a WAN named `{name}` is up and does not answer ({error})"),
        }
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).with_context(|| format!("{}", path.display()))?;
        let (closed, open) = io::pipe()?;
        Ok(Self { listener, path, closed, open: Mutex::new(Some(open)) })
    }

    /// The next request, and where the answer goes; nothing when the door is closed. A caller that
    /// says nothing sensible is sent away.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn next(&self) -> io::Result<Option<(ControlRequest, UnixStream)>> {
        loop {
            if self.await_caller()? {
                return Ok(None);
            }
            let (stream, _) = self.listener.accept()?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            let mut line = String::new();
            let read = BufReader::new(&stream).take(REQUEST_BYTES_MAX).read_line(&mut line);
            let known = ControlRequest::ALL.iter().find(|(_, word)| *word == line.trim());
            if let (Ok(_), Some((request, _))) = (read, known) {
                return Ok(Some((*request, stream)));
            }
        }
    }

    /// Waits for a caller; tells whether the door was closed instead.
    fn await_caller(&self) -> io::Result<bool> {
        let mut fds =
            [PollFd::new(&self.closed, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        while let Err(error) = poll(&mut fds, None) {
            if error != Errno::INTR {
                return Err(error.into());
            }
        }
        Ok(!fds[0].revents().is_empty())
    }

    /// Lets nobody in any more.
    pub fn close(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The names of the paths that are up.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let named = files.filter_map(|file| file.strip_suffix(SUFFIX).map(str::to_owned));
    let mut names: Vec<String> =
        named.filter(|name| call(directory, name, ControlRequest::Where).is_ok()).collect();
    names.sort();
    names
}

/// The path that is meant: `name`, or the only one that is up.
///
/// # Errors
/// There is none, or more than one.
pub fn choose(directory: &Path, name: Option<&str>) -> Result<String> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    match names(directory).as_slice() {
        [] => bail!("no WAN is up; `weft wan up` makes one"),
        [only] => Ok(only.clone()),
        several => bail!("several WANs are up; name one of {}", several.join(", ")),
    }
}

/// Asks the path `name`.
///
/// # Errors
/// It is not up.
pub fn call(directory: &Path, name: &str, request: ControlRequest) -> Result<String> {
    let path = socket_of(directory, name)?;
    match ask(&path, request) {
        Ok(answer) => Ok(answer),
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                let _ = fs::remove_file(&path);
                bail!("no WAN named `{name}` is up any more")
            }
            io::ErrorKind::NotFound => bail!("no WAN named `{name}` is up"),
            _ => bail!("the WAN `{name}` does not answer ({error})"),
        },
    }
}

fn ask(path: &Path, request: ControlRequest) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    // To end takes as long as the programs on the path take to end.
    stream.set_read_timeout((request != ControlRequest::Down).then_some(PATIENCE))?;
    writeln!(stream, "{}", request.word())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    if answer.is_empty() && request != ControlRequest::Down {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is ending"));
    }
    Ok(answer)
}

fn socket_of(directory: &Path, name: &str) -> Result<PathBuf> {
    let sound = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    ensure!(
        !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(sound),
        "`{name}` is no name for a WAN: letters, digits, `-` and `_`, {NAME_BYTES_MAX} at most"
    );
    Ok(directory.join(format!("{name}{SUFFIX}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of a test's own.
    fn with_directory(test: &str, run: impl FnOnce(&Path)) {
        let path = std::env::temp_dir().join(format!("degen-{}-{test}", std::process::id()));
        fs::create_dir(&path).unwrap();
        run(&path);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn the_directory_is_there_and_its_sockets_have_names() {
        let long =
            std::env::temp_dir().join(format!("degen-{}-{}", std::process::id(), "x".repeat(90)));
        fs::create_dir(&long).unwrap();
        let (here, nowhere) = (std::env::temp_dir(), Path::new("/nonexistent"));
        let of = |runtime: &Path, temporary: &Path| place(Some(runtime.into()), temporary, 5);
        assert_eq!(of(&here, nowhere), here.join("degen"));
        assert_eq!(of(nowhere, &here), here.join("degen-5"));
        assert_eq!(of(&long, &long), Path::new("/tmp/degen-5"));
        assert_eq!(of(nowhere, nowhere), Path::new("/tmp/degen-5"));
        fs::remove_dir(&long).unwrap();
    }

    #[test]
    fn requests_reach_the_path_by_name() {
        with_directory("named", |directory| {
            let door = ControlSocket::open(directory, "a").unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for expected in
                        [ControlRequest::Where, ControlRequest::Where, ControlRequest::Stat]
                    {
                        let (request, mut stream) = door.next().unwrap().unwrap();
                        assert_eq!(request, expected);
                        stream.write_all(b"yes").unwrap();
                    }
                });
                // Somebody who talks nonsense does not disturb.
                let mut stranger = UnixStream::connect(directory.join("a.sock")).unwrap();
                stranger.write_all(b"\xff\xff\n").unwrap();
                assert_eq!(choose(directory, None).unwrap(), "a");
                assert!(
                    ControlSocket::open(directory, "a")
                        .unwrap_err()
                        .to_string()
                        .contains("already")
                );
                assert_eq!(call(directory, "a", ControlRequest::Stat).unwrap(), "yes");
            });
            door.close();
            assert!(door.next().unwrap().is_none());
            drop(door);
            assert!(names(directory).is_empty());
        });
    }

    #[test]
    fn what_a_killed_path_left_is_swept_away() {
        with_directory("stale", |directory| {
            let path = directory.join("dead.sock");
            drop(UnixListener::bind(&path).unwrap());
            assert!(choose(directory, None).unwrap_err().to_string().contains("no WAN"));
            assert!(!path.exists());
        });
    }

    #[test]
    fn names_stay_in_the_directory() {
        for name in ["", "../a", "a/b", ".", "a b", &"a".repeat(33)] {
            assert!(socket_of(Path::new("/tmp"), name).is_err(), "{name}");
        }
    }
}
