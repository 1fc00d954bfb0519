//! The report in a real browser, as wide as a phone and as a desk: nothing is asked of the network
//! but the page itself, there is no script, and nothing is wider than the window or too small.
//!
//! The page is looked at as it is, in a frame of another page that measures it.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use weft_chart::{FONT, bold_width, text_width};
use weft_testkit::{Dir, find, weft};

const BROWSERS: [&str; 3] = ["chromium-headless-shell", "chromium", "google-chrome"];
/// How wide the page is, and how its reader has it.
const LOOKS: [(u32, Scheme); 7] = [
    (320, Scheme::Light),
    (390, Scheme::Light),
    (390, Scheme::Dark),
    (768, Scheme::Light),
    (768, Scheme::Dark),
    (1280, Scheme::Light),
    (1280, Scheme::Dark),
];
/// What WCAG 2.2 asks for: 1.4.3 of text, 1.4.11 of marks.
const CONTRASTS: [(&str, f64); 2] = [("text", 4.5), ("marks", 3.0)];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scheme {
    Dark,
    Light,
}

/// Measures the frame when it is there, and says it where `--dump-dom` prints it.
const OBSERVER: &str = r#"<!doctype html><meta name="color-scheme" content="light dark">
<title>observer</title><body><pre id="said"></pre>
<script>
  const numbers = colour => colour.match(/[\d.]+/g).map(Number);
  function luminance(colour) {
    const part = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = numbers(colour).map(part);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function contrast(a, b) {
    const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (light + 0.05) / (dark + 0.05);
  }
  function paper(element) {
    const svg = element.closest("svg");
    if (svg) return getComputedStyle(svg.querySelector(".p")).fill;
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (numbers(colour)[3] !== 0) return colour;
    }
    return "rgb(255, 255, 255)";
  }
  function faintest(elements, ink) {
    const each = elements.map(e => ({
      of: e.textContent.slice(0, 40) || e.getAttribute("class"),
      ratio: contrast(ink(getComputedStyle(e), e), paper(e)),
    }));
    return each.sort((a, b) => a.ratio - b.ratio)[0];
  }
  function isBare(figure) {
    const table = figure.parentElement.querySelector("table");
    return !table?.caption?.textContent || !table.tBodies[0].rows.length
      || ![...table.querySelectorAll("th")].every(head => head.scope);
  }
  const said = { errors: [] };
  addEventListener("error", event => said.errors.push(String(event.message)));
  function look(frame) {
    const page = frame.contentDocument, root = page.scrollingElement;
    said.wide = root.scrollWidth - frame.contentWindow.innerWidth;
    said.resources = frame.contentWindow.performance.getEntriesByType("resource").length;
    const shown = [...page.querySelectorAll("figure svg")].filter(svg => svg.clientWidth > 0);
    said.figures = shown.length;
    said.tables = page.querySelectorAll("section table").length;
    said.scripts = page.scripts.length;
    said.text = Math.min(...shown.flatMap(svg => [...svg.querySelectorAll("text")]).map(
      text => text.getBoundingClientRect().height));
    const inner = (a, b) => a.left >= b.left && a.right <= b.right
      && a.top >= b.top && a.bottom <= b.bottom;
    // A pixel is more than a text may be moved by rounding.
    const meet = (a, b) => a.left + 1 < b.right && b.left + 1 < a.right
      && a.top + 1 < b.bottom && b.top + 1 < a.bottom;
    said.cut = [], said.covered = [], said.widths = [];
    for (const svg of shown) {
      const box = svg.getBoundingClientRect();
      const texts = [...svg.querySelectorAll("text")].map(text => ({
        text: text.textContent, box: text.getBoundingClientRect(),
        width: text.getComputedTextLength(), bold: getComputedStyle(text).fontWeight > 400,
      }));
      said.cut.push(...texts.filter(t => !inner(t.box, box)).map(t => t.text));
      texts.forEach((a, i) => texts.slice(i + 1).filter(b => meet(a.box, b.box)).forEach(
        b => said.covered.push([a.text, b.text])));
      said.widths.push(...texts.map(t => [t.text, t.width, t.bold]));
    }
    said.bare = [...page.querySelectorAll("figure")].filter(isBare).length;
    said.dark = frame.contentWindow.matchMedia("(prefers-color-scheme: dark)").matches;
    const written = e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    const texts = [...page.body.querySelectorAll("*")].filter(
      e => written(e) && !["style", "title"].includes(e.localName));
    said.contrast = {
      text: faintest(texts, (style, e) => e.closest("svg") ? style.fill : style.color),
      marks: faintest([...page.querySelectorAll("svg .l, svg .m")],
        style => style.stroke),
    };
    document.getElementById("said").textContent = "SAID" + JSON.stringify(said) + "SAID";
  }
</script>
<iframe src="/report.html" style="border:0;width:WIDTHpx;height:800px" onload="look(this)"></iframe>
"#;

