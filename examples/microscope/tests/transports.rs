//! The picture is the same, octet for octet, in one process, over TCP and over SDP in both styles.

use std::fs;

use weft_interop::{Ended, Lab, Program};

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

fn good(ended: Ended) -> Ended {
    assert!(ended.status.success(), "{ended}");
    assert!(ended.stdout.contains("\"queries\": 2"), "{ended}");
    ended
}

#[test]
fn pictures_are_the_same() {
    let lab = Lab::with(&[]).expect("nothing is needed");
    slide(&lab);
    good(run(&lab, "single.png").args("--single").on_its_own().run());
    let picture = fs::read(lab.path("single.png")).expect("it is written");
    for unit in ["1K", "8K"] {
        let tcp = run(&lab, "tcp.png").args("--unit").args(unit).on_its_own();
        assert_eq!(good(tcp.run()).stderr, "");
        assert!(fs::read(lab.path("tcp.png")).expect("it is written") == picture, "{unit}");
        for (setting, style) in [("auto", "enhanced"), ("basic", "basic")] {
            let sdp = run(&lab, "sdp.png").args("--unit").args(unit).with_sockets();
            let said = good(sdp.env("WEFT_SOCKETS_STYLE", setting).run()).stderr;
            let line = format!("SDP over Shuttle, {style}");
            assert_eq!(said.matches(&line).count(), 2 * STREAMS, "{said}");
            assert!(!said.contains(": TCP"), "{said}");
            assert!(fs::read(lab.path("sdp.png")).expect("it is written") == picture, "{unit}");
        }
    }
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
