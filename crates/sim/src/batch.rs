//! Several runs at once, each on a thread of its own.
//!
//! A run knows nothing of the others, so the outcomes are the same however many threads there are;
//! they come in the order of the runs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::plan::SimRun;
use crate::run::{RunOutcome, UnknownController, simulate};

/// Makes all runs with `jobs` threads; `progress` hears, from any of them, a run's number and what
/// part of it is done.
///
/// # Errors
/// A flow names a controller that is not there.
pub fn simulate_all(
    runs: &[SimRun],
    jobs: usize,
    progress: &(impl Fn(usize, f64) + Sync),
) -> Result<Vec<RunOutcome>, UnknownController> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        while let number = next.fetch_add(1, Ordering::Relaxed)
            && let Some(run) = runs.get(number)
        {
            let outcome = simulate(run, |part| progress(number, part));
            progress(number, 1.0);
            done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((number, outcome));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.clamp(1, runs.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}
