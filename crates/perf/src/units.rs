//! Sizes as people write them.

use anyhow::{Context, Result};

/// Reads `64`, `64K`, `1M` or `1G`; the letters are powers of 1024.
///
/// # Errors
/// It is none of these, or does not fit.
pub fn parse_octets(text: &str) -> Result<u32> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => Some(0),
        "k" | "kib" => Some(10),
        "m" | "mib" => Some(20),
        "g" | "gib" => Some(30),
        _ => None,
    };
    let octets = digits.parse::<u32>().ok().zip(shift);
    let octets = octets.and_then(|(number, shift)| number.checked_mul(1 << shift));
    octets.with_context(|| format!("{text} is no size such as 64, 64K or 1M"))
}

/// A size as short as it can be written.
pub fn show_octets(octets: u32) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole =
        units.into_iter().find(|(shift, _)| octets > 0 && octets.is_multiple_of(1 << shift));
    whole.map_or(format!("{octets} B"), |(shift, unit)| format!("{} {unit}", octets >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let cases = [("7", 7), ("64K", 65536), ("1m", 1 << 20), ("1GiB", 1 << 30), ("0", 0)];
        for (text, octets) in cases {
            assert_eq!(parse_octets(text).unwrap(), octets);
        }
        for wrong in ["", "K", "64X", "-1", "4G", "1.5K", "64 K", "99999999999", "é"] {
            assert!(parse_octets(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_shown() {
        let shown = [0, 7, 1024, 65536, 1 << 20, 3 << 29, 1025].map(show_octets);
        assert_eq!(shown, ["0 B", "7 B", "1 KiB", "64 KiB", "1 MiB", "1536 MiB", "1025 B"]);
    }
}
