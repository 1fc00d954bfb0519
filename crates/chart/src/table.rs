//! Tables in Markdown, with their columns aligned, so that they also read as text.

/// A table of `rows` under `head`; columns of numbers stand to the right.
pub fn markdown<H: AsRef<str>>(head: &[H], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].as_ref().chars().count(), 3]).max().unwrap_or(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let right: Vec<bool> = (0..head.len()).map(|column| is_numeric(rows, column)).collect();
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().zip(&widths).zip(&right);
        let padded = cells.map(|((cell, width), right)| match right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
    };
    let rules = widths.iter().zip(&right).map(|(width, right)| match right {
        true => format!("{}:", "-".repeat(width + 1)),
        false => "-".repeat(width + 2),
    });
    let mut table = line(head.iter().map(AsRef::as_ref).collect());
    table += &format!("|{}|\n", rules.collect::<Vec<_>>().join("|"));
    table.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    table
}

fn is_numeric(rows: &[Vec<String>], column: usize) -> bool {
    let numeric = |cell: &str| {
        let digits = cell.strip_prefix('.').unwrap_or(cell);
        cell.is_empty() || digits.starts_with(|c: char| c.is_ascii_digit())
    };
    !rows.is_empty() && rows.iter().all(|row| numeric(&row[column]))
}

/// A number with three digits that mean something.
pub fn number(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => String::from("-"),
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec![String::from("a"), String::from("1.5")], vec!["bcd".into(), ".10".into()]];
        let table = markdown(&["name", "x"], &rows);
        let expected = "\
| name |   x |
|------|----:|
| a    | 1.5 |
| bcd  | .10 |
";
        assert_eq!(table, expected);
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [1234.5, 45.67, 1.234, 0.12345, 0.0, f64::NAN].map(number);
        assert_eq!(shown, ["1234", "45.7", "1.23", "0.123", "0", "-"]);
    }
}
