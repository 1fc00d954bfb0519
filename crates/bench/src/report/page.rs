//! The page: for each run what it was, then each figure with what was published, what is measured
//! here, what of it was reproduced, and all numbers in a table.

use weft_chart::{escape, style};

use super::chart::{self, FigureWidth};
use crate::figure::Figure;
use crate::journal::{Journal, JournalHead};
use crate::reading::Readings;
use crate::summary::{self, ClaimVerdict};

/// Nothing is loaded and no script runs, whatever the results have in their names.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'";
const STYLE: &str = include_str!("page.css");

/// The page of some runs.
pub fn html(journals: &[Journal]) -> String {
    let (mut heads, mut contents, mut parts) = (String::new(), String::new(), String::new());
    for (number, journal) in journals.iter().enumerate() {
        let part = Part { journal, suffix: suffix(number), alone: journals.len() == 1 };
        heads += &part.head();
        contents += &part.contents();
        parts += &part.html();
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>Weft and its peers</title>\n<style>\n{STYLE}{}\n</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#figures\">To the figures</a>\n\
         <header><h1>Weft and its peers</h1>\n\
         <p>The figures of the papers that Weft implements, measured on one machine. Under each \
         stands what the paper published, what is measured here in its place, and what of the \
         published shape was reproduced. Points are medians; the stroke through a point is its \
         range over the rounds.</p></header>\n\
         {heads}<nav aria-label=\"Figures\">{contents}</nav>\n\
         <main id=\"figures\">\n{parts}</main>\n</body>\n</html>\n",
        style()
    )
}

/// What tells the figures of one run from those of another.
fn suffix(number: usize) -> String {
    if number == 0 { String::new() } else { format!("-{}", number + 1) }
}

struct Part<'a> {
    journal: &'a Journal,
    suffix: String,
    /// Whether the page has no other run.
    alone: bool,
}

