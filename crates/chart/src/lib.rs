//! Tables in Markdown and charts in SVG, for the commands that have results to show.
//!
//! Invariant: no text that is handed in becomes markup.
#![forbid(unsafe_code)]

mod axis;
mod look;
mod svg;
mod table;

pub use axis::{ChartAxis, Span, range, wants_log};
pub use look::{SeriesLook, spread, style};
pub use svg::{Svg, escape};
pub use table::{markdown, number};
