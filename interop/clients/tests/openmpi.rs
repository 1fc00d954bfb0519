//! Open MPI: over UCX (`pml ucx`), and over libfabric's verbs provider (`mtl ofi`).
//!
//! Debian's `btl openib` is built without rdma-cm, so it knows InfiniBand alone, not Ethernet.

use std::path::Path;

use weft_interop::{mpi, source};
use weft_testkit::{IWARP, Lab, Program, SHUTTLE};

const MPIRUN: &str = "mpirun.openmpi";
const MPICC: &str = "mpicc.openmpi";

/// How ranks speak to each other.
#[derive(Clone, Copy)]
enum Layer {
    Ucx(&'static str),
    /// One-sided access is made of messages: `osc rdma` has no way to a peer but its own.
    Libfabric,
}

impl Layer {
    /// The launcher, for ranks that speak so.
    fn mpirun(self, lab: &Lab) -> Program {
        // More ranks than CPUs, and perhaps as root: it has to be told that both are meant.
        let mpirun = lab.program(MPIRUN).args("--allow-run-as-root --oversubscribe -n 4");
        let mpirun = mpirun.args("-x LD_PRELOAD -x WEFT_INSECURE");
        match self {
            Self::Ucx(transport) => mpi::over_ucx(mpirun, transport)
                .args("--mca pml ucx --mca osc ucx --mca btl ^openib,ofi")
                .args("-x UCX_TLS -x UCX_NET_DEVICES"),
            Self::Libfabric => mpirun
                .env("FI_PROVIDER", "verbs;ofi_rxm")
                .args("--mca pml cm --mca mtl ofi --mca osc pt2pt --mca btl self -x FI_PROVIDER")
                .args("--mca mtl_ofi_provider_include verbs;ofi_rxm"),
        }
    }

    fn run(self, lab: &Lab, name: &str) {
        let program = lab.compile(Path::new(MPICC), &source(name), &[]);
        mpi::all_right(&self.mpirun(lab).env("WEFT_INSECURE", "1").arg(program.path()).arg("1"));
    }

    /// The same with two ranks on each side of a path.
    fn run_far(self, names: &[&str]) {
        let Some(lab) = Lab::of_root(&[MPIRUN, MPICC]) else { return };
        let path = mpi::LossyPath::new(&lab);
        let mpirun = self.mpirun(&lab).args(&format!("-H {}", mpi::LossyPath::HOSTS));
        let mpirun = mpirun.args("--mca plm_rsh_agent").arg(path.launcher());
        for name in names {
            let program = lab.compile(Path::new(MPICC), &source(name), &[]);
            path.all_right(&mpirun.clone().arg(program.path()).arg("1"));
        }
    }
}

fn over_ucx(transport: &'static str, names: &[&str]) {
    let Some(lab) = Lab::with(&[MPIRUN, MPICC]) else { return };
    names.iter().for_each(|name| Layer::Ucx(transport).run(&lab, name));
}

fn over_libfabric(transport: &'static str, names: &[&str]) {
    let Some(lab) = Lab::with(&[MPIRUN, MPICC]) else { return };
    let lab = lab.over(transport);
    names.iter().for_each(|name| Layer::Libfabric.run(&lab, name));
}

#[test]
fn messages_over_connections() {
    over_ucx("rc_v", &["points"]);
}

#[test]
fn messages_over_datagrams() {
    over_ucx("ud_v", &["points"]);
}

#[test]
fn collective_operations_over_connections() {
    over_ucx("rc_v", &["collectives"]);
}

#[test]
fn one_sided_access_over_connections() {
    over_ucx("rc_v", &["onesided"]);
}

#[test]
fn messages_over_libfabric() {
    over_libfabric(SHUTTLE, &["points"]);
    over_libfabric(IWARP, &["points"]);
}

#[test]
fn one_sided_access_over_libfabric() {
    over_libfabric(SHUTTLE, &["onesided"]);
}

#[test]
fn across_a_path_that_loses() {
    Layer::Ucx("rc_v").run_far(&["points"]);
    Layer::Libfabric.run_far(&["points"]);
}

/// `make peer-suites`: what is not run above.
#[test]
#[ignore = "minutes"]
fn everything() {
    over_ucx("ud_v", &mpi::PROGRAMS);
    over_libfabric(SHUTTLE, &mpi::PROGRAMS);
    over_libfabric(IWARP, &mpi::PROGRAMS);
    Layer::Ucx("rc_v").run_far(&mpi::PROGRAMS);
    Layer::Libfabric.run_far(&mpi::PROGRAMS);
}

/// UCX repeats its own datagrams, and takes its time: a minute for what takes connections five
/// seconds.
#[test]
#[ignore = "minutes"]
fn datagrams_across_a_path_that_loses() {
    Layer::Ucx("ud_v").run_far(&["points"]);
}
