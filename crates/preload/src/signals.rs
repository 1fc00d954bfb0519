//! The application's dispositions of SIGSEGV and SIGBUS, behind the handler for memory that it
//! unmapped while it was registered, and its masks.

use std::ffi::c_int;
use std::mem;
use std::ptr;

use libc::sigset_t;
use weft_os::borrowed;

use crate::errno;
use crate::real::next;

/// The signals by which the C library cancels threads and changes their rights, 32 and 33.
const OWN_SIGNALS: u64 = 0b11 << 31;
/// Bytes of a set of signals, as the kernel has it.
const KERNEL_SET_BYTES: usize = 8;

/// `sigaction`: once memory is registered, the application's handlers of the two signals stand
/// behind ours, and it does not see that.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's contract is the same.
    let kept = unsafe { weft_guard::sigaction(signal, action, old, borrowed::is_guest()) };
    if let Some(answer) = kept {
        return answer;
    }
    match next!(sigaction(signal, action, old)) {
        // SAFETY: the arguments are the caller's own, for the same function.
        Some(real) => unsafe { real(signal, action, old) },
        None => errno::code(libc::ENOSYS),
    }
}

/// Changes the mask of this thread as the C library does, which keeps its own two signals out of
/// it; gives an errno, and leaves `errno` alone. By a system call: a handler may do it, where the
/// next definition could not be looked for.
///
/// # Safety
/// As of `pthread_sigmask`.
unsafe fn change_mask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    let before = errno::get();
    // SAFETY: null or a set, by contract.
    let mut wanted = unsafe { set.as_ref() }.copied();
    if let Some(wanted) = &mut wanted {
        // SAFETY: a set begins with what the kernel has of it. Those of the C library refuse these.
        unsafe { *ptr::from_mut(wanted).cast::<u64>() &= !OWN_SIGNALS };
    }
    let at = wanted.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: a live set or null, and the caller's, of which the kernel writes the first bytes.
    let done = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, at, old, KERNEL_SET_BYTES) };
    let code = if done < 0 { errno::get() } else { 0 };
    errno::set(before);
    if let (0, Some(wanted)) = (code, &wanted) {
        weft_guard::handle_mask(how, wanted);
    }
    code
}

/// `pthread_sigmask`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    // SAFETY: the caller's contract is the same.
    unsafe { change_mask(how, set, old) }
}

/// `sigprocmask`, the same with `errno`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    // SAFETY: the caller's contract is the same.
    match unsafe { change_mask(how, set, old) } {
        0 => 0,
        code => errno::minus_one(code),
    }
}

/// Sets a handler with `flags` if the signal is one that we stand before; `None` if not.
fn set(signal: c_int, handler: libc::sighandler_t, flags: c_int) -> Option<libc::sighandler_t> {
    // SAFETY: an action of zeroes is valid: an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    let mut old = action;
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    // SAFETY: both are live locals.
    unsafe { weft_guard::sigaction(signal, &action, &raw mut old, borrowed::is_guest()) }?;
    Some(old.sa_sigaction)
}

/// Defines a function that sets a handler with certain flags.
macro_rules! setter {
    ($(#[$doc:meta])* $name:ident, $flags:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            signal: c_int,
            handler: libc::sighandler_t,
        ) -> libc::sighandler_t {
            if let Some(old) = set(signal, handler, $flags) {
                return old;
            }
            match next!($name(signal, handler)) {
                // SAFETY: the arguments are the caller's own, for the same function.
                Some(real) => unsafe { real(signal, handler) },
                None => {
                    errno::set(libc::ENOSYS);
                    libc::SIG_ERR
                }
            }
        }
    };
}

setter!(
    /// `signal`, whose handlers stay and let calls go on.
    signal,
    libc::SA_RESTART
);
setter!(
    /// `bsd_signal`, the same.
    bsd_signal,
    libc::SA_RESTART
);
setter!(
    /// `ssignal`, the same.
    ssignal,
    libc::SA_RESTART
);
setter!(
    /// `sysv_signal`, whose handlers are called once.
    sysv_signal,
    libc::SA_RESETHAND | libc::SA_NODEFER
);
setter!(
    /// `__sysv_signal`, which `signal` is where programs are compiled for System V.
    __sysv_signal,
    libc::SA_RESETHAND | libc::SA_NODEFER
);
