//! Unmodified programs over Weft, both ends.
//!
//! A test asks for a [`Lab`] that has the programs it needs, describes each end as a [`Program`],
//! starts it, and looks at what is left when it has [`Ended`]. Programs meet on ports that the
//! kernel chose, and are waited for by what they do: listen, print, end.
//!
//! Invariant: whatever a test starts is gone when the test is over, however that comes about, and
//! nothing waits longer than [`LIMIT`]. A test that cannot run here says so, by name, on stderr.
//!
//! Order: [`Lab::with`], [`Lab::program`], [`Program::start`], [`Running::wait`].
#![forbid(unsafe_code)]

mod install;
mod lab;
mod machine;
pub mod mpi;
mod ports;
mod program;
pub mod pyverbs;
mod running;
mod traffic;
mod translator;
mod wire;

pub use install::{find, library, peer, weft};
pub use lab::{IWARP, Lab, SHUTTLE};
pub use machine::{Namespaces, own_address};
pub use ports::free_port;
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
