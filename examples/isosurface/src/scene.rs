//! What a query asks for: a surface in a volume, seen from somewhere.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use weft_filters::{Extent, Picture};

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scene {
    /// Voxels along a side of the volume.
    pub side: u32,
    /// The surface is where voxels have this value.
    pub level: u8,
    /// How far the volume is turned to the left, in degrees.
    pub turn: f32,
    /// How far it is tilted to the viewer, in degrees.
    pub tilt: f32,
    /// Width and height of the picture.
    pub size: Extent,
}

/// A place or a direction.
pub type Vector = [f32; 3];

/// The rays that make one pixel of the picture, along each side.
pub const FINE: u32 = 2;
/// How far away the eye is, in sides of the volume.
const AWAY: f32 = 2.6;
/// The part of the picture that a volume's side fills.
const FILL: f32 = 0.98;

/// How places of the volume come to be places of the picture.
#[derive(Clone, Copy, Debug)]
pub struct Projection {
    /// Where the volume's axes point: right, down, to the viewer.
    rows: [Vector; 3],
    side: f32,
    middle: [f32; 2],
    scale: f32,
}

impl Scene {
    /// Reads a query.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn parse(query: &[u8]) -> Result<Self> {
        let scene: Self = serde_json::from_slice(query)?;
        let right = scene.turn.is_finite() && scene.tilt.is_finite() && scene.side <= 1 << 12;
        ensure!(right, "a scene that is none: {scene:?}");
        Picture::new(scene.fine())?;
        Ok(scene)
    }

    /// Width and height of the picture in rays.
    pub fn fine(&self) -> Extent {
        let times = |side: u32| side.saturating_mul(FINE);
        Extent { x: times(self.size.x), y: times(self.size.y) }
    }

    /// How the picture is taken.
    pub fn camera(&self) -> Projection {
        let (sin, cos) = self.turn.to_radians().sin_cos();
        let (sin_tilt, cos_tilt) = self.tilt.to_radians().sin_cos();
        let fine = self.fine();
        Projection {
            rows: [
                [cos, 0.0, -sin],
                [sin * sin_tilt, cos_tilt, cos * sin_tilt],
                [sin * cos_tilt, -sin_tilt, cos * cos_tilt],
            ],
            side: self.side as f32,
            middle: [fine.x as f32 / 2.0, fine.y as f32 / 2.0],
            scale: FILL * fine.x.min(fine.y) as f32,
        }
    }
}

impl Projection {
    /// A direction as the viewer sees it.
    pub fn direction(&self, v: Vector) -> Vector {
        self.rows.map(|row| dot(row, v))
    }

    /// Where a place of the volume is in the picture, in rays from the left and from the top, and
    /// how far away it is: 0 is in front, 1 behind the volume.
    pub fn place(&self, v: Vector) -> Vector {
        let [x, y, z] = self.direction(v.map(|part| part / self.side - 0.5));
        let near = AWAY / (AWAY - z);
        let [left, top] = self.middle;
        [left + x * near * self.scale, top + y * near * self.scale, 0.5 - z * 0.5]
    }
}

/// The product of two vectors.
pub fn dot(a: Vector, b: Vector) -> f32 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// The vector, 1 long; as it is if it has no length.
pub fn unit(v: Vector) -> Vector {
    let length = dot(v, v).sqrt();
    if length > 0.0 { v.map(|part| part / length) } else { v }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENE: Scene =
        Scene { side: 64, level: 128, turn: 30.0, tilt: 20.0, size: Extent { x: 100, y: 50 } };

    #[test]
    fn the_middle_stays_and_lengths_do() {
        let camera = SCENE.camera();
        assert_eq!(camera.place([32.0; 3]), [100.0, 50.0, 0.5]);
        let turned = camera.direction([1.0, 2.0, 3.0]);
        assert!((dot(turned, turned) - 14.0).abs() < 1e-4);
        assert_eq!(unit([0.0, 3.0, 4.0]), [0.0, 0.6, 0.8]);
        assert_eq!(unit([0.0; 3]), [0.0; 3]);
    }

    #[test]
    fn what_is_near_is_large_and_in_front() {
        let camera = Scene { turn: 0.0, tilt: 0.0, ..SCENE }.camera();
        let [near, far] = [64.0, 0.0].map(|z| camera.place([64.0, 32.0, z]));
        assert!(near[0] > far[0] && near[2] < far[2], "{near:?} {far:?}");
    }

    #[test]
    fn strange_queries_are_refused() {
        let parse = |scene: Scene| Scene::parse(&serde_json::to_vec(&scene).unwrap());
        assert_eq!(parse(SCENE).unwrap(), SCENE);
        assert!(parse(Scene { size: Extent { x: 0, y: 1 }, ..SCENE }).is_err());
        assert!(parse(Scene { size: Extent { x: u32::MAX, y: 1 }, ..SCENE }).is_err());
        assert!(Scene::parse(b"{}").is_err());
    }
}
