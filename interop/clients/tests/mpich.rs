//! MPICH over libfabric's verbs provider.
//!
//! Debian's MPICH speaks UCX alone, which refuses iWARP. The one of PyPI (`pip install mpich`) has
//! libfabric as well: it is looked for in `MPICH_HOME`, in `target/mpich`, and along PATH.

use std::path::{Path, PathBuf};

use weft_interop::{IWARP, Lab};

/// Where the programs of an MPICH with libfabric are.
fn mpich(lab: &Lab) -> Option<PathBuf> {
    let home = std::env::var_os("MPICH_HOME").map(PathBuf::from);
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mpich");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let homes = home.into_iter().chain([ours]).map(|home| home.join("bin"));
    homes.chain(std::env::split_paths(&path)).find(|bin| {
        let program = bin.join("mpichversion");
        program.is_file() && {
            let version = lab.program(&program.to_string_lossy()).on_its_own().run();
            version.stdout.lines().any(|l| l.contains("Device") && l.contains("ofi"))
        }
    })
}

/// Runs the ring with so many ranks, each of which takes its receives from one queue for all
/// others if they are `shared`.
fn ring(ranks: u32, shared: bool) {
    Lab::over_each(&["cc"], |lab| ring_in(lab, ranks, shared));
}

fn ring_in(lab: &Lab, ranks: u32, shared: bool) {
    let Some(bin) = mpich(lab) else {
        lab.skip(
            "no MPICH with libfabric: python3 -m venv target/mpich, then its pip install mpich",
        );
        return;
    };
    let ring = lab.compile(&bin.join("mpicc"), "ring", &[]);
    let mpiexec = lab.program(&bin.join("mpiexec").to_string_lossy());
    let run = mpiexec
        .args(&format!("-n {ranks}"))
        .env("MPIR_CVAR_CH4_NETMOD", "ofi")
        .env("MPIR_CVAR_NOLOCAL", "1")
        .env("MPIR_CVAR_DEBUG_SUMMARY", "1")
        .env("FI_PROVIDER", "verbs;ofi_rxm")
        .env("FI_OFI_RXM_USE_SRX", if shared { "1" } else { "0" })
        .arg(ring.path())
        .run();
    let fabric = if lab.transport() == Some(IWARP) { "Ethernet-iWARP" } else { "IB-0x" };
    let provider = format!("libfabric provider: verbs;ofi_rxm - {fabric}");
    run.success().said(&provider).said("all right");
}

#[test]
fn messages_reductions_and_one_sided_access() {
    ring(2, false);
    ring(4, false);
}

#[test]
fn several_queue_pairs_with_a_shared_receive_queue() {
    ring(4, true);
}
