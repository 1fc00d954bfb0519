//! Users of other processes, as the kernel tells them.
//!
//! In a user namespace the kernel tells every user that is not mapped there as one and the same,
//! the overflow user (user_namespaces(7)). Invariant: such a user is nobody's equal, not even its
//! own.

use std::fs;
use std::sync::OnceLock;

use crate::sys;

/// The overflow user of a kernel that does not say it.
const OVERFLOW_USER: u32 = 65_534;
/// The map of a namespace in which all users are what they are.
const EVERYBODY: [&str; 3] = ["0", "0", "4294967295"];

/// Whether `user`, as the kernel tells it, may stand for users that are not mapped.
pub fn is_overflow(user: u32) -> bool {
    static OVERFLOW: OnceLock<u32> = OnceLock::new();
    user == *OVERFLOW.get_or_init(overflow_user)
}

/// Whether `user`, as the kernel tells it, is a single user.
pub fn is_known(user: u32) -> bool {
    !is_overflow(user) || knows_everybody()
}

/// Whether `user`, as the kernel tells it, is the one that this process acts as.
pub fn is_own(user: u32) -> bool {
    user == sys::user() && is_known(user)
}

fn overflow_user() -> u32 {
    let set = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    set.and_then(|text| text.trim().parse().ok()).unwrap_or(OVERFLOW_USER)
}

fn knows_everybody() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| is_whole(&map))
}

fn is_whole(map: &str) -> bool {
    map.split_whitespace().eq(EVERYBODY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_knows_everybody_if_its_map_is_whole() {
        assert!(is_whole("         0          0 4294967295\n"));
        for map in ["", "0 1000 1\n", "0 0 65536\n", "0 0 4294967295\n0 0 1\n"] {
            assert!(!is_whole(map), "{map:?}");
        }
    }

    #[test]
    fn users_but_the_overflow_user_are_what_they_are() {
        assert!(is_known(0) && is_known(1000));
        assert_eq!(is_known(overflow_user()), knows_everybody());
        assert!(!is_own(sys::user().wrapping_add(1)));
    }
}
