//! The packets of a connection as events of qlog.

use std::fmt::Write;
use std::sync::Arc;

use weft_wire::shuttle::frame::{Frame, Frames};
use weft_wire::shuttle::segments::PackedSegments;
use weft_wire::shuttle::{CtrlHeader, DATA_LEN, DataHeader};
use weft_wire::tap::{PacketTap, TapDirection, TapEnds, Tapped};

use crate::trace::EventTrace;

/// Sees the packets of one connection.
pub struct TraceTap {
    trace: Arc<EventTrace>,
    qp: u32,
    /// The beginning of the connection was told.
    has_begun: bool,
}

impl TraceTap {
    pub(crate) fn new(trace: Arc<EventTrace>, qp: u32) -> Self {
        Self { trace, qp, has_begun: false }
    }

    fn begin(&mut self, TapEnds { local, remote }: TapEnds) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        self.trace.event(
            Some(self.qp),
            "connectivity:connection_started",
            format_args!(
                "\"src_ip\":\"{}\",\"src_port\":{},\"dst_ip\":\"{}\",\"dst_port\":{}",
                local.ip().to_canonical(),
                local.port(),
                remote.ip().to_canonical(),
                remote.port()
            ),
        );
    }

    /// A packet with this header, of so many bytes, and with these frames.
    fn packet(&self, direction: TapDirection, header: &str, length: usize, frames: &str) {
        let name = match direction {
            TapDirection::Sent => "transport:packet_sent",
            TapDirection::Received => "transport:packet_received",
        };
        let data = format_args!(
            "\"header\":{{{header}}},\"raw\":{{\"length\":{length}}},\"frames\":[{frames}]"
        );
        self.trace.event(Some(self.qp), name, data);
    }
}

impl PacketTap for TraceTap {
    fn see(&mut self, direction: TapDirection, ends: Option<TapEnds>, what: Tapped<'_>) {
        if let Some(ends) = ends {
            self.begin(ends);
        }
        match what {
            Tapped::ShuttleHello(bytes) => {
                self.packet(direction, "\"packet_type\":\"initial\"", bytes.len(), "");
            }
            Tapped::ShuttleData { header, body } => {
                let frames = data_frames(header, body);
                let length = DATA_LEN + body.len();
                self.packet(direction, &header_of(&header.ctrl), length, &frames);
            }
            Tapped::ShuttleCtrl { header, frames } => {
                let length = weft_wire::shuttle::CTRL_LEN + frames.len();
                self.packet(direction, &header_of(header), length, &ctrl_frames(frames));
            }
            Tapped::Stream(bytes) | Tapped::Datagram(bytes) => {
                self.packet(direction, "\"packet_type\":\"unknown\"", bytes.len(), "");
            }
        }
    }
}

fn header_of(header: &CtrlHeader) -> String {
    let CtrlHeader { cid, path, pn, .. } = header;
    format!(
        "\"packet_type\":\"1RTT\",\"packet_number\":{pn},\"dcid\":\"{:08x}\",\"path\":{}",
        cid.0, path.0
    )
}

/// Segments are like frames of a stream, at offsets that count segments.
fn data_frames(header: &DataHeader, body: &[u8]) -> String {
    let mut frames = String::new();
    let segments = PackedSegments::parse(header.several, body).into_iter().flatten();
    for (i, segment) in segments.enumerate() {
        let (dsn, length) = (header.dsn.wrapping_add(i as u32), segment.len());
        let stream = header.ctrl.cid.stream().0;
        let separator = if i > 0 { "," } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(
            frames,
            "{separator}{{\"frame_type\":\"stream\",\"stream_id\":{stream},\
             \"offset\":{dsn},\"length\":{length}}}"
        );
    }
    frames
}

fn ctrl_frames(frames: &[u8]) -> String {
    let frames = Frames::new(frames).map_while(Result::ok);
    frames.map(|frame| frame_of(&frame)).collect::<Vec<_>>().join(",")
}

fn frame_of(frame: &Frame<'_>) -> String {
    let typed = |kind: &str, rest: String| format!("{{\"frame_type\":\"{kind}\"{rest}}}");
    // A frame that QUIC does not have is an unknown one to readers of qlog, with a name for ours.
    let own = |name: &str, rest: String| {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let number = bytes.first().copied().unwrap_or_default();
        typed("unknown", format!(",\"raw_frame_type\":{number},\"name\":\"{name}\"{rest}"))
    };
    match frame {
        Frame::Ping => typed("ping", String::new()),
        Frame::Ack(ack) => {
            let runs = ack.ranges.iter().map(|(first, last)| format!("[{first},{last}]"));
            let runs = runs.collect::<Vec<_>>().join(",");
            let delay_ms = ack.delay_us as f64 / 1e3;
            typed("ack", format!(",\"ack_delay\":{delay_ms},\"acked_ranges\":[{runs}]"))
        }
        Frame::Stream { stream, frontier } => {
            own("frontier", format!(",\"stream_id\":{},\"frontier\":{frontier}", stream.0))
        }
        Frame::Credit { stream, limit, wait_us } => own(
            "credit",
            format!(",\"stream_id\":{},\"limit\":{limit},\"wait_us\":{wait_us}", stream.0),
        ),
        Frame::Query { stream } => own("query", format!(",\"stream_id\":{}", stream.0)),
        Frame::Floor { path, pn } => {
            own("floor", format!(",\"path\":{},\"packet_number\":{pn}", path.0))
        }
        Frame::Challenge { .. } => typed("path_challenge", String::new()),
        Frame::Response { .. } => typed("path_response", String::new()),
        Frame::Close { reason } => typed("connection_close", format!(",\"error_code\":{reason}")),
        Frame::Closed => own("closed", String::new()),
        Frame::Rate { rate_bps, .. } => own("rate", format!(",\"rate_bps\":{rate_bps}")),
        Frame::Skip { dsn, .. } => own("skip", format!(",\"offset\":{dsn}")),
        Frame::Interval { interval_us, .. } => {
            own("interval", format!(",\"interval_us\":{interval_us}"))
        }
    }
}
