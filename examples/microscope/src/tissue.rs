//! A tissue that was never alive: glands in a stroma, stained with haematoxylin and eosin, as a
//! scanner with an objective of 40 sees it.
//!
//! Invariant: the colour of a pixel depends on the seed, the size of the slide and its place only.

use weft_filters::noise::{NearestPoint, Noise, mid, step};
use weft_filters::{Extent, ProgressLine};

/// The bytes of a pixel.
pub const PIXEL: usize = 3;
/// Pixels from one gland to the next.
const GLAND: f32 = 430.0;
/// Pixels from one nucleus to the next.
const NUCLEUS: f32 = 27.0;
/// What is left of red, green and blue behind much of each stain.
const HAEMATOXYLIN: [f32; 3] = [1.05, 1.35, 0.52];
const EOSIN: [f32; 3] = [0.11, 0.98, 0.42];
/// The lamp behind the glass.
const LAMP: [f32; 3] = [246.0, 244.0, 246.0];

/// A tissue on a slide.
#[derive(Clone, Copy, Debug)]
pub struct Tissue {
    noise: Noise,
    size: Extent,
}

/// How much of each stain there is at a place, and how likely a nucleus.
#[derive(Clone, Copy, Debug)]
struct Stain {
    haematoxylin: f32,
    eosin: f32,
    nuclei: f32,
}

impl Tissue {
    /// The tissue of a seed.
    pub fn new(seed: u32, size: Extent) -> Self {
        Self { noise: Noise::new(seed), size }
    }

    /// A row of tiles' height of pixels: `rows` rows from `top` on.
    pub fn band(&self, top: u32, rows: u32) -> Vec<u8> {
        let places = (top..top + rows).flat_map(|y| (0..self.size.x).map(move |x| (x, y)));
        places.flat_map(|(x, y)| self.colour(x as f32, y as f32)).collect()
    }

    fn colour(&self, x: f32, y: f32) -> [u8; PIXEL] {
        let inside = self.inside(x, y);
        let mut stain = Stain { haematoxylin: 0.0, eosin: 0.0, nuclei: 0.0 };
        if inside > 0.0 {
            stain = self.stain(x, y);
            self.add_nucleus(x, y, &mut stain);
        }
        let grain = 0.985 + 0.03 * self.noise.other(90).plane(x * 0.9, y * 0.9);
        let light = |c: usize| {
            let depth = stain.haematoxylin * HAEMATOXYLIN[c] + stain.eosin * EOSIN[c];
            LAMP[c] * grain * dim(depth * inside)
        };
        [0, 1, 2].map(|c| light(c).clamp(0.0, 255.0) as u8)
    }

    /// From 0 beside the tissue to 1 in it.
    fn inside(&self, x: f32, y: f32) -> f32 {
        let (w, h) = (self.size.x as f32, self.size.y as f32);
        let (u, v) = ((x / w - 0.5) / 0.49, (y / h - 0.5) / 0.48);
        let ragged = self.noise.other(1).rough(x / 620.0, y / 620.0, 4) - 0.5;
        let fine = self.noise.other(2).rough(x / 40.0, y / 40.0, 2) - 0.5;
        // A square with round corners, so that the picture is mostly tissue.
        let radius = (u * u * u * u + v * v * v * v).sqrt().sqrt();
        step(1.0, 0.985, radius + 0.3 * ragged + 0.015 * fine)
    }

    /// The gland that a place belongs to, in units of the distance between glands.
    fn gland(&self, x: f32, y: f32) -> NearestPoint {
        let bend = |which: u32| self.noise.other(which).rough(x / 190.0, y / 190.0, 3) - 0.5;
        self.noise.other(12).cell((x + 150.0 * bend(10)) / GLAND, (y + 150.0 * bend(11)) / GLAND)
    }

