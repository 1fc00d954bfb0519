//! One direction of a path, without I/O: packets and `now` in, packets and the next time out.
//!
//! A packet passes, in this order: the policer; the queue of the bottleneck, which drops at its
//! tail or marks; the bottleneck, which takes its time for every byte; loss and outages, so that
//! what is lost has used its share of the rate; duplication and corruption; the frame that it
//! travels in with others; delay with its jitter; the moment at which bunches arrive.
//!
//! [`Link::handle`] takes a packet. [`Link::poll`] gives back what has arrived by `now`, one
//! packet a call, in the order of arrival; [`Link::next_due_ns`] says when there will be another.
//! `now_ns` never goes back. Invariant: the same configuration, seed and calls give the same
//! packets at the same times, and each impairment has random numbers of its own, so that to switch
//! one on does not change the others.

mod bottleneck;
mod flight;
mod frames;
mod loss;
mod random;
mod schedule;
mod wander;

use serde::Serialize;

pub use bottleneck::Policer;
pub use frames::FrameAggregation;
pub use loss::Loss;
pub use schedule::{Outage, Stepped};
pub use wander::{Fading, PathHandover};

use bottleneck::{Bottleneck, Bucket, QueueAdmission};
use flight::PropagationQueue;
use frames::FrameGate;
use loss::LossState;
use random::Random;
use wander::{LinkRate, PathHandoverState};
use weft_units::{Bitrate, Share};

/// What one direction does to packets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkConfig {
    /// The rate of the bottleneck over the bytes of IP packets; none: no bottleneck, no queue.
    pub rate: Stepped<Option<Bitrate>>,
    /// How much may wait at the bottleneck.
    #[serde(rename = "queue_octets_max")]
    pub queue_bytes_max: u64,
    /// How long a packet travels after the bottleneck.
    pub delay_ns: Stepped<u64>,
    /// How much the delay varies, if it does.
    pub jitter: Option<Jitter>,
    /// Which packets come late and out of order.
    pub reorder: Option<Reorder>,
    /// Which packets are lost.
    pub loss: Stepped<Loss>,
    /// Which packets come twice.
    pub duplicate: Share,
    /// Which packets come with a byte changed.
    pub corrupt: Share,
    /// When nothing arrives.
    pub outages: Vec<Outage>,
    /// How long a queue marks packets that can be marked (RFC 3168), in nanoseconds of waiting.
    pub mark_above_ns: Option<u64>,
    /// A token bucket before the queue.
    pub policer: Option<Policer>,
    /// A rate that wanders; it replaces `rate`.
    pub fading: Option<Fading>,
    /// Packets that travel together by number.
    pub frames: Option<FrameAggregation>,
    /// Packets arrive together at every multiple of this time, in nanoseconds, as with a medium
    /// whose turns come at even intervals (DOCSIS, LTE) or a receiver that sleeps.
    pub bunch_ns: Option<u64>,
    /// Another path, with another delay, at even intervals.
    pub handover: Option<PathHandover>,
}

/// A delay that varies evenly between `by_ns` less and `by_ns` more, but is never less than none.
///
/// Where packets may not overtake each other, each waits for those before it; so the closer they
/// follow, the nearer their delays are to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Jitter {
    /// The most that is added or taken away.
    pub by_ns: u64,
    /// Whether a packet may overtake another.
    pub reorders: bool,
}

/// Packets that take another way: `share` of them come `by_ns` later than they would.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reorder {
    /// How many.
    pub share: Share,
    /// How much later.
    pub by_ns: u64,
}

impl Default for LinkConfig {
    /// A link that does nothing.
    fn default() -> Self {
        Self {
            rate: Stepped::constant(None),
            queue_bytes_max: u64::MAX,
            delay_ns: Stepped::constant(0),
            jitter: None,
            reorder: None,
            loss: Stepped::constant(Loss::None),
            duplicate: Share::NONE,
            corrupt: Share::NONE,
            outages: Vec::new(),
            mark_above_ns: None,
            policer: None,
            fading: None,
            frames: None,
            bunch_ns: None,
            handover: None,
        }
    }
}

