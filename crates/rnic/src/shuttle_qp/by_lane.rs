//! A Shuttle connection beside a lane: segments go through shared memory, and only the rest by
//! datagrams.

use weft_rdmap::StreamFault;

use super::ShuttleQp;
use crate::event::Sending;
use crate::lane::{LaneCompletion, LaneTraffic, NotReady, SegmentLane};

impl ShuttleQp {
    /// The other end of the lane was closed without a Close: from now on the peer counts as silent,
    /// as one on a network does. The owner asks whether it is there.
    pub fn handle_lane_lost(&mut self, now_ns: u64) {
        self.connection.set_watched(false, now_ns);
        self.lane_lost_ns.get_or_insert(now_ns);
    }

    /// Goes on over shared memory, before anything was sent. Of a peer on this host the kernel
    /// tells whether it is there.
    pub fn use_lane(&mut self) {
        self.connection.set_watched(true, 0);
        self.lane = Some(LaneTraffic::new(LaneCompletion::Placed));
    }

    /// Takes what has arrived in `lane`; whether anything was new. To be called again when a
    /// receive is posted.
    pub fn receive_from(&mut self, lane: &mut impl SegmentLane, now_ns: u64) -> bool {
        let Some(traffic) = &mut self.lane else { return false };
        match traffic.receive(&mut self.rdmap, &self.qp, lane, ([true; 2], now_ns)) {
            Ok(arrivals) => {
                if arrivals.written {
                    self.qp.written();
                }
                if arrivals.held || self.held {
                    let wait_us = self.qp.attrs().rnr_wait_us();
                    let credit = self.rdmap.credit();
                    let not_ready = arrivals.held.then_some(NotReady { credit, wait_us });
                    traffic.tell(lane, not_ready);
                }
                self.held = arrivals.held;
                self.retry_timers.note_rnr_wait(now_ns, self.rdmap.rnr());
                arrivals.any
            }
            Err(fault) => {
                self.fail(now_ns, fault);
                true
            }
        }
    }

    /// Writes what may leave now to `lane`.
    pub fn transmit_to(&mut self, lane: &mut impl SegmentLane, now_ns: u64) -> Sending {
        if let Some(seq) = self.given_up.take()
            && self.take_back(seq, lane, now_ns)
        {
            return Sending::More;
        }
        let Some(traffic) = &mut self.lane else { return Sending::Done };
        let outcome = traffic.transmit(&mut self.rdmap, &self.qp, lane, now_ns);
        let Some(fault) = self.rdmap.take_fault(&self.qp) else { return outcome };
        // The Close, which goes by UDP, is about the first request that is not acknowledged.
        traffic.acknowledge_now(lane);
        self.fail(now_ns, fault);
        Sending::More
    }

    /// Fails the message `seq`, which has waited long enough for a receive; `false` if the peer
    /// takes it at this moment: then it has its time once more.
    fn take_back(&mut self, seq: u32, lane: &mut impl SegmentLane, now_ns: u64) -> bool {
        let Self { lane: traffic, rdmap, qp, .. } = self;
        let Some(traffic) = traffic.as_mut().filter(|_| !rdmap.is_dead()) else { return false };
        if traffic.take_back(seq, rdmap, qp, lane) {
            self.fail(now_ns, StreamFault::NoReceive { seq });
            return true;
        }
        self.retry_timers.note_rnr_wait(now_ns, None);
        self.retry_timers.note_rnr_wait(now_ns, self.rdmap.rnr());
        false
    }

    /// Acknowledges what was placed of `lane`, which is about to end, and completes what the peer
    /// has acknowledged.
    pub fn acknowledge_to(&mut self, lane: &mut impl SegmentLane) {
        if let Some(traffic) = &mut self.lane {
            traffic.exchange_acks(&mut self.rdmap, &self.qp, lane);
        }
    }

    /// When what was placed from the lane is to be acknowledged at the latest.
    pub fn lane_ack_due_ns(&self) -> Option<u64> {
        self.lane.as_ref().and_then(LaneTraffic::ack_due_ns)
    }

    /// What the peer has to place for something to complete; see [`crate::Conn::awaited_acks`].
    pub fn awaited_acks(&self, all: bool) -> Option<u64> {
        self.lane.as_ref()?.awaited_acks(&self.rdmap, &self.qp, all)
    }

    /// Whether the peer has yet to read memory that is lent to it.
    pub fn is_lending(&self) -> bool {
        self.lane.as_ref().is_some_and(LaneTraffic::is_lending)
    }

    /// Region `key` is gone: a request that lends its memory fails.
    pub fn end_loans_of(&mut self, key: u32, lane: &mut impl SegmentLane, now_ns: u64) {
        let Self { lane: traffic, rdmap, qp, .. } = self;
        let traffic = traffic.as_mut().filter(|_| !rdmap.is_dead());
        if let Some(fault) = traffic.and_then(|t| t.end_loans_of(key, rdmap, qp, lane)) {
            self.fail(now_ns, fault);
        }
    }
}
