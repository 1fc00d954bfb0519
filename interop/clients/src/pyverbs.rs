//! rdma-core's own tests in Python, as `scripts/pyverbs.sh` puts them into `target/pyverbs`.

use std::path::{Path, PathBuf};

use weft_testkit::{Ended, Lab, Program, skip};

/// Debian's, for which it builds its modules; another python may come first along PATH.
const PYTHON: &str = "/usr/bin/python3";

/// Tests of rdma-cm that need not pass on `weft_iw0`: over UDP, with queue pairs that the program
/// connects, and one that reads the peer's memory when its own Write is complete, which over TCP
/// may be too early.
const EXCUSED: [&str; 3] = [
    "test_rdmacm_async_traffic_external_qp",
    "test_rdmacm_async_udp_traffic",
    "test_rdmacm_async_write",
];

/// The tests of a release.
#[derive(Clone, Copy, Debug)]
pub struct PyverbsRelease {
    /// Which.
    pub version: &'static str,
    /// Whether `scripts/pyverbs.sh` built it, or it is Debian's.
    built: bool,
}

/// That of Debian.
pub const DEBIAN: PyverbsRelease = PyverbsRelease { version: "44.0", built: false };
/// The newest in a registry.
pub const NEWEST: PyverbsRelease = PyverbsRelease { version: "59.0", built: true };

/// What became of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// How many passed.
    pub passed: u32,
    /// How many skipped themselves.
    pub skipped: u32,
    /// How many failed that must not.
    pub failed: u32,
}

impl Score {
    /// Reads the last lines of what python's unittest writes.
    pub fn read(text: &str) -> Option<Self> {
        let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
        let ran: u32 = text.lines().find_map(|line| number(line.strip_prefix("Ran ")?))?;
        let ends = |line: &&str| line.starts_with("OK") || line.starts_with("FAILED");
        let verdict = text.lines().rev().find(ends)?;
        let count = |name: &str| {
            let at = verdict.find(name)? + name.len();
            number(&verdict[at..])
        };
        let skipped = count("skipped=").unwrap_or(0);
        let failed = count("failures=").unwrap_or(0) + count("errors=").unwrap_or(0);
        let heading = |line: &&str| line.starts_with("ERROR: ") || line.starts_with("FAIL: ");
        let excused = |line: &&str| EXCUSED.iter().any(|name| line.contains(name));
        let excused = text.lines().filter(heading).filter(excused).count() as u32;
        let failed_for_good = failed.saturating_sub(excused);
        Some(Self { passed: ran - skipped - failed, skipped, failed: failed_for_good })
    }
}

impl PyverbsRelease {
    /// Runs all tests on the lab's device, with its operations counted; nothing, and a line on
    /// stderr, where they are not installed.
    ///
    /// # Panics
    /// When the tests do not say how they went.
    pub fn run(&self, lab: &Lab) -> Option<(Score, Ended)> {
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/pyverbs");
        let built = home.join(self.version);
        let tests = match self.built {
            true => built.join("rdma-core/tests"),
            false => home.join("tests"),
        };
        let python = self.python(lab, built);
        let here = tests.join("run_tests.py").is_file();
        let module = python.clone().args("-c").arg("import pyverbs.device").on_its_own().run();
        if !here || !module.status.success() {
            skip("no pyverbs: scripts/deps.sh, then scripts/pyverbs.sh");
            return None;
        }
        let run = python.option("--stats").arg(tests.join("run_tests.py"));
        let ended = run.args("-v --port 1 --gid 1 --dev").arg(lab.device()).run();
        let score = Score::read(&ended.stderr).or_else(|| Score::read(&ended.stdout));
        let score = score.unwrap_or_else(|| panic!("no score in what the tests wrote:\n{ended}"));
        Some((score, ended))
    }

    /// Python as its modules need it.
    fn python(&self, lab: &Lab, built: PathBuf) -> Program {
        let python = lab.program(PYTHON).arg("-B");
        if !self.built {
            return python;
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", built.join("bin").display());
        let python = python.env("PATH", path).env("LD_LIBRARY_PATH", built.join("build/lib"));
        python.env("PYTHONPATH", built.join("build/python"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_from_what_unittest_writes() {
        let text =
            "test ... ok\nRan 273 tests in 25.335s\n\nFAILED (failures=1, errors=2, skipped=144)";
        let score = Score { passed: 126, skipped: 144, failed: 3 };
        assert_eq!(Score::read(text), Some(score));
        let score = Score { passed: 9, skipped: 0, failed: 0 };
        assert_eq!(Score::read("Ran 9 tests in 1s\n\nOK\n"), Some(score));
        assert_eq!(Score::read("Killed"), None);
    }
}
