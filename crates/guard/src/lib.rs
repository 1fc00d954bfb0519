//! Access to memory that may be gone, which fails instead of killing the process.
//!
//! Registered memory stays the application's: it can unmap what a region still names. An adapter
//! meets that as a page fault of its own and fails the request. Here it is a SIGSEGV or SIGBUS of
//! the process, and [`attempt`] turns it into `false`.
//!
//! Order of calls: [`install`] before the first region is registered, [`attempt`] around each
//! access ([`read`], [`write()`]). Whoever interposes the C library's `sigaction` passes
//! the call to [`sigaction`], so that the application's handlers get every other fault, with their
//! own masks, flags and stacks; and tells of each change of a thread's mask by [`handle_mask`].
//!
//! Invariant: a fault outside of an [`attempt`] has the effect that it would have without this
//! crate.

#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod call;
mod chain;

use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

pub use chain::{handle_mask, install, sigaction};

/// The access under way on a thread.
struct GuardedAccess {
    /// The stack to return to if it faults; null while there is no access.
    stack: Cell<*mut c_void>,
    /// The memory that may be gone. A fault elsewhere is that of a signal handler that interrupted
    /// the access.
    first: Cell<u64>,
    end: Cell<u64>,
    /// Whether the signals can reach the thread.
    is_ready: Cell<bool>,
}

thread_local! {
    static ACCESS: GuardedAccess = const {
        GuardedAccess {
            stack: Cell::new(ptr::null_mut()),
            first: Cell::new(0),
            end: Cell::new(0),
            is_ready: Cell::new(false),
        }
    };
}

/// Performs `access`, which reads or writes memory of which that at `range` may be gone; whether
/// none of it was. If some was, the access ended there.
///
/// Without [`install`], and on processors other than x86-64 and AArch64, a fault has its usual
/// effect.
///
/// # Safety
/// `access` may end at any of its reads and writes: it holds no lock and nothing that has to be
/// dropped, and what it leaves half done is sound. It does not call [`attempt`].
#[inline]
pub unsafe fn attempt<A: FnOnce()>(range: Range<u64>, access: A) -> bool {
    const { assert!(!std::mem::needs_drop::<A>(), "an access that faults drops nothing") };
    let mut access = Some(access);
    let data = (&raw mut access).cast();
    prepare();
    ACCESS.with(|this| {
        this.first.set(range.start);
        this.end.set(range.end);
        // SAFETY: `perform::<A>` takes a pointer to an `Option<A>`; the slot lives as long as the
        // thread; the caller vouches for an access that ends early.
        unsafe { call::guarded(this.stack.as_ptr(), perform::<A>, data) == 0 }
    })
}

/// Sees to it that the signals reach this thread.
#[inline]
fn prepare() {
    ACCESS.with(|this| {
        if !this.is_ready.get() {
            this.is_ready.set(chain::unblock());
        }
    });
}

/// The signals may be blocked on this thread by now.
fn handle_blocked() {
    ACCESS.with(|this| this.is_ready.set(false));
}

unsafe extern "C" fn perform<A: FnOnce()>(data: *mut c_void) {
    // SAFETY: `attempt` passes its own `Option<A>`, which nothing else refers to.
    let access = unsafe { &mut *data.cast::<Option<A>>() };
    if let Some(access) = access.take() {
        access();
    }
}

/// The stack to return to after a fault at `addr`, if that ends an access of this thread.
fn take_fault(addr: u64) -> Option<*mut c_void> {
    ACCESS.with(|this| {
        let stack = this.stack.get();
        let is_ours = !stack.is_null() && (this.first.get()..this.end.get()).contains(&addr);
        is_ours.then(|| this.stack.replace(ptr::null_mut()))
    })
}

/// Copies `bytes` to `to`, which may be gone; whether it was not. If it was, some may be written.
///
/// Eight bytes for a multiple of eight appear at once, and after what was written before.
///
/// # Safety
/// The application registered the memory at `to`: it may change at any time, but is nobody's but
/// the application's.
#[inline]
pub unsafe fn write(to: u64, bytes: &[u8]) -> bool {
    if let (Ok(word), true) = (<[u8; 8]>::try_from(bytes), to.is_multiple_of(8))
        && call::SMALL_MAX < word.len()
    {
        // SAFETY: the caller vouches for `to`, which is aligned.
        let cell = unsafe { AtomicU64::from_ptr(to as *mut u64) };
        let store = || cell.store(u64::from_ne_bytes(word), Ordering::Release);
        // SAFETY: one store holds nothing.
        return unsafe { attempt(to..to.saturating_add(8), store) };
    }
    // SAFETY: the caller vouches for `to`; `bytes` is live.
    unsafe { copy(to as *mut u8, bytes.as_ptr(), bytes.len(), to) }
}

/// Copies `len` bytes from `from`, which may be gone, to `out`; whether it was not.
///
/// # Safety
/// As of [`write()`] for `from`; `out` has room for `len` bytes.
#[inline]
pub unsafe fn read(from: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: the caller vouches for both.
    unsafe { copy(out, from as *const u8, len, from) }
}

/// Copies `len` bytes between live memory and that at `gone`, which may be gone.
///
/// # Safety
/// As of [`read`] and [`write()`].
#[inline]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize, gone: u64) -> bool {
    if len <= call::SMALL_MAX {
        prepare();
        // SAFETY: one is live and the other may be gone, and it is short enough.
        return unsafe { call::copy_small(to, from, len) } == 0;
    }
    // SAFETY: the caller vouches for both. They may be the same memory.
    let copy = || unsafe { ptr::copy(from, to, len) };
    // SAFETY: a copy holds nothing.
    unsafe { attempt(gone..gone.saturating_add(len as u64), copy) }
}

/// Whether every page of `len` bytes at `addr` can be read, as of now.
pub fn is_readable(addr: u64, len: u64) -> bool {
    const PAGE: u64 = 4096;
    let Some(end) = addr.checked_add(len) else { return false };
    let mut byte = 0;
    // SAFETY: any address may be read so, and `byte` is live.
    let mut touch = |at: u64| unsafe { read(at, &mut byte, 1) };
    len == 0
        || touch(addr)
            && touch(end - 1)
            && (addr | (PAGE - 1)..end).step_by(PAGE as usize).all(&mut touch)
}

#[cfg(test)]
mod tests;
