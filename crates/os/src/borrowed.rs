//! Whether the calling process has memory of its own. A child of `vfork` shares its parent's until
//! it executes another program; descriptors, directory and signal dispositions are its own.
#![allow(unsafe_code)]

use crate::forks;

/// Called before `main`, when this cannot be such a child.
// SAFETY: a section of pointers to functions, of which this is one; it ignores their arguments.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_BEGIN: extern "C" fn() = watch;

extern "C" fn watch() {
    forks::begin();
}

/// Whether what this process writes to memory is written to its parent's.
pub fn is_guest() -> bool {
    forks::owner().is_some_and(|owner| owner != std::process::id())
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
