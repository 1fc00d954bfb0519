//! Rates, times, shares and sizes as people write them, the same in every command.
//!
//! Sizes are written as for iperf3: a number alone is of bytes, and `K`, `M`, `G`, also `KiB`,
//! `MiB`, `GiB`, are powers of 1024. `kB`, `MB`, `GB` are powers of 1000. Rates are written as for
//! `tc`: `kbit`, `mbit`, `gbit`, `tbit`, powers of 1000, with or without `/s`. Times need `ns`,
//! `us`, `ms`, `s` or `min`. Capitals do not matter anywhere: `1m` is a size of 1 MiB, and neither
//! a time nor a rate.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

use std::error::Error;
use std::fmt;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::str::FromStr;

#[cfg(feature = "serde")]
use serde::Serialize;

/// The convention, for the help of commands.
pub const CONVENTION: &str = "\
Sizes are in bytes, or with K, M, G (KiB, MiB, GiB) in powers of 1024, with kB, MB, GB
in powers of 1000. Rates have kbit, mbit, gbit or tbit, powers of 1000; times ns, us,
ms, s or min. Capitals do not matter.";

/// A rate in bits per second, as `tc` writes it: `10mbit`, `1.5gbit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(Serialize), serde(transparent))]
pub struct Bitrate(u64);

/// A probability.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(Serialize), serde(transparent))]
pub struct Share(f64);

/// A text that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {wanted}")]
pub struct Malformed {
    text: String,
    wanted: &'static str,
}

impl Malformed {
    /// `text` is not `wanted`, which begins with an article and has an example in it.
    pub fn new(text: &str, wanted: &'static str) -> Self {
        Self { text: text.to_owned(), wanted }
    }
}

/// An argument that cannot be followed, found after the parser had taken it. Commands end with
/// status 125 for it, as for what the parser refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WrongArgument(pub String);

/// What is wrong with the text of a number, for the user of a command: the standard library says it
/// in terms of its own types. None for an error that is not of a number.
pub fn number_fault(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if error.is::<ParseFloatError>() {
        return Some("not a number such as 2 or 0.5");
    }
    Some(match error.downcast_ref::<ParseIntError>()?.kind() {
        IntErrorKind::Zero => "the number is at least 1",
        IntErrorKind::PosOverflow => "the number is too large",
        _ => "not a whole number, 0 or more",
    })
}

/// Nanoseconds of a second.
pub const NS_PER_SEC: u64 = 1_000_000_000;

const RATES: [(&str, f64); 5] =
    [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("tbit", 1e12), ("bit", 1.0)];
const TIMES: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("min", 6e10), ("s", 1e9)];
const SIZES: [(&str, f64); 11] = [
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("b", 1.0),
    ("k", 1024.0),
    ("m", 1_048_576.0),
    ("g", 1_073_741_824.0),
    ("", 1.0),
];
const RATE: &str = "a rate such as 500kbit, 100mbit or 1.5gbit";
const TIME: &str = "a time such as 250us, 70ms or 2s";
const SHARE: &str = "a share such as 0.1%, from 0% to 100%";
const SIZE_U32: &str = "a size below 4 GiB";
const SIZE: &str = "a size such as 1500, 64K or 1MiB";
/// Beyond this nobody measures, and arithmetic in picoseconds would run over.
const RATE_BPS_MAX: f64 = 1e13;
const TIME_NS_MAX: f64 = 1e15;
const SIZE_BYTES_MAX: f64 = 1e13;

impl Bitrate {
    /// `bits_per_second`, at least 1.
    ///
    /// # Panics
    /// On a rate of zero: a link that carries nothing is an outage.
    pub fn new(bits_per_second: u64) -> Self {
        assert!(bits_per_second > 0, "a rate of zero is an outage");
        Self(bits_per_second)
    }

    /// Bits per second.
    pub fn bps(self) -> u64 {
        self.0
    }

