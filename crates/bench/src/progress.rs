//! Progress: the present step and the time left, on a terminal in place, in a log as a line now and
//! then.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Progress line on stderr. A terminal has it rewritten in place; what is no terminal gets a whole
/// line every [`LOG_EVERY`], so that a log of CI shows that the run goes on.
#[derive(Debug)]
pub struct BenchProgress {
    is_terminal: bool,
    logged: Cell<Instant>,
    steps: usize,
    began: Instant,
}

/// Time between two lines of a log.
pub const LOG_EVERY: Duration = Duration::from_secs(15);
/// Width of the bar in columns.
const WIDTH: usize = 20;
/// How many columns the line may take; one that is wrapped could not be written over.
const COLUMNS: usize = 79;

impl BenchProgress {
    /// A line that is still empty, of work that is done in so many steps.
    pub fn new(steps: usize) -> Self {
        let began = Instant::now();
        Self { is_terminal: io::stderr().is_terminal(), logged: Cell::new(began), steps, began }
    }

    /// So many steps are done, and the next is called `text`.
    pub fn show(&self, done: usize, text: &str) {
        let now = Instant::now();
        let line = line(done, self.steps, now - self.began, text);
        if self.is_terminal {
            rewrite(&line);
        } else if is_due(self.logged.get(), now) {
            self.logged.set(now);
            let _ = writeln!(io::stderr(), "{line}");
        }
    }
}

impl Drop for BenchProgress {
    fn drop(&mut self) {
        if self.is_terminal {
            rewrite("");
        }
    }
}

/// Progress that cannot be shown is no reason to stop.
fn rewrite(line: &str) {
    let _ = write!(io::stderr(), "\r{line}\x1b[K");
    let _ = io::stderr().flush();
}

fn is_due(logged: Instant, now: Instant) -> bool {
    now.saturating_duration_since(logged) >= LOG_EVERY
}

fn line(done: usize, steps: usize, elapsed: Duration, text: &str) -> String {
    let full = WIDTH * done / steps.max(1);
    let bar = format!("[{}{}]", "#".repeat(full), ".".repeat(WIDTH - full));
    let left = match done {
        0 => String::from("  --:--"),
        _ => {
            let rest = elapsed.as_secs_f64() * (steps - done) as f64 / done as f64;
            format!("{:4}:{:02}", rest as u64 / 60, rest as u64 % 60)
        }
    };
    format!("{bar}{left} left, {text}").chars().take(COLUMNS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_a_line_now_and_then() {
        let began = Instant::now();
        assert!(!is_due(began, began));
        assert!(!is_due(began, began + LOG_EVERY / 2));
        assert!(is_due(began, began + LOG_EVERY));
    }

    #[test]
    fn the_rest_is_reckoned_from_what_is_done() {
        let minute = Duration::from_secs(60);
        assert_eq!(line(0, 4, Duration::ZERO, "a"), "[....................]  --:-- left, a");
        assert_eq!(line(1, 4, minute, "b"), "[#####...............]   3:00 left, b");
        assert_eq!(line(4, 4, minute, "c"), "[####################]   0:00 left, c");
        assert_eq!(line(1, 2, minute, &"long ".repeat(99)).chars().count(), COLUMNS);
    }
}
