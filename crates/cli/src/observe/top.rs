//! `weft top`: every connection, again and again.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use weft_os::clock;

use super::sample::{Paces, Sample};
use super::terminal::Terminal;
use super::top_table::{HELP, SortKey, TopTable};
use super::{TopOptions, directory};
use crate::sys;

const CTRL_C: u8 = 3;

/// Shows the connections until `q`, or so often as was asked for.
///
/// # Errors
/// Nobody reads it, or the processes are not to be seen ([`Sample::take`]).
pub fn main(options: &TopOptions) -> Result<()> {
    let dir = directory();
    let terminal = if options.batch { None } else { Terminal::take() };
    match terminal {
        Some(terminal) => {
            let outcome = fill(&terminal, &dir, options);
            // The terminal is as it was.
            drop(terminal);
            if let Some(signal) = sys::ended_by() {
                sys::die_of(signal);
            }
            outcome
        }
        None => write_out(&dir, options),
    }
}

/// One text after the other. The first pace needs two samples.
#[expect(clippy::disallowed_methods, reason = "people wait by the clock")]
fn write_out(dir: &Path, options: &TopOptions) -> Result<()> {
    let mut paces = Paces::default();
    paces.of(&Sample::take(dir)?);
    let mut table = TopTable::default();
    for count in 0.. {
        if options.iterations.is_some_and(|most| count >= most) {
            break;
        }
        std::thread::sleep(options.delay);
        let sample = Sample::take(dir)?;
        let text = table.text(&sample, &paces.of(&sample), SortKey::Rate);
        let gap = if count == 0 { "" } else { "\n" };
        io::stdout().write_all(format!("{gap}{text}").as_bytes())?;
    }
    Ok(())
}

/// What the keys have chosen.
struct TopChoice {
    sort: SortKey,
    help: bool,
    quit: bool,
}

fn fill(terminal: &Terminal, dir: &Path, options: &TopOptions) -> Result<()> {
    let (mut paces, mut table) = (Paces::default(), TopTable::default());
    let mut chosen = TopChoice { sort: SortKey::Rate, help: false, quit: false };
    for count in 1.. {
        let sample = Sample::take(dir)?;
        let measured = paces.of(&sample);
        table.note(&measured);
        let next = sample.at + options.delay;
        loop {
            let text = table.shown(&sample, &measured, chosen.sort);
            terminal.show(if chosen.help { HELP } else { &text })?;
            let left = next.saturating_duration_since(clock::now());
            if left.is_zero() || !heed(terminal, left, &mut chosen) {
                break;
            }
        }
        if chosen.quit || options.iterations.is_some_and(|most| count >= most) {
            break;
        }
    }
    Ok(())
}

/// Takes a key; whether to show the same numbers again.
fn heed(terminal: &Terminal, within: Duration, chosen: &mut TopChoice) -> bool {
    let Some(key) = terminal.key(within) else { return false };
    let was_help = std::mem::replace(&mut chosen.help, false);
    match key {
        b'q' | b'Q' | CTRL_C => {
            chosen.quit = true;
            return false;
        }
        b' ' | b'\n' | b'\r' => return false,
        b'r' => chosen.sort = SortKey::Rate,
        b't' => chosen.sort = SortKey::RoundTrip,
        b'l' => chosen.sort = SortKey::Loss,
        b'p' => chosen.sort = SortKey::Process,
        b'h' | b'?' => chosen.help = !was_help,
        _ => {}
    }
    true
}
