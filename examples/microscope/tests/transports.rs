//! The microscope over TCP and SDP, and with filters that are started by hand.

#[path = "../../transports.rs"]
mod transports;

use std::fs;

use transports::good;
use weft_testkit::{Lab, Program};

const MICROSCOPE: &str = env!("CARGO_BIN_EXE_microscope");
/// Streams between five filters.
const STREAMS: usize = 4;

fn slide(lab: &Lab) {
    let line = "slide tissue.slide --size 512x512 --seed 7";
    let made = lab.program(MICROSCOPE).args(line).on_its_own().run();
    assert!(made.status.success(), "{made}");
}

fn run(lab: &Lab, out: &str) -> Program {
    let line = format!("run tissue.slide --size 251x200 --repeat 2 --json --out {out}");
    lab.program(MICROSCOPE).args(&line)
}

#[test]
fn pictures_are_the_same() {
    let lab = Lab::with(&[]).expect("nothing is needed");
    slide(&lab);
    transports::pictures_are_the_same(&lab, STREAMS, |out| run(&lab, out));
}

#[test]
fn filters_that_are_started_by_hand_make_the_same_picture() {
    let lab = Lab::with(&[]).expect("nothing is needed");
    slide(&lab);
    good(run(&lab, "single.png").args("--single").on_its_own().run());
    let mut running = Vec::new();
    let mut to = String::new();
    for name in ["view", "zoom", "clip", "decompress"] {
        let line = format!("filter {name} --listen 127.0.0.1:0 --out hand.png {to}");
        let filter = lab.program(MICROSCOPE).args(&line).on_its_own().start();
        let filter = filter.complained("\n");
        let said = filter.stderr();
        let address = said.trim().rsplit(' ').next().expect("a word").to_owned();
        to = format!("--to {address}");
        running.push(filter);
    }
    let line = format!("filter read tissue.slide --size 251x200 --repeat 2 --unit 1K --json {to}");
    good(lab.program(MICROSCOPE).args(&line).on_its_own().run());
    for filter in running {
        let ended = filter.wait();
        assert!(ended.status.success(), "{ended}");
    }
    let picture = |name: &str| fs::read(lab.path(name)).expect("it is written");
    assert!(picture("hand.png") == picture("single.png"));
}
