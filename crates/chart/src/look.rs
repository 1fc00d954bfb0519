//! Looks of series: a name has one colour, one mark and one dash in every picture.

use std::fmt::Write;

use crate::Svg;
use crate::picture::FONT;

/// Colours on white and on black. Each has a contrast of 4.5 to 1 or more with its paper.
const COLOURS: [(&str, &str); 9] = [
    ("#0060a0", "#6cbcf0"),
    ("#c04a00", "#f5a04a"),
    ("#00795a", "#46d3a8"),
    ("#9a3f78", "#eaa0ce"),
    ("#6b5b00", "#d9c84a"),
    ("#555555", "#bbbbbb"),
    ("#6a3fb5", "#b9a0fa"),
    ("#b3202c", "#ff9090"),
    ("#00707f", "#62d2e2"),
];
const DASHES: [&str; 4] = ["", "7 4", "2 4", "9 3 2 3"];
/// Outlines around the place of a mark.
const MARKS: [&str; 6] = [
    "m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0",
    "m-4 -4h8v8h-8z",
    "m0 -5.5l5 9h-10z",
    "m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
    "m0 5.5l5 -9h-10z",
    "m-1.5 -5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
];

/// What carries the data: a word of the series' name, its colour and its mark. The first word that
/// occurs decides.
const CARRIERS: [(&str, usize, usize); 31] = [
    ("libfabric", 4, 3),
    ("UCX", 5, 4),
    ("QUIC", 7, 5),
    ("BBR", 6, 4),
    ("bbr", 6, 4),
    ("CUBIC", 2, 2),
    ("cubic", 2, 2),
    ("TCP", 2, 2),
    ("on one host", 3, 3),
    ("iWARP", 0, 0),
    ("Shuttle", 1, 1),
    ("weave", 1, 1),
    ("hybrid", 0, 0),
    ("inline", 6, 4),
    ("engine", 7, 5),
    ("locking", 5, 4),
    ("reno", 8, 2),
    ("fixed", 4, 3),
    ("own", 1, 1),
    ("other", 3, 5),
    ("cross", 3, 5),
    ("victim", 2, 2),
    ("cold", 0, 0),
    ("resumed", 1, 1),
    // Of a trace: of each pair one has the look of the first carrier, one that of the second.
    ("sent", 0, 0),
    ("received", 1, 1),
    ("smoothed", 0, 0),
    ("least", 1, 1),
    ("window", 0, 0),
    ("in flight", 1, 1),
    ("lost", 7, 2),
];
/// Words that tell series of one carrier apart: by their dash, and by marks that are not filled.
const VARIANTS: [(&str, usize); 6] = [
    ("spinning", 1),
    ("both ways", 1),
    ("enhanced", 1),
    ("by Write", 1),
    ("by Read", 2),
    ("per request", 2),
];

/// Look of a series in every picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesLook {
    colour: usize,
    mark: usize,
    variant: usize,
}

impl SeriesLook {
    /// The look of a name by itself.
    pub fn of(name: &str) -> Self {
        let carrier = CARRIERS.iter().find(|(word, ..)| name.contains(word));
        let (colour, mark) =
            carrier.map_or_else(|| by_hash(name), |(_, colour, mark)| (*colour, *mark));
        let variant = VARIANTS.iter().find(|(word, _)| name.contains(word));
        Self { colour, mark, variant: variant.map_or(0, |(_, variant)| *variant) }
    }

    /// The looks of the series of one picture. Where two would look alike, the later one has the
    /// next dash, or the next mark.
    pub fn of_all<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Self> {
        let mut taken: Vec<Self> = Vec::new();
        for name in names {
            let own = Self::of(name);
            let others = (0..DASHES.len() * MARKS.len()).map(|step| Self {
                variant: (own.variant + step) % DASHES.len(),
                mark: (own.mark + step / DASHES.len()) % MARKS.len(),
                ..own
            });
            let free = others.into_iter().find(|look| !taken.contains(look));
            taken.push(free.unwrap_or(own));
        }
        taken
    }

    /// A line through `points`.
    pub fn line(self, svg: &mut Svg, points: &[(f64, f64)]) {
        let (colour, dash) = (self.colour, DASHES[self.variant]);
        svg.line(points, &format!("class=\"l c{colour}\" stroke-dasharray=\"{dash}\""));
    }

