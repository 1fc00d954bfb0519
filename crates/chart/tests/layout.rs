//! Charts of random numbers and names: every text lies inside of its picture, and none on another.
//!
//! Widths are those of `text_width`, which the test of the report in a browser holds to be upper
//! bounds.

use weft_chart::{
    ChartCurve, ChartPlaces, ChartPoint, DotChart, DotRow, Drawing, FONT, LineChart, PictureKind,
    SeriesLook, bold_width, text_width,
};

/// Pictures of each kind.
const SEEDS: u64 = 300;
/// A phone, a file and the column of a page.
const WIDTHS: [f64; 3] = [358.0, 560.0, 704.0];
/// Ascent and descent of a font, in ems: those of DejaVu Sans.
const ASCENT: f64 = 0.93;
const DESCENT: f64 = 0.24;

#[test]
fn texts_of_curves_are_whole_and_apart() {
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let charts: Vec<LineChart> =
            (0..=random.below(2)).map(|_| line_chart(&mut random)).collect();
        for width in WIDTHS {
            let drawing = LineChart::stack(&charts, [width, 240.0]);
            let drawing = drawing.picture(&random.name(), width, random.kind());
            assert_eq!(faults(&drawing), [""; 0], "seed {seed}, {width} wide\n{}", drawing.svg);
        }
    }
}

#[test]
fn texts_of_categories_are_whole_and_apart() {
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let chart = dot_chart(&mut random);
        for width in WIDTHS {
            let drawing = chart.draw(width).picture(&random.name(), width, random.kind());
            assert_eq!(faults(&drawing), [""; 0], "seed {seed}, {width} wide\n{}", drawing.svg);
        }
    }
}

#[test]
fn a_text_that_is_cut_or_covered_is_found() {
    let texts = "<text x=\"1\" y=\"20\" text-anchor=\"end\">out</text>\n\
                 <text x=\"50\" y=\"20\" text-anchor=\"start\">on</text>\n\
                 <text x=\"60\" y=\"25\" text-anchor=\"middle\">another</text>\n";
    let drawing = Drawing { svg: texts.into(), size: [100.0, 100.0] };
    assert_eq!(faults(&drawing), ["out is cut", "on and another overlap"]);
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Between 0 and 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn kind(&mut self) -> PictureKind {
        if self.below(2) == 0 { PictureKind::Page } else { PictureKind::File }
    }

    /// Words, sometimes many, sometimes one that is very long.
    fn name(&mut self) -> String {
        const WORDS: [&str; 9] =
            ["Weft", "over", "Shuttle", "kernel", "TCP,", "BBR", "<&>\"", "@MWW", "größer"];
        let words = [1, 2, 4, 30][self.below(4) as usize];
        let mut word = || match self.below(20) {
            0 => "W".repeat(self.below(90) as usize),
            _ => WORDS[self.below(9) as usize].to_owned(),
        };
        (0..words).map(|_| word()).collect::<Vec<_>>().join(" ")
    }

    /// A family of values: of one magnitude, of many, negative, equal, tiny, or nothing.
    fn values(&mut self, count: usize) -> Vec<f64> {
        let family = self.below(8);
        let scale = 10f64.powi(self.below(31) as i32 - 15);
        let mut values: Vec<f64> = (0..count)
            .map(|_| match family {
                0 | 1 => self.share() * scale,
                2 => 10f64.powf(self.share() * 24.0 - 12.0),
                3 => (self.share() - 0.5) * scale,
                4 => scale,
                5 => -self.share() * scale,
                6 => [0.0, scale, f64::NAN, f64::INFINITY][self.below(4) as usize],
                _ => 0.0,
            })
            .collect();
        if let (0, Some(outlier)) = (self.below(3), values.first_mut()) {
            *outlier *= 1e6;
        }
        values
    }

    /// A value and a range around it, sometimes a wide one.
    fn range(&mut self, middle: f64) -> [f64; 3] {
        let wide = [1.0, 1.1, 1e4][self.below(3) as usize];
        [middle, middle / wide, middle * wide]
    }
}

