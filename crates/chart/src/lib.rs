//! Tables in Markdown, their places in pages, and charts in SVG, for the commands that have results
//! to show.
//!
//! Invariants: no text that is handed in becomes markup, none is cut off by the edge of its
//! picture, and none lies on another, whatever the names and the numbers are. A page is replaced
//! whole, or left as it was.
#![forbid(unsafe_code)]

mod axis;
mod dots;
mod line;
mod look;
mod page;
mod picture;
mod svg;
mod table;
mod text;

pub use axis::{AxisLabel, ChartAxis, Span, range, wants_log};
pub use dots::{DotChart, DotGroup, DotRow};
pub use line::{ChartCurve, ChartPlaces, ChartPoint, LineChart};
pub use look::{SeriesLook, spread, style};
pub use page::{MarkedPage, MarkedPageError};
pub use picture::{ChartPart, Drawing, FONT, PictureKind};
pub use svg::{Svg, escape};
pub use table::{markdown, number};
pub use text::{bold_width, text_width};
