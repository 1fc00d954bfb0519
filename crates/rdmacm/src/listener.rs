//! Listening sockets: streams are accepted while there is room; at the same port of UDP Requests of
//! Shuttle are taken.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use weft_host::Host;
use weft_net::lane::rendezvous::LaneListener;
use weft_net::secrecy::{Chosen, PeerTransport};
use weft_net::socket;
use weft_os::clock::Moment;
use weft_os::fds::HighFd;
use weft_reactor::{Interest, Pollable, Token};
use weft_rnic::cm::CmState;

use crate::channel::IdEvent;
use crate::config;
use crate::id::CmId;
use crate::request::HalfOpen;
use crate::shuttle_listener::ShuttleListener;

/// Where streams are accepted.
pub(crate) struct StreamAcceptor {
    socket: HighFd,
    token: Token,
    /// Where lanes are offered for its streams.
    lanes: Option<Arc<LaneListener>>,
}

impl StreamAcceptor {
    /// Has `source` called when streams wait at `fd`, in whose place `lanes` are offered.
    pub(crate) fn open(
        host: &Host,
        (fd, lanes): (OwnedFd, Option<LaneListener>),
        source: Arc<dyn Pollable>,
    ) -> Self {
        let socket = HighFd::new(fd);
        let token = host.reactor().add(socket.as_fd(), Interest::READ, source);
        Self { socket, token, lanes: lanes.map(Arc::new) }
    }
}

/// Connections of a host that are looked at before its next request is told, and those among which
/// they and the requests that it has are looked for: a client that comes again has ended one that
/// it had lately.
const SETTLED_MAX: usize = 16;
const SEEN_MAX: usize = 256;

/// A request that the application is not told of before the ends of connections that its sender's
/// host had here.
struct RequestBehindEnds {
    request: IdEvent,
    ends: Vec<Weak<CmId>>,
}

impl RequestBehindEnds {
    fn is_due(&self) -> bool {
        !self.ends.iter().filter_map(Weak::upgrade).any(|id| id.is_parting())
    }
}

/// Listening sockets, and the streams accepted that have not come to anything yet.
pub(crate) struct CmListener {
    host: Arc<Host>,
    door: Option<StreamAcceptor>,
    pub(crate) shuttle: Option<Arc<ShuttleListener>>,
    armed: bool,
    backlog: usize,
    /// Requests that the application has not read.
    pub(crate) unread: usize,
    pub(crate) half_open: VecDeque<Arc<HalfOpen>>,
    /// Requests that were announced, and those that have become connections, until these end; some
    /// are of ids that are no more.
    announced: VecDeque<Weak<CmId>>,
    /// Of how many the list is cleaned next.
    clean_at: usize,
    /// Requests that are yet to be told, in the order in which they came.
    untold: VecDeque<RequestBehindEnds>,
    /// When it is looked next whether one of these is to be told.
    next_look: Option<Moment>,
}

impl CmListener {
    /// At these sockets; at most `backlog` requests over TCP wait for the application (0 means
    /// [`config::BACKLOG_MAX`]).
    pub(crate) fn new(
        host: &Arc<Host>,
        door: Option<StreamAcceptor>,
        shuttle: Option<Arc<ShuttleListener>>,
        backlog: usize,
    ) -> Self {
        let backlog = match backlog {
            0 => config::BACKLOG_MAX,
            some => some.min(config::BACKLOG_MAX),
        };
        let (half_open, announced) = (VecDeque::new(), VecDeque::new());
        let host = Arc::clone(host);
        Self {
            host,
            door,
            shuttle,
            armed: true,
            backlog,
            unread: 0,
            half_open,
            announced,
            clean_at: SETTLED_MAX,
            untold: VecDeque::new(),
            next_look: None,
        }
    }

