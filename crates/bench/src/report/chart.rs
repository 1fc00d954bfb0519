//! Figures as SVG that stands alone: light or dark as its reader has it, and with marks, dashes and
//! labels that tell curves apart without colours.
//!
//! `weft sim` draws courses over time; here are points over sizes, delays and names, with the range
//! of each over the rounds. A page has each figure twice, as wide as a desk's column and as narrow
//! as a phone, since text in SVG is not wrapped.

use weft_chart::{ChartAxis, SeriesLook, Span, Svg, escape, range, spread, style, wants_log};

use crate::figure::{Figure, FigureCurve, FigurePoint, Scale};
use crate::reading::{Readings, Series};

/// Size of the text, in points.
const FONT: u32 = 15;
/// Mean width of a letter of that size, in points.
const LETTER: f64 = 7.6;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 30.0;
/// Below the chart: the places and the name of the axis.
const FOOT: f64 = 48.0;
/// Height of the title of a file.
const TITLE: f64 = 30.0;
/// Height of a line of text.
const LINE: f64 = 20.0;
/// Curves that are narrower than this cannot be read.
const PLOT_MIN: f64 = 260.0;

/// How wide a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureWidth {
    /// The column of a page on a desk.
    Column,
    /// A phone.
    Phone,
    /// A file by itself, which is scaled to either.
    File,
}

impl FigureWidth {
    /// Width of the picture and height of its curves, in points.
    fn size(self) -> (f64, f64) {
        match self {
            Self::Column => (704.0, 300.0),
            Self::Phone => (358.0, 240.0),
            Self::File => (560.0, 270.0),
        }
    }
}

/// A drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing {
    /// The text of its file.
    pub svg: String,
    /// Its width and height, in points.
    pub size: [f64; 2],
}

/// The figure with what has been measured; nothing if nothing has.
pub fn draw(figure: &Figure, readings: &Readings, wide: FigureWidth) -> Option<Drawing> {
    let mut curves: Vec<Drawn<'_>> =
        figure.curves.iter().map(|curve| Drawn::new(curve, readings)).collect();
    // A curve looks the same whether the others were measured or not.
    let looks = SeriesLook::of_all(figure.curves.iter().map(|curve| curve.name.as_str()));
    curves.iter_mut().zip(looks).for_each(|(curve, look)| curve.look = look);
    curves.retain(|curve| !curve.points.is_empty());
    if curves.is_empty() {
        return None;
    }
    let (width, height) = wide.size();
    let (body, [width, height]) = match figure.x.scale {
        Scale::Names => draw_named(figure, &curves, width),
        Scale::Log | Scale::Linear => draw_plane(figure, &curves, (width, height)),
    };
    // A page has the title as a heading.
    let head = if wide == FigureWidth::File { TITLE } else { 0.0 };
    let mut svg = open(figure, [width, height + head]);
    if head > 0.0 {
        let title = escape(&figure.title);
        svg.put(format_args!("<text x=\"4\" y=\"19\" font-weight=\"600\">{title}</text>"));
    }
    svg.put(format_args!("<g transform=\"translate(0 {head})\">\n{}</g>", body.elements()));
    Some(Drawing { svg: svg.finish(), size: [width, height + head] })
}

/// A point: where, the middle, the least and the most.
type ChartPoint = (f64, [f64; 3]);

/// A curve, and how it looks.
struct Drawn<'a> {
    name: &'a str,
    look: SeriesLook,
    points: Vec<ChartPoint>,
}

impl<'a> Drawn<'a> {
    fn new(curve: &'a FigureCurve, readings: &Readings) -> Self {
        let height = |series: Series| {
            let (low, high) = series.range();
            [series.median(), low, high]
        };
        let point = |point: &FigurePoint| Some((point.x, height(point.heights(readings)?)));
        let points = curve.points.iter().filter_map(point).collect();
        Self { name: &curve.name, look: SeriesLook::of(&curve.name), points }
    }
}

