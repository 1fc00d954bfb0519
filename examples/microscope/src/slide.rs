//! The file of a slide: a pyramid of compressed tiles.
//!
//! Level 0 is what the scanner saw; each level above has a quarter of the pixels along either side.
//! A head of 24 bytes (`WEFTSLID`, width and height of level 0 and two words of index), the tiles,
//! then the index: for each tile, level by level and row by row, its place and its length.
//!
//! Invariant: width and height are multiples of [`GRAIN`], so every level is made of whole tiles.
//!
//! Order: [`make`] once, then [`Slide::open`], and [`Slide::tile`] as often as one likes.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use weft_filters::Extent;

use crate::tissue::{PIXEL, Tissue, bands};

/// Pixels along the side of a tile.
pub const TILE: u32 = 16;
/// Bytes of a tile, when it is not compressed.
pub const TILE_BYTES: usize = (TILE * TILE) as usize * PIXEL;
/// How many levels there are.
pub const LEVELS: u32 = 3;
/// The sides of level 0 are multiples of this.
const GRAIN: u32 = TILE * 16;
/// Pixels along a side of one pixel of the next level.
const STEP: u32 = 4;
const MAGIC: [u8; 8] = *b"WEFTSLID";
const HEAD: usize = 24;
/// How hard to compress, of 10.
const EFFORT: u8 = 6;
const LONGEST_SIDE: u32 = 1 << 15;

/// A slide, open.
#[derive(Debug)]
pub struct Slide {
    file: File,
    size: Extent,
    /// Of each tile, its place in the file times 2^16 and its length.
    index: Vec<u64>,
}

impl Slide {
    /// Opens the slide in `path`.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn open(path: &Path) -> Result<Self> {
        let about = || format!("the slide {}", path.display());
        Self::read(File::open(path).with_context(about)?).with_context(about)
    }

    fn read(file: File) -> Result<Self> {
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, 0).context("reading its head")?;
        ensure!(head[..8] == MAGIC, "it is no slide; `microscope slide` makes one");
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| head[at + i]));
        let size = Extent { x: word(8), y: word(12) };
        check(size)?;
        let place = u64::from(word(16)) << 32 | u64::from(word(20));
        let mut bytes = vec![0; tiles_below(size, LEVELS) as usize * 8];
        file.read_exact_at(&mut bytes, place).context("reading its index")?;
        let index = bytes
            .chunks_exact(8)
            .map(|entry| u64::from_be_bytes(std::array::from_fn(|at| entry[at])));
        Ok(Self { index: index.collect(), file, size })
    }

    /// The pixels of a level.
    pub fn size(&self, level: u32) -> Extent {
        at_level(self.size, level)
    }

    /// Reads a tile as it is stored, behind what is in `out`.
    ///
    /// # Errors
    /// There is no such tile, or it cannot be read.
    pub fn tile(&self, level: u32, column: u32, row: u32, out: &mut Vec<u8>) -> Result<()> {
        let about = || format!("tile {column},{row} of level {level}");
        let columns = self.size(level).x / TILE;
        let number = tiles_below(self.size, level) + u64::from(row * columns + column);
        let entry = *self.index.get(number as usize).with_context(about)?;
        let start = out.len();
        out.resize(start + (entry & 0xffff) as usize, 0);
        self.file.read_exact_at(&mut out[start..], entry >> 16).with_context(about)
    }
}

/// Makes the slide of a seed.
///
/// # Errors
/// The size is odd, or the file cannot be written.
pub fn make(path: &Path, seed: u32, size: Extent) -> Result<()> {
    check(size)?;
    let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
    let writer = SlideWriter { file: BufWriter::new(file), place: 0, index: Vec::new() };
    writer.write(seed, size).with_context(|| format!("writing {}", path.display()))
}

fn check(size: Extent) -> Result<()> {
    let good = |side: u32| side > 0 && side <= LONGEST_SIDE && side.is_multiple_of(GRAIN);
    ensure!(
        good(size.x) && good(size.y),
        "a slide of {size}; its sides are multiples of {GRAIN} up to {LONGEST_SIDE}"
    );
    Ok(())
}

fn at_level(size: Extent, level: u32) -> Extent {
    let scale = STEP.pow(level);
    Extent { x: size.x / scale, y: size.y / scale }
}

/// How many tiles there are in the levels below `level`.
fn tiles_below(size: Extent, level: u32) -> u64 {
    let tiles = |size: Extent| u64::from(size.x / TILE) * u64::from(size.y / TILE);
    (0..level).map(|level| tiles(at_level(size, level))).sum()
}

/// A slide that is being written.
struct SlideWriter {
    file: BufWriter<File>,
    place: u64,
    index: Vec<u64>,
}

impl SlideWriter {
    fn write(mut self, seed: u32, size: Extent) -> Result<()> {
        self.put(&[0; HEAD])?;
        let mut small = Vec::new();
        let make = |band: Vec<u8>| (compress(&band, size.x), shrink(&band, size.x));
        bands(&Tissue::new(seed, size), TILE, make, |(tiles, pixels)| {
            small.extend(pixels);
            self.tiles(&tiles)
        })?;
        for level in 1..LEVELS {
            let width = at_level(size, level).x;
            let rows = small.chunks_exact(width as usize * TILE as usize * PIXEL);
            rows.map(|band| compress(band, width)).try_for_each(|tiles| self.tiles(&tiles))?;
            small = shrink(&small, width);
        }
        self.finish(size)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.place += bytes.len() as u64;
        Ok(self.file.write_all(bytes)?)
    }

