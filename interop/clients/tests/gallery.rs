//! docs/gallery.md: each scenario is run with its client, and has the verdict that the page says.

use std::path::{Path, PathBuf};
use std::thread;

use weft_testkit::{Lab, Program, free_port, weft};

/// Rows that are run at a time: most of them wait.
const AT_ONCE: usize = 4;
/// Runs of a row that was wrong, alone: rates and stalls are a clock's, which others may have
/// slowed down.
const AGAIN: usize = 3;

/// A row of the page.
struct Row {
    name: String,
    client: String,
    /// Which expectation fails, if one does.
    fails: Option<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn rows() -> Vec<Row> {
    let page = std::fs::read_to_string(root().join("docs/gallery.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| ["));
    let rows = rows.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells[1].trim_start_matches('[').split(']').next().expect("a name");
        Row {
            name: name.to_owned(),
            client: cells[4].trim_matches('`').to_owned(),
            fails: cells[5].strip_prefix("FAILED: ").map(str::to_owned),
        }
    });
    rows.collect()
}

/// Runs the row; what is wrong with its verdict, if something is.
fn fault_of(row: &Row) -> Option<String> {
    let Row { name, client, fails } = row;
    Lab::with(&[client.split(' ').next().unwrap_or_default()])?;
    let scenarios = root().join("examples/scenarios");
    let run = Program::at(weft()).on_its_own().arg("run").arg("--json").arg("--scenario");
    let run = run.arg(scenarios.join(format!("{name}.toml"))).arg("--");
    let run = run.arg(scenarios.join("pair.sh")).args(client);
    let ended = run.env("PORT", free_port().to_string()).run();
    let json = ended.stderr.lines().find(|line| line.starts_with("{\"scenario\""));
    let failed = json.map(|json| {
        // Each expectation is an object of four texts, the last of which is the verdict.
        let objects = json.split("{\"expectation\":\"").skip(1);
        let failed = objects.filter(|object| object.contains("\"ok\":false"));
        let names = failed.filter_map(|object| object.split('"').next());
        names.map(str::to_owned).collect::<Vec<_>>()
    });
    let wanted: Vec<String> = fails.iter().cloned().collect();
    let status = ended.status.code();
    let is_right = match (&failed, fails) {
        (Some(failed), None) => failed.is_empty() && status == Some(0),
        (Some(failed), Some(_)) => {
            wanted.iter().all(|name| failed.contains(name)) && status == Some(1)
        }
        (None, _) => false,
    };
    (!is_right).then(|| format!("{name}: wanted {wanted:?}, got {failed:?} from {ended}"))
}

#[test]
fn every_scenario_has_the_verdict_that_the_page_says() {
    let rows = rows();
    assert!(rows.len() >= 20, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for some in rows.chunks(AT_ONCE) {
        let found = thread::scope(|scope| {
            let runs: Vec<_> = some.iter().map(|row| scope.spawn(|| fault_of(row))).collect();
            runs.into_iter().map(|run| run.join().expect("a verdict")).collect::<Vec<_>>()
        });
        let wrong_rows = some.iter().zip(found).filter(|(_, fault)| fault.is_some());
        for (row, fault) in wrong_rows {
            let right_once = (0..AGAIN).any(|_| fault_of(row).is_none());
            wrong.extend(fault.filter(|_| !right_once));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_file_has_a_row() {
    let rows = rows();
    let files = std::fs::read_dir(root().join("examples/scenarios")).expect("the scenarios");
    for file in files.flatten().map(|entry| entry.path()) {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_scenario = file.extension().is_some_and(|extension| extension == "toml");
        assert!(!is_scenario || rows.iter().any(|row| row.name == name), "{name}");
    }
}
