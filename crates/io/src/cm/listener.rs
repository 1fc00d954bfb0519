//! Listeners: they accept streams while there is room, and announce each that sent a Request.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use weft_rnic::cm::Command;

use super::channel::Delivery;
use super::config;
use super::error::Error;
use super::id::{CmId, Inner, PortSpace, Stage};
use super::request::{HalfOpen, Request};
use super::socket;
use crate::engine::{Engine, Interest, Readiness, Source, Token};
use crate::fds::HighFd;

/// A listening socket and the streams it has accepted that have not come to anything yet.
pub(super) struct Listener {
    socket: HighFd,
    token: Token,
    armed: bool,
    backlog: usize,
    /// Requests that the application has not read.
    unread: usize,
    half_open: VecDeque<Arc<HalfOpen>>,
}

impl Listener {
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Stops to accept, and closes every stream that has not sent its Request.
    pub(super) fn stop(&self) {
        Engine::get().remove(self.token);
        for half_open in &self.half_open {
            half_open.close();
        }
    }

    fn arm(&mut self, on: bool) {
        if self.armed != on {
            self.armed = on;
            Engine::get().modify(self.token, if on { Interest::READ } else { Interest::NONE });
        }
    }

    fn is_full(&self) -> bool {
        self.unread >= self.backlog
    }

    fn accept(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::from(socket::accept(self.socket.as_fd())?);
        socket::prepare_stream(&stream)?;
        Ok(stream)
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
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => Setback::Exhausted,
        _ => Setback::OneLost,
    }
}

impl CmId {
    /// Lets peers connect; without a local address, to any port that is free. At most `backlog`
    /// requests wait for the application to read them (0 means [`config::BACKLOG_MAX`]).
    ///
    /// # Errors
    /// What the system says to it (`EADDRINUSE`), or the wrong state.
    pub fn listen(&self, backlog: usize) -> Result<(), Error> {
        let mut inner = self.lock();
        if self.space() != PortSpace::Tcp {
            return Err(Error::PortSpace);
        }
        inner.machine.may(Command::Listen)?;
        if inner.local.is_none() {
            inner.take_address(self.space(), (Ipv4Addr::UNSPECIFIED, 0).into())?;
        }
        if let Stage::Bound(fd) = &inner.stage {
            socket::listen(fd.as_fd(), config::BACKLOG_MAX)?;
        }
        inner.machine.listen()?;
        let Stage::Bound(fd) = inner.leave_stage() else {
            unreachable!("an id with a local address keeps a bound socket")
        };
        self.start_listener(&mut inner, fd, backlog);
        Ok(())
    }

    fn start_listener(&self, inner: &mut Inner, fd: OwnedFd, backlog: usize) {
        let Some(source) = self.me().upgrade() else { return };
        let socket = HighFd::new(fd);
        let token = Engine::get().add(socket.as_fd(), Interest::READ, source);
        let backlog = match backlog {
            0 => config::BACKLOG_MAX,
            some => some.min(config::BACKLOG_MAX),
        };
        let half_open = VecDeque::new();
        inner.stage = Stage::Listening(Listener {
            socket,
            token,
            armed: true,
            backlog,
            unread: 0,
            half_open,
        });
    }

    /// The engine says that streams wait to be accepted.
    fn accept_streams(&self, inner: &mut Inner) {
        let Stage::Listening(listener) = &mut inner.stage else { return };
        for _ in 0..config::ACCEPT_BATCH {
            if listener.is_full() {
                return listener.arm(false);
            }
            match listener.accept() {
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
        let mut inner = self.lock();
        let (machine, event) = request.to_machine();
        let (local, peer) = (request.stream.local_addr().ok(), request.stream.peer_addr().ok());
        let (Some(listen), Some(event), false) = (self.me().upgrade(), event, inner.is_dead())
        else {
            return;
        };
        let channel = inner.channel.clone();
        let Stage::Listening(listener) = &mut inner.stage else { return };
        listener.unread += 1;
        let id = CmId::with(machine, Stage::Requested(request), channel, self.space());
        {
            let mut new = id.lock();
            new.local = local;
            new.peer = peer;
        }
        inner.channel.push(Delivery { id, listen: Some(listen), event });
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
        if inner.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        inner.deadline = None;
        let qp = match &mut inner.stage {
            Stage::Listening(listener) => {
                listener.arm(true);
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
            _ => None,
        };
        drop(inner);
        if let Some(qp) = qp {
            qp.disconnect();
        }
    }
}
