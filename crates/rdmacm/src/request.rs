//! The passive side: streams that have yet to send their Request, and Requests that wait for the
//! application's answer.

use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use weft_host::Host;
use weft_net::lane::rendezvous::LaneListener;
use weft_net::mpa_frame::{FrameProgress, FrameReader};
use weft_net::stream::MpaCarrier;
use weft_os::clock::Moment;
use weft_reactor::{Interest, Pollable, Readiness, Token};
use weft_rnic::cm::{self, CmEvent, Depths, Failure, QpTerms};
use weft_rnic::mpa::negotiate::Responder;
use weft_rnic::mpa::{Agreed, MpaOffer};
use weft_rnic::wire::mpa::StartKind;
use weft_sync::Mutex;

use crate::config;
use crate::device::{IWARP, failure};
use crate::lingering_reject::LingeringReject;

/// Who has accepted streams, and wants the Requests that come by them.
pub(crate) trait Listening: Send + Sync {
    /// This stream has come to something, or to nothing.
    fn forget_half_open(&self, gone: &HalfOpen);
    /// A stream has brought its Request.
    fn announce(&self, request: HeldRequest);
}

/// An accepted stream whose Request is not whole yet.
pub(crate) struct HalfOpen {
    host: Arc<Host>,
    listener: Weak<dyn Listening>,
    lanes: Option<Arc<LaneListener>>,
    reading: Mutex<Option<CmRequestReader>>,
}

struct CmRequestReader {
    stream: TcpStream,
    token: Token,
    reader: FrameReader,
    deadline: Moment,
}

impl HalfOpen {
    /// Waits for the Request of `stream`, on behalf of `listener`.
    pub(crate) fn start(
        host: &Arc<Host>,
        listener: Weak<dyn Listening>,
        (stream, lanes): (TcpStream, Option<Arc<LaneListener>>),
    ) -> Arc<HalfOpen> {
        let deadline = weft_os::clock::now() + config::REQUEST_TIMEOUT;
        let half_open = Arc::new(HalfOpen {
            host: Arc::clone(host),
            listener,
            lanes,
            reading: Mutex::new(None),
        });
        // Locked, so that the engine's first call finds the state in place.
        let mut reading = half_open.reading.lock();
        let token = host.reactor().add(stream.as_fd(), Interest::READ, half_open.clone());
        let reader = FrameReader::new(StartKind::Request);
        *reading = Some(CmRequestReader { stream, token, reader, deadline });
        drop(reading);
        let weak: Weak<HalfOpen> = Arc::downgrade(&half_open);
        host.reactor().set_timer(deadline, weak);
        half_open
    }

    /// Closes the stream without a word.
    pub(crate) fn close(&self) {
        drop(self.finish());
    }

    fn finish(&self) -> Option<TcpStream> {
        let reading = self.reading.lock().take()?;
        self.host.reactor().remove(reading.token);
        Some(reading.stream)
    }

    fn progress(&self) -> FrameProgress {
        let mut reading = self.reading.lock();
        match reading.as_mut() {
            Some(reading) => reading.reader.read(&reading.stream),
            None => FrameProgress::Pending,
        }
    }

    fn leave(&self) -> Option<TcpStream> {
        let stream = self.finish()?;
        if let Some(listener) = self.listener.upgrade() {
            listener.forget_half_open(self);
        }
        Some(stream)
    }
}

impl Pollable for HalfOpen {
    fn ready(&self, _: Readiness) {
        let answer = match self.progress() {
            FrameProgress::Pending => return,
            FrameProgress::Broken(_) => None,
            FrameProgress::Whole(frame) => Responder::handle_request(&frame).ok(),
        };
        let Some(stream) = self.leave() else { return };
        if let (Some(responder), Some(listener)) = (answer, self.listener.upgrade()) {
            let (host, lanes) = (Arc::clone(&self.host), self.lanes.clone());
            let request = HeldRequest { host, stream, responder, lanes };
            // The application would fail to accept it.
            if request.check_silent().is_ok() {
                listener.announce(request);
            }
        }
    }

    fn timeout(&self, now: Moment) {
        let late = {
            let reading = self.reading.lock();
            reading.as_ref().is_some_and(|reading| reading.deadline <= now)
        };
        if late {
            drop(self.leave());
        }
    }
}

/// A Request that waits for an answer.
pub(crate) struct HeldRequest {
    host: Arc<Host>,
    pub(crate) stream: TcpStream,
    responder: Responder,
    lanes: Option<Arc<LaneListener>>,
}

impl HeldRequest {
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// The state machine of an id for this request, and the event that announces it.
    ///
    /// A peer that does not speak RFC 6581 says nothing of its depths. It gets all that the device
    /// serves, and is expected to serve one Read at a time.
    pub(crate) fn to_machine(&self) -> (cm::IdMachine, Option<CmEvent>) {
        let peer = Depths {
            ird: self.responder.ird().unwrap_or(1),
            ord: self.responder.ord().unwrap_or(IWARP.depths.ird),
        };
        let private_data = self.responder.private_data().to_vec();
        let mut machine =
            cm::IdMachine::from_request(IWARP, peer, private_data, QpTerms::default());
        let event = machine.poll_event();
        (machine, event)
    }

    pub(crate) fn accept(self, offer: &MpaOffer) -> Result<(MpaCarrier, Agreed), Failure> {
        self.check_silent()?;
        let (reply, agreed) = self.responder.accept(offer).map_err(|_| Failure::Protocol)?;
        let lane = self.lanes.and_then(|lanes| lanes.claim(&self.stream));
        send_whole(&self.stream, &reply)?;
        Ok((MpaCarrier::new(self.stream, lane), agreed))
    }

    pub(crate) fn reject(self, private_data: &[u8]) -> Result<(), Failure> {
        let reply = self.responder.reject(private_data).map_err(|_| Failure::Protocol)?;
        send_whole(&self.stream, &reply)?;
        LingeringReject::say(&self.host, self.stream);
        Ok(())
    }

    /// An initiator has nothing to say before the Reply (RFC 5044, section 7.1.2). It may have
    /// left, though.
    fn check_silent(&self) -> Result<(), Failure> {
        match self.stream.peek(&mut [0]) {
            Ok(0) => Err(Failure::Reset),
            Ok(_) => Err(Failure::Protocol),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(e) => Err(failure(&e)),
        }
    }
}

/// Sends a start frame. The socket is new and has room for far more.
fn send_whole(mut stream: &TcpStream, frame: &[u8]) -> Result<(), Failure> {
    match stream.write(frame) {
        Ok(n) if n == frame.len() => Ok(()),
        Ok(_) => Err(Failure::Reset),
        Err(e) => Err(failure(&e)),
    }
}
