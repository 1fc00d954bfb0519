//! The bodies of the fuzz targets over small mutations of texts and packets that make sense.

#[path = "../../../fuzz/src/capture.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

use weft_wire::ddp::TaggedHeader;
use weft_wire::ids::STag;
use weft_wire::rdmap::Opcode;
use weft_wire::shuttle::frame::Frame;
use weft_wire::shuttle::{ConnectionId, CtrlHeader, DataHeader, PathId, StreamId};

#[test]
fn capture_spec() {
    let texts = ["out.pcapng", "out-%p.pcapng,size=10M,files=3", "x,qp=2,view=both", "x,files=1"];
    let seeds = texts.map(|text| text.as_bytes().to_vec());
    mutate::smoke("capture_spec", &seeds, 20_000, bodies::capture_spec);
}

/// A packet behind the octets of its length.
fn framed(packet: &[u8]) -> Vec<u8> {
    [&(packet.len() as u16).to_be_bytes()[..], packet].concat()
}

#[test]
fn capture_tap() {
    let (cid, path) = (ConnectionId(0x0102_0300), PathId(0));
    let ctrl = CtrlHeader { cid, path, pn: 7, phase: 0, ack_now: false };
    let tagged =
        TaggedHeader { last: true, control: Opcode::Write.control(), stag: STag(9), to: 4096 };
    let data = |dsn| {
        let header = DataHeader { ctrl, several: false, dsn, frontier: 0 };
        [&header.to_bytes()[..], &tagged.to_bytes(), b"payload"].concat()
    };
    let mut frames = ctrl.to_bytes().to_vec();
    Frame::Stream { stream: StreamId(0), frontier: 3 }.encode(&mut frames);
    Frame::Credit { stream: StreamId(0), limit: 5, wait_us: 640 }.encode(&mut frames);
    let packets = [framed(&data(0)), framed(&data(1)), framed(&frames)];
    let seeds = [packets.concat(), [&packets[2][..], &packets[0]].concat()];
    mutate::smoke("capture_tap", &seeds, 20_000, bodies::capture_tap);
}
