//! Figures as SVG, light or dark as its reader has it, and with marks, dashes and labels that tell
//! curves apart without colours.
//!
//! `weft sim` draws courses over time; here are points over sizes, delays and names, with the range
//! of each over the rounds. A page has each figure twice, as wide as a desk's column and as narrow
//! as a phone, since text in SVG is not scaled with the window.

use weft_chart::{
    ChartCurve, ChartPlaces, ChartPoint, DotChart, DotRow, Drawing, LineChart, PictureKind,
    SeriesLook,
};

use crate::figure::{Figure, FigureCurve, FigurePoint, Scale};
use crate::reading::{Readings, Series};

/// How wide a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureWidth {
    /// The column of a page on a desk.
    Column,
    /// A phone.
    Phone,
    /// A file by itself, which is scaled to either.
    File,
}

impl FigureWidth {
    /// Width of the picture and height of its curves, in points.
    fn size(self) -> [f64; 2] {
        match self {
            Self::Column => [704.0, 300.0],
            Self::Phone => [358.0, 240.0],
            Self::File => [560.0, 270.0],
        }
    }
}

/// The figure with what has been measured; nothing if nothing has.
pub fn draw(figure: &Figure, readings: &Readings, wide: FigureWidth) -> Option<Drawing> {
    // A curve looks the same whether the others were measured or not.
    let looks = SeriesLook::of_all(figure.curves.iter().map(|curve| curve.name.as_str()));
    let curves = figure.curves.iter().zip(looks);
    let mut curves: Vec<ChartCurve> =
        curves.map(|(curve, look)| measured(curve, look, readings)).collect();
    curves.retain(|curve| !curve.points.is_empty());
    if curves.is_empty() {
        return None;
    }
    let [width, height] = wide.size();
    let part = match figure.x.scale {
        Scale::Names => named(figure, &curves).draw(width),
        Scale::Log | Scale::Linear => LineChart::stack(&[plane(figure, curves)], [width, height]),
    };
    // A page has the title as a heading.
    let kind = match wide {
        FigureWidth::File => PictureKind::File,
        FigureWidth::Column | FigureWidth::Phone => PictureKind::Page,
    };
    Some(part.picture(&figure.title, width, kind))
}

/// The points of a curve that were measured.
fn measured(curve: &FigureCurve, look: SeriesLook, readings: &Readings) -> ChartCurve {
    let heights = |series: Series| {
        let (low, high) = series.range();
        [series.median(), low, high]
    };
    let point = |point: &FigurePoint| {
        Some(ChartPoint { x: point.x, heights: heights(point.heights(readings)?) })
    };
    let points = curve.points.iter().filter_map(point).collect();
    ChartCurve { name: curve.name.clone(), look, points }
}

/// Curves over a size or a delay.
fn plane(figure: &Figure, curves: Vec<ChartCurve>) -> LineChart {
    LineChart {
        value: figure.y.label.clone(),
        log: figure.y.scale == Scale::Log,
        across: figure.x.label.clone(),
        places: ChartPlaces::Points {
            log: figure.x.scale == Scale::Log,
            sizes: figure.x.label.contains("bytes"),
        },
        curves,
    }
}

/// Points by category.
fn named(figure: &Figure, curves: &[ChartCurve]) -> DotChart {
    let row = |curve: &ChartCurve, x: f64| {
        let values = curve.points.iter().find(|point| point.x == x)?.heights;
        Some(DotRow { name: curve.name.clone(), look: curve.look, values })
    };
    let rows = |x: f64| curves.iter().filter_map(|curve| row(curve, x)).collect();
    let groups = figure.places().into_iter().map(|place| (place.place.clone(), rows(place.x)));
    DotChart {
        value: figure.y.label.clone(),
        log: figure.y.scale == Scale::Log,
        groups: groups.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{FigureAxis, Relation};
    use crate::reading::{ProbeReading, ReadingUnit, record};

    fn figure(scale: Scale) -> Figure {
        let point = |x: f64| FigurePoint {
            x,
            place: format!("<{x}>"),
            series: format!("s{x}"),
            relation: Relation::Alone,
        };
        let points = [1.0, 64.0, 4096.0].map(point).to_vec();
        Figure {
            id: "id".into(),
            title: "A & B".into(),
            x: FigureAxis { label: "bytes".into(), scale },
            y: FigureAxis { label: "us".into(), scale: Scale::Log },
            curves: vec![FigureCurve { name: "<curve>".into(), points }],
            ..Figure::default()
        }
    }

    fn readings() -> Readings {
        let mut readings = Readings::new();
        for (round, value) in [(0, 1.0), (1, 3.0), (2, 900.0)] {
            let taken =
                ["s1", "s64"].map(|name| ProbeReading::new(name, ReadingUnit::Microseconds, value));
            record(&mut readings, round, taken.to_vec());
        }
        readings
    }

    #[test]
    fn every_scale_is_drawn_inside_the_picture() {
        let widths = [FigureWidth::Column, FigureWidth::Phone, FigureWidth::File];
        let scales = [Scale::Linear, Scale::Log, Scale::Names];
        for (scale, wide) in scales.into_iter().flat_map(|scale| widths.map(|wide| (scale, wide))) {
            let Drawing { svg, size } = draw(&figure(scale), &readings(), wide).unwrap();
            assert!(svg.contains(&format!("viewBox=\"0 0 {} {}\"", size[0], size[1])), "{svg}");
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(svg.contains("A &amp; B") && svg.contains("&lt;curve&gt;"));
            assert_eq!(svg.matches("class=\"w c").count(), 2, "two points were measured");
        }
    }

    #[test]
    fn a_curve_has_its_name_at_its_end_or_below() {
        let drawn = |wide| draw(&figure(Scale::Log), &readings(), wide).unwrap();
        let (column, phone) = (drawn(FigureWidth::Column), drawn(FigureWidth::Phone));
        assert!(column.svg.contains("class=\"k c") && !phone.svg.contains("class=\"k c"));
        assert!(column.svg.contains("us, log scale"));
        let is_titled = |drawing: &Drawing| drawing.svg.contains(">A &amp; B</text>");
        assert!(is_titled(&drawn(FigureWidth::File)) && !is_titled(&column));
    }

    #[test]
    fn no_two_curves_of_a_figure_of_ours_look_alike() {
        let scope = crate::suites::Scope { quick: false, seed: 1 };
        for draft in crate::suites::SUITES.iter().flat_map(|suite| suite.drafts(&scope)) {
            let names = || draft.figure.curves.iter().map(|curve| curve.name.as_str());
            let own: Vec<SeriesLook> = names().map(SeriesLook::of).collect();
            assert_eq!(
                SeriesLook::of_all(names()),
                own,
                "{}: add words to look.rs",
                draft.figure.id
            );
        }
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        assert_eq!(draw(&figure(Scale::Log), &Readings::new(), FigureWidth::File), None);
    }
}
