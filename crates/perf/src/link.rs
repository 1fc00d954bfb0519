//! A stream's end: a queue pair, its memory, and where the peer's memory is.
//!
//! A stream has one active end, which posts the requests that are measured. Over Sends the other
//! one gives credit for each list of receives that it has posted anew, by a message without bytes:
//! iWARP knows no peer that is not ready.

use std::rc::Rc;

use anyhow::{Context, Result};

use crate::terms::{Act, ReadDepth, Remote, Sizes};
use crate::test::{Test, TestOperation};
use crate::verbs::{OwnedCmId, PerfQueuePair, PerfRegion, VerbsDomain};

/// Bit of a work request id that marks a receive.
const RECEIVE: u64 = 1 << 32;
/// Requests in addition to those that are measured: credits and the last Read.
const SPARE: u32 = 8;
/// Receives of a side of a ping-pong.
const PONGS: u32 = 2;

/// Kind of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkCompletion {
    /// A list of own requests.
    Sent,
    /// A receive.
    Received,
}

/// The link and the kind of request that a number stands for.
pub fn meaning(number: u64) -> (usize, LinkCompletion) {
    let what = if number & RECEIVE == 0 { LinkCompletion::Sent } else { LinkCompletion::Received };
    ((number & !RECEIVE) as usize, what)
}

/// One end of a stream.
pub struct StreamLink {
    // Before its memory, which it uses.
    queue_pair: PerfQueuePair,
    region: PerfRegion,
    remote: Remote,
    /// Which stream it is, from 0.
    pub index: usize,
    /// Whether this is its active end.
    pub active: bool,
    bytes: usize,
    scratch_at: usize,
    slots: u64,
    receives: Receives,
}

/// The receives of a link.
#[derive(Clone, Copy, Debug)]
struct Receives {
    /// Posted at first.
    count: u32,
    /// Posted together.
    list: u32,
    bytes: u32,
    /// The first slot that they are for, and how many.
    slots: (u64, u64),
}

impl Receives {
    fn of(test: &Test, active: bool) -> Self {
        let none = Self { count: 0, list: 0, bytes: 0, slots: (0, 1) };
        if test.operation != TestOperation::Send {
            return none;
        }
        if test.latency {
            return Self { count: PONGS, list: 1, bytes: test.bytes, slots: (1, 1) };
        }
        if active {
            return Self { count: test.receives() / test.list() + 1, list: 1, ..none };
        }
        let slots = if test.verify { test.receives().into() } else { 1 };
        let (count, list) = (test.receives(), test.list());
        Self { count, list, bytes: test.bytes, slots: (0, slots) }
    }
}

/// The most requests of a link: own ones and receives.
pub fn sizes(test: &Test, active: bool) -> Sizes {
    let receives = Receives::of(test, active).count;
    let own = if active && !test.latency { test.depth } else { receives };
    Sizes { sends: own + SPARE, receives: receives + 1 }
}

impl StreamLink {
    /// Gives an id its queue pair and its memory, and posts its receives.
    ///
    /// # Errors
    /// The device refuses.
    pub fn new(
        id: OwnedCmId,
        domain: &Rc<VerbsDomain>,
        test: &Test,
        index: usize,
        active: bool,
    ) -> Result<Self> {
        let atomics = test.operation == TestOperation::Atomic;
        let region = PerfRegion::new(domain, test.region_bytes(), atomics)?;
        let queue_pair = PerfQueuePair::new(id, domain, sizes(test, active))
            .context("a smaller --depth may be what the device takes")?;
        let mut link = Self {
            queue_pair,
            region,
            remote: Remote::default(),
            index,
            active,
            bytes: test.bytes as usize,
            scratch_at: test.scratch_at(),
            slots: test.slots().into(),
            receives: Receives::of(test, active),
        };
        link.receive_first()?;
        Ok(link)
    }

    fn receive_first(&mut self) -> Result<()> {
        let Receives { count, list, bytes, .. } = self.receives;
        let number = self.index as u64 | RECEIVE;
        self.queue_pair.prepare_receives(bytes, self.region.local_key(), list as usize, number);
        let firsts = (0..count).step_by(list.max(1) as usize);
        firsts.into_iter().try_for_each(|first| self.receive(first.into()))
    }

