//! The first two filters: read cuts the volume into bricks, extract finds the surface in each.
//!
//! A brick is a record: column, row and layer, two bytes each, and its voxels. It has [`CELLS`]
//! cells along a side and a voxel more all around, so that slopes are known at every corner.
//! A triangle is a record too: for each corner the place and the slope, six numbers of four bytes.

use anyhow::{Context, Result, bail, ensure};
use weft_filters::{Filter, Outlet, ProgressLine};

use crate::cubes::{CORNERS, Cases, EDGES};
use crate::scene::{Scene, Vector, unit};
use crate::volume::Volume;

/// Cells along the side of a brick.
const CELLS: usize = 7;
/// Voxels along the side of a brick.
const BRICK: usize = CELLS + 3;
const PLACE: usize = 6;

/// Reads a volume, brick by brick.
pub struct ReadBricks(pub Volume);

impl Filter for ReadBricks {
    fn begin(&mut self, query: &[u8], out: &mut Outlet<'_>) -> Result<()> {
        let side = self.0.side;
        ensure!(Scene::parse(query)?.side == side, "a query about another volume");
        let bricks = (side - 1).div_ceil(CELLS as u32);
        let mut progress = ProgressLine::new("isosurface");
        for layer in 0..bricks {
            progress.show(layer.into(), bricks.into());
            let slices: Vec<Vec<u8>> =
                around(layer, side).map(|z| self.0.slice(z)).collect::<Result<_>>()?;
            for (row, column) in (0..bricks).flat_map(|row| (0..bricks).map(move |c| (row, c))) {
                out.put(&brick(&slices, side, [column, row, layer]))?;
            }
        }
        Ok(())
    }

    fn take(&mut self, _record: &[u8], _out: &mut Outlet<'_>) -> Result<()> {
        bail!("there is nothing before this filter")
    }
}

/// The voxels of a brick along one axis; beyond the border, those at the border again.
fn around(brick: u32, side: u32) -> impl Iterator<Item = u32> {
    let first = brick * CELLS as u32;
    (first..first + BRICK as u32).map(move |at| at.saturating_sub(1).min(side - 1))
}

fn brick(slices: &[Vec<u8>], side: u32, place: [u32; 3]) -> Vec<u8> {
    let mut record: Vec<u8> =
        place.iter().flat_map(|number| (*number as u16).to_be_bytes()).collect();
    let columns: Vec<u32> = around(place[0], side).collect();
    for slice in slices {
        for y in around(place[1], side) {
            let row = &slice[(y * side) as usize..];
            record.extend(columns.iter().map(|x| row[*x as usize]));
        }
    }
    record
}

/// Finds the triangles of a surface.
pub struct Extract {
    cases: Cases,
    scene: Option<Scene>,
}

impl Extract {
    /// Knows all cubes.
    pub fn new() -> Self {
        Self { cases: Cases::new(), scene: None }
    }
}

impl Filter for Extract {
    fn begin(&mut self, query: &[u8], _out: &mut Outlet<'_>) -> Result<()> {
        self.scene = Some(Scene::parse(query)?);
        Ok(())
    }

    fn take(&mut self, record: &[u8], out: &mut Outlet<'_>) -> Result<()> {
        let scene = self.scene.context("a brick before a query")?;
        let brick = Brick::parse(record)?;
        for cell in 0..CELLS.pow(3) {
            let cell = [cell % CELLS, cell / CELLS % CELLS, cell / CELLS / CELLS];
            let inside = brick.inside(cell, scene.level);
            let is_there = brick.global(cell).iter().all(|at| *at + 1 < scene.side as usize);
            for triangle in self.cases.triangles(inside).iter().filter(|_| is_there) {
                let points = triangle.map(|edge| brick.point(cell, edge, scene.level));
                let numbers = points.as_flattened().iter().flat_map(|part| part.to_be_bytes());
                out.put(&numbers.collect::<Vec<u8>>())?;
            }
        }
        Ok(())
    }
}