    fn tiles(&mut self, tiles: &[Vec<u8>]) -> Result<()> {
        for tile in tiles {
            self.index.push(self.place << 16 | tile.len() as u64);
            self.put(tile)?;
        }
        Ok(())
    }

    fn finish(mut self, size: Extent) -> Result<()> {
        let place = self.place;
        for entry in std::mem::take(&mut self.index) {
            self.put(&entry.to_be_bytes())?;
        }
        self.file.flush()?;
        let sides = [size.x.to_be_bytes(), size.y.to_be_bytes()].concat();
        let head = [&MAGIC[..], &sides, &place.to_be_bytes()].concat();
        Ok(self.file.get_ref().write_all_at(&head, 0)?)
    }
}

/// The tiles of a band of pixels as high as they are.
fn compress(band: &[u8], width: u32) -> Vec<Vec<u8>> {
    let tile = |column: usize| {
        let rows = band.chunks_exact(width as usize * PIXEL);
        let length = TILE as usize * PIXEL;
        let mut pixels: Vec<u8> =
            rows.flat_map(|row| row[column * length..][..length].iter().copied()).collect();
        // Neighbours are alike: what is stored of a pixel is how it differs from the one before.
        for at in (PIXEL..pixels.len()).rev() {
            pixels[at] = pixels[at].wrapping_sub(pixels[at - PIXEL]);
        }
        compress_to_vec(&pixels, EFFORT)
    };
    (0..(width / TILE) as usize).map(tile).collect()
}

/// The pixels of a tile as it is stored.
///
/// # Errors
/// They are none.
pub fn decompress(stored: &[u8]) -> Result<Vec<u8>> {
    let pixels = decompress_to_vec_with_limit(stored, TILE_BYTES);
    let mut pixels = pixels.map_err(|error| anyhow::anyhow!("not deflated: {:?}", error.status))?;
    ensure!(pixels.len() == TILE_BYTES, "{} bytes in a tile", pixels.len());
    for at in PIXEL..pixels.len() {
        pixels[at] = pixels[at].wrapping_add(pixels[at - PIXEL]);
    }
    Ok(pixels)
}

fn shrink(pixels: &[u8], width: u32) -> Vec<u8> {
    average(pixels, width as usize, STEP as usize)
}

/// A picture with one pixel for each square of `step` by `step`: their average.
pub fn average(pixels: &[u8], width: usize, step: usize) -> Vec<u8> {
    let height = pixels.len() / PIXEL / width;
    let mut out = Vec::with_capacity(pixels.len() / step / step);
    for (y, x) in (0..height / step).flat_map(|y| (0..width / step).map(move |x| (y, x))) {
        let mut sums = [0; PIXEL];
        for (dy, dx) in (0..step).flat_map(|dy| (0..step).map(move |dx| (dy, dx))) {
            let at = ((y * step + dy) * width + x * step + dx) * PIXEL;
            sums.iter_mut().zip(&pixels[at..]).for_each(|(sum, byte)| *sum += usize::from(*byte));
        }
        out.extend(sums.map(|sum| (sum / (step * step)) as u8));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Extent = Extent { x: 512, y: 256 };

    fn file(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("weft-slide-{name}-{}", std::process::id()))
    }

    #[test]
    fn tiles_are_read_as_they_were_made() {
        let path = file("tiles");
        make(&path, 3, SIZE).unwrap();
        let slide = Slide::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let tile = |level, column, row| {
            let mut stored = Vec::new();
            slide.tile(level, column, row, &mut stored).unwrap();
            decompress(&stored).unwrap()
        };
        let band = Tissue::new(3, SIZE).band(16, 16);
        let first: Vec<u8> =
            band.chunks_exact(512 * PIXEL).flat_map(|row| &row[48..96]).copied().collect();
        assert_eq!(tile(0, 1, 1), first);
        let corner = average(&tile(0, 0, 0), 16, 4);
        let above = tile(1, 0, 0);
        assert_eq!(above[..12], corner[..12]);
        assert_eq!(slide.size(2), Extent { x: 32, y: 16 });
        assert_eq!(tile(2, 1, 0).len(), TILE_BYTES);
        assert!(slide.tile(2, 2, 0, &mut Vec::new()).is_err());
    }

    #[test]
    fn what_is_no_slide_is_refused() {
        let path = file("wrong");
        for content in [&b""[..], b"WEFTSLIDE but nothing else", &[0; 64]] {
            std::fs::write(&path, content).unwrap();
            assert!(Slide::open(&path).is_err());
        }
        std::fs::remove_file(&path).unwrap();
        assert!(Slide::open(&path).is_err());
        assert!(make(&path, 1, Extent { x: 100, y: 256 }).is_err());
    }

    #[test]
    fn what_is_no_tile_is_refused() {
        assert!(decompress(b"nothing").is_err());
        assert!(decompress(&compress_to_vec(&[0; TILE_BYTES - 1], 1)).is_err());
        assert!(decompress(&compress_to_vec(&[0; TILE_BYTES * 9], 1)).is_err());
        assert_eq!(decompress(&compress_to_vec(&[0; TILE_BYTES], 1)).unwrap(), [0; TILE_BYTES]);
    }
}