/// What became of packets. Bytes are those of IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets given to the link.
    pub offered: u64,
    /// Their bytes.
    #[serde(rename = "offered_octets")]
    pub offered_bytes: u64,
    /// Packets that came out, duplicates too.
    pub delivered: u64,
    /// Their bytes.
    #[serde(rename = "delivered_octets")]
    pub delivered_bytes: u64,
    /// Dropped because the queue was full.
    pub dropped_queue: u64,
    /// Dropped by the policer.
    pub dropped_policer: u64,
    /// Lost at random.
    pub lost: u64,
    /// Lost in an outage.
    pub lost_outage: u64,
    /// Extra copies.
    pub duplicated: u64,
    /// With a changed byte.
    pub corrupted: u64,
    /// Marked as having met congestion.
    pub marked: u64,
    /// Sent the longer way.
    pub reordered: u64,
    /// The most bytes that have waited at the bottleneck.
    #[serde(rename = "queue_octets_peak")]
    pub queue_bytes_peak: u64,
}

/// A packet at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkDelivery<P> {
    /// The packet.
    pub packet: P,
    /// When it arrived.
    pub due_ns: u64,
    /// Whether it must say that it met congestion.
    pub marked: bool,
    /// If set, one bit of it must be wrong; the number chooses which.
    pub corrupt: Option<u64>,
    bytes: u32,
}

/// What is random about a packet.
#[derive(Clone, Copy, Debug)]
struct Fate {
    lost: bool,
    corrupt: Option<u64>,
    copied: bool,
    /// To be added to the shortest delay.
    shift_ns: u64,
    goes_round: bool,
}

/// One direction of a path.
#[derive(Debug)]
pub struct Link<P> {
    config: LinkConfig,
    bottleneck: Bottleneck,
    policer: Option<Bucket>,
    loss: LossState,
    delays: Random,
    longer_way: Random,
    copies: Random,
    flips: Random,
    rate_now: LinkRate,
    handover: Option<PathHandoverState>,
    frames: Option<FrameGate<(LinkDelivery<P>, Fate)>>,
    flight: PropagationQueue<LinkDelivery<P>>,
    in_flight_bytes: u64,
    counters: Counters,
}

