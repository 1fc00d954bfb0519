//! A queue pair bound to its TCP connection, by MPA.

use std::sync::Arc;

use weft_mpa::{Agreed, MpaRole, RxFault};
use weft_rdmap::{self as rdmap, RxPort, StreamFault, TxPort};
use weft_verbs::{Qp, QpFailure, QpState};
use weft_wire::capability::Capabilities;
use weft_wire::tap::{PacketTap, TapDirection, Tapped};

use crate::batch::{Batch, OutgoingFrames, Written};
use crate::due::earliest;
use crate::event::{ConnEvent, ConnectionEnd, Established, Sending, WhenClosed};
use crate::lane::{LaneCompletion, LaneTraffic, SegmentLane, lane_capabilities};

/// Batches written in one call at most, so that no caller works for others without end.
const ROUNDS_MAX: usize = 8;
/// An initiator that has heard nothing this long after its first message repeats it without
/// effect: Linux siw can miss the first one (it installs its callback after its Reply).
const NUDGE_AFTER_NS: u64 = 200_000_000;
/// An initiator that has heard nothing this long takes its peer for one without RFC 7306, and so
/// does a responder that may send no Read to find out.
const DECIDE_AFTER_NS: u64 = 1_000_000_000;
/// A responder whose peer does not announce its first message speaks after this long: some
/// initiators wait for the server's first message, against RFC 5044 section 7.1.2.
const SPEAK_AFTER_NS: u64 = 100_000_000;

/// The connection as its set-up left it.
pub struct MpaLink<'a> {
    /// Which side this is.
    pub role: MpaRole,
    /// What was agreed.
    pub agreed: &'a Agreed,
    /// Bytes that the path carries in one TCP segment.
    pub emss: u32,
    /// Bytes to frame before they are written.
    pub batch_bytes: usize,
    /// How long a frame may stay incomplete, in nanoseconds.
    pub stall_ns: u64,
    /// Whether requests complete when the peer, which is Weft, has placed them.
    pub confirm: bool,
    /// What it means that the peer ends the connection.
    pub when_closed: WhenClosed,
}

/// What [`MpaQp::poll_event`] has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Established,
    Ended,
}

/// A queue pair bound to its TCP connection.
///
/// Order of calls: any of [`MpaQp::receive`], [`MpaQp::handle_timeout`] and
/// [`MpaQp::poll_transmit`], the last after each of the others and after work was posted; then
/// [`MpaQp::poll_event`] and [`MpaQp::poll_timeout`]. Times are nanoseconds of one clock.
pub struct MpaQp {
    qp: Arc<Qp>,
    mpa: weft_mpa::MpaStream,
    rdmap: rdmap::RdmapStream,
    out: OutgoingFrames,
    batch_bytes: usize,
    nudge_at_ns: Option<u64>,
    speak_at_ns: Option<u64>,
    decide_at_ns: Option<u64>,
    stalled_at_ns: Option<u64>,
    /// `None` is forever, as below.
    stall_ns: Option<u64>,
    /// Whether a message waits for a receive, and until when.
    held: bool,
    held_until_ns: Option<u64>,
    rnr_timer_ns: Option<u64>,
    when_closed: WhenClosed,
    /// The peer has yet to send its first message, which establishes the connection.
    awaits_peer: bool,
    /// Reads and Atomics that this side may have outstanding, and serves.
    depths: (u16, u16),
    told: Told,
    /// Who has ended it, if that is known: else this side.
    end: ConnectionEnd,
    /// A frame was cut off in the middle: nothing can follow it.
    broken: bool,
    /// Segments go through shared memory, not through TCP.
    lane: Option<LaneTraffic>,
    tap: Option<Box<dyn PacketTap>>,
}

