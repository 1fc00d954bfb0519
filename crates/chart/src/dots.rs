//! Values by category: below the name of each a line for each series, with its mark, its name and
//! its value.

use crate::picture::{ChartPart, EDGE, FONT, LINE};
use crate::text::{text_width, wrap, wrap_bold};
use crate::{ChartAxis, SeriesLook, Span, Svg, number, range, wants_log};

/// Where the values begin, in points.
const LEFT: f64 = 16.0;
/// Right of the greatest value, in points.
const RIGHT: f64 = 24.0;
/// Between a mark, or its range, and its text, in points.
const BESIDE: f64 = 10.0;
/// Height of a mark below its text, in points.
const MARK: f64 = 16.0;
/// Between two categories, in points.
const BETWEEN: f64 = 6.0;

/// A value of a category.
#[derive(Clone, Debug)]
pub struct DotRow {
    /// Name of its series.
    pub name: String,
    /// Look of its series.
    pub look: SeriesLook,
    /// The middle, the least and the greatest value.
    pub values: [f64; 3],
}

/// A category: its name and its values.
pub type DotGroup = (String, Vec<DotRow>);

/// A chart of categories.
#[derive(Clone, Debug)]
pub struct DotChart {
    /// Quantity and unit.
    pub value: String,
    /// Whether the axis is logarithmic where it can be, as it is where it would crowd most of the
    /// values.
    pub log: bool,
    /// The categories from top to bottom.
    pub groups: Vec<DotGroup>,
}

impl DotChart {
    /// The chart in a picture of that `width`, in points.
    pub fn draw(&self, width: f64) -> ChartPart {
        let finite = |row: &&DotRow| row.values.iter().all(|value| value.is_finite());
        let rows = || self.groups.iter().flat_map(|(_, rows)| rows).filter(finite);
        let middles: Vec<f64> = rows().map(|row| row.values[0]).collect();
        let all: Vec<f64> = rows().flat_map(|row| row.values).collect();
        let span = Span { from: LEFT, to: width - RIGHT };
        let axis = ChartAxis::of_values(&all, self.log || wants_log(&middles), span);
        let (mut body, mut y) = (Svg::default(), BETWEEN);
        for (name, rows) in &self.groups {
            let lines = wrap_bold(name, FONT, width - LEFT - EDGE);
            body.bold(|body| body.lines(LEFT, y + 15.0, "start", &lines));
            y += lines.len() as f64 * LINE;
            for row in rows.iter().filter(finite) {
                y += row.draw(&mut body, &axis, width, y);
            }
            y += BETWEEN;
        }
        let mut svg = Svg::default();
        for label in axis.labels_across(FONT, [EDGE, width - EDGE]) {
            svg.put(format_args!("<path class=\"g\" d=\"M{:.1} {BETWEEN}V{y:.1}\"/>", label.at));
            svg.text(label.middle, y + 20.0, "middle", &label.text);
        }
        let value = wrap(&axis.label(&self.value), FONT, span.to - EDGE);
        svg.lines(span.to, y + 38.0, "end", &value);
        svg.put(format_args!("{}", body.elements()));
        ChartPart { svg, height: y + 28.0 + value.len() as f64 * LINE }
    }
}

impl DotRow {
    /// Draws the row below `y`; gives its height. The text stands right of the mark, or left of it,
    /// or above where neither has room.
    fn draw(&self, svg: &mut Svg, axis: &ChartAxis, width: f64, y: f64) -> f64 {
        let [middle, low, high] = self.values;
        let text = format!("{} {}", self.name, number(middle));
        let (from, to) = range([low, middle, high].into_iter().map(|value| axis.at(value)));
        let room = text_width(&text, FONT) + BESIDE + EDGE;
        let beside = match () {
            () if to + room <= width => Some((to + BESIDE, "start")),
            () if from - room >= 0.0 => Some((from - BESIDE, "end")),
            () => None,
        };
        let (at, height) = if let Some((x, anchor)) = beside {
            svg.text(x, y + LINE / 2.0 + 5.0, anchor, &text);
            (y + LINE / 2.0, LINE)
        } else {
            let lines = wrap(&text, FONT, width - 2.0 * EDGE);
            let half = |line: &String| text_width(line, FONT) / 2.0;
            let half = lines.iter().map(half).fold(0.0, f64::max) + EDGE;
            let x = axis.at(middle).min(width - half).max(half);
            svg.lines(x, y + 15.0, "middle", &lines);
            let above = lines.len() as f64 * LINE;
            (y + above + MARK / 2.0, above + MARK)
        };
        self.look.whisker(svg, (axis.at(low), at), (axis.at(high), at));
        self.look.mark(svg, axis.at(middle), at);
        height
    }
}