    /// Posts a list of receives, for the messages from `first` on.
    ///
    /// # Errors
    /// The connection is over.
    pub fn receive(&mut self, first: u64) -> Result<()> {
        let (from, slots) = self.receives.slots;
        for at in 0..u64::from(self.receives.list) {
            let slot = from + (first + at) % slots;
            self.queue_pair.aim_receive(at as usize, self.here(slot));
        }
        self.queue_pair.post_receives(self.receives.list as usize)
    }

    /// The id.
    pub fn id(&self) -> &OwnedCmId {
        self.queue_pair.id()
    }

    /// Asks the peer for a connection.
    ///
    /// # Errors
    /// The device's.
    pub fn connect(&self, depth: ReadDepth, private_data: &[u8]) -> Result<()> {
        self.queue_pair.connect(depth, private_data)
    }

    /// Grants a peer the connection that it asks for.
    ///
    /// # Errors
    /// The device's.
    pub fn accept(&self, depth: ReadDepth, private_data: &[u8]) -> Result<()> {
        self.queue_pair.accept(depth, private_data)
    }

    /// What the peer is to know of this end's memory.
    pub fn card(&self) -> Remote {
        Remote { address: self.region.address(), key: self.region.remote_key() }
    }

    /// Learns of the peer's memory.
    pub fn meet(&mut self, remote: Remote) {
        self.remote = remote;
    }

    /// Prepares lists of up to `count` requests of a message each.
    pub fn prepare(&mut self, act: Act, count: u32) {
        let (bytes, key) = (self.bytes as u32, self.region.local_key());
        self.queue_pair.prepare(act, bytes, key, count as usize, self.index as u64);
        for at in 0..count as usize {
            self.aim(at, 0, 0);
        }
    }

    /// Prepares requests without bytes, which give credit.
    pub fn prepare_credit(&mut self) {
        self.queue_pair.prepare(Act::Send, 0, self.region.local_key(), 1, self.index as u64);
    }

    /// Prepares and posts the last request of all: a Read behind whatever was written, so that
    /// that is delivered when this is complete.
    ///
    /// # Errors
    /// The connection is over.
    pub fn flush(&mut self) -> Result<()> {
        self.queue_pair.prepare(Act::Read, 8, self.region.local_key(), 1, self.index as u64);
        let at = self.scratch_at as u64;
        let remote = Remote { address: self.remote.address + at, key: self.remote.key };
        self.queue_pair.aim(0, self.region.address() + at, remote);
        self.queue_pair.post(1)
    }

    /// Aims a request of the list from an own slot at one of the peer's.
    pub fn aim(&mut self, at: usize, own: u64, theirs: u64) {
        let address = self.remote.address + theirs * self.bytes as u64;
        self.queue_pair.aim(at, self.here(own), Remote { address, key: self.remote.key });
    }

    /// Posts the first `count` requests of the list.
    ///
    /// # Errors
    /// The connection is over.
    pub fn post(&mut self, count: u32) -> Result<()> {
        self.queue_pair.post(count as usize)
    }

    /// Places for messages.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Fills a slot.
    pub fn write(&self, slot: u64, bytes: &[u8]) {
        self.region.write(slot as usize * self.bytes, bytes);
    }

    /// Reads a slot.
    pub fn read(&self, slot: u64, bytes: &mut [u8]) {
        self.region.read(slot as usize * self.bytes, bytes);
    }

    /// The last byte of a slot, by which a Write is seen to have arrived.
    pub fn mark(&self, slot: u64) -> u8 {
        self.region.byte((slot as usize + 1) * self.bytes - 1)
    }

    /// Sets it.
    pub fn set_mark(&self, slot: u64, value: u8) {
        self.region.set_byte((slot as usize + 1) * self.bytes - 1, value);
    }

    fn here(&self, slot: u64) -> u64 {
        self.region.address() + slot * self.bytes as u64
    }
}
