//! Pictures of a run: SVG that stands alone.
//!
//! Rate of each flow, round trip of each flow, and the queue of each link, one chart below the
//! other over the same time. [`shares`] draws what varied against what was reached.

use weft_chart::{ChartAxis, Span, Svg};
use weft_units::{Bitrate, parse_bytes, parse_time_ns};

use crate::run::RunOutcome;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 34.0;
const GAP: f64 = 56.0;
/// More curves than this cannot be told apart.
const CURVES_MAX: usize = 12;
/// Okabe and Ito's colours, which colour-blind people tell apart.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];

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
    draw(&outcome.name, "seconds", &charts)
}

/// The share of the ceiling, and fairness, of the runs of a plan against the value named `along`,
/// one curve for each combination of the other values. None unless that value is a number.
pub fn shares(name: &str, outcomes: &[RunOutcome], along: &str) -> Option<String> {
    let mut curves: Vec<(ChartCurve, ChartCurve)> = Vec::new();
    for outcome in outcomes {
        let at = number(outcome.values.get(along)?)?;
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
    let (shares, jains) = curves.into_iter().unzip();
    let charts = [
        Chart { title: "share of the ceiling".into(), curves: shares },
        Chart {
            title: "Jain's index of fairness, the least of all controllers".into(),
            curves: jains,
        },
    ];
    Some(draw(name, along, &charts))
}

/// The number that a text stands for, in the unit that it names: percent, bits per second,
/// nanoseconds, bytes, products of rate and round trip.
fn number(text: &str) -> Option<f64> {
    let bare = text.trim_end_matches('%').trim_end_matches("bdp");
    let rate = || text.parse::<Bitrate>().ok().map(|rate| rate.bps() as f64);
    let time = || parse_time_ns(text).ok().map(|ns| ns as f64);
    let octets = || parse_bytes(text).ok().map(|octets| octets as f64);
    bare.parse().ok().or_else(rate).or_else(time).or_else(octets)
}

fn draw(title: &str, along: &str, charts: &[Chart]) -> String {
    let height = TOP + charts.len() as f64 * (HEIGHT + GAP);
    let font = "font-family=\"sans-serif\" font-size=\"12\"";
    let mut svg = Svg::new(LEFT + WIDTH + RIGHT, height, font);
    svg.put(format_args!("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"));
    svg.put(format_args!("<g font-size=\"15\">"));
    svg.text(LEFT, 20.0, "start", title);
    svg.put(format_args!("</g>"));
    for (index, chart) in charts.iter().enumerate() {
        let top = TOP + 16.0 + index as f64 * (HEIGHT + GAP);
        draw_chart(&mut svg, chart, along, top);
    }
    svg.finish()
}

fn draw_chart(svg: &mut Svg, chart: &Chart, along: &str, top: f64) {
    let points = || chart.curves.iter().flat_map(|curve| &curve.points);
    let (right, bottom) = (LEFT + WIDTH, top + HEIGHT);
    let [xs, ys]: [Vec<f64>; 2] =
        [points().map(|point| point.0).collect(), points().map(|point| point.1).collect()];
    let x = ChartAxis::of_values(&xs, false, Span { from: LEFT, to: right });
    let y = ChartAxis::of_values(&ys, false, Span { from: bottom, to: top });
    svg.text(LEFT, top - 5.0, "start", &chart.title);
    for (at, label) in y.ticks() {
        svg.line(&[(LEFT, at), (right, at)], "stroke=\"#ddd\"");
        svg.text(LEFT - 6.0, at + 4.0, "end", &label);
    }
    for (at, label) in x.ticks() {
        svg.text(at, bottom + 15.0, "middle", &label);
    }
    svg.text(right, bottom + 29.0, "end", along);
    let line = (HEIGHT / chart.curves.len().max(1) as f64).min(15.0);
    for (index, curve) in chart.curves.iter().enumerate() {
        let look = format!("fill=\"none\" stroke=\"{}\"", COLOURS[index % COLOURS.len()]);
        let path: Vec<_> = curve.points.iter().map(|(a, b)| (x.at(*a), y.at(*b))).collect();
        svg.line(&path, &look);
        let (left, at) = (right + 8.0, top + 12.0 + line * index as f64);
        svg.line(&[(left, at - 4.0), (left + 14.0, at - 4.0)], &look);
        svg.text(left + 18.0, at, "start", &curve.name);
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
        let svg = draw("t", "s", &[Chart { title: "x".into(), curves: vec![curve] }]);
        assert!(svg.contains("&lt;a&amp;b&gt;") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("M70.0 145.0L970.0 50.0"), "{svg}");
    }
}
