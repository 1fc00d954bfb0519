//! Whether the calling process has memory of its own. A child of `vfork` shares its parent's until
//! it executes another program; descriptors, directory and signal dispositions are its own.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use crate::forks;

/// The process whose memory this is; 0 before anybody can have called `vfork`.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Called before `main`, when this cannot be such a child.
// SAFETY: a section of pointers to functions, of which this is one; it ignores their arguments.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_BEGIN: extern "C" fn() = watch;

extern "C" fn watch() {
    adopt();
    forks::in_children(adopt);
}

extern "C" fn adopt() {
    OWNER.store(std::process::id(), Ordering::Relaxed);
}

/// Whether what this process writes to memory is written to its parent's.
pub fn is_guest() -> bool {
    forks::notice();
    let owner = OWNER.load(Ordering::Relaxed);
    owner != 0 && owner != std::process::id()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_fork_is_no_guest_of_its_parent() {
        assert!(!is_guest());
        // SAFETY: the child only looks at a number and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(libc::c_int::from(is_guest())) };
        }
        let mut status = 0;
        // SAFETY: `status` is a live local.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(libc::WEXITSTATUS(status), 0);
        assert!(!is_guest());
    }
}
