//! A program that closes descriptors which it does not know, the reactor's as well. It is a process
//! of its own: all that is made beside it would be lost, too.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weft_os::clock::{self, Moment};
use weft_os::fds::HighFd;
use weft_os::sys;
use weft_reactor::{Interest, Pollable, Reactor, ReactorSetup, Readiness};

static TOLD: AtomicU32 = AtomicU32::new(0);

struct Source {
    fd: HighFd,
    lost: AtomicU32,
}

impl Pollable for Source {
    fn ready(&self, _: Readiness) {}
    fn timeout(&self, _: Moment) {}
    fn lost(&self) {
        self.lost.fetch_add(1, Ordering::SeqCst);
    }
}

fn close_high_descriptors() {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let numbers: Vec<i32> = numbers.map(|number| number.parse().unwrap()).collect();
    let ours = numbers.into_iter().filter(|number| *number >= sys::descriptor_limit() / 2);
    ours.for_each(sys::close);
}

#[test]
fn a_reactor_without_its_descriptors_tells_its_sources_and_ends() {
    let at_loss = || {
        TOLD.fetch_add(1, Ordering::SeqCst);
    };
    let setup = ReactorSetup { threads: 2, at_loss: Some(at_loss), ..ReactorSetup::default() };
    let reactor = Reactor::new(setup);
    reactor.start().unwrap();
    let source = Arc::new(Source { fd: HighFd::new(sys::eventfd().unwrap()), lost: 0.into() });
    let own = Arc::clone(&source) as Arc<dyn Pollable>;
    reactor.add(source.fd.as_fd(), Interest::READ, Arc::clone(&own));

    // The thread sleeps without end, and hears nothing of it until something is due.
    close_high_descriptors();
    reactor.set_timer(clock::now(), Arc::downgrade(&own));
    while source.lost.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(reactor.start().unwrap_err().raw_os_error(), Some(libc::EBADF));
    let before_ns = sys::cpu_ns();
    sys::pause(Duration::from_millis(300));
    let spent = Duration::from_nanos(sys::cpu_ns() - before_ns);
    assert!(spent < Duration::from_millis(100), "a thread goes round: {spent:?}");
    assert_eq!((source.lost.load(Ordering::SeqCst), TOLD.load(Ordering::SeqCst)), (1, 1));
}
