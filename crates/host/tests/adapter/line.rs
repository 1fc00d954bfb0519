//! Two ends of queue pairs with a box between them.
//!
//! The near end has a network name space of its own, because the box listens for it at the port
//! that the far end's number says.

use std::net::Ipv4Addr;

use degen::namespace::Namespace;

use super::ends::End;
use super::relay::{Relay, socket};

/// Where the near end is.
const NEAR: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Where the far end is, and where the near end believes that it is.
const FAR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const SEEN: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Queue pairs that are made until one has a number that suits.
const TRIES: usize = 10_000;

/// Two ends and the box between them.
pub struct Line {
    pub near: End,
    pub far: End,
    pub relay: Relay,
    space: Namespace,
}

impl Line {
    /// Connects two ends with `octets` of memory each. Nothing, and a line on stderr, where no name
    /// space can be made.
    pub fn new(octets: usize) -> Option<Self> {
        let space = Namespace::create();
        let Ok(space) = space.inspect_err(|why| eprintln!("SKIPPED: {why:#}")) else { return None };
        // Who has the smaller number asks, and only the near end reaches the box by itself.
        let far = End::new(octets);
        let asks = |end: &End| end.qp.num() < far.qp.num();
        let near =
            (0..TRIES).find_map(|_| Some(space.within(|| End::new(octets)).ok()?).filter(asks));
        let near = near.expect("one number in many is smaller");
        let front = space.within(|| socket((SEEN, far.port()).into())).expect("its loopback is up");
        let relay = Relay::new(front, (NEAR, near.port()).into(), (FAR, far.port()).into());
        let line = Self { near, far, relay, space };
        line.connect_far();
        line.connect_near();
        Some(line)
    }

    /// Has the far end wait for the near one.
    pub fn connect_far(&self) {
        self.far.connect(FAR, NEAR, self.near.qp.num());
    }

    /// Has the near end ask the far one.
    pub fn connect_near(&self) {
        let connect = || self.near.connect(NEAR, SEEN, self.far.qp.num());
        self.space.within(connect).expect("its loopback is up");
    }
}