impl Part<'_> {
    /// The figures that something has been measured of, under names of their own.
    fn figures(&self) -> impl Iterator<Item = (Figure, String)> + '_ {
        self.journal.head.figures.iter().filter_map(|figure| {
            let figure = Figure { id: format!("{}{}", figure.id, self.suffix), ..figure.clone() };
            let draw = |wide| Some(chart::draw(&figure, &self.journal.readings, wide)?.svg);
            let (column, phone) = (draw(FigureWidth::Column)?, draw(FigureWidth::Phone)?);
            let svg = format!(
                "<div class=\"column\">\n{column}</div>\n<div class=\"phone\">\n{phone}</div>\n"
            );
            Some((figure, svg))
        })
    }

    fn contents(&self) -> String {
        let item = |(figure, _): (Figure, String)| {
            let (id, title) = (escape(&figure.id), escape(&figure.title));
            let verdicts = verdicts(&figure, &self.journal.readings);
            let held = verdicts.iter().filter(|verdict| verdict.holds == Some(true)).count();
            let tried = verdicts.iter().filter(|verdict| verdict.holds.is_some()).count();
            format!(
                "<li><a href=\"#{id}\">{title}</a> <span class=\"soft\">{held} of {tried} \
                 reproduced</span></li>\n"
            )
        };
        format!("<ul>\n{}</ul>\n", self.figures().map(item).collect::<String>())
    }

    fn html(&self) -> String {
        let figures = self.figures().map(|(figure, svg)| self.section(&figure, &svg));
        let figures: String = figures.collect();
        format!("{}{figures}{}", self.run(), self.gaps())
    }

    /// What a reader is to see first: whether it is a result, and what came out.
    fn head(&self) -> String {
        let JournalHead { commit, date, .. } = &self.journal.head;
        let run = if self.alone { String::new() } else { format!(": commit {commit}, {date}") };
        let text = self.banner() + &self.summary();
        if text.is_empty() {
            return text;
        }
        format!("<section><h2>In short{}</h2>\n{text}</section>\n", escape(&run))
    }

    /// What the run was.
    fn run(&self) -> String {
        let head = &self.journal.head;
        let load = self.journal.disturbance();
        let load = load.map_or_else(|| "unknown".into(), |load| load.sentence());
        let versions = head.versions.iter().map(|(name, version)| format!("{name}: {version}"));
        let rows = [
            ("machine", head.machine.clone()),
            ("date", head.date.clone()),
            ("commit", head.commit.clone()),
            ("rounds", format!("{}, {} s for each measurement", head.rounds, head.seconds)),
            ("seed", head.seed.to_string()),
            ("programs", versions.collect::<Vec<_>>().join("; ")),
            ("settings", head.settings.join("; ")),
            ("load", load),
        ];
        let rows = rows.iter().filter(|(_, value)| !value.is_empty());
        let rows: String = rows
            .map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(value)))
            .collect();
        format!("<section><h2>The run</h2>\n<dl>\n{rows}</dl>\n</section>\n")
    }

    /// Why the numbers are no result, where they are none.
    fn banner(&self) -> String {
        let reservations = self.journal.reservations();
        if reservations.is_empty() {
            return String::new();
        }
        let text = escape(&reservations.join(" "));
        format!("<p class=\"warn\" role=\"note\"><strong>This is no result.</strong> {text}</p>\n")
    }

    /// What came out as published and what did not, one sentence each.
    fn summary(&self) -> String {
        let list = |holds: bool, head: &str| {
            let item = |(figure, verdict): (&Figure, ClaimVerdict)| {
                let id = escape(&format!("{}{}", figure.id, self.suffix));
                format!("<li><a href=\"#{id}\">{}</a></li>\n", escape(&verdict.headline))
            };
            let all = self.journal.head.figures.iter().flat_map(|figure| {
                let verdicts = verdicts(figure, &self.journal.readings).into_iter();
                verdicts.map(move |verdict| (figure, verdict))
            });
            let mine = all.filter(|(_, verdict)| verdict.holds == Some(holds));
            match mine.map(item).collect::<String>() {
                items if items.is_empty() => items,
                items => format!("<h3>{head}</h3>\n<ul>\n{items}</ul>\n"),
            }
        };
        let text = list(true, "What holds") + &list(false, "What does not hold");
        if text.is_empty() {
            return text;
        }
        let (held, tried) = self.counts();
        format!(
            "<p>{held} of the {tried} statements that were checked hold. Each number is the ratio \
             of the two that the sentence compares.</p>\n{text}"
        )
    }

    /// How many statements hold, of how many that were checked.
    fn counts(&self) -> (usize, usize) {
        let figures = self.journal.head.figures.iter();
        let holds = figures.flat_map(|figure| verdicts(figure, &self.journal.readings));
        let checked: Vec<bool> = holds.filter_map(|verdict| verdict.holds).collect();
        (checked.iter().filter(|holds| **holds).count(), checked.len())
    }

    fn section(&self, figure: &Figure, svg: &str) -> String {
        let Figure { id, title, paper, shape, here, limits, .. } = figure;
        let [id, title, paper] = [id, title, paper].map(|text| escape(text));
        let words = [("What was published", shape), ("What is measured here", here)];
        let limits = [("What is not the same", limits)];
        let paragraph = |(head, text): &(&str, &String)| match text.as_str() {
            "" => String::new(),
            text => format!("<h3>{head}</h3>\n<p>{}</p>\n", prose(text)),
        };
        let before: String = words.iter().map(paragraph).collect();
        let after: String = limits.iter().map(paragraph).collect();
        let claims = claims(figure, &self.journal.readings);
        let table = table(figure, &self.journal.readings);
        format!(
            "<section aria-labelledby=\"h-{id}\" id=\"{id}\">\n<h2 id=\"h-{id}\">{title}</h2>\n\
             <p class=\"soft\">After {paper}</p>\n<figure>\n{svg}</figure>\n{table}{claims}{before}\
             {after}</section>\n"
        )
    }

    /// What is not in the figures.
    fn gaps(&self) -> String {
        let missing = self.journal.missing.iter().chain(&self.journal.failed);
        let item = |(name, why): (&String, &String)| {
            format!("<li>{}: {}</li>\n", escape(name), escape(why))
        };
        let items: String = missing.map(item).collect();
        if items.is_empty() {
            return items;
        }
        format!("<section><h2>Not measured</h2>\n<ul>\n{items}</ul></section>\n")
    }
}

/// Text in which backquotes enclose what a program is given.
fn prose(text: &str) -> String {
    let part = |(number, part): (usize, &str)| match number % 2 {
        0 => escape(part),
        _ => format!("<code>{}</code>", escape(part)),
    };
    text.split('`').enumerate().map(part).collect()
}