    /// What the place is: lumen, the wall of a gland, or stroma.
    fn stain(&self, x: f32, y: f32) -> Stain {
        let gland = self.gland(x, y);
        let wide = 0.34 + 0.1 * gland.chance.pick(1);
        let lumen = wide * (0.24 + 0.4 * gland.chance.pick(2));
        let fine = self.noise.other(20).rough(x / 22.0, y / 22.0, 3);
        // Glands do not touch: their rims stay apart from the borders of the cells.
        let apart = step(0.05, 0.1, gland.next - gland.near);
        let in_gland = step(wide + 0.008, wide - 0.008, gland.near) * apart;
        let in_lumen = step(lumen + 0.012, lumen - 0.012, gland.near + 0.05 * (fine - 0.5));
        let wall = || self.wall(x, y, (wide - gland.near) * GLAND, fine);
        let inner = || blend(wall, || self.mucus(x, y, fine), in_lumen);
        blend(|| self.stroma(x, y, fine), inner, in_gland)
    }

    /// Almost nothing, with threads in it.
    fn mucus(&self, x: f32, y: f32, fine: f32) -> Stain {
        let thread = self.noise.other(21).rough(x / 60.0, y / 25.0, 3);
        let eosin = 0.03 + 0.25 * step(0.6, 0.75, thread);
        Stain { haematoxylin: 0.02 + 0.06 * step(0.5, 0.8, fine), eosin, nuclei: 0.0 }
    }

    /// Cells side by side, `depth` pixels from the rim: nuclei near it, pale drops above them.
    fn wall(&self, x: f32, y: f32, depth: f32, fine: f32) -> Stain {
        let drop = self.noise.other(30).cell(x / 31.0, y / 31.0);
        let full = step(0.45, 0.25, drop.near) * step(24.0, 38.0, depth);
        let full = if drop.chance.pick(3) < 0.6 { full } else { 0.0 };
        let membrane = step(0.1, 0.0, drop.next - drop.near);
        let eosin = 0.5 + 0.25 * fine + 0.18 * membrane;
        Stain {
            haematoxylin: mid(0.2 + 0.14 * fine, 0.1, full),
            eosin: mid(eosin, 0.12, full),
            nuclei: step(44.0, 32.0, depth) * step(1.0, 5.0, depth),
        }
    }

    /// Fibres, with clefts between them and some vessels full of blood.
    fn stroma(&self, x: f32, y: f32, fine: f32) -> Stain {
        let bend = 260.0 * self.noise.other(40).rough(x / 420.0, y / 420.0, 2);
        let fibre = self.noise.other(41).rough((x + bend) / 120.0, (y + 1.3 * bend) / 13.0, 4);
        let cleft = step(0.6, 0.72, fibre);
        let crowd = self.noise.other(42).rough(x / 330.0, y / 330.0, 2);
        let blood = self.blood(x, y);
        Stain {
            haematoxylin: 0.08 + 0.1 * fine * (1.0 - cleft),
            eosin: mid(mid(0.32 + 0.55 * fibre, 0.06, cleft), 1.25, blood),
            nuclei: mid(0.16, 0.85, step(0.5, 0.72, crowd)) * (1.0 - blood) * (1.0 - 0.6 * cleft),
        }
    }

    /// Red cells, which have no nuclei: discs with a dent.
    fn blood(&self, x: f32, y: f32) -> f32 {
        let vessel = self.noise.other(50).rough(x / 260.0, y / 260.0, 2);
        let disc = self.noise.other(51).cell(x / 21.0, y / 21.0);
        let body = step(0.47, 0.4, disc.near) * mid(0.75, 1.0, step(0.05, 0.3, disc.near));
        step(0.74, 0.77, vessel) * body
    }

    /// Adds the nucleus that the place is in, if there is one: whether there is follows from where
    /// its middle lies.
    fn add_nucleus(&self, x: f32, y: f32, stain: &mut Stain) {
        let cell = self.noise.other(60).cell(x / NUCLEUS, y / NUCLEUS);
        let chance = cell.chance;
        let long = 0.3 + 0.1 * chance.pick(5);
        if cell.near > long + 0.04 {
            return;
        }
        let middle = self.stain(x - cell.x * NUCLEUS, y - cell.y * NUCLEUS);
        if chance.pick(6) > middle.nuclei {
            return;
        }
        // An ellipse that is turned: along (c, s) it is long.
        let (c, s) = direction(chance.pick(7));
        let (along, across) = (cell.x * c + cell.y * s, cell.y * c - cell.x * s);
        let thin = mid(1.15, 2.1, chance.pick(8) * chance.pick(9));
        let radius = (along * along + across * across * thin * thin).sqrt();
        let body = step(long + 0.03, long - 0.04, radius);
        let rim = step(long - 0.14, long - 0.03, radius);
        let clump = self.noise.other(61).rough(x / 5.0, y / 5.0, 2);
        let dark = mid(0.75, 1.25, chance.pick(10));
        stain.haematoxylin += body * dark * (0.5 + 0.75 * clump + 0.35 * rim);
        stain.eosin = mid(stain.eosin, 0.35, body);
    }
}

