//! Lab: the programs' paths, the address and the CPUs of measurements.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::pair::{self, Pair, ServerEnds};
use crate::ports;
use crate::probes::pattern;
use crate::process::{Finished, Spec};

/// Time limit of one measurement.
const LIMIT: Duration = Duration::from_secs(90);

/// A place to measure in. Its directory goes away with it.
#[derive(Debug)]
pub struct BenchLab {
    /// The `weft` command of this build, which is this program.
    pub weft: PathBuf,
    /// The address that servers are reached at.
    pub address: String,
    /// How long one measurement is to take.
    pub seconds: f64,
    /// The servers' and the clients' CPU.
    cpus: [Option<usize>; 2],
    dir: PathBuf,
}

impl BenchLab {
    /// A lab on this machine, in which a measurement takes about `seconds`.
    ///
    /// # Errors
    /// The build is not complete, or there is no place for files.
    pub fn new(address: &str, seconds: f64) -> Result<Self> {
        let weft = std::env::current_exe().context("finding this program")?;
        let libraries = ["libweft.so", "../lib/weft/libweft.so"].map(|l| weft.with_file_name(l));
        let found = libraries.iter().any(|library| library.is_file());
        ensure!(found, "{} is missing; build the workspace", libraries[0].display());
        let dir = std::env::temp_dir().join(format!("weft-bench-{}", std::process::id()));
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let several = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        let cpus = if several { [Some(1), Some(0)] } else { [None, None] };
        Ok(Self { weft, address: address.to_owned(), seconds, cpus, dir })
    }

    /// `weft bench`, about to be called with one of its subcommands.
    pub fn own(&self) -> Spec {
        Spec::at(&self.weft).args("bench")
    }

    /// A file of the lab's own.
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The directory of the lab.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Builds a C program of this crate at its first use.
    ///
    /// # Errors
    /// There is no compiler, or a library's headers are missing.
    pub fn build(&self, name: &str, source: &str, libraries: &[&str]) -> Result<PathBuf> {
        self.build_with("gcc", name, source, libraries)
    }

    /// The same with a compiler that takes the options of gcc.
    ///
    /// # Errors
    /// There is no such compiler, or a library's headers are missing.
    pub fn build_with(
        &self,
        compiler: &str,
        name: &str,
        source: &str,
        libraries: &[&str],
    ) -> Result<PathBuf> {
        let program = self.path(name);
        if program.is_file() {
            return Ok(program);
        }
        for (header, text) in pattern::HEADERS {
            fs::write(self.path(header), text).context("writing a header")?;
        }
        let file = self.path(&format!("{name}.c"));
        fs::write(&file, source).with_context(|| format!("cannot write {}", file.display()))?;
        let mut gcc = Command::new(compiler);
        gcc.args(["-O2", "-o"]).args([&program, &file]).args(libraries);
        let output = gcc.output().with_context(|| format!("running {compiler}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{compiler}: {}", complaint(&said));
        Ok(program)
    }

    /// Runs a pair, the server on the second CPU and the client on the first. The two are
    /// told the port that they meet at.
    pub fn pair(&self, ends: ServerEnds, specs: impl FnOnce(u16) -> (Spec, Spec)) -> Result<Pair> {
        let port = ports::free()?;
        let (server, client) = specs(port);
        let [server, client] = self.placed([server, client]);
        pair::run(&server, &client, port, ends, LIMIT)
    }

    /// A server and a client, the first on the second CPU and the other on the first.
    pub fn placed(&self, [server, client]: [Spec; 2]) -> [Spec; 2] {
        [server.on(self.cpus[0]), client.on(self.cpus[1])]
    }

    /// Runs one program by itself, wherever the kernel likes.
    pub fn alone(&self, spec: &Spec) -> Result<Finished> {
        spec.start()?.wait(Instant::now() + LIMIT)
    }
}

impl Drop for BenchLab {
    fn drop(&mut self) {
        // A directory that cannot be removed is left.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Why a compiler gave up: of a missing header without the place that includes it, so that it is
/// the same for all programs that need it.
fn complaint(said: &str) -> &str {
    let fatal = said.lines().find_map(|line| line.split_once(" fatal error: "));
    fatal.map_or(said.trim_end(), |(_, what)| what)
}

/// Whether a program of this name can be run.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| is_executable(&dir.join(program)))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_header_is_one_reason_for_all_programs() {
        let said = |name| {
            format!(
                "/tmp/{name}:12:10: fatal error: a/b.h: No such file\ncompilation terminated.\n"
            )
        };
        for name in ["load.c", "calls.c"] {
            assert_eq!(complaint(&said(name)), "a/b.h: No such file");
        }
        let other = "ld: cannot find -lfabric\ncollect2: error: ld returned 1\n";
        assert_eq!(complaint(other), other.trim_end());
    }

    #[test]
    fn programs_are_looked_for_along_path() {
        assert!(is_installed("sh"));
        assert!(!is_installed("no-such-program"));
    }
}
