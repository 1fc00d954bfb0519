//! The table of docs/clients.md: every client on every device, from a run of this moment.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use weft_interop::{IWARP, Lab, SHUTTLE};

use crate::{Client, fabrics, storage, stores};

const CLIENTS: [&Client; 12] = [
    &fabrics::RPING,
    &fabrics::PERFTEST,
    &fabrics::FABTESTS,
    &fabrics::UCX,
    &fabrics::INTEL_MPI,
    &fabrics::SIDEWAY,
    &stores::VALKEY,
    &stores::NIXL,
    &stores::MOONCAKE,
    &stores::INFINISTORE,
    &storage::ISER,
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

/// `make peer-suites`.
#[test]
#[ignore = "minutes; writes docs/clients.md"]
fn is_written() {
    let mut table = "| program | version | device | what it did | operations | verdict |\n\
                     |---|---|---|---|---|---|\n"
        .to_owned();
    let mut failed = Vec::new();
    for client in CLIENTS {
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
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/clients.md");
    let text = fs::read_to_string(&file).expect("the page is in the repository");
    let (before, rest) = text.split_once(BEGIN).expect("the page has a mark");
    let (_, after) = rest.split_once(END).expect("the page has two marks");
    let text = format!("{before}{BEGIN}\n{table}\n{END}{after}");
    fs::write(&file, text).expect("the page is writable");
}
