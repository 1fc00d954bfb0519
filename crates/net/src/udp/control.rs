//! Control data: what is said to the kernel about a datagram, or by it, beside its bytes.
#![allow(unsafe_code)]

/// Room for everything that is said of one call.
const CONTROL_WORDS: usize = 32;

/// What is said to the kernel, or by it, beside the bytes.
#[derive(Default)]
pub(super) struct ControlMessages {
    pub(super) words: [u64; CONTROL_WORDS],
    pub(super) octets: usize,
}

impl ControlMessages {
    /// Adds something that is said to the kernel.
    pub(super) fn push<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: &T) {
        let len = size_of::<T>() as libc::c_uint;
        // SAFETY: computes a size only.
        let space = unsafe { libc::CMSG_SPACE(len) };
        // SAFETY: as above.
        let whole = unsafe { libc::CMSG_LEN(len) };
        let start = self.octets;
        if start + space as usize > size_of_val(&self.words) {
            debug_assert!(false, "room for every kind of control data");
            return;
        }
        self.octets += space as usize;
        let header: *mut libc::cmsghdr = self.words.as_mut_ptr().wrapping_byte_add(start).cast();
        // SAFETY: all zeroes is valid: integers, with padding among them in some C libraries.
        let mut said: libc::cmsghdr = unsafe { std::mem::zeroed() };
        (said.cmsg_len, said.cmsg_level, said.cmsg_type) = (whole as _, level, kind);
        // SAFETY: the words have room for header and value from `start`, which is aligned because
        // CMSG_SPACE is a multiple of the alignment.
        unsafe { header.write(said) };
        // SAFETY: computes an address only.
        let data = unsafe { libc::CMSG_DATA(header) };
        // SAFETY: as for the header.
        unsafe { data.cast::<T>().write_unaligned(*value) };
    }
}