impl MpaQp {
    /// Binds `qp` to `link` and makes it ready to send, if it waits for a connection: it may have
    /// failed, or have been reset, a moment ago.
    pub fn new(qp: Arc<Qp>, link: &MpaLink<'_>, now_ns: u64) -> Self {
        let agreed = link.agreed;
        let mut mpa = weft_mpa::MpaStream::new(link.role, agreed);
        mpa.set_emss(link.emss);
        let config = rdmap::StreamConfig {
            lower: rdmap::LlpKind::Mpa,
            role: match link.role {
                MpaRole::Initiator => rdmap::Role::Initiator,
                MpaRole::Responder => rdmap::Role::Responder,
            },
            rtr: agreed.rtr.map(|rtr| match rtr {
                weft_mpa::Rtr::Write => rdmap::RtrMessage::Write,
                weft_mpa::Rtr::Read => rdmap::RtrMessage::Read,
            }),
            ird: agreed.ird,
            ord: agreed.ord,
            confirm: link.confirm,
            seed: 0,
        };
        qp.set_attrs(|attrs| {
            attrs.max_rd_atomic = agreed.ord.min(255) as u8;
            attrs.max_dest_rd_atomic = agreed.ird.min(255) as u8;
        });
        [QpState::Init, QpState::Rtr].into_iter().for_each(|from| qp.proceed(from, QpState::Rts));
        let initiator = link.role == MpaRole::Initiator;
        Self {
            qp,
            mpa,
            rdmap: rdmap::RdmapStream::new(config),
            out: OutgoingFrames::default(),
            batch_bytes: link.batch_bytes,
            nudge_at_ns: initiator.then(|| now_ns + NUDGE_AFTER_NS),
            speak_at_ns: (!initiator && agreed.rtr.is_none()).then(|| now_ns + SPEAK_AFTER_NS),
            decide_at_ns: (initiator || agreed.ord == 0).then(|| now_ns + DECIDE_AFTER_NS),
            stalled_at_ns: None,
            stall_ns: Some(link.stall_ns),
            held: false,
            held_until_ns: None,
            rnr_timer_ns: Some(0),
            when_closed: link.when_closed,
            awaits_peer: !initiator && agreed.rtr.is_some(),
            depths: (agreed.ord, agreed.ird),
            told: Told::Nothing,
            end: ConnectionEnd::Local,
            broken: false,
            lane: None,
            tap: None,
        }
    }

    /// Has `tap` see the bytes of the stream from now on.
    pub fn set_tap(&mut self, tap: Box<dyn PacketTap>) {
        self.tap = Some(tap);
    }

    /// Goes on over shared memory, before anything was sent.
    pub fn use_lane(&mut self) {
        // Nobody has to wait for the first frame of an initiator, or find out what the peer is.
        (self.nudge_at_ns, self.speak_at_ns, self.decide_at_ns) = (None, None, None);
        let completion = match self.rdmap.know_peer() {
            true => LaneCompletion::Placed,
            false => LaneCompletion::Written,
        };
        self.lane = Some(LaneTraffic::new(completion));
    }

    /// Takes what has arrived in `lane`; whether anything was new. To be called again when a
    /// receive is posted or a timeout due.
    pub fn receive_from(&mut self, lane: &mut impl SegmentLane, now_ns: u64) -> bool {
        let Some(traffic) = &mut self.lane else { return false };
        let anew_ns = self.rnr_timer_ns.map(|timer_ns| now_ns + timer_ns);
        let until_ns = self.held_until_ns.or(anew_ns);
        let patient = until_ns.is_none_or(|until_ns| now_ns < until_ns);
        let patience = [patient, self.rnr_timer_ns != Some(0)];
        match traffic.receive(&mut self.rdmap, &self.qp, lane, (patience, now_ns)) {
            Ok(arrivals) => {
                if arrivals.written {
                    self.qp.written();
                }
                // Each message has its own time.
                let until_ns = if arrivals.placed { anew_ns } else { until_ns };
                self.held = arrivals.held;
                self.held_until_ns = until_ns.filter(|_| arrivals.held);
                arrivals.any
            }
            Err(fault) => {
                self.fail(fault);
                true
            }
        }
    }

    /// Writes what may leave now to `lane`.
    pub fn transmit_to(&mut self, lane: &mut impl SegmentLane, now_ns: u64) -> Sending {
        let Some(traffic) = &mut self.lane else { return Sending::Done };
        let outcome = traffic.transmit(&mut self.rdmap, &self.qp, lane, now_ns);
        let Some(fault) = self.rdmap.take_fault(&self.qp) else { return outcome };
        self.fail(fault);
        Sending::More
    }

