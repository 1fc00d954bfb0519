//! Pictures of a run: SVG that stands alone.
//!
//! Rate of each flow, round trip of each flow, and the queue of each link, one chart below the
//! other over the same time. [`shares`] draws what varied against what was reached.

use std::fmt::Write;

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
/// nanoseconds, octets, products of rate and round trip.
fn number(text: &str) -> Option<f64> {
    let bare = text.trim_end_matches('%').trim_end_matches("bdp");
    let rate = || text.parse::<Bitrate>().ok().map(|rate| rate.bps() as f64);
    let time = || parse_time_ns(text).ok().map(|ns| ns as f64);
    let octets = || parse_bytes(text).ok().map(|octets| octets as f64);
    bare.parse().ok().or_else(rate).or_else(time).or_else(octets)
}

fn draw(title: &str, along: &str, charts: &[Chart]) -> String {
    let height = TOP + charts.len() as f64 * (HEIGHT + GAP);
    let whole = LEFT + WIDTH + RIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{}</text>\n",
        escape(title)
    );
    for (index, chart) in charts.iter().enumerate() {
        let top = TOP + 16.0 + index as f64 * (HEIGHT + GAP);
        draw_chart(&mut svg, chart, along, top);
    }
    svg + "</svg>\n"
}

fn draw_chart(svg: &mut String, chart: &Chart, along: &str, top: f64) {
    let points = || chart.curves.iter().flat_map(|curve| &curve.points);
    let x_max = points().map(|point| point.0).fold(f64::MIN_POSITIVE, f64::max);
    let y_max = nice(points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max));
    let x = |value: f64| LEFT + value / x_max * WIDTH;
    let y = |value: f64| top + HEIGHT - value / y_max * HEIGHT;
    text(svg, LEFT, top - 5.0, "start", &chart.title);
    for part in 0..=4 {
        let value = y_max * f64::from(part) / 4.0;
        let at = y(value);
        let right = LEFT + WIDTH;
        put(svg, &format!("<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/>"));
        text(svg, LEFT - 6.0, at + 4.0, "end", &short(value));
        let value = x_max * f64::from(part) / 4.0;
        text(svg, x(value), top + HEIGHT + 15.0, "middle", &short(value));
    }
    text(svg, LEFT + WIDTH, top + HEIGHT + 29.0, "end", along);
    let line = (HEIGHT / chart.curves.len().max(1) as f64).min(15.0);
    for (index, curve) in chart.curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let path = curve.points.iter().enumerate().map(|(number, point)| {
            let command = if number == 0 { 'M' } else { 'L' };
            format!("{command}{:.1} {:.1}", x(point.0), y(point.1))
        });
        let path: String = path.collect();
        put(svg, &format!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\"/>"));
        let at = top + 12.0 + line * index as f64;
        let left = LEFT + WIDTH + 8.0;
        put(svg, &format!("<path d=\"M{left} {}h14\" stroke=\"{colour}\"/>", at - 4.0));
        text(svg, left + 18.0, at, "start", &curve.name);
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = escape(text);
    put(svg, &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"));
}

fn put(svg: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(svg, "{line}");
}

/// The next of 1, 2, 2.5 and 5 times a power of ten.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value * 0.999).unwrap_or(value)
}

fn short(value: f64) -> String {
    if value >= 1e5 {
        return format!("{value:e}");
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!(
            [0.97, 1.0, 1.2, 2.2, 482.0, 70.0].map(nice),
            [1.0, 1.0, 2.0, 2.5, 500.0, 100.0]
        );
        assert_eq!([1.0, 0.25, 500.0].map(short), ["1", "0.25", "500"]);
    }

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
