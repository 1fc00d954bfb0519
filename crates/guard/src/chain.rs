//! The handler of SIGSEGV and SIGBUS, and the application's behind it.
//!
//! The kernel has our handler with the application's mask and flags, so what it prepares for a
//! handler is what the application asked for. What stands behind is a handler, `SIG_DFL` or
//! `SIG_IGN`, of which each word is read and written whole: a handler runs at any time.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use crate::{call, handle_blocked, take_fault};

/// What a handler is called with.
type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The flags that say how a handler is called and when it is forgotten, which ours differ in.
const OWN_FLAGS: c_int = libc::SA_SIGINFO | libc::SA_RESETHAND;

unsafe extern "C" {
    /// The C library's `sigaction` under a name that nobody interposes.
    fn __sigaction(
        signal: c_int,
        action: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> c_int;
}

/// What the application has for one signal.
struct Behind {
    signal: c_int,
    handler: AtomicUsize,
    flags: AtomicI32,
}

static BEHIND: [Behind; 2] = [Behind::new(libc::SIGSEGV), Behind::new(libc::SIGBUS)];

/// Whether [`install`] was called.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

impl Behind {
    const fn new(signal: c_int) -> Self {
        let (handler, flags) = (AtomicUsize::new(libc::SIG_DFL), AtomicI32::new(0));
        Self { signal, handler, flags }
    }

    fn of(signal: c_int) -> Option<&'static Self> {
        BEHIND.iter().find(|behind| behind.signal == signal)
    }

    fn take_over(&self, action: &libc::sigaction) {
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        self.handler.store(action.sa_sigaction, Ordering::Release);
    }

    /// What the kernel is to have so that the application has `action`.
    fn front(&self, action: &libc::sigaction) -> libc::sigaction {
        let mut front = *action;
        front.sa_sigaction = handle as *const () as usize;
        front.sa_flags = action.sa_flags & !OWN_FLAGS | libc::SA_SIGINFO;
        if matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
            // As if there were no handler: a signal that is ignored interrupts no call.
            front.sa_flags |= libc::SA_ONSTACK | libc::SA_RESTART;
        }
        front
    }

    /// What the application has, where the kernel has `front`.
    fn restore(&self, front: &mut libc::sigaction) {
        front.sa_sigaction = self.handler.load(Ordering::Acquire);
        front.sa_flags = self.flags.load(Ordering::Relaxed);
    }

    /// Passes a fault that is not ours on.
    fn pass(&self, info: *mut libc::siginfo_t, context: *mut c_void, is_sent: bool) {
        let handler = self.handler.load(Ordering::Acquire);
        let forgotten = self.flags.load(Ordering::Relaxed) & libc::SA_RESETHAND != 0;
        match handler {
            libc::SIG_IGN if is_sent => {}
            libc::SIG_DFL | libc::SIG_IGN => self.end_by_default(is_sent),
            handler => {
                if forgotten {
                    self.handler.store(libc::SIG_DFL, Ordering::Release);
                }
                // SAFETY: the application gave this address for a handler. One that takes the
                // signal alone leaves the other registers as they are.
                let handler = unsafe { mem::transmute::<usize, Handler>(handler) };
                // SAFETY: what the kernel passed to us, for the same signal.
                unsafe { handler(self.signal, info, context) };
            }
        }
    }

    /// Has the signal end the process, as it would without a handler: at the instruction that
    /// faulted, which runs again, or when this handler returns.
    fn end_by_default(&self, is_sent: bool) {
        // SAFETY: an action of zeroes is valid: the default, no flags, an empty mask.
        let default: libc::sigaction = unsafe { mem::zeroed() };
        // SAFETY: `default` is a live local.
        unsafe { __sigaction(self.signal, &default, ptr::null_mut()) };
        if is_sent {
            // SAFETY: takes no pointers.
            unsafe { libc::raise(self.signal) };
        }
    }
}

unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a `siginfo_t` of its own.
    let told = unsafe { &*info };
    let is_sent = told.si_code <= 0;
    // SAFETY: both signals come with an address, unless somebody sent them.
    if !is_sent && end_access(unsafe { told.si_addr() } as u64, context) {
        return;
    }
    if let Some(behind) = Behind::of(signal) {
        behind.pass(info, context, is_sent);
    }
}

/// Ends the access that faulted at `addr`, if it is one of this crate's.
fn end_access(addr: u64, context: *mut c_void) -> bool {
    // SAFETY: the kernel passes the state of the interrupted thread, which nobody else has.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    if call::end_copy(context) {
        return true;
    }
    let stack = take_fault(addr);
    stack.inspect(|stack| call::end_call(context, *stack)).is_some()
}

fn current(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: an action of zeroes is valid.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: `action` is a live local.
    let asked = unsafe { __sigaction(signal, ptr::null(), &mut action) };
    (asked == 0).then_some(action)
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handle as *const () as usize
}

/// Puts the handler of this crate before the application's, unless it is there.
///
/// An application that changes its handlers by system calls of its own puts ours out of use: call
/// this again when a region is registered.
pub fn install() {
    IS_INSTALLED.store(true, Ordering::Release);
    for behind in &BEHIND {
        let Some(action) = current(behind.signal).filter(|action| !is_ours(action)) else {
            continue;
        };
        behind.take_over(&action);
        // SAFETY: a live action whose handler is good for the flags it has.
        unsafe { __sigaction(behind.signal, &behind.front(&action), ptr::null_mut()) };
    }
}

/// Lets the two signals reach the calling thread: the kernel ends a process whose thread has them
/// blocked when it faults. Whether there is a handler for them.
pub(crate) fn unblock() -> bool {
    let installed = IS_INSTALLED.load(Ordering::Acquire);
    if installed {
        // SAFETY: an empty set is all zeroes.
        let mut set: libc::sigset_t = unsafe { mem::zeroed() };
        for behind in &BEHIND {
            // SAFETY: `set` is a live set.
            unsafe { libc::sigaddset(&mut set, behind.signal) };
        }
        // SAFETY: `set` is a live set, and the old mask is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut()) };
    }
    installed
}

/// The calling thread has changed its mask by `how` and `set`. If the two signals are blocked now,
/// the next access lets them reach it again.
pub fn handle_mask(how: c_int, set: &libc::sigset_t) {
    // SAFETY: `set` is a live set.
    let blocks = |signal| unsafe { libc::sigismember(set, signal) } == 1;
    if how != libc::SIG_UNBLOCK && BEHIND.iter().any(|behind| blocks(behind.signal)) {
        handle_blocked();
    }
}

/// The C library's `sigaction` as the application is to see it: what it says of SIGSEGV and SIGBUS
/// holds for every fault but ours. `None` if this crate has no part in it. A child of `vfork` is a
/// `guest` in this memory, with dispositions of its own: this crate has no part in what it sets.
///
/// # Safety
/// As the C library's: `action` and `old` are null or name one.
pub unsafe fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
    guest: bool,
) -> Option<c_int> {
    let behind = Behind::of(signal).filter(|_| IS_INSTALLED.load(Ordering::Acquire))?;
    let mut before = current(signal)?;
    if is_ours(&before) {
        behind.restore(&mut before);
    }
    // SAFETY: the caller's, null or one action.
    if let Some(action) = unsafe { action.as_ref() } {
        let front = match guest {
            true => *action,
            false => {
                behind.take_over(action);
                behind.front(action)
            }
        };
        // SAFETY: a live action whose handler is good for the flags it has.
        unsafe { __sigaction(signal, &front, ptr::null_mut()) };
    }
    if !old.is_null() {
        // SAFETY: the caller's, room for one action.
        unsafe { old.write(before) };
    }
    Some(0)
}
