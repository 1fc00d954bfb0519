//! `weft bench` end to end: a suite is measured into a file, a run that was ended is gone on with,
//! and files are compared.

use std::path::Path;
use std::process::{Command, Output};

use weft_testkit::{Dir, text, weft};

fn bench(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(weft());
    command.arg("bench").args(args).current_dir(dir);
    command.env_remove("WEFT").env_remove("LD_PRELOAD").output().unwrap()
}

fn succeeds(dir: &Path, args: &[&str]) -> String {
    let output = bench(dir, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn every_suite_is_listed_with_its_figures() {
    let scratch = Dir::new("list");
    let list = succeeds(scratch.root(), &["--list"]);
    for word in ["latency:", "bandwidth:", "registration:", "after Jin and others"] {
        assert!(list.contains(word), "{word} is not in\n{list}");
    }
    assert_eq!(bench(scratch.root(), &["nothing"]).status.code(), Some(125));
}

#[test]
fn a_run_of_nothing_leaves_no_file() {
    let scratch = Dir::new("nothing");
    let output = bench(scratch.root(), &["latency", "--only", "nosuch", "--out", "a"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("has `nosuch` in its name"), "{}", text(&output.stderr));
    assert!(!scratch.root().join("a").exists());
}

#[test]
fn a_run_goes_on_and_is_compared() {
    let scratch = Dir::new("run");
    let dir = scratch.root();
    let begin = ["registration", "--rounds", "1", "--out", "a", "--only", "iWARP"];
    let partly = succeeds(dir, &begin);
    let claim = "Registering 1 MiB costs less than locking it";
    assert!(
        partly.contains(claim) && partly.contains("Not measured: Weft over Shuttle"),
        "{partly}"
    );
    assert!(!bench(dir, &begin).status.success(), "the file is there");

    let file = dir.join("a");
    let before = std::fs::read_to_string(&file).unwrap();
    let same = succeeds(dir, &["--resume", "a"]);
    assert!(same.contains("Not measured: Weft over Shuttle"), "{same}");
    let whole = succeeds(dir, &["--resume", "a", "--only", "shuttle"]);
    assert!(!whole.contains("Not measured"), "{whole}");
    let after = std::fs::read_to_string(&file).unwrap();
    assert!(after.starts_with(&before) && after.len() > before.len());

    let same = succeeds(dir, &["compare", "a", "a"]);
    assert!(same.contains("\n0 of ") && same.contains("register 1024"), "{same}");
    std::fs::write(dir.join("b"), "nonsense").unwrap();
    assert_eq!(bench(dir, &["compare", "a", "b"]).status.code(), Some(125));
}

#[test]
fn a_figure_stands_beside_kernel_tcp() {
    let scratch = Dir::new("figure");
    let dir = scratch.root();
    let only =
        ["latency", "--quick", "--rounds", "1", "--seconds", "0.02", "--only", "pingpong 64"];
    let summary = succeeds(dir, &only);
    let row = summary.lines().find(|line| line.trim_start_matches(['|', ' ']).starts_with("64 "));
    let cells = row.expect("a row").split('|').filter(|cell| !cell.trim().is_empty()).count();
    assert_eq!(cells, 5, "{summary}");
    let written: Vec<_> = std::fs::read_dir(dir).unwrap().collect();
    assert_eq!(written.len(), 1, "one file of results, under a name with the date");
}

#[test]
fn programs_of_filters_run_each_way() {
    let scratch = Dir::new("filters");
    let only = ["apps", "--quick", "--rounds", "1", "--only", "microscope"];
    let summary = succeeds(scratch.root(), &only);
    let row = summary.lines().find(|line| line.starts_with("| microscope 1K "));
    let cells = row.expect("a row").split('|').filter(|cell| !cell.trim().is_empty()).count();
    assert_eq!(cells, 6, "{summary}");
    for layer in ["iWARP", "Shuttle"] {
        let claim = format!("Enhanced SDP over {layer} gets a twentieth more done");
        assert!(summary.contains(&claim), "{summary}");
    }
}

/// The numbers of a row of a figure's table.
fn row(summary: &str, name: &str) -> Vec<f64> {
    let mut rows = summary.lines().map(|line| line.split('|').map(str::trim));
    let cells = rows.find(|cells| cells.clone().nth(1) == Some(name));
    let cells = cells.unwrap_or_else(|| panic!("no {name} in\n{summary}")).skip(2);
    let number = |cell: &str| cell.parse().unwrap_or_else(|_| panic!("{cell} in\n{summary}"));
    cells.filter(|cell| !cell.is_empty()).map(number).collect()
}

#[test]
fn copies_are_counted_where_they_are_made() {
    if !Path::new("/usr/bin/valgrind").exists() || !Path::new("/usr/bin/strace").exists() {
        eprintln!("skipped: valgrind and strace are not both installed");
        return;
    }
    let scratch = Dir::new("copies");
    let only = ["sdp", "--quick", "--rounds", "1", "--only", "SDP over Shuttle: copies"];
    let summary = succeeds(scratch.root(), &only);
    // Into or out of SDP's private buffer, which the enhanced style does without; the receiver's
    // also out of datagrams.
    for (end, basic, enhanced) in [("sender", 0.9..1.3, 0.0..0.3), ("receiver", 1.9..2.3, 0.9..1.3)]
    {
        let by_program = row(&summary, &format!("{end}, by the program"));
        assert!(basic.contains(&by_program[0]), "{end}: {summary}");
        assert!(enhanced.contains(&by_program[1]), "{end}: {summary}");
        // Through the socket pair twice, and once through the network.
        let by_kernel = row(&summary, &format!("{end}, by the kernel"));
        assert!(by_kernel.iter().all(|copies| (2.9..3.3).contains(copies)), "{end}: {summary}");
    }
}

#[test]
fn clients_from_afar_cost_a_server_something() {
    let scratch = Dir::new("crowd");
    let only = ["server-load", "--quick", "--rounds", "1", "--seconds", "0.1"];
    let summary = succeeds(scratch.root(), &[&only[..], &["--only", "across delay=1ms"]].concat());
    let shares = row(&summary, "1");
    assert_eq!(shares.len(), 3, "{summary}");
    assert!(shares.iter().all(|share| (0.05..50.0).contains(share)), "{summary}");
}
