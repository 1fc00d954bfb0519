//! Figures as SVG that stands alone: light or dark as its reader has it, readable on a phone, and
//! with marks and dashes that tell curves apart without colours.
//!
//! `weft sim` draws courses over time; here are points over sizes, delays and names, with the range
//! of each over the rounds.

use weft_chart::{ChartAxis, Span, Svg, escape};

use crate::figure::{Figure, FigureCurve, FigurePoint, Scale};
use crate::reading::{Readings, Series};

const WIDTH: f64 = 480.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 26.0;
const HEIGHT: f64 = 250.0;
/// Below the chart: the places and the name of the axis.
const FOOT: f64 = 48.0;
const LINE: f64 = 22.0;
/// A place with a name takes a line for the name and one for the points.
const PLACE: f64 = 44.0;

/// Colours of curves in light and in dark; further curves begin again with other marks.
const COLOURS: [(&str, &str); 6] = [
    ("#0060a0", "#6cbcf0"),
    ("#c04a00", "#f5a04a"),
    ("#00795a", "#46d3a8"),
    ("#9a3f78", "#eaa0ce"),
    ("#6b5b00", "#d9c84a"),
    ("#555555", "#bbbbbb"),
];
const DASHES: [&str; 4] = ["", "7 4", "2 4", "9 3 2 3"];

/// A drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing {
    /// The text of its file.
    pub svg: String,
    /// Its width and height, in points.
    pub size: [f64; 2],
}

/// The figure with what has been measured; nothing if nothing has.
pub fn draw(figure: &Figure, readings: &Readings) -> Option<Drawing> {
    let curves: Vec<Drawn<'_>> = figure
        .curves
        .iter()
        .enumerate()
        .map(|(number, curve)| Drawn::new(number, curve, readings))
        .filter(|drawn| !drawn.points.is_empty())
        .collect();
    if curves.is_empty() {
        return None;
    }
    let named = figure.x.scale == Scale::Names;
    let places = figure.places().len() as f64;
    let height = if named { places * PLACE } else { HEIGHT };
    let legend = TOP + height + FOOT;
    let size = [WIDTH, legend + curves.len() as f64 * LINE];
    let mut svg = open(figure, size);
    if named {
        draw_named(&mut svg, figure, &curves, height);
    } else {
        draw_plane(&mut svg, figure, &curves);
    }
    for (line, curve) in curves.iter().enumerate() {
        let y = legend + (line as f64 + 0.5) * LINE;
        curve.line(&mut svg, &[(LEFT, y), (LEFT + 36.0, y)]);
        curve.mark(&mut svg, LEFT + 18.0, y);
        svg.text(LEFT + 46.0, y + 5.0, "start", curve.name);
    }
    Some(Drawing { svg: svg.finish(), size })
}

/// A point: where, the middle, the least and the most.
type ChartPoint = (f64, [f64; 3]);

/// A curve, and how it looks.
struct Drawn<'a> {
    name: &'a str,
    number: usize,
    points: Vec<ChartPoint>,
}

impl<'a> Drawn<'a> {
    fn new(number: usize, curve: &'a FigureCurve, readings: &Readings) -> Self {
        let height = |series: Series| {
            let (low, high) = series.range();
            [series.median(), low, high]
        };
        let point = |point: &FigurePoint| Some((point.x, height(point.heights(readings)?)));
        Self { name: &curve.name, number, points: curve.points.iter().filter_map(point).collect() }
    }

    fn colour(&self) -> String {
        format!("c{}", self.number % COLOURS.len())
    }

    fn line(&self, svg: &mut Svg, points: &[(f64, f64)]) {
        let dash = DASHES[(self.number / COLOURS.len() + self.number) % DASHES.len()];
        let look = format!("class=\"l {}\" stroke-dasharray=\"{dash}\"", self.colour());
        svg.line(points, &look);
    }

    fn mark(&self, svg: &mut Svg, x: f64, y: f64) {
        let shape = match self.number % 4 {
            0 => "m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0",
            1 => "m-4 -4h8v8h-8z",
            2 => "m0 -5.5l5 9h-10z",
            _ => "m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
        };
        let colour = self.colour();
        svg.put(format_args!("<path class=\"m {colour}\" d=\"M{x:.1} {y:.1}{shape}\"/>"));
    }

    fn whisker(&self, svg: &mut Svg, from: (f64, f64), to: (f64, f64)) {
        svg.line(&[from, to], &format!("class=\"w {}\"", self.colour()));
    }
}

