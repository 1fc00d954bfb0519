//! Where values stand along an axis, and what is written beside it.

use crate::text::{shorten, text_width};

/// From where to where an axis goes, in the picture's units; downwards or to the left as well.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Where the least value stands.
    pub from: f64,
    /// Where the greatest stands.
    pub to: f64,
}

/// An axis of a chart.
#[derive(Clone, Debug)]
pub struct ChartAxis {
    span: Span,
    log: bool,
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
}

/// A label below a horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisLabel {
    /// Where its value stands.
    pub at: f64,
    /// Where the middle of its text stands: a text at an edge of the picture is moved inwards.
    pub middle: f64,
    /// Its text.
    pub text: String,
}

/// Between the labels of a horizontal axis, in ems.
const BETWEEN: f64 = 0.8;
/// The longest label has at most this part of a horizontal axis.
const LONGEST: f64 = 0.4;
/// More powers of ten than this are too close together.
const POWERS_MAX: usize = 7;
/// Values below this part of the largest are crowded on a linear axis.
const CROWDED: f64 = 20.0;
/// About so many parts has an axis that is divided evenly.
const PARTS: f64 = 4.0;
/// Part of a step by which the greatest value may exceed an axis: less than a line is wide.
const EXCESS: f64 = 0.02;

impl ChartAxis {
    /// An axis with a tick at each of some places; `log` where it can be, and `sizes` have powers
    /// of 1024 in their names.
    pub fn of_places(places: &[f64], log: bool, sizes: bool, span: Span) -> Self {
        let [low, high] = bounds(places);
        let log = log && low > 0.0;
        let low = if log { low } else { low.min(0.0) };
        let name = |place: f64| if sizes { size_name(place) } else { short(place) };
        let ticks = places.iter().map(|place| (*place, name(*place))).collect();
        Self { span, log, low, high, ticks }
    }

    /// An axis with a tick at each of some places with names, in their order. It is logarithmic
    /// where the greatest is more than 20 times the least.
    pub fn of_names(named: Vec<(f64, String)>, span: Span) -> Self {
        let places: Vec<f64> = named.iter().map(|(place, _)| *place).collect();
        let [low, high] = bounds(&places);
        let log = low > 0.0 && high > low * CROWDED;
        let low = if log { low } else { low.min(0.0) };
        Self { span, log, low, high, ticks: named }
    }

    /// An axis with ticks at round numbers that holds all of some values; `log` where it can be.
    pub fn of_values(values: &[f64], log: bool, span: Span) -> Self {
        let [low, high] = bounds(values);
        if log && low > 0.0 {
            return Self::of_powers(low, high, span);
        }
        let (low, high) = (low.min(0.0), high.max(0.0));
        let high = if high > low { high } else { 1.0 };
        let step = nice((high - low) / PARTS);
        let (first, last) = ((low / step).floor() as i32, (high / step - EXCESS).ceil() as i32);
        let value = |part: i32| f64::from(part) * step;
        let ticks = (first..=last).map(|part| (value(part), short(value(part)))).collect();
        Self { span, log: false, low: value(first), high: value(last), ticks }
    }

    /// An axis from zero to the greatest of some values, such as times, with ticks at the round
    /// numbers between.
    pub fn of_course(values: &[f64], span: Span) -> Self {
        let [low, high] = bounds(values);
        let low = low.min(0.0);
        let step = nice(((high - low) / (PARTS + 1.0)).max(f64::MIN_POSITIVE));
        let (first, last) = ((low / step).ceil() as i32, (high / step).floor() as i32);
        let value = |part: i32| f64::from(part) * step;
        let ticks = (first..=last).map(|part| (value(part), short(value(part)))).collect();
        Self { span, log: false, low, high, ticks }
    }

    fn of_powers(low: f64, high: f64, span: Span) -> Self {
        let first = low.log10().floor() as i32;
        let last = (high.log10().ceil() as i32).max(first + 1);
        let each = usize::try_from(last - first).unwrap_or(1).div_ceil(POWERS_MAX);
        let powers = (first..=last).step_by(each.max(1));
        let ticks = powers.map(|power| 10f64.powi(power)).map(|v| (v, short(v))).collect();
        Self { span, log: true, low: 10f64.powi(first), high: 10f64.powi(last), ticks }
    }

    /// Its name, of that quantity, which says whether it is logarithmic.
    pub fn label(&self, quantity: &str) -> String {
        let scale = if self.log { ", log scale" } else { "" };
        format!("{quantity}{scale}")
    }

