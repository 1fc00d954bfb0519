//! Threads that deal with visitors of other users.
//!
//! What such a visitor hands over can hold up whoever touches it: a socket that lingers when it is
//! closed, or that its owner keeps locked, a file whose file system does not answer. So the
//! engine's thread does not touch it, not even to let go of it.
//!
//! Invariant: whoever is held up by one user is one of a few, and others serve the other users.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread;

use weft_sync::Mutex;

use crate::guard;

/// Threads for one user, and in all. Each ends when there is nothing to do.
const OF_ONE_USER: usize = 4;
const AIDES_MAX: usize = 16;
/// Errands that are not done. With more nobody is let in, for they all hold a descriptor.
const ERRANDS_MAX: usize = 256;

/// What is to be done.
type Errand = Box<dyn FnOnce() + Send>;

/// The threads, and what they have to do.
#[derive(Clone, Default)]
pub struct Aides(Arc<Mutex<Errands>>);

#[derive(Default)]
struct Errands {
    of: HashMap<u32, Queue>,
    aides: usize,
    /// Those that wait and those under way.
    open: usize,
}

/// The errands of one user.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Errand>,
    working: usize,
}

impl Aides {
    /// Has something done for a visitor of this user.
    pub fn send(&self, user: u32, errand: impl FnOnce() + Send + 'static) {
        let mut errands = self.0.lock();
        errands.open += 1;
        errands.of.entry(user).or_default().waiting.push_back(Box::new(errand));
        if errands.aides < AIDES_MAX && errands.is_any_ready() {
            let aides = self.clone();
            let started = thread::Builder::new().name("weft-desk".into()).spawn(|| aides.work());
            // Where there is no thread to be had, the next one has two errands.
            errands.aides += usize::from(started.is_ok());
        }
    }

    /// Whether there is too much to do.
    pub fn are_busy(&self) -> bool {
        self.0.lock().open >= ERRANDS_MAX
    }

    fn work(self) {
        guard::stay();
        weft_os::sys::block_signals();
        let mut done = None;
        while let Some((user, errand)) = self.next(done) {
            errand();
            done = Some(user);
        }
    }

    /// What an aide does next, who has just done something for the user `done`; nothing ends it.
    fn next(&self, done: Option<u32>) -> Option<(u32, Errand)> {
        let mut errands = self.0.lock();
        if let Some(user) = done {
            errands.open -= 1;
            let queue = errands.of.entry(user).or_default();
            queue.working -= 1;
            if queue.working == 0 && queue.waiting.is_empty() {
                errands.of.remove(&user);
            }
        }
        let next = errands.take();
        errands.aides -= usize::from(next.is_none());
        next
    }
}

impl Errands {
    fn is_any_ready(&self) -> bool {
        self.of.values().any(Queue::is_ready)
    }

    fn take(&mut self) -> Option<(u32, Errand)> {
        let (user, queue) = self.of.iter_mut().find(|(_, queue)| queue.is_ready())?;
        let errand = queue.waiting.pop_front()?;
        queue.working += 1;
        Some((*user, errand))
    }
}

impl Queue {
    fn is_ready(&self) -> bool {
        self.working < OF_ONE_USER && !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn who_is_held_up_by_one_user_keeps_no_other_waiting() {
        let aides = Aides::default();
        let (held, (said, hears)) = (Arc::new(Mutex::new(())), channel());
        let lock = held.lock();
        for _ in 0..ERRANDS_MAX {
            let held = Arc::clone(&held);
            aides.send(1, move || drop(held.lock()));
        }
        assert!(aides.are_busy());
        for user in 2..10 {
            let said = said.clone();
            aides.send(user, move || said.send(user).unwrap());
        }
        let mut heard: Vec<u32> = hears.iter().take(8).collect();
        heard.sort_unstable();
        assert_eq!(heard, (2..10).collect::<Vec<_>>());
        drop(lock);
        aides.send(1, move || said.send(1).unwrap());
        assert_eq!(hears.recv(), Ok(1));
    }
}
