//! C structures with what only this library sees behind them, and the pthread objects inside.
//!
//! An application holds a pointer to the public part and may read and write it at any time, so it
//! is never borrowed as a Rust reference; only the tail is.

use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};

use weft_os::calls::sleeping;

/// A public C structure and its private tail, in one allocation that does not move.
#[repr(C)]
pub struct Object<P, T> {
    public: UnsafeCell<P>,
    tail: T,
}

impl<P, T> Object<P, T> {
    /// Makes an object; the application gets the pointer.
    pub fn make(public: P, tail: T) -> *mut P {
        Box::into_raw(Box::new(Self { public: UnsafeCell::new(public), tail })).cast()
    }

    /// The private tail of the structure.
    ///
    /// # Safety
    /// `public` came from [`Self::make`] of the same types and is not freed while the reference
    /// lives.
    pub unsafe fn tail<'a, Q>(public: *mut Q) -> &'a T {
        let tail = public.wrapping_byte_add(offset_of!(Self, tail)).cast::<T>();
        // SAFETY: the object is alive by contract; the tail is only shared.
        unsafe { &*tail }
    }

    /// Frees an object and drops its tail.
    ///
    /// # Safety
    /// `public` came from [`Self::make`] of the same types, and nothing uses it any more.
    pub unsafe fn free<Q>(public: *mut Q) {
        // SAFETY: made by `Box::into_raw` and not freed before, by contract.
        drop(unsafe { Box::from_raw(public.cast::<Self>()) });
    }
}

/// A number for the `handle` field of an object. Applications only print and compare it.
pub fn handle() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A mutex that one function locks and another unlocks, as the begin and end of a builder do.
pub struct SpanLock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex may be used from any thread.
unsafe impl Send for SpanLock {}
// SAFETY: as above.
unsafe impl Sync for SpanLock {}

impl SpanLock {
    /// A new lock, which is free.
    pub fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    /// Waits for it. It must not move while locked.
    pub fn lock(&self) {
        // SAFETY: an initialised mutex.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    /// Ends what [`Self::lock`] began, on the same thread.
    pub fn unlock(&self) {
        // SAFETY: an initialised mutex.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// The count of acknowledged events of an object, where the C structure keeps it.
pub struct AckCounts {
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    completed: *mut u32,
}

impl AckCounts {
    /// The count of `object`, whose mutex, condition and counter are at these offsets.
    pub fn at<P>(object: *mut P, [mutex, cond, completed]: [usize; 3]) -> Self {
        Self {
            mutex: object.wrapping_byte_add(mutex).cast(),
            cond: object.wrapping_byte_add(cond).cast(),
            completed: object.wrapping_byte_add(completed).cast(),
        }
    }

    /// Adds `count` acknowledgements.
    ///
    /// # Safety
    /// The object is alive, and has its pthread objects at the offsets that were given.
    pub unsafe fn add(&self, count: u32) {
        // SAFETY: alive by contract.
        unsafe { libc::pthread_mutex_lock(self.mutex) };
        // SAFETY: alive by contract; the mutex guards it.
        let completed = unsafe { &mut *self.completed };
        *completed = completed.wrapping_add(count);
        // SAFETY: alive by contract.
        unsafe { libc::pthread_cond_signal(self.cond) };
        // SAFETY: locked above.
        unsafe { libc::pthread_mutex_unlock(self.mutex) };
    }

    /// Waits until `reported` events are acknowledged.
    ///
    /// # Safety
    /// The object is alive, and has its pthread objects at the offsets that were given.
    pub unsafe fn wait(&self, reported: u32) {
        // SAFETY: alive by contract.
        unsafe { libc::pthread_mutex_lock(self.mutex) };
        loop {
            // SAFETY: alive by contract; the mutex guards it.
            let completed = unsafe { *self.completed };
            if completed == reported {
                break;
            }
            // SAFETY: the mutex is locked by this thread.
            sleeping(|| unsafe { libc::pthread_cond_wait(self.cond, self.mutex) });
        }
        // SAFETY: locked above.
        unsafe { libc::pthread_mutex_unlock(self.mutex) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_found_behind_any_view_of_the_public_part() {
        let public = Object::make([1_u64; 3], String::from("tail"));
        // SAFETY: made just above with these types.
        let tail = unsafe { Object::<[u64; 3], String>::tail(public.cast::<u64>()) };
        assert_eq!(tail, "tail");
        // SAFETY: as above; `tail` is not used any more.
        unsafe { Object::<[u64; 3], String>::free(public) };
    }

    #[test]
    fn waiting_ends_with_the_last_acknowledgement() {
        struct Public {
            mutex: libc::pthread_mutex_t,
            cond: libc::pthread_cond_t,
            completed: u32,
        }
        let mut object = Public {
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            cond: libc::PTHREAD_COND_INITIALIZER,
            completed: u32::MAX,
        };
        let address = (&raw mut object) as usize;
        let offsets =
            [offset_of!(Public, mutex), offset_of!(Public, cond), offset_of!(Public, completed)];
        let acks = move || AckCounts::at(address as *mut Public, offsets);
        std::thread::scope(|scope| {
            // SAFETY: the object outlives the scope.
            scope.spawn(move || unsafe { acks().wait(1) });
            // SAFETY: as above.
            scope.spawn(move || unsafe { acks().add(1) });
            // SAFETY: as above.
            scope.spawn(move || unsafe { acks().add(1) });
        });
        assert_eq!(object.completed, 1);
    }
}
