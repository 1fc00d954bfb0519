//! A temporary directory, and C programs that are built in it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::text;

/// A temporary directory, removed with everything in it when dropped.
#[derive(Debug)]
pub struct Dir {
    path: PathBuf,
    sources: PathBuf,
}

impl Dir {
    /// A new empty directory; `name` tells those of one process apart.
    ///
    /// # Panics
    /// When the temporary directory of this machine is not writable.
    pub fn new(name: &str) -> Self {
        Self::with_sources(name, Path::new(""))
    }

    /// The same, where [`Dir::build`] finds sources in `tests/c` of `package`, the value of
    /// `CARGO_MANIFEST_DIR` when the test was compiled.
    ///
    /// # Panics
    /// As [`Dir::new`].
    pub fn of(package: &str, name: &str) -> Self {
        Self::with_sources(name, &Path::new(package).join("tests/c"))
    }

    fn with_sources(name: &str, sources: &Path) -> Self {
        let path = std::env::temp_dir().join(format!("weft-{name}-{}", std::process::id()));
        // What a process of the same number has left behind.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary directory");
        Self { path, sources: sources.to_path_buf() }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.path
    }

    /// The path of `name` in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The same as text, for command lines.
    ///
    /// # Panics
    /// When the temporary directory has a name that is not UTF-8.
    pub fn text_path(&self, name: &str) -> String {
        self.path(name).into_os_string().into_string().expect("a UTF-8 path")
    }

    /// Writes a file.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("the directory is writable");
        path
    }

    /// Writes a file that can be executed.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn script(&self, name: &str, content: &str) -> String {
        let path = self.write(name, content);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file of ours");
        self.text_path(name)
    }

    /// Compiles the C file `source` to `name`, with further arguments for the compiler.
    ///
    /// # Panics
    /// When it does not compile.
    pub fn build(&self, source: &str, name: &str, flags: &[&str]) -> PathBuf {
        let program = self.path(name);
        let mut cc = Command::new("cc");
        cc.args(["-g", "-Wall", "-Werror", "-pthread"]);
        cc.arg("-o").arg(&program).arg(self.sources.join(source)).args(flags);
        run(&mut cc);
        program
    }

    /// Compiles a C program that is given as text.
    ///
    /// # Panics
    /// When it does not compile.
    pub fn compile(&self, name: &str, source: &str, flags: &[&str]) -> String {
        let file = self.write(&format!("{name}.c"), source);
        let program = self.text_path(name);
        run(Command::new("cc").args(flags).args(["-o", &program]).arg(file));
        program
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // What cannot be removed does not make a test fail.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Runs a compiler, which must succeed.
pub(crate) fn run(compiler: &mut Command) {
    let done = compiler.output().expect("a C compiler is installed");
    assert!(done.status.success(), "{compiler:?}: {}", text(&done.stderr));
}
