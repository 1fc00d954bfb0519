//! rdma-core's own tests of rdma-cm, in Python, over either device.

use weft_testkit::{IWARP, Lab, SHUTTLE, own_address};

/// Where Debian puts them; some files are compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";
/// The Python that has pyverbs.
const PYTHON: &str = "/usr/bin/python3";

/// Runs the tests of rdma-cm; gives what they said, and nothing if they are not installed.
fn tests_of_rdmacm(transport: &'static str, device: &str) -> Option<String> {
    let lab = Lab::with(&["sh", "gunzip", PYTHON])?.over(transport);
    own_address()?;
    if !std::path::Path::new(TESTS).join("base.py.gz").exists() {
        weft_testkit::skip("the tests of rdma-core are not installed");
        return None;
    }
    let copy = format!("cp -r {TESTS} . && gunzip -f tests/*.gz");
    lab.program("sh").on_its_own().arg("-c").arg(copy).run().success();
    let line = format!("-B tests/run_tests.py -v --dev {device} --port 1 --gid 1");
    let run = lab.program(PYTHON).args(&line).arg("tests.test_rdmacm").run();
    if run.stderr.contains("No module named 'pyverbs'") {
        weft_testkit::skip("pyverbs is not installed");
        return None;
    }
    Some(run.stderr)
}

/// Whether the test `name` passed. What others write to stderr meanwhile, as of a peer that is held
/// up, stands between its name and its result.
fn passed(said: &str, name: &str) -> bool {
    let mut lines = said.lines().skip_while(|line| !line.starts_with(&format!("{name} ")));
    let Some(first) = lines.next() else { return false };
    let mut rest = lines.take_while(|line| !line.starts_with("test_"));
    first.ends_with("... ok") || rest.any(|line| line == "ok")
}

const CONNECTED: [&str; 5] = [
    "test_rdmacm_async_read",
    "test_rdmacm_async_write",
    "test_rdmacm_async_reject_traffic",
    "test_rdmacm_async_traffic",
    "test_rdmacm_sync_traffic",
];

#[test]
fn the_adapter_passes_the_tests_of_rdma_cm() {
    let Some(said) = tests_of_rdmacm(SHUTTLE, "weft0") else { return };
    let more = ["test_rdmacm_async_traffic_external_qp", "test_rdmacm_async_udp_traffic"];
    for name in CONNECTED.iter().chain(&more) {
        assert!(passed(&said, name), "{name}: {said}");
    }
}

/// The test of Writes looks at the target's memory once the initiator's Write is complete. RFC 5040
/// does not promise the bytes to be there: over TCP they may be on their way. By shared memory a
/// Write is complete when it is placed.
#[test]
fn the_rnic_passes_those_that_are_for_rnics() {
    let Some(said) = tests_of_rdmacm(IWARP, "weft_iw0") else { return };
    for name in CONNECTED {
        assert!(passed(&said, name), "{name}: {said}");
    }
}
