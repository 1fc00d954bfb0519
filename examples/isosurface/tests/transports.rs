//! Iso-surfaces over TCP and SDP.

#[path = "../../transports.rs"]
mod transports;

use weft_testkit::Lab;

const ISOSURFACE: &str = env!("CARGO_BIN_EXE_isosurface");
/// Streams between four filters.
const STREAMS: usize = 3;

#[test]
fn pictures_are_the_same() {
    let lab = Lab::with(&[]).expect("nothing is needed");
    let line = "volume rock.volume --side 40 --seed 7";
    let made = lab.program(ISOSURFACE).args(line).on_its_own().run();
    assert!(made.status.success(), "{made}");
    transports::pictures_are_the_same(&lab, STREAMS, |out| {
        let line = format!("run rock.volume --size 120x100 --repeat 2 --json --out {out}");
        lab.program(ISOSURFACE).args(&line)
    });
}
