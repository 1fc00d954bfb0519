//! How much room a text takes, and its division into lines.
//!
//! Who draws a picture does not know the font of who looks at it. So widths are those of DejaVu
//! Sans, the widest of the usual fonts of interfaces, rounded up: a text that has room by these has
//! room with every other.

/// Letters by their width in ems, each class as wide as its widest.
const CLASSES: [(&str, f64); 7] = [
    (" ijlIJ',.", 0.32),
    ("/:;|\\f-()[]t!r", 0.42),
    ("\"*_`sz?cLFkvxyPTYaoe", 0.62),
    ("ESbdghnpqu$0123456789{}", 0.64),
    ("KAVBRXZC", 0.7),
    ("UHNDG&OQ", 0.79),
    ("w#+<=>^~M", 0.86),
];
/// Width of the other ASCII letters, in ems.
const WIDEST: f64 = 1.0;
/// Width of a letter of another script, in ems.
const FOREIGN: f64 = 1.35;
/// How much wider a bold text is, at most.
const BOLD: f64 = 1.26;
/// The end of a text that was cut.
const CUT: char = '…';

/// Width of a text in a font of `font` points, in points: an upper bound.
pub fn text_width(text: &str, font: f64) -> f64 {
    text.chars().map(letter).sum::<f64>() * font
}

/// As [`text_width`], of a bold text.
pub fn bold_width(text: &str, font: f64) -> f64 {
    text_width(text, font) * BOLD
}

fn letter(c: char) -> f64 {
    if !c.is_ascii() {
        return FOREIGN;
    }
    CLASSES.iter().find(|(class, _)| class.contains(c)).map_or(WIDEST, |(_, width)| *width)
}

/// A text in lines of `width` points at most, divided at spaces, or within a word that is longer.
/// A line has one letter or more, however narrow it is.
pub fn wrap(text: &str, font: f64, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let room = |line: &String| width - text_width(line, font) - text_width(" ", font);
        if let Some(line) = lines.last_mut()
            && text_width(word, font) <= room(line)
        {
            line.push(' ');
            line.push_str(word);
            continue;
        }
        lines.push(String::new());
        for c in word.chars() {
            let line = lines.last().map_or("", String::as_str);
            if !line.is_empty() && text_width(line, font) + letter(c) * font > width {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                line.push(c);
            }
        }
    }
    lines
}

/// As [`wrap`], of a bold text.
pub fn wrap_bold(text: &str, font: f64, width: f64) -> Vec<String> {
    wrap(text, font * BOLD, width)
}

/// A text, or as much of its beginning as `width` has room for.
pub fn shorten(text: &str, font: f64, width: f64) -> String {
    if text_width(text, font) <= width {
        return text.to_owned();
    }
    let mut room = width - letter(CUT) * font;
    let fits = |c: &char| {
        room -= letter(*c) * font;
        room >= 0.0
    };
    let start: String = text.chars().take_while(fits).collect();
    start + &CUT.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_divided_at_its_spaces_and_long_words_anywhere() {
        let width = text_width("kernel TCP,", 15.0);
        assert_eq!(wrap("kernel TCP, BBR", 15.0, width), ["kernel TCP,", "BBR"]);
        let lines = wrap("a mmmmmmmmmmmmmmmm", 15.0, 50.0);
        assert_eq!(lines, ["a", "mmm", "mmm", "mmm", "mmm", "mmm", "m"]);
        assert_eq!(wrap("mm", 15.0, 1.0), ["m", "m"], "a letter a line in no room at all");
        assert!(wrap(" ", 15.0, 50.0).is_empty());
    }

    #[test]
    fn a_text_without_room_ends_early_and_says_so() {
        assert_eq!(shorten("10gbit", 15.0, 60.0), "10gbit");
        let cut = shorten("a name that is long", 15.0, 80.0);
        assert!(cut.starts_with("a na") && cut.ends_with('…'), "{cut}");
        assert!(text_width(&cut, 15.0) <= 80.0);
    }
}