impl<P: Clone> Link<P> {
    /// A link on which nothing has been sent, at time 0.
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        let rate = LinkRate::new(config.rate.clone(), config.fading, seed);
        let handover = |handover| PathHandoverState::new(handover, Random::new(seed, "handover"));
        Self {
            bottleneck: Bottleneck::new(rate.clone(), config.queue_bytes_max),
            rate_now: rate,
            handover: config.handover.map(handover),
            frames: config.frames.map(FrameGate::new),
            policer: config.policer.map(Bucket::new),
            loss: LossState::new(config.loss.clone(), Random::new(seed, "loss")),
            delays: Random::new(seed, "jitter"),
            longer_way: Random::new(seed, "reorder"),
            copies: Random::new(seed, "duplicate"),
            flips: Random::new(seed, "corrupt"),
            flight: PropagationQueue::default(),
            in_flight_bytes: 0,
            counters: Counters::default(),
            config,
        }
    }

    /// Takes a packet of `bytes` at `now_ns`; `markable` if it is of an ECN-capable transport.
    pub fn handle(&mut self, now_ns: u64, bytes: u32, markable: bool, packet: P) {
        self.counters.offered += 1;
        self.counters.offered_bytes += u64::from(bytes);
        if !self.policer.as_mut().is_none_or(|bucket| bucket.take(now_ns, bytes)) {
            self.counters.dropped_policer += 1;
            return;
        }
        let QueueAdmission::Leaves { at_ns, waited_ns } = self.bottleneck.admit(now_ns, bytes)
        else {
            self.counters.dropped_queue += 1;
            return;
        };
        let backlog = self.bottleneck.backlog_bytes();
        self.counters.queue_bytes_peak = self.counters.queue_bytes_peak.max(backlog);
        let fate = self.draw(at_ns);
        if self.is_lost(at_ns, fate.lost) {
            return;
        }
        let marked = markable && self.config.mark_above_ns.is_some_and(|most| waited_ns > most);
        self.counters.marked += u64::from(marked);
        self.counters.corrupted += u64::from(fate.corrupt.is_some());
        self.in_flight_bytes += u64::from(bytes);
        let delivery = LinkDelivery { packet, due_ns: at_ns, marked, corrupt: fate.corrupt, bytes };
        let Some(frames) = &mut self.frames else { return self.release(at_ns, delivery, fate) };
        if let Some((closed_ns, frame)) = frames.close_by(at_ns.saturating_sub(1)) {
            self.release_frame(closed_ns, frame);
        }
        let full = self.frames.as_mut().and_then(|frames| frames.join(at_ns, (delivery, fate)));
        self.release_frame(at_ns, full.unwrap_or_default());
    }

    fn release_frame(&mut self, at_ns: u64, frame: Vec<(LinkDelivery<P>, Fate)>) {
        for (delivery, fate) in frame {
            self.release(at_ns, delivery, fate);
        }
    }

    /// Sends what left the bottleneck, or its frame, at `at_ns` over the rest of the path.
    fn release(&mut self, at_ns: u64, delivery: LinkDelivery<P>, fate: Fate) {
        let (due_ns, free) = self.arrival(at_ns, &fate);
        let delivery = LinkDelivery { due_ns, ..delivery };
        if fate.copied {
            self.counters.duplicated += 1;
            self.in_flight_bytes += u64::from(delivery.bytes);
            self.flight.push(due_ns, free, delivery.clone());
        }
        self.flight.push(due_ns, free, delivery);
    }

    /// Draws all that is random about a packet, whatever becomes of it, so that the packets after
    /// it have the same fate.
    fn draw(&mut self, at_ns: u64) -> Fate {
        let jitter_ns = self.config.jitter.map_or(0, |jitter| jitter.by_ns);
        let share = self.config.reorder.map_or(Share::NONE, |reorder| reorder.share);
        Fate {
            lost: self.loss.loses(at_ns),
            corrupt: self.flips.happens(self.config.corrupt).then(|| self.flips.number()),
            copied: self.copies.happens(self.config.duplicate),
            shift_ns: self.delays.below(2 * jitter_ns + 1),
            goes_round: self.longer_way.happens(share),
        }
    }

    fn is_lost(&mut self, at_ns: u64, lost: bool) -> bool {
        if self.config.outages.iter().any(|outage| outage.covers(at_ns)) {
            self.counters.lost_outage += 1;
            return true;
        }
        self.counters.lost += u64::from(lost);
        lost
    }

    /// When a packet arrives that leaves the bottleneck at `left_ns`, and whether the order of
    /// packets does not bind it.
    fn arrival(&mut self, left_ns: u64, fate: &Fate) -> (u64, bool) {
        let mut due_ns = left_ns + self.config.delay_ns.at(left_ns);
        due_ns += self.handover.as_mut().map_or(0, |handover| handover.at(left_ns));
        let mut free = false;
        if let Some(jitter) = self.config.jitter {
            due_ns = (due_ns + fate.shift_ns).saturating_sub(jitter.by_ns).max(left_ns);
            free = jitter.reorders;
        }
        if let Some(reorder) = self.config.reorder.filter(|_| fate.goes_round) {
            self.counters.reordered += 1;
            return (self.bunched(due_ns + reorder.by_ns), true);
        }
        if !free {
            due_ns = due_ns.max(self.flight.last_in_order_ns());
        }
        (self.bunched(due_ns), free)
    }

    /// When what would arrive at `due_ns` does so, with all others of its bunch.
    fn bunched(&self, due_ns: u64) -> u64 {
        self.config.bunch_ns.map_or(due_ns, |bunch_ns| due_ns.next_multiple_of(bunch_ns.max(1)))
    }

    /// The next packet that has arrived by `now_ns`.
    pub fn poll(&mut self, now_ns: u64) -> Option<LinkDelivery<P>> {
        let closed = self.frames.as_mut().and_then(|frames| frames.close_by(now_ns));
        if let Some((closed_ns, frame)) = closed {
            self.release_frame(closed_ns, frame);
        }
        let delivery = self.flight.pop(now_ns)?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += u64::from(delivery.bytes);
        self.in_flight_bytes -= u64::from(delivery.bytes);
        Some(delivery)
    }

    /// When to poll next, if a packet is on its way: nothing arrives before.
    pub fn next_due_ns(&self) -> Option<u64> {
        let closes_ns = self.frames.as_ref().and_then(FrameGate::closes_ns);
        self.flight.next_due_ns().into_iter().chain(closes_ns).min()
    }

    /// How many packets are queued or on their way.
    pub fn in_flight(&self) -> usize {
        self.flight.len() + self.frames.as_ref().map_or(0, FrameGate::len)
    }

    /// How many bytes are queued or on their way.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// How many bytes wait at the bottleneck.
    pub fn queue_bytes(&mut self, now_ns: u64) -> u64 {
        self.bottleneck.advance(now_ns);
        self.bottleneck.backlog_bytes()
    }

    /// The rate of the bottleneck now.
    pub fn rate(&mut self, now_ns: u64) -> Option<Bitrate> {
        self.rate_now.at(now_ns)
    }

    /// What has become of packets so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
