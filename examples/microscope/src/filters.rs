//! The five filters: read, decompress, clip, zoom and view.
//!
//! From read to clip a record is a tile: column and row, two bytes each, and the tile. From clip
//! to view it is a piece: left, top, width and height, two bytes each, and its pixels.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use weft_filters::{Filter, Outlet, Picture, ProgressLine};

use crate::slide::{Slide, TILE, TILE_BYTES, average, decompress};
use crate::tissue::PIXEL;
use crate::view::View;

const PLACE: usize = 4;
const PIECE: usize = 8;

/// Reads the tiles of a view, as they are stored.
pub struct ReadTiles(pub Slide);

impl Filter for ReadTiles {
    fn begin(&mut self, query: &[u8], out: &mut Outlet<'_>) -> Result<()> {
        let view = View::parse(query)?;
        let [columns, rows] = view.tiles();
        let mut progress = ProgressLine::new("microscope");
        let mut record = Vec::new();
        for row in rows.clone() {
            progress.show((row - rows.start).into(), rows.len() as u64);
            for column in columns.clone() {
                record.clear();
                record.extend(words([column, row]).concat());
                self.0.tile(view.level, column, row, &mut record)?;
                out.put(&record)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, _record: &[u8], _out: &mut Outlet<'_>) -> Result<()> {
        anyhow::bail!("there is nothing before this filter")
    }
}

/// Gives the tiles their pixels.
pub struct Decompress;

impl Filter for Decompress {
    fn begin(&mut self, _query: &[u8], _out: &mut Outlet<'_>) -> Result<()> {
        Ok(())
    }

    fn take(&mut self, record: &[u8], out: &mut Outlet<'_>) -> Result<()> {
        let ([column, row], stored) = split(record)?;
        let pixels = decompress(stored).with_context(|| format!("tile {column},{row}"))?;
        out.put(&[&record[..PLACE], &pixels].concat())
    }
}

/// Cuts off what is outside the view.
#[derive(Default)]
pub struct Clip(Option<View>);

impl Filter for Clip {
    fn begin(&mut self, query: &[u8], _out: &mut Outlet<'_>) -> Result<()> {
        self.0 = Some(View::parse(query)?);
        Ok(())
    }

    fn take(&mut self, record: &[u8], out: &mut Outlet<'_>) -> Result<()> {
        let view = self.0.context("a tile before a query")?;
        let ([column, row], pixels) = split(record)?;
        ensure!(pixels.len() == TILE_BYTES, "tile {column},{row} has {} bytes", pixels.len());
        let all = view.pixels();
        let (left, width) = overlap(column, view.corner.x, all.x)?;
        let (top, height) = overlap(row, view.corner.y, all.y)?;
        let origin = |tile: u32, corner: u32, inset: u32| tile * TILE + inset - corner;
        let place = [origin(column, view.corner.x, left), origin(row, view.corner.y, top)];
        let mut piece = words([place[0], place[1], width, height]).concat();
        for y in top..top + height {
            let start = (y * TILE + left) as usize * PIXEL;
            piece.extend(&pixels[start..start + width as usize * PIXEL]);
        }
        out.put(&piece)
    }
}

/// What of a tile lies in a view that begins at `corner`: from which of its pixels, and how many.
fn overlap(tile: u32, corner: u32, length: u32) -> Result<(u32, u32)> {
    let start = (tile * TILE).max(corner);
    let end = ((tile + 1) * TILE).min(corner + length);
    ensure!(start < end, "a tile outside the view");
    Ok((start - tile * TILE, end - start))
}

/// Shrinks pieces to the pixels of the picture.
#[derive(Default)]
pub struct Zoom(u32);

impl Filter for Zoom {
    fn begin(&mut self, query: &[u8], _out: &mut Outlet<'_>) -> Result<()> {
        self.0 = View::parse(query)?.zoom;
        Ok(())
    }

    fn take(&mut self, record: &[u8], out: &mut Outlet<'_>) -> Result<()> {
        let (piece, pixels) = piece(record)?;
        ensure!(piece.iter().all(|side| side.is_multiple_of(self.0)), "a piece of {piece:?}");
        let small = average(pixels, piece[2] as usize, self.0 as usize);
        out.put(&[words(piece.map(|side| side / self.0)).concat(), small].concat())
    }
}

/// Puts the picture together, and writes it in the end.
pub struct Show {
    out: PathBuf,
    picture: Option<Picture>,
    /// Pixels that are still to come.
    missing: usize,
    /// The answer to the query before.
    before: Option<Picture>,
}

impl Show {
    /// Writes the picture to `out`.
    pub fn new(out: PathBuf) -> Self {
        Self { out, picture: None, missing: 0, before: None }
    }
}

impl Filter for Show {
    fn begin(&mut self, query: &[u8], _out: &mut Outlet<'_>) -> Result<()> {
        let view = View::parse(query)?;
        self.before = self.picture.replace(Picture::new(view.size)?);
        self.missing = view.size.x as usize * view.size.y as usize;
        Ok(())
    }

    fn take(&mut self, record: &[u8], _out: &mut Outlet<'_>) -> Result<()> {
        let ([x, y, width, height], pixels) = piece(record)?;
        let picture = self.picture.as_mut().context("a piece before a query")?;
        let count = width as usize;
        for (row, pixels) in pixels.chunks_exact(count * PIXEL).enumerate() {
            picture.row_mut(x as usize, y as usize + row, count)?.copy_from_slice(pixels);
        }
        let more = self.missing.checked_sub(count * height as usize);
        self.missing = more.context("more pieces than fit into the picture")?;
        Ok(())
    }

    fn end(&mut self, _out: &mut Outlet<'_>) -> Result<()> {
        ensure!(self.missing == 0, "{} pixels are missing", self.missing);
        let same = self.before.is_none() || self.before == self.picture;
        ensure!(same, "the answer differs from the one before");
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.picture.as_ref().context("no query was asked")?.write(&self.out)
    }
}

fn words<const N: usize>(numbers: [u32; N]) -> [[u8; 2]; N] {
    numbers.map(|number| (number as u16).to_be_bytes())
}

/// The numbers that a record begins with, and what follows them.
fn split<const N: usize>(record: &[u8]) -> Result<([u32; N], &[u8])> {
    let (head, rest) = record.split_at_checked(2 * N).context("a record that is cut off")?;
    let word = |at: usize| u32::from(u16::from_be_bytes([head[2 * at], head[2 * at + 1]]));
    Ok((std::array::from_fn(word), rest))
}

/// Left, top, width and height of a piece, and its pixels.
fn piece(record: &[u8]) -> Result<([u32; PIECE / 2], &[u8])> {
    let (sides, pixels) = split(record)?;
    let [_, _, width, height] = sides;
    let right = width > 0 && pixels.len() == width as usize * height as usize * PIXEL;
    ensure!(right, "a piece of {width} by {height} pixels with {} bytes", pixels.len());
    Ok((sides, pixels))
}

#[cfg(test)]
mod tests {
    use weft_filters::{Extent, through};

    use super::*;

    /// Twelve by four pixels, each of two by two, across a border of tiles.
    const VIEW: View =
        View { level: 0, zoom: 2, corner: Extent { x: 6, y: 10 }, size: Extent { x: 12, y: 4 } };

    fn query() -> Vec<u8> {
        serde_json::to_vec(&VIEW).unwrap()
    }

    /// A tile of which each pixel says where it is.
    fn tile(column: u8, row: u8) -> Vec<u8> {
        let pixels = (0..=255).flat_map(|at| [column * 16 + at % 16, row * 16 + at / 16, 0]);
        [0, column, 0, row].into_iter().chain(pixels).collect()
    }

    #[test]
    fn tiles_become_the_view() {
        let tiles = [tile(0, 0), tile(1, 0), tile(0, 1), tile(1, 1)];
        let pieces = through(&mut Clip::default(), &query(), &tiles).unwrap();
        assert_eq!(pieces[0][..8], [0, 0, 0, 0, 0, 10, 0, 6]);
        assert_eq!(pieces[3][..8], [0, 10, 0, 6, 0, 14, 0, 2]);
        assert_eq!(pieces[3][8..11], [16, 16, 0]);
        let small = through(&mut Zoom::default(), &query(), &pieces).unwrap();
        assert_eq!(small[3][..8], [0, 5, 0, 3, 0, 7, 0, 1]);
        let mut show = Show::new(PathBuf::new());
        through(&mut show, &query(), &small).unwrap();
        through(&mut show, &query(), &small).unwrap();
        let mut picture = show.picture.unwrap();
        assert_eq!(picture.row_mut(0, 0, 2).unwrap(), [6, 10, 0, 8, 10, 0]);
        assert_eq!(picture.row_mut(11, 3, 1).unwrap(), [28, 16, 0]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let show = || Show::new(PathBuf::new());
        let refused = |filter: &mut dyn Filter, records: &[Vec<u8>]| {
            through(filter, &query(), records).unwrap_err().to_string()
        };
        assert!(refused(&mut show(), &[]).contains("48 pixels are missing"));
        assert!(refused(&mut Clip::default(), &[tile(9, 9)]).contains("outside the view"));
        assert!(refused(&mut Clip::default(), &[vec![0; 9]]).contains("5 bytes"));
        assert!(refused(&mut Decompress, &[vec![0; 3]]).contains("cut off"));
        let odd = vec![0, 0, 0, 0, 0, 3, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
        assert!(refused(&mut Zoom::default(), std::slice::from_ref(&odd)).contains("a piece of"));
        let wide = [&[0, 12, 0, 0, 0, 1, 0, 1][..], &[1; 3]].concat();
        assert!(refused(&mut show(), &[wide]).contains("leave a picture"));
    }
}
