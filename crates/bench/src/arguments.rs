//! What every command of the bench does with its arguments.

use std::num::NonZeroUsize;

use weft_units::WrongArgument;

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
    fn a_measurement_takes_a_time() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for text in ["0", "-1", "inf", "NaN", "1e9", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
