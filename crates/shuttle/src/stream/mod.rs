//! A stream: one direction of segments out, one in.

pub(crate) mod recv;
pub(crate) mod send;

/// When a segment may be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In the order of their numbers only.
    Strict,
    /// At once, but the last segment of a tagged message after everything before it.
    Tail,
    /// At once.
    Loose,
}