    /// How much passes in `ns`, in bytes.
    pub fn bytes_in(self, ns: u64) -> u64 {
        let bytes = u128::from(self.0) * u128::from(ns) / (8 * u128::from(NS_PER_SEC));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// How long `bytes` take, in nanoseconds.
    pub fn ns_for(self, bytes: u64) -> u64 {
        let ns = u128::from(bytes) * 8 * u128::from(NS_PER_SEC) / u128::from(self.0);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

impl FromStr for Bitrate {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let plain = text.strip_suffix("/s").unwrap_or(text);
        let bps = scaled(plain, &RATES, RATE_BPS_MAX).filter(|bps| *bps >= 1.0);
        bps.map(|bps| Self(bps as u64)).ok_or_else(|| Malformed::new(text, RATE))
    }
}

impl fmt::Display for Bitrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
        write_scaled(f, self.0 as f64, &units, "bit/s")
    }
}

impl Share {
    /// Never.
    pub const NONE: Self = Self(0.0);

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

impl FromStr for Share {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let percent = text.strip_suffix('%').and_then(number);
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        percent.map(|percent| Self(percent / 100.0)).ok_or_else(|| Malformed::new(text, SHARE))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Shortest without the noise that a division by 100 leaves.
        write!(f, "{}%", (self.0 * 1e8).round() / 1e6)
    }
}

/// Reads a time, in nanoseconds.
///
/// # Errors
/// It is no time, or more than eleven days.
pub fn parse_time_ns(text: &str) -> Result<u64, Malformed> {
    let ns = scaled(text, &TIMES, TIME_NS_MAX);
    ns.map(|ns| ns as u64).ok_or_else(|| Malformed::new(text, TIME))
}

/// Reads a size, in bytes.
///
/// # Errors
/// It is no size, or more than ten terabytes.
pub fn parse_bytes(text: &str) -> Result<u64, Malformed> {
    let bytes = scaled(text, &SIZES, SIZE_BYTES_MAX);
    bytes.map(|bytes| bytes as u64).ok_or_else(|| Malformed::new(text, SIZE))
}

/// The same, of what is counted in 32 bits.
///
/// # Errors
/// It is no size, or 4 GiB or more.
pub fn parse_bytes_u32(text: &str) -> Result<u32, Malformed> {
    u32::try_from(parse_bytes(text)?).map_err(|_| Malformed::new(text, SIZE_U32))
}

/// A time for people, rounded to four digits or so: `1.235 s`.
pub fn show_time(ns: u64) -> String {
    Scaled(ns as f64, &[(1e9, "s"), (1e6, "ms"), (1e3, "us")], "ns").to_string()
}

/// A time that [`parse_time_ns`] reads as the same: `1234567us`.
pub fn show_time_exactly(ns: u64) -> String {
    let units = [("s", NS_PER_SEC), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
    let whole = units.into_iter().find(|(_, scale)| ns.is_multiple_of(*scale));
    let (unit, scale) = whole.unwrap_or(("ns", 1));
    format!("{}{unit}", ns / scale)
}

/// A size for people, rounded to four digits or so, in powers of 1000: `8.75 MB`.
pub fn show_bytes(bytes: u64) -> String {
    Scaled(bytes as f64, &[(1e9, "GB"), (1e6, "MB"), (1e3, "kB")], "B").to_string()
}

/// A size to the byte, as short as powers of 1024 make it: `64 KiB`.
pub fn show_bytes_exactly(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    whole.map_or(format!("{bytes} B"), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}

/// Reads a number without sign, exponent or infinity.
pub fn number(text: &str) -> Option<f64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if plain { text.parse().ok() } else { None }
}

fn scaled(text: &str, units: &[(&str, f64)], max: f64) -> Option<f64> {
    let text = text.to_ascii_lowercase();
    let found = units.iter().find_map(|(suffix, scale)| {
        let value = number(text.strip_suffix(suffix)?)?;
        Some((value * scale).round())
    });
    found.filter(|value| *value <= max)
}

struct Scaled<'a>(f64, &'a [(f64, &'a str)], &'a str);

impl fmt::Display for Scaled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(f, self.0, self.1, self.2)
    }
}