    /// Does something to each socket.
    pub(crate) fn for_each(
        &self,
        act: impl Fn(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(door) = &self.door {
            act(door.socket.as_fd())?;
        }
        match self.shuttle.as_ref().and_then(|shuttle| shuttle.port()) {
            Some(port) => act(port.as_fd()),
            None => Ok(()),
        }
    }

    /// Stops to accept, and closes every stream that has not sent its Request.
    pub(crate) fn stop(&self) {
        if let Some(door) = &self.door {
            self.host.reactor().remove(door.token);
        }
        if let Some(shuttle) = &self.shuttle {
            shuttle.stop();
        }
        for half_open in &self.half_open {
            half_open.close();
        }
    }

    /// Whether Requests of Shuttle are taken as well as streams.
    pub(crate) fn serves_both(&self) -> bool {
        self.door.is_some() && self.shuttle.is_some()
    }

    /// Ends the socket of streams, whose port somebody else needs, with those that have not sent
    /// their Request.
    pub(crate) fn close_door(&mut self) {
        if let Some(door) = self.door.take() {
            self.host.reactor().remove(door.token);
        }
        self.half_open.drain(..).for_each(|half_open| half_open.close());
    }

    pub(crate) fn arm(&mut self, on: bool) {
        if self.armed != on {
            self.armed = on;
            let interest = if on { Interest::READ } else { Interest::NONE };
            if let Some(door) = &self.door {
                self.host.reactor().modify(door.token, interest);
            }
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.unread >= self.backlog
    }

    /// Accepts a stream, unless it is of a stranger: that is closed, and hears nothing.
    pub(crate) fn accept(
        &self,
        chosen: Chosen,
    ) -> io::Result<(TcpStream, Option<Arc<LaneListener>>)> {
        let door = self.door.as_ref().ok_or(io::ErrorKind::WouldBlock)?;
        let stream = TcpStream::from(socket::accept(door.socket.as_fd())?);
        let (here, there) = (stream.local_addr()?.ip(), stream.peer_addr()?.ip());
        if self.host.secrecy().admit(PeerTransport::Iwarp(chosen), here, there).is_err() {
            return Err(io::Error::from_raw_os_error(libc::ECONNABORTED));
        }
        socket::prepare_stream(&stream);
        Ok((stream, door.lanes.clone()))
    }

    /// What it means that [`CmListener::accept`] has failed. Linux looks for a free descriptor
    /// before it looks whether anybody waits, so whether somebody does is asked.
    pub(crate) fn setback(&self, error: &io::Error) -> Setback {
        let awaited =
            || self.door.as_ref().is_some_and(|door| socket::is_called(door.socket.as_fd()));
        match error.raw_os_error() {
            Some(libc::EAGAIN) | None => Setback::Empty,
            Some(libc::ECONNABORTED | libc::ENOTCONN) => Setback::OneLost,
            _ if !socket::is_exhausted(error) => Setback::Denied,
            _ if awaited() => Setback::Exhausted,
            _ => Setback::Empty,
        }
    }

    /// A request was announced, of this id.
    pub(crate) fn note_announced(&mut self, id: Weak<CmId>) {
        if self.announced.len() >= self.clean_at {
            let is_open = |id: &Weak<CmId>| id.upgrade().is_some_and(|id| is_open(id.state()));
            self.announced.retain(is_open);
            self.clean_at = SETTLED_MAX.max(2 * self.announced.len());
        }
        self.announced.push_back(id);
    }

    /// The latest requests of `peer` that the application has accepted and that are not over; with
    /// `pending` only those that are not connected yet.
    pub(crate) fn accepted_from(&self, peer: Option<IpAddr>, pending: bool) -> Vec<Arc<CmId>> {
        let mut connected = if pending { 0 } else { SETTLED_MAX };
        let mut counts = |id: &Arc<CmId>| match id.state() {
            CmState::Accepting => true,
            CmState::Connected | CmState::Disconnecting if connected > 0 => {
                connected -= 1;
                true
            }
            _ => false,
        };
        let of_peer = |id: &Arc<CmId>| id.peer_addr().map(|addr| addr.ip()) == peer;
        let latest = self.announced.iter().rev().take(SEEN_MAX).filter_map(Weak::upgrade);
        latest.filter(of_peer).filter(|id| counts(id)).collect()
    }

    /// Keeps a request that is to be told once none of `ends` is kept from the application.
    pub(crate) fn keep(&mut self, request: IdEvent, ends: Vec<Weak<CmId>>) {
        self.untold.push_back(RequestBehindEnds { request, ends });
    }

    /// Takes the requests that are to be told now.
    pub(crate) fn take_due(&mut self) -> impl Iterator<Item = IdEvent> + use<> {
        let (due, untold): (VecDeque<_>, _) =
            mem::take(&mut self.untold).into_iter().partition(RequestBehindEnds::is_due);
        self.untold = untold;
        due.into_iter().map(|due| due.request)
    }

    /// When it is to be looked again whether a request is due, unless somebody does so already.
    pub(crate) fn look_again(&mut self, now: Moment) -> Option<Moment> {
        if self.untold.is_empty() || self.next_look.is_some_and(|next| next > now) {
            return None;
        }
        self.next_look = Some(now + config::SIGHT_LOOK);
        self.next_look
    }

    /// Refuses the requests that the application will never be told of.
    pub(crate) fn refuse_untold(self) {
        self.untold.into_iter().for_each(|untold| untold.request.id.destroy());
    }

    pub(crate) fn add(&mut self, half_open: Arc<HalfOpen>) {
        if self.half_open.len() >= config::half_open_max() {
            self.close_oldest();
        }
        self.half_open.push_back(half_open);
    }

    /// Closes the stream that has waited longest for its Request; whether there was one. A peer
    /// that means it has sent its Request long ago.
    pub(crate) fn close_oldest(&mut self) -> bool {
        let oldest = self.half_open.pop_front();
        oldest.map(|oldest| oldest.close()).is_some()
    }
}

/// Whether a request may yet become a connection, or is one that is not over.
fn is_open(state: CmState) -> bool {
    matches!(
        state,
        CmState::ConnectRequest | CmState::Accepting | CmState::Connected | CmState::Disconnecting
    )
}

/// What an error of accept means for the listener.
pub(crate) enum Setback {
    /// Nobody is waiting.
    Empty,
    /// This one stream is gone; there may be others.
    OneLost,
    /// The system refuses to give this one stream, or any.
    Denied,
    /// The system cannot give a stream now.
    Exhausted,
}
