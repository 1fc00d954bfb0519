//! Descriptors passed between processes over sockets of messages (`SOCK_SEQPACKET`): each message
//! is a byte with a descriptor or without.

use std::io::{self, ErrorKind};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use libc::c_int;

use super::message::{self, HandoffContent};

/// The user id of the process at the other end of an `AF_UNIX` socket, when that connected or began
/// to listen.
pub fn user(fd: RawFd) -> Option<u32> {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    let (at, len_at) = (&raw mut who, &raw mut len);
    // SAFETY: the structure has the room that `len` says.
    let done = unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, option, at, len_at) };
    (done == 0).then_some(who.uid)
}

/// Sends the byte, with a descriptor or without.
///
/// # Errors
/// Those of `sendmsg`; there is no signal.
pub fn send(to: RawFd, fd: Option<RawFd>) -> io::Result<()> {
    let mut word = message::WORD;
    let mut part = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 1 };
    let mut control = fd.map(message::pack);
    // SAFETY: an all-zero header is valid: no name, no parts, no control data.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    if let Some(control) = &mut control {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len();
    }
    // SAFETY: the header names locals that outlive the call.
    let sent = unsafe { libc::sendmsg(to, &raw const header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a message without waiting for it: its descriptor, if it has one.
///
/// # Errors
/// Those of `recvmsg`, `InvalidData` for another message or the end, and `EMFILE` if there is no
/// descriptor left for that of the message.
pub fn receive(from: RawFd) -> io::Result<Option<OwnedFd>> {
    // A longer message is noticed.
    receive_up_to(from, 2, 0)
}

/// The same for the first byte of a stream, which stays there with its descriptor.
///
/// # Errors
/// As for [`receive`].
pub fn peek(from: RawFd) -> io::Result<Option<OwnedFd>> {
    receive_up_to(from, 1, libc::MSG_PEEK)
}

fn receive_up_to(from: RawFd, bytes: usize, flags: c_int) -> io::Result<Option<OwnedFd>> {
    let mut word = [0_u8; 2];
    let mut part = libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: bytes };
    let mut control = [0_u8; message::CONTROL];
    // SAFETY: an all-zero header is valid: no name, no parts, no control data.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = control.len();
    let flags = flags | libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the header names locals that outlive the call.
    let count = unsafe { libc::recvmsg(from, &raw mut header, flags) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let is_set = |flag| header.msg_flags & flag != 0;
    let cut = is_set(libc::MSG_CTRUNC) || is_set(libc::MSG_TRUNC);
    let control = control.get(..header.msg_controllen).unwrap_or_default();
    // SAFETY: the kernel has made each descriptor of the message for this process.
    let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    match message::unpack(word.get(..count).unwrap_or_default(), control, cut) {
        HandoffContent::Nothing => Ok(None),
        HandoffContent::One(fd) => Ok(Some(own(fd))),
        // There is room for one, so the system had none left for it.
        HandoffContent::Bad(fds) if fds.is_empty() && is_set(libc::MSG_CTRUNC) => {
            Err(io::Error::from_raw_os_error(libc::EMFILE))
        }
        HandoffContent::Bad(fds) => {
            fds.into_iter().map(own).for_each(drop);
            Err(ErrorKind::InvalidData.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;

    use super::*;

    /// Two sockets of messages that are connected to each other.
    fn pair() -> [OwnedFd; 2] {
        let mut pair = [-1; 2];
        // SAFETY: the array has room for the two descriptors.
        let done =
            unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, pair.as_mut_ptr()) };
        assert_eq!(done, 0);
        // SAFETY: they are new.
        pair.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    #[test]
    fn a_descriptor_comes_as_it_was_sent() {
        let [here, there] = pair();
        assert_eq!(receive(here.as_raw_fd()).unwrap_err().kind(), ErrorKind::WouldBlock);
        let (mut reader, writer) = std::io::pipe().unwrap();
        send(there.as_raw_fd(), Some(writer.as_raw_fd())).unwrap();
        drop(writer);
        let writer = receive(here.as_raw_fd()).unwrap().unwrap();
        std::io::Write::write_all(&mut std::fs::File::from(writer), b"x").unwrap();
        assert_eq!(reader.read(&mut [0; 2]).unwrap(), 1);
        send(there.as_raw_fd(), None).unwrap();
        assert!(receive(here.as_raw_fd()).unwrap().is_none());
    }

    #[test]
    fn more_descriptors_than_one_are_all_closed() {
        let [here, there] = pair();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut control = [message::pack(writer.as_raw_fd()).as_slice(), &[0; 8]].concat();
        control[..8].copy_from_slice(&(message::CONTROL + 8).to_ne_bytes());
        for at in [message::CONTROL, message::CONTROL + 4] {
            control[at..at + 4].copy_from_slice(&writer.as_raw_fd().to_ne_bytes());
        }
        let mut word = message::WORD;
        let mut part = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 1 };
        // SAFETY: an all-zero header is valid.
        let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len();
        // SAFETY: the header names locals that outlive the call.
        assert_eq!(unsafe { libc::sendmsg(there.as_raw_fd(), &raw const header, 0) }, 1);
        drop(writer);
        assert_eq!(receive(here.as_raw_fd()).unwrap_err().kind(), ErrorKind::InvalidData);
        // Nobody has the other end any more.
        assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0);
    }
}
