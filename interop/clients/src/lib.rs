//! Common parts of the tests of one family of applications, over [`weft_testkit`]: MPI's launchers
//! and ranks, and rdma-core's tests in Python.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

pub mod mpi;
pub mod pyverbs;

/// The source `c/NAME.c` of a test's program, or `c/NAME` if that has an extension.
pub fn source(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(name);
    if path.extension().is_some() { path } else { path.with_extension("c") }
}
