//! What the demonstration prints: lines, bars, and one line that is rewritten while something runs.
//!
//! Nothing is printed under `--json`. Without a terminal, under `--plain` or with `NO_COLOR` there
//! are neither colours nor lines that are rewritten.

use std::io::{self, IsTerminal, Write};

use weft_chart::number;

use super::act::DemoNumber;

/// Where the acts show what they find.
#[derive(Clone, Debug)]
pub struct DemoScreen {
    is_silent: bool,
    is_live: bool,
}

/// Columns of the longest bar.
const BAR: usize = 30;
/// Columns of a label.
const LABEL: usize = 31;

const BOLD: &str = "1";
const WEFT: &str = "36";
const PEER: &str = "90";

impl DemoScreen {
    /// A screen on stdout.
    pub fn new(plain: bool, json: bool) -> Self {
        let may_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let is_live = !plain && !json && may_colour && io::stdout().is_terminal();
        Self { is_silent: json, is_live }
    }

    /// Whether lines may be rewritten.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Prints a line.
    pub fn line(&mut self, text: &str) {
        if !self.is_silent {
            // Whoever read it has had enough.
            let _ = writeln!(io::stdout(), "{text}");
        }
    }

    /// Prints the head of a part.
    pub fn title(&mut self, text: &str) {
        self.line(&self.paint(BOLD, text));
    }

    /// Prints a bar; the longest of its group has the value `longest`.
    pub fn bar(&mut self, number: &DemoNumber, longest: f64) {
        let line = self.bar_line(number, longest);
        self.line(&line);
    }

    /// Shows a bar that another one will replace, where that is possible.
    pub fn live_bar(&self, number: &DemoNumber, longest: f64) {
        if self.is_live {
            let mut out = io::stdout();
            let _ = write!(out, "\r{}\x1b[K", self.bar_line(number, longest));
            let _ = out.flush();
        }
    }

    /// Removes what was shown live.
    pub fn clear_live(&self) {
        if self.is_live {
            let _ = write!(io::stdout(), "\r\x1b[K");
        }
    }

    fn bar_line(&self, shown: &DemoNumber, longest: f64) -> String {
        let part = shown.value.unwrap_or(0.0) / longest.max(f64::MIN_POSITIVE);
        let full = ((part * BAR as f64).round() as usize).min(BAR);
        let colour = if shown.is_weft { WEFT } else { PEER };
        let block = if self.is_live { "█" } else { "#" };
        let bar = self.paint(colour, &block.repeat(full));
        let gap = " ".repeat(BAR - full);
        let value = shown.value.map_or_else(|| String::from("-"), number);
        let note = if shown.note.is_empty() { "" } else { "  " };
        let DemoNumber { label, unit, note: said, .. } = shown;
        format!("   {label:<LABEL$} {value:>6} {unit:<6} {bar}{gap}{note}{said}").trim_end().into()
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.is_live && !text.is_empty() {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_to_scale_and_plain_ones_are_ascii() {
        let screen = DemoScreen { is_silent: false, is_live: false };
        let (group, label) = ("g", String::from("a"));
        let mut shown = DemoNumber {
            group,
            label,
            unit: "us",
            value: Some(5.0),
            is_weft: true,
            note: String::new(),
        };
        let line = screen.bar_line(&shown, 10.0);
        assert_eq!(line.matches('#').count(), BAR / 2, "{line}");
        assert!(line.is_ascii() && line.contains("5.00 us"), "{line}");
        shown.value = None;
        shown.note = "not done".into();
        let line = screen.bar_line(&shown, 10.0);
        assert!(!line.contains('#') && line.ends_with("not done"), "{line}");
        shown.value = Some(1e9);
        assert_eq!(screen.bar_line(&shown, 10.0).matches('#').count(), BAR);
    }
}
