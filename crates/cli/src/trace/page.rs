//! The page: for each queue pair a line of sums, and curves over the time of the trace.

use std::fmt::Write;

use weft_chart::{
    ChartCurve, ChartPlaces, ChartPoint, LineChart, PictureKind, SeriesLook, escape, style,
};
use weft_units::{show_bytes, show_time};

use super::read::{Samples, TracedQp, TracedRun};

/// Width of a picture and height of the curves of a chart, in points. On a phone its letters still
/// have nine points.
const SIZE: [f64; 2] = [600.0, 130.0];
/// Rates are means over so many parts of the time.
const PARTS: usize = 200;
/// Queue pairs that are drawn, of those that have sent or received most.
const QPS_MAX: usize = 16;

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;color:#1c1f23;background:#fff;max-width:46rem;\
margin:0 auto;padding:1rem;overflow-wrap:anywhere}\
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#16191d}}\
h1{font-size:1.6rem;line-height:1.2}h2{font-size:1.3rem;margin:1.5rem 0 .25rem}\
svg{display:block;width:100%;height:auto;margin:.5rem 0}";

/// What each page begins with.
pub const HEAD: &str = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
                        <meta name=\"generator\" content=\"weft trace show\">";

/// A chart: its title with the unit, and its curves with their names, two at most.
struct TraceChart<'a> {
    title: &'a str,
    curves: Vec<(&'a str, Samples)>,
}

/// The page of a trace.
pub fn draw(run: &TracedRun) -> String {
    let title = escape(&run.title);
    let mut page = format!(
        "{HEAD}<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title>\n<style>{STYLE}{}</style>\n<h1>{title}</h1>\n",
        style()
    );
    let mut qps: Vec<_> = run.qps.iter().collect();
    qps.sort_by_key(|(_, qp)| std::cmp::Reverse(total(&qp.bytes_out) + total(&qp.bytes_in)));
    // Writing to a String cannot fail.
    let _ = writeln!(
        page,
        "<p>{} queue pair{} in {}.</p>",
        qps.len(),
        if qps.len() == 1 { "" } else { "s" },
        show_time((run.end_s * 1e9) as u64)
    );
    for (at_s, name) in &run.events {
        let _ = writeln!(page, "<p>{at_s:.3} s: asynchronous event {}</p>", escape(name));
    }
    for (number, qp) in qps.iter().take(QPS_MAX) {
        put_qp(&mut page, number, qp, run.end_s);
    }
    if qps.len() > QPS_MAX {
        let _ = writeln!(page, "<p>{} more are not drawn.</p>", qps.len() - QPS_MAX);
    }
    page + "</html>\n"
}

fn put_qp(page: &mut String, number: &str, qp: &TracedQp, end_s: f64) {
    let _ = writeln!(page, "<h2>Queue pair {}</h2>\n<p>{}</p>", escape(number), summary(qp));
    let lost = differences(&qp.lost, end_s, 1.0);
    let charts = [
        TraceChart {
            title: "payload, Mbit/s",
            curves: vec![
                ("sent", rate_of(&qp.bytes_out, end_s)),
                ("received", rate_of(&qp.bytes_in, end_s)),
            ],
        },
        TraceChart {
            title: "round trip, ms",
            curves: vec![("smoothed", qp.rtt_ms.clone()), ("least", qp.min_rtt_ms.clone())],
        },
        TraceChart {
            title: "bytes",
            curves: vec![("window", qp.window.clone()), ("in flight", qp.in_flight.clone())],
        },
        TraceChart { title: "packets lost", curves: vec![("lost", lost)] },
    ];
    let seen = |chart: &TraceChart<'_>| {
        chart.curves.iter().any(|(_, points)| points.iter().any(|(_, value)| *value > 0.0))
    };
    let charts = charts.into_iter().filter(seen).map(|chart| chart.drawn(end_s));
    let charts: Vec<LineChart> = charts.collect();
    if !charts.is_empty() {
        let part = LineChart::stack(&charts, SIZE);
        let title = format!("Queue pair {number}");
        page.push_str(&part.picture(&title, SIZE[0], PictureKind::Page).svg);
    }
    for (at_s, status) in qp.failures.iter().take(1) {
        let _ = writeln!(page, "<p>{at_s:.3} s: the first failure, status {status}</p>");
    }
    for (at_s, change) in &qp.states {
        let _ = writeln!(page, "<p>{at_s:.3} s: {}</p>", escape(change));
    }
}

