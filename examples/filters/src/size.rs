//! Sizes as the commands take them.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::frame::LONGEST;

/// The size of a unit of work: the most bytes that go into one, its header included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnitSize(usize);

/// The least: every record of the filters here fits in.
const LEAST: usize = 1024;

impl UnitSize {
    /// A unit of `bytes`.
    ///
    /// # Errors
    /// That is below 1 KB or above 64.
    pub fn new(bytes: usize) -> Result<Self> {
        ensure!((LEAST..=LONGEST).contains(&bytes), "a unit has from {LEAST} to {LONGEST} bytes");
        Ok(Self(bytes))
    }

    /// How many bytes.
    pub fn bytes(self) -> usize {
        self.0
    }

    /// The same, if it came from a peer.
    ///
    /// # Errors
    /// As [`UnitSize::new`].
    pub fn checked(self) -> Result<Self> {
        Self::new(self.0)
    }
}

impl FromStr for UnitSize {
    type Err = anyhow::Error;

    /// `1K`, `8K`, or a number of bytes.
    fn from_str(text: &str) -> Result<Self> {
        let (number, scale) = match text.strip_suffix(['K', 'k']) {
            Some(number) => (number, 1024),
            None => (text, 1),
        };
        let number: usize = number.parse().context("not a size such as 1K or 8K")?;
        Self::new(number.saturating_mul(scale))
    }
}

impl fmt::Display for UnitSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1024 {
            0 => write!(f, "{}K", self.0 / 1024),
            _ => write!(f, "{}", self.0),
        }
    }
}

/// How wide and how high, in pixels; or a place, from the left and from the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// From left to right.
    pub x: u32,
    /// From top to bottom.
    pub y: u32,
}

impl FromStr for Extent {
    type Err = anyhow::Error;

    /// `1024x768`, or `1024,768`.
    fn from_str(text: &str) -> Result<Self> {
        let (x, y) = text.split_once(['x', ',']).context("not two numbers such as 1024x768")?;
        let number = |text: &str| text.parse().with_context(|| format!("{text:?} is no number"));
        Ok(Self { x: number(x)?, y: number(y)? })
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.x, self.y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_as_they_are_written() {
        for text in ["1K", "8K", "64K", "1500"] {
            assert_eq!(text.parse::<UnitSize>().unwrap().to_string(), text);
        }
        for text in ["", "K", "1023", "65K", "1M", "99999999999999999999K"] {
            assert!(text.parse::<UnitSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn extents_are_read_as_they_are_written() {
        let extent: Extent = "1024x768".parse().unwrap();
        assert_eq!((extent.x, extent.y, extent.to_string()), (1024, 768, "1024x768".into()));
        assert_eq!("3,4".parse::<Extent>().unwrap(), Extent { x: 3, y: 4 });
        assert!("3".parse::<Extent>().is_err() && "3x-4".parse::<Extent>().is_err());
    }
}
