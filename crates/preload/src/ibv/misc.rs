//! Functions without an object: names of values, fork, and the few files of sysfs that libraries
//! read through libibverbs.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use super::query::copy_to_caller;
use crate::real::{next, pass_when_off};
use crate::view;
use weft_verbs_abi::*;

/// The rdma-cm ABI whose library functions the ones here stand in for.
const RDMA_CM_ABI: &str = "4";

/// `ibv_fork_init`: nothing is pinned, so there is nothing to protect from copy-on-write. What
/// `RDMAV_FORK_SAFE` asks for is therefore always the case.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_fork_init() -> c_int {
    pass_when_off!(ibv_fork_init());
    0
}

/// `ibv_is_fork_initialized`.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_is_fork_initialized() -> c_int {
    pass_when_off!(ibv_is_fork_initialized());
    IBV_FORK_UNNEEDED
}

/// `ibv_get_sysfs_path`.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    pass_when_off!(ibv_get_sysfs_path());
    c"/sys".as_ptr()
}

/// `ibv_read_sysfs_file`: the length read without a final newline, or -1.
///
/// Answers for the devices, of which the kernel knows nothing, and for the version of rdma-cm,
/// which the rsocket code of librdmacm asks for; other files are really read.
///
/// # Safety
/// `dir` and `file` are NUL-terminated; `buf` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    pass_when_off!(ibv_read_sysfs_file(dir, file, buf, size));
    // SAFETY: NUL-terminated by contract.
    let dir = unsafe { CStr::from_ptr(dir) };
    // SAFETY: NUL-terminated by contract.
    let file = unsafe { CStr::from_ptr(file) };
    if let Some(text) = virtual_file(dir, file) {
        // SAFETY: `buf` has `size` bytes by contract.
        return unsafe { copy_to_caller(&text, buf, size) } as c_int;
    }
    let path = [dir.to_bytes(), b"/", file.to_bytes(), b"\0"].concat();
    // SAFETY: `buf` has `size` bytes by contract.
    unsafe { read_file(&path, buf, size) }
}

fn virtual_file(dir: &CStr, file: &CStr) -> Option<String> {
    let file = file.to_bytes();
    if file.ends_with(b"rdma_cm/abi_version") {
        return Some(RDMA_CM_ABI.to_owned());
    }
    let path = CString::new([dir.to_bytes(), b"/", file].concat()).ok()?;
    view::text(&path).map(|text| text.trim_end().to_owned())
}

/// # Safety
/// `path` ends with a NUL; `buf` has room for `size` bytes.
unsafe fn read_file(path: &[u8], buf: *mut c_char, size: usize) -> c_int {
    // SAFETY: NUL-terminated by contract.
    let fd = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return -1;
    }
    // SAFETY: `buf` has `size` bytes by contract.
    let len = unsafe { libc::read(fd, buf.cast::<c_void>(), size) };
    // SAFETY: the descriptor was opened above.
    unsafe { libc::close(fd) };
    if len <= 0 {
        return len as c_int;
    }
    let mut len = len as usize;
    let last = buf.wrapping_add(len - 1);
    // SAFETY: `read` filled `len` bytes.
    if unsafe { last.read() } == b'\n' as c_char {
        len -= 1;
        // SAFETY: as above.
        unsafe { last.write(0) };
    } else if len < size {
        // SAFETY: `len` is below `size`.
        unsafe { buf.wrapping_add(len).write(0) };
    }
    len as c_int
}

/// Defines a function that names the values of an enumeration: in the words of the real library
/// where there is one, since users know those, otherwise in ours.
macro_rules! names {
    ($(#[$doc:meta])* $function:ident: [$($name:literal),* $(,)?]) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// None needed.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(value: c_int) -> *const c_char {
            if let Some(real) = next!($function(value)) {
                // SAFETY: the same function of the real library, which any value may be given.
                return unsafe { real(value) };
            }
            const NAMES: &[&CStr] = &[$($name),*];
            let name = usize::try_from(value).ok().and_then(|v| NAMES.get(v));
            name.map_or(c"unknown".as_ptr(), |n| n.as_ptr())
        }
    };
}

names!(
    /// `ibv_node_type_str`.
    ibv_node_type_str: [
        c"unknown", c"channel adapter", c"switch", c"router", c"RNIC", c"usNIC", c"usNIC over UDP",
        c"unspecified",
    ]
);

names!(
    /// `ibv_port_state_str`.
    ibv_port_state_str: [c"none", c"down", c"initialising", c"armed", c"active", c"deferred"]
);

names!(
    /// `ibv_event_type_str`.
    ibv_event_type_str: [
        c"completion queue error", c"queue pair failed", c"queue pair got an invalid request",
        c"queue pair access error", c"communication established", c"send queue drained",
        c"path migrated", c"path migration failed", c"device failed", c"port active",
        c"port error", c"LID change", c"partition key change", c"subnet manager change",
        c"shared receive queue failed", c"shared receive queue below its limit",
        c"last receive taken", c"client reregistration", c"GID change", c"work queue failed",
    ]
);

names!(
    /// `ibv_wc_status_str`.
    ibv_wc_status_str: [
        c"success", c"local length error", c"local queue pair operation error",
        c"local context operation error", c"local protection error", c"flushed",
        c"memory window error", c"bad response", c"local access error",
        c"remote invalid request", c"remote access error", c"remote operation error",
        c"retries exceeded", c"receiver-not-ready retries exceeded", c"local domain violation",
        c"remote invalid read", c"aborted by the peer", c"invalid context number",
        c"invalid context state", c"fatal error", c"response timeout", c"general error",
    ]
);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dir: &CStr, file: &CStr) -> (c_int, String) {
        let mut buf = [0x7f as c_char; 16];
        let (to, room) = (buf.as_mut_ptr(), buf.len());
        // SAFETY: NUL-terminated names and a buffer of this size.
        let len = unsafe { ibv_read_sysfs_file(dir.as_ptr(), file.as_ptr(), to, room) };
        let text = buf.iter().take(usize::try_from(len).unwrap_or(0)).map(|c| *c as u8 as char);
        (len, text.collect())
    }

    #[test]
    fn files_of_the_device_are_answered_and_others_read() {
        assert_eq!(read(c"/sys", c"class/misc/rdma_cm/abi_version"), (1, "4".into()));
        assert_eq!(read(c"/sys/class/infiniband/weft_iw0", c"node_type"), (7, "4: RNIC".into()));
        assert_eq!(read(c"/sys/class/infiniband/weft0", c"node_type"), (5, "1: CA".into()));
        assert_eq!(read(c"/sys/class/infiniband/weft_iw0", c"nothing").0, -1);
        assert!(read(c"/proc/self", c"comm").0 > 0);
        assert!(!read(c"/proc/self", c"comm").1.contains('\n'));
    }

    #[test]
    fn values_have_names_also_out_of_range() {
        for value in [-1, 0, 5, 21, 1000] {
            // SAFETY: any value may be passed.
            let name = unsafe { ibv_wc_status_str(value) };
            // SAFETY: names are NUL-terminated and live for ever.
            assert!(!unsafe { CStr::from_ptr(name) }.is_empty());
        }
    }
}
