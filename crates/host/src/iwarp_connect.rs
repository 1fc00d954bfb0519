//! Connects a queue pair over TCP to the peer that its application named.
//!
//! The queue pair with the smaller number calls the port that the other one's number names, and
//! says for which queue pair; the other one waits there ([`crate::iwarp_ports`]). A peer that is
//! not there yet is called again. The stream goes to the queue pair once both ends have agreed.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_net::lane::rendezvous::{LaneListener, LaneOffer};
use weft_net::refused;
use weft_net::silence::{Awaited, MENTIONED_AFTER, Silence};
use weft_net::socket::{self, SocketKind};
use weft_net::stream::MpaCarrier;
use weft_os::clock::{self, Moment};
use weft_os::fds::HighFd;
use weft_reactor::{Interest, Pollable, Readiness, Token};
use weft_rnic::mpa::negotiate::{Initiator, MpaReply, Responder};
use weft_rnic::mpa::{Agreed, MpaOffer, MpaRole};
use weft_rnic::wire::mpa::StartKind;
use weft_rnic::wire::shuttle::greeting::{CmTerms, Greeting, Purpose};
use weft_sync::Mutex;
use weft_verbs::{Misuse, QpState};

use crate::conn_slot::ConnSlot;
use crate::driver::LinkWatcher;
use crate::iwarp_ports::{AwaitsStream, Number};
use crate::qp::{CompletionRule, take_stream};
use crate::roce_connect::RocePeer;
use crate::wakes::PostponingGuard;
use weft_net::mpa_frame::{FrameProgress, FrameReader};

/// How long after the first vain call the peer is called again; twice as long after each further
/// one, up to the longest pause.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// How long requests wait for a peer that is not there before they fail.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked, after that, whether any wait.
const PATIENCE_LOOK: Duration = Duration::from_secs(1);

/// A queue pair on its way to its peer.
pub(crate) struct IwarpConnect {
    qp: Arc<weft_verbs::Qp>,
    slot: Arc<ConnSlot>,
    number: u32,
    peer: RocePeer,
    /// This end calls; otherwise it is called.
    calls: bool,
    stage: Mutex<ConnectStage>,
    since: Moment,
    silence: Mutex<Silence>,
    /// When an end that calls looks again whatever happens.
    next_look: Mutex<Moment>,
    /// A descriptor that is kept for the stream of the peer, so that the lack of one is an error of
    /// the verb that connects and not a wait without end.
    spare: Mutex<Option<HighFd>>,
    this: Weak<IwarpConnect>,
}

enum ConnectStage {
    /// Waits for the peer, or to call it again.
    Resting {
        pause: Duration,
        until: Moment,
    },
    Calling(Box<IwarpDial>, Duration),
    /// The stream is the queue pair's, or nobody wants it any more.
    Done,
}

struct IwarpDial {
    stream: TcpStream,
    token: Token,
    dialed: bool,
    initiator: Initiator,
    reader: FrameReader,
    /// A lane was offered to the peer.
    lane: Option<LaneOffer>,
}

/// What one call of the engine brought.
enum DialStep {
    Wait,
    /// TCP is connected and the Request is out.
    Dialed,
    Failed,
    Agreed(Agreed),
}

impl IwarpConnect {
    /// Sets out from the queue pair with this `number` and `cell`.
    pub fn open(
        qp: Arc<weft_verbs::Qp>,
        cell: Arc<ConnSlot>,
        number: &Number,
        peer: RocePeer,
    ) -> Result<Arc<Self>, Misuse> {
        let calls = (number.value(), peer.local) < (peer.qpn, peer.remote);
        let since = clock::now();
        let awaited = if calls {
            Awaited::Stream { peer: (peer.remote, (peer.qpn >> 8) as u16).into() }
        } else {
            Awaited::Connect { peer: peer.remote, here: (number.value() >> 8) as u16 }
        };
        let attempt = Arc::new_cyclic(|this| Self {
            qp,
            slot: cell,
            number: number.value(),
            peer,
            calls,
            stage: Mutex::new(ConnectStage::Resting { pause: PAUSE_FIRST, until: since }),
            since,
            silence: Mutex::new(Silence::new(awaited, since)),
            next_look: Mutex::new(since + MENTIONED_AFTER),
            spare: Mutex::default(),
            this: this.clone(),
        });
        let verb = if calls { "calls" } else { "awaits" };
        log::debug!(
            "queue pair {:#x} {verb} {} {:#x} by TCP",
            attempt.number,
            peer.remote,
            peer.qpn
        );
        attempt.look_again_at(since + MENTIONED_AFTER);
        if calls {
            attempt.call().map_err(refused)?;
        } else {
            *attempt.spare.lock() = Some(number.spare().map_err(refused)?);
            let waiting: Arc<dyn AwaitsStream> = attempt.clone();
            let listening = number.await_call(&waiting);
            listening.map_err(refused)?;
        }
        Ok(attempt)
    }

