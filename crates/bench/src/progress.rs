//! Progress on a terminal: the present step and the time left.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Progress line on stderr, rewritten in place; absent if stderr is no terminal.
#[derive(Debug)]
pub struct BenchProgress {
    shown: bool,
    steps: usize,
    began: Instant,
}

/// Width of the bar in columns.
const WIDTH: usize = 20;
/// How many columns the line may take; one that is wrapped could not be written over.
const COLUMNS: usize = 79;

impl BenchProgress {
    /// A line that is still empty, of work that is done in so many steps.
    pub fn new(steps: usize) -> Self {
        Self { shown: io::stderr().is_terminal(), steps, began: Instant::now() }
    }

    /// So many steps are done, and the next is called `text`.
    pub fn show(&self, done: usize, text: &str) {
        self.write(&line(done, self.steps, self.began.elapsed(), text));
    }

    fn write(&self, line: &str) {
        if self.shown {
            // Progress that cannot be shown is no reason to stop.
            let _ = write!(io::stderr(), "\r{line}\x1b[K");
            let _ = io::stderr().flush();
        }
    }
}

impl Drop for BenchProgress {
    fn drop(&mut self) {
        self.write("");
    }
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
    fn the_rest_is_reckoned_from_what_is_done() {
        let minute = Duration::from_secs(60);
        assert_eq!(line(0, 4, Duration::ZERO, "a"), "[....................]  --:-- left, a");
        assert_eq!(line(1, 4, minute, "b"), "[#####...............]   3:00 left, b");
        assert_eq!(line(4, 4, minute, "c"), "[####################]   0:00 left, c");
        assert_eq!(line(1, 2, minute, &"long ".repeat(99)).chars().count(), COLUMNS);
    }
}
