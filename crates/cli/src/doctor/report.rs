//! Findings, as text and as JSON.

use std::fmt::Write;

use serde::Serialize;

/// Columns before the text of a finding.
const INDENT: usize = 18;

/// Severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No problem.
    Ok,
    /// Information.
    Note,
    /// Something will not work.
    Wrong,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// What was looked at, in a word.
    pub check: &'static str,
    /// Severity.
    pub outcome: Severity,
    /// What was found.
    pub text: String,
    /// What can be done about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl CheckResult {
    /// Something as it should be.
    pub fn fine(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, outcome: Severity::Ok, text: text.into(), advice: None }
    }

    /// Something worth knowing.
    pub fn note(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, outcome: Severity::Note, text: text.into(), advice: None }
    }

    /// Something that will not work.
    pub fn wrong(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, outcome: Severity::Wrong, text: text.into(), advice: None }
    }

    /// The same, with what can be done about it.
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// All that was found, in order.
#[derive(Debug, Default)]
pub struct DoctorReport(Vec<CheckResult>);

#[derive(Serialize)]
struct DoctorJson<'a> {
    ok: bool,
    findings: &'a [CheckResult],
}

impl DoctorReport {
    /// Adds a finding.
    pub fn add(&mut self, finding: CheckResult) {
        self.0.push(finding);
    }

    /// Whether everything will work.
    pub fn is_well(&self) -> bool {
        self.0.iter().all(|finding| finding.outcome != Severity::Wrong)
    }

    /// A line for each finding, and one for what can be done.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for CheckResult { check, outcome, text: what, advice } in &self.0 {
            let mark = match outcome {
                Severity::Ok => "ok",
                Severity::Note => "note",
                Severity::Wrong => "WRONG",
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
        let whole = DoctorJson { ok: self.is_well(), findings: &self.0 };
        let json = serde_json::to_string_pretty(&whole).expect("text and numbers are JSON");
        json + "\n"
    }

    #[cfg(test)]
    pub fn findings(&self) -> &[CheckResult] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_will_not_work_is_a_failure() {
        let mut report = DoctorReport::default();
        report.add(CheckResult::fine("mtu", "1500 bytes"));
        report.add(CheckResult::note("memlock", "64 KiB").advise("nothing"));
        assert!(report.is_well());
        report.add(CheckResult::wrong("program", "static"));
        assert!(!report.is_well());
        let lines = "ok    mtu         1500 bytes\nnote  memlock     64 KiB\n";
        assert!(report.to_text().starts_with(lines), "{}", report.to_text());
        assert!(report.to_text().contains("\n                  -> nothing\n"));
    }

    #[test]
    fn programs_read_the_same() {
        let mut report = DoctorReport::default();
        report.add(CheckResult::wrong("program", "a \"static\" one").advise("link it"));
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["ok"], false);
        assert_eq!(json["findings"][0]["outcome"], "wrong");
        assert_eq!(json["findings"][0]["text"], "a \"static\" one");
    }
}