    /// Completions of the queue pair may come about behind this lock ([`IwarpConnect::link`]).
    fn stage(&self) -> PostponingGuard<'_, ConnectStage> {
        PostponingGuard::lock(&self.stage)
    }

    /// The application wants no connection with this peer any more. When this returns the queue
    /// pair has one, which can be ended, or never will.
    pub fn hang_up(&self) {
        let stage = std::mem::replace(&mut *self.stage(), ConnectStage::Done);
        if let ConnectStage::Calling(call, _) = stage {
            self.slot.host().reactor().remove(call.token);
        }
    }

    fn offer(&self) -> MpaOffer {
        let settings = self.slot.host().settings();
        let greeting = Greeting {
            purpose: Purpose::QueuePair,
            room_octets: 0,
            terms: CmTerms::default(),
            from: self.number,
            to: self.peer.qpn,
            private_data: &[],
        };
        let depth = weft_verbs::limits::IWARP.max_qp_init_rd_atom as u16;
        MpaOffer {
            ird_max: depth,
            crc: settings.crc,
            markers: settings.markers,
            private_data: greeting.encode(),
            // What the application wants outstanding it says later.
            ..MpaOffer::new(self.peer.max_dest_rd_atomic.into(), depth)
        }
    }

    /// Calls the peer, or does so in a while.
    ///
    /// # Errors
    /// If the system has no descriptor or memory left for it now.
    fn call(&self) -> io::Result<()> {
        let mut stage = self.stage();
        let ConnectStage::Resting { pause, until } = *stage else { return Ok(()) };
        // Looks for other reasons come in between, and each call that fails brings another one.
        if clock::now() < until {
            return Ok(());
        }
        match self.dial() {
            Ok(call) => *stage = ConnectStage::Calling(Box::new(call), pause),
            Err(error) => {
                self.rest(&mut stage, pause);
                if socket::is_exhausted(&error) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn dial(&self) -> io::Result<IwarpDial> {
        let at = |ip, port| match SocketAddr::new(ip, port) {
            SocketAddr::V6(mut v6) if v6.ip().is_unicast_link_local() => {
                v6.set_scope_id(self.peer.interface);
                v6.into()
            }
            other => other,
        };
        let remote = at(self.peer.remote, (self.peer.qpn >> 8) as u16);
        let fd = socket::open(&remote, SocketKind::Stream)?;
        let ports = self.slot.host().settings().ports;
        ports.bind(fd.as_fd(), &at(self.peer.local, 0), false)?;
        socket::connect(fd.as_fd(), &remote)?;
        let initiator = Initiator::new(self.offer()).map_err(io::Error::other)?;
        let stream = TcpStream::from(fd);
        let source = self.this.upgrade().ok_or(io::ErrorKind::NotFound)?;
        let token = self.slot.host().reactor().add(stream.as_fd(), Interest::WRITE, source);
        let reader = FrameReader::new(StartKind::Reply);
        Ok(IwarpDial { stream, token, dialed: false, initiator, reader, lane: None })
    }

    fn rest(&self, stage: &mut ConnectStage, pause: Duration) {
        let until = clock::now() + pause;
        *stage = ConnectStage::Resting { pause: (pause * 2).min(PAUSE_MAX), until };
        self.look_again_at(until);
    }

    fn look_again_at(&self, at: Moment) {
        let this: Weak<IwarpConnect> = self.this.clone();
        self.slot.host().reactor().set_timer(at, this);
    }

    /// Has an end that calls look again and again: the peer may have taken a call and never answer
    /// it. Looks for other reasons renew nothing.
    fn keep_looking(&self, now: Moment) {
        let mut next = self.next_look.lock();
        if *next <= now {
            *next = now + PATIENCE_LOOK;
            self.look_again_at(*next);
        }
    }

    /// Gives the stream to the queue pair, with the stage locked: who hangs up waits for it.
    fn link(&self, stream: MpaCarrier, agreed: &Agreed, role: MpaRole) {
        // A queue pair that failed or was destroyed meanwhile takes nothing.
        let nobody = Arc::new(Nobody);
        // Applications that connect by themselves were written for adapters.
        let manner = CompletionRule::OfAdapters;
        let _ = take_stream(&self.qp, &self.slot, stream, agreed, role, nobody, manner);
    }

    /// Requests that cannot be delivered fail after a while.
    fn lose_patience(&self, now: Moment) -> bool {
        let late = now.saturating_duration_since(self.since) > PATIENCE;
        let fails = late && self.qp.state() == QpState::Rts && !self.qp.sq().is_idle();
        if fails {
            weft_rnic::give_up(&self.qp);
        }
        fails
    }
}

impl IwarpDial {
    fn step(&mut self, lanes: bool) -> DialStep {
        if self.dialed {
            return match self.reader.read(&self.stream) {
                FrameProgress::Pending => DialStep::Wait,
                FrameProgress::Broken(_) => DialStep::Failed,
                FrameProgress::Whole(frame) => match self.initiator.handle_reply(&frame) {
                    Ok(MpaReply::Accepted(agreed)) => DialStep::Agreed(agreed),
                    _ => DialStep::Failed,
                },
            };
        }
        if !matches!(self.stream.take_error(), Ok(None)) {
            return DialStep::Failed;
        }
        if self.stream.peer_addr().is_err() {
            return DialStep::Wait;
        }
        self.lane = lanes.then(|| LaneOffer::make(&self.stream)).flatten();
        let request = self.initiator.request();
        let sent = (&self.stream).write(&request).is_ok_and(|n| n == request.len());
        if !sent {
            return DialStep::Failed;
        }
        socket::prepare_stream(&self.stream);
        self.dialed = true;
        DialStep::Dialed
    }
}

impl AwaitsStream for IwarpConnect {
    fn peer_number(&self) -> u32 {
        self.peer.qpn
    }

    fn spend_spare(&self) -> bool {
        self.spare.lock().take().is_some()
    }

    fn answer(&self, stream: TcpStream, responder: Responder, lanes: Option<&LaneListener>) {
        let mut stage = self.stage();
        let local = stream.peer_addr().is_ok_and(|a| a.ip().to_canonical() == self.peer.remote);
        if !local || !waits(&stream) || !matches!(*stage, ConnectStage::Resting { .. }) {
            return;
        }
        *stage = ConnectStage::Done;
        self.spend_spare();
        let Ok((reply, agreed)) = responder.accept(&self.offer()) else { return };
        let lane = lanes.and_then(|lanes| lanes.claim(&stream));
        if (&stream).write(&reply).is_ok_and(|n| n == reply.len()) {
            self.link(MpaCarrier::new(stream, lane), &agreed, MpaRole::Responder);
        }
    }
}

impl Pollable for IwarpConnect {
    fn ready(&self, _: Readiness) {
        let mut stage = self.stage();
        let ConnectStage::Calling(call, pause) = &mut *stage else { return };
        let lanes = self.slot.host().permits_lanes();
        let (step, token, pause) = (call.step(lanes), call.token, *pause);
        match step {
            DialStep::Wait => {}
            DialStep::Dialed => self.slot.host().reactor().modify(token, Interest::READ),
            DialStep::Failed => {
                self.slot.host().reactor().remove(token);
                self.rest(&mut stage, pause);
            }
            DialStep::Agreed(agreed) => {
                self.slot.host().reactor().remove(token);
                let stage_before = std::mem::replace(&mut *stage, ConnectStage::Done);
                if let ConnectStage::Calling(call, _) = stage_before {
                    let lane = call.lane.and_then(LaneOffer::granted);
                    let stream = MpaCarrier::new(call.stream, lane);
                    self.link(stream, &agreed, MpaRole::Initiator);
                }
            }
        }
    }

    fn timeout(&self, now: Moment) {
        if matches!(*self.stage(), ConnectStage::Done) {
            return;
        }
        self.silence.lock().look(now);
        if self.lose_patience(now) {
            self.hang_up();
        } else if self.calls {
            let _called_again_later = self.call();
            self.keep_looking(now);
        } else {
            self.look_again_at((self.since + PATIENCE).max(now + PATIENCE_LOOK));
        }
    }
}

/// Whether who has called still waits for the answer: it may have begun anew and call again.
fn waits(stream: &TcpStream) -> bool {
    stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// An application that connects by itself is told of the end by its queue pair.
struct Nobody;

impl LinkWatcher for Nobody {
    fn established(&self) {}
    fn disconnected(&self) {}
}
