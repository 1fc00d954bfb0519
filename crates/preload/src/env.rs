//! Settings from the environment.
//!
//! It is read once, at the first verb, so that an application may still set variables before it
//! uses RDMA, and so that nothing happens in the many processes that inherit `LD_PRELOAD` and never
//! use it. Unknown `WEFT_*` variables are warned about at the same time. `RDMAV_FORK_SAFE` needs no
//! reading: nothing is pinned, so every application is already as safe as it asks to be.

use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use weft_fault::FaultPlan;
use weft_host::{LogFormat, VARIABLES};

use crate::ibv::device;
use crate::log::{self, LogLevel};
use crate::pass;
use crate::rdma;

/// The settings of this process.
#[derive(Debug, PartialEq, Eq)]
pub struct PreloadSettings {
    /// `WEFT=off`, or passing through: every function passes to the real library.
    pub off: bool,
    /// `WEFT_PASSTHROUGH=1`: faults go to the devices of the real library.
    pub passthrough: bool,
    /// Least severity that is written.
    pub log: LogLevel,
    /// `VERBS_LOG_FILE`: where diagnostics go instead of stderr.
    pub log_file: Option<CString>,
    /// `WEFT_LOG_FORMAT`: the form of a line.
    pub log_format: LogFormat,
}

impl Default for PreloadSettings {
    fn default() -> Self {
        Self {
            off: false,
            passthrough: false,
            log: LogLevel::Warn,
            log_file: None,
            log_format: LogFormat::Text,
        }
    }
}

/// The settings, read from the environment at the first call.
pub fn settings() -> &'static PreloadSettings {
    static SETTINGS: OnceLock<PreloadSettings> = OnceLock::new();
    let (mut warnings, mut first) = (Vec::new(), false);
    let settings = SETTINGS.get_or_init(|| {
        let mut settings = parse(std::env::vars_os(), &mut warnings);
        settings.passthrough &= !settings.off && pass::is_outermost();
        settings.off |= settings.passthrough;
        log::install(settings.log);
        first = true;
        settings
    });
    if first {
        tell(&warnings);
    }
    settings
}

/// Writes what is wrong with the settings. After they are there: who makes the host may write too,
/// and what is written needs them.
fn tell(warnings: &[String]) {
    for complaint in rdma::host().devices().complaints() {
        log::write(LogLevel::Error, format_args!("{complaint}"));
    }
    device::warn_of_foreign_addresses();
    for warning in warnings {
        log::write(LogLevel::Warn, format_args!("{warning}"));
    }
}

/// Whether `WEFT=off` was set at the first verb.
pub fn off() -> bool {
    settings().off
}

/// Whether `WEFT=off` is set now. The dynamic linker's hooks ask this way, because they run in
/// processes that never come to a verb.
pub fn off_now() -> bool {
    // SAFETY: the name is NUL-terminated.
    let value = unsafe { libc::getenv(c"WEFT".as_ptr()) };
    if value.is_null() {
        return false;
    }
    // SAFETY: getenv gives a NUL-terminated string that lives in the environment.
    unsafe { CStr::from_ptr(value) == c"off" }
}

/// Whether this library has no devices of its own now: it is off, or passes through to others.
pub fn has_no_devices_now() -> bool {
    off_now() || pass::is_wanted_now()
}

