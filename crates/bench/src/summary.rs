//! Summary of a run in Markdown: the machine, a table for each figure, and its claims.

use weft_chart::{markdown, number};

use crate::figure::{Claim, Figure};
use crate::journal::{Journal, JournalHead};
use crate::reading::Readings;

/// All of it, in Markdown.
pub fn text(journal: &Journal) -> String {
    let mut text = about(journal);
    for figure in &journal.head.figures {
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
    for (name, why) in &journal.missing {
        text += &format!("\nNot measured: {name}: {why}.");
    }
    text.push('\n');
    text
}

/// The run in two sentences.
pub fn about(journal: &Journal) -> String {
    let JournalHead { machine, commit, date, rounds, seconds, seed, quick, .. } = &journal.head;
    let look = if *quick { " A look, not a result." } else { "" };
    format!(
        "{machine}; commit {commit}; {date}; seed {seed}.\n{rounds} rounds, the measurements in \
         turn, about {seconds} s each; medians.{look} {}\n",
        journal.disturbance().sentence()
    )
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
}

/// Looks at a claim.
pub fn verdict(claim: &Claim, readings: &Readings) -> ClaimVerdict {
    let Claim { text, bound, otherwise, .. } = claim;
    let Some(ratio) = claim.ratio(readings) else {
        return ClaimVerdict { holds: None, sentence: format!("Not measured: {text}.") };
    };
    let ((low, high), bound) = (ratio.range, bound.words());
    let [median, low, high] = [ratio.median, low, high].map(number);
    let found = format!("{median} ({low} to {high}), where {bound} was expected");
    let why = if ratio.holds || otherwise.is_empty() { "" } else { otherwise };
    let seen = if ratio.holds { "Reproduced" } else { "Not reproduced" };
    let sentence = format!("{seen}: {text}: {found}. {why}").trim_end().to_owned();
    ClaimVerdict { holds: Some(ratio.holds), sentence }
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
                        was expected. Because.";
        assert_eq!(verdict.sentence, sentence);
    }
}
