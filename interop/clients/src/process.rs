//! A program under `weft run`, in a process group of its own.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::weft;

/// How often to look whether something has happened that nothing announces.
const LOOK: Duration = Duration::from_millis(10);
/// How long a server may take to listen.
const LISTEN: Duration = Duration::from_secs(20);

/// A running program; killed with its children when dropped.
pub struct Running {
    child: Child,
    name: String,
    stdout: File,
    stderr: File,
}

/// A program that has ended.
pub struct Ended {
    name: String,
    /// How.
    pub status: ExitStatus,
    /// What it wrote.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

/// Starts `command` under `weft run`.
///
/// # Panics
/// When it cannot be started.
pub fn start(command: &[&str]) -> Running {
    start_with(command, &[])
}

fn start_with(command: &[&str], variables: &[(&str, &str)]) -> Running {
    let (out, err) = (capture(), capture());
    let mut run = Command::new(weft());
    run.arg("run").arg("--").args(command).envs(variables.iter().copied());
    run.stdin(Stdio::null());
    run.stdout(out.try_clone().expect("a file can be shared"));
    run.stderr(err.try_clone().expect("a file can be shared"));
    let child = run.process_group(0).spawn().expect("weft starts");
    Running { child, name: command.join(" "), stdout: out, stderr: err }
}

/// A file without a name.
fn capture() -> File {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("weft-interop-{}-{count}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    let file = file.expect("the temporary directory is writable");
    std::fs::remove_file(&path).expect("what was just made can be removed");
    file
}

impl Running {
    /// Starts `command` under `weft run` with environment variables of its own.
    pub fn with(command: &[&str], variables: &[(&str, &str)]) -> Self {
        start_with(command, variables)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until somebody listens on `port`.
    ///
    /// # Panics
    /// When nobody does in time, or the program ends.
    pub fn wait_listening(&self, port: u16) {
        self.wait_until(&format!("listening on port {port}"), || listens(port));
    }

    /// Waits until `happened`.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn wait_until(&self, what: &str, mut happened: impl FnMut() -> bool) {
        let deadline = Instant::now() + LISTEN;
        while !happened() {
            assert!(Instant::now() < deadline, "{}: not {what} in time", self.name);
            std::thread::sleep(LOOK);
        }
    }

    /// What it has written so far.
    pub fn output(&mut self) -> String {
        read(&mut self.stdout)
    }

    /// Ends it like a power cut.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it has not ended after `seconds`.
    pub fn wait(mut self, seconds: u64) -> Ended {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                let (stdout, stderr) = (read(&mut self.stdout), read(&mut self.stderr));
                return Ended { name: self.name.clone(), status, stdout, stderr };
            }
            if Instant::now() >= deadline {
                let (out, err) = (read(&mut self.stdout), read(&mut self.stderr));
                panic!("{} has not ended after {seconds} s\n{out}\n{err}", self.name);
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let mut kill = Command::new("kill");
        kill.args(["-KILL", "--", &group]).stderr(Stdio::null());
        let _ = kill.status();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Expects success.
    ///
    /// # Panics
    /// With everything it wrote, when it failed.
    pub fn expect_success(&self) -> &Self {
        let (status, out, err) = (self.status, &self.stdout, &self.stderr);
        assert!(status.success(), "{}: {status}\n{out}\n{err}", self.name);
        self
    }

    /// Whether a signal ended it that is not the test's own.
    pub fn crashed(&self) -> bool {
        self.status.signal().is_some_and(|signal| signal != 9)
    }
}

fn read(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = file.seek(SeekFrom::Start(0));
    let _ = file.read_to_end(&mut bytes);
    let _ = file.seek(SeekFrom::End(0));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether a socket listens on `port`: state 0A in the kernel's tables.
fn listens(port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        text.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next().is_some_and(|local| local.ends_with(&suffix));
            local && fields.nth(1) == Some("0A")
        })
    })
}
