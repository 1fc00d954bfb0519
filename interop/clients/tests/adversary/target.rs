//! The program `c/target.c` on the victim's host, which says what it sees.

use weft_interop::source;
use weft_testkit::{Program, Running};

use crate::kit::{Scene, VICTIM, keyed};

/// Bytes of each region of the target, and of its receives.
pub const SIZE: usize = 64;
pub const INBOX: usize = 16;

/// A region as the target tells of it.
#[derive(Clone, Copy)]
pub struct Region {
    pub addr: u64,
    pub key: u32,
}

/// All that it tells: what may be read and written, what may be written, what may be read, and what
/// is its own.
pub struct Told {
    pub open: Region,
    pub sink: Region,
    pub source: Region,
    pub closed: Region,
}

impl Told {
    /// Reads the private data of its answer.
    pub fn parse(said: &[u8]) -> Self {
        let region = |at: usize| {
            let (addr, rest) = said[12 * at..].split_first_chunk().unwrap();
            let key = *rest.first_chunk().unwrap();
            Region { addr: u64::from_be_bytes(*addr), key: u32::from_be_bytes(key) }
        };
        Self { open: region(0), sink: region(1), source: region(2), closed: region(3) }
    }
}

/// Starts `program` on the victim's host.
pub fn started(scene: &Scene, program: Program) -> Running {
    program.started_by(&scene.networks.in_first()).start()
}

fn listening(scene: &Scene, port: u16, what: &str) -> Running {
    let program =
        scene.lab.verbs_program(&source("target")).args(&format!("{what} {VICTIM} {port}"));
    started(scene, keyed(program)).until("listened", |_| scene.networks.first_listens(port))
}

/// A target for connections under the key.
pub fn connections(scene: &Scene, port: u16) -> Running {
    listening(scene, port, "connections")
}

/// A target for who looks for a queue pair for datagrams.
pub fn queries(scene: &Scene, port: u16) -> Running {
    listening(scene, port, "queries")
}
