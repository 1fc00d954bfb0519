//! What to run, and how.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::command::without_settings;
use crate::install;
use crate::running::{Ended, Running};

/// A program with its arguments and its surroundings.
#[derive(Clone, Debug)]
pub struct Program {
    command: Vec<OsString>,
    before: Vec<OsString>,
    options: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    directory: PathBuf,
    input: Option<PathBuf>,
    output: Option<PathBuf>,
    over_weft: bool,
    sockets: bool,
}

impl Program {
    pub(crate) fn new(name: &str, directory: &Path) -> Self {
        Self {
            command: vec![name.into()],
            before: Vec::new(),
            options: Vec::new(),
            environment: Vec::new(),
            directory: directory.to_path_buf(),
            input: None,
            output: None,
            over_weft: true,
            sockets: false,
        }
    }

    /// The program at `path`, to be run as it is, without `weft run`, in the temporary directory.
    pub fn at(path: &Path) -> Self {
        let program = Self::new("", &std::env::temp_dir()).on_its_own();
        Self { command: vec![path.into()], ..program }
    }

    /// The program itself.
    pub fn path(&self) -> &OsStr {
        &self.command[0]
    }

    /// More arguments, separated by spaces.
    pub fn args(mut self, line: &str) -> Self {
        self.command.extend(line.split_whitespace().map(OsString::from));
        self
    }

    /// One more argument, as it is.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.push(argument.as_ref().to_owned());
        self
    }

    /// More arguments, as they are.
    pub fn words<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.command.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// The directory that it begins in.
    pub fn within(mut self, directory: &Path) -> Self {
        self.directory = directory.to_path_buf();
        self
    }

    /// The file that it reads as stdin; otherwise it has none.
    pub fn input(mut self, file: &Path) -> Self {
        self.input = Some(file.to_path_buf());
        self
    }

    /// A new file for what it writes to stdout, which stays.
    pub fn output(mut self, file: &Path) -> Self {
        self.output = Some(file.to_path_buf());
        self
    }

    /// A variable of its environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// One more option of `weft run`.
    pub fn option(mut self, option: &str) -> Self {
        self.options.push(option.into());
        self
    }

    /// The same as it is, without `weft run`.
    pub fn on_its_own(mut self) -> Self {
        self.over_weft = false;
        self
    }

    /// The same with its sockets over SDP where they can be, saying so on stderr. The crate that
    /// tests this way has weft-sockets as a dependency for its tests, so that cargo builds it.
    pub fn with_sockets(mut self) -> Self {
        self.sockets = true;
        // A machine that is busy with other tests answers late, and loopback is near.
        self.env("WEFT_SOCKETS_PATIENCE_MS", "5000").env("WEFT_SOCKETS_RULES", "use sdp * * *:*")
    }

    /// The same, started by another program: `line` comes before everything else.
    pub fn started_by(mut self, line: &str) -> Self {
        self.before = line.split_whitespace().map(OsString::from).collect();
        self
    }

    /// Starts it, the leader of a group of its own.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(&self) -> Running {
        let line = self.line();
        let stderr = self.nameless_file();
        let stdout = self.output.as_deref().map_or_else(|| self.nameless_file(), new_file);
        let input = self.input.as_deref().unwrap_or(Path::new("/dev/null"));
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).current_dir(&self.directory).process_group(0);
        without_settings(&mut command);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(File::open(input).expect("what it reads is there"));
        command.stdout(stdout.try_clone().expect("a file can be shared"));
        command.stderr(stderr.try_clone().expect("a file can be shared"));
        let child = command.spawn().unwrap_or_else(|e| panic!("starting {:?}: {e}", line[0]));
        Running::new(self.name(), child, stdout, stderr)
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// When that does not come in time.
    pub fn run(&self) -> Ended {
        self.start().wait()
    }

    fn line(&self) -> Vec<OsString> {
        let mut line = Vec::new();
        if install::find("setpriv").is_some() {
            // If the test itself is killed, nobody is left to kill what it started.
            line.extend(["setpriv", "--pdeathsig", "KILL"].map(OsString::from));
        }
        line.extend(self.before.iter().cloned());
        if self.over_weft {
            line.extend([install::weft().into(), "run".into(), "--lib".into()]);
            if self.sockets {
                line.push(install::sockets_library().into());
                line.extend(["--sockets", "--verbose"].map(OsString::from));
            } else {
                line.push(install::library().into());
            }
            line.extend(self.options.iter().cloned());
            line.push("--".into());
        }
        line.extend(self.command.iter().cloned());
        line
    }

    fn name(&self) -> String {
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    /// A file for what it writes.
    fn nameless_file(&self) -> File {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join(format!("output-{}-{number}", std::process::id()));
        let file = new_file(&path);
        std::fs::remove_file(&path).expect("what was just made can be removed");
        file
    }
}

fn new_file(path: &Path) -> File {
    let file = File::options().read(true).write(true).create_new(true).open(path);
    file.expect("the program's directory is writable")
}
