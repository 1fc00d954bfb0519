//! `WEFT_*` variables: their list, and warnings about those that are set.
//!
//! docs/environment.md describes them; a test keeps the two together.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;

use weft_capture::CaptureSpec;
use weft_fault::FaultPlan;
use weft_host::{Multipath, STALL_TIMEOUT_MS_MAX, THREADS_MAX};
use weft_net::ports::PortBounds;

/// A variable that Weft reads.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    values: AllowedValues,
}

#[derive(Clone, Debug)]
enum AllowedValues {
    OneOf(&'static [&'static str]),
    Number(RangeInclusive<u64>),
    Plan,
    Capture,
    Ports,
    Multipath,
    Any,
}

/// The variable with the names that `weft run` has warned about, so that the library does not.
pub const UNKNOWN: &str = "WEFT_UNKNOWN";

const ANY_NUMBER: AllowedValues = AllowedValues::Number(0..=u64::MAX);
const ON_OFF: AllowedValues = AllowedValues::OneOf(&["on", "off"]);

/// Every variable that Weft reads.
pub const KNOWN: [Variable; 34] = [
    Variable { name: "WEFT", values: ON_OFF },
    Variable {
        name: "WEFT_LOG",
        values: AllowedValues::OneOf(&["off", "error", "warn", "info", "debug", "trace"]),
    },
    Variable { name: "WEFT_LOG_FORMAT", values: AllowedValues::OneOf(&["text", "json"]) },
    Variable { name: "WEFT_LIB", values: AllowedValues::Any },
    Variable { name: "WEFT_SEED", values: ANY_NUMBER },
    Variable { name: "WEFT_CRC", values: ON_OFF },
    Variable { name: "WEFT_MARKERS", values: ON_OFF },
    Variable { name: "WEFT_LANE", values: AllowedValues::OneOf(&["on", "copy", "off"]) },
    Variable {
        name: "WEFT_PROGRESS",
        values: AllowedValues::OneOf(&["inline", "engine", "hybrid"]),
    },
    Variable { name: "WEFT_PORTS", values: AllowedValues::Ports },
    Variable {
        name: "WEFT_STALL_TIMEOUT_MS",
        values: AllowedValues::Number(1..=STALL_TIMEOUT_MS_MAX),
    },
    Variable { name: "WEFT_THREADS", values: AllowedValues::Number(1..=THREADS_MAX as u64) },
    Variable { name: "WEFT_DEV", values: AllowedValues::Any },
    Variable { name: "WEFT_DEVICES", values: AllowedValues::Any },
    Variable { name: "WEFT_FAULT", values: AllowedValues::Plan },
    Variable { name: "WEFT_PASSTHROUGH", values: AllowedValues::OneOf(&["0", "1"]) },
    Variable { name: "WEFT_PCAP", values: AllowedValues::Capture },
    Variable { name: "WEFT_TRACE", values: AllowedValues::Any },
    Variable { name: "WEFT_STATS", values: ON_OFF },
    Variable { name: "WEFT_OBSERVE", values: ON_OFF },
    Variable { name: "WEFT_TALLY", values: AllowedValues::Any },
    Variable { name: "WEFT_JOURNAL", values: AllowedValues::Any },
    Variable { name: UNKNOWN, values: AllowedValues::Any },
    Variable { name: "WEFT_KEY", values: AllowedValues::Any },
    Variable { name: "WEFT_INSECURE", values: AllowedValues::OneOf(&["0", "1"]) },
    Variable {
        name: "WEFT_TRANSPORT",
        values: AllowedValues::OneOf(&["auto", "shuttle", "iwarp"]),
    },
    Variable { name: "WEFT_SOCKETS", values: AllowedValues::OneOf(&["strict", "prefer"]) },
    Variable { name: "WEFT_SOCKETS_RULES", values: AllowedValues::Any },
    Variable { name: "WEFT_SOCKETS_VERBOSE", values: ON_OFF },
    Variable { name: "WEFT_SOCKETS_STYLE", values: AllowedValues::OneOf(&["auto", "basic"]) },
    Variable { name: "WEFT_SOCKETS_PATIENCE_MS", values: ANY_NUMBER },
    Variable { name: "WEFT_PATHS", values: ON_OFF },
    Variable { name: "WEFT_MULTIPATH", values: AllowedValues::Multipath },
    Variable { name: "WEFT_STATIC", values: AllowedValues::Any },
];

/// Whether `WEFT` says that CMD is to run without Weft.
pub fn switched_off(weft: Option<&OsStr>) -> bool {
    weft.is_some_and(|value| value == "off")
}

/// A variable that is set and has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableWarning {
    /// Name of the variable.
    pub name: String,
    /// Whether Weft reads the variable, and only its value is invalid.
    pub is_known: bool,
    /// The text for the user.
    pub text: String,
}

