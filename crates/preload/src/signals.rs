//! The application's dispositions of SIGSEGV and SIGBUS, behind the handler for memory that it
//! unmapped while it was registered.

use std::ffi::c_int;
use std::mem;

use crate::errno;
use crate::real::next;

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
    if let Some(answer) = unsafe { weft_guard::sigaction(signal, action, old) } {
        return answer;
    }
    match next!(sigaction(signal, action, old)) {
        // SAFETY: the arguments are the caller's own, for the same function.
        Some(real) => unsafe { real(signal, action, old) },
        None => errno::code(libc::ENOSYS),
    }
}

/// Sets a handler with `flags` if the signal is one that we stand before; `None` if not.
fn set(signal: c_int, handler: libc::sighandler_t, flags: c_int) -> Option<libc::sighandler_t> {
    // SAFETY: an action of zeroes is valid: an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    let mut old = action;
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    // SAFETY: both are live locals.
    unsafe { weft_guard::sigaction(signal, &action, &raw mut old) }?;
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