fn write_scaled(
    f: &mut fmt::Formatter<'_>,
    value: f64,
    units: &[(f64, &str)],
    smallest: &str,
) -> fmt::Result {
    let unit = units.iter().find(|(scale, _)| value >= *scale);
    let (scale, name) = unit.copied().unwrap_or((1.0, smallest));
    let rounded = (value / scale * 1000.0).round() / 1000.0;
    write!(f, "{rounded} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_numbers_are_in_words_for_users() {
        let whole = |text: &str| number_fault(&text.parse::<u8>().unwrap_err());
        assert_eq!(whole("x"), Some("not a whole number, 0 or more"));
        assert_eq!(whole("256"), Some("the number is too large"));
        let zero = "0".parse::<std::num::NonZeroU8>().unwrap_err();
        assert_eq!(number_fault(&zero), Some("the number is at least 1"));
        let part = "x".parse::<f64>().unwrap_err();
        assert_eq!(number_fault(&part), Some("not a number such as 2 or 0.5"));
        assert_eq!(number_fault(&Malformed::new("x", "a rate")), None);
    }

    #[test]
    fn units_are_read() {
        assert_eq!("1.5gbit".parse(), Ok(Bitrate::new(1_500_000_000)));
        assert_eq!("100Mbit/s".parse(), Ok(Bitrate::new(100_000_000)));
        assert_eq!("0.1%".parse(), Ok(Share::new(0.001)));
        assert_eq!(parse_time_ns("70ms"), Ok(70_000_000));
        assert_eq!(parse_time_ns("2min"), Ok(120_000_000_000));
        assert_eq!(parse_bytes("64KiB"), Ok(65536));
        assert_eq!(parse_bytes("1500B"), Ok(1500));
        for (text, bytes) in [("7", 7), ("64K", 65536), ("1m", 1 << 20), ("1MB", 1_000_000)] {
            assert_eq!(parse_bytes_u32(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in ["", "gbit", "0gbit", "-1gbit", "1e3mbit", "1gb", "99999tbit", "infbit"] {
            assert!(text.parse::<Bitrate>().is_err(), "{text}");
        }
        for text in ["", "%", "1", "101%", "-1%", "NaN%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        for text in ["", "ms", "70", "70m", "1..2s", "-5s", "inf s", "99999999s"] {
            assert!(parse_time_ns(text).is_err(), "{text}");
        }
        for text in ["", "K", "64X", "-1", "4G", "64 K", "99999999999", "é", "1ms", "1mbit"] {
            assert!(parse_bytes_u32(text).is_err(), "{text}");
        }
    }

    #[test]
    fn units_are_shown() {
        assert_eq!(Bitrate::new(1_500_000_000).to_string(), "1.5 Gbit/s");
        assert_eq!(Share::new(0.001).to_string(), "0.1%");
        assert_eq!(show_time(70_000_000), "70 ms");
        assert_eq!(show_bytes(8_750_000), "8.75 MB");
        let shown = [0, 7, 1024, 65536, 1 << 20, 3 << 29, 1025].map(show_bytes_exactly);
        assert_eq!(shown, ["0 B", "7 B", "1 KiB", "64 KiB", "1 MiB", "1536 MiB", "1025 B"]);
        for (text, ns) in [("5ms", 5_000_000), ("2s", 2_000_000_000), ("7us", 7_000), ("3ns", 3)] {
            assert_eq!((parse_time_ns(text), show_time_exactly(ns).as_str()), (Ok(ns), text));
        }
    }

    #[test]
    fn rate_time_and_size_agree() {
        let rate = Bitrate::new(1_000_000_000);
        assert_eq!(rate.bytes_in(70_000_000), 8_750_000);
        assert_eq!(rate.ns_for(8_750_000), 70_000_000);
    }
}
