//! A picture of red, green and blue, and the PNG of it.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::size::Extent;

/// Three bytes for each pixel, row by row from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Its width and height.
    pub size: Extent,
    bytes: Vec<u8>,
}

/// The most pixels along a side: 16 bits tell any place.
const LONGEST_SIDE: u32 = 1 << 14;

impl Picture {
    /// A black picture.
    ///
    /// # Errors
    /// It has no pixels, or too many.
    pub fn new(size: Extent) -> Result<Self> {
        let sides = 1..=LONGEST_SIDE;
        ensure!(
            sides.contains(&size.x) && sides.contains(&size.y),
            "a picture of {size} pixels; each side has from 1 to {LONGEST_SIDE}"
        );
        Ok(Self { size, bytes: vec![0; size.x as usize * size.y as usize * 3] })
    }

    /// The pixels of row `y` from `x` on, `count` of them.
    ///
    /// # Errors
    /// They are outside.
    pub fn row_mut(&mut self, x: usize, y: usize, count: usize) -> Result<&mut [u8]> {
        let (width, height) = (self.size.x as usize, self.size.y as usize);
        let inside = x + count <= width && y < height;
        ensure!(inside, "{count} pixels at {x},{y} leave a picture of {}", self.size);
        let start = (y * width + x) * 3;
        Ok(&mut self.bytes[start..start + count * 3])
    }

    /// Writes it to `file`, as PNG.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: &Path) -> Result<()> {
        let about = || format!("writing {}", file.display());
        let out = BufWriter::new(File::create(file).with_context(about)?);
        let mut encoder = png::Encoder::new(out, self.size.x, self.size.y);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header().with_context(about)?;
        writer.write_image_data(&self.bytes).with_context(about)?;
        writer.finish().with_context(about)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_bounds() {
        let mut picture = Picture::new(Extent { x: 2, y: 1 }).unwrap();
        picture.row_mut(1, 0, 1).unwrap().copy_from_slice(&[1, 2, 3]);
        assert_eq!(picture.bytes, [0, 0, 0, 1, 2, 3]);
        assert!(picture.row_mut(1, 0, 2).is_err() && picture.row_mut(0, 1, 1).is_err());
        assert!(Picture::new(Extent { x: 0, y: 1 }).is_err());
        assert!(Picture::new(Extent { x: 1, y: 1 << 20 }).is_err());
    }

    #[test]
    fn what_is_written_is_a_png() {
        let file = std::env::temp_dir().join(format!("weft-filters-{}.png", std::process::id()));
        Picture::new(Extent { x: 3, y: 2 }).unwrap().write(&file).unwrap();
        let bytes = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(bytes[..8], *b"\x89PNG\r\n\x1a\n");
        assert!(Picture::new(Extent { x: 1, y: 1 }).unwrap().write("/".as_ref()).is_err());
    }
}
