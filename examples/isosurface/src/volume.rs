//! The file of a volume: 12 bytes of head (`WEFTVOLM` and the side), then a byte for each voxel,
//! x fastest and z slowest. And a rock full of pores, to have something to look at.
//!
//! Invariant: a volume is a cube, and its border is outside of the rock.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use weft_filters::ProgressLine;
use weft_filters::noise::{Noise, mid, step};

const MAGIC: [u8; 8] = *b"WEFTVOLM";
const HEAD: usize = 12;
/// The fewest and the most voxels along a side.
const SIDES: std::ops::RangeInclusive<u32> = 16..=1024;
/// Voxels from the rock's surface to where a voxel has all or nothing.
const SLOPE: f32 = 5.0;

/// A volume, open.
#[derive(Debug)]
pub struct Volume {
    file: File,
    /// Voxels along each side.
    pub side: u32,
}

impl Volume {
    /// Opens the volume in `path`.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn open(path: &Path) -> Result<Self> {
        let about = || format!("the volume {}", path.display());
        Self::read(File::open(path).with_context(about)?).with_context(about)
    }

    fn read(file: File) -> Result<Self> {
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, 0).context("reading its head")?;
        ensure!(head[..8] == MAGIC, "it is no volume; `isosurface volume` makes one");
        let side = u32::from_be_bytes([0, 1, 2, 3].map(|at| head[8 + at]));
        check(side)?;
        let whole = HEAD as u64 + u64::from(side).pow(3);
        ensure!(file.metadata()?.len() == whole, "it does not have {whole} bytes");
        Ok(Self { file, side })
    }

    /// Reads the slice at `z`, one behind another.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn slice(&self, z: u32) -> Result<Vec<u8>> {
        let bytes = self.side as usize * self.side as usize;
        let mut slice = vec![0; bytes];
        let place = HEAD as u64 + u64::from(z) * bytes as u64;
        self.file.read_exact_at(&mut slice, place).with_context(|| format!("slice {z}"))?;
        Ok(slice)
    }
}

fn check(side: u32) -> Result<()> {
    let (least, most) = (SIDES.start(), SIDES.end());
    ensure!(SIDES.contains(&side), "a volume of {side} voxels a side; from {least} to {most}");
    Ok(())
}

/// Makes the volume of a seed.
///
/// # Errors
/// The side is out of bounds, or the file cannot be written.
pub fn make(path: &Path, seed: u32, side: u32) -> Result<()> {
    check(side)?;
    let about = || format!("writing {}", path.display());
    let mut file = BufWriter::new(File::create(path).with_context(about)?);
    file.write_all(&[&MAGIC[..], &side.to_be_bytes()].concat()).with_context(about)?;
    let rock = Rock { noise: Noise::new(seed), side };
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let mut progress = ProgressLine::new("volume");
    for first in (0..side).step_by(workers as usize) {
        progress.show(first.into(), side.into());
        let slices: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let start = |z| scope.spawn(move || rock.slice(z));
            let started: Vec<_> = (first..side.min(first + workers)).map(start).collect();
            started.into_iter().map(|one| one.join().expect("it does not panic")).collect()
        });
        slices.iter().try_for_each(|slice| file.write_all(slice)).with_context(about)?;
    }
    file.flush().with_context(about)
}

/// A rock with pores.
#[derive(Clone, Copy, Debug)]
struct Rock {
    noise: Noise,
    side: u32,
}

impl Rock {
    fn slice(self, z: u32) -> Vec<u8> {
        let places = (0..self.side).flat_map(|y| (0..self.side).map(move |x| [x, y, z]));
        places.map(|place| self.voxel(place)).collect()
    }

    fn voxel(self, place: [u32; 3]) -> u8 {
        if place.iter().any(|x| *x == 0 || *x == self.side - 1) {
            return 0;
        }
        let half = self.side as f32 / 2.0;
        let depth = self.depth(place.map(|x| (x as f32 + 0.5) / half - 1.0));
        (128.0 + 127.0 * (depth * half / SLOPE).clamp(-1.0, 1.0)) as u8
    }

    /// How far a place is inside the rock, about; each coordinate from -1 to 1.
    fn depth(self, [x, y, z]: [f32; 3]) -> f32 {
        let noise = |which: u32, scale: f32| {
            self.noise.other(which).space([x, y, z].map(|v| v * scale)) - 0.5
        };
        let bend = [noise(1, 2.2), noise(2, 2.2), noise(3, 2.2)];
        let bent = [x + 0.3 * bend[0], y + 0.3 * bend[1], z + 0.3 * bend[2]];
        let radius = (x * x + y * y + z * z).sqrt();
        let boulder = 0.84 - radius + 0.14 * noise(4, 1.7) + 0.05 * noise(5, 6.0);
        let wall = 0.035 + 0.05 * step(-0.25, 0.25, noise(6, 1.5));
        let pores = wall - web(bent.map(|v| v * 1.6)).abs() / 9.0 + 0.014 * noise(7, 11.0);
        smooth_least(boulder, pores, 0.05)
    }
}

/// A gyroid: a surface that parts space into two mazes lies where this is 0. One period is 1.
fn web([x, y, z]: [f32; 3]) -> f32 {
    let quarter = 0.25;
    wave(x) * wave(y + quarter) + wave(y) * wave(z + quarter) + wave(z) * wave(x + quarter)
}

/// About a sine of period 1, out of parabolas.
fn wave(t: f32) -> f32 {
    let u = 2.0 * (t - t.floor()) - 1.0;
    -4.0 * u * (1.0 - u.abs())
}

/// The lesser of the two, without a crease where they meet.
fn smooth_least(a: f32, b: f32, width: f32) -> f32 {
    let t = (0.5 + 0.5 * (b - a) / width).clamp(0.0, 1.0);
    mid(b, a, t) - width * t * (1.0 - t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_read_as_it_was_made() {
        let path = std::env::temp_dir().join(format!("weft-volume-{}", std::process::id()));
        make(&path, 3, 17).unwrap();
        let volume = Volume::open(&path).unwrap();
        let rock = Rock { noise: Noise::new(3), side: 17 };
        assert_eq!((volume.side, volume.slice(16).unwrap()), (17, rock.slice(16)));
        assert_eq!(volume.slice(8).unwrap(), rock.slice(8));
        assert!(volume.slice(17).is_err());
        std::fs::write(&path, [&MAGIC[..], &[0, 0, 0, 17], &[0; 99]].concat()).unwrap();
        assert!(Volume::open(&path).is_err());
        std::fs::write(&path, b"something else").unwrap();
        assert!(Volume::open(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(Volume::open(&path).is_err() && make(&path, 1, 8).is_err());
    }

    #[test]
    fn there_is_rock_and_there_are_pores_but_none_at_the_border() {
        let rock = Rock { noise: Noise::new(1), side: 48 };
        assert!(rock.slice(0).iter().all(|voxel| *voxel == 0));
        let middle = rock.slice(24);
        let full = middle.iter().filter(|voxel| **voxel > 128).count();
        assert!((middle.len() / 10..middle.len() * 6 / 10).contains(&full), "{full}");
    }

    #[test]
    fn waves_are_waves() {
        for (t, value) in [(0.0, 0.0), (0.25, 1.0), (0.5, 0.0), (0.75, -1.0), (-0.75, 1.0)] {
            assert_eq!(wave(t), value, "{t}");
        }
    }
}
