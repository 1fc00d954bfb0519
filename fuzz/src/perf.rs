//! Any octets as a line of `weft perf`: no panic, and what is understood reads as itself again.

use weft_perf::control::ControlMessage;

/// `data` as a line; a test in it is checked too.
pub fn perf_control(data: &[u8]) {
    let Ok(message) = ControlMessage::parse(data) else { return };
    if let ControlMessage::Test { test } = &message
        && test.check().is_ok()
    {
        assert!(test.list() <= test.receives() && test.receives() <= test.depth);
        assert!(test.region_bytes() * test.ends().len() <= 2 << 30);
    }
    let line = message.line();
    let again = ControlMessage::parse(&line[..line.len() - 1]).expect("what it said itself");
    assert_eq!(again, message);
}
