//! Threads that handle the descriptors of clients of other users.
//!
//! A descriptor from such a client can block whoever touches it: a socket that lingers at its close
//! or is locked by its owner, a file whose file system does not answer. So the reactor does
//! not touch it, not even to close it.
//!
//! Invariant: one user can block [`THREADS_OF_USER_MAX`] threads; the others serve other users.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use weft_os::thread;
use weft_sync::Mutex;

use crate::guard;

/// Threads for one user, and for all, at most. Each ends when no job is left.
const THREADS_OF_USER_MAX: usize = 4;
const THREADS_MAX: usize = 16;
/// Open jobs. With more no client is accepted, since each job holds a descriptor.
const JOBS_MAX: usize = 256;

/// Work on a descriptor of a client.
type UserJob = Box<dyn FnOnce() + Send>;

/// The threads and their jobs.
#[derive(Clone, Default)]
pub struct ForeignUserWorkers(Arc<Mutex<Jobs>>);

#[derive(Default)]
struct Jobs {
    by_user: HashMap<u32, UserJobs>,
    threads: usize,
    /// Jobs that wait or run.
    open: usize,
}

/// The jobs of one user.
#[derive(Default)]
struct UserJobs {
    waiting: VecDeque<UserJob>,
    running: usize,
}

impl ForeignUserWorkers {
    /// Runs a job for a client of this user.
    pub fn send(&self, user: u32, job: impl FnOnce() + Send + 'static) {
        let mut jobs = self.0.lock();
        jobs.open += 1;
        jobs.by_user.entry(user).or_default().waiting.push_back(Box::new(job));
        if jobs.threads < THREADS_MAX && jobs.is_any_ready() {
            let workers = self.clone();
            // Without a thread the job waits for the next one.
            let spawned = thread::spawn(c"weft-handoff", || workers.work());
            jobs.threads += usize::from(spawned.is_ok());
        }
    }

    /// Whether there are too many open jobs.
    pub fn are_busy(&self) -> bool {
        self.0.lock().open >= JOBS_MAX
    }

    fn work(self) {
        guard::stay();
        let mut done = None;
        while let Some((user, job)) = self.next(done) {
            job();
            done = Some(user);
        }
    }

    /// The next job of a thread that has just run one of the user `done`; without one it ends.
    fn next(&self, done: Option<u32>) -> Option<(u32, UserJob)> {
        let mut jobs = self.0.lock();
        if let Some(user) = done {
            jobs.open -= 1;
            let own = jobs.by_user.entry(user).or_default();
            own.running -= 1;
            if own.running == 0 && own.waiting.is_empty() {
                jobs.by_user.remove(&user);
            }
        }
        let next = jobs.take();
        jobs.threads -= usize::from(next.is_none());
        next
    }
}

impl Jobs {
    fn is_any_ready(&self) -> bool {
        self.by_user.values().any(UserJobs::is_ready)
    }

    fn take(&mut self) -> Option<(u32, UserJob)> {
        let (user, own) = self.by_user.iter_mut().find(|(_, own)| own.is_ready())?;
        let job = own.waiting.pop_front()?;
        own.running += 1;
        Some((*user, job))
    }
}

impl UserJobs {
    fn is_ready(&self) -> bool {
        self.running < THREADS_OF_USER_MAX && !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_user_that_blocks_its_threads_does_not_block_others() {
        let workers = ForeignUserWorkers::default();
        let (held, (said, hears)) = (Arc::new(Mutex::new(())), channel());
        let lock = held.lock();
        for _ in 0..JOBS_MAX {
            let held = Arc::clone(&held);
            workers.send(1, move || drop(held.lock()));
        }
        assert!(workers.are_busy());
        for user in 2..10 {
            let said = said.clone();
            workers.send(user, move || said.send(user).unwrap());
        }
        let mut heard: Vec<u32> = hears.iter().take(8).collect();
        heard.sort_unstable();
        assert_eq!(heard, (2..10).collect::<Vec<_>>());
        drop(lock);
        workers.send(1, move || said.send(1).unwrap());
        assert_eq!(hears.recv(), Ok(1));
    }
}
