//! Listeners: they accept streams while there is room, and announce each that sent a Request; at
//! the same number of UDP they take Requests of Shuttle.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use weft_net::secrecy::{Chosen, Lower, Secrecy};
use weft_net::socket;
use weft_net::udp::Port;
use weft_os::clock;
use weft_os::fds::HighFd;
use weft_reactor::{Interest, Readiness, Source, Token};
use weft_rnic::cm::{self, Command, Event, State};

use super::channel::Delivery;
use super::config;
use super::error::Error;
use super::id::{CmId, Inner, PortSpace, Stage};
use super::request::{HalfOpen, Request};
use super::sockets::Sockets;
use super::station::{Ask, Station};
use crate::Transport;
use crate::context::Personality;
use crate::engine::Engine;

/// Where streams are accepted.
struct Door {
    socket: HighFd,
    token: Token,
}

/// Listening sockets, and the streams accepted that have not come to anything yet.
pub(super) struct Listener {
    door: Option<Door>,
    station: Option<Arc<Station>>,
    armed: bool,
    backlog: usize,
    /// Requests that the application has not read.
    unread: usize,
    half_open: VecDeque<Arc<HalfOpen>>,
    /// Requests that were announced and may be about to become connections.
    announced: Vec<Weak<CmId>>,
}

