//! What tests of all crates share: directories, C programs, processes, ports, network namespaces.
//!
//! A test of one process takes a [`Dir`] and a command from [`limited`]. A test of applications
//! over Weft asks for a [`Lab`] that has the programs it needs, describes each end as a
//! [`Program`], starts it, and looks at what is left when it has [`Ended`]. Programs meet on ports
//! that nobody else has, and are waited for by what they do: listen, print, end.
//!
//! Invariant: whatever a test starts is gone when the test is over, however that comes about, and
//! nothing waits longer than [`LIMIT`]. A test that cannot run here says so, by name, on stderr.
//!
//! Order: [`Lab::with`], [`Lab::program`], [`Program::start`], [`Running::wait`].
#![forbid(unsafe_code)]

mod apart;
mod at_end;
mod command;
mod dir;
mod install;
mod lab;
mod machine;
mod ports;
mod program;
mod running;
mod traffic;
mod translator;
mod wire;

pub use apart::is_apart;
pub use at_end::SetAtEnd;
pub use command::{limited, stderr, succeed, text, without_settings};
pub use dir::Dir;
pub use install::{beside, find, library, peer, weft};
pub use lab::{IWARP, Lab, SHUTTLE, skip};
pub use machine::{Namespaces, is_root, listens, listens_to_tcp, listens_to_udp, own_address};
pub use ports::{FixedPort, free_port};
pub use program::Program;
pub use running::{Ended, LIMIT, Running, now};
pub use rustix::process::Signal;
pub use traffic::Traffic;
pub use translator::Translator;
pub use wire::Capture;

/// Runs `server` until it listens on `port`, then `client`, and gives both once they have
/// succeeded.
///
/// # Panics
/// When either fails, or does not end in time, with everything they wrote.
pub fn pair(server: &Program, client: &Program, port: u16) -> (Ended, Ended) {
    let server = server.start().listening(port);
    let client = client.start().wait();
    if !client.status.success() {
        panic!("{client}\n{}", server.end());
    }
    (server.wait().success(), client)
}
