//! Common parts of the tests of each MPI: their programs, and a path with a rank's host on each
//! side.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use weft_testkit::{Ended, Lab, Program, weft};

/// All programs; each takes a number of turns, and checks what it gets.
pub const PROGRAMS: [&str; 3] = ["points", "collectives", "onesided"];

/// Runs the launcher; its ranks must use RDMA, and find everything right.
///
/// # Panics
/// When they do not.
pub fn all_right(launcher: &Program) -> Ended {
    launcher.clone().option("--require-traffic").run().success().said("all right")
}

/// The launcher for ranks that use UCX over `weft0`, by `transport`, and nothing else.
pub fn over_ucx(launcher: Program, transport: &str) -> Program {
    let launcher = launcher.env("UCX_TLS", format!("{transport},self"));
    launcher.env("UCX_NET_DEVICES", "weft0:1")
}

/// A path of 5 ms that loses one packet in a hundred, with a host on each side.
#[derive(Debug)]
pub struct LossyPath {
    name: String,
    launcher: PathBuf,
}

impl LossyPath {
    /// Both hosts, with two ranks on each.
    pub const HOSTS: &str = "10.77.0.1:2,10.77.0.2:2";

    /// A path that is there while a program runs.
    pub fn new(lab: &Lab) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mpi-{}-{count}", std::process::id());
        let weft = weft().display();
        // Called like rsh: options, the host, and what is to be run there by a shell.
        let script = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nshift\n\
             exec {weft} wan exec --name {name} far -- sh -c \"$*\"\n"
        );
        let launcher = lab.write("launcher", script);
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&launcher, mode).expect("the script was just written");
        Self { name, launcher }
    }

    /// What starts a program on the far side.
    pub fn launcher(&self) -> &std::path::Path {
        &self.launcher
    }

    /// [`all_right`] with the launcher on the near side. Ranks that find something wrong fail. That
    /// they say in the end that they found nothing is not looked for: on a busy machine Open MPI's
    /// launcher has once ended well without that line.
    ///
    /// # Panics
    /// When they do not use RDMA, or fail.
    pub fn all_right(&self, launcher: &Program) {
        let launcher = launcher.clone().option("--require-traffic").env("WEFT_INSECURE", "1");
        let wan = format!("{} wan --name {} 5ms 1% 1gbit --", weft().display(), self.name);
        launcher.started_by(&wan).run().success();
    }
}
