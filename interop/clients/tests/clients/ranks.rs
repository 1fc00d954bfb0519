//! What ranks speak by: MPIs, libgloo, and the layers below them.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use weft_interop::{mpi, source};
use weft_testkit::{Lab, Program, free_port, own_address, pair, peer};

use crate::{Client, counted, debian, operations, said_version};

const MPI: &str = "messages, collectives, one-sided access of four ranks, checked";
const NO_IWARP: (&str, &str) = ("weft_iw0", "UCX takes no iWARP");

pub const INTEL_MPI: Client = Client {
    name: "Intel MPI",
    version: || {
        let said = said_version(&peer("peers/impi/bin/impi_info")?, "-v");
        said.or_else(|| Some("2021.18".to_owned()))
    },
    does: MPI,
    refuses: None,
    run: intel_mpi,
};

pub const OPEN_MPI_UCX: Client = Client {
    name: "Open MPI (`pml ucx`)",
    version: || debian("openmpi-bin"),
    does: MPI,
    refuses: Some(NO_IWARP),
    run: |lab| {
        let mpirun = mpi::over_ucx(open_mpi(lab), "rc_v");
        let mpirun = mpirun.args("--mca pml ucx --mca osc ucx --mca btl ^openib,ofi");
        Some(jobs(lab, &mpirun.args("-x UCX_TLS -x UCX_NET_DEVICES"), "mpicc.openmpi", &[]))
    },
};

pub const OPEN_MPI_OFI: Client = Client {
    name: "Open MPI (`mtl ofi`)",
    version: || debian("openmpi-bin"),
    does: MPI,
    refuses: None,
    run: |lab| {
        let mpirun = open_mpi(lab).env("FI_PROVIDER", "verbs;ofi_rxm").args("-x FI_PROVIDER");
        let mpirun = mpirun.args("--mca pml cm --mca mtl ofi --mca osc pt2pt --mca btl self");
        let mpirun = mpirun.args("--mca mtl_ofi_provider_include verbs;ofi_rxm");
        Some(jobs(lab, &mpirun, "mpicc.openmpi", &[]))
    },
};

pub const MPICH: Client = Client {
    name: "MPICH of PyPI (`ch4:ofi`)",
    version: || said_version(&peer("mpich/bin/mpichversion")?, "-v"),
    does: MPI,
    refuses: None,
    run: |lab| {
        let Some(bin) = peer("mpich/bin") else {
            weft_testkit::skip("no MPICH with libfabric: scripts/mpich.sh");
            return None;
        };
        let mpiexec = lab.program(&bin.join("mpiexec").to_string_lossy()).args("-n 4");
        let mpiexec = mpiexec.env("MPIR_CVAR_CH4_NETMOD", "ofi").env("MPIR_CVAR_NOLOCAL", "1");
        let mpiexec = mpiexec.env("FI_PROVIDER", "verbs;ofi_rxm");
        Some(jobs(lab, &mpiexec, &bin.join("mpicc").to_string_lossy(), &[]))
    },
};

pub const GLOO: Client = Client {
    name: "libgloo",
    version: || debian("libgloo-dev"),
    does: "sums and broadcasts of four ranks by its transport for ibverbs, checked",
    refuses: None,
    run: |lab| {
        if debian("libgloo-dev").is_none() {
            weft_testkit::skip("no libgloo-dev: scripts/deps.sh libgloo-dev");
            return None;
        }
        let ranks = counted(lab.compile(Path::new("c++"), &source("allreduce.cc"), &["-lgloo"]));
        let meeting = lab.path("meeting");
        std::fs::create_dir(&meeting).expect("the lab's directory is writable");
        let ranks = ranks.args(&format!("{} 1", lab.device())).arg(meeting);
        Some(operations(lab, ranks.run().said("all right")))
    },
};

pub const FI_PINGPONG: Client = Client {
    name: "libfabric's fi_pingpong",
    version: || debian("libfabric-bin"),
    does: "messages of `verbs` and tagged ones of `verbs;ofi_rxm`, checked",
    refuses: None,
    run: |lab| {
        let address = own_address()?;
        let run = |line: &str| {
            let port = free_port();
            let common = counted(lab.program("fi_pingpong")).args(line).args("-c -I 10");
            let server = common.clone().args(&format!("-B {port}"));
            let client = common.args(&format!("-P {port} {address}"));
            let (_, client) = pair(&server, &client, port);
            operations(lab, client.said("usec/xfer"))
        };
        let lines = ["-p verbs -e msg -S all", "-p verbs;ofi_rxm -e rdm -S 100000 -m tagged"];
        Some(lines.into_iter().map(run).sum())
    },
};

pub const UCX: Client = Client {
    name: "UCX",
    version: || debian("ucx-utils"),
    does: "ucx_perftest's tag_bw over rc_verbs",
    refuses: Some(NO_IWARP),
    run: |lab| {
        let port = free_port();
        let server = counted(lab.program("ucx_perftest")).env("UCX_TLS", "rc_v,self");
        let server = server.env("UCX_NET_DEVICES", "weft0:1");
        let server = server.args(&format!("-t tag_bw -s 4000 -n 500 -w 10 -p {port}"));
        let (_, client) = pair(&server, &server.clone().args("127.0.0.1"), port);
        Some(operations(lab, client))
    },
};

/// The launcher of Debian's, for more ranks than CPUs, and perhaps as root: it has to be told
/// that both are meant.
fn open_mpi(lab: &Lab) -> Program {
    let mpirun = lab.program("mpirun.openmpi").args("--allow-run-as-root --oversubscribe -n 4");
    mpirun.args("-x LD_PRELOAD")
}

/// All programs of MPI, by this launcher.
fn jobs(lab: &Lab, launcher: &Program, compiler: &str, options: &[&str]) -> u64 {
    let launcher = launcher.clone().option("--stats");
    let run = |name: &&str| {
        let program = lab.compile(Path::new(compiler), &source(name), options);
        operations(lab, mpi::all_right(&launcher.clone().arg(program.path()).arg("1")))
    };
    mpi::PROGRAMS.iter().map(run).sum()
}

fn intel_mpi(lab: &Lab) -> Option<u64> {
    let Some(home) = peer("peers/impi") else {
        weft_testkit::skip("no Intel MPI: scripts/peers.sh impi");
        return None;
    };
    let mpiexec = lab.program(&home.join("bin/mpiexec").to_string_lossy()).args("-n 4");
    let mpiexec = mpiexec.env("I_MPI_ROOT", &home).env("I_MPI_FABRICS", "ofi");
    let mpiexec = mpiexec.env("I_MPI_OFI_PROVIDER", "verbs");
    let mpiexec = mpiexec.env("FI_PROVIDER_PATH", home.join("lib"));
    let mpiexec = mpiexec.env("LD_LIBRARY_PATH", home.join("lib"));
    Some(jobs(lab, &mpiexec, &intels_compiler(lab, &home).to_string_lossy(), &[]))
}

/// Intel's compiler command finds its files by a variable.
fn intels_compiler(lab: &Lab, home: &Path) -> PathBuf {
    let wrapper = format!("#!/bin/sh\nI_MPI_ROOT={0} exec {0}/bin/mpicc \"$@\"\n", home.display());
    let compiler = lab.write("mpicc", wrapper);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&compiler, mode).expect("the script was just written");
    compiler
}

#[test]
#[ignore = "scripts/peers.sh"]
fn intel_mpi_finds_everything_right() {
    INTEL_MPI.holds();
}

#[test]
#[ignore = "seconds to compile, and to run"]
fn gloo_sums_right() {
    GLOO.holds();
}
