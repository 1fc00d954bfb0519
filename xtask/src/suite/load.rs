//! Load by others: CPU time of all processes but this one and its children, from `/proc`.
//!
//! Work of the kernel in interrupts counts for nobody: most of it is for the tests' own packets.

use std::fs;

use anyhow::{Context, Result};

/// Processor time so far, in clock ticks of 10 ms.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Of one CPU: all time there was, divided by the number of CPUs.
    wall: f64,
    /// Of all processes, and what a hypervisor has kept from this machine.
    busy: f64,
    /// Of this process and its children that have ended.
    own: f64,
}

impl Load {
    /// The times now.
    ///
    /// # Errors
    /// Without `/proc`.
    pub fn now() -> Result<Self> {
        let all = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
        let own = fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
        Self::parse(&all, &own).context("the kernel's processor times make no sense")
    }

    fn parse(all: &str, own: &str) -> Option<Self> {
        let processors = all.lines().filter(|line| line.starts_with("cpu")).count() - 1;
        let total = all.lines().next()?.split_whitespace().skip(1);
        let times: Vec<f64> = total.map(|word| word.parse().unwrap_or(0.0)).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = times[..] else {
            return None;
        };
        let wall = user + nice + system + idle + iowait + irq + softirq + steal;
        // The name of the process is in brackets, and may have any bytes in it.
        let fields = own.rsplit_once(')')?.1.split_whitespace();
        let own: Vec<f64> = fields.skip(11).take(4).filter_map(|word| word.parse().ok()).collect();
        Some(Self {
            wall: wall / processors as f64,
            busy: user + nice + system + steal,
            own: (own.len() == 4).then(|| own.iter().sum())?,
        })
    }

    /// The CPUs that others have used on average since `before`: 0.5 is half of one.
    pub fn of_others_since(self, before: Self) -> f64 {
        let busy = (self.busy - before.busy) - (self.own - before.own);
        busy.max(0.0) / (self.wall - before.wall).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(all: &str, own: &str) -> Load {
        let all = format!("cpu  {all} 0 0\ncpu0 1\ncpu1 1\nintr 5\n");
        Load::parse(&all, &format!("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 {own} 20 0")).unwrap()
    }

    #[test]
    fn what_others_use_is_neither_idle_nor_own() {
        let before = load("100 0 100 800 0 0 0 0", "10 10 20 20");
        // Two CPUs for a second: 90 ticks busy, of which 40 are those of children.
        let after = load("150 10 120 890 0 10 10 10", "10 10 40 40");
        assert!((after.of_others_since(before) - 0.5).abs() < 1e-9);
        assert!(before.of_others_since(before).abs() < 1e-9);
    }

    #[test]
    fn this_machine_tells() {
        let (before, after) = (Load::now().unwrap(), Load::now().unwrap());
        assert!(after.of_others_since(before) >= 0.0);
    }
}
