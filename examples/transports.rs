//! What the tests of both programs share: the picture is the same, byte for byte, in one process,
//! over TCP and over SDP in both styles.

use std::fs;

use weft_testkit::{Ended, Lab, Program};

pub fn good(ended: Ended) -> Ended {
    assert!(ended.status.success(), "{ended}");
    assert!(ended.stdout.contains("\"queries\": 2"), "{ended}");
    ended
}

/// `run` has the program, which has so many `streams`, write a picture of that name.
pub fn pictures_are_the_same(lab: &Lab, streams: usize, run: impl Fn(&str) -> Program) {
    good(run("single.png").args("--single").on_its_own().run());
    let picture = fs::read(lab.path("single.png")).expect("it is written");
    for unit in ["1K", "8K"] {
        let tcp = run("tcp.png").args("--unit").args(unit).on_its_own();
        assert_eq!(good(tcp.run()).stderr, "");
        assert!(fs::read(lab.path("tcp.png")).expect("it is written") == picture, "{unit}");
        for (setting, style) in [("auto", "enhanced"), ("basic", "basic")] {
            let sdp = run("sdp.png").args("--unit").args(unit).with_sockets();
            let sdp = sdp.env("WEFT_SOCKETS_STYLE", setting).env("WEFT_LANE", "off");
            let said = good(sdp.run()).stderr;
            let line = format!("SDP over Shuttle, {style}");
            assert_eq!(said.matches(&line).count(), 2 * streams, "{said}");
            assert!(!said.contains(": TCP"), "{said}");
            assert!(fs::read(lab.path("sdp.png")).expect("it is written") == picture, "{unit}");
        }
    }
}
