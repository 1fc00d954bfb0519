//! The report in a real browser, as wide as a phone and as a desk: nothing is asked of the network
//! but the page itself, there is no script, and nothing is wider than the window or too small.
//!
//! The page is looked at as it is, in a frame of another page that measures it.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

const BROWSERS: [&str; 3] = ["chromium-headless-shell", "chromium", "google-chrome"];
const WIDTHS: [u32; 3] = [320, 390, 1280];

/// Measures the frame when it is there, and says it where `--dump-dom` prints it.
const OBSERVER: &str = r#"<!doctype html><title>observer</title><body><pre id="said"></pre>
<script>
  const said = { errors: [] };
  addEventListener("error", event => said.errors.push(String(event.message)));
  function look(frame) {
    const page = frame.contentDocument, root = page.scrollingElement;
    said.wide = root.scrollWidth - frame.contentWindow.innerWidth;
    said.resources = frame.contentWindow.performance.getEntriesByType("resource").length;
    said.figures = page.querySelectorAll("figure svg").length;
    said.tables = page.querySelectorAll("section table").length;
    said.scripts = page.scripts.length;
    said.text = Math.min(...[...page.querySelectorAll("figure svg text")].map(
      text => text.getBoundingClientRect().height));
    document.getElementById("said").textContent = "SAID" + JSON.stringify(said) + "SAID";
  }
</script>
<iframe src="/report.html" style="border:0;width:WIDTHpx;height:800px" onload="look(this)"></iframe>
"#;

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // The browser's own processes may still write to its profile.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_report_is_whole_in_a_browser() {
    let found = BROWSERS.iter().find(|name| is_installed(name));
    let Some(browser) = found else {
        eprintln!("skipped: none of {BROWSERS:?} is installed");
        return;
    };
    let scratch = Scratch(std::env::temp_dir().join(format!("weft-report-{}", std::process::id())));
    std::fs::create_dir_all(&scratch.0).unwrap();
    let page = report(&scratch.0);
    for width in WIDTHS {
        let site = Site::new(&page, width);
        let said = look(browser, &scratch.0, &site);
        let number = |name: &str| said[name].as_f64().unwrap_or_else(|| panic!("{name}: {said}"));
        assert_eq!(said["errors"].as_array().map(Vec::len), Some(0), "{said}");
        assert!(number("wide") <= 0.0, "at {width} wider than the window: {said}");
        assert_eq!((number("resources"), number("scripts")), (0.0, 0.0), "{said}");
        assert!(number("figures") >= 2.0 && number("figures") == number("tables"), "{said}");
        assert!(number("text") >= 8.0, "at {width} too small to read: {said}");
        let asked = site.asked();
        assert!(asked.iter().all(|path| ["/", "/report.html", "/favicon.ico"].contains(&&**path)));
    }
}

/// A report of one short run, with a figure of each kind.
fn report(dir: &Path) -> String {
    let run = ["registration", "api", "--rounds", "1", "--seconds", "0.02", "--out", "results"];
    succeeds(dir, &run);
    succeeds(dir, &["report", "results", "-o", "report.html", "--svg", "figures"]);
    let figure = std::fs::read_to_string(dir.join("figures/api.svg")).unwrap();
    assert!(figure.starts_with("<svg ") && figure.contains("xmlns="));
    std::fs::read_to_string(dir.join("report.html")).unwrap()
}

fn succeeds(dir: &Path, args: &[&str]) {
    let weft = Path::new(env!("CARGO_BIN_EXE_weft-bench")).with_file_name("weft");
    let output = Command::new(weft).arg("bench").args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// What the observer says of the page.
fn look(browser: &str, dir: &Path, site: &Site) -> serde_json::Value {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--window-size=1400,900", "--dump-dom"])
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
