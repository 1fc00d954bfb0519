//! Listening: streams are accepted, and each Request becomes an id that the application is told of.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};

use weft_host::{CmTransport, DeviceKind, TcpPortHolder};
use weft_net::lane::rendezvous::LaneListener;
use weft_net::report;
use weft_net::udp::UdpPort;
use weft_os::clock::{self, Moment};
use weft_rnic::cm::{self, CmCommand, CmEvent};

use crate::channel::IdEvent;
use crate::config;
use crate::device::PortSpace;
use crate::error::CmError;
use crate::id::{CmId, IdInner, IdStage};
use crate::listener::{CmListener, Setback, StreamAcceptor};
use crate::request::{HalfOpen, HeldRequest, Listening};
use crate::shuttle_listener::{Answering, ConnRequest, ShuttleListener};
use crate::sockets::Sockets;

impl CmId {
    /// Lets peers connect; without a local address, to any port that is free. At most `backlog`
    /// requests over TCP wait for the application to read them (0 means [`config::BACKLOG_MAX`]);
    /// over Shuttle as many as that.
    ///
    /// # Errors
    /// What the system says to it (`EADDRINUSE`), or the wrong state.
    pub fn listen(&self, backlog: usize) -> Result<(), CmError> {
        let mut inner = self.lock();
        inner.machine.may(CmCommand::Listen)?;
        if inner.local.is_none() {
            inner.take_address(self.space(), (Ipv4Addr::UNSPECIFIED, 0).into())?;
        }
        let (local, transport) = (inner.local, inner.transport);
        let host = Arc::clone(inner.channel.host());
        let mut lanes = None;
        if let IdStage::Bound(sockets) = &mut inner.stage {
            lanes = sockets.listen(host.permits_lanes())?;
            if let (Some(at), CmTransport::Auto, PortSpace::Tcp) = (local, transport, self.space())
            {
                sockets.warn_of_lack(at);
            }
        }
        inner.machine.listen()?;
        let IdStage::Bound(sockets) = inner.leave_stage() else {
            return Err(weft_verbs::Misuse::Invalid("the id has no socket").into());
        };
        self.start_listener(&mut inner, (sockets, lanes), backlog)
    }

    fn start_listener(
        &self,
        inner: &mut IdInner,
        (sockets, lanes): (Sockets, Option<LaneListener>),
        backlog: usize,
    ) -> Result<(), CmError> {
        let host = Arc::clone(inner.channel.host());
        let source = self.me().upgrade();
        let door = sockets
            .stream
            .zip(source)
            .map(|(fd, source)| StreamAcceptor::open(&host, (fd, lanes), source));
        let shuttle = match (sockets.datagram, inner.local) {
            (Some(fd), Some(at)) => {
                let port = UdpPort::adopt(fd)?;
                Some(ShuttleListener::open(
                    &host,
                    self.me(),
                    self.space(),
                    port,
                    at,
                    inner.is_prompt(),
                ))
            }
            _ => None,
        };
        let listener = CmListener::new(&host, door, shuttle, backlog);
        let can_do_without = listener.serves_both() && inner.transport == CmTransport::Auto;
        inner.stage = IdStage::Listening(listener);
        if can_do_without {
            host.note_tcp_port(self.me());
        }
        Ok(())
    }

    /// Streams wait to be accepted.
    pub(crate) fn accept_streams(&self, inner: &mut IdInner) {
        let chosen = inner.chosen();
        let host = Arc::clone(inner.channel.host());
        let IdStage::Listening(listener) = &mut inner.stage else { return };
        let mut denied = 0;
        for _ in 0..config::ACCEPT_BATCH {
            if listener.is_full() {
                return listener.arm(false);
            }
            let error = match listener.accept(chosen) {
                Ok(stream) => {
                    listener.add(HalfOpen::start(&host, self.me(), stream));
                    continue;
                }
                Err(error) => error,
            };
            match listener.setback(&error) {
                Setback::Empty => return,
                Setback::OneLost => {}
                Setback::Denied => denied += 1,
                Setback::Exhausted => {
                    weft_net::tell_if_out_of_descriptors(&error);
                    if !listener.close_oldest() {
                        return self.rest(inner);
                    }
                }
            }
            if denied == config::ACCEPT_BATCH {
                report::warning(format!(
                    "the system lets a listener of rdma-cm accept no connection over TCP: {error}"
                ));
                return self.rest(inner);
            }
        }
    }

    /// Accepts nothing for a while: the system would refuse at once.
    fn rest(&self, inner: &mut IdInner) {
        if let IdStage::Listening(listener) = &mut inner.stage {
            listener.arm(false);
        }
        self.limit_time(inner, weft_reactor::REST);
    }

