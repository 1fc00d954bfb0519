//! The ends of a process that run no handlers.

use std::ffi::c_int;

use crate::rdma;

/// Ends the process: what it has received is acknowledged before, as an adapter would have.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    rdma::say_last_words();
    loop {
        // SAFETY: the call ends every thread and does not return. Not the next definition, which
        // could only be found with the loader's lock, and a child of `fork` may have that for ever.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// The same under its name in C.
#[unsafe(export_name = "_Exit")]
pub extern "C" fn exit_of_c(status: c_int) -> ! {
    _exit(status)
}
