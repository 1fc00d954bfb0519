//! Memory that carries segments to a peer and from it, as queue pairs see it.

use weft_verbs::mr::SegmentPayload;
use weft_verbs::qp::send_queue::SendQueue;
use weft_wire::ddp::TAGGED_LEN;
use weft_wire::ids::Msn;
use weft_wire::llp::Gather;

/// Bytes of a segment at most: several fit into a flow, so that both ends copy at the same time.
/// Of a Write or a response whole pages, so that all copies of a long one are aligned alike.
pub const LANE_SEGMENT_MAX_BYTES: usize = (32 << 10) + TAGGED_LEN;
/// Bytes of a payload from which on it may be lent: what two copies of as much cost, done by two
/// processors at the same time, is no more than one copy and a system call.
pub const LENT_MIN_BYTES: usize = 32 << 10;
/// Bytes of a segment at most whose payload is lent: from here on a system call for each costs
/// nothing any more, and one does not keep the connection for long.
pub const LENT_MAX_BYTES: usize = (256 << 10) + TAGGED_LEN;

/// One of the two flows that a lane has each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneFlow {
    /// Everything but responses and the Terminate. What waits for a receive holds back what is
    /// behind it.
    Requests,
    /// Responses to Reads and Atomics, and then the Terminate.
    Responses,
}

/// A segment at the front of a flow, of at least one byte. Its header is a copy that the peer
/// cannot change.
#[derive(Clone, Copy, Debug)]
pub struct LaneSegment<'a> {
    /// The whole segment, or its DDP header if there is a `payload`.
    pub head: &'a [u8],
    /// The payload, if it lies apart, where the peer may still write.
    pub payload: Option<SegmentPayload<'a>>,
}

/// What became of a segment that was to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is there, and seen once it is published.
    Whole,
    /// So it is, but for its payload, which the peer reads from where it is: that is to stay as it
    /// is until the segment is placed.
    Lent,
    /// There is no room for it.
    Full,
    /// Memory that it names is not mapped: nothing of it is there.
    Gone,
}

/// What a peer makes of memory that is lent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loan {
    /// It cannot read it, or is not known to: everything is copied into the lane.
    Copied,
    /// It reads it.
    Read,
    /// It could, but some was not mapped any more.
    Refused,
}

/// A message of the peer that waits for a receive here, or of this side there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReady {
    /// The last message that had a receive.
    pub credit: Msn,
    /// RNR timer, in microseconds.
    pub wait_us: u32,
}

/// Memory that carries segments to a peer and from it. One whose peer breaks its rules carries
/// nothing any more.
pub trait SegmentLane {
    /// Lends the peer the memory that is posted to `queue`; called once, before the first push.
    fn lend(&mut self, queue: &mut SendQueue) {
        let _ = queue;
    }
    /// What the peer makes of such memory.
    fn loan(&self) -> Loan {
        Loan::Copied
    }
    /// The payload at the front could not be had. Whether that is because the loan is over; else
    /// the peer is told that its memory is not there, and will end it.
    fn refuse(&mut self) -> bool {
        true
    }
    /// Whether the peer has ended the lane: what it lends cannot be had any more, and nothing is
    /// acknowledged.
    fn is_ended(&self) -> bool {
        false
    }
    /// Bytes that the next segment of `flow` may have.
    fn room_bytes(&mut self, flow: LaneFlow) -> usize;
    /// Copies a segment behind the last one of `flow`.
    fn push(&mut self, flow: LaneFlow, segment: &Gather) -> Pushed;
    /// Lets the peer see what was written.
    fn publish(&mut self);
    /// Looks for the first segment of `flow` that was not taken; whether there is one.
    fn find(&mut self, flow: LaneFlow) -> bool {
        self.front(flow).is_some()
    }
    /// The first segment of `flow` that was not taken.
    fn front(&mut self, flow: LaneFlow) -> Option<LaneSegment<'_>>;
    /// Takes it.
    fn pop(&mut self, flow: LaneFlow);
    /// Gives the room of what was taken back to the peer, to whom it is acknowledged by that.
    fn release(&mut self);
    /// Has what is published next tell what was taken, to the peer that finds it and no sooner.
    fn announce(&mut self);
    /// Whether the peer sleeps for the acknowledgement of a segment that was taken.
    fn waits_for_acks(&self) -> bool;
    /// Segments of each flow that the peer has taken since the lane began.
    fn placed(&mut self) -> [u64; 2];
    /// Tells the peer whether one of its messages waits for a receive.
    fn set_not_ready(&mut self, not_ready: Option<NotReady>);
    /// Whether the peer has a message that waits for a receive there.
    fn not_ready(&self) -> Option<NotReady>;
    /// Takes back the message that waits for a receive behind `credit`, and what follows it.
    /// `false` if the peer has begun to place it, or says something else by now.
    fn withdraw(&mut self, credit: Msn) -> bool;
    /// A message that was said to wait is about to be placed; `false` if the peer has taken it
    /// back. One that waits all the same is to be told of again.
    fn claim(&mut self) -> bool;
}
