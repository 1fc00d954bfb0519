//! Summary of a run in Markdown: the machine, a table for each figure, and its claims.

use weft_chart::{markdown, number};

use crate::figure::{Claim, ClaimRatio, Figure};
use crate::journal::{Journal, JournalHead};
use crate::reading::{Readings, speed_sentence};
use crate::reasons::by_reason;

/// All of it, in Markdown.
pub fn text(journal: &Journal) -> String {
    let mut text = about(journal);
    for figure in &journal.head.figures {
        let figure = &measured(figure, &journal.readings);
        let rows = rows(figure, &journal.readings);
        if rows.is_empty() {
            continue;
        }
        text +=
            &format!("\n## {}\n\nAfter {}, in {}.\n\n", figure.title, figure.paper, figure.y.label);
        let head: Vec<&str> = std::iter::once(figure.x.label.as_str())
            .chain(figure.curves.iter().map(|curve| curve.name.as_str()))
            .collect();
        text += &markdown(&head, &rows);
        text.push('\n');
        for claim in &figure.claims {
            text += &format!("- {}\n", verdict(claim, &journal.readings).sentence);
        }
    }
    for gap in by_reason(journal.missing.iter()) {
        text += &format!("\nNot measured: {gap}.");
    }
    text.push('\n');
    text
}

/// The run in two sentences.
pub fn about(journal: &Journal) -> String {
    let JournalHead { machine, commit, date, rounds, seconds, seed, quick, .. } = &journal.head;
    let look = if *quick { " A look, not a result." } else { "" };
    let load = journal.disturbance().map_or_else(
        || String::from("How busy the machine was is unknown."),
        |load| load.sentence(),
    );
    let end = if journal.is_unfinished() { " The run is unfinished." } else { "" };
    format!(
        "{machine}; commit {commit}; {date}; seed {seed}.\n{rounds} rounds, the measurements in \
         turn, about {seconds} s each; medians.{look} {load}{end}\n"
    )
}

/// The figure without the curves of which nothing was measured.
pub fn measured(figure: &Figure, readings: &Readings) -> Figure {
    let mut figure = figure.clone();
    figure.curves.retain(|curve| curve.points.iter().any(|p| p.heights(readings).is_some()));
    figure
}

/// For each place across its name and the median of each curve; none where nothing was measured.
pub fn rows(figure: &Figure, readings: &Readings) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for place in figure.places() {
        let median = |curve: &crate::figure::FigureCurve| {
            Some(number(curve.at(place.x)?.heights(readings)?.median()))
        };
        let medians: Vec<Option<String>> = figure.curves.iter().map(median).collect();
        if medians.iter().any(Option::is_some) {
            let name =
                if place.place.is_empty() { place.x.to_string() } else { place.place.clone() };
            let cells = medians.into_iter().map(Option::unwrap_or_default);
            rows.push(std::iter::once(name).chain(cells).collect());
        }
    }
    rows
}

/// What came of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimVerdict {
    /// Whether it held; nothing where it was not measured.
    pub holds: Option<bool>,
    /// As a sentence.
    pub sentence: String,
    /// The claim and its ratio alone.
    pub headline: String,
}

/// Looks at a claim.
pub fn verdict(claim: &Claim, readings: &Readings) -> ClaimVerdict {
    let Claim { text, bound, otherwise, .. } = claim;
    let Some(ratio) = claim.ratio(readings) else {
        let sentence = format!("Not measured: {text}.");
        return ClaimVerdict { holds: None, headline: sentence.clone(), sentence };
    };
    // Only the ratio was measured; its cause was not.
    let why = match otherwise.as_str() {
        "" => String::new(),
        _ if ratio.holds => String::new(),
        cause => format!("Possibly: {cause}"),
    };
    let seen = if ratio.holds { "Reproduced" } else { "Not reproduced" };
    let found = found(&ratio, &bound.words());
    let sentence = format!("{seen}: {text}: {found}. {why}").trim_end().to_owned();
    let headline = format!("{text}: {}", number(ratio.paired.median));
    ClaimVerdict { holds: Some(ratio.holds), sentence, headline }
}

/// The ratio with its range, the reference's own range, and whether the machine was steady.
fn found(ratio: &ClaimRatio, bound: &str) -> String {
    let ((low, high), (least, most)) = (ratio.paired.range, ratio.reference_range);
    let [median, low, high, least, most] =
        [ratio.paired.median, low, high, least, most].map(number);
    let unit = ratio.reference_unit.label();
    let mut found = format!(
        "{median} ({low} to {high}), where {bound} was expected; the reference {least} to {most} \
         {unit}"
    );
    if let Some(change) = ratio.speed_change {
        found += &format!(", {}", speed_sentence(change));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Bound, FigureAxis, FigureCurve, FigurePoint, Relation, Scale};
    use crate::reading::{ProbeReading, ReadingUnit, record};

    fn figure() -> Figure {
        let point = |x: f64, series: &str| FigurePoint {
            x,
            place: String::new(),
            series: series.into(),
            relation: Relation::Alone,
        };
        let curve = |name: &str, points| FigureCurve { name: name.into(), points };
        let claim = Claim {
            text: "A is half of B".into(),
            over: "a 1".into(),
            under: "b 1".into(),
            bound: Bound::Most(0.5),
            otherwise: "Because.".into(),
        };
        Figure {
            title: "Figure".into(),
            x: FigureAxis { label: "bytes".into(), scale: Scale::Log },
            curves: vec![
                curve("A", vec![point(1.0, "a 1"), point(2.0, "a 2")]),
                curve("B", vec![point(1.0, "b 1")]),
            ],
            claims: vec![claim],
            ..Figure::default()
        }
    }

    #[test]
    fn a_figure_becomes_a_table_and_its_claims_sentences() {
        let mut readings = Readings::new();
        let mut add = |name: &str, value| {
            record(
                &mut readings,
                0,
                vec![ProbeReading::new(name, ReadingUnit::Microseconds, value)],
            );
        };
        add("a 1", 6.0);
        add("a 2", 7.0);
        let figure = figure();
        assert_eq!(rows(&figure, &readings), [["1", "6.00", ""], ["2", "7.00", ""]]);
        assert_eq!(verdict(&figure.claims[0], &readings).holds, None);
        record(&mut readings, 0, vec![ProbeReading::new("b 1", ReadingUnit::Microseconds, 8.0)]);
        let verdict = verdict(&figure.claims[0], &readings);
        assert_eq!(verdict.holds, Some(false));
        let sentence = "Not reproduced: A is half of B: 0.750 (0.750 to 0.750), where at most 0.5 \
                        was expected; the reference 8.00 to 8.00 us. Possibly: Because.";
        assert_eq!(verdict.sentence, sentence);
        assert_eq!(verdict.headline, "A is half of B: 0.750");
    }

    #[test]
    fn a_reference_that_changes_speed_is_told_of() {
        let mut readings = Readings::new();
        for (round, a, b) in [(0, 1.0, 4.0), (1, 4.0, 16.0)] {
            let of = |name: &str, value| ProbeReading::new(name, ReadingUnit::Microseconds, value);
            record(&mut readings, round, vec![of("a 1", a), of("b 1", b)]);
        }
        let sentence = verdict(&figure().claims[0], &readings).sentence;
        let end = "the reference 4.00 to 16.0 us, the machine changed speed by 4.00.";
        assert!(sentence.starts_with("Reproduced") && sentence.ends_with(end), "{sentence}");
    }
}
