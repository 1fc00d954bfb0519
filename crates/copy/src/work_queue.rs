//! A queue between threads: many put, many take. Who puts wakes one that takes, and who takes wakes
//! those that put only if the queue was full.
//!
//! Invariant: once it is closed nothing is put, and who takes gets what is left and then nothing.
//!
//! Order: any.

use std::collections::VecDeque;

use weft_sync::{Condvar, Mutex};

struct QueueState<T> {
    waiting: VecDeque<T>,
    is_closed: bool,
}

pub(crate) struct WorkQueue<T> {
    state: Mutex<QueueState<T>>,
    /// Something waits, or the queue is closed.
    filled: Condvar,
    /// There is room again, or the queue is closed.
    drained: Condvar,
    most: usize,
}

impl<T> WorkQueue<T> {
    /// A queue that holds `most`; who puts more waits.
    pub fn new(most: usize) -> Self {
        let state = QueueState { waiting: VecDeque::new(), is_closed: false };
        Self {
            state: Mutex::new(state),
            filled: Condvar::default(),
            drained: Condvar::default(),
            most,
        }
    }

    /// Whether it was taken.
    pub fn put(&self, item: T) -> bool {
        let is_full =
            |state: &mut QueueState<T>| state.waiting.len() >= self.most && !state.is_closed;
        let mut state = self.drained.wait_while(self.state.lock(), is_full);
        if state.is_closed {
            return false;
        }
        state.waiting.push_back(item);
        drop(state);
        self.filled.notify_one();
        true
    }

    /// The same without waiting for room, and without waking who takes: [`WorkQueue::wake`] does so
    /// for several at once.
    pub fn add(&self, item: T) -> bool {
        let mut state = self.state.lock();
        if !state.is_closed {
            state.waiting.push_back(item);
        }
        !state.is_closed
    }

    /// Waits until one that is put would not wait, or the queue is closed.
    pub fn wait_for_room(&self) {
        let is_full =
            |state: &mut QueueState<T>| state.waiting.len() >= self.most && !state.is_closed;
        drop(self.drained.wait_while(self.state.lock(), is_full));
    }

    /// Wakes who takes, if something waits.
    pub fn wake(&self) {
        if !self.state.lock().waiting.is_empty() {
            self.filled.notify_one();
        }
    }

    pub fn take(&self) -> Option<T> {
        let is_idle = |state: &mut QueueState<T>| state.waiting.is_empty() && !state.is_closed;
        let mut state = self.filled.wait_while(self.state.lock(), is_idle);
        let was_full = state.waiting.len() >= self.most;
        let item = state.waiting.pop_front();
        drop(state);
        if was_full {
            self.drained.notify_all();
        }
        item
    }

    /// All that waits, at least one; `None` once it is closed and empty.
    pub fn take_all(&self) -> Option<Vec<T>> {
        let first = self.take()?;
        let mut all = vec![first];
        all.extend(self.state.lock().waiting.drain(..));
        self.drained.notify_all();
        Some(all)
    }

    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.filled.notify_all();
        self.drained.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn who_waits_for_room_goes_on_once_all_is_taken_or_it_is_closed() {
        for is_closed in [false, true] {
            let queue = Arc::new(WorkQueue::new(2));
            assert!(queue.add(1));
            queue.wait_for_room();
            assert!(queue.add(2) && queue.add(3));
            let waiting = thread::spawn({
                let queue = Arc::clone(&queue);
                move || {
                    queue.wait_for_room();
                    let state = queue.state.lock();
                    (state.waiting.len(), state.is_closed)
                }
            });
            if is_closed {
                queue.close();
            } else {
                assert_eq!(queue.take_all().unwrap().len(), 3);
            }
            let left = if is_closed { 3 } else { 0 };
            assert_eq!(waiting.join().unwrap(), (left, is_closed));
        }
    }
}