    /// Labels of a horizontal axis in a font of `font` points between two edges: as many of its
    /// ticks as have room, each second or third of them if that is as many. The last is one of them
    /// in any case.
    pub fn labels_across(&self, font: f64, [left, right]: [f64; 2]) -> Vec<AxisLabel> {
        let most = (right - left) * LONGEST;
        let label = |(at, text): (f64, String)| {
            let text = shorten(&text, font, most);
            let half = text_width(&text, font) / 2.0;
            AxisLabel { at, middle: at.min(right - half).max(left + half), text }
        };
        let mut all: Vec<AxisLabel> = self.ticks().map(label).collect();
        all.reverse();
        let apart = |a: &AxisLabel, b: &AxisLabel| {
            // By their order: a wide label that was moved inwards may have passed its neighbour.
            let halves = (text_width(&a.text, font) + text_width(&b.text, font)) / 2.0;
            a.middle - b.middle >= halves + BETWEEN * font
        };
        let each = |step: usize| all.iter().step_by(step).collect::<Vec<_>>();
        let fits = |labels: &Vec<&AxisLabel>| labels.windows(2).all(|two| apart(two[0], two[1]));
        let regular = (1..=all.len()).map(each).find(fits).unwrap_or_default();
        let mut most: Vec<&AxisLabel> = Vec::new();
        for label in &all {
            if most.last().is_none_or(|last| apart(last, label)) {
                most.push(label);
            }
        }
        let chosen = if regular.len() >= most.len() { regular } else { most };
        chosen.into_iter().rev().cloned().collect()
    }

    /// Labels of a vertical axis: those of its ticks that are `apart` from each other, the last one
    /// in any case.
    pub fn labels_up(&self, apart: f64) -> Vec<(f64, String)> {
        let mut labels: Vec<(f64, String)> = Vec::new();
        let ticks: Vec<(f64, String)> = self.ticks().collect();
        for (at, text) in ticks.into_iter().rev() {
            if labels.last().is_none_or(|(last, _)| (last - at).abs() >= apart) {
                labels.push((at, text));
            }
        }
        labels.reverse();
        labels
    }

    /// Where a value stands.
    pub fn at(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.log { value.ln() } else { value };
        let (low, high) = (scale(self.low), scale(self.high));
        let share = if high > low { (scale(value) - low) / (high - low) } else { 0.5 };
        self.span.from + share * (self.span.to - self.span.from)
    }

    /// Where its ticks are and what they are called.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        self.ticks.iter().map(|(value, name)| (self.at(*value), name.clone()))
    }
}

/// Whether a linear axis would crowd most of some values into its lowest twentieth, so that a
/// logarithmic one shows more. Values that are not above zero have no logarithm.
pub fn wants_log(values: &[f64]) -> bool {
    let (low, high) = range(values.iter().copied());
    let crowded = values.iter().filter(|value| **value < high / CROWDED).count();
    low > 0.0 && high.is_finite() && crowded * 2 >= values.len()
}

fn bounds(values: &[f64]) -> [f64; 2] {
    let (low, high) = range(values.iter().copied());
    if low.is_finite() { [low, high] } else { [0.0, 1.0] }
}

/// The smallest and the largest of some numbers; infinite of none.
pub fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

/// The next of 1, 2, 2.5 and 5 times a power of ten.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value * 0.999).unwrap_or(value)
}

/// A number of a tick: short whatever its magnitude.
fn short(value: f64) -> String {
    let trimmed = |text: String| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    };
    let scaled = |unit: f64, name: &str| trimmed(format!("{:.3}", value / unit)) + name;
    match value.abs() {
        0.0 => String::from("0"),
        size if (1e-4..1e4).contains(&size) => trimmed(format!("{value:.6}")),
        size if (1e4..1e6).contains(&size) => scaled(1e3, "k"),
        size if (1e6..1e9).contains(&size) => scaled(1e6, "M"),
        size if (1e9..1e12).contains(&size) => scaled(1e9, "G"),
        size if (1e12..1e15).contains(&size) => scaled(1e12, "T"),
        _ => {
            let text = format!("{value:.2e}");
            let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
            format!("{}e{power}", trimmed(digits.to_owned()))
        }
    }
}

