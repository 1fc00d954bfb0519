//! Chance for pictures: the same for a seed on every machine, because it takes nothing but
//! additions, products and square roots.

/// Where chance comes from.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    seed: u32,
}

/// The nearest of a set of points that are scattered, one in each square of a grid of 1 by 1.
#[derive(Clone, Copy, Debug)]
pub struct NearestPoint {
    /// From the point.
    pub x: f32,
    /// From the point.
    pub y: f32,
    /// The distance of the point.
    pub near: f32,
    /// The distance of the second nearest.
    pub next: f32,
    /// The point's own chance.
    pub chance: Noise,
}

impl Noise {
    /// Chance from a seed.
    pub fn new(seed: u32) -> Self {
        Self { seed: mix(seed ^ 0x9e37_79b9) }
    }

    /// Other chance from the same seed.
    pub fn other(self, which: u32) -> Self {
        Self::new(self.seed ^ mix(which))
    }

    /// From 0 to 1, for a whole number.
    pub fn pick(self, which: u32) -> f32 {
        unit(mix(self.seed ^ mix(which)))
    }

    fn at(self, x: i32, y: i32, z: i32) -> u32 {
        let x = mix(self.seed ^ x as u32);
        mix(mix(x ^ y as u32) ^ z as u32)
    }

    /// Smooth, from 0 to 1, with hills about 1 apart.
    pub fn plane(self, x: f32, y: f32) -> f32 {
        let (column, row) = (x.floor(), y.floor());
        let (i, j) = (column as i32, row as i32);
        let corner = |dx, dy| unit(self.at(i + dx, j + dy, 0));
        let (u, v) = (fade(x - column), fade(y - row));
        mid(mid(corner(0, 0), corner(1, 0), u), mid(corner(0, 1), corner(1, 1), u), v)
    }

    /// The same in space.
    pub fn space(self, [x, y, z]: [f32; 3]) -> f32 {
        let floor = [x.floor(), y.floor(), z.floor()];
        let [i, j, k] = floor.map(|value| value as i32);
        let corner = |dx, dy, dz| unit(self.at(i + dx, j + dy, k + dz));
        let (u, v) = (fade(x - floor[0]), fade(y - floor[1]));
        let layer = |dz| {
            let row = |dy| mid(corner(0, dy, dz), corner(1, dy, dz), u);
            mid(row(0), row(1), v)
        };
        mid(layer(0), layer(1), fade(z - floor[2]))
    }

    /// Hills with smaller ones on them, `octaves` times; from 0 to 1.
    pub fn rough(self, x: f32, y: f32, octaves: u32) -> f32 {
        let (mut sum, mut all, mut weight, mut scale) = (0.0, 0.0, 1.0, 1.0);
        for octave in 0..octaves {
            sum += weight * self.other(octave).plane(x * scale, y * scale);
            all += weight;
            (weight, scale) = (weight * 0.5, scale * 2.0);
        }
        sum / all
    }

    /// The cell that a place is in.
    pub fn cell(self, x: f32, y: f32) -> NearestPoint {
        let (column, row) = (x.floor(), y.floor());
        let mut found = NearestPoint { x: 0.0, y: 0.0, near: 9.0, next: 9.0, chance: self };
        for step in 0..9 {
            let (dx, dy) = (step % 3 - 1, step / 3 - 1);
            let hash = self.at(column as i32 + dx, row as i32 + dy, 1);
            let px = column + dx as f32 + 0.1 + 0.8 * unit(hash);
            let py = row + dy as f32 + 0.1 + 0.8 * unit(mix(hash));
            let distance = ((x - px) * (x - px) + (y - py) * (y - py)).sqrt();
            if distance < found.near {
                let chance = Self { seed: hash };
                found =
                    NearestPoint { x: x - px, y: y - py, near: distance, next: found.near, chance };
            } else if distance < found.next {
                found.next = distance;
            }
        }
        found
    }
}

/// From 0 below `low` to 1 above `high`, smoothly; the other way round if `high` is less.
pub fn step(low: f32, high: f32, value: f32) -> f32 {
    let t = ((value - low) / (high - low)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// Between `a` and `b`, `t` of the way.
pub fn mid(a: f32, b: f32, t: f32) -> f32 {
    a + (b - a) * t
}

fn fade(t: f32) -> f32 {
    t * t * t * (t * (t * 6.0 - 15.0) + 10.0)
}

fn unit(hash: u32) -> f32 {
    (hash >> 8) as f32 / (1 << 24) as f32
}

/// Turns bits into others that show nothing of them.
fn mix(mut bits: u32) -> u32 {
    bits = (bits ^ (bits >> 16)).wrapping_mul(0x21f0_aaad);
    bits = (bits ^ (bits >> 15)).wrapping_mul(0x735a_2d97);
    bits ^ (bits >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_smooth_and_in_bounds() {
        let noise = Noise::new(1);
        let mut before = noise.plane(-3.0, 0.7);
        for index in 0..6000 {
            let x = index as f32 / 1000.0 - 3.0;
            let here = noise.plane(x, 0.7);
            assert!((0.0..=1.0).contains(&here) && (here - before).abs() < 0.01, "{x}");
            assert!((0.0..=1.0).contains(&noise.space([x, -x, 0.3])));
            before = here;
        }
    }

    #[test]
    fn cells_are_around_their_points() {
        let noise = Noise::new(2);
        for index in 0..1000 {
            let (x, y) = (noise.pick(index) * 8.0 - 4.0, noise.other(1).pick(index) * 8.0);
            let cell = noise.cell(x, y);
            assert!(cell.near <= cell.next && cell.near < 1.5, "{x} {y}");
            let centre = noise.cell(x - cell.x, y - cell.y);
            assert!(centre.near < 1e-3, "{x} {y}");
            assert_eq!(centre.chance.seed, cell.chance.seed, "{x} {y}");
        }
    }

    #[test]
    fn another_seed_is_another_picture() {
        assert_ne!(Noise::new(1).plane(0.5, 0.5), Noise::new(2).plane(0.5, 0.5));
        assert_eq!(Noise::new(1).rough(0.5, 0.5, 3), Noise::new(1).rough(0.5, 0.5, 3));
    }
}
