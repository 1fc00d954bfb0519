//! Errors and statuses by name, and the times and shares that a fault may have.

use weft_units::{NS_PER_SEC, Share, parse_time_ns};

use crate::Status;

/// An hour: no test waits longer.
const TIME_NS_MAX: u64 = 3_600 * NS_PER_SEC;

/// What calls of the verbs fail with; the numbers are those of Linux on every machine.
const ERRNOS: [(&str, i32); 8] = [
    ("EPERM", 1),
    ("EIO", 5),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EFAULT", 14),
    ("EBUSY", 16),
    ("EINVAL", 22),
    ("EOPNOTSUPP", 95),
];

/// The values of `enum ibv_wc_status` that a request can end with.
pub const STATUSES: [(&str, u32); 10] = [
    ("loc-len", 1),
    ("loc-qp-op", 2),
    ("loc-prot", 4),
    ("flush", 5),
    ("rem-inv-req", 9),
    ("rem-access", 10),
    ("rem-op", 11),
    ("retry-exc", 12),
    ("rnr-retry-exc", 13),
    ("fatal", 19),
];

/// What a request whose peer is lost ends with.
pub const RETRY_EXC: Status = Status { code: 12, name: "retry-exc" };

/// The error of what has no memory.
pub const ENOMEM: i32 = 12;
/// Every kind of object.
pub const ANY: &str = "any";

/// A number of 16 bits, decimal or hexadecimal with `0x`.
pub fn short(text: &str) -> Option<u16> {
    match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A number of a queue pair: 24 bits, decimal or hexadecimal with `0x`.
pub fn qpn(text: &str) -> Option<u32> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    number.filter(|number| *number < 1 << 24)
}

/// A name of a device or process, or a glob: no separator of a plan is in it.
pub fn name(text: &str) -> Option<String> {
    let separates = |letter: char| letter.is_whitespace() || ",;:=".contains(letter);
    (!text.is_empty() && !text.contains(separates)).then(|| text.to_owned())
}

/// A probability in percent.
pub fn share(text: &str) -> Option<Share> {
    text.parse().ok()
}

/// A time of at most an hour, in nanoseconds.
pub fn time_ns(text: &str) -> Option<u64> {
    parse_time_ns(text).ok().filter(|ns| *ns <= TIME_NS_MAX)
}

/// An error by its name.
pub fn errno(text: &str) -> Option<i32> {
    ERRNOS.iter().find(|(name, _)| *name == text).map(|(_, number)| *number)
}

/// The name of an error that [`errno`] knows.
pub fn show_errno(errno: i32) -> &'static str {
    ERRNOS.iter().find(|(_, number)| *number == errno).map_or("", |(name, _)| name)
}

/// A status by its name.
pub fn status(text: &str) -> Option<Status> {
    let found = STATUSES.iter().find(|(name, _)| *name == text);
    found.map(|(name, code)| Status { code: *code, name })
}

/// The names of all errors.
pub fn errnos() -> String {
    ERRNOS.map(|(name, _)| name).join(", ")
}

/// The names of all statuses.
pub fn statuses() -> String {
    STATUSES.map(|(name, _)| name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_shown() {
        for (name, number) in ERRNOS {
            assert_eq!((errno(name), show_errno(number)), (Some(number), name));
        }
        for (name, code) in STATUSES {
            assert_eq!(status(name), Some(Status { code, name }));
        }
        assert_eq!(status("retry-exc"), Some(RETRY_EXC));
    }

    #[test]
    fn other_words_are_not() {
        assert_eq!((share("101%"), time_ns("5"), time_ns("61min")), (None, None, None));
        assert_eq!((errno("enomem"), status("success")), (None, None));
        assert_eq!((short("0x8001"), short("65536"), qpn("0x1000000")), (Some(0x8001), None, None));
        assert_eq!((name("ib_*"), name("a b"), name("")), (Some("ib_*".into()), None, None));
    }
}
