//! A figure: what a paper published, what is measured here in its place, which series make its
//! curves, and what of the published shape can be checked.
//!
//! Invariant: a figure says where its numbers are and holds none, so that the same figure is drawn
//! from half a run, a whole one, or two that are compared.

use serde::{Deserialize, Serialize};

use crate::reading::{PairedRatio, ReadingUnit, Readings, Series};

/// A figure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figure {
    /// The suite that it belongs to.
    pub suite: String,
    /// Name in files and links.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Citation of the original.
    pub paper: String,
    /// Result of the original.
    pub shape: String,
    /// Measurement here, in its place.
    pub here: String,
    /// Differences from the original, and why.
    pub limits: String,
    /// Horizontal axis.
    pub x: FigureAxis,
    /// Vertical axis.
    pub y: FigureAxis,
    /// Curves.
    pub curves: Vec<FigureCurve>,
    /// Claims that are checked.
    pub claims: Vec<Claim>,
}

/// An axis.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FigureAxis {
    /// Quantity and unit.
    pub label: String,
    /// Scale.
    pub scale: Scale,
}

/// Scale of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Linear, from zero.
    #[default]
    Linear,
    /// Logarithmic.
    Log,
    /// Categories.
    Names,
}

/// A curve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FigureCurve {
    /// Label in the legend.
    pub name: String,
    /// Points from left to right.
    pub points: Vec<FigurePoint>,
}

/// Point: its place, and the series of its height.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FigurePoint {
    /// Horizontal coordinate; the index of a category.
    pub x: f64,
    /// The place's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The series of its height.
    pub series: String,
    /// Height as a function of that series.
    #[serde(default, skip_serializing_if = "Relation::is_alone")]
    pub relation: Relation,
}

/// Height as a function of the series of a point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Relation {
    /// The series itself.
    #[default]
    Alone,
    /// Ratio to another series.
    Share(String),
    /// Deficit relative to another series, as a share of that.
    Lack(String),
}

/// Claim about the shape: a ratio of two points.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// What is claimed, as a sentence.
    pub text: String,
    /// Series of the numerator.
    pub over: String,
    /// Series of the denominator.
    pub under: String,
    /// Bound of the ratio.
    pub bound: Bound,
    /// Reason why it may not hold here.
    pub otherwise: String,
}

/// A bound of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Upper bound.
    Most(f64),
    /// Lower bound.
    Least(f64),
}

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClaimRatio {
    /// The ratio that the claim is about.
    pub paired: PairedRatio,
    /// Whether its median is within the bound.
    pub holds: bool,
    /// Minimum and maximum of the denominator.
    pub reference_range: (f64, f64),
    /// Unit of the denominator.
    pub reference_unit: ReadingUnit,
    /// As [`Series::speed_change`] of the denominator.
    pub speed_change: Option<f64>,
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::Most(most) => value <= most,
            Self::Least(least) => value >= least,
        }
    }

    /// As words.
    pub fn words(self) -> String {
        match self {
            Self::Most(most) => format!("at most {most}"),
            Self::Least(least) => format!("at least {least}"),
        }
    }
}

impl Claim {
    /// What came of it; nothing where no round has both numbers.
    pub fn ratio(&self, readings: &Readings) -> Option<ClaimRatio> {
        let (over, under) = (readings.get(&self.over)?, readings.get(&self.under)?);
        let paired = over.ratio_to(under)?;
        Some(ClaimRatio {
            paired,
            holds: self.bound.holds(paired.median),
            reference_range: under.range(),
            reference_unit: under.unit,
            speed_change: under.speed_change(),
        })
    }
}

impl Relation {
    fn is_alone(&self) -> bool {
        *self == Self::Alone
    }
}

impl FigurePoint {
    /// Its heights, round by round; nothing where nothing has been measured.
    pub fn heights(&self, readings: &Readings) -> Option<Series> {
        let series = readings.get(&self.series)?;
        let (Relation::Share(other) | Relation::Lack(other)) = &self.relation else {
            return Some(series.clone());
        };
        let (other, lacks) = (readings.get(other)?, matches!(self.relation, Relation::Lack(_)));
        let height = |(round, value): &(usize, f64)| {
            let share = value / other.of_round(*round)?;
            Some((*round, if lacks { 1.0 - share } else { share }))
        };
        let values: Vec<(usize, f64)> = series.values.iter().filter_map(height).collect();
        (!values.is_empty()).then_some(Series { unit: ReadingUnit::Ratio, values })
    }
}

impl FigureCurve {
    /// The point at `x`.
    pub fn at(&self, x: f64) -> Option<&FigurePoint> {
        self.points.iter().find(|point| point.x == x)
    }
}

impl Figure {
    /// The curve of that name.
    pub fn curve(&self, name: &str) -> Option<&FigureCurve> {
        self.curves.iter().find(|curve| curve.name == name)
    }

    /// Every place across, from left to right, with the point that shows its name.
    pub fn places(&self) -> Vec<&FigurePoint> {
        let mut places: Vec<&FigurePoint> = self.curves.iter().flat_map(|c| &c.points).collect();
        places.sort_by(|a, b| a.x.total_cmp(&b.x));
        places.dedup_by(|a, b| a.x == b.x);
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{ProbeReading, record};

    #[test]
    fn ratios_are_of_pairs() {
        let mut readings = Readings::new();
        for (round, over, under) in [(0, 1.0, 2.0), (1, 30.0, 10.0), (2, 4.0, 4.0)] {
            let of = |name: &str, value| ProbeReading::new(name, ReadingUnit::Microseconds, value);
            record(&mut readings, round, vec![of("over", over), of("under", under)]);
        }
        record(&mut readings, 3, vec![ProbeReading::new("over", ReadingUnit::Microseconds, 900.0)]);
        let claim = |bound| Claim {
            text: String::new(),
            over: "over".into(),
            under: "under".into(),
            bound,
            otherwise: String::new(),
        };
        let ratio = claim(Bound::Most(1.0)).ratio(&readings).unwrap();
        assert_eq!(ratio.paired, PairedRatio { median: 1.0, range: (0.5, 3.0) });
        assert!(ratio.holds && ratio.reference_range == (2.0, 10.0));
        assert_eq!(ratio.speed_change, Some(5.0));
        assert!(!claim(Bound::Least(1.1)).ratio(&readings).unwrap().holds);
        let height = |relation| {
            let point =
                FigurePoint { x: 0.0, place: String::new(), series: "over".into(), relation };
            point.heights(&readings).map(|series| series.median())
        };
        assert_eq!(height(Relation::Share("under".into())), Some(1.0));
        assert_eq!(height(Relation::Lack("under".into())), Some(0.0));
        assert_eq!(height(Relation::Lack("nobody".into())), None);
        let missing = Claim { under: "nobody".into(), ..claim(Bound::Most(1.0)) };
        assert!(missing.ratio(&readings).is_none());
    }
}
