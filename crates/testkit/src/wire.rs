//! What passed between two programs, as Wireshark reads it.

use std::net::UdpSocket;
use std::path::PathBuf;

use crate::lab::{Lab, skip};
use crate::running::{Ended, Running};

/// Ends a capture: once this is in the file, so is everything before it.
const END: &[u8] = b"nothing of interest follows";

/// A capture of loopback's traffic.
#[derive(Debug)]
pub struct Capture {
    dumpcap: Running,
    file: PathBuf,
    end: UdpSocket,
}

impl Capture {
    /// Captures everything from or to the TCP port `port`; nothing, and a line on stderr, where
    /// that is not allowed.
    pub fn start(lab: &Lab, port: u16) -> Option<Self> {
        let end = UdpSocket::bind("127.0.0.1:0").expect("the kernel has a port");
        let end_port = end.local_addr().expect("a bound socket has an address").port();
        let file = lab.path("capture.pcapng");
        let filter = format!("tcp port {port} or udp port {end_port}");
        let dumpcap = lab.program("dumpcap").on_its_own().args("-q -i lo -s 0 -B 64 -f");
        let dumpcap = dumpcap.arg(filter).arg("-w").arg(&file).start();
        if !dumpcap.says_or_ends("File:") {
            let said = dumpcap.end().stderr;
            let why = said.lines().find(|line| line.starts_with("dumpcap:")).unwrap_or(&said);
            skip(&format!("no capturing here: {why}"));
            return None;
        }
        Some(Self { dumpcap, file, end })
    }

    /// Ends the capture; gives what Wireshark says about each packet.
    ///
    /// # Panics
    /// When packets were lost, or it cannot be read.
    pub fn decode(self, lab: &Lab) -> String {
        let Self { dumpcap, file, end } = self;
        let to = end.local_addr().expect("a bound socket has an address");
        end.send_to(END, to).expect("loopback takes a datagram");
        let dumpcap = dumpcap.until("wrote the last packet", |_| {
            let bytes = std::fs::read(&file).unwrap_or_default();
            bytes.windows(END.len()).any(|window| window == END)
        });
        dumpcap.signal(crate::Signal::INT);
        let Ended { stderr, .. } = dumpcap.wait().success();
        assert!(stderr.contains("/0 (pcap:0/dumpcap:0"), "packets were lost: {stderr}");
        let tshark = lab.program("tshark").on_its_own().arg("-r").arg(&file);
        // Others would take the payload for theirs, some by the number of the port alone.
        let tshark = tshark.args("--disable-protocol smb_direct --disable-protocol rpcordma -V");
        let tshark = tshark.args("-o tcp.try_heuristic_first:TRUE");
        // Two processors that send on one stream are not always captured in its order.
        let tshark = tshark.args("-o tcp.reassemble_out_of_order:TRUE");
        tshark.run().success().stdout
    }
}