fn line_chart(random: &mut Random) -> LineChart {
    let count = [1, 2, 5, 40][random.below(4) as usize];
    let mut xs = random.values(count);
    xs.sort_by(f64::total_cmp);
    let places = match random.below(4) {
        0 => ChartPlaces::Course(random.share()),
        1 => ChartPlaces::Named(xs.iter().map(|x| (*x, random.name())).collect()),
        _ => ChartPlaces::Points { log: random.below(2) == 0, sizes: random.below(2) == 0 },
    };
    if let ChartPlaces::Named(_) = places {
        // Names are of numbers that were read from a text.
        xs.iter_mut().for_each(|x| *x = if x.is_finite() { *x } else { 1.0 });
    }
    let places = match places {
        ChartPlaces::Named(named) => {
            ChartPlaces::Named(xs.iter().zip(named).map(|(x, (_, name))| (*x, name)).collect())
        }
        other => other,
    };
    let curves = [1, 2, 4, 12, 25][random.below(5) as usize];
    let curve = |random: &mut Random| {
        let (name, values) = (random.name(), random.values(count));
        let points = xs.iter().zip(values);
        let points = points.map(|(x, middle)| ChartPoint { x: *x, heights: random.range(middle) });
        ChartCurve { look: SeriesLook::of(&name), points: points.collect(), name }
    };
    LineChart {
        value: random.name(),
        log: random.below(2) == 0,
        across: random.name(),
        places,
        curves: (0..curves).map(|_| curve(random)).collect(),
    }
}

fn dot_chart(random: &mut Random) -> DotChart {
    let groups = [1, 3, 20][random.below(3) as usize];
    let rows = [1, 2, 9][random.below(3) as usize];
    let values = random.values(groups * rows);
    let row = |random: &mut Random, middle: &f64| {
        let name = random.name();
        DotRow { look: SeriesLook::of(&name), values: random.range(*middle), name }
    };
    let groups = values
        .chunks(rows)
        .map(|values| (random.name(), values.iter().map(|middle| row(random, middle)).collect()));
    let groups = groups.collect();
    DotChart { value: random.name(), log: random.below(2) == 0, groups }
}

/// A text: from left to right, from top to bottom.
struct TextBox {
    text: String,
    across: [f64; 2],
    down: [f64; 2],
}

/// Texts of a picture that are cut off by its edges, and those that overlap.
fn faults(drawing: &Drawing) -> Vec<String> {
    let boxes = boxes(&drawing.svg);
    let [width, height] = drawing.size;
    let inside = |[from, to]: [f64; 2], limit: f64| from >= 0.0 && to <= limit;
    let mut faults = Vec::new();
    if drawing.svg.contains("NaN") || drawing.svg.contains("inf ") {
        faults.push(String::from("a place is no number"));
    }
    for text in &boxes {
        if !inside(text.across, width) || !inside(text.down, height) {
            faults.push(format!("{} is cut", text.text));
        }
    }
    // Places are rounded to a tenth of a point.
    let meet = |a: [f64; 2], b: [f64; 2]| a[0] + 0.1 < b[1] && b[0] + 0.1 < a[1];
    for (number, a) in boxes.iter().enumerate() {
        for b in &boxes[number + 1..] {
            if meet(a.across, b.across) && meet(a.down, b.down) {
                faults.push(format!("{} and {} overlap", a.text, b.text));
            }
        }
    }
    faults
}

fn boxes(svg: &str) -> Vec<TextBox> {
    let (mut boxes, mut groups) = (Vec::new(), Vec::new());
    for line in svg.lines() {
        if line.starts_with("<g") {
            let moved = line.split("translate(0 ").nth(1).and_then(|rest| rest.split(')').next());
            groups.push((moved.map_or(0.0, |y| y.parse().unwrap()), line.contains("font-weight")));
        }
        if line.starts_with("<text") {
            let attribute = |name: &str| {
                let rest = line.split(&format!(" {name}=\"")).nth(1).unwrap();
                rest.split('"').next().unwrap()
            };
            let [x, y] = ["x", "y"].map(|name| attribute(name).parse::<f64>().unwrap());
            let text = line.split_once('>').unwrap().1.trim_end_matches("</text>");
            let text =
                [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")]
                    .iter()
                    .fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
            let bold = groups.iter().any(|(_, bold)| *bold);
            let width = if bold { bold_width(&text, FONT) } else { text_width(&text, FONT) };
            let from = match attribute("text-anchor") {
                "start" => x,
                "middle" => x - width / 2.0,
                _ => x - width,
            };
            let y = y + groups.iter().map(|(moved, _)| moved).sum::<f64>();
            let down = [y - ASCENT * FONT, y + DESCENT * FONT];
            boxes.push(TextBox { text, across: [from, from + width], down });
        }
        if line.ends_with("</g>") {
            groups.pop();
        }
    }
    boxes
}