#[test]
fn the_report_is_whole_in_a_browser() {
    let found = BROWSERS.iter().find(|name| find(name).is_some());
    let Some(browser) = found else {
        eprintln!("skipped: none of {BROWSERS:?} is installed");
        return;
    };
    let scratch = Dir::new("report");
    let page = report(scratch.root());
    pictures_are_whole(scratch.root());
    for (width, scheme) in LOOKS {
        let site = Site::new(&page, width);
        let said = look(browser, scratch.root(), &site, scheme);
        let number = |name: &str| said[name].as_f64().unwrap_or_else(|| panic!("{name}: {said}"));
        assert_eq!(said["errors"].as_array().map(Vec::len), Some(0), "{said}");
        assert!(number("wide") <= 0.0, "at {width} wider than the window: {said}");
        assert_eq!((number("resources"), number("scripts")), (0.0, 0.0), "{said}");
        assert!(number("figures") >= 2.0 && number("figures") == number("tables"), "{said}");
        assert_eq!(said["cut"], serde_json::json!([]), "text outside of its figure at {width}");
        assert_eq!(said["covered"], serde_json::json!([]), "text on text at {width}");
        widths_are_as_estimated(&said["widths"]);
        assert_eq!(number("bare"), 0.0, "a figure without a table of its numbers: {said}");
        assert!(number("text") >= 8.0, "at {width} too small to read: {said}");
        assert_eq!(said["dark"], scheme == Scheme::Dark, "{said}");
        for (of, least) in CONTRASTS {
            let faintest = &said["contrast"][of];
            assert!(faintest["ratio"].as_f64().unwrap() >= least, "{scheme:?}: {faintest}");
        }
        let asked = site.asked();
        assert!(asked.iter().all(|path| ["/", "/report.html", "/favicon.ico"].contains(&&**path)));
    }
}

/// No text is wider than where it was placed by, so that it lies where the layout of charts has it.
fn widths_are_as_estimated(widths: &serde_json::Value) {
    let widths: Vec<(String, f64, bool)> = serde_json::from_value(widths.clone()).unwrap();
    assert!(!widths.is_empty());
    for (text, width, bold) in widths {
        let estimate = if bold { bold_width(&text, FONT) } else { text_width(&text, FONT) };
        assert!(width <= estimate, "{text} is {width} wide, more than {estimate}");
    }
}

/// A report of one short run, with a figure of each kind.
fn report(dir: &Path) -> String {
    let run = ["registration", "api", "--rounds", "1", "--seconds", "0.02", "--out", "results"];
    succeeds(dir, &run);
    let report = ["report", "results", "-o", "report.html", "--svg", "figures"];
    succeeds(dir, &[&report[..], &["--png", "pictures"]].concat());
    let figure = std::fs::read_to_string(dir.join("figures/api.svg")).unwrap();
    assert!(figure.starts_with("<svg ") && figure.contains("xmlns="));
    std::fs::read_to_string(dir.join("report.html")).unwrap()
}

/// Each figure is a picture too, of two dots a point.
fn pictures_are_whole(dir: &Path) {
    for figure in ["api", "registration"] {
        let svg = std::fs::read_to_string(dir.join(format!("figures/{figure}.svg"))).unwrap();
        let size = svg.split("viewBox=\"0 0 ").nth(1).and_then(|rest| rest.split('"').next());
        let size = size.unwrap().split(' ').map(|side| side.parse().unwrap());
        let png = std::fs::read(dir.join(format!("pictures/{figure}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"), "{figure}");
        let sides = [16, 20].map(|at| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()));
        assert_eq!(size.map(|side: f64| side.ceil() as u32 * 2).collect::<Vec<_>>(), sides);
        assert!(png.len() > 5000, "{figure} is blank: {} bytes", png.len());
    }
}

fn succeeds(dir: &Path, args: &[&str]) {
    let output = Command::new(weft()).arg("bench").args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What the observer says of the page.
fn look(browser: &str, dir: &Path, site: &Site, scheme: Scheme) -> serde_json::Value {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--window-size=1400,900", "--dump-dom"])
        .arg(format!("--blink-settings=preferredColorScheme={}", scheme as u8))
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("http://127.0.0.1:{}/", site.port))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let Output { stdout, stderr, .. } = output;
    let [stdout, stderr] = [stdout, stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    let said = stdout.split("SAID").nth(1).filter(|said| said.starts_with('{'));
    let said = said.unwrap_or_else(|| panic!("nothing was said\n{stdout}\n{stderr}"));
    serde_json::from_str(&said.replace("&amp;", "&")).unwrap()
}

/// Serves the observer and the report, and remembers what was asked for.
struct Site {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Site {
    fn new(report: &str, width: u32) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let observer = OBSERVER.replace("WIDTH", &width.to_string());
        let (asked, report) = (Arc::new(Mutex::new(Vec::new())), report.to_owned());
        let paths = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                // A browser opens connections that it does not use; each has a thread.
                let (paths, observer, report) =
                    (Arc::clone(&paths), observer.clone(), report.clone());
                std::thread::spawn(move || answer(stream, &paths, &observer, &report));
            }
        });
        Self { port, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer(mut stream: TcpStream, paths: &Mutex<Vec<String>>, observer: &str, report: &str) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(first)) = lines.next() else { return };
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let (status, body) = match path.as_str() {
        "/" => ("200 OK", observer),
        "/report.html" => ("200 OK", report),
        _ => ("404 Not Found", ""),
    };
    paths.lock().unwrap().push(path);
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    // A browser that has gone is no failure of the page.
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}
