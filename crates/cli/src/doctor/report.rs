//! What was found, for people and for programs.

use std::fmt::Write;

use serde::Serialize;

/// Columns before the text of a finding.
const INDENT: usize = 18;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it should be.
    Ok,
    /// Worth knowing, and in nobody's way.
    Note,
    /// Something will not work.
    Wrong,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, in a word.
    pub check: &'static str,
    /// How bad it is.
    pub outcome: Outcome,
    /// What was found.
    pub text: String,
    /// What can be done about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// Something as it should be.
    pub fn fine(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, outcome: Outcome::Ok, text: text.into(), advice: None }
    }

    /// Something worth knowing.
    pub fn note(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, outcome: Outcome::Note, text: text.into(), advice: None }
    }

    /// Something that will not work.
    pub fn wrong(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, outcome: Outcome::Wrong, text: text.into(), advice: None }
    }

    /// The same, with what can be done about it.
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// All that was found, in order.
#[derive(Debug, Default)]
pub struct Report(Vec<Finding>);

#[derive(Serialize)]
struct Whole<'a> {
    ok: bool,
    findings: &'a [Finding],
}

impl Report {
    /// Adds a finding.
    pub fn add(&mut self, finding: Finding) {
        self.0.push(finding);
    }

    /// Whether everything will work.
    pub fn is_well(&self) -> bool {
        self.0.iter().all(|finding| finding.outcome != Outcome::Wrong)
    }

    /// A line for each finding, and one for what can be done.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for Finding { check, outcome, text: what, advice } in &self.0 {
            let mark = match outcome {
                Outcome::Ok => "ok",
                Outcome::Note => "note",
                Outcome::Wrong => "WRONG",
            };
            let _ = writeln!(text, "{mark:<6}{check:<12}{what}");
            if let Some(advice) = advice {
                let _ = writeln!(text, "{:INDENT$}-> {advice}", "");
            }
        }
        text
    }

    /// One object: `ok`, and the findings.
    pub fn to_json(&self) -> String {
        let whole = Whole { ok: self.is_well(), findings: &self.0 };
        let json = serde_json::to_string_pretty(&whole).expect("text and numbers are JSON");
        json + "\n"
    }

    #[cfg(test)]
    pub fn findings(&self) -> &[Finding] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_will_not_work_is_a_failure() {
        let mut report = Report::default();
        report.add(Finding::fine("mtu", "1500 octets"));
        report.add(Finding::note("memlock", "64 KiB").advise("nothing"));
        assert!(report.is_well());
        report.add(Finding::wrong("program", "static"));
        assert!(!report.is_well());
        let lines = "ok    mtu         1500 octets\nnote  memlock     64 KiB\n";
        assert!(report.to_text().starts_with(lines), "{}", report.to_text());
        assert!(report.to_text().contains("\n                  -> nothing\n"));
    }

    #[test]
    fn programs_read_the_same() {
        let mut report = Report::default();
        report.add(Finding::wrong("program", "a \"static\" one").advise("link it"));
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["ok"], false);
        assert_eq!(json["findings"][0]["outcome"], "wrong");
        assert_eq!(json["findings"][0]["text"], "a \"static\" one");
    }
}
