//! What `weft run --stats` counted of a program.

use crate::running::Ended;

/// The numbers of one device in the line that `weft run --stats` ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Connections that were made.
    pub connections: u64,
    /// Operations that the application posted.
    pub operations: u64,
    /// Bytes of payload sent.
    pub sent_bytes: u64,
    /// Bytes of payload received.
    pub received_bytes: u64,
}

impl Traffic {
    /// What was counted of `device`.
    ///
    /// # Panics
    /// When the program has not been run with `--stats`, or has not opened the device.
    pub fn of(ended: &Ended, device: &str) -> Self {
        let line = ended.stderr.lines().find(|line| line.starts_with("weft: weft"));
        let line = line.unwrap_or_else(|| panic!("no line from {ended}"));
        let part = line["weft: ".len()..].split("; ").find(|part| part.starts_with(device));
        let part = part.and_then(|part| part.split_once(": "));
        let (_, part) = part.unwrap_or_else(|| panic!("no {device} in {line}"));
        let number = |item: &str| item.split(' ').next().and_then(|word| word.parse().ok());
        let numbers: Vec<u64> = part.split(", ").filter_map(number).collect();
        let [connections, operations, sent_bytes, received_bytes] = numbers[..] else {
            panic!("four numbers are expected in {line}");
        };
        Self { connections, operations, sent_bytes, received_bytes }
    }
}
