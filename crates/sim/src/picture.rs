//! Pictures of a run: SVG that stands alone, light or dark as its reader has it, with each curve's
//! name at its end.
//!
//! Rate of each flow, round trip of each flow, and the queue of each link, one chart below the
//! other over the same time. [`shares`] draws what varied against what was reached.

use weft_chart::{ChartCurve, ChartPlaces, ChartPoint, LineChart, PictureKind, SeriesLook};
use weft_units::{Bitrate, parse_bytes, parse_time_ns};

use crate::run::RunOutcome;

/// Width of the whole picture and height of the curves of a chart, in points. On a phone the
/// letters of such a picture still have nine points.
const SIZE: [f64; 2] = [600.0, 190.0];
/// More curves than this cannot be told apart.
const CURVES_MAX: usize = 12;

/// The horizontal axis of the charts of a picture.
struct Across<'a> {
    label: &'a str,
    places: ChartPlaces,
}

/// Rate, round trip and queue over time.
pub fn over_time(outcome: &RunOutcome) -> String {
    let curves = &outcome.curves;
    let seconds: Vec<f64> = curves.at_ns.iter().map(|at_ns| *at_ns as f64 / 1e9).collect();
    let course = |name: String, values: &[u64]| {
        let values = values.iter().map(|value| *value as f64 / 1e6);
        curve(name, seconds.iter().copied().zip(values))
    };
    let flows = || outcome.flows.iter().zip(&curves.flows).enumerate();
    let name = |number: usize, label: &str| format!("{} {label}", number + 1);
    let rates = flows().map(|(n, (flow, own))| course(name(n, &flow.label), &own.rate_bps));
    let rtts = flows().map(|(n, (flow, own))| course(name(n, &flow.label), &own.rtt_ns));
    let queues = outcome.links.iter().zip(&curves.queue_ns);
    let queues = queues.map(|(link, queue_ns)| course(link.name.clone(), queue_ns));
    let places = ChartPlaces::Course(seconds.last().copied().unwrap_or(0.0));
    let across = Across { label: "seconds", places };
    let charts = [
        chart("rate, Mbit/s", rates.take(CURVES_MAX).collect(), &across),
        chart("round trip, ms", rtts.take(CURVES_MAX).collect(), &across),
        chart("queue, ms", queues.take(CURVES_MAX).collect(), &across),
    ];
    draw(&outcome.name, &charts)
}

/// The share of the ceiling of the runs of a plan against the value named `along`, one curve for
/// each combination of the other values; and fairness, unless all runs are perfectly fair, as
/// single flows are. None unless that value is a number.
pub fn shares(name: &str, outcomes: &[RunOutcome], along: &str) -> Option<String> {
    let mut curves: Vec<(ChartCurve, ChartCurve)> = Vec::new();
    let point = |x: f64, y: f64| ChartPoint { x, heights: [y; 3] };
    let mut places: Vec<(f64, String)> = Vec::new();
    for outcome in outcomes {
        let text = outcome.values.get(along)?;
        let at = number(text)?;
        places.push((at, text.clone()));
        let others = outcome.values.iter().filter(|(key, _)| *key != along);
        let label = others.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ");
        let found = curves.iter().position(|(share, _)| share.name == label);
        let index = found.unwrap_or_else(|| {
            let empty = || curve(label.clone(), std::iter::empty());
            curves.push((empty(), empty()));
            curves.len() - 1
        });
        let jain = outcome.groups.iter().map(|group| group.jain).fold(1.0, f64::min);
        curves[index].0.points.push(point(at, outcome.total.share_of_ceiling));
        curves[index].1.points.push(point(at, jain));
    }
    for points in curves.iter_mut().flat_map(|(a, b)| [&mut a.points, &mut b.points]) {
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    places.dedup();
    let (shares, jains): (Vec<_>, Vec<_>) = curves.into_iter().unzip();
    let across = Across { label: along, places: ChartPlaces::Named(places) };
    let unfair = jains.iter().flat_map(|curve| &curve.points).any(|point| point.heights[0] < 1.0);
    let mut charts = vec![chart("share of the ceiling", shares, &across)];
    if unfair {
        charts.push(chart(
            "Jain's index of fairness, the least of all controllers",
            jains,
            &across,
        ));
    }
    Some(draw(name, &charts))
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

/// A curve through some points; [`chart`] gives it its look.
fn curve(name: String, points: impl Iterator<Item = (f64, f64)>) -> ChartCurve {
    let points = points.map(|(x, y)| ChartPoint { x, heights: [y; 3] }).collect();
    ChartCurve { look: SeriesLook::of(&name), name, points }
}

fn chart(value: &str, mut curves: Vec<ChartCurve>, across: &Across<'_>) -> LineChart {
    let looks = SeriesLook::of_all(curves.iter().map(|curve| curve.name.as_str()));
    curves.iter_mut().zip(looks).for_each(|(curve, look)| curve.look = look);
    let (value, across, places) = (value.into(), across.label.into(), across.places.clone());
    LineChart { value, log: false, across, places, curves }
}

fn draw(title: &str, charts: &[LineChart]) -> String {
    LineChart::stack(charts, SIZE).picture(title, SIZE[0], PictureKind::File).svg
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
        let curve = curve("<a&b>".into(), [(0.0, 1.0), (1.0, 2.0)].into_iter());
        let across = Across { label: "s", places: ChartPlaces::Course(1.0) };
        let svg = draw("t", &[chart("x", vec![curve], &across)]);
        assert!(svg.contains("&lt;a&amp;b&gt;") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("class=\"l c"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn what_varied_has_the_plans_own_names_on_a_scale_that_tells_them_apart() {
        let places = [(1e9, "1gbit"), (1e10, "10gbit"), (1e11, "100gbit")];
        let curve = curve("weave".into(), places.iter().map(|(at, _)| (*at, 0.9)));
        let places = places.map(|(at, name)| (at, name.to_owned())).to_vec();
        let across = Across { label: "rate", places: ChartPlaces::Named(places) };
        let svg = draw("t", &[chart("x", vec![curve], &across)]);
        for text in [">1gbit<", ">10gbit<", ">100gbit<", ">rate, log scale<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }
}
