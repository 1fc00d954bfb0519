//! SVG, an element a line.

use std::fmt::{self, Write};

/// The text of a picture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Svg(String);

impl Svg {
    /// A picture of this `width` and `height`, in points; the root has further `attributes`.
    pub fn new(width: f64, height: f64, attributes: &str) -> Self {
        let root = "<svg xmlns=\"http://www.w3.org/2000/svg\"";
        Self(format!("{root} viewBox=\"0 0 {width} {height}\" {attributes}>\n"))
    }

    /// Adds an element.
    pub fn put(&mut self, element: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{element}");
    }

    /// Adds `text` that starts, ends or has its middle at a place, as `anchor` says.
    pub fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let text = escape(text);
        let place = format_args!("x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"");
        self.put(format_args!("<text {place}>{text}</text>"));
    }

    /// Adds a line through `points`; its element has further `attributes`.
    pub fn line(&mut self, points: &[(f64, f64)], attributes: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        self.put(format_args!("<path {attributes} d=\"M{}\"/>", points.join("L")));
    }

    /// The elements by themselves, to be put into a picture.
    pub fn elements(&self) -> &str {
        &self.0
    }

    /// The whole picture.
    pub fn finish(self) -> String {
        self.0 + "</svg>\n"
    }
}

/// Text as it may stand in SVG and HTML, in attributes too.
pub fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}
