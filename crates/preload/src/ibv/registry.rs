//! The live objects, by the cookies that events carry.
//!
//! The host names objects by cookies, and an event may still be queued when its object is
//! destroyed. So a cookie is a number that is never used twice, and this table says which live
//! object it stands for. Counting an event as reported and finding its object is one step under
//! one lock, and so is destroying the object: an event is either counted before, and destruction
//! waits for its acknowledgement, or dropped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_sync::{Mutex, MutexGuard};

/// Events that the application was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Events from completion channels.
    pub completion: u32,
    /// Asynchronous events.
    pub asynchronous: u32,
}

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// A completion channel.
    Completion,
    /// The asynchronous queue of the context.
    Asynchronous,
}

struct RegistryEntry {
    address: usize,
    reported: EventCounts,
}

static ENTRIES: Mutex<BTreeMap<u64, RegistryEntry>> = Mutex::new(BTreeMap::new());

/// A cookie that was never used before.
pub fn cookie() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Lets `cookie` stand for the object at `address`.
pub fn add<T>(cookie: u64, address: *mut T) {
    let entry = RegistryEntry { address: address as usize, reported: EventCounts::default() };
    entries().insert(cookie, entry);
}

/// The object of `cookie`, with one more event counted as reported; `None` if it is gone.
pub fn report<T>(cookie: u64, source: EventSource) -> Option<*mut T> {
    let mut entries = entries();
    let entry = entries.get_mut(&cookie)?;
    let count = match source {
        EventSource::Completion => &mut entry.reported.completion,
        EventSource::Asynchronous => &mut entry.reported.asynchronous,
    };
    *count = count.wrapping_add(1);
    Some(entry.address as *mut T)
}

/// Forgets the object of `cookie`; gives how many events the application has to acknowledge.
pub fn remove(cookie: u64) -> EventCounts {
    entries().remove(&cookie).map_or(EventCounts::default(), |e| e.reported)
}

fn entries() -> MutexGuard<'static, BTreeMap<u64, RegistryEntry>> {
    ENTRIES.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_while_the_object_lives_and_dropped_afterwards() {
        let cookie = cookie();
        assert_eq!(report::<u8>(cookie, EventSource::Completion), None);
        add(cookie, 8 as *mut u8);
        assert_eq!(report(cookie, EventSource::Completion), Some(8 as *mut u8));
        assert_eq!(report(cookie, EventSource::Completion), Some(8 as *mut u8));
        assert_eq!(report(cookie, EventSource::Asynchronous), Some(8 as *mut u8));
        assert_eq!(remove(cookie), EventCounts { completion: 2, asynchronous: 1 });
        assert_eq!(report::<u8>(cookie, EventSource::Completion), None);
        assert_eq!(remove(cookie), EventCounts::default());
    }
}