fn verdicts(figure: &Figure, readings: &Readings) -> Vec<ClaimVerdict> {
    figure.claims.iter().map(|claim| summary::verdict(claim, readings)).collect()
}

fn claims(figure: &Figure, readings: &Readings) -> String {
    let item = |verdict: ClaimVerdict| {
        let class = match verdict.holds {
            Some(true) => "yes",
            Some(false) => "no",
            None => "open",
        };
        let (word, rest) = verdict.sentence.split_once(':').unwrap_or(("", &verdict.sentence));
        format!("<li><span class=\"{class}\">{}:</span>{}</li>\n", escape(word), escape(rest))
    };
    let items: String = verdicts(figure, readings).into_iter().map(item).collect();
    format!("<h3>What was reproduced</h3>\n<ul class=\"claims\">\n{items}</ul>\n")
}

/// All numbers: medians, and the range where there are several rounds.
fn table(figure: &Figure, readings: &Readings) -> String {
    let figure = &summary::measured(figure, readings);
    let (title, unit) = (escape(&figure.title), escape(&figure.y.label));
    let curves = || figure.curves.iter();
    let heads: String =
        curves().map(|c| format!("<th scope=\"col\">{}</th>", escape(&c.name))).collect();
    let rows: String = summary::rows(figure, readings)
        .iter()
        .filter_map(|row| {
            let (name, cells) = row.split_first()?;
            let cells: String = cells.iter().map(|c| format!("<td>{}</td>", escape(c))).collect();
            Some(format!("<tr><th scope=\"row\">{}</th>{cells}</tr>\n", escape(name)))
        })
        .collect();
    let x = escape(&figure.x.label);
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}, numbers\">\n\
         <table><caption>Medians, {unit}</caption>\n<thead><tr><th scope=\"col\">{x}</th>{heads}\
         </tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Bound, Claim, FigureAxis, FigureCurve, FigurePoint, Relation, Scale};
    use crate::reading::{ProbeReading, ReadingUnit, record};

    fn journal() -> Journal {
        let hostile = "<script>alert(1)</script>\" onload='x'";
        let (place, series, relation) = (hostile.into(), "s".into(), Relation::Alone);
        let point = FigurePoint { x: 1.0, place, series, relation };
        let figure = Figure {
            id: hostile.into(),
            title: hostile.into(),
            limits: hostile.into(),
            x: FigureAxis { label: hostile.into(), scale: Scale::Names },
            curves: vec![FigureCurve { name: hostile.into(), points: vec![point] }],
            claims: vec![Claim {
                text: hostile.into(),
                over: "s".into(),
                under: "s".into(),
                bound: Bound::Most(1.0),
                otherwise: hostile.into(),
            }],
            ..Figure::default()
        };
        let mut journal = Journal::default();
        journal.head.rounds = 1;
        journal.head.figures.push(figure);
        journal.head.machine = hostile.into();
        journal.missing.insert(hostile.into(), hostile.into());
        record(
            &mut journal.readings,
            0,
            vec![ProbeReading::new("s", ReadingUnit::Microseconds, 2.0)],
        );
        journal
    }

    #[test]
    fn nothing_in_the_results_becomes_part_of_the_page() {
        let html = html(&[journal(), journal()]);
        assert!(!html.contains("<script") && !html.contains("\" onload"), "{html}");
        assert!(html.contains("&lt;script&gt;"));
    }

    #[test]
    fn what_the_run_is_worth_stands_on_top() {
        let html = html(&[journal()]);
        let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}: {html}"));
        assert!(
            at("This is no result.") < at("1 of the 1 statements") && at("What holds") < at("<nav")
        );
        assert!(at("<nav") < at("<h2>The run"));
    }

    #[test]
    fn what_a_program_is_given_is_code() {
        assert_eq!(prose("by `a < b`."), "by <code>a &lt; b</code>.");
    }

    #[test]
    fn every_figure_has_a_table_and_a_name_of_its_own() {
        let html = html(&[journal(), journal()]);
        assert_eq!(html.matches("<svg ").count(), 4, "for a desk and for a phone");
        assert_eq!(html.matches("<table>").count(), 2);
        let ids: Vec<&str> =
            html.split(" id=\"").skip(1).filter_map(|r| r.split('"').next()).collect();
        let unique: std::collections::BTreeSet<&&str> = ids.iter().collect();
        assert_eq!(ids.len(), unique.len(), "{ids:?}");
    }
}