/// What to warn about: variables that look like ours and are not, and values with no meaning.
pub fn warnings(environment: &[(OsString, OsString)]) -> Vec<VariableWarning> {
    let told = environment.iter().find(|(name, _)| name == UNKNOWN);
    let told = told.map(|(_, names)| names.to_string_lossy()).unwrap_or_default();
    let is_new = |name: &str| !told.split(',').any(|old| old == name);
    let ours = environment.iter().filter_map(|(name, value)| {
        let name = name.to_str().filter(|name| *name == "WEFT" || name.starts_with("WEFT_"))?;
        let known = KNOWN.iter().find(|known| known.name == name);
        let text = match known {
            Some(known) => invalid_value(known, value)?,
            None if is_new(name) => {
                format!("{name} is not a variable of Weft; `weft run --help` lists them")
            }
            None => return None,
        };
        Some(VariableWarning { name: name.to_owned(), is_known: known.is_some(), text })
    });
    ours.collect()
}

fn invalid_value(known: &Variable, value: &OsStr) -> Option<String> {
    let (name, text) = (known.name, value.to_string_lossy());
    let wanted = match &known.values {
        AllowedValues::OneOf(values) if !values.contains(&text.as_ref()) => values.join(", "),
        AllowedValues::Number(range) => match text.parse::<u64>() {
            Ok(number) if range.contains(&number) => return None,
            _ if *range.end() == u64::MAX => String::from("a number"),
            _ => format!("{} to {}", range.start(), range.end()),
        },
        AllowedValues::Ports if PortBounds::parse(&text).is_none() => {
            String::from("a range of ports such as 4000-4099")
        }
        AllowedValues::Plan => match FaultPlan::parse(&text) {
            Ok(_) => return None,
            Err(error) => return Some(format!("{name} is ignored: {error}")),
        },
        AllowedValues::Multipath => match Multipath::parse(&text) {
            Ok(_) => return None,
            Err(error) => return Some(format!("{name} is ignored: {error}")),
        },
        AllowedValues::Capture => match CaptureSpec::parse(&text) {
            Ok(_) => return None,
            Err(error) => return Some(format!("{name} is ignored: {error}")),
        },
        _ => return None,
    };
    Some(format!("{name}={text} is ignored; it can be: {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(name: &str, value: &str) -> Vec<String> {
        let warnings = warnings(&[(name.into(), value.into())]);
        warnings.into_iter().map(|warning| warning.text).collect()
    }

    #[test]
    fn strangers_are_named() {
        assert!(warned("WEFT_LGO", "debug")[0].starts_with("WEFT_LGO is not a variable"));
        assert!(warned("WEFTLIKE", "x").is_empty());
        assert!(warned("PATH", "x").is_empty());
        let told = [("WEFT_UNKNOWN", "WEFT_A,WEFT_LGO"), ("WEFT_LGO", "debug"), ("WEFT_B", "x")];
        let left = warnings(&told.map(|(name, value)| (name.into(), value.into())));
        assert_eq!(left.len(), 1, "one was told of: {left:?}");
        assert_eq!((left[0].name.as_str(), left[0].is_known), ("WEFT_B", false));
    }

    #[test]
    fn values_are_checked() {
        assert!(warned("WEFT", "off").is_empty());
        assert_eq!(warned("WEFT_CRC", "no"), ["WEFT_CRC=no is ignored; it can be: on, off"]);
        assert_eq!(warned("WEFT_SEED", "x").len(), 1);
        assert!(warned("WEFT_SEED", "17").is_empty());
        assert!(warned("WEFT_THREADS", "16").is_empty());
        for none in ["0", "17", "-1"] {
            let text = format!("WEFT_THREADS={none} is ignored; it can be: 1 to 16");
            assert_eq!(warned("WEFT_THREADS", none), [text]);
        }
        assert!(warned("WEFT_PORTS", "0-9")[0].contains("such as 4000-4099"));
        assert!(warned("WEFT_LIB", "anything").is_empty());
        assert!(warned("WEFT_FAULT", "drop=1%").is_empty());
        assert!(warned("WEFT_PCAP", "out,qp=x")[0].contains("no number"));
        assert!(warned("WEFT_FAULT", "drop=1")[0].contains("drop=SHARE"));
    }

    #[test]
    fn the_documentation_has_the_same_list() {
        let page = include_str!("../../../docs/environment.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `WEFT"));
        let documented: Vec<String> =
            rows.map(|row| format!("WEFT{}", row.split('`').next().unwrap_or_default())).collect();
        assert_eq!(documented, KNOWN.map(|known| known.name));
        assert_eq!(weft_host::VARIABLES, KNOWN.map(|known| known.name), "the library knows them");
    }
}
