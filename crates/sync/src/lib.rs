//! The locks of the standard library, without poisoning, and a cell whose first value may fail.
//!
//! The release build aborts on a panic, so no lock of it is ever poisoned, and a thread that
//! panics in a test has failed it already. Unlike the locks of `parking_lot`, these have no table
//! that all of them share, which a child of a fork may find locked.
//!
//! Invariant: no method panics, and none but those that wait blocks.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

use std::sync::{self, OnceLock, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

fn granted<G>(tried: TryLockResult<G>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// [`sync::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Locks it, as soon as nobody else has it locked.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it, unless somebody has it locked.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        granted(self.0.try_lock())
    }
}

/// [`sync::RwLock`].
#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// Locks it for reading, as soon as nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it for reading, unless somebody writes.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        granted(self.0.try_read())
    }

    /// Locks it for writing, as soon as nobody else has it locked.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`sync::Condvar`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// One that nobody waits for.
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Waits until `condition` does not hold any more.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        self.0.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for no longer than `limit`.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout_while(guard, limit, condition);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes one of those who wait, which must all wait for the same.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// [`OnceLock`] for a value that may fail to be made, and is made by a later call then.
#[derive(Debug)]
pub struct TryOnceLock<T> {
    value: OnceLock<T>,
    making: Mutex<()>,
}

impl<T> TryOnceLock<T> {
    /// An empty cell.
    pub const fn new() -> Self {
        Self { value: OnceLock::new(), making: Mutex::new(()) }
    }

    /// The value, if there is one.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// The value; the first call that can makes it, and others wait for that.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let _making = self.making.lock();
        let value = match self.value.get() {
            Some(value) => return Ok(value),
            None => make()?,
        };
        Ok(self.value.get_or_init(|| value))
    }
}

impl<T> Default for TryOnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_under_a_lock_leaves_it_usable() {
        let (mutex, lock) = (Mutex::new(1), RwLock::new(1));
        let under_both = || {
            let _held = (mutex.lock(), lock.write());
            panic!("on purpose");
        };
        assert!(catch_unwind(AssertUnwindSafe(under_both)).is_err());
        *mutex.lock() += 1;
        *lock.write() += 1;
        assert_eq!((*mutex.lock(), *lock.read()), (2, 2));
        assert_eq!((mutex.try_lock().as_deref(), lock.try_read().as_deref()), (Some(&2), Some(&2)));
    }

    #[test]
    fn who_tries_does_not_wait() {
        let (mutex, lock) = (Mutex::new(()), RwLock::new(()));
        let held = (mutex.lock(), lock.write());
        assert!(mutex.try_lock().is_none() && lock.try_read().is_none());
        drop(held);
        assert!(mutex.try_lock().is_some() && lock.try_read().is_some());
    }

    #[test]
    fn a_value_that_fails_is_made_again_and_then_kept() {
        let cell = TryOnceLock::new();
        assert_eq!(cell.get_or_try_init(|| Err::<u8, _>("not yet")), Err("not yet"));
        assert_eq!(cell.get(), None);
        assert_eq!(cell.get_or_try_init(|| Ok::<_, &str>(1)), Ok(&1));
        assert_eq!(cell.get_or_try_init(|| Err("not again")), Ok(&1));
    }

    #[test]
    fn a_wait_ends_when_the_condition_does_or_the_time() {
        let (mutex, changed) = (Mutex::new(0), Condvar::new());
        assert_eq!(*changed.wait_timeout_while(mutex.lock(), Duration::ZERO, |v| *v == 0), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *mutex.lock() = 1;
                changed.notify_all();
            });
            assert_eq!(*changed.wait_while(mutex.lock(), |v| *v == 0), 1);
        });
    }
}
