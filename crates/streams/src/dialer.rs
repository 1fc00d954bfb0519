//! Connects to the hosts that forwards name, on threads of its own: to find a name and to reach a
//! host takes as long as it takes.
//!
//! Invariant: each connection that is asked for is told of once, as [`LoopEvent::Connected`]; those
//! for which there is no thread yet wait for one in their order.

use std::collections::VecDeque;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use weft_sync::Mutex;

use crate::event_queue::{EventSender, LoopEvent};
use crate::stream::reset_when_closed;

/// Threads that connect, at most. A listener whose queue is full lets hundreds wait for a second,
/// and a host that does not answer lets each wait for [`CONNECT_LIMIT`].
const THREADS_MAX: usize = 1024;
/// Connections that wait for a thread, at most: those of streams that have gone are among them.
const WAITING_MAX: usize = 16 * 1024;
/// Bytes of stack of such a thread.
const STACK_BYTES: usize = 256 * 1024;
/// How long a host may take to answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// A connection that is asked for.
pub(crate) struct DialRequest {
    /// Number of its stream.
    pub id: u64,
    pub host: String,
    pub port: u16,
}

/// The threads, and what they have to do.
pub(crate) struct Dialer {
    events: EventSender,
    work: Mutex<DialWork>,
}

#[derive(Default)]
struct DialWork {
    waiting: VecDeque<DialRequest>,
    threads: usize,
}

impl Dialer {
    /// Without threads; what becomes of connections is told by `events`.
    pub fn new(events: EventSender) -> Arc<Self> {
        Arc::new(Self { events, work: Mutex::default() })
    }

    /// Has a connection made.
    ///
    /// # Errors
    /// Too many wait, or the system has no thread for it and there is none yet.
    pub fn dial(self: &Arc<Self>, request: DialRequest) -> io::Result<()> {
        let mut work = self.work.lock();
        if work.waiting.len() == WAITING_MAX {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        work.waiting.push_back(request);
        if work.threads == THREADS_MAX {
            return Ok(());
        }
        let dialer = Arc::clone(self);
        let thread = thread::Builder::new().name("weft-connect".into()).stack_size(STACK_BYTES);
        match thread.spawn(move || dialer.run()) {
            Ok(_) => work.threads += 1,
            Err(error) if work.threads == 0 => {
                work.waiting.pop_back();
                return Err(error);
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Connects as long as something waits for it.
    fn run(&self) {
        while let Some(DialRequest { id, host, port }) = self.next() {
            let outcome = connect(&host, port);
            self.events.send(LoopEvent::Connected { id, outcome });
        }
    }

    fn next(&self) -> Option<DialRequest> {
        let mut work = self.work.lock();
        let next = work.waiting.pop_front();
        // Under the lock: what is asked for after this gets a thread of its own.
        work.threads -= usize::from(next.is_none());
        next
    }
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
            Ok(connection) => return reset_when_closed(connection),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::net::TcpListener;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    #[test]
    fn what_has_no_thread_yet_waits_for_one() {
        let events = EventSender::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap(), 0);
        let dialer = Dialer::new(events.clone());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // All threads wait for hosts that do not answer.
        dialer.work.lock().threads = THREADS_MAX;
        for id in 0..4 {
            dialer.dial(DialRequest { id, host: "127.0.0.1".into(), port }).unwrap();
        }
        assert!(events.next().is_none());
        // One of them is free.
        dialer.run();
        let made = iter::from_fn(|| events.next()).map(|event| match event {
            LoopEvent::Connected { id, outcome: Ok(_) } => id,
            _ => panic!("a connection"),
        });
        assert_eq!(made.collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(dialer.work.lock().threads, THREADS_MAX - 1);
    }
}
