//! Named path profiles, and profiles in files.
//!
//! Both are TOML: the settings of [`crate::spec`] as keys, their values as text (a list where a
//! setting adds up), and tables `forward` and `back` for what is of one direction.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::files::read_settings;
use crate::spec::{PathSpec, SpecError, Which};

/// Built-in profiles, one TOML table each.
pub const BUILT_IN: &str = include_str!("profiles.toml");

/// A profile or a file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No profile has this name.
    #[error(
        "`{0}` is no profile; there are {known}, or a .toml file (and CMD comes after `--`)",
        known = names().join(", ")
    )]
    Unknown(String),
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// The text is not TOML, or not what it should say.
    #[error("{place}: {why}")]
    Malformed {
        /// The profile or file, and the key.
        place: String,
        /// What is wrong.
        why: String,
    },
}

/// The names of the profiles.
pub fn names() -> Vec<String> {
    built_in().keys().cloned().collect()
}

/// Sets what the profile or file `name` says.
///
/// # Errors
/// There is none, or it cannot be used.
pub fn apply(path: &mut PathSpec, name: &str) -> Result<(), ProfileError> {
    if is_file(name) {
        let unreadable = |error| ProfileError::Unreadable { path: name.into(), error };
        let table = parse(name, &read_settings(Path::new(name)).map_err(unreadable)?)?;
        return apply_table(path, name, &table);
    }
    match built_in().get(name) {
        Some(Value::Table(table)) => apply_table(path, name, table),
        _ => Err(ProfileError::Unknown(name.to_owned())),
    }
}

/// Whether a word is meant as the path of a file.
pub fn is_file(word: &str) -> bool {
    word.ends_with(".toml") || word.contains('/')
}

/// Whether a profile has this name.
pub fn is_built_in(word: &str) -> bool {
    built_in().contains_key(word)
}

fn built_in() -> Table {
    BUILT_IN.parse().expect("the built-in profiles are tested")
}

fn parse(place: &str, text: &str) -> Result<Table, ProfileError> {
    text.parse().map_err(|error: toml::de::Error| wrong(place, error.to_string()))
}

/// A table has no order, so what is more particular comes later: the whole path, both directions,
/// one direction.
fn apply_table(path: &mut PathSpec, place: &str, table: &Table) -> Result<(), ProfileError> {
    let rank = |key: &str, value: &Value| (value.is_table(), key != "rtt");
    let mut entries: Vec<(&String, &Value)> = table.iter().collect();
    entries.sort_by_key(|(key, value)| rank(key, value));
    for (key, value) in entries {
        match (key.as_str(), value) {
            ("about", Value::String(_)) => {}
            ("forward", Value::Table(own)) => apply_direction(path, place, Which::Forward, own)?,
            ("back", Value::Table(own)) => apply_direction(path, place, Which::Back, own)?,
            (key, Value::Table(_)) => {
                return Err(wrong(place, format!("[{key}] is neither [forward] nor [back]")));
            }
            _ => apply_setting(path, place, Which::Both, key, value)?,
        }
    }
    Ok(())
}

fn apply_direction(
    path: &mut PathSpec,
    place: &str,
    which: Which,
    table: &Table,
) -> Result<(), ProfileError> {
    table.iter().try_for_each(|(key, value)| apply_setting(path, place, which, key, value))
}

fn apply_setting(
    path: &mut PathSpec,
    place: &str,
    which: Which,
    key: &str,
    value: &Value,
) -> Result<(), ProfileError> {
    let set = |path: &mut PathSpec, text: &str| {
        path.set(which, key, text).map_err(|error: SpecError| wrong(place, error.to_string()))
    };
    match value {
        Value::String(text) => set(path, text),
        Value::Integer(number) => set(path, &number.to_string()),
        Value::Array(values) => values.iter().try_for_each(|value| match value {
            Value::String(text) => set(path, text),
            _ => Err(wrong(place, format!("{key} is a list of something other than text"))),
        }),
        _ => Err(wrong(place, format!("{key} is neither text nor a whole number"))),
    }
}

fn wrong(place: &str, why: String) -> ProfileError {
    ProfileError::Malformed { place: place.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_text(text: &str) -> Result<PathSpec, ProfileError> {
        let mut path = PathSpec::default();
        apply_table(&mut path, "test", &parse("test", text)?)?;
        Ok(path)
    }

    #[test]
    fn every_profile_is_sound_and_says_what_it_is() {
        for name in names() {
            let path = PathSpec::parse(&[&name]).unwrap();
            assert!(path.rtt_ns() > 0, "{name}");
            assert!(built_in()[&name]["about"].is_str(), "{name}");
        }
    }

    #[test]
    fn a_file_says_what_words_say() {
        let text = "rtt = '70ms'\nstep = ['1s:rate=1mbit', '2s:loss=1%']\nseed = 9\n\
                    [back]\nrate = '10mbit'";
        let words = ["70ms", "step=1s:rate=1mbit", "step=2s:loss=1%", "seed=9", "back:rate=10mbit"];
        assert_eq!(from_text(text).unwrap(), PathSpec::parse(&words).unwrap());
    }

    #[test]
    fn the_particular_overrides_the_general_in_any_order() {
        let text = "rtt = '70ms'\nrate = '1gbit'\nloss = '1%'\ndelay = '10ms'\n\
                    [back]\nrate = '10mbit'\nloss = '0%'\n[forward]\ndelay = '5ms'";
        let words = ["rate=1gbit", "loss=1%", "delay=10ms", "back:rate=10mbit", "back:loss=0%"];
        let path = PathSpec::parse(&[&words[..], &["forward:delay=5ms"]].concat()).unwrap();
        assert_eq!(from_text(text).unwrap(), path);
    }

    #[test]
    fn later_words_override_a_profile() {
        let path = PathSpec::parse(&["transatlantic", "10ms"]).unwrap();
        assert_eq!(path.rtt_ns(), 10_000_000);
    }

    #[test]
    fn faults_are_named() {
        for (text, part) in [
            ("rtt = ", "test"),
            ("speed = '1gbit'", "speed"),
            ("rate = 1.5", "rate"),
            ("step = [1]", "step"),
            ("[backward]\nrate = '1mbit'", "backward"),
            ("[back]\nseed = 1", "whole path"),
        ] {
            let error = from_text(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let error = PathSpec::parse(&["moon"]).unwrap_err().to_string();
        assert!(error.contains("satellite"), "{error}");
        let error = PathSpec::parse(&["/nonexistent/a.toml"]).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/a.toml"), "{error}");
    }
}