    /// The mark of a point.
    pub fn mark(self, svg: &mut Svg, x: f64, y: f64) {
        let (colour, shape) = (self.colour, MARKS[self.mark]);
        let class = if self.variant == 0 { "m" } else { "m o" };
        svg.put(format_args!("<path class=\"{class} c{colour}\" d=\"M{x:.1} {y:.1}{shape}\"/>"));
    }

    /// The range of a point.
    pub fn whisker(self, svg: &mut Svg, from: (f64, f64), to: (f64, f64)) {
        svg.line(&[from, to], &format!("class=\"w c{}\"", self.colour));
    }

    /// A thin line from a curve to its label.
    pub fn leader(self, svg: &mut Svg, from: (f64, f64), to: (f64, f64)) {
        svg.line(&[from, to], &format!("class=\"k c{}\"", self.colour));
    }
}

/// The colour and the mark of a name that has no carrier. FNV-1a, so that it is always the same.
fn by_hash(name: &str) -> (usize, usize) {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, step) as usize;
    (hash % COLOURS.len(), hash / COLOURS.len() % MARKS.len())
}

/// The style of pictures, whose roots have the class `chart`, light and dark.
pub fn style() -> String {
    let mut light = format!(
        ".chart{{font:{FONT}px system-ui,sans-serif}}.chart text{{fill:#222}}.chart .p{{fill:#fff}}\
         .chart .g{{stroke:#ddd;fill:none}}.chart .l{{fill:none;stroke-width:2}}\
         .chart .w{{stroke-width:1.5}}.chart .k{{fill:none;stroke-width:.75}}\
         .chart .m{{stroke-width:1.5}}"
    );
    let mut dark =
        String::from(".chart text{fill:#e6e6e6}.chart .p{fill:#16191d}.chart .g{stroke:#3a4048}");
    for (number, (on_white, on_black)) in COLOURS.iter().enumerate() {
        for (rules, colour) in [(&mut light, on_white), (&mut dark, on_black)] {
            let class = format!(".chart .c{number}");
            // Writing to a String cannot fail.
            let _ = write!(rules, "{class}{{stroke:{colour}}}{class}.m{{fill:{colour}}}");
        }
    }
    // Rules that come later win over those of the colours.
    light += ".chart .m.o{fill:#fff}";
    dark += ".chart .m.o{fill:#16191d}";
    format!("{light}@media(prefers-color-scheme:dark){{{dark}}}")
}

/// Places of labels between `low` and `high`, in the order of `wanted`: each where it is wanted, or
/// moved until it is `gap` away from its neighbours. Where there is no room for that, the gap is
/// smaller.
pub fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let gaps = wanted.len().saturating_sub(1).max(1) as f64;
    let gap = gap.min((high - low) / gaps);
    let mut places = wanted.to_vec();
    let mut least = low;
    for index in &order {
        places[*index] = places[*index].max(least);
        least = places[*index] + gap;
    }
    let mut most = high;
    for index in order.iter().rev() {
        places[*index] = places[*index].min(most);
        most = places[*index] - gap;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_looks_the_same_whatever_stands_next_to_it() {
        let [alone] = SeriesLook::of_all(["Weft over Shuttle"])[..] else { panic!() };
        let names = ["kernel TCP", "Weft over iWARP", "Weft over Shuttle"];
        assert_eq!(SeriesLook::of_all(names)[2], alone);
        assert_eq!(SeriesLook::of("UCX over TCP").colour, SeriesLook::of("UCX").colour);
        assert_ne!(SeriesLook::of("TCP, BBR").colour, SeriesLook::of("TCP, CUBIC").colour);
    }

    #[test]
    fn no_two_series_of_a_picture_look_alike() {
        let names: Vec<String> = (1..=20).map(|number| format!("{number} weave")).collect();
        let looks = SeriesLook::of_all(names.iter().map(String::as_str));
        for (number, look) in looks.iter().enumerate() {
            assert!(!looks[..number].contains(look), "{number}: {look:?}");
            assert_eq!(look.colour, SeriesLook::of("weave").colour);
        }
    }

    #[test]
    fn labels_keep_apart_and_inside() {
        assert_eq!(spread(&[50.0, 51.0, 10.0], 15.0, 0.0, 100.0), [50.0, 65.0, 10.0]);
        assert_eq!(spread(&[99.0, 100.0], 15.0, 0.0, 100.0), [85.0, 100.0]);
        assert_eq!(spread(&[0.0, 0.0, 0.0], 60.0, 0.0, 100.0), [0.0, 50.0, 100.0]);
        assert!(spread(&[], 15.0, 0.0, 100.0).is_empty());
    }
}
