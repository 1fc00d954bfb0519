//! Marching cubes (Lorensen and Cline, SIGGRAPH 1987), with a table that is made and not typed in.
//!
//! A corner of a cube is inside or outside; on each of its six faces, lines part the corners inside
//! from those outside. What a face shows depends on its four corners only, so neighbouring cubes
//! agree, and where two corners inside face each other across a face they stay apart. Seen from
//! outside the cube each line has the inside on the same hand; so lines join to closed polygons,
//! which are cut into triangles.
//!
//! Invariant: the surface of any volume is closed, but for the volume's own border.

/// Corner `i` of a cube lies at its bits: x, y, z from the lowest.
pub const CORNERS: usize = 8;
/// The corners that an edge joins.
pub const EDGES: [[usize; 2]; 12] = [
    [0, 1],
    [2, 3],
    [4, 5],
    [6, 7], // along x
    [0, 2],
    [1, 3],
    [4, 6],
    [5, 7], // along y
    [0, 4],
    [1, 5],
    [2, 6],
    [3, 7], // along z
];
/// The corners of each face in turn, seen from outside against the clock.
const FACES: [[usize; 4]; 6] =
    [[0, 4, 6, 2], [1, 3, 7, 5], [0, 1, 5, 4], [2, 6, 7, 3], [0, 2, 3, 1], [4, 5, 7, 6]];

/// For each set of corners inside, the triangles: three edges each, whose points they join.
#[derive(Debug)]
pub struct Cases(Vec<Vec<[usize; 3]>>);

impl Cases {
    /// All cases.
    pub fn new() -> Self {
        Self((0..1 << CORNERS).map(triangles).collect())
    }

    /// The triangles of a cube; bit `i` of `inside` is that of corner `i`. Seen from outside the
    /// surface, their corners go against the clock.
    pub fn triangles(&self, inside: usize) -> &[[usize; 3]] {
        &self.0[inside]
    }
}

fn triangles(inside: usize) -> Vec<[usize; 3]> {
    let mut next = [None; EDGES.len()];
    for [from, to] in FACES.iter().flat_map(|face| lines(face, inside)) {
        next[from] = Some(to);
    }
    let mut found = Vec::new();
    for first in 0..EDGES.len() {
        let polygon: Vec<usize> =
            std::iter::successors(next[first].take(), |at| next[*at].take()).collect();
        // A fan: the first point with each pair of neighbours.
        found.extend(polygon.windows(2).skip(1).map(|pair| [polygon[0], pair[0], pair[1]]));
    }
    found
}

/// The lines on a face: each begins at the edge where corners inside begin, and leads to the edge
/// where they end.
fn lines(face: &[usize; 4], inside: usize) -> Vec<[usize; 2]> {
    let is_in = |at: usize| inside & (1 << face[at % 4]) != 0;
    let edge = |at: usize| edge_of(face[at % 4], face[(at + 1) % 4]);
    let ends = (0..4).filter(|&at| is_in(at) && !is_in(at + 1));
    let line = |end: usize| {
        let run = (1..4).take_while(|back| is_in(end + 4 - back)).count();
        [edge(end + 4 - run - 1), edge(end)]
    };
    ends.map(line).collect()
}

fn edge_of(a: usize, b: usize) -> usize {
    let pair = [a.min(b), a.max(b)];
    EDGES.iter().position(|edge| *edge == pair).expect("neighbours on a face have an edge")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_edge_between_inside_and_outside_has_a_point_and_no_other() {
        let cases = Cases::new();
        for inside in 0..1 << CORNERS {
            let used: Vec<usize> = cases.triangles(inside).concat();
            for (edge, [a, b]) in EDGES.into_iter().enumerate() {
                let crossed = (inside >> a & 1) != (inside >> b & 1);
                assert_eq!(used.contains(&edge), crossed, "{inside:08b} {edge}");
            }
        }
        assert_eq!(cases.triangles(1).len(), 1);
        assert_eq!(cases.triangles(0b1111).len(), 2);
        assert_eq!(cases.triangles(0b1001_0110).len(), 4);
    }

    #[test]
    fn a_corner_is_cut_off_with_its_outside_in_front() {
        let middle = |edge: usize| {
            let [a, b] = EDGES[edge];
            [0, 1, 2].map(|axis| ((a >> axis & 1) + (b >> axis & 1)) as f32 / 2.0)
        };
        let [a, b, c] = Cases::new().triangles(1)[0].map(middle);
        let along = |p: [f32; 3], q: [f32; 3]| [0, 1, 2].map(|i| q[i] - p[i]);
        let ([ux, uy, uz], [vx, vy, vz]) = (along(a, b), along(a, c));
        let normal = [uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx];
        assert!(normal.iter().all(|part| *part > 0.0), "{normal:?}");
    }

    /// In a volume of chance whose border is outside, every side of a triangle is also one of its
    /// neighbour, the other way round.
    #[test]
    fn any_surface_is_closed() {
        const SIDE: usize = 7;
        let noise = weft_filters::noise::Noise::new(5);
        let inner = |at: [usize; 3]| at.iter().all(|x| (1..SIDE - 1).contains(x));
        let place = |[x, y, z]: [usize; 3]| (z * SIDE + y) * SIDE + x;
        let full = |at: [usize; 3]| inner(at) && noise.pick(place(at) as u32) < 0.5;
        let cases = Cases::new();
        let mut sides: BTreeMap<[[usize; 2]; 2], i32> = BTreeMap::new();
        for cell in 0..(SIDE - 1).pow(3) {
            let cell = [cell % 6, cell / 6 % 6, cell / 36];
            let corner = |i: usize| [0, 1, 2].map(|axis| cell[axis] + (i >> axis & 1));
            let inside = (0..CORNERS).filter(|i| full(corner(*i))).map(|i| 1 << i).sum();
            for triangle in cases.triangles(inside) {
                let point = |edge: usize| EDGES[edge].map(|i| place(corner(i)));
                let points = triangle.map(point);
                for (a, b) in [(0, 1), (1, 2), (2, 0)] {
                    *sides.entry([points[a], points[b]]).or_default() += 1;
                    *sides.entry([points[b], points[a]]).or_default() -= 1;
                }
            }
        }
        assert!(sides.len() > 500 && sides.values().all(|count| *count == 0));
    }
}
