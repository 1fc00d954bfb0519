//! The message that two processes exchange at a desk: one octet, and beside it a descriptor, or
//! none. Nothing is sent or received here.
//!
//! Control data are those of Linux: messages of a header (length, level, type) and data, each of
//! which begins at a multiple of the size of an address.

use std::mem::{offset_of, size_of};
use std::os::fd::RawFd;

use libc::{c_int, cmsghdr};

/// The octet.
pub const WORD: u8 = 0;
/// Octets of a descriptor, and of the header before it.
const FD: usize = size_of::<RawFd>();
const HEADER: usize = size_of::<cmsghdr>();
/// Octets of control data with a descriptor. The kernel hands over as many as there is room for, so
/// there is no more.
pub const CONTROL: usize = HEADER + FD;

/// What has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    /// The octet alone.
    Nothing,
    /// A descriptor.
    One(RawFd),
    /// Something that nobody sends who means well; all descriptors that came with it.
    Bad(Vec<RawFd>),
}

/// The control data that hand over a descriptor.
pub fn pack(fd: RawFd) -> [u8; CONTROL] {
    let mut control = [0; CONTROL];
    let mut put = |at: usize, octets: &[u8]| control[at..at + octets.len()].copy_from_slice(octets);
    put(offset_of!(cmsghdr, cmsg_len), &CONTROL.to_ne_bytes());
    put(offset_of!(cmsghdr, cmsg_level), &libc::SOL_SOCKET.to_ne_bytes());
    put(offset_of!(cmsghdr, cmsg_type), &libc::SCM_RIGHTS.to_ne_bytes());
    put(HEADER, &fd.to_ne_bytes());
    control
}

/// What is in a message with this word and these control data, of which some were `cut` off or not.
pub fn unpack(word: &[u8], control: &[u8], cut: bool) -> Content {
    let (fds, understood) = descriptors(control);
    match fds[..] {
        _ if word != [WORD] || cut || !understood => Content::Bad(fds),
        [] => Content::Nothing,
        [fd] => Content::One(fd),
        _ => Content::Bad(fds),
    }
}

/// All descriptors in control data, and whether there is nothing else.
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

/// The length of the first message, and whether it hands over descriptors.
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
        assert_eq!(unpack(&[WORD], &pack(7), false), Content::One(7));
        assert_eq!(unpack(&[WORD], &[], false), Content::Nothing);
    }

    #[test]
    fn descriptors_of_a_bad_message_are_told_to_be_closed() {
        assert_eq!(unpack(&[], &pack(7), false), Content::Bad(vec![7]));
        assert_eq!(unpack(&[WORD], &pack(7), true), Content::Bad(vec![7]));
        let mut two = pack(7).to_vec();
        two.extend(8_i32.to_ne_bytes());
        two[..size_of::<usize>()].copy_from_slice(&(CONTROL + FD).to_ne_bytes());
        assert_eq!(unpack(&[WORD], &two, false), Content::Bad(vec![7, 8]));
        assert_eq!(unpack(&[WORD], &pack(7)[..CONTROL - 1], false), Content::Bad(vec![]));
    }
}
