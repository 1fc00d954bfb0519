//! Pictures of a run: SVG that stands alone, light or dark as its reader has it, with each curve's
//! name at its end.
//!
//! Rate of each flow, round trip of each flow, and the queue of each link, one chart below the
//! other over the same time. [`shares`] draws what varied against what was reached.

use weft_chart::{ChartAxis, SeriesLook, Span, Svg, escape, spread, style, wants_log};
use weft_units::{Bitrate, parse_bytes, parse_time_ns};

use crate::run::RunOutcome;

/// Width of the whole picture, that of a page's column.
const WIDTH: f64 = 740.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 62.0;
const TOP: f64 = 34.0;
const GAP: f64 = 60.0;
/// Size of the text, and the mean width of a letter of it.
const FONT: u32 = 14;
const LETTER: f64 = 8.4;
/// Height of a line of text.
const LINE: f64 = 17.0;
/// How far along a curve its label points to it, in per cent of its points.
const LATE: usize = 95;
/// More curves than this cannot be told apart.
const CURVES_MAX: usize = 12;

/// A curve and its name.
struct ChartCurve {
    name: String,
    points: Vec<(f64, f64)>,
}

/// A chart: its title, with the unit, and its curves.
struct Chart {
    title: String,
    curves: Vec<ChartCurve>,
}

/// The horizontal axis of the charts of a picture.
struct Across<'a> {
    label: &'a str,
    /// Places with names; none for an axis that begins at zero and has even steps.
    places: Vec<(f64, String)>,
}

/// Rate, round trip and queue over time.
pub fn over_time(outcome: &RunOutcome) -> String {
    let curves = &outcome.curves;
    let seconds: Vec<f64> = curves.at_ns.iter().map(|at_ns| *at_ns as f64 / 1e9).collect();
    let curve = |name: String, values: &[u64], unit: f64| {
        let values = values.iter().map(|value| *value as f64 / unit);
        ChartCurve { name, points: seconds.iter().copied().zip(values).collect() }
    };
    let flows = || outcome.flows.iter().zip(&curves.flows).enumerate();
    let name = |number: usize, label: &str| format!("{} {label}", number + 1);
    let rates = flows().map(|(n, (flow, own))| curve(name(n, &flow.label), &own.rate_bps, 1e6));
    let rtts = flows().map(|(n, (flow, own))| curve(name(n, &flow.label), &own.rtt_ns, 1e6));
    let queues = outcome.links.iter().zip(&curves.queue_ns);
    let queues = queues.map(|(link, queue_ns)| curve(link.name.clone(), queue_ns, 1e6));
    let charts = [
        Chart { title: "rate, Mbit/s".into(), curves: rates.take(CURVES_MAX).collect() },
        Chart { title: "round trip, ms".into(), curves: rtts.take(CURVES_MAX).collect() },
        Chart { title: "queue, ms".into(), curves: queues.take(CURVES_MAX).collect() },
    ];
    draw(&outcome.name, &Across { label: "seconds", places: Vec::new() }, &charts)
}

