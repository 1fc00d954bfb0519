//! MPICH: over libfabric's verbs provider, and over UCX.
//!
//! Debian's MPICH speaks UCX alone, which refuses iWARP. The one of PyPI (`pip install mpich`) has
//! libfabric as well: it is looked for in `MPICH_HOME`, in `target/mpich`, and along PATH.

use std::path::{Path, PathBuf};

use weft_interop::{mpi, source};
use weft_testkit::{IWARP, Lab, Program};

/// Where the programs of an MPICH with libfabric are; nothing, and a line on stderr, if nowhere.
fn mpich(lab: &Lab) -> Option<PathBuf> {
    let home = std::env::var_os("MPICH_HOME").map(PathBuf::from);
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mpich");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let homes = home.into_iter().chain([ours]).map(|home| home.join("bin"));
    let found = homes.chain(std::env::split_paths(&path)).find(|bin| {
        let program = bin.join("mpichversion");
        program.is_file() && {
            let version = lab.program(&program.to_string_lossy()).on_its_own().run();
            version.stdout.lines().any(|l| l.contains("Device") && l.contains("ofi"))
        }
    });
    if found.is_none() {
        weft_testkit::skip(
            "no MPICH with libfabric: python3 -m venv target/mpich, then its pip install mpich",
        );
    }
    found
}

/// The same launcher over libfabric.
fn over_libfabric(mpiexec: Program) -> Program {
    let mpiexec = mpiexec.env("MPIR_CVAR_CH4_NETMOD", "ofi").env("MPIR_CVAR_NOLOCAL", "1");
    mpiexec.env("MPIR_CVAR_DEBUG_SUMMARY", "1").env("FI_PROVIDER", "verbs;ofi_rxm")
}

/// Runs the program over libfabric, on each device.
fn run(name: &str, ranks: u32, options: impl Fn(Program) -> Program) {
    Lab::over_each(&["cc"], |lab| {
        let Some(bin) = mpich(lab) else { return };
        let program = lab.compile(&bin.join("mpicc"), &source(name), &[]);
        let mpiexec = lab.program(&bin.join("mpiexec").to_string_lossy());
        let run = options(over_libfabric(mpiexec)).args(&format!("-n {ranks}"));
        let ended = mpi::all_right(&run.arg(program.path()).arg("1"));
        let fabric = if lab.transport() == Some(IWARP) { "Ethernet-iWARP" } else { "IB-0x" };
        ended.said(&format!("libfabric provider: verbs;ofi_rxm - {fabric}"));
    });
}

#[test]
fn messages_reductions_and_one_sided_access() {
    run("ring", 2, |mpiexec| mpiexec);
}

#[test]
fn several_queue_pairs_with_a_shared_receive_queue() {
    run("ring", 4, |mpiexec| mpiexec.env("FI_OFI_RXM_USE_SRX", "1"));
}

#[test]
fn messages_from_point_to_point() {
    run("points", 4, |mpiexec| mpiexec);
}

#[test]
fn collective_operations() {
    run("collectives", 4, |mpiexec| mpiexec);
}

#[test]
fn one_sided_access_in_all_its_epochs() {
    run("onesided", 4, |mpiexec| mpiexec);
}

/// Two ranks on each side of a path.
fn run_far(names: &[&str]) {
    let Some(lab) = Lab::of_root(&["cc"]) else { return };
    let Some(bin) = mpich(&lab) else { return };
    let path = mpi::LossyPath::new(&lab);
    let mpiexec = lab.program(&bin.join("mpiexec").to_string_lossy());
    let options = format!("-hosts {} -launcher rsh -n 4 -launcher-exec", mpi::LossyPath::HOSTS);
    let mpiexec = over_libfabric(mpiexec).args(&options).arg(path.launcher());
    for name in names {
        let program = lab.compile(&bin.join("mpicc"), &source(name), &[]);
        path.all_right(&mpiexec.clone().arg(program.path()).arg("1"));
    }
}

#[test]
fn across_a_path_that_loses() {
    run_far(&["points"]);
}

/// `make peer-suites`.
#[test]
#[ignore = "half a minute"]
fn everything_across_a_path_that_loses() {
    run_far(&mpi::PROGRAMS);
}

/// Debian's, over UCX. Where the fragments of a message are no multiple of an integer, 4.0.2 takes
/// what it scatters on arrival for truncated, over TCP too, so the segments are of another size.
/// `make peer-suites`.
#[test]
#[ignore = "half a minute"]
fn over_ucx() {
    let Some(lab) = Lab::with(&["mpiexec.mpich", "mpicc.mpich"]) else { return };
    for transport in ["rc_v", "ud_v"] {
        let mpiexec = mpi::over_ucx(lab.program("mpiexec.mpich"), transport);
        let mpiexec = mpiexec.env("UCX_IB_SEG_SIZE", "8257").env("MPIR_CVAR_NOLOCAL", "1");
        for name in mpi::PROGRAMS {
            let program =
                lab.compile(Path::new("mpicc.mpich"), &source(name), &["-Wno-stringop-overflow"]);
            mpi::all_right(&mpiexec.clone().args("-n 4").arg(program.path()).arg("1"));
        }
    }
}
