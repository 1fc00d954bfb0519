//! Curves over a size, a delay or the time, each with its name at its end, or below the chart where
//! that leaves the curves no room.

use crate::picture::{ChartPart, EDGE, FONT, LINE};
use crate::text::{text_width, wrap};
use crate::{ChartAxis, SeriesLook, Span, Svg, spread, wants_log};

/// Right margin without names.
const RIGHT: f64 = 16.0;
/// Width of the thin line between the curves and the names at their ends.
const LEADER: f64 = 14.0;
/// Width of what shows the look of a curve in front of its name: its line and its mark.
const SAMPLE: f64 = 36.0;
/// Curves that are narrower than this cannot be read.
const PLOT_MIN: f64 = 260.0;
/// Where names below the chart begin.
const KEY: f64 = 8.0 + SAMPLE + 8.0;
/// How far along a curve over time its label points to it, in per cent of its points: shortly
/// before the end, where all stop.
const LATE: usize = 95;

/// A point of a curve: its place, its middle, and the range of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChartPoint {
    /// Place on the horizontal axis.
    pub x: f64,
    /// The middle, the least and the greatest value.
    pub heights: [f64; 3],
}

/// A curve, its name and its look.
#[derive(Clone, Debug)]
pub struct ChartCurve {
    /// Its name.
    pub name: String,
    /// Its look.
    pub look: SeriesLook,
    /// Its points from left to right.
    pub points: Vec<ChartPoint>,
}

/// Places on the horizontal axis.
#[derive(Clone, Debug)]
pub enum ChartPlaces {
    /// Times from zero to the end of all charts, with round numbers. Points have no marks.
    Course(f64),
    /// The places of the points.
    Points {
        /// Logarithmic where it can be.
        log: bool,
        /// Bytes, with powers of 1024 in their names.
        sizes: bool,
    },
    /// Places with names.
    Named(Vec<(f64, String)>),
}

/// A chart of curves.
#[derive(Clone, Debug)]
pub struct LineChart {
    /// Quantity and unit of the vertical axis.
    pub value: String,
    /// Whether that axis is logarithmic where it can be. A linear one becomes so where it would
    /// crowd most of the values.
    pub log: bool,
    /// Quantity and unit of the horizontal axis.
    pub across: String,
    /// Places on it.
    pub places: ChartPlaces,
    /// The curves.
    pub curves: Vec<ChartCurve>,
}

/// Horizontal margins of charts that stand one below the other, in points.
#[derive(Clone, Copy)]
struct Margins {
    width: f64,
    left: f64,
    right: f64,
    labelled: bool,
}

impl LineChart {
    /// Charts one below the other, with the same margins, in a picture of that `width`, in points.
    /// The curves of each are `height` high, or higher where their names need it.
    pub fn stack(charts: &[Self], [width, height]: [f64; 2]) -> ChartPart {
        let widest = |texts: &mut dyn Iterator<Item = f64>| texts.fold(0.0, f64::max);
        let left = 12.0 + EDGE + widest(&mut charts.iter().map(|chart| chart.widest_tick()));
        let names = charts.iter().flat_map(|chart| &chart.curves).map(|curve| &curve.name);
        let margin =
            LEADER + SAMPLE + 8.0 + EDGE + widest(&mut names.map(|name| text_width(name, FONT)));
        let labelled = width - left - margin >= PLOT_MIN;
        let right = width - if labelled { margin } else { RIGHT };
        let margins = Margins { width, left, right, labelled };
        let (mut svg, mut below) = (Svg::default(), 0.0);
        for chart in charts {
            let part = chart.draw(margins, height);
            svg.part(below, &part);
            below += part.height;
        }
        ChartPart { svg, height: below }
    }

    /// The vertical axis between two heights.
    fn value_axis(&self, span: Span) -> ChartAxis {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let finite = |value: &f64| value.is_finite();
        let middles: Vec<f64> = points().map(|point| point.heights[0]).filter(finite).collect();
        let all: Vec<f64> = points().flat_map(|point| point.heights).filter(finite).collect();
        ChartAxis::of_values(&all, self.log || wants_log(&middles), span)
    }

    fn widest_tick(&self) -> f64 {
        let axis = self.value_axis(Span { from: 1.0, to: 0.0 });
        axis.ticks().map(|(_, label)| text_width(&label, FONT)).fold(0.0, f64::max)
    }

    fn draw(&self, margins: Margins, height: f64) -> ChartPart {
        let Margins { width, left, right, labelled } = margins;
        let axis = self.value_axis(Span { from: 1.0, to: 0.0 });
        let head = wrap(&axis.label(&self.value), FONT, width - 2.0 * EDGE);
        let top = 10.0 + head.len().max(1) as f64 * LINE;
        let names = if labelled { self.curves.len() as f64 * LINE } else { 0.0 };
        let bottom = top + height.max(names);
        let plot = Plot {
            y: self.value_axis(Span { from: bottom, to: top }),
            x: self.across_axis(left, right),
            chart: self,
            margins,
            top,
            bottom,
        };
        let mut svg = Svg::default();
        svg.lines(EDGE, 17.0, "start", &head);
        let foot = plot.axes(&mut svg);
        let ends = plot.curves(&mut svg);
        let height = if labelled {
            plot.names_at_ends(&mut svg, &ends);
            foot
        } else {
            plot.names_below(&mut svg, &ends, foot)
        };
        ChartPart { svg, height }
    }

