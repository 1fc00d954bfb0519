//! What the tests of the command share: the command itself, and a directory to build in.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The `weft` of this build, with none of Weft's variables, no preload of the caller's, and not in
/// CI.
pub fn weft() -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_weft"));
    let library = program.with_file_name("libweft.so");
    assert!(library.is_file(), "{} is missing: run `make build` first", library.display());
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WEFT") {
            command.env_remove(name);
        }
    }
    // What runs in CI says more.
    command.env_remove("LD_PRELOAD").env_remove("CI");
    command
}

/// Runs `weft run` with these arguments.
pub fn run(args: &[&str]) -> Output {
    weft().arg("run").args(args).output().expect("weft starts")
}

/// The text of a stream.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory that goes away with the test.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one; `test` tells those of one process apart.
    pub fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("weft-cli-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a scratch directory");
        Self(dir)
    }

    /// The path of a file in it, as text.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).into_os_string().into_string().expect("a UTF-8 path")
    }

    /// Writes a file and makes it executable.
    pub fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a script");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("an executable script");
        path
    }

    /// Compiles a C program.
    pub fn compile(&self, name: &str, source: &str, flags: &[&str]) -> String {
        let (program, file) = (self.path(name), self.path(&format!("{name}.c")));
        std::fs::write(&file, source).expect("a source file");
        let gcc = Command::new("gcc").args(flags).args(["-o", &program, &file]).output();
        let gcc = gcc.expect("gcc starts");
        assert!(gcc.status.success(), "{}", text(&gcc.stderr));
        program
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed does not make a test fail.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
