//! The last two filters: raster shades triangles and gives the rays that meet them, merge keeps
//! what is in front and makes the picture.
//!
//! A span is a record: left and top, two bytes each, then for each ray in turn the distance in
//! four bytes, and red, green and blue. Invariant: what is in front is decided by distance and
//! then by colour, so the order in which spans come changes nothing.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use weft_filters::noise::{mid, step};
use weft_filters::{Filter, Outlet, Picture};

use crate::scene::{FINE, Projection, Scene, Vector, dot, unit};

/// Bytes of a triangle.
const TRIANGLE: usize = 72;
const RAY: usize = 7;
const SPAN_PLACE: usize = 4;
/// Rays of a span, at most: one fits into any unit.
const SPAN: usize = 128;
/// Where the light comes from: the left, above, the front; and a weaker one from the right.
const LIGHT: Vector = [-0.48, -0.62, 0.62];
const FILL_LIGHT: Vector = [0.75, 0.25, 0.61];
/// The colours of the layers, from the top down.
const LAYERS: [Vector; 5] = [
    [0.93, 0.80, 0.58],
    [0.86, 0.55, 0.33],
    [0.66, 0.33, 0.30],
    [0.36, 0.35, 0.47],
    [0.18, 0.42, 0.50],
];
const NOTHING: Ray = (u32::MAX, [0; 3]);

/// How far away something is, and its colour.
type Ray = (u32, [u8; 3]);

/// A corner of a triangle: its place in the picture, where it points, its height in the volume.
#[derive(Clone, Copy, Debug)]
struct Corner {
    place: Vector,
    out: Vector,
    height: f32,
}

/// Shades triangles.
#[derive(Default)]
pub struct Raster(Option<(Scene, Projection)>);

impl Filter for Raster {
    fn begin(&mut self, query: &[u8], _out: &mut Outlet<'_>) -> Result<()> {
        let scene = Scene::parse(query)?;
        self.0 = Some((scene, scene.camera()));
        Ok(())
    }

    fn take(&mut self, record: &[u8], out: &mut Outlet<'_>) -> Result<()> {
        let (scene, camera) = self.0.as_ref().context("a triangle before a query")?;
        ensure!(record.len() == TRIANGLE, "a triangle of {} bytes", record.len());
        let (words, _) = record.as_chunks();
        let numbers: Vec<f32> = words.iter().map(|word| f32::from_be_bytes(*word)).collect();
        ensure!(numbers.iter().all(|number| number.is_finite()), "a triangle without a place");
        let corner = |at: usize| corner(scene, camera, &numbers[6 * at..]);
        spans(scene, [corner(0), corner(1), corner(2)], out)
    }
}

fn corner(scene: &Scene, camera: &Projection, numbers: &[f32]) -> Corner {
    let [place, out] = [0, 3].map(|at| [numbers[at], numbers[at + 1], numbers[at + 2]]);
    Corner {
        place: camera.place(place),
        out: camera.direction(out),
        height: place[1] / scene.side as f32,
    }
}

/// Gives the rays that meet a triangle, row by row.
fn spans(scene: &Scene, corners: [Corner; 3], out: &mut Outlet<'_>) -> Result<()> {
    let [a, b, c] = corners.map(|corner| corner.place);
    let twice = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
    if twice == 0.0 {
        return Ok(());
    }
    let fine = scene.fine();
    let range = |axis: usize, most: u32| {
        let least = a[axis].min(b[axis]).min(c[axis]).floor().clamp(0.0, most as f32);
        let end = a[axis].max(b[axis]).max(c[axis]).ceil().clamp(0.0, most as f32);
        least as u32..end as u32
    };
    for y in range(1, fine.y) {
        let mut span = Vec::new();
        for x in range(0, fine.x) {
            let (px, py) = (x as f32 + 0.5, y as f32 + 0.5);
            let side = |p: Vector, q: Vector| {
                ((q[0] - p[0]) * (py - p[1]) - (q[1] - p[1]) * (px - p[0])) / twice
            };
            let shares = [side(b, c), side(c, a), side(a, b)];
            if shares.iter().any(|share| *share < 0.0) {
                put_span(&mut span, out)?;
                continue;
            }
            if span.is_empty() {
                span.extend([(x as u16).to_be_bytes(), (y as u16).to_be_bytes()].concat());
            }
            let (distance, colour) = ray(&corners, shares);
            span.extend(distance.to_be_bytes().iter().chain(&colour));
            if span.len() == SPAN_PLACE + SPAN * RAY {
                put_span(&mut span, out)?;
            }
        }
        put_span(&mut span, out)?;
    }
    Ok(())
}

fn put_span(span: &mut Vec<u8>, out: &mut Outlet<'_>) -> Result<()> {
    if !span.is_empty() {
        out.put(span)?;
        span.clear();
    }
    Ok(())
}

