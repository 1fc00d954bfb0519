//! The message that two processes exchange about an accepted connection: one byte, with one
//! descriptor or none. Nothing is sent or received here.
//!
//! Control data are those of Linux: messages of a header (length, level, type) and data, each
//! aligned to the size of an address.

use std::mem::{offset_of, size_of};
use std::os::fd::RawFd;

use libc::{c_int, cmsghdr};

/// The only byte of a message; a descriptor travels with it.
pub const WORD: u8 = 0;
/// Bytes of a descriptor, and of the header before it.
const FD: usize = size_of::<RawFd>();
const HEADER: usize = size_of::<cmsghdr>();
/// Bytes of control data with a descriptor. The kernel passes as many descriptors as there is room
/// for, so this is all the room that a receiver has.
pub const CONTROL: usize = HEADER + FD;

/// The content of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum HandoffContent {
    /// The byte without a descriptor.
    Nothing,
    /// The byte with a descriptor.
    One(RawFd),
    /// A malformed message, and all descriptors that came with it.
    Bad(Vec<RawFd>),
}

/// The control data that pass a descriptor.
pub fn pack(fd: RawFd) -> [u8; CONTROL] {
    let mut control = [0; CONTROL];
    let mut put = |at: usize, bytes: &[u8]| control[at..at + bytes.len()].copy_from_slice(bytes);
    put(offset_of!(cmsghdr, cmsg_len), &CONTROL.to_ne_bytes());
    put(offset_of!(cmsghdr, cmsg_level), &libc::SOL_SOCKET.to_ne_bytes());
    put(offset_of!(cmsghdr, cmsg_type), &libc::SCM_RIGHTS.to_ne_bytes());
    put(HEADER, &fd.to_ne_bytes());
    control
}

/// The content of a message of this word and these control data, which may be `cut` off.
pub fn unpack(word: &[u8], control: &[u8], cut: bool) -> HandoffContent {
    let (fds, understood) = descriptors(control);
    match fds[..] {
        _ if word != [WORD] || cut || !understood => HandoffContent::Bad(fds),
        [] => HandoffContent::Nothing,
        [fd] => HandoffContent::One(fd),
        _ => HandoffContent::Bad(fds),
    }
}

/// The descriptors in control data, and whether there is nothing else.
fn descriptors(mut control: &[u8]) -> (Vec<RawFd>, bool) {
    let mut fds = Vec::new();
    let mut understood = true;
    while !control.is_empty() {
        let Some((len, rights)) = header(control) else { return (fds, false) };
        let Some(data) = control.get(HEADER..len) else { return (fds, false) };
        if rights {
            let whole = data.chunks_exact(FD);
            understood &= whole.len() > 0 && whole.remainder().is_empty();
            fds.extend(whole.filter_map(|fd| fd.try_into().ok()).map(RawFd::from_ne_bytes));
        }
        understood &= rights;
        control = control.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
    }
    (fds, understood)
}

/// The length in bytes of the first message, and whether it passes descriptors.
fn header(control: &[u8]) -> Option<(usize, bool)> {
    let int = |at: usize| Some(c_int::from_ne_bytes(*control.get(at..)?.first_chunk()?));
    let len = control.get(offset_of!(cmsghdr, cmsg_len)..)?.first_chunk()?;
    let (level, kind) =
        (int(offset_of!(cmsghdr, cmsg_level))?, int(offset_of!(cmsghdr, cmsg_type))?);
    let rights = (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    Some((usize::from_ne_bytes(*len), rights))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_there() {
        assert_eq!(unpack(&[WORD], &pack(7), false), HandoffContent::One(7));
        assert_eq!(unpack(&[WORD], &[], false), HandoffContent::Nothing);
    }

    #[test]
    fn descriptors_of_a_bad_message_are_told_to_be_closed() {
        assert_eq!(unpack(&[], &pack(7), false), HandoffContent::Bad(vec![7]));
        assert_eq!(unpack(&[WORD], &pack(7), true), HandoffContent::Bad(vec![7]));
        let mut two = pack(7).to_vec();
        two.extend(8_i32.to_ne_bytes());
        two[..size_of::<usize>()].copy_from_slice(&(CONTROL + FD).to_ne_bytes());
        assert_eq!(unpack(&[WORD], &two, false), HandoffContent::Bad(vec![7, 8]));
        assert_eq!(unpack(&[WORD], &pack(7)[..CONTROL - 1], false), HandoffContent::Bad(vec![]));
    }
}
