//! The machine's network interfaces, as the device's port and GID table show them.
//!
//! Asked again and again, because addresses come and go while an application runs; but applications
//! read tables row by row, so one answer serves for some milliseconds.

use std::sync::Arc;
use std::time::Duration;

use weft_net::interfaces::{self, Shortage};
use weft_os::clock::{self, Moment};
use weft_sync::Mutex;

pub use weft_net::interfaces::NetInterface;

/// How long an answer of the kernel serves.
const FRESH: Duration = Duration::from_millis(10);

/// The interfaces that are up and have an address, loopback last.
pub fn interfaces() -> Arc<Vec<NetInterface>> {
    static ANSWER: Mutex<Option<(Moment, Arc<Vec<NetInterface>>)>> = Mutex::new(None);
    // Not waited for: a child of fork may find the lock held by a thread that it does not have.
    let Some(mut answer) = ANSWER.try_lock() else {
        return Arc::new(interfaces::list().unwrap_or_else(|Shortage| interfaces::list_v4()));
    };
    let now = clock::now();
    match &*answer {
        Some((asked, interfaces)) if now.saturating_duration_since(*asked) < FRESH => {
            Arc::clone(interfaces)
        }
        last => {
            let last = last.as_ref().map(|(_, interfaces)| interfaces);
            let interfaces = match (interfaces::list(), last) {
                // Another table would be wrong, and applications have rows of the last one.
                (Err(Shortage), Some(last)) => Arc::clone(last),
                (Err(Shortage), None) => Arc::new(interfaces::list_v4()),
                (Ok(found), _) => Arc::new(found),
            };
            *answer = Some((now, Arc::clone(&interfaces)));
            interfaces
        }
    }
}

/// The Ethernet address of the first interface that has one, up or not.
pub fn first_mac(interfaces: &[NetInterface]) -> Option<[u8; 6]> {
    interfaces.iter().find_map(|i| i.mac)
}
