//! Drafts of figures, with the probes of their points.

use crate::figure::{Bound, Claim, Figure, FigureAxis, FigureCurve, FigurePoint, Relation, Scale};
use crate::probes::BenchProbe;
use crate::probes::pattern::PatternTransport;

/// The curve of Weft as it comes, between two processes of one host.
pub const ONE_HOST: &str = "Weft on one host";

/// Curves of Weft's transports and of the kernel's TCP.
pub const WAYS: [(&str, PatternTransport); 3] = [
    ("Weft over iWARP", PatternTransport::Iwarp),
    ("Weft over Shuttle", PatternTransport::Shuttle),
    ("kernel TCP", PatternTransport::Tcp),
];

/// Scope of a run.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Quick run with few points.
    pub quick: bool,
    /// Seed of the random numbers of paths.
    pub seed: u64,
}

/// A figure that is being put together, and its probes.
pub struct FigureDraft {
    /// The figure.
    pub figure: Figure,
    /// What its points come from.
    pub probes: Vec<Box<dyn BenchProbe>>,
}

/// The words of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// [`Figure::id`].
    pub id: &'static str,
    /// [`Figure::title`].
    pub title: &'static str,
    /// [`Figure::paper`].
    pub paper: &'static str,
    /// [`Figure::shape`].
    pub shape: &'static str,
    /// [`Figure::here`].
    pub here: &'static str,
    /// [`Figure::limits`].
    pub limits: &'static str,
}

impl Scope {
    /// Of a quick look the first, the middle one and the last, else all.
    pub fn some(&self, all: &[u64]) -> Vec<u64> {
        match all {
            [first, .., last] if self.quick => vec![*first, all[all.len() / 2], *last],
            _ => all.to_vec(),
        }
    }

    /// A path in the words of `weft wan`, with the run's seed.
    pub fn path(&self, words: &str) -> String {
        format!("{words} seed={}", self.seed)
    }
}

impl FigureDraft {
    /// A figure without curves.
    pub fn new(words: Words, x: (&str, Scale), y: (&str, Scale)) -> Self {
        let axis = |(label, scale): (&str, Scale)| FigureAxis { label: label.to_owned(), scale };
        let figure = Figure {
            id: words.id.to_owned(),
            title: words.title.to_owned(),
            paper: words.paper.to_owned(),
            shape: words.shape.to_owned(),
            here: words.here.to_owned(),
            limits: words.limits.to_owned(),
            x: axis(x),
            y: axis(y),
            ..Figure::default()
        };
        Self { figure, probes: Vec::new() }
    }

    /// A point whose height is the main series of a probe.
    pub fn point(&mut self, curve: &str, x: u64, probe: impl BenchProbe + 'static) {
        let series = probe.main_series();
        self.measure(probe);
        self.place(curve, x, "", series);
    }

    /// A curve for each of [`WAYS`], with a point at each place.
    pub fn plot<P: BenchProbe + 'static>(
        &mut self,
        places: &[u64],
        probe: impl Fn(PatternTransport, u64) -> P,
    ) {
        for place in places {
            for (curve, way) in WAYS {
                self.point(curve, *place, probe(way, *place));
            }
        }
    }

    /// A probe whose series are placed by themselves.
    pub fn measure(&mut self, probe: impl BenchProbe + 'static) {
        self.probes.push(Box::new(probe));
    }

    /// A point whose height is a series of some probe.
    pub fn place(&mut self, curve: &str, x: u64, place: &str, series: String) {
        let (place, relation) = (place.to_owned(), Relation::Alone);
        let point = FigurePoint { x: x as f64, place, series, relation };
        match self.figure.curves.iter_mut().find(|known| known.name == curve) {
            Some(known) => known.points.push(point),
            None => {
                self.figure
                    .curves
                    .push(FigureCurve { name: curve.to_owned(), points: vec![point] });
            }
        }
    }

    /// What the height of a curve's last point is of its series.
    pub fn relate(&mut self, curve: &str, relation: Relation) {
        let known = self.figure.curves.iter_mut().find(|known| known.name == curve);
        if let Some(last) = known.and_then(|known| known.points.last_mut()) {
            last.relation = relation;
        }
    }

    /// A claim about two series.
    pub fn claim_series(
        &mut self,
        text: &str,
        (over, under): (String, String),
        bound: Bound,
        otherwise: &str,
    ) {
        let (text, otherwise) = (text.to_owned(), otherwise.to_owned());
        self.figure.claims.push(Claim { text, over, under, bound, otherwise });
    }

    /// A claim about two points, each of a curve and a place; it is left out where one of them is
    /// not measured.
    pub fn claim(
        &mut self,
        text: &str,
        (over, under): ((&str, u64), (&str, u64)),
        bound: Bound,
        otherwise: &str,
    ) {
        let series =
            |(curve, x): (&str, u64)| Some(self.figure.curve(curve)?.at(x as f64)?.series.clone());
        if let (Some(over), Some(under)) = (series(over), series(under)) {
            self.claim_series(text, (over, under), bound, otherwise);
        }
    }
}