fn parse(
    vars: impl Iterator<Item = (OsString, OsString)>,
    warnings: &mut Vec<String>,
) -> PreloadSettings {
    let mut settings = PreloadSettings::default();
    let mut weft_log = None;
    let mut verbs_log = None;
    let mut beyond = None;
    let mut unknown = Vec::new();
    let mut told = Vec::new();
    for (name, value) in vars {
        let value = value.as_bytes();
        match name.as_bytes() {
            b"WEFT" => match value {
                b"off" => settings.off = true,
                b"on" => {}
                _ => warnings.push("WEFT is neither on nor off; taken as on".into()),
            },
            b"WEFT_LOG" => match LogLevel::parse(value) {
                Some(level) => weft_log = Some(level),
                None => {
                    warnings.push("WEFT_LOG is none of off, error, warn, info, debug, trace".into())
                }
            },
            b"WEFT_LOG_FORMAT" => match LogFormat::parse(value) {
                Some(format) => settings.log_format = format,
                None => {
                    warnings.push("WEFT_LOG_FORMAT is neither text nor json; taken as text".into())
                }
            },
            b"WEFT_PASSTHROUGH" => match value {
                b"1" => settings.passthrough = true,
                b"0" => {}
                _ => warnings.push("WEFT_PASSTHROUGH is neither 0 nor 1; taken as 0".into()),
            },
            b"WEFT_FAULT" => match FaultPlan::parse(&String::from_utf8_lossy(value)) {
                Ok(plan) => beyond = plan.beyond_passthrough(),
                Err(error) => {
                    warnings.push(format!("WEFT_FAULT: {error}; nothing goes wrong on purpose"));
                }
            },
            b"WEFT_INSECURE" if !matches!(value, b"0" | b"1") => {
                warnings.push("WEFT_INSECURE is neither 0 nor 1; taken as 0".into());
            }
            b"VERBS_LOG_LEVEL" => verbs_log = LogLevel::parse_number(value),
            b"VERBS_LOG_FILE" => settings.log_file = CString::new(value).ok(),
            b"WEFT_UNKNOWN" => {
                told = value.split(|byte| *byte == b',').map(<[u8]>::to_vec).collect();
            }
            name if name.starts_with(b"WEFT_") && !is_known(name) => unknown.push(name.to_vec()),
            _ => {}
        }
    }
    for name in unknown.iter().filter(|name| !told.contains(name)) {
        let name = String::from_utf8_lossy(name);
        warnings.push(format!("{name} is not a variable of Weft; `weft run --help` lists them"));
    }
    if let Some(error) = beyond.filter(|_| settings.passthrough) {
        warnings.push(format!("WEFT_FAULT: {error}; nothing goes wrong on purpose"));
    }
    settings.log = weft_log.or(verbs_log).unwrap_or(settings.log);
    settings
}

fn is_known(name: &[u8]) -> bool {
    VARIABLES.iter().any(|k| k.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(vars: &[(&str, &str)]) -> (PreloadSettings, Vec<String>) {
        let mut warnings = Vec::new();
        let vars = vars.iter().map(|(n, v)| (OsString::from(n), OsString::from(v)));
        (parse(vars, &mut warnings), warnings)
    }

    #[test]
    fn an_empty_environment_is_the_default_without_warnings() {
        assert_eq!(parsed(&[("HOME", "/")]), (PreloadSettings::default(), Vec::new()));
    }

    #[test]
    fn off_is_off_and_nonsense_warns() {
        assert!(parsed(&[("WEFT", "off")]).0.off);
        assert_eq!(parsed(&[("WEFT", "on")]), (PreloadSettings::default(), Vec::new()));
        let (settings, warnings) = parsed(&[("WEFT", "perhaps")]);
        assert!(!settings.off);
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn unknown_variables_warn_and_known_ones_do_not() {
        for name in VARIABLES {
            let value = match name {
                "WEFT_LOG" => "info",
                "WEFT" => "on",
                "WEFT_FAULT" => "drop=1%",
                "WEFT_LOG_FORMAT" => "text",
                _ => "1",
            };
            assert_eq!(parsed(&[(name, value)]).1, Vec::<String>::new(), "{name}");
        }
        assert!(parsed(&[("WEFT_SPEED", "1")]).1[0].contains("WEFT_SPEED"));
        assert!(parsed(&[("WEFTY", "1")]).1.is_empty());
        let told = [("WEFT_SPEED", "1"), ("WEFT_MORE", "1"), ("WEFT_UNKNOWN", "WEFT_SPEED")];
        let warnings = parsed(&told).1;
        assert!(warnings.len() == 1 && warnings[0].contains("WEFT_MORE"), "{warnings:?}");
    }

    #[test]
    fn our_level_wins_over_that_of_rdma_core() {
        assert_eq!(parsed(&[("VERBS_LOG_LEVEL", "4")]).0.log, LogLevel::Debug);
        let both = [("WEFT_LOG", "error"), ("VERBS_LOG_LEVEL", "4")];
        assert_eq!(parsed(&both).0.log, LogLevel::Error);
        assert_eq!(parsed(&[("VERBS_LOG_LEVEL", "loud")]).0.log, LogLevel::Warn);
        assert_eq!(parsed(&[("VERBS_LOG_FILE", "/x")]).0.log_file, Some(c"/x".into()));
    }
}