    fn across_axis(&self, left: f64, right: f64) -> ChartAxis {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let mut places: Vec<f64> = points.map(|point| point.x).filter(|x| x.is_finite()).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let inner = Span { from: left + 12.0, to: right - 12.0 };
        match &self.places {
            ChartPlaces::Course(end) => {
                places.push(*end);
                ChartAxis::of_course(&places, Span { from: left, to: right })
            }
            ChartPlaces::Points { log, sizes } => {
                ChartAxis::of_places(&places, *log, *sizes, inner)
            }
            ChartPlaces::Named(named) => ChartAxis::of_names(named.clone(), inner),
        }
    }
}

impl ChartCurve {
    /// Its look, from `x` on.
    fn sample(&self, svg: &mut Svg, x: f64, y: f64) {
        self.look.line(svg, &[(x, y), (x + SAMPLE, y)]);
        self.look.mark(svg, x + SAMPLE / 2.0, y);
    }
}

/// A chart whose axes are known.
struct Plot<'a> {
    chart: &'a LineChart,
    margins: Margins,
    x: ChartAxis,
    y: ChartAxis,
    top: f64,
    bottom: f64,
}

impl Plot<'_> {
    /// Draws the axes; gives where what stands below them ends.
    fn axes(&self, svg: &mut Svg) -> f64 {
        let (Margins { width, left, right, .. }, bottom) = (self.margins, self.bottom);
        for (at, label) in self.y.labels_up(LINE) {
            svg.put(format_args!("<path class=\"g\" d=\"M{left:.1} {at:.1}H{right:.1}\"/>"));
            svg.text(left - 6.0, at + 5.0, "end", &label);
        }
        for label in self.x.labels_across(FONT, [EDGE, width - EDGE]) {
            svg.put(format_args!("<path class=\"g\" d=\"M{:.1} {bottom:.1}v5\"/>", label.at));
            svg.text(label.middle, bottom + 23.0, "middle", &label.text);
        }
        let across = wrap(&self.x.label(&self.chart.across), FONT, right - EDGE);
        svg.lines(right, bottom + 41.0, "end", &across);
        bottom + 30.0 + across.len() as f64 * LINE
    }

    /// Draws the curves; gives where their names point to.
    fn curves(&self, svg: &mut Svg) -> Vec<(f64, f64)> {
        let middle = |point: &ChartPoint| (self.x.at(point.x), self.y.at(point.heights[0]));
        let is_course = matches!(self.chart.places, ChartPlaces::Course(_));
        let finite = |point: &&ChartPoint| {
            point.x.is_finite() && point.heights.iter().all(|height| height.is_finite())
        };
        let mut ends = Vec::new();
        for ChartCurve { look, points, .. } in &self.chart.curves {
            let points: Vec<&ChartPoint> = points.iter().filter(finite).collect();
            look.line(svg, &points.iter().map(|point| middle(point)).collect::<Vec<_>>());
            for point in points.iter().filter(|_| !is_course) {
                let (at, [_, low, high]) = (self.x.at(point.x), point.heights);
                look.whisker(svg, (at, self.y.at(low)), (at, self.y.at(high)));
                look.mark(svg, at, middle(point).1);
            }
            let late = points.len().saturating_sub(1) * if is_course { LATE } else { 100 } / 100;
            let end = points.get(late).map(|point| middle(point));
            ends.push(end.unwrap_or((self.margins.right, self.bottom)));
        }
        ends
    }

    fn names_at_ends(&self, svg: &mut Svg, ends: &[(f64, f64)]) {
        let wanted: Vec<f64> = ends.iter().map(|end| end.1).collect();
        let half = LINE / 2.0;
        let places = spread(&wanted, LINE, self.top + half, self.bottom - half);
        for ((curve, end), y) in self.chart.curves.iter().zip(ends).zip(places) {
            let elbow = self.margins.right + LEADER;
            curve.look.leader(svg, *end, (elbow, y));
            curve.sample(svg, elbow, y);
            svg.text(elbow + SAMPLE + 8.0, y + 5.0, "start", &curve.name);
        }
    }

    /// From top to bottom as the curves end; gives where the last name ends.
    fn names_below(&self, svg: &mut Svg, ends: &[(f64, f64)], foot: f64) -> f64 {
        let mut order: Vec<usize> = (0..ends.len()).collect();
        order.sort_by(|a, b| ends[*a].1.total_cmp(&ends[*b].1));
        let mut top = foot;
        for index in order {
            let (curve, y) = (&self.chart.curves[index], top + LINE / 2.0);
            curve.sample(svg, 8.0, y);
            let lines = wrap(&curve.name, FONT, self.margins.width - KEY - EDGE);
            svg.lines(KEY, y + 5.0, "start", &lines);
            top += lines.len().max(1) as f64 * LINE;
        }
        top + 6.0
    }
}