/// The share of the ceiling of the runs of a plan against the value named `along`, one curve for
/// each combination of the other values; and fairness, unless all runs are perfectly fair, as
/// single flows are. None unless that value is a number.
pub fn shares(name: &str, outcomes: &[RunOutcome], along: &str) -> Option<String> {
    let mut curves: Vec<(ChartCurve, ChartCurve)> = Vec::new();
    let mut places: Vec<(f64, String)> = Vec::new();
    for outcome in outcomes {
        let text = outcome.values.get(along)?;
        let at = number(text)?;
        places.push((at, text.clone()));
        let others = outcome.values.iter().filter(|(key, _)| *key != along);
        let label = others.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ");
        let found = curves.iter().position(|(share, _)| share.name == label);
        let index = found.unwrap_or_else(|| {
            let empty = || ChartCurve { name: label.clone(), points: Vec::new() };
            curves.push((empty(), empty()));
            curves.len() - 1
        });
        let jain = outcome.groups.iter().map(|group| group.jain).fold(1.0, f64::min);
        curves[index].0.points.push((at, outcome.total.share_of_ceiling));
        curves[index].1.points.push((at, jain));
    }
    for points in curves.iter_mut().flat_map(|(a, b)| [&mut a.points, &mut b.points]) {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    places.dedup();
    let (shares, jains): (Vec<_>, Vec<_>) = curves.into_iter().unzip();
    let mut charts = vec![Chart { title: "share of the ceiling".into(), curves: shares }];
    if jains.iter().flat_map(|curve| &curve.points).any(|(_, jain)| *jain < 1.0) {
        let title = "Jain's index of fairness, the least of all controllers".into();
        charts.push(Chart { title, curves: jains });
    }
    Some(draw(name, &Across { label: along, places }, &charts))
}

/// The number that a text stands for, in the unit that it names: percent, bits per second,
/// nanoseconds, bytes, products of rate and round trip.
fn number(text: &str) -> Option<f64> {
    let bare = text.trim_end_matches('%').trim_end_matches("bdp");
    let rate = || text.parse::<Bitrate>().ok().map(|rate| rate.bps() as f64);
    let time = || parse_time_ns(text).ok().map(|ns| ns as f64);
    let bytes = || parse_bytes(text).ok().map(|bytes| bytes as f64);
    bare.parse().ok().or_else(rate).or_else(time).or_else(bytes)
}

fn draw(title: &str, across: &Across<'_>, charts: &[Chart]) -> String {
    let height = TOP + charts.len() as f64 * (HEIGHT + GAP);
    let title = escape(title);
    let root = format!("role=\"img\" aria-label=\"{title}\" class=\"chart\"");
    let mut svg = Svg::new(WIDTH, height, &root);
    svg.put(format_args!("<title>{title}</title>\n<style>{}</style>", style(FONT)));
    svg.put(format_args!("<rect class=\"p\" width=\"100%\" height=\"100%\"/>"));
    svg.put(format_args!("<g font-weight=\"600\"><text x=\"8\" y=\"20\">{title}</text></g>"));
    let names =
        charts.iter().flat_map(|chart| &chart.curves).map(|curve| curve.name.chars().count());
    let right = WIDTH - names.max().unwrap_or(0) as f64 * LETTER - 34.0;
    for (index, chart) in charts.iter().enumerate() {
        let top = TOP + 18.0 + index as f64 * (HEIGHT + GAP);
        draw_chart(&mut svg, chart, across, (top, right));
    }
    svg.finish()
}

fn draw_chart(svg: &mut Svg, chart: &Chart, across: &Across<'_>, (top, right): (f64, f64)) {
    let points = || chart.curves.iter().flat_map(|curve| &curve.points);
    let bottom = top + HEIGHT;
    let [xs, ys]: [Vec<f64>; 2] =
        [points().map(|point| point.0).collect(), points().map(|point| point.1).collect()];
    let log = wants_log(&ys);
    let width = Span { from: LEFT, to: right };
    let x = match &across.places[..] {
        [] => ChartAxis::of_course(&xs, width),
        places => ChartAxis::of_names(places.to_vec(), width),
    };
    let y = ChartAxis::of_values(&ys, log, Span { from: bottom, to: top });
    let scale = if log { ", log scale" } else { "" };
    svg.text(8.0, top - 8.0, "start", &format!("{}{scale}", chart.title));
    for (at, label) in y.ticks() {
        svg.line(&[(LEFT, at), (right, at)], "class=\"g\"");
        svg.text(LEFT - 6.0, at + 5.0, "end", &label);
    }
    for (at, label) in x.ticks() {
        svg.text(at, bottom + 17.0, "middle", &label);
    }
    let scale = if x.is_log() { ", log scale" } else { "" };
    svg.text(right, bottom + 32.0, "end", &format!("{}{scale}", across.label));
    let looks = SeriesLook::of_all(chart.curves.iter().map(|curve| curve.name.as_str()));
    let place = |(a, b): &(f64, f64)| (x.at(*a), y.at(*b));
    // Shortly before the end, where all flows stop.
    let late = |curve: &ChartCurve| curve.points.get(curve.points.len() * LATE / 100).map(place);
    let ends: Vec<(f64, f64)> =
        chart.curves.iter().map(|curve| late(curve).unwrap_or((right, bottom))).collect();
    let labels = spread(&ends.iter().map(|end| end.1).collect::<Vec<_>>(), LINE, top, bottom);
    for ((curve, look), (end, label)) in chart.curves.iter().zip(looks).zip(ends.iter().zip(labels))
    {
        look.line(svg, &curve.points.iter().map(place).collect::<Vec<_>>());
        look.leader(svg, *end, (right + 14.0, label));
        look.mark(svg, right + 14.0, label);
        svg.text(right + 24.0, label + 5.0, "start", &curve.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_in_one_unit() {
        assert_eq!([number("0.1%"), number("25"), number("4bdp")], [0.1, 25.0, 4.0].map(Some));
        assert_eq!([number("100mbit"), number("1gbit")], [1e8, 1e9].map(Some));
        assert_eq!([number("70ms"), number("64KiB")], [7e7, 65536.0].map(Some));
        assert_eq!([number("weave"), number("")], [None; 2]);
    }

    #[test]
    fn names_cannot_break_the_picture() {
        let curve = ChartCurve { name: "<a&b>".into(), points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let across = Across { label: "s", places: Vec::new() };
        let svg = draw("t", &across, &[Chart { title: "x".into(), curves: vec![curve] }]);
        assert!(svg.contains("&lt;a&amp;b&gt;") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("class=\"l c"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn what_varied_has_the_plans_own_names_on_a_scale_that_tells_them_apart() {
        let places = [(1e9, "1gbit"), (1e10, "10gbit"), (1e11, "100gbit")];
        let points = places.map(|(at, _)| (at, 0.9)).to_vec();
        let places = places.map(|(at, name)| (at, name.to_owned())).to_vec();
        let curve = ChartCurve { name: "weave".into(), points };
        let across = Across { label: "rate", places };
        let svg = draw("t", &across, &[Chart { title: "x".into(), curves: vec![curve] }]);
        for text in [">1gbit<", ">10gbit<", ">100gbit<", ">rate, log scale<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }
}
