//! Unmodified programs over Weft, both ends: starting them, watching them, ending them.
//!
//! Invariant: whatever a test starts is gone when the test is over, however it ends, and nothing
//! waits longer than its deadline. A test that this machine cannot run says so by name.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "a test of real programs has real deadlines")]

mod process;

use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

pub use process::{Ended, Running, start};

/// Where cargo put what it built, for the profile of this test.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("a test lies in a directory");
    deps.parent().expect("deps lies in the profile's directory").to_path_buf()
}

/// The `weft` command, built if need be.
pub fn weft() -> PathBuf {
    static BUILT: Once = Once::new();
    let target = target();
    let (weft, library) = (target.join("weft"), target.join("libweft.so"));
    BUILT.call_once(|| {
        if weft.exists() && library.exists() {
            return;
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "weft-cli", "-p", "weft-preload"]);
        if target.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().expect("cargo runs").success(), "weft does not build");
    });
    weft
}

/// Whether `program` is installed; says so by name when it is not.
pub fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if !found {
        eprintln!("SKIPPED: {program} is not installed");
    }
    found
}

/// A TCP port that nobody has at the moment.
pub fn free_port() -> u16 {
    let socket = TcpListener::bind(("::", 0)).or_else(|_| TcpListener::bind(("0.0.0.0", 0)));
    let socket = socket.expect("the kernel has a port");
    socket.local_addr().expect("a bound socket has an address").port()
}

/// An address of this machine other than loopback's, if it has one: libfabric and DAPL want one.
pub fn own_address() -> Option<IpAddr> {
    // Connecting a datagram socket sends nothing; it only asks for the route.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    let routed = ["192.0.2.1:9", "198.51.100.1:9"].iter().find_map(|to| {
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    });
    let found = routed.filter(|ip| !ip.is_loopback() && !ip.is_unspecified());
    if found.is_none() {
        eprintln!("SKIPPED: this machine has no address but loopback's");
    }
    found
}

/// A directory for one test, removed with everything in it.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new directory.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `server` until it listens on `port`, then `client`, and expects both to succeed within
/// `seconds`; gives what they wrote, the server's first.
///
/// # Panics
/// When either fails or does not end.
pub fn pair(server: &[&str], client: &[&str], port: u16, seconds: u64) -> (Ended, Ended) {
    let server = start(server);
    server.wait_listening(port);
    let client = start(client).wait(seconds);
    let server = server.wait(seconds);
    client.expect_success();
    server.expect_success();
    (server, client)
}
