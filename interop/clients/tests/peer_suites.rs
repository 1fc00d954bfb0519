//! rdma-core's own python tests, of two releases, on both devices.
//!
//! What a device does not offer is skipped by the tests themselves, because it says so;
//! docs/pyverbs.md lists what and why. `make peer-suites` prints the score.

use std::path::Path;

use weft_interop::{Ended, IWARP, Lab, Program, SHUTTLE};

/// A release, and the line that each device holds: so many tests pass, and none fails.
struct Suite {
    name: &'static str,
    /// Below `target/pyverbs`: what `scripts/pyverbs.sh` built, if it is not Debian's.
    built: Option<&'static str>,
    adapter_min: u32,
    rnic_min: u32,
}

const DEBIAN: Suite =
    Suite { name: "rdma-core of Debian", built: None, adapter_min: 143, rnic_min: 97 };
const NEWEST: Suite =
    Suite { name: "rdma-core 59", built: Some("59.0"), adapter_min: 154, rnic_min: 107 };

/// Tests of rdma-cm that need not pass on `weft_iw0`: over UDP, with queue pairs that the program
/// connects, and one that reads the peer's memory when its own Write is complete, which over TCP
/// may be too early.
const EXCUSED: [&str; 3] = [
    "test_rdmacm_async_traffic_external_qp",
    "test_rdmacm_async_udp_traffic",
    "test_rdmacm_async_write",
];

/// Debian's, for which it builds its modules; another python may come first along PATH.
const PYTHON: &str = "/usr/bin/python3";

/// What became of the tests.
#[derive(Debug, PartialEq, Eq)]
struct Score {
    passed: u32,
    skipped: u32,
    failed: u32,
}

impl Score {
    /// Reads the last lines of what python's unittest writes.
    fn read(text: &str) -> Option<Self> {
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

impl Suite {
    /// Python as its modules need it.
    fn python(&self, lab: &Lab, home: &Path) -> Program {
        let python = lab.program(PYTHON).arg("-B");
        let Some(built) = self.built.map(|built| home.join(built)) else { return python };
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", built.join("bin").display());
        let libraries = built.join("build/lib");
        let python = python.env("PATH", path).env("LD_LIBRARY_PATH", libraries);
        python.env("PYTHONPATH", built.join("build/python"))
    }

    /// Runs all tests on `device`; at least `least` pass.
    fn holds_the_line(&self, device: &str, transport: &'static str, least: u32) {
        let Some(lab) = Lab::with(&[PYTHON]).map(|lab| lab.over(transport)) else { return };
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/pyverbs");
        let tests = home.join(self.built.unwrap_or_default()).join(match self.built {
            Some(_) => "rdma-core/tests",
            None => "tests",
        });
        let python = self.python(&lab, &home);
        let here = tests.join("run_tests.py").is_file();
        let module = python.clone().args("-c").arg("import pyverbs.device").on_its_own().run();
        if !here || !module.status.success() {
            lab.skip("no pyverbs: scripts/deps.sh, then scripts/pyverbs.sh");
            return;
        }
        let run = python.arg(tests.join("run_tests.py")).args("-v --port 1 --gid 1 --dev");
        let ended = run.arg(device).run();
        let score = score(&ended);
        let (Score { passed, skipped, failed }, name) = (&score, self.name);
        println!(
            "{name}, {device}: {passed} pass (at least {least}), {skipped} skip, {failed} fail"
        );
        assert!(*failed == 0 && *passed >= least, "{name}, {device}: {score:?}\n{ended}");
    }
}

fn score(ended: &Ended) -> Score {
    let found = Score::read(&ended.stderr).or_else(|| Score::read(&ended.stdout));
    found.unwrap_or_else(|| panic!("no score in what the tests wrote:\n{ended}"))
}

#[test]
fn the_adapter_passes() {
    DEBIAN.holds_the_line("weft0", SHUTTLE, DEBIAN.adapter_min);
}

#[test]
fn the_rnic_passes() {
    DEBIAN.holds_the_line("weft_iw0", IWARP, DEBIAN.rnic_min);
}

#[test]
fn the_adapter_passes_newer_tests() {
    NEWEST.holds_the_line("weft0", SHUTTLE, NEWEST.adapter_min);
}

#[test]
fn the_rnic_passes_newer_tests() {
    NEWEST.holds_the_line("weft_iw0", IWARP, NEWEST.rnic_min);
}

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
