//! Wireshark understands every byte that passes between two programs, and finds no fault.

use weft_testkit::{Capture, IWARP, Lab, Program, free_port, pair};

/// Runs the programs under a capture; gives what Wireshark says.
fn decode(programs: &[(&str, &str)], markers: bool) -> Option<String> {
    let names: Vec<&str> = programs.iter().map(|(name, _)| *name).collect();
    let lab = Lab::with(&[&names[..], &["dumpcap", "tshark"]].concat())?.over(IWARP);
    let port = free_port();
    let capture = Capture::start(&lab, port)?;
    for (name, line) in programs {
        let line = line.replace("PORT", &port.to_string());
        let (common, ends) = line.split_once(" / ").expect("options / server / client");
        let (server, client) = ends.split_once(" / ").expect("options / server / client");
        let markers = if markers { "on" } else { "off" };
        let end = |own: &str| -> Program {
            lab.program(name)
                .args(common)
                .args(own)
                .env("WEFT_MARKERS", markers)
                .env("WEFT_LANE", "off")
        };
        pair(&end(server), &end(client), port);
    }
    Some(capture.decode(&lab))
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

/// No complaint, and at least `frames` frames with a CRC that is right.
fn no_fault(text: &str, frames: usize) {
    for complaint in ["Malformed", "(Bad CRC32", "[Dissector bug"] {
        let at = text.find(complaint);
        assert!(at.is_none(), "{complaint}: {}", context(text, at.unwrap_or_default()));
    }
    let good = count(text, "(Good CRC32)");
    assert!(good >= frames, "{good} frames");
}

/// The packet around `at`.
fn context(text: &str, at: usize) -> &str {
    let from = text[..at].rfind("\nFrame ").unwrap_or(0);
    let to = text[at..].find("\nFrame ").map_or(text.len(), |end| at + end);
    &text[from..to]
}

#[test]
fn every_frame_decodes_with_its_crc() {
    let bandwidth = "-R -F -n 10 -s 20001 -p PORT /  / 127.0.0.1";
    let programs = [
        ("rping", "-a 127.0.0.1 -p PORT -V -C 5 -S 5000 / -s / -c"),
        ("ib_write_bw", bandwidth),
        ("ib_read_bw", bandwidth),
        ("ib_send_bw", bandwidth),
        ("ib_atomic_bw", "-R -F -n 5 -p PORT /  / 127.0.0.1"),
    ];
    let Some(text) = decode(&programs, false) else { return };
    no_fault(&text, 100);
    assert_eq!(count(&text, "MPA Request Frame"), count(&text, "MPA Reply Frame"));
    for operation in ["Write", "Read Request", "Read Response", "Send", "Atomic Request"] {
        assert!(count(&text, &format!("OpCode: {operation}")) >= 5, "{operation}");
    }
}

#[test]
fn frames_that_are_larger_than_a_segment_decode() {
    let programs = [("ib_write_bw", "-R -F -n 5 -s 1000000 -p PORT /  / 127.0.0.1")];
    let Some(text) = decode(&programs, false) else { return };
    no_fault(&text, 5 * (1_000_000 / 65536));
}

#[test]
fn markers_are_where_they_belong() {
    // Not any size: Wireshark counts a marker between two frames to the first (RFC 5044 section
    // 4.3 to the second), and then finds both CRCs wrong.
    let programs = [("rping", "-a 127.0.0.1 -p PORT -V -C 5 -S 3001 / -s / -c")];
    let Some(text) = decode(&programs, true) else { return };
    no_fault(&text, 30);
    assert!(count(&text, "Marker flag: True") == 2, "asked for in both directions");
    assert!(count(&text, "FPDU back pointer") >= 50);
}