/// The axis of the values, and its name. A linear one becomes logarithmic where it would crowd most
/// of the values.
fn value_axis(figure: &Figure, curves: &[Drawn<'_>], span: Span) -> (ChartAxis, String) {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let finite = |value: &f64| value.is_finite();
    let medians: Vec<f64> = points().map(|(_, [middle, ..])| *middle).filter(finite).collect();
    let all: Vec<f64> = points().flat_map(|(_, heights)| *heights).filter(finite).collect();
    let log = figure.y.scale == Scale::Log || wants_log(&medians);
    let axis = ChartAxis::of_values(&all, log, span);
    let scale = if axis.is_log() { ", log scale" } else { "" };
    (axis, format!("{}{scale}", figure.y.label))
}

/// Curves over a size or a delay. Each has its name at its end, or below where it is too narrow.
fn draw_plane(
    figure: &Figure,
    curves: &[Drawn<'_>],
    (width, height): (f64, f64),
) -> (Svg, [f64; 2]) {
    let longest = curves.iter().map(|curve| curve.name.chars().count()).max().unwrap_or(0);
    let margin = longest as f64 * LETTER + 40.0;
    let labelled = width - LEFT - margin >= PLOT_MIN;
    let right = width - if labelled { margin } else { RIGHT };
    let bottom = TOP + height;
    let below = if labelled { 0.0 } else { curves.len() as f64 * LINE + 6.0 };
    let size = [width, bottom + FOOT + below];
    let mut svg = Svg::default();
    let places = figure.places().iter().map(|place| place.x).collect::<Vec<_>>();
    let across = Span { from: LEFT + 12.0, to: right - 12.0 };
    let log_x = figure.x.scale == Scale::Log;
    let x = ChartAxis::of_places(&places, log_x, figure.x.label.contains("bytes"), across);
    let (y, label) = value_axis(figure, curves, Span { from: bottom, to: TOP });
    svg.text(4.0, TOP - 13.0, "start", &label);
    for (at, label) in y.ticks() {
        svg.put(format_args!("<path class=\"g\" d=\"M{LEFT} {at:.1}H{right:.1}\"/>"));
        svg.text(LEFT - 6.0, at + 5.0, "end", &label);
    }
    for (at, label) in x.ticks() {
        svg.put(format_args!("<path class=\"g\" d=\"M{at:.1} {bottom}v5\"/>"));
        svg.text(at, bottom + 20.0, "middle", &label);
    }
    svg.text(right, bottom + 38.0, "end", &figure.x.label);
    let mut ends = Vec::new();
    for Drawn { look, points, .. } in curves {
        let middle = |(at, [middle, ..]): &ChartPoint| (x.at(*at), y.at(*middle));
        look.line(&mut svg, &points.iter().map(middle).collect::<Vec<_>>());
        for point in points {
            let (at, [_, low, high]) = point;
            let at = x.at(*at);
            look.whisker(&mut svg, (at, y.at(*low)), (at, y.at(*high)));
            look.mark(&mut svg, at, middle(point).1);
        }
        ends.extend(points.last().map(middle));
    }
    let labels = Labels { curves, ends, right, bottom };
    if labelled {
        labels.at_ends(&mut svg)
    } else {
        labels.below(&mut svg)
    }
    (svg, size)
}

/// Names of curves, and where the curves end.
struct Labels<'a> {
    curves: &'a [Drawn<'a>],
    ends: Vec<(f64, f64)>,
    right: f64,
    bottom: f64,
}

impl Labels<'_> {
    fn at_ends(&self, svg: &mut Svg) {
        let wanted: Vec<f64> = self.ends.iter().map(|end| end.1).collect();
        let places = spread(&wanted, LINE, TOP, self.bottom);
        for ((curve, end), y) in self.curves.iter().zip(&self.ends).zip(places) {
            let elbow = (self.right + 16.0, y);
            curve.look.leader(svg, *end, elbow);
            curve.look.mark(svg, elbow.0, y);
            svg.text(elbow.0 + 12.0, y + 5.0, "start", curve.name);
        }
    }

    /// From top to bottom as the curves end.
    fn below(&self, svg: &mut Svg) {
        let mut order: Vec<usize> = (0..self.curves.len()).collect();
        order.sort_by(|a, b| self.ends[*a].1.total_cmp(&self.ends[*b].1));
        for (line, index) in order.into_iter().enumerate() {
            let y = self.bottom + FOOT + (line as f64 + 0.5) * LINE;
            let curve = &self.curves[index];
            curve.look.line(svg, &[(8.0, y), (44.0, y)]);
            curve.look.mark(svg, 26.0, y);
            svg.text(54.0, y + 5.0, "start", curve.name);
        }
    }
}