/// What a ray meets that has these shares of the corners.
fn ray(corners: &[Corner; 3], shares: Vector) -> Ray {
    let blend = |part: &dyn Fn(&Corner) -> f32| {
        corners.iter().zip(shares).map(|(corner, share)| part(corner) * share).sum::<f32>()
    };
    let out = unit([0, 1, 2].map(|axis| blend(&|corner| corner.out[axis])));
    // The inside of a surface that is cut open is seen from behind.
    let out = if out[2] < 0.0 { out.map(|part| -part) } else { out };
    let distance = blend(&|corner| corner.place[2]).clamp(0.0, 1.0);
    let colour = shade(out, blend(&|corner| corner.height));
    ((distance * 16_777_215.0) as u32, colour.map(|part| (part.clamp(0.0, 1.0) * 255.0) as u8))
}

fn shade(out: Vector, height: f32) -> Vector {
    let base = layer(height);
    let bright = dot(out, unit(LIGHT)).max(0.0);
    let fill = dot(out, unit(FILL_LIGHT)).max(0.0);
    let half = unit([LIGHT[0], LIGHT[1], LIGHT[2] + 0.999]);
    let gloss = dot(out, half).max(0.0);
    let gloss = gloss * gloss;
    let gloss = gloss * gloss;
    let gloss = 0.28 * gloss * gloss * gloss * gloss;
    // What looks sideways catches light from behind.
    let rim = 0.16 * step(0.5, 0.0, out[2]);
    [0, 1, 2].map(|c| base[c] * (0.2 + 0.75 * bright + 0.22 * fill) + gloss + rim)
}

fn layer(height: f32) -> Vector {
    let at = height.clamp(0.0, 1.0) * (LAYERS.len() - 1) as f32;
    let index = (at as usize).min(LAYERS.len() - 2);
    let t = step(0.0, 1.0, at - index as f32);
    [0, 1, 2].map(|c| mid(LAYERS[index][c], LAYERS[index + 1][c], t))
}

/// Keeps what is in front, and makes the picture.
pub struct Merge {
    out: PathBuf,
    scene: Option<Scene>,
    rays: Vec<Ray>,
    picture: Option<Picture>,
}

impl Merge {
    /// Writes the picture to `out`.
    pub fn new(out: PathBuf) -> Self {
        Self { out, scene: None, rays: Vec::new(), picture: None }
    }
}

impl Filter for Merge {
    fn begin(&mut self, query: &[u8], _out: &mut Outlet<'_>) -> Result<()> {
        let scene = Scene::parse(query)?;
        let fine = scene.fine();
        self.rays = vec![NOTHING; fine.x as usize * fine.y as usize];
        self.scene = Some(scene);
        Ok(())
    }

    fn take(&mut self, record: &[u8], _out: &mut Outlet<'_>) -> Result<()> {
        let fine = self.scene.context("a span before a query")?.fine();
        let (place, span) = record.split_at_checked(SPAN_PLACE).context("a span without place")?;
        let word = |at: usize| usize::from(u16::from_be_bytes([place[at], place[at + 1]]));
        let (x, y, count) = (word(0), word(2), span.len() / RAY);
        let inside = x + count <= fine.x as usize && y < fine.y as usize;
        ensure!(inside && count * RAY == span.len(), "{count} rays at {x},{y}");
        let rays = &mut self.rays[y * fine.x as usize + x..][..count];
        for (ray, bytes) in rays.iter_mut().zip(span.chunks_exact(RAY)) {
            let [a, b, c, d, red, green, blue] = std::array::from_fn(|at| bytes[at]);
            *ray = (*ray).min((u32::from_be_bytes([a, b, c, d]), [red, green, blue]));
        }
        Ok(())
    }

    fn end(&mut self, _out: &mut Outlet<'_>) -> Result<()> {
        let scene = self.scene.context("no query was asked")?;
        let rays = std::mem::take(&mut self.rays);
        let picture = develop(&scene, &rays)?;
        let before = self.picture.replace(picture);
        let same = before.is_none() || before == self.picture;
        ensure!(same, "the answer differs from the one before");
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let Some(picture) = &self.picture else { bail!("no query was asked") };
        picture.write(&self.out)
    }
}

/// The picture of the rays: each pixel is the average of its own.
fn develop(scene: &Scene, rays: &[Ray]) -> Result<Picture> {
    let mut picture = Picture::new(scene.size)?;
    let width = scene.fine().x as usize;
    for (y, x) in (0..scene.size.y).flat_map(|y| (0..scene.size.x).map(move |x| (y, x))) {
        let mut sum = [0.0; 3];
        for (dy, dx) in (0..FINE).flat_map(|dy| (0..FINE).map(move |dx| (dy, dx))) {
            let at = ((y * FINE + dy) as usize) * width + (x * FINE + dx) as usize;
            let colour = seen(scene, rays, at);
            sum.iter_mut().zip(colour).for_each(|(sum, part)| *sum += part);
        }
        let pixel = picture.row_mut(x as usize, y as usize, 1)?;
        let parts = pixel.iter_mut().zip(sum);
        parts.for_each(|(byte, part)| *byte = (part / (FINE * FINE) as f32) as u8);
    }
    Ok(picture)
}