/// The share of light that is left behind a depth of stain: about exp(-depth).
fn dim(depth: f32) -> f32 {
    let root = 1.0 + depth / 4.0 * (1.0 + depth / 8.0);
    1.0 / (root * root * root * root)
}

/// A direction for a number from 0 to 1, half way around.
fn direction(turn: f32) -> (f32, f32) {
    let t = turn * 2.0 - 1.0;
    let length = 1.0 + t * t;
    ((1.0 - t * t) / length, 2.0 * t / length)
}

/// Between the two, `t` of the way; what makes no difference is not made.
fn blend(a: impl Fn() -> Stain, b: impl Fn() -> Stain, t: f32) -> Stain {
    if t <= 0.0 || t >= 1.0 {
        return if t <= 0.0 { a() } else { b() };
    }
    let (a, b) = (a(), b());
    Stain {
        haematoxylin: mid(a.haematoxylin, b.haematoxylin, t),
        eosin: mid(a.eosin, b.eosin, t),
        nuclei: mid(a.nuclei, b.nuclei, t),
    }
}

/// Makes the bands of a tissue on all processors, and gives each to `take`, in order.
///
/// # Errors
/// Those of `take`.
pub fn bands<T: Send>(
    tissue: &Tissue,
    rows: u32,
    make: impl Fn(Vec<u8>) -> T + Sync,
    mut take: impl FnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let mut progress = ProgressLine::new("slide");
    let height = tissue.size.y;
    for first in (0..height).step_by((rows * workers) as usize) {
        progress.show(first.into(), height.into());
        let tops = (0..workers).map(|worker| first + worker * rows).filter(|top| *top < height);
        let made: Vec<T> = std::thread::scope(|scope| {
            let start = |top| {
                scope.spawn({
                    let make = &make;
                    move || make(tissue.band(top, rows))
                })
            };
            let started: Vec<_> = tops.map(start).collect();
            started.into_iter().map(|one| one.join().expect("it does not panic")).collect()
        });
        made.into_iter().try_for_each(&mut take)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Extent = Extent { x: 256, y: 256 };

    #[test]
    fn a_seed_is_a_tissue() {
        let band = |seed| Tissue::new(seed, SIZE).band(100, 4);
        assert_eq!(band(1).len(), 256 * 4 * PIXEL);
        assert_eq!(band(1), band(1));
        assert_ne!(band(1), band(2));
    }

    #[test]
    fn corners_are_glass_and_the_middle_is_not() {
        let tissue = Tissue::new(1, Extent { x: 4096, y: 4096 });
        let glass = tissue.colour(2.0, 2.0);
        assert!(glass.iter().all(|c| *c > 235), "{glass:?}");
        let mut greens = (0..256).map(|index| tissue.colour(2048.0 + index as f32, 2048.0)[1]);
        assert!(greens.any(|green| green < 200));
    }

    #[test]
    fn bands_come_in_order() {
        let tissue = Tissue::new(1, Extent { x: 16, y: 256 });
        let mut all = Vec::new();
        let take = |band: Vec<u8>| {
            all.extend(band);
            Ok(())
        };
        bands(&tissue, 16, |band| band, take).unwrap();
        assert_eq!(all, tissue.band(0, 256));
    }

    #[test]
    fn stains_dim_the_light() {
        assert_eq!(dim(0.0), 1.0);
        assert!((dim(1.0) - (-1.0f32).exp()).abs() < 0.02);
        let (x, y) = direction(0.3);
        assert!((x * x + y * y - 1.0).abs() < 1e-6);
    }
}
