//! What sees the packets of one connection, and has them written as what they stand for.

use std::sync::Arc;

use weft_wire::shuttle::frame::{Frame, Frames};
use weft_wire::shuttle::segments::PackedSegments;
use weft_wire::shuttle::{CtrlHeader, DataHeader, widen};
use weft_wire::tap::{PacketTap, TapDirection, TapEnds, Tapped};

use crate::exported::exported;
use crate::file::{CapturedPacket, PacketCapture};
use crate::ip::PacketPath;
use crate::iwarp::TcpConversation;
use crate::pcapng::LinkType;
use crate::roce::{RoceView, datagram};

/// The queue pair of a connection.
#[derive(Clone, Debug)]
pub struct CapturedQp {
    /// The name of its device.
    pub device: String,
    /// Its number, 24 bits.
    pub number: u32,
    /// Which of the process's queue pairs it is, from 1 on.
    pub ordinal: u32,
    /// Whether what it sends is acknowledged.
    pub is_reliable: bool,
}

/// Sees the packets of one connection.
pub struct CaptureTap {
    capture: Arc<PacketCapture>,
    device: String,
    /// The interface of Shuttle's packets as they are.
    shuttle: String,
    roce: RoceView,
    stream: Option<TcpConversation>,
}

impl CaptureTap {
    pub(crate) fn new(capture: Arc<PacketCapture>, qp: CapturedQp) -> Self {
        let CapturedQp { device, number, is_reliable, .. } = qp;
        let shuttle = format!("{device} (Shuttle)");
        let roce = RoceView::new(number, is_reliable);
        Self { capture, device, shuttle, roce, stream: None }
    }

    /// Says the number of the peer's queue pair. Until then packets name it by the connection id
    /// that the peer has chosen.
    pub fn set_peer(&mut self, number: u32) {
        self.roce.set_peer(number);
    }

    /// The connection is a stream of MPA between `ends`, which this end has asked for if it
    /// `calls`. The frames that began it are `start`: the Request and the Reply.
    pub fn begin_stream(&mut self, ends: TapEnds, calls: bool, start: [&[u8]; 2]) {
        let (conversation, opening) = TcpConversation::open(ends, calls);
        for (direction, packet) in &opening {
            self.put_ip(*direction, packet, "");
        }
        self.stream = Some(conversation);
        let directions = match calls {
            true => [TapDirection::Sent, TapDirection::Received],
            false => [TapDirection::Received, TapDirection::Sent],
        };
        for (direction, frame) in directions.into_iter().zip(start) {
            self.put_stream(direction, frame);
        }
    }

    fn put_ip(&self, direction: TapDirection, bytes: &[u8], comment: &str) {
        let interface = (self.device.as_str(), LinkType::Ip);
        self.capture.write(&CapturedPacket { interface, direction, bytes, comment });
    }

    fn put_stream(&mut self, direction: TapDirection, bytes: &[u8]) {
        let Some(stream) = &mut self.stream else { return };
        for packet in stream.carry(direction, bytes) {
            self.put_ip(direction, &packet, "");
        }
    }

    fn put_shuttle(&self, at: (TapDirection, PacketPath), packet: &[u8]) {
        if self.capture.spec().view.has_shuttle() {
            let (direction, bytes) = (at.0, &exported(at.1, packet));
            let interface = (self.shuttle.as_str(), LinkType::Exported);
            self.capture.write(&CapturedPacket { interface, direction, bytes, comment: "" });
        }
    }

    fn put_data(&mut self, at: (TapDirection, PacketPath), header: &DataHeader, body: &[u8]) {
        self.put_shuttle(at, &[&header.to_bytes()[..], body].concat());
        if !self.capture.spec().view.has_roce() {
            return;
        }
        self.roce.note_id(at.0, header.ctrl.cid);
        self.put_acknowledgement(at, |known| widen(header.frontier, known));
        let Ok(segments) = PackedSegments::parse(header.several, body) else { return };
        for (i, segment) in segments.enumerate() {
            let dsn = header.dsn.wrapping_add(i as u32);
            if let Some(packet) = self.roce.segment(at, dsn, segment) {
                self.put_ip(at.0, &packet.bytes, &about(at.0, &header.ctrl, packet.again));
            }
        }
    }

    fn put_ctrl(&mut self, at: (TapDirection, PacketPath), header: &CtrlHeader, frames: &[u8]) {
        self.put_shuttle(at, &[&header.to_bytes()[..], frames].concat());
        if !self.capture.spec().view.has_roce() {
            return;
        }
        self.roce.note_id(at.0, header.cid);
        for frame in Frames::new(frames).map_while(Result::ok) {
            match frame {
                Frame::Stream { frontier, .. } => self.put_acknowledgement(at, |_| frontier),
                Frame::Credit { wait_us, .. } => {
                    let packet = self.roce.not_ready(at, wait_us);
                    self.put_ip(at.0, &packet, "");
                }
                _ => {}
            }
        }
    }

    fn put_acknowledgement(
        &mut self,
        at: (TapDirection, PacketPath),
        frontier: impl FnOnce(u64) -> u64,
    ) {
        if let Some(packet) = self.roce.acknowledgement(at, frontier) {
            self.put_ip(at.0, &packet, "");
        }
    }
}

/// What there is to say of a segment that is not one of many.
fn about(direction: TapDirection, header: &CtrlHeader, again: bool) -> String {
    let what = match (again, direction) {
        (true, TapDirection::Sent) => "sent again",
        (true, TapDirection::Received) => "received again",
        (false, _) if header.path.0 == 0 => return String::new(),
        (false, _) => "sent",
    };
    format!("{what}: packet {} of path {}", header.pn, header.path.0)
}

impl PacketTap for CaptureTap {
    fn see(&mut self, direction: TapDirection, ends: Option<TapEnds>, what: Tapped<'_>) {
        if let Tapped::Stream(bytes) = what {
            return self.put_stream(direction, bytes);
        }
        let Some(TapEnds { local, remote }) = ends else { return };
        let path = match direction {
            TapDirection::Sent => PacketPath { from: local, to: remote },
            TapDirection::Received => PacketPath { from: remote, to: local },
        };
        let at = (direction, path);
        match what {
            Tapped::ShuttleHello(bytes) => self.put_shuttle(at, bytes),
            Tapped::ShuttleData { header, body } => self.put_data(at, header, body),
            Tapped::ShuttleCtrl { header, frames } => self.put_ctrl(at, header, frames),
            Tapped::Datagram(bytes) => {
                if let Some(packet) = datagram(path, bytes) {
                    self.put_ip(direction, &packet, "");
                }
            }
            Tapped::Stream(_) => {}
        }
    }
}

impl Drop for CaptureTap {
    fn drop(&mut self) {
        if let Some(stream) = &mut self.stream {
            let packet = stream.close();
            self.put_ip(TapDirection::Sent, &packet, "");
        }
    }
}
