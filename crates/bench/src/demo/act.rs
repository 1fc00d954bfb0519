//! What an act of the demonstration found, as the JSON of `--json` has it.

use serde::Serialize;

/// The path of acts 3 and 4.
pub(super) const PATH: &str = "70ms 1% 1gbit";

/// An act that was played.
#[derive(Debug, Default, Serialize)]
pub struct DemoAct {
    /// From 1 to 4.
    pub act: u8,
    /// What it is about.
    pub title: &'static str,
    /// What was measured.
    pub measured: Vec<DemoNumber>,
    /// Data that was compared, and by what.
    pub verified: Vec<String>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
    /// Why Weft is slower, where it is.
    pub reasons: Vec<String>,
}

/// One bar.
#[derive(Clone, Debug, Serialize)]
pub struct DemoNumber {
    /// The group that it is compared in.
    pub group: &'static str,
    /// What was measured.
    pub label: String,
    /// Unit of `value`.
    pub unit: &'static str,
    /// The number; what did not end in time has none.
    pub value: Option<f64>,
    /// Whether it is Weft's.
    pub is_weft: bool,
    /// What must be known to read it, such as that it did not end.
    pub note: String,
}

impl DemoAct {
    /// An act that has not found anything yet.
    pub fn new(act: u8, title: &'static str) -> Self {
        Self { act, title, ..Self::default() }
    }
}
