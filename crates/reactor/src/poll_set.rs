//! Descriptors that the reactor watches as one, so that a polling thread can watch all of them in
//! its place by one system call.
//!
//! An epoll instance of its own, which one of the reactor's threads watches: what the reactor is
//! not to do while somebody polls is suspended, and resumed, by one change there.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_os::clock::Moment;
use weft_os::fds::HighFd;
use weft_os::sys;

use crate::source::{Pollable, Readiness, Sources};

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 64;
/// How often as many are taken for one event of the set.
const ROUNDS_MAX: usize = 16;

/// Descriptors that are watched together; see [`crate::Reactor::new_set`].
pub struct PollSet {
    epoll: HighFd,
    /// Which of the reactor's threads it belongs to.
    number: usize,
    sources: Weak<Sources>,
}

impl PollSet {
    /// An empty set, which nobody watches.
    ///
    /// # Errors
    /// The errno of the system that has no descriptor left for it.
    pub(crate) fn new(number: usize, sources: &Arc<Sources>) -> std::io::Result<Self> {
        let epoll = HighFd::new(sys::epoll_create()?);
        Ok(Self { epoll, number, sources: Arc::downgrade(sources) })
    }

    /// Readable while one of its descriptors is ready.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Has [`Pollable::polled`] called, on this thread, of the sources that are ready, no more than
    /// `limit` (at most 64) of them.
    pub fn poll(&self, limit: usize, now: Moment) {
        self.take(limit, |source, readiness| source.polled(readiness, now));
    }

    /// Whether any of its descriptors is ready.
    pub fn is_ready(&self) -> bool {
        let mut event = [libc::epoll_event { events: 0, u64: 0 }];
        sys::epoll_wait(self.fd(), &mut event, Some(Duration::ZERO)).is_ok_and(|count| count > 0)
    }

    fn take(&self, limit: usize, mut call: impl FnMut(&dyn Pollable, Readiness)) -> usize {
        let Some(sources) = self.sources.upgrade() else { return 0 };
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        let room = &mut events[..limit.min(EVENTS_MAX)];
        let count = sys::epoll_wait(self.fd(), room, Some(Duration::ZERO)).unwrap_or(0);
        for event in &room[..count] {
            sources.dispatch(event, &mut call);
        }
        count
    }
}

impl Pollable for PollSet {
    fn ready(&self, _: Readiness) {
        for _ in 0..ROUNDS_MAX {
            let count = self.take(EVENTS_MAX, |source, readiness| source.ready(readiness));
            if count < EVENTS_MAX {
                break;
            }
        }
    }

    fn timeout(&self, _: Moment) {}

    fn number(&self) -> usize {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use weft_os::clock;

    use super::*;
    use crate::{Interest, Reactor, ReactorSetup};

    /// Who has called.
    #[derive(Debug, PartialEq, Eq)]
    enum Caller {
        Reactor,
        Poll,
    }

    struct Counter {
        fd: HighFd,
        called: mpsc::Sender<Caller>,
    }

    impl Pollable for Counter {
        fn ready(&self, _: Readiness) {
            sys::drain(self.fd.as_fd());
            self.called.send(Caller::Reactor).unwrap();
        }

        fn polled(&self, _: Readiness, _: Moment) {
            sys::drain(self.fd.as_fd());
            self.called.send(Caller::Poll).unwrap();
        }

        fn timeout(&self, _: Moment) {}
    }

    #[test]
    fn a_set_is_served_by_who_polls_it_while_the_reactor_does_not_watch_it() {
        let reactor = Reactor::new(ReactorSetup::default());
        let (set, token) = reactor.new_set(0).unwrap();
        let (called, calls) = mpsc::channel();
        let fd = HighFd::new(sys::eventfd().unwrap());
        let source = Arc::new(Counter { fd, called });
        let own = Arc::clone(&source) as Arc<dyn Pollable>;
        let member = reactor.add_to(Some(&set), source.fd.as_fd(), Interest::READ, own);

        reactor.modify(token, Interest::NONE);
        set.poll(1, clock::now());
        assert!(!set.is_ready() && calls.try_recv().is_err(), "nothing is there");
        sys::notify(source.fd.as_fd());
        assert!(set.is_ready());
        set.poll(1, clock::now());
        assert_eq!(calls.try_recv(), Ok(Caller::Poll));

        // What comes meanwhile is the reactor's as soon as that watches again.
        sys::notify(source.fd.as_fd());
        assert!(calls.try_recv().is_err());
        reactor.modify(token, Interest::READ);
        assert_eq!(calls.recv(), Ok(Caller::Reactor));

        reactor.modify(token, Interest::NONE);
        reactor.remove(member);
        sys::notify(source.fd.as_fd());
        set.poll(1, clock::now());
        assert!(calls.try_recv().is_err(), "it was removed");
    }
}