    /// Acknowledges what was placed of `lane`, which is about to end, and completes what the peer
    /// has acknowledged.
    pub fn acknowledge_to(&mut self, lane: &mut impl SegmentLane) {
        if let Some(traffic) = &mut self.lane {
            traffic.exchange_acks(&mut self.rdmap, &self.qp, lane);
        }
    }

    /// Whether a request of the peer is refused once those before it are answered.
    pub fn is_refusing(&self) -> bool {
        self.rdmap.is_refusing()
    }

    /// Whether it only carries segments: nothing has failed or is to be told, and no message waits
    /// for a receive at either end.
    pub fn is_flowing(&self) -> bool {
        !self.is_dead() && !self.held && self.rdmap.rnr().is_none() && !self.is_refusing()
    }

    /// Whether there may be something to send.
    pub fn may_send(&self) -> bool {
        !self.rdmap.is_quiet() || self.qp.sq().has_pending()
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
    pub fn end_loans_of(&mut self, key: u32, lane: &mut impl SegmentLane) {
        let Self { lane: traffic, rdmap, qp, .. } = self;
        let traffic = traffic.as_mut().filter(|_| !rdmap.is_dead());
        if let Some(fault) = traffic.and_then(|t| t.end_loans_of(key, rdmap, qp, lane)) {
            self.fail(fault);
        }
    }

    /// Sets for how many nanoseconds a message waits for a receive; at first not at all.
    pub fn set_rnr_timer(&mut self, rnr_timer_ns: u64) {
        self.rnr_timer_ns = Some(rnr_timer_ns);
    }

    /// Disables the RNR timer (`rnr_retry` = 7): messages wait for their receives without end, and
    /// frames for the rest of them.
    pub fn wait_for_recv_forever(&mut self) {
        (self.rnr_timer_ns, self.held_until_ns) = (None, None);
        (self.stall_ns, self.stalled_at_ns) = (None, None);
    }

    /// Tells the bytes that the path carries in one TCP segment now.
    pub fn set_emss(&mut self, emss: u32) {
        self.mpa.set_emss(emss);
    }

    /// The queue pair.
    pub fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    /// Whether the peer has sent anything.
    pub fn heard(&self) -> bool {
        self.rdmap.heard()
    }

    /// Who does what below the verbs on this connection.
    pub fn capabilities(&self) -> Capabilities {
        match self.lane {
            Some(_) => lane_capabilities(),
            None => self.mpa.capabilities(),
        }
    }

    /// Counters.
    pub fn stats(&self) -> rdmap::StreamStats {
        self.rdmap.stats()
    }

    /// Whether it has failed or was closed.
    pub fn is_dead(&self) -> bool {
        self.rdmap.is_dead()
    }

    /// Whether it is dead and has nothing left to say: the connection may be closed.
    pub fn is_finished(&self) -> bool {
        self.broken || self.rdmap.is_finished() && self.out.is_drained()
    }

    /// Turns work into frames and gives them to `write`, batch by batch.
    pub fn poll_transmit(&mut self, mut write: impl FnMut(&Batch<'_>) -> Written) -> Sending {
        for _ in 0..ROUNDS_MAX {
            if self.broken {
                return Sending::Failed;
            }
            if let Some(outcome) = self.transmit_batch(&mut write) {
                return outcome;
            }
        }
        Sending::More
    }

    /// One batch; `None` when another may follow at once.
    fn transmit_batch(&mut self, write: &mut impl FnMut(&Batch<'_>) -> Written) -> Option<Sending> {
        let qp = Arc::clone(&self.qp);
        let fresh = self.out.is_drained();
        let (fault, written) = {
            let sq = qp.sq();
            let regions = qp.regions().reader();
            let fault = if fresh {
                self.out.restart(regions.generation());
                let mut port = TxPort::new(&mut self.rdmap, &qp, sq, Some(&regions));
                self.mpa.poll_transmit(&mut port, &regions, &mut self.out.gather, self.batch_bytes);
                port.into_fault()
            } else {
                drop(sq);
                (!self.out.is_current(&regions)).then_some(StreamFault::Closed)
            };
            // The regions stay in place until the kernel has copied what it takes.
            let nothing = self.out.is_drained() || fault == Some(StreamFault::Closed);
            let written = match regions.found_gone() {
                true => Written::Gone,
                false if nothing => Written::Octets(0),
                false => write(&self.out.batch()),
            };
            if let Written::Octets(octets) = written
                && let Some(tap) = &mut self.tap
            {
                let what = self.out.copy_next(octets, &regions);
                tap.see(TapDirection::Sent, None, Tapped::Stream(&what));
            }
            (fault, written)
        };
        let gone = (written == Written::Gone).then(|| self.handle_gone());
        let settled = self.rdmap.settle(&qp);
        let outcome = self.account(written);
        if let Some(fault) = gone.or(fault).or_else(|| self.rdmap.take_fault(&self.qp)) {
            self.fail(fault);
            return None;
        }
        // A new batch that is short took all there was; what was posted since rings for itself.
        let dry = fresh && self.out.is_drained() && self.out.gather.len() < self.batch_bytes;
        match outcome.or(dry.then_some(Sending::Done)) {
            // What waited for the queue pair's own work comes next.
            Some(Sending::Done) if settled => None,
            outcome => outcome,
        }
    }

    /// Memory that is to be sent is not there: why the stream ends. Nothing of it leaves, nor of
    /// what follows it.
    fn handle_gone(&mut self) -> StreamFault {
        self.out.clear();
        self.broken = !self.mpa.forget_unsent();
        let (sq, regions) = (self.qp.sq(), self.qp.regions().reader());
        TxPort::new(&mut self.rdmap, &self.qp, sq, Some(&regions)).fault_of_gone()
    }

    fn account(&mut self, written: Written) -> Option<Sending> {
        match written {
            Written::Octets(0) | Written::Gone => Some(Sending::Done),
            Written::Octets(octets) => {
                self.out.advance(octets);
                let mut port = TxPort::new(&mut self.rdmap, &self.qp, self.qp.sq(), None);
                self.mpa.handle_transmitted(octets, &mut port);
                None
            }
            Written::Blocked => Some(Sending::Blocked),
            Written::Failed => Some(Sending::Failed),
        }
    }

    /// Whether a message waits for a receive: bytes that follow are of no use now. The caller
    /// calls [`MpaQp::receive`] with the same bytes when a receive is posted or a timeout due.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Takes the whole frames at the start of `bytes`; gives the bytes consumed. The caller
    /// keeps the rest, and calls again with more behind it.
    pub fn receive(&mut self, bytes: &[u8], now_ns: u64) -> usize {
        let anew_ns = self.rnr_timer_ns.map(|timer_ns| now_ns + timer_ns);
        let until_ns = self.held_until_ns.or(anew_ns);
        let patient = until_ns.is_none_or(|until_ns| now_ns < until_ns);
        let waits = self.rnr_timer_ns != Some(0);
        let mut port = RxPort::new(&mut self.rdmap, &self.qp, patient).then_holding(waits);
        match self.mpa.handle_received(bytes, &mut port) {
            Ok(consumed) => {
                if let Some(tap) = &mut self.tap {
                    let what = Tapped::Stream(bytes.get(..consumed).unwrap_or(bytes));
                    tap.see(TapDirection::Received, None, what);
                }
                let (held, written) = (port.held(), port.written());
                if written {
                    self.qp.written();
                }
                let partial = !held && consumed < bytes.len();
                // Each message has its own time.
                let until_ns = if consumed > 0 { anew_ns } else { until_ns };
                (self.held, self.held_until_ns) = (held, until_ns.filter(|_| held));
                self.stalled_at_ns = self.stall_ns.filter(|_| partial).map(|ns| now_ns + ns);
                consumed
            }
            Err(fault) => {
                self.fail(match fault {
                    RxFault::Mpa(error) => StreamFault::Lower(Some(error.terminate_code())),
                    RxFault::Sink(fault) => fault,
                });
                bytes.len()
            }
        }
    }

    /// Ends the stream without a word to the peer but what is framed already; the queue pair
    /// fails. For a disconnect by this side, or after the connection broke.
    pub fn close(&mut self) {
        if !self.rdmap.is_dead() {
            self.qp.failure().note(QpFailure::Disconnected);
        }
        self.fail(StreamFault::Closed);
    }

    /// The peer has ended the connection. A queue pair that stays as it is fails once it has a
    /// request: to be called again whenever something was posted.
    pub fn handle_closed(&mut self) {
        self.end = ConnectionEnd::Peer(0);
        if let Some(fault) = self.rdmap.take_refused() {
            self.fail(fault);
        }
        let idle = self.qp.sq().is_idle();
        match self.when_closed {
            WhenClosed::Fail => self.fail(StreamFault::Closed),
            WhenClosed::Stay if idle => {}
            WhenClosed::Stay => self.fail(StreamFault::Unreachable),
        }
    }

    fn fail(&mut self, fault: StreamFault) {
        if self.rdmap.is_dead() {
            return;
        }
        // The application may free its memory once its requests are flushed.
        let whole = self.out.detach(&self.qp.regions().reader()) || self.mpa.forget_unsent();
        self.broken |= !whole;
        self.mpa.release();
        self.nudge_at_ns = None;
        self.speak_at_ns = None;
        self.decide_at_ns = None;
        self.stalled_at_ns = None;
        (self.held, self.held_until_ns) = (false, None);
        if let Some(traffic) = &mut self.lane {
            let terminated = matches!(fault, StreamFault::Terminated(_));
            traffic.finish(&mut self.rdmap, &self.qp, terminated);
        }
        self.rdmap.fail(&self.qp, fault);
    }

    /// Whether it will speak although the peer has not.
    pub fn is_about_to_speak(&self) -> bool {
        self.speak_at_ns.is_some() && !self.heard()
    }

    /// Waits as long again before it speaks: the peer does not even have the Reply yet, and would
    /// find both together.
    pub fn postpone_speaking(&mut self, now_ns: u64) {
        if self.is_about_to_speak() {
            self.speak_at_ns = Some(now_ns + SPEAK_AFTER_NS);
        }
    }

    /// Nobody ran at this end for the last `for_ns`: its process was stopped, and neither the peer
    /// nor the application had that time. To be called before anything else that follows the stop.
    pub fn handle_stop(&mut self, for_ns: u64) {
        let limits = [&mut self.decide_at_ns, &mut self.stalled_at_ns, &mut self.held_until_ns];
        limits.into_iter().flatten().for_each(|at_ns| *at_ns += for_ns);
    }

    /// What has come about: that the connection is established, then that it has ended.
    pub fn poll_event(&mut self) -> Option<ConnEvent> {
        let heard = match self.lane {
            Some(_) => self.rdmap.stats().segments_in > 0,
            None => self.rdmap.heard(),
        };
        let established = !self.awaits_peer || heard;
        let event = match self.told {
            Told::Nothing if established => {
                let (ord, ird) = self.depths;
                ConnEvent::Established(Established { private_data: Vec::new(), ord, ird })
            }
            Told::Nothing | Told::Established if self.rdmap.is_dead() => {
                ConnEvent::Ended { end: self.end, private_data: Vec::new() }
            }
            _ => return None,
        };
        let ended = matches!(event, ConnEvent::Ended { .. });
        self.told = if ended { Told::Ended } else { Told::Established };
        Some(event)
    }

    /// When [`MpaQp::handle_timeout`] is due, in nanoseconds.
    pub fn poll_timeout(&self) -> Option<u64> {
        earliest([
            self.nudge_at_ns,
            self.speak_at_ns,
            self.decide_at_ns,
            self.stalled_at_ns,
            self.held_until_ns,
            self.lane.as_ref().and_then(LaneTraffic::ack_due_ns),
        ])
    }

    /// Does what is due; [`MpaQp::poll_transmit`] comes next.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        let due = |at: &mut Option<u64>| at.take_if(|at_ns| *at_ns <= now_ns).is_some();
        if due(&mut self.nudge_at_ns) && self.rdmap.spoken() && !self.rdmap.heard() {
            self.rdmap.nudge();
        }
        if due(&mut self.speak_at_ns) {
            self.mpa.release();
        }
        if due(&mut self.decide_at_ns) {
            self.rdmap.assume_plain();
        }
        if due(&mut self.stalled_at_ns) {
            self.fail(StreamFault::Lower(None));
        }
    }
}
