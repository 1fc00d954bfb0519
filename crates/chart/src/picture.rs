//! A picture of one or more charts, in a page or in a file of its own.

use crate::text::wrap_bold;
use crate::{Svg, escape, style};

/// Size of the text of pictures, in points.
pub const FONT: f64 = 15.0;
/// Height of a line of text, in points.
pub(crate) const LINE: f64 = 20.0;
/// Room between a text and the edge of the picture, in points.
pub(crate) const EDGE: f64 = 4.0;

/// Where a picture stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureKind {
    /// In a page, which has its title as a heading and [`style`] among its rules.
    Page,
    /// In a file by itself, which has both.
    File,
}

/// A drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing {
    /// The text of its file.
    pub svg: String,
    /// Its width and height, in points.
    pub size: [f64; 2],
}

/// What a chart has drawn, and its height in points.
#[derive(Clone, Debug)]
pub struct ChartPart {
    pub(crate) svg: Svg,
    pub(crate) height: f64,
}

impl ChartPart {
    /// A picture of the chart, `width` points wide, that is called `title`.
    pub fn picture(&self, title: &str, width: f64, kind: PictureKind) -> Drawing {
        let lines = match kind {
            PictureKind::Page => Vec::new(),
            PictureKind::File => wrap_bold(title, FONT, width - 2.0 * EDGE),
        };
        let head = if lines.is_empty() { 0.0 } else { lines.len() as f64 * LINE + 10.0 };
        let title = escape(title);
        let height = head + self.height;
        // The same figure may stand in a page twice, so it is named without an id.
        let root = format!("role=\"img\" aria-label=\"{title}\" class=\"chart\"");
        let mut svg = Svg::new(width, height, &root);
        svg.put(format_args!("<title>{title}</title>"));
        if kind == PictureKind::File {
            svg.put(format_args!("<style>{}</style>", style()));
        }
        svg.put(format_args!("<rect class=\"p\" width=\"100%\" height=\"100%\"/>"));
        svg.bold(|svg| svg.lines(EDGE, 19.0, "start", &lines));
        svg.part(head, self);
        Drawing { svg: svg.finish(), size: [width, height] }
    }
}

impl Svg {
    /// Adds lines of text one below the other, the first at `y`.
    pub(crate) fn lines(&mut self, x: f64, y: f64, anchor: &str, lines: &[String]) {
        for (number, line) in lines.iter().enumerate() {
            self.text(x, y + number as f64 * LINE, anchor, line);
        }
    }

    /// Adds texts that are bold.
    pub(crate) fn bold(&mut self, texts: impl FnOnce(&mut Self)) {
        self.put(format_args!("<g font-weight=\"600\">"));
        texts(self);
        self.put(format_args!("</g>"));
    }

    /// Adds what a chart has drawn, `y` points from the top.
    pub(crate) fn part(&mut self, y: f64, part: &ChartPart) {
        let elements = part.svg.elements();
        self.put(format_args!("<g transform=\"translate(0 {y:.1})\">\n{elements}</g>"));
    }
}
