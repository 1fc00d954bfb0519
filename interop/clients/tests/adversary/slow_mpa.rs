//! Peers that send MPA's Request slowly.

use std::io::Write;
use std::net::TcpStream;

use weft_testkit::Program;

use crate::kit::{MPA_REQUEST, Scene, VICTIM};

fn iwarp(program: Program) -> Program {
    program.env("WEFT_INSECURE", "1").env("WEFT_TRANSPORT", "iwarp")
}

#[test]
fn requests_that_never_end_keep_nobody_out() {
    let Some(scene) = Scene::with(&["rping"]) else { return };
    let mut slow = Vec::new();
    scene.rping_outlives(iwarp, |port| {
        for cut in 1..MPA_REQUEST.len() {
            let mut stream = scene.attack(|| TcpStream::connect((VICTIM, port)).unwrap());
            stream.set_nodelay(true).unwrap();
            MPA_REQUEST[..cut].iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
            slow.push(stream);
        }
    });
}
