//! Options of TCP and IP that applications have set at connections without a TCP socket.
//!
//! Nothing says when such a connection ends, since only the kernel knows who has its descriptors.
//! So the oldest connection is forgotten when there are [`CONNECTIONS_MAX`]: its options then have
//! their defaults. They change nothing about how it carries bytes.

use std::collections::{HashMap, VecDeque};
use std::os::fd::RawFd;

use libc::c_int;
use weft_sync::Mutex;

use crate::sys;

/// Connections whose options are kept.
const CONNECTIONS_MAX: usize = 4096;

/// Options that are often set before a connection is made. Those of keep-alive probes have other
/// defaults than 0, so they are only inherited where there are such probes.
const INHERITED: [c_int; 5] = [
    libc::TCP_NODELAY,
    libc::TCP_USER_TIMEOUT,
    libc::TCP_KEEPIDLE,
    libc::TCP_KEEPINTVL,
    libc::TCP_KEEPCNT,
];
/// How many of them are not about probes.
const WITHOUT_PROBES: usize = 2;

/// An option, with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpOption {
    level: c_int,
    name: c_int,
    value: Vec<u8>,
}

/// The options of a process, by the names of the applications' sockets, which are unique.
#[derive(Default)]
pub struct TcpOptions(Mutex<OptionsByName>);

#[derive(Clone, Default)]
struct OptionsByName {
    all: HashMap<Vec<u8>, Vec<TcpOption>>,
    /// The oldest first.
    order: VecDeque<Vec<u8>>,
}

impl TcpOption {
    /// The option `name` of `level`, with the value that `setsockopt` was given.
    pub fn new(level: c_int, name: c_int, value: Vec<u8>) -> Self {
        Self { level, name, value }
    }

    /// Sets it at another socket.
    pub fn repeat(&self, tcp: RawFd) {
        sys::set_option(tcp, self.level, self.name, &self.value);
    }
}

impl TcpOptions {
    /// Those that a `parent` knows, unless another of its threads held the lock at the fork.
    pub fn new(parent: Option<&Self>) -> Self {
        let known = parent.and_then(|parent| parent.0.try_lock().map(|known| known.clone()));
        Self(Mutex::new(known.unwrap_or_default()))
    }

    /// The options that were set at the socket of this name, in that order.
    pub fn get(&self, socket: &[u8]) -> Vec<TcpOption> {
        self.0.lock().all.get(socket).cloned().unwrap_or_default()
    }

    /// What the application has set at `tcp`, often before it was connected, goes on at `end`,
    /// which takes its place.
    pub fn inherit(&self, tcp: RawFd, end: RawFd) {
        let keeps_alive = sys::option(tcp, libc::SOL_SOCKET, libc::SO_KEEPALIVE) == Some(1);
        let names = if keeps_alive { INHERITED.as_slice() } else { &INHERITED[..WITHOUT_PROBES] };
        for name in names {
            if let Some(value) = sys::option(tcp, libc::IPPROTO_TCP, *name).filter(|is| *is != 0)
                && let Some(names) = sys::names_of(end)
            {
                let value = value.to_ne_bytes().to_vec();
                self.set(names.unique(), TcpOption::new(libc::IPPROTO_TCP, *name, value));
            }
        }
    }

    /// Sets one at the socket of this name.
    pub fn set(&self, socket: Vec<u8>, option: TcpOption) {
        let mut known = self.0.lock();
        if !known.all.contains_key(&socket) {
            if known.order.len() == CONNECTIONS_MAX
                && let Some(oldest) = known.order.pop_front()
            {
                known.all.remove(&oldest);
            }
            known.order.push_back(socket.clone());
        }
        let options = known.all.entry(socket).or_default();
        options.retain(|old| (old.level, old.name) != (option.level, option.name));
        options.push(option);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_counts_and_the_oldest_connection_is_forgotten() {
        let parent = TcpOptions::default();
        let option = |value| TcpOption::new(libc::IPPROTO_TCP, libc::TCP_NODELAY, vec![value]);
        for at in 0..=CONNECTIONS_MAX {
            parent.set(at.to_be_bytes().to_vec(), option(0));
            parent.set(at.to_be_bytes().to_vec(), option(1));
        }
        let child = TcpOptions::new(Some(&parent));
        assert_eq!(child.get(&0_usize.to_be_bytes()), []);
        assert_eq!(child.get(&1_usize.to_be_bytes()), [option(1)]);
        assert_eq!(child.get(&CONNECTIONS_MAX.to_be_bytes()), [option(1)]);
    }

    #[test]
    fn an_option_is_repeated() {
        let tcp = sys::tcp_socket(true).unwrap();
        let raw = std::os::fd::AsRawFd::as_raw_fd(&tcp);
        let name = (libc::IPPROTO_TCP, libc::TCP_KEEPCNT);
        TcpOption::new(name.0, name.1, 7_i32.to_ne_bytes().to_vec()).repeat(raw);
        assert_eq!(sys::option(raw, name.0, name.1), Some(7));
    }
}
