//! The port goes down and comes back: `IBV_EVENT_PORT_ERR`, then `IBV_EVENT_PORT_ACTIVE`, one of
//! each for an outage; between them nothing passes.
//!
//! Order of calls: [`PortWatch::begin`] for each context, after its host's reactor has started.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weft_reactor::{Pollable, Reactor, Readiness};
use weft_verbs::{AsyncKind, AsyncQueue};

/// No object is called so: the event is the port's.
const PORT_COOKIE: u64 = u64::MAX;

/// When the port is down: from, until.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outages(pub Vec<(Instant, Instant)>);

impl Outages {
    /// Whether there are some.
    pub fn are_planned(&self) -> bool {
        !self.0.is_empty()
    }

    /// How long the port is down from now on, if it is.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let during = self.0.iter().filter(|(from, until)| (*from..*until).contains(&now));
        during.map(|(_, until)| until.saturating_duration_since(now)).max()
    }
}

/// Tells a context of the port.
pub(crate) struct PortWatch {
    outages: Outages,
    events: Arc<AsyncQueue>,
    down: AtomicBool,
}

impl PortWatch {
    /// For the context with these `events`; none if no outage is planned.
    pub fn begin(
        outages: Outages,
        reactor: &Reactor,
        events: &Arc<AsyncQueue>,
    ) -> Option<Arc<Self>> {
        if !outages.are_planned() {
            return None;
        }
        let (events, down) = (Arc::clone(events), AtomicBool::new(false));
        let watch = Arc::new(Self { outages, events, down });
        let called = Arc::clone(&watch) as Arc<dyn Pollable>;
        for (from, until) in &watch.outages.0 {
            for at in [*from, *until] {
                reactor.set_timer(at, Arc::downgrade(&called));
            }
        }
        Some(watch)
    }
}

impl Pollable for PortWatch {
    fn ready(&self, _: Readiness) {}

    fn timeout(&self, now: Instant) {
        let down = self.outages.left(now).is_some();
        if self.down.swap(down, Ordering::AcqRel) != down {
            let kind = if down { AsyncKind::PortErr } else { AsyncKind::PortActive };
            self.events.push(kind, PORT_COOKIE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_outages_are_one() {
        let start = weft_os::clock::now();
        let at = |ms| start + Duration::from_millis(ms);
        let outages = Outages(vec![(at(10), at(30)), (at(20), at(50))]);
        assert_eq!((outages.left(at(9)), outages.left(at(50))), (None, None));
        assert_eq!(outages.left(at(25)), Some(Duration::from_millis(25)));
    }
}