impl Listener {
    /// Does something to each socket.
    pub(super) fn for_each(
        &self,
        act: impl Fn(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(door) = &self.door {
            act(door.socket.as_fd())?;
        }
        match self.station.as_ref().and_then(|station| station.port()) {
            Some(port) => act(port.as_fd()),
            None => Ok(()),
        }
    }

    /// Stops to accept, and closes every stream that has not sent its Request.
    pub(super) fn stop(&self) {
        if let Some(door) = &self.door {
            Engine::get().remove(door.token);
        }
        if let Some(station) = &self.station {
            station.stop();
        }
        for half_open in &self.half_open {
            half_open.close();
        }
    }

    fn arm(&mut self, on: bool) {
        if self.armed != on {
            self.armed = on;
            let interest = if on { Interest::READ } else { Interest::NONE };
            if let Some(door) = &self.door {
                Engine::get().modify(door.token, interest);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.unread >= self.backlog
    }

    /// Accepts a stream, unless it is of a stranger: that is closed, and hears nothing.
    fn accept(&self, chosen: Chosen) -> io::Result<TcpStream> {
        let door = self.door.as_ref().ok_or(io::ErrorKind::WouldBlock)?;
        let stream = TcpStream::from(socket::accept(door.socket.as_fd())?);
        let (here, there) = (stream.local_addr()?.ip(), stream.peer_addr()?.ip());
        if Secrecy::get().admit(Lower::Iwarp(chosen), here, there).is_err() {
            return Err(io::Error::from_raw_os_error(libc::ECONNABORTED));
        }
        socket::prepare_stream(&stream);
        Ok(stream)
    }

    /// The requests of which neither connection nor refusal has come, and those of them that `peer`
    /// made and the application has accepted.
    fn accepted_from(&self, peer: Option<IpAddr>) -> (Vec<Weak<CmId>>, Vec<Arc<CmId>>) {
        let (mut open, mut theirs) = (Vec::new(), Vec::new());
        for id in self.announced.iter().filter_map(Weak::upgrade) {
            let state = id.state();
            if !matches!(state, State::ConnectRequest | State::Accepting) {
                continue;
            }
            open.push(id.me());
            let same = id.peer_addr().map(|addr| addr.ip()) == peer;
            if same && state == State::Accepting {
                theirs.push(id);
            }
        }
        (open, theirs)
    }

    fn add(&mut self, half_open: Arc<HalfOpen>) {
        if self.half_open.len() >= config::HALF_OPEN_MAX {
            // A peer that means it has sent its Request long ago.
            if let Some(oldest) = self.half_open.pop_front() {
                oldest.close();
            }
        }
        self.half_open.push_back(half_open);
    }
}

/// What an error of accept means for the listener.
enum Setback {
    /// Nobody is waiting.
    Empty,
    /// This one stream is gone; there may be others.
    OneLost,
    /// The system cannot give a stream now.
    Exhausted,
}

fn setback(error: &io::Error) -> Setback {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Setback::Empty,
        None => Setback::Empty,
        _ if socket::is_exhausted(error) => Setback::Exhausted,
        _ => Setback::OneLost,
    }
}

impl CmId {
    /// Lets peers connect; without a local address, to any port that is free. At most `backlog`
    /// requests over TCP wait for the application to read them (0 means [`config::BACKLOG_MAX`]);
    /// over Shuttle as many as that.
    ///
    /// # Errors
    /// What the system says to it (`EADDRINUSE`), or the wrong state.
    pub fn listen(&self, backlog: usize) -> Result<(), Error> {
        let mut inner = self.lock();
        inner.machine.may(Command::Listen)?;
        if inner.local.is_none() {
            inner.take_address(self.space(), (Ipv4Addr::UNSPECIFIED, 0).into())?;
        }
        let (local, transport) = (inner.local, inner.transport);
        if let Stage::Bound(sockets) = &mut inner.stage {
            sockets.listen()?;
            if let (Some(at), Transport::Auto, PortSpace::Tcp) = (local, transport, self.space()) {
                sockets.warn_of_lack(at);
            }
        }
        inner.machine.listen()?;
        let Stage::Bound(sockets) = inner.leave_stage() else {
            return Err(weft_verbs::Misuse::Invalid("the id has no socket").into());
        };
        self.start_listener(&mut inner, sockets, backlog)
    }

    fn start_listener(
        &self,
        inner: &mut Inner,
        sockets: Sockets,
        backlog: usize,
    ) -> Result<(), Error> {
        let door = sockets.stream.and_then(|fd| self.open_door(fd));
        let station = match (sockets.datagram, inner.local) {
            (Some(fd), Some(at)) => {
                let port = Port::adopt(fd)?;
                Some(Station::open(self.me(), self.space(), port, at, inner.is_prompt()))
            }
            _ => None,
        };
        let backlog = match backlog {
            0 => config::BACKLOG_MAX,
            some => some.min(config::BACKLOG_MAX),
        };
        let half_open = VecDeque::new();
        inner.stage = Stage::Listening(Listener {
            door,
            station,
            armed: true,
            backlog,
            unread: 0,
            half_open,
            announced: Vec::new(),
        });
        Ok(())
    }

    fn open_door(&self, fd: OwnedFd) -> Option<Door> {
        let source = self.me().upgrade()?;
        let socket = HighFd::new(fd);
        let token = Engine::get().add(socket.as_fd(), Interest::READ, source);
        Some(Door { socket, token })
    }

    /// The engine says that streams wait to be accepted.
    fn accept_streams(&self, inner: &mut Inner) {
        let chosen = inner.chosen();
        let Stage::Listening(listener) = &mut inner.stage else { return };
        for _ in 0..config::ACCEPT_BATCH {
            if listener.is_full() {
                return listener.arm(false);
            }
            match listener.accept(chosen) {
                Ok(stream) => listener.add(HalfOpen::start(self.me(), stream)),
                Err(e) => match setback(&e) {
                    Setback::Empty => return,
                    Setback::OneLost => {}
                    Setback::Exhausted => {
                        listener.arm(false);
                        return self.limit_time(inner, config::ACCEPT_REST);
                    }
                },
            }
        }
    }

    pub(super) fn forget_half_open(&self, gone: &HalfOpen) {
        if let Stage::Listening(listener) = &mut self.lock().stage {
            listener.half_open.retain(|other| !std::ptr::eq(Arc::as_ptr(other), gone));
        }
    }

    /// Makes an id of a Request and tells the application.
    pub(super) fn announce(&self, request: Request) {
        let (machine, event) = request.to_machine();
        let at = (request.stream.local_addr().ok(), request.stream.peer_addr().ok());
        if let Some(event) = event {
            let stage = Stage::Requested(request);
            self.announce_at(Personality::Iwarp, at, stage, machine, event);
        }
    }

    /// Makes an id of a Request over Shuttle and tells the application.
    pub(super) fn announce_ask(&self, ask: Ask, machine: cm::Id, event: Event) {
        let at = (Some(ask.route.local), Some(ask.route.remote));
        self.announce_at(Personality::Roce, at, Stage::Asked(Box::new(ask)), machine, event);
    }

    fn announce_at(
        &self,
        device: Personality,
        (local, peer): (Option<SocketAddr>, Option<SocketAddr>),
        stage: Stage,
        machine: cm::Id,
        event: Event,
    ) {
        self.settle_accepted(peer.map(|peer| peer.ip()));
        let mut inner = self.lock();
        let (Some(listen), false) = (self.me().upgrade(), inner.is_dead()) else {
            drop(inner);
            return stage.close();
        };
        let channel = inner.channel.clone();
        let listener = match &mut inner.stage {
            Stage::Listening(listener) if listener.unread < config::BACKLOG_MAX => listener,
            _ => {
                drop(inner);
                return stage.close();
            }
        };
        listener.unread += 1;
        let transport = match device {
            Personality::Iwarp => Transport::Iwarp,
            Personality::Roce => Transport::Shuttle,
        };
        let id = CmId::with(machine, stage, channel, self.space(), transport);
        {
            let mut new = id.lock();
            (new.local, new.peer) = (local, peer);
            new.device = Some(device);
            new.peer_qp_num = event.terms.qp_num;
        }
        if let Stage::Listening(listener) = &mut inner.stage {
            listener.announced.push(id.me());
        }
        inner.channel.push(Delivery { id, listen: Some(listen), event, join: None });
    }

    /// A peer that asks again may have found an earlier connection established, and then that is
    /// told first: what shows it may wait in another socket, or be in the hands of another thread.
    fn settle_accepted(&self, peer: Option<IpAddr>) {
        let announced: Vec<_> = match &mut self.lock().stage {
            Stage::Listening(listener) => {
                let (kept, theirs) = listener.accepted_from(peer);
                listener.announced = kept;
                theirs
            }
            _ => return,
        };
        announced.iter().for_each(|id| id.settle_link());
    }

    /// Takes the Requests of Shuttle that have arrived, on this thread: when it returns, all that
    /// came before it was called are announced.
    pub fn look(&self) {
        let station = match &self.lock().stage {
            Stage::Listening(listener) => listener.station.clone(),
            _ => None,
        };
        if let Some(station) = station {
            station.receive();
        }
    }

    /// The application has read one of the requests, so there is room for another.
    pub(super) fn request_delivered(&self) {
        if let Stage::Listening(listener) = &mut self.lock().stage {
            listener.unread = listener.unread.saturating_sub(1);
            listener.arm(true);
        }
    }
}

impl Source for CmId {
    fn ready(&self, _: Readiness) {
        let mut inner = self.lock();
        match &inner.stage {
            Stage::Listening(_) => self.accept_streams(&mut inner),
            Stage::Probing(_) => self.probed(&mut inner),
            Stage::Dialing(_) => {
                let handover = self.advance(&mut inner);
                drop(inner);
                if let Some(handover) = handover {
                    self.link_dialed(handover);
                }
            }
            _ => {}
        }
    }

    fn timeout(&self, now: Instant) {
        let mut inner = self.lock();
        if let Stage::Dialing(attempt) = &mut inner.stage {
            attempt.look(now);
        }
        let Some(deadline) = inner.deadline.filter(|deadline| *deadline <= now) else { return };
        // What this process was stopped for the peer may have been, too.
        if let Some(stopped) = clock::stopped_since(deadline, now) {
            return self.limit_time(&mut inner, stopped.min(config::AFTER_STOP));
        }
        inner.deadline = None;
        let qp = match &mut inner.stage {
            Stage::Listening(listener) => {
                listener.arm(true);
                None
            }
            Stage::Probing(_) => {
                self.probe_again(&mut inner);
                None
            }
            Stage::Dialing(_) => {
                self.give_up(&mut inner, weft_rnic::cm::Failure::TimedOut);
                None
            }
            Stage::Refused(_) => {
                self.redial(&mut inner);
                None
            }
            Stage::Linked => self.give_up_on_peer(&mut inner),
            Stage::Parting(until) => {
                let until = *until;
                self.part(&mut inner, now, until);
                None
            }
            Stage::Quiet => {
                inner.machine.handle_timewait_exit();
                self.publish(&mut inner);
                None
            }
            _ => None,
        };
        drop(inner);
        if let Some(qp) = qp {
            qp.disconnect();
        }
    }
}