/// A brick as it came.
struct Brick<'a> {
    place: [usize; 3],
    voxels: &'a [u8],
}

impl<'a> Brick<'a> {
    fn parse(record: &'a [u8]) -> Result<Self> {
        let (place, voxels) = record.split_at_checked(PLACE).context("a brick that is cut off")?;
        ensure!(voxels.len() == BRICK.pow(3), "a brick of {} voxels", voxels.len());
        let number = |axis: usize| u16::from_be_bytes([place[2 * axis], place[2 * axis + 1]]);
        Ok(Self { place: [0, 1, 2].map(|axis| number(axis).into()), voxels })
    }

    /// A cell's place in the volume.
    fn global(&self, cell: [usize; 3]) -> [usize; 3] {
        [0, 1, 2].map(|axis| self.place[axis] * CELLS + cell[axis])
    }

    fn voxel(&self, [x, y, z]: [usize; 3]) -> f32 {
        self.voxels[(z * BRICK + y) * BRICK + x].into()
    }

    fn inside(&self, cell: [usize; 3], level: u8) -> usize {
        let is_in = |i: &usize| self.voxel(corner(cell, *i)) >= f32::from(level);
        (0..CORNERS).filter(is_in).map(|i| 1 << i).sum()
    }

    /// Where an edge of a cell meets the surface: the place in the volume, and the direction that
    /// leads out of it there.
    fn point(&self, cell: [usize; 3], edge: usize, level: u8) -> [f32; 6] {
        let [a, b] = EDGES[edge].map(|i| corner(cell, i));
        let (from, to) = (self.voxel(a), self.voxel(b));
        let t = (f32::from(level) - from) / (to - from);
        let (down, up) = (self.slope(a), self.slope(b));
        let out = unit([0, 1, 2].map(|axis| down[axis] + (up[axis] - down[axis]) * t));
        let global = self.global([0; 3]);
        let place = [0, 1, 2].map(|axis| {
            let (a, b) = (a[axis] as f32, b[axis] as f32);
            global[axis] as f32 - 1.0 + a + (b - a) * t
        });
        [place[0], place[1], place[2], out[0], out[1], out[2]]
    }

    /// The direction in which values fall.
    fn slope(&self, at: [usize; 3]) -> Vector {
        [0, 1, 2].map(|axis| {
            let (mut before, mut after) = (at, at);
            (before[axis], after[axis]) = (at[axis] - 1, at[axis] + 1);
            self.voxel(before) - self.voxel(after)
        })
    }
}

/// The voxel, within its brick, at a corner of a cell.
fn corner(cell: [usize; 3], i: usize) -> [usize; 3] {
    [0, 1, 2].map(|axis| cell[axis] + 1 + (i >> axis & 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bricks_overlap_and_repeat_the_border() {
        let axis = |brick, side| around(brick, side).collect::<Vec<_>>();
        assert_eq!(axis(0, 64), [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(axis(1, 64), [6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(axis(1, 9), [6, 7, 8, 8, 8, 8, 8, 8, 8, 8]);
    }

    #[test]
    fn a_plane_is_found_where_it_is() {
        // Values fall by 10 with each voxel along x; 128 is between the fifth and the sixth.
        let slice: Vec<u8> =
            (0..400).map(|at| 180u8.saturating_sub(10 * (at % 20) as u8)).collect();
        let slices = vec![slice; BRICK];
        let record = brick(&slices, 20, [0, 0, 0]);
        let brick = Brick::parse(&record).unwrap();
        let cell = [5, 2, 3];
        assert_eq!(brick.inside(cell, 128), 0b0101_0101);
        let point = brick.point(cell, 0, 128);
        assert_eq!(point[3..], [1.0, 0.0, 0.0]);
        assert!((point[0] - 5.2).abs() < 1e-5, "{point:?}");
        assert_eq!(point[1..3], [2.0, 3.0]);
        assert!(Brick::parse(&record[1..]).is_err() && Brick::parse(&[]).is_err());
    }
}
