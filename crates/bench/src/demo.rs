//! `weft bench demo`: what an application sees with Weft and without, what that costs on one
//! machine, and what it brings across a WAN, in four acts.
//!
//! Everything shown is measured in this run. An act that this machine cannot run is skipped by
//! name, with the reason. Order: [`run`] plays the acts one after the other, each shows what it
//! finds as it finds it, and the end says what to do next.

mod act;
mod compare;
pub(crate) mod copies;
mod devices;
mod screen;
mod wan;

use anyhow::{Result, bail, ensure};
use clap::Args;
use serde_json::json;

use crate::lab::{BenchLab, is_installed};
use crate::{arguments, machine, output, sys};
use act::DemoAct;
use screen::DemoScreen;

/// The options of the demonstration.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Without colours and without lines that are rewritten, for logs
    #[arg(long)]
    plain: bool,
    /// One JSON object at the end instead
    #[arg(long)]
    json: bool,
    /// Only this act, from 1 to 4; may be given several times
    #[arg(long = "act", value_name = "N", value_parser = clap::value_parser!(u8).range(1..=4))]
    acts: Vec<u8>,
    /// About how many seconds each measurement of act 2 takes
    #[arg(long, value_name = "S", default_value_t = 0.3, value_parser = arguments::seconds)]
    seconds: f64,
    /// Megabytes that act 4 copies
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    megabytes: u64,
    /// The address of this machine that servers are reached at
    #[arg(long, default_value = "127.0.0.1")]
    address: String,
}

/// Programs without which there is nothing to show; what else is missing is named in its act.
const NEEDED: [&str; 3] = ["rping", "ib_write_bw", "ib_send_lat"];

type PlayAct = fn(&BenchLab, &mut DemoScreen, &DemoArgs) -> Result<DemoAct>;

const ACTS: [PlayAct; 4] = [
    |lab, screen, _| devices::play(lab, screen),
    |lab, screen, _| compare::play(lab, screen),
    |lab, screen, _| wan::play(lab, screen),
    |lab, screen, options| copies::play(lab, screen, options.megabytes),
];

/// Plays the acts.
///
/// # Errors
/// An act failed, what was moved was wrong, or the user interrupts.
pub fn run(options: &DemoArgs) -> Result<()> {
    for program in NEEDED {
        ensure!(is_installed(program), "{program} is not installed; `make demo` installs it");
    }
    sys::catch_interrupts()?;
    let lab = BenchLab::new(&options.address, options.seconds)?;
    let mut screen = DemoScreen::new(options.plain, options.json);
    let machine = machine::describe();
    screen.line(&format!("Weft {} on {machine}", env!("CARGO_PKG_VERSION")));
    let before = machine::Usage::now();
    let (mut acts, mut failures) = (Vec::new(), Vec::new());
    for (number, play) in (1..).zip(ACTS) {
        if !options.acts.is_empty() && !options.acts.contains(&number) {
            continue;
        }
        match play(&lab, &mut screen, options) {
            Ok(act) => acts.push(act),
            Err(error) if sys::interrupted() => return Err(error),
            Err(error) => {
                screen.line(&format!("   failed: {error:#}"));
                failures.push(format!("act {number}: {error:#}"));
            }
        }
    }
    let load = before.disturbance(&machine::Usage::now());
    end(&mut screen, &lab, &load);
    if options.json {
        let report = json!({
            "machine": machine, "commit": machine::commit(), "date": machine::date(),
            "disturbance": load, "acts": acts, "failures": failures,
        });
        output::print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?;
    }
    match failures.len() {
        0 => Ok(()),
        _ => bail!("{}", failures.join("\n")),
    }
}

/// What the numbers are worth, and what to do next.
fn end(screen: &mut DemoScreen, lab: &BenchLab, load: &machine::Disturbance) {
    let here = std::env::current_dir().unwrap_or_default();
    let weft = lab.weft.strip_prefix(here).unwrap_or(&lab.weft).display();
    screen.line("");
    if load.is_no_result() {
        screen.line(&format!(
            "This machine was busy: others took {:.0} % of it. The numbers above are no result.",
            load.others.max(load.host)
        ));
    }
    screen.line("Each number is of one run. `make bench` has medians of five rounds, and more.");
    screen.line("");
    screen.title("Next");
    screen.line(&format!("   {weft} run YOUR_PROGRAM        # verbs and rdma-cm, no hardware"));
    screen.line(&format!("   {weft} run --sockets -v CMD    # TCP sockets over RDMA"));
    screen.line(&format!("   {weft} wan satellite           # a shell in front of a slow path"));
}
