//! Any octets as packets of Shuttle: no panic, and what parses comes back when it is encoded.

use weft_wire::crc::Crc32c;
use weft_wire::shuttle::frame::{Frame, Frames};
use weft_wire::shuttle::greeting::Greeting;
use weft_wire::shuttle::hello::Hello;
use weft_wire::shuttle::segments::{PackedSegments, put_table};
use weft_wire::shuttle::{CTRL_LEN, DATA_LEN, Packet};

/// `data` as a datagram; a handshake packet with its checksum put right.
pub fn packet(data: &[u8]) {
    match Packet::parse(data) {
        Ok(Packet::Data(header)) => {
            assert_eq!(Packet::parse(&header.to_bytes()), Ok(Packet::Data(header)));
            segments(header.several, &data[DATA_LEN..]);
        }
        Ok(Packet::Ctrl(header)) => {
            assert_eq!(Packet::parse(&header.to_bytes()), Ok(Packet::Ctrl(header)));
            frames(&data[CTRL_LEN..]);
        }
        Ok(Packet::Hello { kind, to }) => {
            let Some((covered, _)) = data.split_last_chunk::<4>() else { return };
            let data = [covered, &Crc32c::of(covered)].concat();
            let Ok(hello) = Hello::parse(&data) else { return };
            assert_eq!((hello.kind, hello.to), (kind, to));
            assert_eq!(Hello::parse(&hello.encode()), Ok(hello));
            greeting(hello.private_data);
        }
        Err(_) => assert!(Hello::parse(data).is_err()),
    }
}

/// `data` as the segments of a data packet.
fn segments(several: bool, data: &[u8]) {
    let Ok(segments) = PackedSegments::parse(several, data) else { return };
    let lengths: Vec<u16> = segments.clone().map(|segment| segment.len() as u16).collect();
    let mut octets: Vec<u8> = segments.flatten().copied().collect();
    put_table(&lengths, |part| octets.extend_from_slice(part));
    assert_eq!(octets, data);
    assert!(!several || lengths.len() > 1);
}

/// `data` as private data of the handshake.
fn greeting(data: &[u8]) {
    if let Some(greeting) = Greeting::parse(data) {
        assert_eq!(Greeting::parse(&greeting.encode()), Some(greeting));
    }
}

/// `data` as the frames of a control packet.
pub fn frames(data: &[u8]) {
    for frame in Frames::new(data).map_while(Result::ok) {
        let mut octets = Vec::new();
        frame.encode(&mut octets);
        let mut again = Frames::new(&octets);
        assert_eq!(again.next(), Some(Ok(frame)));
        assert_eq!(again.next(), None);
        if let Frame::Ack(ack) = frame {
            let mut below = ack.ranges.top + 1;
            for (first, last) in ack.ranges.iter() {
                assert!(first <= last && last < below && ack.largest >= last);
                below = first;
            }
        }
    }
}
