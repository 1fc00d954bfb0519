//! The stream of a rejected Request, until the peer has closed it.
//!
//! A peer has nothing to say after a rejection, and Linux siw forgets the private data of one when
//! the end of the stream arrives together with it. So the peer closes first, if it is not too long
//! about it (RFC 5044, section 7.1.2, leaves the stream open).

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use weft_host::Host;
use weft_net::tcp;
use weft_os::clock::{self, Moment};
use weft_reactor::{Interest, Pollable, Readiness, Token};
use weft_sync::Mutex;

use crate::config;

/// A stream on which everything has been said.
pub(crate) struct LingeringReject {
    host: Arc<Host>,
    stream: Mutex<Option<(TcpStream, Token)>>,
}

impl LingeringReject {
    /// Closes `stream` when the peer does, or in a while.
    pub(crate) fn say(host: &Arc<Host>, stream: TcpStream) {
        let lingering = Arc::new(Self { host: Arc::clone(host), stream: Mutex::new(None) });
        // Locked, so that the engine's first call finds the state in place.
        let mut state = lingering.stream.lock();
        let token = host.reactor().add(stream.as_fd(), Interest::READ, lingering.clone());
        *state = Some((stream, token));
        drop(state);
        let weak: Weak<Self> = Arc::downgrade(&lingering);
        host.reactor().set_timer(clock::now() + config::FAREWELL, weak);
    }

    fn close(&self) {
        let state = self.stream.lock().take();
        if let Some((stream, token)) = state {
            self.host.reactor().remove(token);
            drop(stream);
        }
    }
}

impl Pollable for LingeringReject {
    fn ready(&self, _: Readiness) {
        self.close();
    }

    fn timeout(&self, _: Moment) {
        self.close();
    }

    fn at_exit(&self, until: Moment) {
        let state = self.stream.lock();
        if let Some((stream, _)) = &*state {
            while !tcp::ready(stream.as_fd()).read && clock::now() < until {
                tcp::wait(stream.as_fd(), false);
            }
        }
    }
}
