//! Any octets as a stream between two filters: no panic, what is read was framed so, and records
//! lie within their unit.

use frame::{HEADER, LONGEST, RECORD};

// Not by the crate, of which it is no one else's business.
#[allow(dead_code)]
#[path = "../../examples/filters/src/frame.rs"]
mod frame;

/// `data` as frames, one behind the other.
pub fn frames(data: &[u8]) {
    let (mut rest, mut buffer) = (data, Vec::new());
    let mut at = 0;
    while let Ok(kind) = frame::read(&mut rest, &mut buffer) {
        assert!(buffer.len() <= LONGEST);
        assert_eq!(buffer, data[at..at + buffer.len()]);
        at += buffer.len();
        let content = &buffer[HEADER..];
        assert_eq!(frame::frame(kind, content).expect("it was one"), buffer);
        let taken = frame::records(content).map_while(Result::ok);
        assert!(taken.map(|record| RECORD + record.len()).sum::<usize>() <= content.len());
    }
}
