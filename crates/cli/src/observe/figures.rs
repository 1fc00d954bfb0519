//! Numbers as people read them, three digits each, and tables of them.

use std::fmt::Write;

/// `value` with three digits and a prefix of a thousand's power: `1.23M`.
pub fn scaled(value: f64) -> String {
    let prefixes = ["", "k", "M", "G", "T", "P"];
    // The sum turns -0.0, which an empty sum is, into 0.0.
    let mut scaled = value.max(0.0) + 0.0;
    for (place, prefix) in prefixes.iter().enumerate() {
        if scaled < 999.5 || place + 1 == prefixes.len() {
            let digits = match scaled {
                _ if place == 0 && scaled.fract() == 0.0 => 0,
                ..9.995 => 2,
                ..99.95 => 1,
                _ => 0,
            };
            return format!("{scaled:.digits$}{prefix}");
        }
        scaled /= 1000.0;
    }
    String::new()
}

/// A time in nanoseconds; `-` for one that is not known.
pub fn time(ns: u64) -> String {
    match ns {
        0 => "-".to_owned(),
        1..1_000_000 => format!("{}us", scaled(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{}ms", scaled(ns as f64 / 1e6)),
        _ => format!("{}s", scaled(ns as f64 / 1e9)),
    }
}

/// A share of a whole as a percentage; `-` if there is no whole.
pub fn share(part: u64, whole: u64) -> String {
    match (part, whole) {
        (_, 0) => "-".to_owned(),
        (0, _) => "0%".to_owned(),
        _ => format!("{:.2}%", 100.0 * part as f64 / whole as f64),
    }
}

/// Rows below a heading, in columns as wide as their cells; those of `left` begin at the left.
pub fn table<const N: usize>(heading: [&str; N], left: &[usize], rows: &[[String; N]]) -> String {
    let mut widths = heading.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&heading.map(String::from)).chain(rows) {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let _ = match left.contains(&column) {
                true => write!(line, "{cell:<width$}  "),
                false => write!(line, "{cell:>width$}  "),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let cases = [(0.0, "0"), (7.0, "7"), (1234.0, "1.23k"), (999_600.0, "1.00M")];
        for (value, text) in cases {
            assert_eq!(scaled(value), text);
        }
        assert_eq!([time(0), time(12_300), time(70_000_000)], ["-", "12.3us", "70ms"]);
        assert_eq!([share(1, 0), share(0, 5), share(1, 400)], ["-", "0%", "0.25%"]);
    }

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let rows = [["a".to_owned(), "10".to_owned()], ["long".to_owned(), "5".to_owned()]];
        assert_eq!(table(["X", "N"], &[0], &rows), "X      N\na     10\nlong   5\n");
    }
}