    /// Makes an id of a Request and tells the application, after what is to be told first.
    fn announce_at(
        &self,
        device: DeviceKind,
        (local, peer): (Option<SocketAddr>, Option<SocketAddr>),
        stage: IdStage,
        machine: cm::IdMachine,
        event: CmEvent,
    ) {
        let ends = self.settle_accepted(peer.map(|peer| peer.ip()));
        let mut inner = self.lock();
        let devices = inner.channel.host().devices();
        let permitted = local.is_none_or(|local| devices.permits(device, local.ip()));
        let (Some(listen), false) = (self.me().upgrade(), inner.is_dead() || !permitted) else {
            drop(inner);
            return stage.close();
        };
        let channel = inner.channel.clone();
        let listener = match &mut inner.stage {
            IdStage::Listening(listener) if listener.unread < config::BACKLOG_MAX => listener,
            _ => {
                drop(inner);
                return stage.close();
            }
        };
        listener.unread += 1;
        let transport = match device {
            DeviceKind::Iwarp => CmTransport::Iwarp,
            DeviceKind::Roce => CmTransport::Shuttle,
        };
        let id = CmId::with(machine, stage, channel, self.space(), transport);
        {
            let mut new = id.lock();
            (new.local, new.peer) = (local, peer);
            new.device = Some(device);
            new.peer_qp_num = event.terms.qp_num;
            // The application may connect its queue pair before it accepts.
            new.terms.take_retries(event.terms);
        }
        if let IdStage::Listening(listener) = &mut inner.stage {
            listener.note_announced(id.me());
            listener.keep(IdEvent { id, listen: Some(listen), event, join: None }, ends);
        }
        self.tell_requests(&mut inner, clock::now());
    }

    /// Tells of the requests that do not wait for the end of a connection to be told, or no more.
    pub(crate) fn tell_requests(&self, inner: &mut IdInner, now: Moment) {
        let IdStage::Listening(listener) = &mut inner.stage else { return };
        let (due, again) = (listener.take_due(), listener.look_again(now));
        due.for_each(|request| inner.channel.push(request));
        if let Some(again) = again {
            inner.channel.host().reactor().set_timer(again, self.me());
        }
    }

    /// A peer that asks again may have found an earlier connection established, or have ended it,
    /// and then that is told first: what shows it may wait in another socket, or be in the hands of
    /// another thread. Gives the connections whose end is kept from the application for a while
    /// ([`CmId::part`]); who listens promptly does not wait for them.
    fn settle_accepted(&self, peer: Option<IpAddr>) -> Vec<Weak<CmId>> {
        let theirs = {
            let inner = self.lock();
            let IdStage::Listening(listener) = &inner.stage else { return Vec::new() };
            listener.accepted_from(peer, inner.is_prompt())
        };
        theirs.iter().for_each(|id| id.settle_link());
        theirs.iter().filter(|id| id.is_parting()).map(|id| id.me()).collect()
    }

    /// Takes the Requests of Shuttle that have arrived, on this thread: when it returns, all that
    /// came before it was called are announced.
    pub fn look(&self) {
        let shuttle = match &self.lock().stage {
            IdStage::Listening(listener) => listener.shuttle.clone(),
            _ => None,
        };
        if let Some(shuttle) = shuttle {
            shuttle.receive();
        }
    }

    /// The application has read one of the requests, so there is room for another.
    pub(crate) fn request_delivered(&self) {
        if let IdStage::Listening(listener) = &mut self.lock().stage {
            listener.unread = listener.unread.saturating_sub(1);
            listener.arm(true);
        }
    }
}

impl Listening for CmId {
    fn forget_half_open(&self, gone: &HalfOpen) {
        if let IdStage::Listening(listener) = &mut self.lock().stage {
            listener.half_open.retain(|other| !std::ptr::eq(Arc::as_ptr(other), gone));
        }
    }

    fn announce(&self, request: HeldRequest) {
        let (machine, event) = request.to_machine();
        let at = (request.stream.local_addr().ok(), request.stream.peer_addr().ok());
        if let Some(event) = event {
            let stage = IdStage::Requested(request);
            self.announce_at(DeviceKind::Iwarp, at, stage, machine, event);
        }
    }
}

impl Answering for CmId {
    fn announce_ask(&self, request: ConnRequest, machine: cm::IdMachine, event: CmEvent) {
        let at = (Some(request.route.local), Some(request.route.remote));
        self.announce_at(DeviceKind::Roce, at, IdStage::Asked(Box::new(request)), machine, event);
    }
}

/// The application binds a socket of its own to the port of a listener, as programs do that listen
/// by every means there is (UCX): the listener goes on by Shuttle alone.
impl TcpPortHolder for CmId {
    fn give_up(&self, wanted: SocketAddr) -> bool {
        let mut inner = self.lock();
        let meets = |at: &SocketAddr| {
            let [own, other] = [*at, wanted].map(|addr| addr.ip().to_canonical());
            let is_any = own.is_unspecified() || other.is_unspecified();
            at.port() == wanted.port() && (is_any || own == other)
        };
        let Some(at) = inner.local.filter(meets) else { return false };
        let IdStage::Listening(listener) = &mut inner.stage else { return false };
        if !listener.serves_both() {
            return false;
        }
        listener.close_door();
        drop(inner);
        report::warning(format!(
            "rdma-cm listens at {at} by Shuttle (weft0) alone from now on: the application has \
             bound a TCP socket to the port, so peers over iWARP do not reach this listener"
        ));
        true
    }
}
