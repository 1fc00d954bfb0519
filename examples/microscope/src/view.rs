//! What a query asks for: a part of the slide, as it is seen through an objective.
//!
//! Invariant: a view lies on its slide, and its edges on pixels of the picture; so each pixel of
//! the picture is the average of pixels of one tile.

use std::fmt;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use weft_filters::{Extent, Picture};

use crate::slide::{LEVELS, Slide, TILE};

/// What one looks through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Objective {
    /// Each pixel of the scanner
    #[value(name = "40")]
    Forty,
    /// Half as large
    #[value(name = "20")]
    Twenty,
    /// A quarter
    #[value(name = "10")]
    Ten,
    /// An eighth
    #[value(name = "5")]
    Five,
    /// A sixteenth
    #[value(name = "2.5")]
    TwoAndAHalf,
    /// A thirty-second
    #[value(name = "1.25")]
    OneAndAQuarter,
}

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The level of the pyramid.
    pub level: u32,
    /// How many pixels of the level make one of the picture, along each side: 1 or 2.
    pub zoom: u32,
    /// The left upper corner, in pixels of the level.
    pub corner: Extent,
    /// Width and height of the picture.
    pub size: Extent,
}

impl Objective {
    /// The level to look at, and what is left to shrink.
    fn level_and_zoom(self) -> (u32, u32) {
        let halvings = self as u32;
        (halvings / 2, 1 << (halvings % 2))
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

impl View {
    /// What `objective` shows in a picture of `size` with its middle at `at`, in pixels of the
    /// scanner; without that, the middle of the slide.
    ///
    /// # Errors
    /// It leaves the slide.
    pub fn of(
        slide: &Slide,
        at: Option<Extent>,
        size: Extent,
        objective: Objective,
    ) -> Result<Self> {
        let (level, zoom) = objective.level_and_zoom();
        let whole = slide.size(0);
        let at = at.unwrap_or(Extent { x: whole.x / 2, y: whole.y / 2 });
        // Through this objective, the slide and the place have these pixels.
        let scale = zoom << (2 * level);
        let start = |at: u32, size: u32, whole: u32| {
            let start = i64::from(at / scale) - i64::from(size / 2);
            let inside = start >= 0 && start + i64::from(size) <= i64::from(whole / scale);
            inside.then(|| start as u32 * zoom)
        };
        let corner = start(at.x, size.x, whole.x).zip(start(at.y, size.y, whole.y));
        let seen = Extent { x: whole.x / scale, y: whole.y / scale };
        let middle = Extent { x: at.x / scale, y: at.y / scale };
        let outside = || {
            anyhow::anyhow!(
                "{size} pixels around {},{} leave the slide, which has {seen} through this \
                 objective; take less, another one or another place",
                middle.x,
                middle.y
            )
        };
        let (x, y) = corner.ok_or_else(outside)?;
        Ok(Self { level, zoom, corner: Extent { x, y }, size })
    }

    /// Reads a query.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn parse(query: &[u8]) -> Result<Self> {
        let view: Self = serde_json::from_slice(query)?;
        let Self { level, zoom, corner, .. } = view;
        let right = level < LEVELS && [1, 2].contains(&zoom);
        let aligned = corner.x.is_multiple_of(zoom) && corner.y.is_multiple_of(zoom);
        let near = corner.x.max(corner.y) <= 1 << 20;
        ensure!(right && aligned && near, "a view that is none: {view:?}");
        Picture::new(view.size)?;
        Ok(view)
    }

    /// The columns and the rows of the tiles that it needs.
    pub fn tiles(&self) -> [std::ops::Range<u32>; 2] {
        let pixels = self.pixels();
        let range = |start: u32, length: u32| start / TILE..(start + length).div_ceil(TILE);
        [range(self.corner.x, pixels.x), range(self.corner.y, pixels.y)]
    }

    /// Its width and height in pixels of the level.
    pub fn pixels(&self) -> Extent {
        Extent { x: self.size.x * self.zoom, y: self.size.y * self.zoom }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_levels_and_halves() {
        let names: Vec<String> =
            Objective::value_variants().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["40", "20", "10", "5", "2.5", "1.25"]);
        assert_eq!(Objective::Forty.level_and_zoom(), (0, 1));
        assert_eq!(Objective::OneAndAQuarter.level_and_zoom(), (2, 2));
    }

    #[test]
    fn views_lie_on_the_slide() {
        let path = std::env::temp_dir().join(format!("weft-view-{}", std::process::id()));
        crate::slide::make(&path, 1, Extent { x: 256, y: 512 }).unwrap();
        let slide = Slide::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let of = |at, size, objective| View::of(&slide, at, size, objective);
        let whole = of(None, Extent { x: 32, y: 64 }, Objective::Five).unwrap();
        assert_eq!((whole.level, whole.zoom, whole.corner), (1, 2, Extent { x: 0, y: 0 }));
        assert_eq!(whole.tiles(), [0..4, 0..8]);
        let part = of(Some(Extent { x: 100, y: 101 }), Extent { x: 10, y: 10 }, Objective::Twenty);
        let part = part.unwrap();
        assert_eq!((part.corner, part.tiles()), (Extent { x: 90, y: 90 }, [5..7, 5..7]));
        assert_eq!(View::parse(&serde_json::to_vec(&part).unwrap()).unwrap(), part);
        for (at, size) in [((0, 0), 10), ((128, 256), 257), ((9999, 9), 1)] {
            let at = Some(Extent { x: at.0, y: at.1 });
            let size = Extent { x: size, y: size };
            assert!(of(at, size, Objective::Forty).is_err(), "{at:?}");
        }
    }

    #[test]
    fn strange_queries_are_refused() {
        let size = Extent { x: 1, y: 1 };
        let view = View { level: 0, zoom: 2, corner: size, size };
        for view in [
            view,
            View { zoom: 3, ..view },
            View { level: 3, zoom: 1, ..view },
            View { zoom: 1, size: Extent { x: 0, y: 1 }, ..view },
            View { zoom: 1, corner: Extent { x: u32::MAX, y: 1 }, ..view },
        ] {
            let query = serde_json::to_vec(&view).unwrap();
            assert!(View::parse(&query).is_err(), "{view:?}");
        }
    }
}
