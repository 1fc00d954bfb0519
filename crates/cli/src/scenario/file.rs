//! Scenario files: TOML with steps and expectations, docs/scenarios.md.
//!
//! A step is a fault with times, counts and processes beside it; [`ScenarioFile::plan`] makes the
//! plan of them that the programs are given. What is wrong is said with the line where it stands.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use toml::Spanned;
use weft_fault::FaultPlan;
use weft_units::{parse_time_ns, show_time_exactly};

/// Times that a step happens at most.
const REPEAT_MAX: u32 = 100;

/// What a file says, before it is checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    name: Option<String>,
    /// What it is about, for who reads the file.
    #[serde(default)]
    #[expect(dead_code, reason = "for people")]
    about: Option<String>,
    seed: Option<u64>,
    #[serde(default)]
    step: Vec<Spanned<RawStep>>,
    #[serde(default)]
    expect: RawExpect,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    fault: Spanned<String>,
    at: Option<Spanned<String>>,
    after: Option<u64>,
    until: Option<Spanned<String>>,
    repeat: Option<Spanned<u32>>,
    every: Option<Spanned<Every>>,
    process: Option<Spanned<ProcessChoice>>,
}

/// A distance in time or in what the fault counts.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`every` is a time such as \"1s\", or a count")]
enum Every {
    Count(u64),
    Time(String),
}

/// A program by its name, or a process by its rank.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`process` is a program's name, or a rank")]
enum ProcessChoice {
    Rank(u32),
    Name(String),
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExpect {
    exit: Option<Spanned<RawExit>>,
    within: Option<Spanned<String>>,
    max_stall: Option<Spanned<String>>,
    recovers_to: Option<Spanned<f64>>,
    recovers_within: Option<Spanned<String>>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "`exit` is a status from 0 to 255, a list of them, or \"any\"")]
enum RawExit {
    One(u8),
    Several(Vec<u8>),
    Word(ExitWord),
}

#[derive(Debug, PartialEq, Deserialize)]
enum ExitWord {
    #[serde(rename = "any")]
    Any,
}

/// How CMD is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedExit {
    /// With one of these statuses.
    Statuses(Vec<u8>),
    /// By itself, with any status.
    ByItself,
}

/// What is expected of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectations {
    /// How CMD ends.
    pub exit: ExpectedExit,
    /// In how much time, in nanoseconds; it is killed then.
    pub within_ns: u64,
    /// How long no process may be without progress, in nanoseconds.
    pub max_stall_ns: Option<u64>,
    /// Which share of its rate before the first fault it comes to after the last.
    pub recovers_to: Option<f64>,
    /// In how much time after the last fault, in nanoseconds.
    pub recovers_within_ns: Option<u64>,
}

/// How long CMD has, if nothing is said: a minute.
const WITHIN_NS: u64 = 60_000_000_000;

impl Default for Expectations {
    fn default() -> Self {
        Self {
            exit: ExpectedExit::Statuses(vec![0]),
            within_ns: WITHIN_NS,
            max_stall_ns: None,
            recovers_to: None,
            recovers_within_ns: None,
        }
    }
}

/// A scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioFile {
    /// What it is called: by itself, or as its file.
    pub name: String,
    /// What goes wrong.
    pub plan: FaultPlan,
    /// What is expected.
    pub expect: Expectations,
}

impl ScenarioFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, or says what has no meaning: with the line.
    pub fn read(path: &Path) -> Result<Self> {
        let text = degen::files::read_settings(path)
            .with_context(|| format!("cannot read the scenario {}", path.display()))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&text, &stem).map_err(|error| anyhow!("{}: {error:#}", path.display()))
    }

    /// Reads the text of a file; `name` is what it is called if it does not say so.
    fn parse(text: &str, name: &str) -> Result<Self> {
        let source = SourceText(text);
        let raw: RawScenario = toml::from_str(text).map_err(|error| source.refusal(&error))?;
        if raw.step.is_empty() && raw.expect == RawExpect::default() {
            bail!("there is neither a step nor an expectation in it; is it whole?");
        }
        let mut plan = FaultPlan { seed: raw.seed, ..FaultPlan::default() };
        for step in &raw.step {
            source.add_step(&mut plan, step)?;
        }
        let expect = source.expectations(&raw.expect)?;
        Ok(Self { name: raw.name.unwrap_or_else(|| name.to_owned()), plan, expect })
    }
}

