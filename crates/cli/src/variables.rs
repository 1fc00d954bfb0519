//! `WEFT_*` variables: their list, and warnings about those that are set.
//!
//! docs/environment.md describes them; a test keeps the two together.

use std::ffi::{OsStr, OsString};

use weft_capture::CaptureSpec;
use weft_fault::FaultPlan;
use weft_net::ports::PortBounds;

/// A variable that Weft reads.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    values: AllowedValues,
}

#[derive(Clone, Copy, Debug)]
enum AllowedValues {
    OneOf(&'static [&'static str]),
    Number,
    Plan,
    Capture,
    Ports,
    Any,
}

const ON_OFF: AllowedValues = AllowedValues::OneOf(&["on", "off"]);

/// Every variable that Weft reads.
pub const KNOWN: [Variable; 32] = [
    Variable { name: "WEFT", values: ON_OFF },
    Variable {
        name: "WEFT_LOG",
        values: AllowedValues::OneOf(&["off", "error", "warn", "info", "debug", "trace"]),
    },
    Variable { name: "WEFT_LOG_FORMAT", values: AllowedValues::OneOf(&["text", "json"]) },
    Variable { name: "WEFT_LIB", values: AllowedValues::Any },
    Variable { name: "WEFT_SEED", values: AllowedValues::Number },
    Variable { name: "WEFT_CRC", values: ON_OFF },
    Variable { name: "WEFT_MARKERS", values: ON_OFF },
    Variable { name: "WEFT_LANE", values: AllowedValues::OneOf(&["on", "copy", "off"]) },
    Variable {
        name: "WEFT_PROGRESS",
        values: AllowedValues::OneOf(&["inline", "engine", "hybrid"]),
    },
    Variable { name: "WEFT_PORTS", values: AllowedValues::Ports },
    Variable { name: "WEFT_STALL_TIMEOUT_MS", values: AllowedValues::Number },
    Variable { name: "WEFT_THREADS", values: AllowedValues::Number },
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
    Variable { name: "WEFT_SOCKETS_PATIENCE_MS", values: AllowedValues::Number },
    Variable { name: "WEFT_PATHS", values: ON_OFF },
    Variable { name: "WEFT_STATIC", values: AllowedValues::Any },
];

/// Whether `WEFT` says that CMD is to run without Weft.
pub fn switched_off(weft: Option<&OsStr>) -> bool {
    weft.is_some_and(|value| value == "off")
}

/// What to warn about: variables that look like ours and are not, and values with no meaning.
pub fn warnings(environment: impl Iterator<Item = (OsString, OsString)>) -> Vec<String> {
    environment.filter_map(|(name, value)| warning(&name, &value)).collect()
}

fn warning(name: &OsStr, value: &OsStr) -> Option<String> {
    let name = name.to_str().filter(|name| *name == "WEFT" || name.starts_with("WEFT_"))?;
    let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
        let names = KNOWN.map(|known| known.name).join(", ");
        return Some(format!("{name} means nothing to Weft, which reads {names}"));
    };
    let text = value.to_string_lossy();
    let wanted = match known.values {
        AllowedValues::OneOf(values) if !values.contains(&text.as_ref()) => values.join(", "),
        AllowedValues::Number if text.parse::<u64>().is_err() => String::from("a number"),
        AllowedValues::Ports if PortBounds::parse(&text).is_none() => {
            String::from("a range of ports such as 4000-4099")
        }
        AllowedValues::Plan => match FaultPlan::parse(&text) {
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
        warnings(std::iter::once((name.into(), value.into())))
    }

    #[test]
    fn strangers_are_named() {
        assert!(warned("WEFT_LGO", "debug")[0].starts_with("WEFT_LGO means nothing"));
        assert!(warned("WEFTLIKE", "x").is_empty());
        assert!(warned("PATH", "x").is_empty());
    }

    #[test]
    fn values_are_checked() {
        assert!(warned("WEFT", "off").is_empty());
        assert_eq!(warned("WEFT_CRC", "no"), ["WEFT_CRC=no is ignored; it can be: on, off"]);
        assert_eq!(warned("WEFT_SEED", "x").len(), 1);
        assert!(warned("WEFT_SEED", "17").is_empty());
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
