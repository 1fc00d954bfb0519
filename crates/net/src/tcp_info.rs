//! What the kernel knows of a TCP connection: the fields of `struct tcp_info` (linux/tcp.h), of
//! which the C library declares the older half.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

/// A TCP connection as its kernel sees it. What an older kernel does not say is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpMeasure {
    /// Smoothed round trip, in microseconds.
    pub rtt_us: u32,
    /// Its mean deviation.
    pub rtt_var_us: u32,
    /// The smallest of late.
    pub rtt_min_us: u32,
    /// Bytes that the congestion window lets be in flight.
    pub window_bytes: u64,
    /// Bytes sent and not acknowledged.
    pub in_flight_bytes: u64,
    /// Bytes that the socket holds and has not sent yet.
    pub unsent_bytes: u32,
    /// Bits per second at which the kernel paces; 0 if it does not.
    pub pace_bps: u64,
    /// Segments sent.
    pub segments_out: u32,
    /// Segments received.
    pub segments_in: u32,
    /// Segments sent again.
    pub resent: u32,
    /// Microseconds in which there was something to send.
    pub busy_us: u64,
    /// Of these, those in which the peer's window was full.
    pub peer_full_us: u64,
}

/// Bytes of the structure that are looked at.
const LENGTH: usize = 256;

/// What the kernel says of `socket` now; `None` if it is not TCP.
pub fn measure(socket: BorrowedFd<'_>) -> Option<TcpMeasure> {
    let mut info = [0_u8; LENGTH];
    let mut len = LENGTH as libc::socklen_t;
    let (level, name, place) = (libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast());
    // SAFETY: `place` has room for `len` bytes.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, place, &mut len) };
    (result == 0).then(|| read(&info))
}

/// The fields by their places, which the kernel never changes.
fn read(info: &[u8; LENGTH]) -> TcpMeasure {
    let word = |at: usize| {
        let bytes = info.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    };
    let long = |at: usize| {
        let bytes = info.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    };
    let segment = u64::from(word(16));
    // No pacing is the largest value.
    let pace = Some(long(104)).filter(|rate| *rate != u64::MAX).unwrap_or_default();
    TcpMeasure {
        rtt_us: word(68),
        rtt_var_us: word(72),
        rtt_min_us: Some(word(148)).filter(|rtt| *rtt != u32::MAX).unwrap_or_default(),
        window_bytes: u64::from(word(80)) * segment,
        in_flight_bytes: u64::from(word(24)) * segment,
        unsent_bytes: word(144),
        pace_bps: pace.saturating_mul(8),
        segments_out: word(136),
        segments_in: word(140),
        resent: word(100),
        busy_us: long(168),
        peer_full_us: long(176),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_connection_that_was_used_has_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        stream.write_all(&[1; 1000]).unwrap();
        peer.read_exact(&mut [0; 1000]).unwrap();
        let found = measure(stream.as_fd()).unwrap();
        assert!(found.segments_out >= 2 && found.window_bytes > 1000, "{found:?}");
        assert!(found.rtt_us > 0 && found.rtt_min_us <= found.rtt_us, "{found:?}");
        assert_eq!(measure(std::io::stdin().as_fd()), None);
    }
}
