//! What a test has to itself: its turn on the machine, a directory, and the programs it named.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::install;
use crate::program::Program;

/// Over Shuttle: what rdma-cm connects by, as `WEFT_TRANSPORT` has it.
pub const SHUTTLE: &str = "shuttle";
/// Over iWARP.
pub const IWARP: &str = "iwarp";

/// Programs that poll slow each other down, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// A test's place to work, removed with everything in it.
pub struct Lab {
    directory: PathBuf,
    transport: Option<&'static str>,
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
        Some(Self { directory, transport: None, _turn: turn })
    }

    /// Calls `test` over each transport of rdma-cm, with a lab that has `programs`.
    pub fn over_each(programs: &[&str], test: impl Fn(&Self)) {
        for transport in [SHUTTLE, IWARP] {
            let Some(lab) = Self::with(programs) else { return };
            test(&lab.over(transport));
        }
    }

    /// The same where programs connect by `transport`.
    pub fn over(mut self, transport: &'static str) -> Self {
        self.transport = Some(transport);
        self
    }

    /// What programs connect by, if it was said.
    pub fn transport(&self) -> Option<&'static str> {
        self.transport
    }

    /// The device that programs find by it: `weft0` if nothing was said.
    pub fn device(&self) -> &'static str {
        if self.transport == Some(IWARP) { "weft_iw0" } else { "weft0" }
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
        self.with_transport(Program::new(name, &self.directory))
    }

    fn with_transport(&self, program: Program) -> Program {
        match self.transport {
            Some(transport) => program.env("WEFT_TRANSPORT", transport),
            None => program,
        }
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

    /// Compiles the program `c/NAME.c` with `compiler`, or `c/NAME` if that has an extension.
    ///
    /// # Panics
    /// When it does not compile.
    pub fn compile(&self, compiler: &Path, name: &str, libraries: &[&str]) -> Program {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
        let source = match Path::new(name).extension() {
            Some(_) => sources.join(name),
            None => sources.join(format!("{name}.c")),
        };
        let program = self.path(name).with_extension("");
        let mut cc = Command::new(compiler);
        cc.args(["-O1", "-g", "-Wall", "-Werror", "-pthread", "-o"]).arg(&program).arg(source);
        let done = cc.args(libraries).output().expect("the compiler starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let program = program.to_str().expect("a UTF-8 path");
        self.with_transport(Program::new(program, &self.directory))
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
