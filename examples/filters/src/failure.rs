//! A failure that knows whose it is, so that it is told once and by whom it happened to.

use std::fmt;

use anyhow::Error;

/// What went wrong, with the filter's name before it.
#[derive(Clone, Debug)]
pub(crate) struct FilterFailure {
    text: String,
    /// Whether this filter is to blame; otherwise it only heard of it.
    pub here: bool,
}

impl FilterFailure {
    /// What `filter` itself did wrong. What is a failure already stays what it is.
    pub fn of(filter: &str, error: Error) -> Error {
        if error.is::<Self>() {
            return error;
        }
        Self { text: format!("{filter}: {error:#}"), here: true }.into()
    }

    /// What another filter told, or a stream that broke.
    pub fn elsewhere(text: impl Into<String>) -> Self {
        Self { text: text.into(), here: false }
    }

    /// Whether `error` is this filter's own.
    pub fn is_here(error: &Error) -> bool {
        error.downcast_ref::<Self>().is_none_or(|failure| failure.here)
    }
}

impl fmt::Display for FilterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for FilterFailure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_failed_is_named_and_nobody_else() {
        let own = FilterFailure::of("clip", anyhow::anyhow!("inner").context("outer"));
        let passed_on = FilterFailure::of("read", own);
        assert_eq!(passed_on.to_string(), "clip: outer: inner");
        assert!(FilterFailure::is_here(&passed_on));
        assert!(!FilterFailure::is_here(&FilterFailure::of(
            "read",
            FilterFailure::elsewhere("gone").into()
        )));
    }
}
