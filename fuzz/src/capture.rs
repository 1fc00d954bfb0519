//! Any text as what is to be captured, and any packet of a peer's to the capture: no panic.

use std::path::PathBuf;

use weft_capture::{CaptureSpec, CaptureView, CapturedQp, EventTrace, PacketCapture};
use weft_wire::shuttle::Packet;
use weft_wire::tap::{PacketTap, TapDirection, TapEnds, Tapped};

/// `data` as the text of `--pcap`.
pub fn capture_spec(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match CaptureSpec::parse(text) {
        Ok(spec) => assert!(!spec.path.as_os_str().is_empty() && spec.qp != Some(0)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// `data` as packets, each behind two octets of its length, that a capture and a trace see.
pub fn capture_tap(data: &[u8]) {
    let (size_bytes, qp) = (None, None);
    let path = PathBuf::from("/nonexistent/capture");
    let spec = CaptureSpec { path, size_bytes, files: 0, qp, view: CaptureView::Both };
    let device = "weft0".into();
    let qp = CapturedQp { device, number: 0x11, ordinal: 1, is_reliable: true };
    let Some(capture) = PacketCapture::new(spec).tap(qp) else { return };
    let mut taps: [Box<dyn PacketTap>; 2] =
        [Box::new(capture), Box::new(EventTrace::new("/nonexistent/capture".into()).tap(0x11))];
    let at = |text: &str| text.parse().expect("it is an address");
    let ends = Some(TapEnds { local: at("192.0.2.1:1"), remote: at("[2001:db8::1]:2") });
    let mut rest = data;
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(after.len());
        let (packet, after) = after.split_at(length);
        rest = after;
        let direction = match length % 2 {
            0 => TapDirection::Sent,
            _ => TapDirection::Received,
        };
        for tap in &mut taps {
            tap.see(direction, ends, Tapped::Datagram(packet));
            match Packet::parse(packet) {
                Ok(Packet::Data(header)) => {
                    let body = &packet[weft_wire::shuttle::DATA_LEN..];
                    tap.see(direction, ends, Tapped::ShuttleData { header: &header, body });
                }
                Ok(Packet::Ctrl(header)) => {
                    let frames = &packet[weft_wire::shuttle::CTRL_LEN..];
                    tap.see(direction, ends, Tapped::ShuttleCtrl { header: &header, frames });
                }
                _ => tap.see(direction, ends, Tapped::ShuttleHello(packet)),
            }
        }
    }
}
