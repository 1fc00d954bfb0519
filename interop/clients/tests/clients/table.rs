//! The table of docs/clients.md: every client on every device, from a run of this moment.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use weft_testkit::{IWARP, Lab, SHUTTLE};

use crate::{Client, ceph, direct, fabrics, ranks, storage, stores};

const CLIENTS: [&Client; 27] = [
    &direct::RPING,
    &direct::PING_PONG,
    &direct::UCMATOSE,
    &direct::UDADDY,
    &direct::RSTREAM,
    &direct::PYVERBS,
    &direct::PERFTEST,
    &direct::QPERF,
    &direct::DAPL,
    &storage::FIO,
    &fabrics::FABTESTS,
    &ranks::FI_PINGPONG,
    &ranks::UCX,
    &ranks::MPICH,
    &ranks::OPEN_MPI_UCX,
    &ranks::OPEN_MPI_OFI,
    &ranks::INTEL_MPI,
    &ranks::GLOO,
    &fabrics::SIDEWAY,
    &stores::VALKEY,
    &stores::NIXL,
    &stores::MOONCAKE,
    &stores::INFINISTORE,
    &storage::RPMA,
    &storage::ISER,
    &ceph::CEPH,
    &storage::QEMU,
];

const BEGIN: &str = "<!-- Written by `make peer-suites` from here. -->\n";
const END: &str = "<!-- To here. -->\n";

/// What became of a client on a device.
enum Verdict {
    /// With so many operations.
    Runs(u64),
    Refuses(&'static str),
    Fails,
    Missing,
}

fn verdict(client: &Client, lab: &Lab) -> Verdict {
    if let Some(why) = client.refusal(lab.device()) {
        return Verdict::Refuses(why);
    }
    match catch_unwind(AssertUnwindSafe(|| (client.run)(lab))) {
        Ok(Some(operations)) => Verdict::Runs(operations),
        Ok(None) => Verdict::Missing,
        Err(_) => Verdict::Fails,
    }
}

fn row(client: &Client, device: &str, verdict: &Verdict) -> String {
    let version = (client.version)().unwrap_or_default();
    let (operations, said) = match verdict {
        Verdict::Runs(operations) => (operations.to_string(), "runs"),
        Verdict::Refuses(why) => (String::new(), *why),
        Verdict::Fails => (String::new(), "**fails**"),
        Verdict::Missing => (String::new(), "not installed"),
    };
    let Client { name, does, .. } = client;
    format!("| {name} | {version} | `{device}` | {does} | {operations} | {said} |\n")
}

/// Whether the client is to be run: all are, or those with one of the words of `CLIENTS` in their
/// names. The rows of the others stay.
fn is_wanted(client: &Client) -> bool {
    let words = std::env::var("CLIENTS").unwrap_or_default().to_lowercase();
    let name = client.name.to_lowercase();
    words.is_empty() || words.split_whitespace().any(|word| name.contains(word))
}

/// `make peer-suites`.
#[test]
#[ignore = "minutes; writes docs/clients.md"]
fn is_written() {
    let page = fs::read_to_string(page()).expect("the page is in the repository");
    let mut table = "| program | version | device | what it did | operations | verdict |\n\
                     |---|---|---|---|---|---|\n"
        .to_owned();
    let mut failed = Vec::new();
    for client in CLIENTS {
        if !is_wanted(client) {
            let begin = format!("| {} |", client.name);
            let kept = page.lines().filter(|line| line.starts_with(&begin));
            table.extend(kept.map(|line| format!("{line}\n")));
            continue;
        }
        for transport in [SHUTTLE, IWARP] {
            let Some(lab) = Lab::with(&[]).map(|lab| lab.over(transport)) else { return };
            let verdict = verdict(client, &lab);
            let row = row(client, lab.device(), &verdict);
            print!("{row}");
            table.push_str(&row);
            if matches!(verdict, Verdict::Fails) {
                failed.push(format!("{} on {}", client.name, lab.device()));
            }
        }
    }
    write(&table);
    assert!(failed.is_empty(), "these fail: {}", failed.join(", "));
}

/// Replaces what is between the marks.
fn write(table: &str) {
    let text = fs::read_to_string(page()).expect("the page is in the repository");
    let (before, rest) = text.split_once(BEGIN).expect("the page has a mark");
    let (_, after) = rest.split_once(END).expect("the page has two marks");
    let text = format!("{before}{BEGIN}\n{table}\n{END}{after}");
    fs::write(page(), text).expect("the page is writable");
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/clients.md")
}
