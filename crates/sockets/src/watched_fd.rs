//! A descriptor of this library that the reactor watches.
//!
//! Invariant: the watch ends before the descriptor is closed, so no event is that of another file.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use weft_os::fds::HighFd;
use weft_reactor::{Interest, Pollable, Token};

use crate::rdma;

/// A descriptor, and the events that the reactor watches it for.
pub struct WatchedFd {
    fd: HighFd,
    token: Option<Token>,
    interest: Interest,
}

impl WatchedFd {
    /// The reactor calls `source` for the events of `interest`.
    pub fn new(fd: HighFd, interest: Interest, source: Arc<dyn Pollable>) -> Self {
        let token = Some(rdma::host().reactor().add(fd.as_fd(), interest, source));
        Self { fd, token, interest }
    }

    /// The descriptor, open as long as this value lives.
    pub fn raw(&self) -> RawFd {
        self.fd.as_fd().as_raw_fd()
    }

    /// Changes the events that the reactor watches it for; without effect after
    /// [`WatchedFd::ignore`].
    pub fn watch(&mut self, interest: Interest) {
        if let Some(token) = self.token
            && self.interest != interest
        {
            self.interest = interest;
            rdma::host().reactor().modify(token, interest);
        }
    }

    /// Whether the watch has not ended.
    pub fn is_watched(&self) -> bool {
        self.token.is_some()
    }

    /// Ends the watch for good.
    pub fn ignore(&mut self) {
        if let Some(token) = self.token.take() {
            rdma::host().reactor().remove(token);
        }
    }
}

impl Drop for WatchedFd {
    fn drop(&mut self) {
        self.ignore();
    }
}
