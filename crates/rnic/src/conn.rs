//! A queue pair bound to what carries it: one interface over MPA, Shuttle, unreliable datagrams and
//! loopback.
//!
//! Order of calls: any of [`Conn::handle`] and [`Conn::poll_transmit`], the latter after each of
//! the former and after work was posted; then [`Conn::poll_event`] until there is none, and
//! [`Conn::poll_timeout`], which says when [`Input::Timeout`] is due. Times are nanoseconds of one
//! clock of the caller's; for datagrams that are sealed it is the time of day.

use std::sync::Arc;

use weft_rdmap::StreamStats;
use weft_shuttle::Route;
use weft_verbs::Qp;
use weft_wire::capability::Capabilities;
use weft_wire::tap::PacketTap;

use crate::batch::{Batch, Written};
use crate::event::{ConnEvent, Sending};
use crate::lane::SegmentLane;
use crate::loopback::LoopbackQp;
use crate::mpa_qp::MpaQp;
use crate::rnr::RetryLimits;
use crate::shuttle_qp::ShuttleQp;
use crate::ud_qp::UdQp;

/// What happens to a connection. What does not fit its transport is ignored.
#[derive(Debug)]
pub enum Input<'a> {
    /// The stream from the first byte on that was not consumed (MPA).
    Bytes(&'a [u8]),
    /// A datagram, which may be opened in place (Shuttle, unreliable datagrams).
    Datagram {
        /// From where, and to which of this host's addresses.
        route: Route,
        /// The network marked it as congested (ECN).
        marked: bool,
        /// Its bytes.
        bytes: &'a mut [u8],
    },
    /// Receives were posted (Shuttle, loopback; elsewhere the bytes are offered again).
    Posted,
    /// What [`Conn::poll_timeout`] has named may be due.
    Timeout,
    /// Nobody ran at this end for so long: its process was stopped. Comes before anything else that
    /// follows the stop.
    Stopped {
        /// For so many nanoseconds.
        for_ns: u64,
    },
    /// The peer has closed its end of the stream, or is known to be gone.
    PeerGone,
    /// This side ends the connection: what is not complete is flushed.
    Close,
}

/// A queue pair bound to what carries it.
pub enum Conn {
    /// A TCP connection, by MPA (RFC 5044).
    Mpa(Box<MpaQp>),
    /// A Shuttle connection, over UDP.
    Shuttle(Box<ShuttleQp>),
    /// Unreliable datagrams, over UDP.
    Datagram(Box<UdQp>),
    /// Itself.
    Loopback(Box<LoopbackQp>),
}

impl Conn {
    /// Takes what happens. Gives how many of the bytes are consumed: what is left of a stream, or a
    /// datagram of which none are, is to be offered again once [`Conn::is_held`] is over.
    pub fn handle(&mut self, input: Input<'_>, now_ns: u64) -> usize {
        match self {
            Self::Mpa(mpa) => match input {
                Input::Bytes(bytes) => return mpa.receive(bytes, now_ns),
                Input::Timeout => mpa.handle_timeout(now_ns),
                Input::Stopped { for_ns } => mpa.handle_stop(for_ns),
                Input::PeerGone => mpa.handle_closed(),
                Input::Close => mpa.close(),
                Input::Datagram { .. } | Input::Posted => {}
            },
            Self::Shuttle(shuttle) => match input {
                Input::Datagram { route, marked, bytes } => {
                    shuttle.receive(now_ns, route, marked, bytes);
                    return bytes.len();
                }
                Input::Posted => shuttle.handle_posted(now_ns),
                Input::Timeout => shuttle.handle_timeout(now_ns),
                Input::Stopped { for_ns } => shuttle.handle_stop(for_ns),
                Input::PeerGone => shuttle.handle_unreachable(now_ns),
                Input::Close => shuttle.close(now_ns),
                Input::Bytes(_) => {}
            },
            Self::Datagram(ud) => match input {
                Input::Datagram { route, bytes, .. } => return ud.receive(now_ns, &route, bytes),
                Input::Close => ud.close(),
                _ => {}
            },
            Self::Loopback(loopback) => match input {
                Input::Posted => loopback.poll_transmit(),
                Input::PeerGone | Input::Close => loopback.close(),
                _ => {}
            },
        }
        0
    }

