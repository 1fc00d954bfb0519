//! The picture is the same, octet for octet, in one process, over TCP and over SDP in both styles.

use std::fs;

use weft_interop::{Ended, Lab, Program};

const ISOSURFACE: &str = env!("CARGO_BIN_EXE_isosurface");
/// Streams between four filters.
const STREAMS: usize = 3;

fn run(lab: &Lab, out: &str) -> Program {
    let line = format!("run rock.volume --size 120x100 --repeat 2 --json --out {out}");
    lab.program(ISOSURFACE).args(&line)
}

fn good(ended: Ended) -> Ended {
    assert!(ended.status.success(), "{ended}");
    assert!(ended.stdout.contains("\"queries\": 2"), "{ended}");
    ended
}

#[test]
fn pictures_are_the_same() {
    let lab = Lab::with(&[]).expect("nothing is needed");
    let line = "volume rock.volume --side 40 --seed 7";
    let made = lab.program(ISOSURFACE).args(line).on_its_own().run();
    assert!(made.status.success(), "{made}");
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
