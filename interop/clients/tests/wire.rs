//! What goes over the wire, as tshark sees it: every CRC good, nothing malformed.

use std::process::{Command, Stdio};

use weft_interop::{Running, Scratch, free_port, installed};

/// Captures what passes port `port` of loopback while `talk` runs; gives each decoded frame.
fn captured(port: u16, talk: impl FnOnce()) -> Option<String> {
    if !installed("tshark") || !installed("tcpdump") {
        return None;
    }
    let scratch = Scratch::new("wire");
    let file = scratch.path().join("capture.pcap");
    let filter = format!("tcp port {port}");
    let mut dump = Command::new("tcpdump");
    dump.args(["-i", "lo", "-s", "0", "-U", "-B", "65536", "-w"]).arg(&file).arg(&filter);
    let mut dump = dump.stderr(Stdio::piped()).process_group_of_its_own().spawn().ok()?;
    if !announces(&mut dump, "listening on") {
        eprintln!("SKIPPED: tcpdump may not capture on loopback here");
        return None;
    }
    talk();
    let _ = Command::new("kill").args(["-INT", &dump.id().to_string()]).status();
    let _ = dump.wait();
    let mut shark = Command::new("tshark");
    shark.arg("-r").arg(&file).args(["-V", "-Y", "iwarp_mpa"]);
    for heuristic in ["smb_direct", "rpcordma"] {
        shark.args(["--disable-protocol", heuristic]);
    }
    let out = shark.output().ok()?;
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Whether the program says `word` on stderr before it ends.
fn announces(child: &mut std::process::Child, word: &str) -> bool {
    use std::io::{BufRead, BufReader};
    let Some(stderr) = child.stderr.as_mut() else { return false };
    BufReader::new(stderr).lines().map_while(Result::ok).any(|line| line.contains(word))
}

trait OwnGroup {
    fn process_group_of_its_own(&mut self) -> &mut Self;
}

impl OwnGroup for Command {
    fn process_group_of_its_own(&mut self) -> &mut Self {
        std::os::unix::process::CommandExt::process_group(self, 0)
    }
}

fn ping(port: u16, variables: &[(&str, &str)]) {
    let number = port.to_string();
    let common = ["-a", "127.0.0.1", "-p", &number, "-V", "-C", "5", "-S", "30000"];
    let server = Running::with(&[&["rping", "-s"], &common[..]].concat(), variables);
    server.wait_listening(port);
    let client = Running::with(&[&["rping", "-c"], &common[..]].concat(), variables);
    client.wait(30).expect_success();
    server.wait(30).expect_success();
}

fn every_frame_decodes(variables: &[(&str, &str)]) {
    if !installed("rping") {
        return;
    }
    let port = free_port();
    let Some(frames) = captured(port, || ping(port, variables)) else { return };
    let good = frames.matches("(Good CRC32)").count();
    assert!(good >= 30, "{good} frames with a good CRC\n{frames}");
    for bad in ["Bad CRC32", "Malformed"] {
        assert!(!frames.contains(bad), "{bad} in\n{frames}");
    }
    assert!(frames.contains("Read Request") && frames.contains("Send"), "{frames}");
}

#[test]
fn with_crcs() {
    every_frame_decodes(&[]);
}

#[test]
fn with_crcs_and_markers_both_ways() {
    every_frame_decodes(&[("WEFT_MARKERS", "on")]);
}