/// The text that spans are of.
struct SourceText<'a>(&'a str);

impl SourceText<'_> {
    /// What is wrong at a place, with its line.
    fn error(&self, span: Range<usize>, what: &str) -> anyhow::Error {
        let before = self.0.get(..span.start).unwrap_or(self.0);
        anyhow!("line {}: {what}", before.matches('\n').count() + 1)
    }

    fn refusal(&self, error: &toml::de::Error) -> anyhow::Error {
        let message = error.message().trim().replace('\n', "; ");
        let span = error.span().unwrap_or_default();
        match self.key_before(&span).filter(|_| message.starts_with("invalid ")) {
            Some(key) => self.error(span.clone(), &format!("`{key}`: {message}")),
            None => self.error(span, &message),
        }
    }

    /// The key whose value begins at a place.
    fn key_before(&self, span: &Range<usize>) -> Option<&str> {
        let before = self.0.get(..span.start)?;
        Some(before.lines().last()?.rsplit_once('=')?.0.trim())
    }

    fn time_ns(&self, time: &Spanned<String>) -> Result<u64> {
        parse_time_ns(time.get_ref()).map_err(|_| {
            self.error(time.span(), &format!("`{}` is no time such as 500ms", time.get_ref()))
        })
    }

    /// Adds what a step stands for.
    fn add_step(&self, plan: &mut FaultPlan, step: &Spanned<RawStep>) -> Result<()> {
        let raw = step.get_ref();
        if raw.at.is_some() && raw.after.is_some() {
            return Err(self.error(step.span(), "a step has `at` or `after`, not both"));
        }
        let repeat = raw.repeat.as_ref().map_or(1, |repeat| *repeat.get_ref());
        if let Some(said) = &raw.repeat
            && !(1..=REPEAT_MAX).contains(&repeat)
        {
            let what = format!("`repeat` is a number from 1 to {REPEAT_MAX}");
            return Err(self.error(said.span(), &what));
        }
        let (at, after) = (self.optional_time(raw.at.as_ref())?, raw.after);
        let until = self.optional_time(raw.until.as_ref())?;
        for time in 0..u64::from(repeat) {
            let mut settings = Vec::new();
            let (apart_ns, apart) = self.distance(step, time)?;
            if at.is_some() || apart_ns > 0 {
                let at = at.unwrap_or(0).saturating_add(apart_ns);
                settings.push(format!("at={}", show_time_exactly(at)));
            }
            if after.is_some() || apart > 0 {
                settings.push(format!("after={}", after.unwrap_or(0).saturating_add(apart)));
            }
            settings.extend(until.map(|until| {
                format!("until={}", show_time_exactly(until.saturating_add(apart_ns)))
            }));
            settings.extend(raw.process.as_ref().map(|process| match process.get_ref() {
                ProcessChoice::Rank(rank) => format!("rank={rank}"),
                ProcessChoice::Name(name) => format!("process={name}"),
            }));
            plan.add(self.fault(&raw.fault, &settings)?);
        }
        Ok(())
    }

    fn optional_time(&self, time: Option<&Spanned<String>>) -> Result<Option<u64>> {
        time.map(|time| self.time_ns(time)).transpose()
    }

    /// How far the repetition `time` is from the first, in nanoseconds or in what is counted.
    fn distance(&self, step: &Spanned<RawStep>, time: u64) -> Result<(u64, u64)> {
        let raw = step.get_ref();
        match (&raw.every, &raw.repeat) {
            (None, None) => Ok((0, 0)),
            (None, Some(repeat)) => {
                Err(self.error(repeat.span(), "`repeat` needs `every`: a time, or a count"))
            }
            (Some(every), None) => Err(self.error(every.span(), "`every` needs `repeat`")),
            (Some(every), Some(_)) => match every.get_ref() {
                Every::Count(count) if raw.at.is_none() => Ok((0, count.saturating_mul(time))),
                Every::Time(text) if raw.after.is_none() => {
                    let text = Spanned::new(every.span(), text.clone());
                    Ok((self.time_ns(&text)?.saturating_mul(time), 0))
                }
                _ => Err(self.error(
                    every.span(),
                    "`every` is a time if the step has `at`, and a count if it has `after`",
                )),
            },
        }
    }

    fn fault(&self, fault: &Spanned<String>, settings: &[String]) -> Result<FaultPlan> {
        let text = fault.get_ref();
        if text.contains(';') {
            return Err(self.error(fault.span(), "a step has one fault"));
        }
        let gap = match (settings.is_empty(), text.contains(':')) {
            (true, _) => "",
            (false, true) => ",",
            (false, false) => ":",
        };
        let whole = format!("{text}{gap}{}", settings.join(","));
        FaultPlan::parse(&whole).map_err(|error| self.error(fault.span(), &error.to_string()))
    }

    fn expectations(&self, raw: &RawExpect) -> Result<Expectations> {
        let mut expect = Expectations::default();
        if let Some(exit) = &raw.exit {
            expect.exit = match exit.get_ref() {
                RawExit::One(status) => ExpectedExit::Statuses(vec![*status]),
                RawExit::Several(statuses) => ExpectedExit::Statuses(statuses.clone()),
                RawExit::Word(ExitWord::Any) => ExpectedExit::ByItself,
            };
        }
        if let Some(within) = self.optional_time(raw.within.as_ref())? {
            expect.within_ns = within;
        }
        expect.max_stall_ns = self.optional_time(raw.max_stall.as_ref())?;
        if let Some(share) = &raw.recovers_to {
            let value = *share.get_ref();
            if !(value > 0.0 && value <= 1.0) {
                return Err(self.error(share.span(), "`recovers_to` is a share above 0, to 1"));
            }
            expect.recovers_to = Some(value);
        }
        expect.recovers_within_ns = self.optional_time(raw.recovers_within.as_ref())?;
        if let (Some(within), None) = (&raw.recovers_within, expect.recovers_to) {
            return Err(self.error(within.span(), "`recovers_within` needs `recovers_to`"));
        }
        if expect.within_ns == 0 {
            bail!("`within` is 0; write a time such as 1min");
        }
        Ok(expect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> String {
        ScenarioFile::parse(text, "x").unwrap().plan.to_string()
    }

    fn refusal(text: &str) -> String {
        ScenarioFile::parse(text, "x").expect_err(text).to_string()
    }

    #[test]
    fn steps_are_faults_with_times_counts_and_processes() {
        let text = "seed = 7\n[[step]]\nfault = \"drop=1%\"\nat = \"2s\"\nuntil = \"3s\"\n\
                    process = \"ib_*\"\n[[step]]\nfault = \"hang:only=1\"\nafter = 1000\n\
                    process = 1\n";
        let expected = "drop=1%:at=2s,until=3s,process=ib_*; hang:after=1000,only=1,rank=1; seed=7";
        assert_eq!(plan(text), expected);
    }

    #[test]
    fn a_step_repeats_by_time_or_by_count() {
        let flap = "[[step]]\nfault = \"port-down=100ms\"\nat = \"1s\"\nrepeat = 3\nevery = \"1s\"";
        let expected = "port-down=100ms:at=1s; port-down=100ms:at=2s; port-down=100ms:at=3s";
        assert_eq!(plan(flap), expected);
        let count = "[[step]]\nfault = \"rnr:1\"\nafter = 5\nrepeat = 2\nevery = 10";
        assert_eq!(plan(count), "rnr:1,after=5; rnr:1,after=15");
    }

    #[test]
    fn expectations_are_read_and_have_defaults() {
        let scenario = ScenarioFile::parse("[[step]]\nfault = \"hang\"", "flap").unwrap();
        assert_eq!((scenario.name.as_str(), scenario.expect), ("flap", Expectations::default()));
        let text = "name = \"n\"\n[expect]\nexit = \"any\"\nwithin = \"9s\"\n\
                    max_stall = \"500ms\"\nrecovers_to = 0.9\nrecovers_within = \"2s\"";
        let Expectations { exit, within_ns, max_stall_ns, recovers_to, recovers_within_ns } =
            ScenarioFile::parse(text, "x").unwrap().expect;
        assert_eq!((exit, within_ns), (ExpectedExit::ByItself, 9_000_000_000));
        assert_eq!((max_stall_ns, recovers_to), (Some(500_000_000), Some(0.9)));
        assert_eq!(recovers_within_ns, Some(2_000_000_000));
        let several = ScenarioFile::parse("[expect]\nexit = [0, 1]", "x").unwrap().expect.exit;
        assert_eq!(several, ExpectedExit::Statuses(vec![0, 1]));
    }

    #[test]
    fn a_file_that_judges_nothing_is_refused() {
        for text in ["", "name = \"n\"\nseed = 7\n", "[expect]\n"] {
            assert!(refusal(text).contains("is it whole?"), "{text}");
        }
        ScenarioFile::parse("[expect]\nexit = 0", "x").unwrap();
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let step = |lines: &str| refusal(&format!("# a\n[[step]]\n{lines}"));
        assert!(step("fault = \"dorp=1%\"").starts_with("line 3: `dorp` is no fault"));
        assert!(step("falt = \"hang\"").starts_with("line 3: unknown field `falt`"));
        let both = step("fault = \"hang\"\nat = \"1s\"\nafter = 1");
        assert!(both.starts_with("line 2: a step has `at` or `after`"), "{both}");
        assert!(step("fault = \"hang\"\nat = \"soon\"").starts_with("line 4: `soon` is no time"));
        assert!(step("fault = \"hang\"\nrepeat = 2").contains("line 4: `repeat` needs `every`"));
        assert!(step("fault = \"hang\"\nevery = 2").contains("line 4: `every` needs `repeat`"));
        assert!(step("fault = \"hang; rnr:1\"").starts_with("line 3: a step has one fault"));
        let mixed = step("fault = \"hang\"\nafter = 1\nrepeat = 2\nevery = \"1s\"");
        assert!(mixed.starts_with("line 6: `every` is a time"), "{mixed}");
        for exit in ["\"x\"", "-1", "256", "1.5", "[0, -1]", "true"] {
            let said = refusal(&format!("[expect]\nexit = {exit}"));
            assert!(said.starts_with("line 2: `exit` is a status from 0 to 255"), "{said}");
        }
        let process = step("fault = \"hang\"\nprocess = -1");
        assert!(process.starts_with("line 4: `process` is a program's name"), "{process}");
        let every = step("fault = \"hang\"\nafter = 1\nrepeat = 2\nevery = -1");
        assert!(every.starts_with("line 6: `every` is a time such as"), "{every}");
        let within = refusal("[expect]\nwithin = 5");
        assert!(within.starts_with("line 2: `within`: invalid type: integer `5`"), "{within}");
        assert!(refusal("[expect]\nrecovers_to = 2.0").contains("line 2: `recovers_to`"));
        assert!(refusal("[expect]\nrecovers_within = \"1s\"").contains("needs `recovers_to`"));
        assert!(refusal("a = ").starts_with("line 1: "));
    }
}