/// Curves over a size or a delay.
fn draw_plane(svg: &mut Svg, figure: &Figure, curves: &[Drawn<'_>]) {
    let (right, bottom) = (WIDTH - RIGHT, TOP + HEIGHT);
    let places = figure.places().iter().map(|place| place.x).collect::<Vec<_>>();
    let [log_x, log_y] = [&figure.x, &figure.y].map(|axis| axis.scale == Scale::Log);
    let across = Span { from: LEFT + 14.0, to: right - 14.0 };
    let x = ChartAxis::of_places(&places, log_x, figure.x.label.contains("bytes"), across);
    let y = ChartAxis::of_values(&heights(curves), log_y, Span { from: bottom, to: TOP });
    svg.text(4.0, TOP - 10.0, "start", &figure.y.label);
    for (at, label) in y.ticks() {
        svg.put(format_args!("<path class=\"g\" d=\"M{LEFT} {at:.1}H{right}\"/>"));
        svg.text(LEFT - 8.0, at + 5.0, "end", &label);
    }
    for (at, label) in x.ticks() {
        svg.put(format_args!("<path class=\"g\" d=\"M{at:.1} {bottom}v5\"/>"));
        svg.text(at, bottom + 20.0, "middle", &label);
    }
    svg.text(right, bottom + 38.0, "end", &figure.x.label);
    for curve in curves {
        let line: Vec<(f64, f64)> =
            curve.points.iter().map(|(at, [middle, ..])| (x.at(*at), y.at(*middle))).collect();
        curve.line(svg, &line);
        for (at, [middle, low, high]) in &curve.points {
            let at = x.at(*at);
            curve.whisker(svg, (at, y.at(*low)), (at, y.at(*high)));
            curve.mark(svg, at, y.at(*middle));
        }
    }
}

/// Points by category, each below its name.
fn draw_named(svg: &mut Svg, figure: &Figure, curves: &[Drawn<'_>], height: f64) {
    let (left, right) = (20.0, WIDTH - 30.0);
    let log = figure.y.scale == Scale::Log;
    let value = ChartAxis::of_values(&heights(curves), log, Span { from: left, to: right });
    let bottom = TOP + height;
    for (at, label) in value.ticks() {
        svg.put(format_args!("<path class=\"g\" d=\"M{at:.1} {TOP}V{bottom}\"/>"));
        svg.text(at, bottom + 20.0, "middle", &label);
    }
    svg.text(right, bottom + 38.0, "end", &figure.y.label);
    for (line, place) in figure.places().into_iter().enumerate() {
        let y = TOP + line as f64 * PLACE;
        svg.text(left, y + 17.0, "start", &place.place);
        for curve in curves {
            let points = curve.points.iter().filter(|(at, _)| *at == place.x);
            for (_, [middle, low, high]) in points {
                let y = y + 30.0;
                curve.whisker(svg, (value.at(*low), y), (value.at(*high), y));
                curve.mark(svg, value.at(*middle), y);
            }
        }
    }
}

fn heights(curves: &[Drawn<'_>]) -> Vec<f64> {
    let points = curves.iter().flat_map(|curve| &curve.points);
    points.flat_map(|(_, heights)| *heights).filter(|height| height.is_finite()).collect()
}

fn open(figure: &Figure, [width, height]: [f64; 2]) -> Svg {
    let (id, title) = (escape(&figure.id), escape(&figure.title));
    let label = format!("role=\"img\" aria-labelledby=\"t-{id}\" class=\"chart\"");
    let mut svg = Svg::new(width, height, &label);
    svg.put(format_args!("<title id=\"t-{id}\">{title}</title>\n<style>{}</style>", style()));
    svg.put(format_args!("<rect class=\"p\" width=\"100%\" height=\"100%\"/>"));
    svg
}

/// The look, light and dark.
fn style() -> String {
    let mut light = String::from(
        ".chart{font:15px system-ui,sans-serif}.chart text{fill:#222}.chart .p{fill:#fff}\
         .chart .g{stroke:#ddd;fill:none}.chart .l{fill:none;stroke-width:2}\
         .chart .w{stroke-width:1.5}.chart .m{stroke:none}",
    );
    let mut dark =
        String::from(".chart text{fill:#e6e6e6}.chart .p{fill:#16191d}.chart .g{stroke:#3a4048}");
    for (number, (on_white, on_black)) in COLOURS.iter().enumerate() {
        let rule = |colour: &str| {
            let class = format!(".chart .c{number}");
            format!("{class}{{stroke:{colour}}}{class}.m{{fill:{colour}}}")
        };
        light += &rule(on_white);
        dark += &rule(on_black);
    }
    format!("{light}@media(prefers-color-scheme:dark){{{dark}}}")
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
        for scale in [Scale::Linear, Scale::Log, Scale::Names] {
            let Drawing { svg, size } = draw(&figure(scale), &readings()).unwrap();
            assert!(svg.contains(&format!("viewBox=\"0 0 {} {}\"", size[0], size[1])), "{svg}");
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(svg.contains("A &amp; B") && svg.contains("&lt;curve&gt;"));
            assert_eq!(svg.matches("class=\"w c0\"").count(), 2, "two points were measured");
        }
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        assert_eq!(draw(&figure(Scale::Log), &Readings::new()), None);
    }
}