fn summary(qp: &TracedQp) -> String {
    let [sent, received] = qp.packets;
    let ends = if qp.ends.is_empty() { String::new() } else { format!("{}. ", escape(&qp.ends)) };
    format!(
        "{ends}{} sent in {sent} packets, {} received in {received}; {} packets lost. \
         {} requests posted, {} completions, {} of them failed.",
        show_bytes(total(&qp.bytes_out)),
        show_bytes(total(&qp.bytes_in)),
        total(&qp.lost),
        qp.posts,
        qp.completions,
        qp.failures.len()
    )
}

/// The last value of what only grows.
fn total(curve: &Samples) -> u64 {
    curve.last().map_or(0, |(_, value)| *value as u64)
}

fn rate_of(bytes: &Samples, end_s: f64) -> Samples {
    let part_s = end_s / PARTS as f64;
    differences(bytes, end_s, 8.0 / 1e6 / part_s.max(f64::MIN_POSITIVE))
}

/// By how much a curve grows in each part of the time, times `scale`.
fn differences(curve: &Samples, end_s: f64, scale: f64) -> Samples {
    let part_s = end_s / PARTS as f64;
    let (mut at, mut before) = (0, 0.0);
    let part = |part: usize| {
        let until_s = part_s * (part + 1) as f64;
        while at < curve.len() && curve[at].0 <= until_s {
            at += 1;
        }
        let now = if at > 0 { curve[at - 1].1 } else { 0.0 };
        let grown = now - std::mem::replace(&mut before, now);
        (until_s - part_s / 2.0, grown * scale)
    };
    if curve.is_empty() { Vec::new() } else { (0..PARTS).map(part).collect() }
}

impl TraceChart<'_> {
    fn drawn(self, end_s: f64) -> LineChart {
        let curve = |(name, points): (&str, Samples)| {
            let points = points.into_iter().map(|(x, y)| ChartPoint { x, heights: [y; 3] });
            let look = SeriesLook::of(name);
            ChartCurve { name: name.to_owned(), look, points: points.collect() }
        };
        LineChart {
            value: self.title.to_owned(),
            log: false,
            across: String::from("seconds"),
            places: ChartPlaces::Course(end_s),
            curves: self
                .curves
                .into_iter()
                .filter(|curve| !curve.1.is_empty())
                .map(curve)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_what_came_in_each_part_of_the_time() {
        let bytes = vec![(0.5, 125_000.0), (1.0, 250_000.0)];
        let rates = rate_of(&bytes, 2.0);
        let sum: f64 = rates.iter().map(|(_, rate)| rate * 2.0 / PARTS as f64).sum();
        assert!((sum - 2.0).abs() < 1e-9, "two megabits: {sum}");
        assert!(rates.iter().all(|(s, rate)| *s < 1.01 || *rate == 0.0));
        assert!(rate_of(&Vec::new(), 2.0).is_empty());
    }

    #[test]
    fn a_page_has_nothing_of_what_was_not_measured_and_no_markup_of_the_trace() {
        let mut run = TracedRun { title: "<b>".into(), end_s: 1.0, ..TracedRun::default() };
        let qp = TracedQp { rtt_ms: vec![(0.1, 3.0), (0.9, 4.0)], ..TracedQp::default() };
        run.qps.insert("0x7".into(), qp);
        let page = draw(&run);
        assert!(page.contains("round trip, ms") && !page.contains("packets lost</text>"));
        assert!(page.contains("&lt;b&gt;") && !page.contains("<b>"));
    }
}