/// Points by category: below its name a line for each series, with its mark, its name and its
/// value.
fn draw_named(figure: &Figure, curves: &[Drawn<'_>], width: f64) -> (Svg, [f64; 2]) {
    let (left, right) = (16.0, width - 24.0);
    let (value, label) = value_axis(figure, curves, Span { from: left, to: right });
    let places = figure.places();
    let points_at = |x: f64| {
        let of = move |curve: &'_ Drawn<'_>| {
            curve.points.iter().find(|(at, _)| *at == x).map(|(_, heights)| *heights)
        };
        curves.iter().filter_map(move |curve| Some((curve, of(curve)?)))
    };
    let lines: usize = places.iter().map(|place| 1 + points_at(place.x).count()).sum();
    let bottom = TOP + lines as f64 * LINE + places.len() as f64 * 6.0;
    let size = [width, bottom + FOOT];
    let mut svg = Svg::default();
    for (at, label) in value.ticks() {
        svg.put(format_args!("<path class=\"g\" d=\"M{at:.1} {TOP}V{bottom}\"/>"));
        svg.text(at, bottom + 20.0, "middle", &label);
    }
    svg.text(right, bottom + 38.0, "end", &label);
    let mut y = TOP;
    for place in places {
        svg.put(format_args!("<g font-weight=\"600\">"));
        svg.text(left, y + 15.0, "start", &place.place);
        svg.put(format_args!("</g>"));
        y += LINE;
        for (curve, [middle, low, high]) in points_at(place.x) {
            let at = y + LINE / 2.0;
            let text = format!("{} {}", curve.name, weft_chart::number(middle));
            let (from, to) = range([low, middle, high].into_iter().map(|v| value.at(v)));
            curve.look.whisker(&mut svg, (value.at(low), at), (value.at(high), at));
            curve.look.mark(&mut svg, value.at(middle), at);
            let fits = to + 10.0 + text.chars().count() as f64 * LETTER <= width;
            let (x, anchor) = if fits { (to + 10.0, "start") } else { (from - 10.0, "end") };
            svg.text(x, at + 5.0, anchor, &text);
            y += LINE;
        }
        y += 6.0;
    }
    (svg, size)
}

fn open(figure: &Figure, [width, height]: [f64; 2]) -> Svg {
    // The same figure may stand in a page twice, so it is named without an id.
    let title = escape(&figure.title);
    let mut svg =
        Svg::new(width, height, &format!("role=\"img\" aria-label=\"{title}\" class=\"chart\""));
    svg.put(format_args!("<title>{title}</title>\n<style>{}</style>", style(FONT)));
    svg.put(format_args!("<rect class=\"p\" width=\"100%\" height=\"100%\"/>"));
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{FigureAxis, Relation};
    use crate::reading::{ProbeReading, ReadingUnit, record};

    fn figure(scale: Scale) -> Figure {
        let point = |x: f64| FigurePoint {
            x,
            place: format!("<{x}>"),
            series: format!("s{x}"),
            relation: Relation::Alone,
        };
        let points = [1.0, 64.0, 4096.0].map(point).to_vec();
        Figure {
            id: "id".into(),
            title: "A & B".into(),
            x: FigureAxis { label: "bytes".into(), scale },
            y: FigureAxis { label: "us".into(), scale: Scale::Log },
            curves: vec![FigureCurve { name: "<curve>".into(), points }],
            ..Figure::default()
        }
    }

    fn readings() -> Readings {
        let mut readings = Readings::new();
        for (round, value) in [(0, 1.0), (1, 3.0), (2, 900.0)] {
            let taken =
                ["s1", "s64"].map(|name| ProbeReading::new(name, ReadingUnit::Microseconds, value));
            record(&mut readings, round, taken.to_vec());
        }
        readings
    }

    #[test]
    fn every_scale_is_drawn_inside_the_picture() {
        let widths = [FigureWidth::Column, FigureWidth::Phone, FigureWidth::File];
        let scales = [Scale::Linear, Scale::Log, Scale::Names];
        for (scale, wide) in scales.into_iter().flat_map(|scale| widths.map(|wide| (scale, wide))) {
            let Drawing { svg, size } = draw(&figure(scale), &readings(), wide).unwrap();
            assert!(svg.contains(&format!("viewBox=\"0 0 {} {}\"", size[0], size[1])), "{svg}");
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(svg.contains("A &amp; B") && svg.contains("&lt;curve&gt;"));
            assert_eq!(svg.matches("class=\"w c").count(), 2, "two points were measured");
        }
    }

    #[test]
    fn a_curve_has_its_name_at_its_end_or_below() {
        let drawn = |wide| draw(&figure(Scale::Log), &readings(), wide).unwrap();
        let (column, phone) = (drawn(FigureWidth::Column), drawn(FigureWidth::Phone));
        assert!(column.svg.contains("class=\"k c") && !phone.svg.contains("class=\"k c"));
        assert!(column.svg.contains("us, log scale"));
        let is_titled = |drawing: &Drawing| drawing.svg.contains("600\">A &amp; B</text>");
        assert!(is_titled(&drawn(FigureWidth::File)) && !is_titled(&column));
    }

    #[test]
    fn no_two_curves_of_a_figure_of_ours_look_alike() {
        let scope = crate::suites::Scope { quick: false, seed: 1 };
        for draft in crate::suites::SUITES.iter().flat_map(|suite| suite.drafts(&scope)) {
            let names = || draft.figure.curves.iter().map(|curve| curve.name.as_str());
            let own: Vec<SeriesLook> = names().map(SeriesLook::of).collect();
            assert_eq!(
                SeriesLook::of_all(names()),
                own,
                "{}: add words to look.rs",
                draft.figure.id
            );
        }
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        assert_eq!(draw(&figure(Scale::Log), &Readings::new(), FigureWidth::File), None);
    }
}
