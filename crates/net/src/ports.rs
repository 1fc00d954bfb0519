//! Which ports sockets take where nobody names one: `WEFT_PORTS`, for firewalls and published
//! ports.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;

use weft_os::random;

use crate::socket;

/// The ports that may be taken; the kernel's choice without bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortBounds(Option<(u16, u16)>);

impl PortBounds {
    /// No bounds: any port that the kernel has.
    pub const NONE: Self = Self(None);

    /// The ports of `range`; any if it begins with 0 or is empty.
    pub fn new(range: RangeInclusive<u16>) -> Self {
        let (low, high) = range.into_inner();
        Self((low > 0 && low <= high).then_some((low, high)))
    }

    /// What `LOW-HIGH` means, both included: none if it is no such range, begins with 0 or ends
    /// before it begins.
    pub fn parse(text: &str) -> Option<Self> {
        let (low, high) = text.split_once('-')?;
        let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        (low > 0 && low <= high).then_some(Self(Some((low, high))))
    }

    /// As [`socket::bind`]; port 0 means a free one within the bounds.
    ///
    /// # Errors
    /// What the system says; `EADDRINUSE` if no port within the bounds is free.
    pub fn bind(self, fd: BorrowedFd, addr: &SocketAddr, shared: bool) -> io::Result<()> {
        let Self(Some((low, high))) = self else { return socket::bind(fd, addr, shared) };
        if addr.port() != 0 {
            return socket::bind(fd, addr, shared);
        }
        let mut last = io::Error::from_raw_os_error(libc::EADDRINUSE);
        for port in from_anywhere(low, high) {
            // Not shared while it is sought: it would be one that somebody else has.
            match socket::bind(fd, &SocketAddr::new(addr.ip(), port), false) {
                Ok(()) => return if shared { socket::share(fd) } else { Ok(()) },
                Err(error) if may_be_taken(&error) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }
}

/// All ports of a range, from one of them on and around: sockets that come at once seldom meet.
fn from_anywhere(low: u16, high: u16) -> impl Iterator<Item = u16> {
    let many = u32::from(high - low) + 1;
    let first = random::random() as u32 % many;
    (0..many).map(move |step| low + ((first + step) % many) as u16)
}

/// Whether another port may do: this one is taken, or for the privileged.
fn may_be_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EADDRINUSE | libc::EACCES))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::socket::{SocketKind, local_addr, open};

    #[test]
    fn ranges_are_read() {
        assert_eq!(PortBounds::parse("4000-4010"), Some(PortBounds(Some((4000, 4010)))));
        assert_eq!(PortBounds::parse(" 7 - 7 "), Some(PortBounds(Some((7, 7)))));
        for wrong in ["", "4000", "0-9", "9-8", "1-65536", "a-b", "1-2-3"] {
            assert_eq!(PortBounds::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_port_comes_once() {
        let mut ports: Vec<u16> = from_anywhere(65_530, 65_535).collect();
        ports.sort_unstable();
        assert_eq!(ports, (65_530..=65_535).collect::<Vec<_>>());
    }

    #[test]
    fn ports_stay_within_the_bounds_until_none_is_left() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        for kind in [SocketKind::Stream, SocketKind::Datagram] {
            let new = || open(&any, kind).unwrap();
            let first = new();
            socket::bind(first.as_fd(), &any, false).unwrap();
            let port = local_addr(first.as_fd()).unwrap().port();
            let only = PortBounds(Some((port, port)));
            let error = only.bind(new().as_fd(), &any, true).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
            drop(first);
            let second = new();
            only.bind(second.as_fd(), &any, true).unwrap();
            assert_eq!(local_addr(second.as_fd()).unwrap().port(), port);
        }
    }
}