fn size_name(bytes: f64) -> String {
    let exact = |unit: f64| (bytes / unit).fract() == 0.0 && bytes >= unit;
    match bytes {
        _ if exact(1048576.0) => format!("{}M", bytes / 1048576.0),
        _ if exact(1024.0) => format!("{}K", bytes / 1024.0),
        _ => short(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span { from: 100.0, to: 0.0 };

    #[test]
    fn even_axes_begin_at_zero_and_end_at_a_round_number() {
        let axis = ChartAxis::of_values(&[3.0, 180.0], false, SPAN);
        let ticks: Vec<(f64, String)> = axis.ticks().collect();
        assert_eq!(ticks[0], (100.0, "0".into()));
        assert_eq!(ticks[4], (0.0, "200".into()));
        assert_eq!(axis.at(100.0), 50.0);
        let both = ChartAxis::of_values(&[-0.3, 0.4], false, SPAN);
        let names: Vec<String> = both.ticks().map(|(_, name)| name).collect();
        assert_eq!(names, ["-0.4", "-0.2", "0", "0.2", "0.4"]);
    }

    #[test]
    fn a_course_ends_where_its_values_end() {
        let axis = ChartAxis::of_course(&[0.0, 4.0, 12.0], SPAN);
        assert_eq!((axis.at(0.0), axis.at(12.0)), (100.0, 0.0));
        let names: Vec<String> = axis.ticks().map(|(_, name)| name).collect();
        assert_eq!(names, ["0", "2.5", "5", "7.5", "10"]);
        assert!(ChartAxis::of_course(&[3.0], SPAN).at(3.0).is_finite());
    }

    #[test]
    fn powers_hold_all_values() {
        let axis = ChartAxis::of_values(&[0.05, 2000.0], true, SPAN);
        let names: Vec<String> = axis.ticks().map(|(_, name)| name).collect();
        assert_eq!(names, ["0.01", "0.1", "1", "10", "100", "1000", "10k"]);
        assert!((0.0..=100.0).contains(&axis.at(0.05)) && (0.0..=100.0).contains(&axis.at(2000.0)));
    }

    fn texts(labels: &[AxisLabel]) -> Vec<&str> {
        labels.iter().map(|label| label.text.as_str()).collect()
    }

    #[test]
    fn places_are_named_and_thinned_from_the_right() {
        let sizes: Vec<f64> = (0..8).map(|power| 1024.0 * f64::powi(4.0, power)).collect();
        let wide = Span { from: 0.0, to: 200.0 };
        let labels =
            ChartAxis::of_places(&sizes, true, true, wide).labels_across(15.0, [0.0, 200.0]);
        assert_eq!(texts(&labels), ["4K", "64K", "1M", "16M"]);
        let one = ChartAxis::of_places(&[64.0], true, true, SPAN);
        assert_eq!(one.at(64.0), 50.0);
    }

    #[test]
    fn names_stand_at_their_places_and_far_values_at_powers() {
        let wide = Span { from: 0.0, to: 400.0 };
        let named = |texts: &[(f64, &str)]| {
            let named = texts.iter().map(|(place, name)| (*place, (*name).to_owned()));
            ChartAxis::of_names(named.collect(), wide)
        };
        let rates = named(&[(1e9, "1gbit"), (1e10, "10gbit"), (1e11, "100gbit")]);
        assert_eq!(rates.label("rate"), "rate, log scale");
        let labels = rates.labels_across(15.0, [0.0, 400.0]);
        assert_eq!(texts(&labels), ["1gbit", "10gbit", "100gbit"]);
        let at: Vec<i64> = labels.iter().map(|label| label.at.round() as i64).collect();
        assert_eq!(at, [0, 200, 400]);
        let half = text_width("1gbit", 15.0) / 2.0;
        assert_eq!(labels[0].middle, half, "moved inwards from the edge");
        let losses = named(&[(0.0, "0%"), (0.1, "0.1%"), (5.0, "5%")]);
        assert_eq!(losses.label("loss"), "loss", "zero has no logarithm");
        let labels = losses.labels_across(15.0, [0.0, 400.0]);
        assert_eq!(texts(&labels), ["0%", "5%"], "names do not overlap");
    }

    #[test]
    fn a_tick_is_short_whatever_its_magnitude() {
        let shown = [0.25, 1e-4, 2.5e-9, -0.4, 9999.0, 12_500.0, 2.5e6, -1e9, 7.5e12, 1e200];
        let wanted =
            ["0.25", "0.0001", "2.5e-9", "-0.4", "9999", "12.5k", "2.5M", "-1G", "7.5T", "1e200"];
        assert_eq!(shown.map(short), wanted);
    }

    #[test]
    fn a_value_just_above_a_tick_needs_no_other() {
        let axis = ChartAxis::of_values(&[0.2, 1.003], false, SPAN);
        let names: Vec<String> = axis.ticks().map(|(_, name)| name).collect();
        assert_eq!(names.last().map(String::as_str), Some("1"), "{names:?}");
    }

    #[test]
    fn an_outlier_asks_for_a_logarithmic_axis() {
        assert!(wants_log(&[1.0, 2.0, 3.0, 900.0]));
        assert!(wants_log(&[0.95, 0.92, 0.003, 0.03]), "half of them");
        assert!(!wants_log(&[10.0, 20.0, 150.0]));
        assert!(!wants_log(&[0.0, 1.0, 900.0]) && !wants_log(&[]), "there is no logarithm");
    }

    #[test]
    fn nothing_measured_is_no_panic() {
        let zeros = ChartAxis::of_values(&[0.0; 3], true, SPAN);
        let names: Vec<String> = zeros.ticks().map(|(_, name)| name).collect();
        assert_eq!(names, ["0", "0.25", "0.5", "0.75", "1"]);
        for log in [false, true] {
            assert!(ChartAxis::of_values(&[], log, SPAN).at(1.0).is_finite());
            assert!(ChartAxis::of_places(&[], log, true, SPAN).at(1.0).is_finite());
        }
    }
}
