//! What a test has to itself: its turn on the machine, a directory, and the programs it named.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::install;
use crate::program::Program;

/// Programs that poll slow each other down, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// A test's place to work, removed with everything in it.
pub struct Lab {
    directory: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Lab {
    /// A lab with `programs`; nothing, and a line on stderr, when one is not installed.
    pub fn with(programs: &[&str]) -> Option<Self> {
        if let Some(missing) = programs.iter().find(|program| install::find(program).is_none()) {
            skip(&format!("{missing} is not installed"));
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("weft-{}-{}", std::process::id(), test_name().replace("::", "-"));
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("the temporary directory is writable");
        Some(Self { directory, _turn: turn })
    }

    /// The same for a test that only root can make.
    pub fn of_root(programs: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("only root may do this");
            return None;
        }
        Self::with(programs)
    }

    /// Says that the calling test does not run, and why.
    pub fn skip(&self, why: &str) {
        skip(why);
    }

    /// The program `name`, to be run by `weft run` in this lab's directory.
    pub fn program(&self, name: &str) -> Program {
        Program::new(name, &self.directory)
    }

    /// The path of `name` in this lab's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("the lab's directory is writable");
        path
    }

    /// Compiles the program `c/NAME.c` with `compiler`.
    ///
    /// # Panics
    /// When it does not compile.
    pub fn compile(&self, compiler: &Path, name: &str, libraries: &[&str]) -> Program {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(format!("{name}.c"));
        let program = self.path(name);
        let mut cc = Command::new(compiler);
        cc.args(["-O1", "-g", "-Wall", "-Werror", "-pthread", "-o"]).arg(&program).arg(source);
        let done = cc.args(libraries).output().expect("the compiler starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Program::new(program.to_str().expect("a UTF-8 path"), &self.directory)
    }

    /// Compiles the verbs program `c/NAME.c`.
    pub fn verbs_program(&self, name: &str) -> Program {
        self.compile(Path::new("cc"), name, &["-lrdmacm", "-libverbs"])
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // What cannot be removed does not make a test fail.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Says that the calling test does not run, and why. Not by `eprintln`, which the test harness
/// keeps to itself when a test passes.
pub(crate) fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {why}", test_name());
}

fn test_name() -> String {
    thread::current().name().unwrap_or("main").to_owned()
}
