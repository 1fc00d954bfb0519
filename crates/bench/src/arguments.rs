//! What every command of the bench does with its arguments.

use std::num::NonZeroUsize;

use weft_units::{Malformed, WrongArgument, parse_time_ns};

/// Parses the seconds of a measurement: more than none, and no more than an hour.
pub fn seconds(text: &str) -> Result<f64, String> {
    let longest_s = 3600.0;
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= longest_s);
    seconds.ok_or_else(|| format!("not between 0 and {longest_s} seconds"))
}

/// Parses a number of rounds, 1 or more.
pub fn rounds(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "not a number of rounds, 1 or more".to_owned())
}

/// Parses a rate in Gbit/s, up to one that no machine reaches.
pub fn gbps(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| *rate > 0.0 && *rate <= 10_000.0);
    rate.ok_or_else(|| "not a rate in Gbit/s, such as 1 or 0.5".to_owned())
}

/// Parses a loss in per cent.
pub fn percent(text: &str) -> Result<f64, String> {
    let loss = text.parse().ok().filter(|loss| (0.0..=100.0).contains(loss));
    loss.ok_or_else(|| "not a loss in per cent, from 0 to 100".to_owned())
}

/// Checks a time such as `70ms`, and keeps its text.
pub fn time(text: &str) -> Result<String, Malformed> {
    parse_time_ns(text).map(|_| text.to_owned())
}

/// Marks an error as one of the arguments.
pub fn wrong_argument(error: anyhow::Error) -> anyhow::Error {
    WrongArgument(format!("{error:#}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_has_a_round_or_more() {
        assert_eq!(rounds("3").map(NonZeroUsize::get), Ok(3));
        for text in ["0", "-1", "many"] {
            assert!(rounds(text).is_err_and(|error| error.contains("1 or more")), "{text}");
        }
    }

    #[test]
    fn a_path_has_values_that_a_path_can_have() {
        assert_eq!((gbps("0.5"), percent("0.1")), (Ok(0.5), Ok(0.1)));
        assert_eq!(time("70ms").as_deref(), Ok("70ms"));
        assert!(["0", "-1", "NaN", "x"].iter().all(|text| gbps(text).is_err()));
        assert!(["101", "-1", "NaN", "x"].iter().all(|text| percent(text).is_err()));
        assert!(time("70").is_err());
    }

    #[test]
    fn a_measurement_takes_a_time() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for text in ["0", "-1", "inf", "NaN", "1e9", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
