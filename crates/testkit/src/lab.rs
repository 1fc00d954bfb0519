//! What a test has to itself: its turn on the machine, a directory, and the programs it named.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::dir::{self, Dir};
use crate::install;
use crate::machine;
use crate::program::Program;

/// Over Shuttle: what rdma-cm connects by, as `WEFT_TRANSPORT` has it.
pub const SHUTTLE: &str = "shuttle";
/// Over iWARP.
pub const IWARP: &str = "iwarp";

/// Programs that poll slow each other down, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// A test's place to work, removed with everything in it.
pub struct Lab {
    dir: Dir,
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
        let dir = Dir::new(&test_name().replace("::", "-"));
        Some(Self { dir, transport: None, _turn: turn })
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
        if !machine::is_root() {
            skip("only root may do this");
            return None;
        }
        Self::with(programs)
    }

    /// The program `name`, to be run by `weft run` in this lab's directory.
    pub fn program(&self, name: &str) -> Program {
        self.with_transport(Program::new(name, self.dir.root()))
    }

    fn with_transport(&self, program: Program) -> Program {
        match self.transport {
            Some(transport) => program.env("WEFT_TRANSPORT", transport),
            None => program,
        }
    }

    /// The path of `name` in this lab's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        self.dir.write(name, content)
    }

    /// Compiles the program of the file `source` with `compiler`; it has the file's name.
    ///
    /// # Panics
    /// When it does not compile.
    pub fn compile(&self, compiler: &Path, source: &Path, libraries: &[&str]) -> Program {
        let program = self.dir.root().join(source.file_stem().expect("a file has a name"));
        let mut cc = Command::new(compiler);
        cc.args(["-O1", "-g", "-Wall", "-Werror", "-pthread", "-o"]).arg(&program).arg(source);
        dir::run(cc.args(libraries));
        let program = program.to_str().expect("a UTF-8 path");
        self.with_transport(Program::new(program, self.dir.root()))
    }

    /// Compiles a program that uses rdma-cm and verbs.
    ///
    /// # Panics
    /// When it does not compile.
    pub fn verbs_program(&self, source: &Path) -> Program {
        self.compile(Path::new("cc"), source, &["-lrdmacm", "-libverbs"])
    }
}

/// Says that the calling test does not run, and why. Not by `eprintln`, which the test harness
/// keeps to itself when a test passes.
pub fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {why}", test_name());
}

fn test_name() -> String {
    thread::current().name().unwrap_or("main").to_owned()
}