    /// Gives what may leave now to `write`, batch by batch, until it takes no more. Of datagrams
    /// those that cannot leave are lost, as on the path; `clock_ns` tells the time of each burst.
    pub fn poll_transmit(
        &mut self,
        clock_ns: impl FnMut() -> u64,
        write: impl FnMut(&Batch<'_>) -> Written,
    ) -> Sending {
        match self {
            Self::Mpa(mpa) => mpa.poll_transmit(write),
            Self::Shuttle(shuttle) => shuttle.poll_transmit(clock_ns, write),
            Self::Datagram(ud) => ud.poll_transmit(clock_ns, write),
            Self::Loopback(loopback) => {
                loopback.poll_transmit();
                Sending::Done
            }
        }
    }

    /// Has the connection go on over shared memory, at both ends before either has sent anything of
    /// its queue pair. From then on [`Conn::receive_from`] and [`Conn::transmit_to`] move what
    /// the queue pair sends; over Shuttle the rest goes by datagrams as before.
    pub fn use_lane(&mut self) {
        match self {
            Self::Mpa(mpa) => mpa.use_lane(),
            Self::Shuttle(shuttle) => shuttle.use_lane(),
            Self::Datagram(_) | Self::Loopback(_) => {}
        }
    }

    /// Takes what has arrived in `lane`; whether anything was new.
    pub fn receive_from(&mut self, lane: &mut impl SegmentLane, now_ns: u64) -> bool {
        match self {
            Self::Mpa(mpa) => mpa.receive_from(lane, now_ns),
            Self::Shuttle(shuttle) => shuttle.receive_from(lane, now_ns),
            Self::Datagram(_) | Self::Loopback(_) => false,
        }
    }

    /// Writes what may leave now to `lane`.
    pub fn transmit_to(&mut self, lane: &mut impl SegmentLane, now_ns: u64) -> Sending {
        match self {
            Self::Mpa(mpa) => mpa.transmit_to(lane, now_ns),
            Self::Shuttle(shuttle) => shuttle.transmit_to(lane, now_ns),
            Self::Datagram(_) | Self::Loopback(_) => Sending::Done,
        }
    }

    /// Acknowledges what was placed of `lane`, which is about to end, and completes what the peer
    /// has acknowledged.
    pub fn acknowledge_to(&mut self, lane: &mut impl SegmentLane) {
        match self {
            Self::Mpa(mpa) => mpa.acknowledge_to(lane),
            Self::Shuttle(shuttle) => shuttle.acknowledge_to(lane),
            Self::Datagram(_) | Self::Loopback(_) => {}
        }
    }

    /// Count of segments of requests, since the lane began, that the peer has placed when the next
    /// signaled request completes, or `all` that are under way; none if that awaits no segment.
    pub fn awaited_acks(&self, all: bool) -> Option<u64> {
        match self {
            Self::Mpa(mpa) => mpa.awaited_acks(all),
            Self::Shuttle(shuttle) => shuttle.awaited_acks(all),
            Self::Datagram(_) | Self::Loopback(_) => None,
        }
    }

    /// Whether the peer has yet to read memory that is lent to it by its lane.
    pub fn is_lending(&self) -> bool {
        match self {
            Self::Mpa(mpa) => mpa.is_lending(),
            Self::Shuttle(shuttle) => shuttle.is_lending(),
            Self::Datagram(_) | Self::Loopback(_) => false,
        }
    }

    /// Region `key` is gone: a request whose memory is lent to the peer by its lane, and named by
    /// that key, fails.
    pub fn end_loans_of(&mut self, key: u32, lane: &mut impl SegmentLane, now_ns: u64) {
        match self {
            Self::Mpa(mpa) => mpa.end_loans_of(key, lane),
            Self::Shuttle(shuttle) => shuttle.end_loans_of(key, lane, now_ns),
            Self::Datagram(_) | Self::Loopback(_) => {}
        }
    }

    /// Whether a request of the peer is refused once those before it are answered: until then the
    /// acknowledgements of the answers are awaited.
    pub fn is_refusing(&self) -> bool {
        match self {
            Self::Mpa(mpa) => mpa.is_refusing(),
            Self::Shuttle(shuttle) => shuttle.is_refusing(),
            Self::Datagram(_) | Self::Loopback(_) => false,
        }
    }

    /// Whether it is open and does nothing but carry segments: nothing has failed or is to be told,
    /// and no message waits for a receive at either end.
    pub fn is_flowing(&self) -> bool {
        match self {
            Self::Mpa(mpa) => mpa.is_flowing(),
            Self::Shuttle(shuttle) => shuttle.is_flowing(),
            Self::Datagram(_) | Self::Loopback(_) => false,
        }
    }

    /// Whether [`Conn::transmit_to`] may have something to write.
    pub fn may_send(&self) -> bool {
        match self {
            Self::Mpa(mpa) => mpa.may_send(),
            Self::Shuttle(shuttle) => shuttle.may_send(),
            Self::Datagram(_) | Self::Loopback(_) => false,
        }
    }

    /// When what was placed from a lane is to be acknowledged at the latest, in nanoseconds.
    pub fn lane_ack_due_ns(&self) -> Option<u64> {
        match self {
            Self::Mpa(mpa) => mpa.lane_ack_due_ns(),
            Self::Shuttle(shuttle) => shuttle.lane_ack_due_ns(),
            Self::Datagram(_) | Self::Loopback(_) => None,
        }
    }

    /// When [`Input::Timeout`] is due, in nanoseconds.
    pub fn poll_timeout(&self) -> Option<u64> {
        match self {
            Self::Mpa(mpa) => mpa.poll_timeout(),
            Self::Shuttle(shuttle) => shuttle.poll_timeout(),
            // Nothing is repeated and nobody is waited for.
            Self::Datagram(_) | Self::Loopback(_) => None,
        }
    }

    /// The next of what has come about.
    pub fn poll_event(&mut self) -> Option<ConnEvent> {
        match self {
            Self::Mpa(mpa) => mpa.poll_event(),
            Self::Shuttle(shuttle) => shuttle.poll_event(),
            Self::Datagram(ud) => ud.poll_event(),
            Self::Loopback(loopback) => loopback.poll_event(),
        }
    }

    /// The queue pair.
    pub fn qp(&self) -> &Arc<Qp> {
        match self {
            Self::Mpa(mpa) => mpa.qp(),
            Self::Shuttle(shuttle) => shuttle.qp(),
            Self::Datagram(ud) => ud.qp(),
            Self::Loopback(loopback) => loopback.qp(),
        }
    }

    /// Counters.
    pub fn stats(&self) -> StreamStats {
        match self {
            Self::Mpa(mpa) => mpa.stats(),
            Self::Shuttle(shuttle) => shuttle.stats(),
            Self::Datagram(ud) => ud.stats(),
            Self::Loopback(loopback) => loopback.stats(),
        }
    }

    /// Who does what below the verbs.
    pub fn capabilities(&self) -> Capabilities {
        match self {
            Self::Mpa(mpa) => mpa.capabilities(),
            Self::Shuttle(shuttle) => shuttle.capabilities(),
            Self::Datagram(ud) => ud.capabilities(),
            Self::Loopback(loopback) => loopback.capabilities(),
        }
    }

    /// Has `tap` see what is sent and received from now on. Loopback and lanes have nothing to see.
    pub fn set_tap(&mut self, tap: Box<dyn PacketTap>) {
        match self {
            Self::Mpa(mpa) => mpa.set_tap(tap),
            Self::Shuttle(shuttle) => shuttle.connection_mut().set_tap(tap),
            Self::Datagram(ud) => ud.set_tap(tap),
            Self::Loopback(_) => {}
        }
    }

    /// Whether a message waits for a receive, and what follows it with it.
    pub fn is_held(&self) -> bool {
        match self {
            Self::Mpa(mpa) => mpa.is_held(),
            Self::Shuttle(shuttle) => shuttle.is_held(),
            Self::Datagram(ud) => ud.is_held(),
            Self::Loopback(loopback) => loopback.is_held(),
        }
    }

    /// Whether it has failed or was closed: nothing is placed any more.
    pub fn is_dead(&self) -> bool {
        match self {
            Self::Mpa(mpa) => mpa.is_dead(),
            Self::Shuttle(shuttle) => shuttle.is_dead(),
            Self::Datagram(ud) => ud.is_dead(),
            Self::Loopback(loopback) => loopback.is_dead(),
        }
    }

    /// Says what the application has set for its requests, where the handshake did not: how many
    /// Reads and Atomics may be outstanding, and how long a request waits for a silent peer.
    pub fn set_requester(&mut self, ord: u16, limits: RetryLimits) {
        match self {
            Self::Shuttle(shuttle) => {
                shuttle.set_ord(ord);
                shuttle.set_retry_limits(limits);
            }
            Self::Loopback(loopback) => loopback.set_ord(ord),
            // MPA has agreed on depths, TCP waits by itself; datagrams have neither.
            Self::Mpa(_) | Self::Datagram(_) => {}
        }
    }
}