/// The colour that is seen along a ray: darker where what is around it is nearer.
fn seen(scene: &Scene, rays: &[Ray], at: usize) -> Vector {
    let fine = scene.fine();
    let (width, height) = (fine.x as usize, fine.y as usize);
    let (distance, colour) = rays[at];
    let (x, y) = (at % width, at / width);
    if distance == NOTHING.0 {
        let t = y as f32 / height as f32;
        return [mid(232.0, 188.0, t), mid(236.0, 197.0, t), mid(241.0, 207.0, t)];
    }
    let reach = (width.min(height) / 90).max(1);
    let shadow: f32 = [1, 2]
        .iter()
        .map(|times| {
            let far = reach * times;
            let around = [
                (x.saturating_sub(far), y),
                (x + far, y),
                (x, y.saturating_sub(far)),
                (x, y + far),
                (x.saturating_sub(far), y.saturating_sub(far)),
                (x + far, y + far),
            ];
            let inside = around.iter().filter(|(x, y)| *x < width && *y < height);
            let nearer = |(x, y): &(usize, usize)| {
                let gap = (distance as f32 - rays[y * width + x].0 as f32) / 16_777_215.0;
                step(0.002, 0.06, gap)
            };
            inside.map(nearer).sum::<f32>()
        })
        .sum();
    // What is far behind is paler, as in haze.
    let haze = step(0.25, 0.95, distance as f32 / 16_777_215.0) * 0.3;
    let light = 1.0 - 0.06 * shadow;
    colour.map(|part| mid(f32::from(part) * light, 205.0, haze))
}

#[cfg(test)]
mod tests {
    use weft_filters::{Extent, through};

    use super::*;

    const SCENE: Scene =
        Scene { side: 16, level: 128, turn: 0.0, tilt: 0.0, size: Extent { x: 8, y: 8 } };

    fn query() -> Vec<u8> {
        serde_json::to_vec(&SCENE).unwrap()
    }

    /// A triangle at a depth, that faces the viewer.
    fn triangle(z: f32, size: f32) -> Vec<u8> {
        let corner = |x: f32, y: f32| [x, y, z, 0.0, 0.0, 1.0];
        let corners = [corner(8.0, 8.0), corner(8.0 + size, 8.0), corner(8.0, 8.0 + size)];
        corners.as_flattened().iter().flat_map(|part| part.to_be_bytes()).collect()
    }

    fn merged(spans: &[Vec<u8>]) -> Picture {
        let mut merge = Merge::new(PathBuf::new());
        through(&mut merge, &query(), spans).unwrap();
        merge.picture.unwrap()
    }

    #[test]
    fn a_triangle_is_met_by_the_rays_in_it() {
        let spans = through(&mut Raster::default(), &query(), &[triangle(8.0, 8.0)]).unwrap();
        let rays: usize = spans.iter().map(|span| (span.len() - SPAN_PLACE) / RAY).sum();
        // Half of a square of 7.84 rays a side.
        assert!((26..=36).contains(&rays), "{rays}");
        assert_eq!(spans[0][..4], [0, 8, 0, 8], "it begins in the middle");
        let flat = [triangle(8.0, 0.0), triangle(8.0, 1e30)];
        assert!(through(&mut Raster::default(), &query(), &flat[..1]).unwrap().is_empty());
        assert!(through(&mut Raster::default(), &query(), &flat[1..]).is_ok());
    }

    #[test]
    fn the_order_of_spans_changes_nothing() {
        let triangles = [triangle(12.0, 4.0), triangle(4.0, 8.0), triangle(12.0, 4.0)];
        let mut spans = through(&mut Raster::default(), &query(), &triangles).unwrap();
        let forward = merged(&spans);
        spans.reverse();
        assert_eq!(merged(&spans), forward);
        assert_ne!(merged(&[]), forward);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let raster = |record: Vec<u8>| through(&mut Raster::default(), &query(), &[record]);
        assert!(raster(vec![0; 71]).is_err());
        assert!(raster(f32::NAN.to_be_bytes().repeat(18)).is_err());
        let merge = |span: &[u8]| {
            through(&mut Merge::new(PathBuf::new()), &query(), &[span.to_vec()]).is_ok()
        };
        assert!(merge(&[0, 15, 0, 15, 0, 0, 0, 0, 0, 0, 0]));
        for span in [&[0, 1][..], &[0, 15, 0, 15, 0], &[0, 16, 0, 15, 0, 0, 0, 0, 0, 0, 0]] {
            assert!(!merge(span), "{span:?}");
        }
    }

    #[test]
    fn what_faces_the_light_is_brighter() {
        let sum = |out| shade(out, 0.5).iter().sum::<f32>();
        assert!(sum(unit(LIGHT)) > sum([0.0, 0.0, 1.0]));
        assert!(sum([0.0, 0.0, 1.0]) > sum(unit([0.4, 0.9, 0.1])));
        assert_eq!((layer(-1.0), layer(2.0)), (LAYERS[0], LAYERS[4]));
    }
}
