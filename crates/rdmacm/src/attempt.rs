//! A connection attempt over TCP: from a socket that connects to the peer's Reply.
//!
//! The stream is non-blocking from the start; the reactor calls when TCP has connected and when the
//! Reply comes. A peer that closes without a word on a Request of RFC 6581 may be an older one,
//! which did not understand it.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_host::{Host, HostQp};
use weft_net::lane::rendezvous::LaneOffer;
use weft_net::mpa_frame::{FrameProgress, FrameReader};
use weft_net::report;
use weft_net::silence::{Awaited, Silence};
use weft_net::socket;
use weft_os::clock::{self, Moment};
use weft_reactor::{Interest, Pollable, Token};
use weft_rnic::cm::Failure;
use weft_rnic::mpa::negotiate::{Initiator, MpaReply};
use weft_rnic::mpa::{MpaError, MpaOffer};
use weft_rnic::wire::mpa::StartKind;

use crate::config;
use crate::device::failure;

/// How long refusals are not believed, and when the next call is due.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) until: Moment,
    pub(crate) pause: Duration,
}

impl Patience {
    /// That of a new attempt.
    pub(crate) fn new() -> Self {
        let until = clock::now() + config::REFUSED_PATIENCE;
        Self { until, pause: config::REDIAL_PAUSE }
    }
}

/// Whom to call from where, and what to ask.
pub(crate) struct AttemptParams {
    pub(crate) fd: OwnedFd,
    pub(crate) offer: MpaOffer,
    pub(crate) qp: Weak<HostQp>,
    pub(crate) patience: Patience,
}

/// A connection attempt.
pub(crate) struct Attempt {
    host: Arc<Host>,
    pub(crate) stream: TcpStream,
    token: Token,
    dialed: bool,
    offer: MpaOffer,
    initiator: Initiator,
    reader: FrameReader,
    pub(crate) qp: Weak<HostQp>,
    patience: Patience,
    pub(crate) silence: Silence,
    /// A lane was offered to the peer.
    pub(crate) lane: Option<LaneOffer>,
}

/// What one call of the engine brought.
pub(crate) enum AttemptStep {
    /// Nothing that matters yet.
    Wait,
    /// TCP is connected and the Request is out.
    Dialed,
    /// The peer closed on a Request that it may not have understood.
    Misunderstood,
    Failed(Failure),
    Answered(MpaReply),
}

impl Attempt {
    /// The attempt that begins with `call`, whose socket is connecting.
    pub(crate) fn new(
        host: &Arc<Host>,
        call: AttemptParams,
        initiator: Initiator,
        peer: SocketAddr,
        source: Arc<dyn Pollable>,
    ) -> Attempt {
        let AttemptParams { fd, offer, qp, patience } = call;
        let stream = TcpStream::from(fd);
        // Connected or not, the next step is the engine's: the socket is writable then.
        let token = host.reactor().add(stream.as_fd(), Interest::WRITE, source);
        let reader = FrameReader::new(StartKind::Reply);
        let silence = Silence::new(Awaited::Stream { peer }, clock::now());
        let host = Arc::clone(host);
        Attempt {
            host,
            stream,
            token,
            dialed: false,
            offer,
            initiator,
            reader,
            qp,
            patience,
            silence,
            lane: None,
        }
    }

    /// Time has passed: a peer that does not answer is mentioned.
    pub(crate) fn look(&mut self, now: Moment) {
        self.silence.look(now);
    }

    pub(crate) fn stop(&self) {
        self.host.reactor().remove(self.token);
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// What another attempt begins with.
    pub(crate) fn into_call(self) -> AttemptParams {
        let Attempt { stream, offer, qp, patience, .. } = self;
        AttemptParams { fd: stream.into(), offer, qp, patience }
    }

    pub(crate) fn step(&mut self) -> AttemptStep {
        if self.dialed { self.read_reply() } else { self.finish_dial() }
    }

    fn finish_dial(&mut self) -> AttemptStep {
        match self.stream.take_error() {
            Ok(None) => {}
            Ok(Some(e)) | Err(e) => return AttemptStep::Failed(failure(&e)),
        }
        let Ok(peer) = self.stream.peer_addr() else { return AttemptStep::Wait };
        self.silence.await_instead(Awaited::Reply { peer });
        socket::prepare_stream(&self.stream);
        self.lane = self.host.permits_lanes().then(|| LaneOffer::make(&self.stream)).flatten();
        let request = self.initiator.request();
        match (&self.stream).write(&request) {
            Ok(n) if n == request.len() => {}
            // A new socket has room for far more than a Request.
            Ok(_) => return AttemptStep::Failed(Failure::Reset),
            Err(e) => return self.closed(failure(&e)),
        }
        self.dialed = true;
        self.host.reactor().modify(self.token, Interest::READ);
        AttemptStep::Dialed
    }

    fn read_reply(&mut self) -> AttemptStep {
        match self.reader.read(&self.stream) {
            FrameProgress::Pending => AttemptStep::Wait,
            FrameProgress::Broken(failure) => self.closed(failure),
            FrameProgress::Whole(frame) => match self.initiator.handle_reply(&frame) {
                Ok(reply) => AttemptStep::Answered(reply),
                Err(MpaError::Revision(_)) if self.offer.enhanced => AttemptStep::Misunderstood,
                Err(_) => self.closed(Failure::Protocol),
            },
        }
    }

    fn closed(&self, failure: Failure) -> AttemptStep {
        let silent = failure == Failure::Reset && self.reader.is_empty();
        if silent && self.offer.enhanced {
            return AttemptStep::Misunderstood;
        }
        if let (Failure::Protocol, Ok(peer)) = (failure, self.stream.peer_addr()) {
            let (ip, port) = (peer.ip(), peer.port());
            report::warning(format!(
                "what answers at {ip} port {port} of TCP does not speak iWARP: is the application \
                 there under Weft?"
            ));
        }
        AttemptStep::Failed(failure)
    }
}
