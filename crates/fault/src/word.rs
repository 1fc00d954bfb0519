//! Times, shares, errors and statuses as people write them.

use std::fmt;

use crate::Status;

/// A probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(f64);

impl Share {
    /// `probability` of 1.
    ///
    /// # Panics
    /// Outside 0 to 1.
    pub fn new(probability: f64) -> Self {
        assert!((0.0..=1.0).contains(&probability), "{probability} is no probability");
        Self(probability)
    }

    /// From 0 to 1.
    pub fn probability(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Shortest without the noise that a division by 100 leaves.
        write!(f, "{}%", (self.0 * 1e8).round() / 1e6)
    }
}

const TIMES: [(&str, u64); 5] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("min", 60_000_000_000), ("s", 1_000_000_000)];
/// An hour: no test waits longer.
const TIME_NS_MAX: f64 = 3.6e12;

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
const STATUSES: [(&str, u32); 10] = [
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

/// A probability in percent.
pub fn share(text: &str) -> Option<Share> {
    let percent = text.strip_suffix('%').and_then(number);
    percent.filter(|percent| *percent <= 100.0).map(|percent| Share(percent / 100.0))
}

/// A time, in nanoseconds.
pub fn time_ns(text: &str) -> Option<u64> {
    let found = TIMES.iter().find_map(|(suffix, scale)| {
        let value = number(text.strip_suffix(suffix)?)?;
        Some((value * *scale as f64).round())
    });
    found.filter(|ns| *ns <= TIME_NS_MAX).map(|ns| ns as u64)
}

/// A time that [`time_ns`] reads as the same.
pub fn show_time(ns: u64) -> String {
    let whole = |scale: u64| ns.is_multiple_of(scale).then(|| ns / scale);
    let unit = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let found = unit.iter().find_map(|(name, scale)| Some(format!("{}{name}", whole(*scale)?)));
    found.unwrap_or_else(|| format!("{ns}ns"))
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

/// A number without sign, exponent or infinity.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_shown() {
        assert_eq!(share("0.1%"), Some(Share(0.001)));
        assert_eq!(share("0.1%").unwrap().to_string(), "0.1%");
        for (text, ns) in [("5ms", 5_000_000), ("2s", 2_000_000_000), ("7us", 7_000), ("3ns", 3)] {
            assert_eq!((time_ns(text), show_time(ns).as_str()), (Some(ns), text));
        }
        assert_eq!(time_ns("1.5ms"), Some(1_500_000));
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
        for text in ["", "%", "1", "101%", "-1%", "NaN%", "1e1%"] {
            assert_eq!(share(text), None, "{text}");
        }
        for text in ["", "s", "5", "-5s", "inf s", "999min", "1..2s"] {
            assert_eq!(time_ns(text), None, "{text}");
        }
        assert_eq!((errno("enomem"), status("success")), (None, None));
    }
}
