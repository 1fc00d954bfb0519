//! Connection manager ids: creation, addresses, options, and the end.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use weft_host::diagnostics::ToldIdState;
use weft_host::{Attachment, CmTransport, DeviceId, DeviceKind, DeviceUser, HostQp};
use weft_net::secrecy::Chosen;
use weft_net::socket::{self, SocketKind};
use weft_os::clock::Moment;
use weft_rnic::cm::{self, CmCommand, CmState, Depths, EventKind, QpTerms};
use weft_sync::Mutex;
use weft_verbs::QpFailure;

use crate::attempt::{Attempt, AttemptParams};
use crate::channel::{EventChannel, IdEvent};
use crate::device::{PortSpace, likely};
use crate::error::CmError;
use crate::groups::Membership;
use crate::link::hang_up;
use crate::listener::CmListener;
use crate::locked::LockedId;
use crate::probe::{Introduction, PeerProbe};
use crate::request::HeldRequest;
use crate::shuttle_listener::ConnRequest;
use crate::sockets::{self, Manners, Sockets};
use crate::unacked::UnackedEvents;

/// What an id owns besides its state.
#[derive(Default)]
pub(crate) enum IdStage {
    /// Nothing.
    #[default]
    Quiet,
    /// Sockets that keep the local address.
    Bound(Sockets),
    /// It is found out by which transport the peer is reached.
    Probing(Box<PeerProbe>),
    /// Sockets that peers connect to.
    Listening(CmListener),
    /// A stream that is to become a connection.
    Dialing(Box<Attempt>),
    /// A peer that refused, until it is called again at the deadline.
    Refused(Box<AttemptParams>),
    /// A peer's stream and its Request.
    Requested(HeldRequest),
    /// A peer's Request over Shuttle.
    Asked(Box<ConnRequest>),
    /// The queue pair has the stream, or takes it over; or it has a connection of Shuttle, which
    /// makes its handshake itself.
    Linked,
    /// The connection is over, and the program is told at this time at the latest.
    Parting(Moment),
}

impl IdStage {
    /// Lets go of what is owned. A peer that waits for an answer gets a no, so that it does not
    /// take silence for a misunderstanding.
    pub(crate) fn close(self) {
        match self {
            IdStage::Requested(request) => {
                let _peer_may_be_gone = request.reject(&[]);
            }
            IdStage::Asked(ask) => ask.decline(&[]),
            IdStage::Listening(listener) => listener.refuse_untold(),
            _ => {}
        }
    }
}

#[derive(Clone, Copy, Default)]
struct IdOptions {
    tos: Option<u8>,
    manners: Manners,
    ack_timeout: Option<u8>,
    prompt: bool,
}

/// What is behind an id's lock.
pub(crate) struct IdInner {
    pub(crate) machine: cm::IdMachine,
    pub(crate) stage: IdStage,
    pub(crate) channel: Arc<EventChannel>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// Whose connection it is. Mostly the application's: an id does not keep it from being
    /// destroyed.
    pub(crate) qp: Weak<HostQp>,
    /// Which of the connections of `qp` it is, once that has it.
    pub(crate) held: Option<Attachment>,
    /// The attempt was given up while another thread was about to give its connection to the queue
    /// pair: that thread ends it.
    pub(crate) gives_up: bool,
    /// The peer has ended the connection, and the program has not done so yet.
    pub(crate) owes_answer: bool,
    /// When the present step has taken too long.
    pub(crate) deadline: Option<Moment>,
    /// What may be used, and the device that it has come to.
    pub(crate) transport: CmTransport,
    pub(crate) device: Option<DeviceKind>,
    /// The program's queue pair, where it is connected here: mostly the same.
    pub(crate) managed: Option<Weak<HostQp>>,
    /// What stands in for a queue pair that has a connection of its own.
    pub(crate) stand_in: Option<Arc<HostQp>>,
    /// What the program said about its queue pair, with the retries that the peer decides, and the
    /// number of the peer's.
    pub(crate) terms: QpTerms,
    pub(crate) peer_qp_num: u32,
    /// What the peer said in its Reply, to be told once the connection is established.
    pub(crate) words: Vec<u8>,
    pub(crate) memberships: Vec<Membership>,
    /// What the peer was asked with by which transport it is reached.
    pub(crate) introduction: Option<Introduction>,
    /// What the application had yet to see when it last looked for the end of the connection.
    pub(crate) unseen_before: Option<usize>,
    /// The state that was told last, and what the application was told of a failure since.
    pub(crate) told_state: ToldIdState,
    pub(crate) failure: Option<(EventKind, i32)>,
    /// The queue pair of which was told, or that failed, until the lock is released.
    pub(crate) told_qp: Option<Arc<HostQp>>,
    dead: bool,
    options: IdOptions,
}

/// An id: the end of a connection that is, will be or was; or a listener.
pub struct CmId {
    me: Weak<CmId>,
    space: PortSpace,
    cookie: AtomicU64,
    unacked: UnackedEvents,
    /// Held while a request is accepted, before anything else.
    pub(crate) accepting: Mutex<()>,
    inner: Mutex<IdInner>,
}

impl CmId {
    /// A new id whose events go to `channel`. Datagrams go by Shuttle's device, whatever the
    /// transport.
    pub fn new(channel: Arc<EventChannel>, space: PortSpace, transport: CmTransport) -> Arc<CmId> {
        let transport = if space == PortSpace::Udp { CmTransport::Shuttle } else { transport };
        CmId::with(
            cm::IdMachine::new(likely(transport, space)),
            IdStage::Quiet,
            channel,
            space,
            transport,
        )
    }

    pub(crate) fn with(
        machine: cm::IdMachine,
        stage: IdStage,
        channel: Arc<EventChannel>,
        space: PortSpace,
        transport: CmTransport,
    ) -> Arc<CmId> {
        let manners = Manners { ports: channel.host().settings().ports, ..Manners::default() };
        let host = Arc::clone(channel.host());
        let id = Arc::new_cyclic(|me: &Weak<CmId>| CmId {
            me: me.clone(),
            space,
            cookie: AtomicU64::new(0),
            unacked: UnackedEvents::default(),
            accepting: Mutex::default(),
            inner: Mutex::new(IdInner {
                machine,
                stage,
                channel,
                local: None,
                peer: None,
                qp: Weak::new(),
                held: None,
                gives_up: false,
                owes_answer: false,
                deadline: None,
                transport,
                device: None,
                managed: None,
                stand_in: None,
                terms: QpTerms::default(),
                peer_qp_num: 0,
                words: Vec::new(),
                memberships: Vec::new(),
                introduction: None,
                unseen_before: None,
                told_state: ToldIdState::default(),
                failure: None,
                told_qp: None,
                dead: false,
                options: IdOptions { manners, ..IdOptions::default() },
            }),
        });
        host.watch_devices(id.me());
        id
    }

    pub(crate) fn lock(&self) -> LockedId<'_> {
        LockedId::new(&self.inner)
    }

    pub(crate) fn me(&self) -> Weak<CmId> {
        self.me.clone()
    }

    pub(crate) fn unacked(&self) -> &UnackedEvents {
        &self.unacked
    }

    /// What [`CmId::set_cookie`] has left here, at first 0.
    pub fn cookie(&self) -> u64 {
        self.cookie.load(Ordering::Acquire)
    }

    /// Leaves a value for whoever gets an event of this id.
    pub fn set_cookie(&self, cookie: u64) {
        self.cookie.store(cookie, Ordering::Release);
    }

    /// Where the id is in its life.
    pub fn state(&self) -> CmState {
        self.lock().machine.state()
    }

    /// The local address, once there is one.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.lock().local
    }

    /// The other end's address, once there is one.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.lock().peer
    }

    /// The device that the id has come to, or is likely to.
    pub fn personality(&self) -> DeviceKind {
        self.lock().likely_device()
    }

    /// That device, once the local address says which one of its kind it is; before, the first.
    pub fn device(&self) -> Option<DeviceId> {
        let inner = self.lock();
        let (devices, kind) = (inner.channel.host().devices(), inner.likely_device());
        match inner.local {
            Some(local) => devices.at(kind, local.ip()),
            None => devices.first(kind),
        }
    }

    /// What the program said about its queue pair.
    pub fn terms(&self) -> QpTerms {
        self.lock().terms
    }

    /// The number of the peer's queue pair, 0 before it is known.
    pub fn peer_qp_num(&self) -> u32 {
        self.lock().peer_qp_num
    }

    /// The depths in force: those asked for, and once connected those agreed.
    pub fn depths(&self) -> (u16, u16) {
        let Depths { ird, ord } = self.lock().machine.depths();
        (ird, ord)
    }

    /// The exponent of the acknowledgement timeout that was set (4.096 us times two to its power);
    /// TCP has its own.
    pub fn ack_timeout(&self) -> Option<u8> {
        self.lock().options.ack_timeout
    }

    /// Sets the exponent that [`CmId::ack_timeout`] reports.
    pub fn set_ack_timeout(&self, exponent: u8) {
        self.lock().options.ack_timeout = Some(exponent);
    }

    /// Has the id call its peer without finding out first by which transport, believe a refusal at
    /// once, and not mention a peer that is silent: for who knows of another way to the peer. Its
    /// transport is not [`CmTransport::Auto`]. A listener tells its owner of Requests at once, who
    /// must not believe in their addresses before it has seen another sign of them; under a key
    /// those who ask show first that they receive, as everywhere.
    pub fn set_prompt(&self) {
        self.lock().options.prompt = true;
    }

    /// Sets the type of service (RFC 2474) of what is sent from now on, until the connection is
    /// established.
    ///
    /// # Errors
    /// What the system says to it.
    pub fn set_tos(&self, tos: u8) -> Result<(), CmError> {
        let mut inner = self.lock();
        inner.options.tos = Some(tos);
        inner.apply_tos()
    }

    /// The type of service that was set, or 0.
    pub fn tos(&self) -> u8 {
        self.lock().options.tos.unwrap_or(0)
    }

    /// Whether other ids that allow it too may have the same local address.
    ///
    /// # Errors
    /// `EINVAL` if the id listens, or is to stop sharing an address that it has.
    pub fn set_shared(&self, shared: bool) -> Result<(), CmError> {
        let mut inner = self.lock();
        if !shared || inner.machine.state() == CmState::Listening {
            inner.machine.may(CmCommand::Bind)?;
        }
        inner.options.manners.shared = shared;
        match &inner.stage {
            IdStage::Bound(sockets) => Ok(sockets.all().try_for_each(socket::share)?),
            _ => Ok(()),
        }
    }

    /// Whether the IPv6 wildcard address excludes IPv4.
    ///
    /// # Errors
    /// `EINVAL` once the id does more than having an address; or what the system says to taking
    /// that address anew.
    pub fn set_v6_only(&self, only: bool) -> Result<(), CmError> {
        let mut inner = self.lock();
        inner.machine.may(CmCommand::Listen)?;
        inner.options.manners.v6_only = Some(only);
        match inner.local.filter(|local| local.is_ipv6() && local.ip().is_unspecified()) {
            Some(local) => {
                // The system takes this before a socket is bound only.
                drop(inner.leave_stage());
                inner.take_address(self.space, local)
            }
            None => Ok(()),
        }
    }

    /// Takes a local address; port 0 means any that is free. The port is taken from the machine's
    /// own TCP (or UDP) ports.
    ///
    /// # Errors
    /// What the system says to it (`EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES`), or the wrong state.
    pub fn bind(&self, addr: SocketAddr) -> Result<(), CmError> {
        let mut inner = self.lock();
        inner.machine.may(CmCommand::Bind)?;
        inner.take_address(self.space, addr)?;
        inner.machine.bind()?;
        Ok(())
    }

    /// Confirms a connection whose queue pair the program has connected.
    ///
    /// # Errors
    /// The wrong state; always over iWARP, which establishes by itself.
    pub fn establish(&self) -> Result<(), CmError> {
        Ok(self.lock().machine.establish()?)
    }

    /// Takes note of an event of the queue pair, of which there is no use here.
    ///
    /// # Errors
    /// The wrong state.
    pub fn notify(&self) -> Result<(), CmError> {
        Ok(self.lock().machine.notify()?)
    }

    /// Sends future events, and those that wait, to another channel. Returns once all that were
    /// delivered from the old one are acknowledged.
    pub fn migrate(&self, channel: &Arc<EventChannel>) {
        {
            let mut inner = self.lock();
            let old = std::mem::replace(&mut inner.channel, channel.clone());
            // Nothing can be added meanwhile: that takes the id's lock.
            for delivery in old.withdraw(self) {
                channel.push(delivery);
            }
        }
        self.unacked.wait();
    }

    /// The channel that events go to.
    pub fn channel(&self) -> Arc<EventChannel> {
        self.lock().channel.clone()
    }

    /// An event of this id that was delivered has been dealt with.
    pub fn acknowledge(&self) {
        self.unacked.settle();
    }

    /// Ends whatever the id was about, drops its events that were not delivered, and returns once
    /// those that were are acknowledged. A connection is closed gracefully, a request rejected.
    pub fn destroy(&self) {
        self.leave_groups();
        let (stage, qp, stand_in, channel) = {
            let mut inner = self.lock();
            inner.dead = true;
            // A queue pair that is just taking over finds the id dead and closes by itself.
            let linked = matches!(inner.stage, IdStage::Linked | IdStage::Parting(_));
            let qp = inner.qp.upgrade().filter(|_| linked).map(|qp| (qp, inner.held));
            (inner.leave_stage(), qp, inner.stand_in.take(), inner.channel.clone())
        };
        stage.close();
        if let Some((qp, held)) = qp {
            hang_up(&qp, held);
        }
        if let Some(qp) = stand_in {
            // It never had an event.
            let _none = qp.destroy();
        }
        for delivery in channel.withdraw(self) {
            // Of a listener: a request that nobody will ever answer.
            if delivery.listen.is_some() {
                delivery.id.destroy();
            }
        }
        self.unacked.wait();
    }

    /// Queues the events of the state machine.
    pub(crate) fn publish(&self, inner: &mut IdInner) {
        while let Some(event) = inner.machine.poll_event() {
            if event.status != 0 {
                inner.failure = Some((event.kind, event.status));
            }
            if event.kind == EventKind::Rejected {
                inner.fail_refused();
            }
            inner.tell_state();
            let Some(id) = self.me.upgrade().filter(|_| !inner.dead) else { continue };
            inner.channel.push(IdEvent { id, listen: None, event, join: None });
        }
    }

    /// Where its port is from.
    pub fn space(&self) -> PortSpace {
        self.space
    }
}

impl DeviceUser for CmId {
    fn device_removed(&self, device: DeviceId) {
        let mut inner = self.lock();
        // As in the kernel, what listens on no address of its own is on no device.
        let Some(local) = inner.local.filter(|local| !local.ip().is_unspecified()) else { return };
        let kind = inner.likely_device();
        let own = inner.channel.host().devices().at(kind, local.ip());
        if own == Some(device) && inner.machine.handle_device_gone() {
            inner.leave_stage();
            self.publish(&mut inner);
        }
    }
}

impl IdInner {
    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    /// The device that the id has come to, or is likely to.
    pub(crate) fn likely_device(&self) -> DeviceKind {
        self.device.unwrap_or(match self.transport {
            CmTransport::Iwarp => DeviceKind::Iwarp,
            CmTransport::Auto | CmTransport::Shuttle => DeviceKind::Roce,
        })
    }

    /// The connection was refused: the program's queue pair fails before it hears of it, as
    /// librdmacm has it, and what is posted there is flushed. Another connection may have taken
    /// the queue pair meanwhile.
    fn fail_refused(&mut self) {
        let qp = match self.device {
            Some(DeviceKind::Roce) => self.managed.as_ref(),
            _ => Some(&self.qp),
        };
        let Some(qp) = qp.and_then(Weak::upgrade).filter(|qp| !qp.is_connected()) else { return };
        qp.queues().failure().note(QpFailure::Rejected);
        qp.queues().fail(None);
        self.told_qp = Some(qp);
    }

    /// How many completions the application has yet to poll until it has seen what succeeded on the
    /// connection.
    pub(crate) fn unseen(&self) -> usize {
        let qp = self.managed.as_ref().unwrap_or(&self.qp).upgrade();
        qp.map_or(0, |qp| qp.unseen())
    }

    /// Takes what the stage owns, and stops the engine from watching it.
    pub(crate) fn leave_stage(&mut self) -> IdStage {
        self.deadline = None;
        let stage = std::mem::take(&mut self.stage);
        match &stage {
            IdStage::Listening(listener) => listener.stop(),
            IdStage::Probing(probe) => probe.stop(),
            IdStage::Dialing(attempt) => attempt.stop(),
            _ => {}
        }
        stage
    }

    /// Opens sockets that keep `addr`.
    pub(crate) fn take_address(
        &mut self,
        space: PortSpace,
        addr: SocketAddr,
    ) -> Result<(), CmError> {
        if !socket::is_of_host(addr.ip()) {
            return Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL).into());
        }
        self.keep_to(addr.ip())?;
        if addr.port() != 0 {
            self.channel.host().free_port(addr.port());
        }
        let sockets = Sockets::bind(addr, space, self.transport, self.options.manners)?;
        self.local = Some(sockets.local_addr()?);
        self.stage = IdStage::Bound(sockets);
        self.apply_tos()
    }

    /// Keeps to the transports of the devices that have this local address.
    ///
    /// # Errors
    /// `ENODEV` if none has it.
    pub(crate) fn keep_to(&mut self, local: IpAddr) -> Result<(), CmError> {
        let by = self.channel.host().devices().transport_at(self.transport, local);
        self.transport = by.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        Ok(())
    }

    /// Who has decided on iWARP, where the id is to use that.
    pub(crate) fn chosen(&self) -> Chosen {
        match self.transport {
            CmTransport::Iwarp => Chosen::ByName,
            CmTransport::Auto | CmTransport::Shuttle => Chosen::ByDefault,
        }
    }

    pub(crate) fn is_prompt(&self) -> bool {
        self.options.prompt
    }

    pub(crate) fn ack_timeout(&self) -> Option<u8> {
        self.options.ack_timeout
    }

    /// Opens a socket of the id's options, and binds it to the id's local address.
    pub(crate) fn reopen(&self) -> Result<OwnedFd, CmError> {
        let local = self.local.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        let fd = sockets::open(SocketKind::Stream, &local, self.options.manners)?;
        self.options.manners.ports.bind(fd.as_fd(), &local, true)?;
        if let Some(tos) = self.options.tos {
            socket::set_tos(fd.as_fd(), local.is_ipv6(), tos)?;
        }
        Ok(fd)
    }

    /// Has what `fd` sends be of the type of service that was asked for.
    pub(crate) fn set_tos_of(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let (Some(tos), Some(local)) = (self.options.tos, self.local) else { return Ok(()) };
        socket::set_tos(fd, local.is_ipv6(), tos)
    }

    /// The same of everything that it has.
    pub(crate) fn apply_tos(&self) -> Result<(), CmError> {
        let set = |fd: BorrowedFd<'_>| self.set_tos_of(fd);
        match &self.stage {
            IdStage::Bound(sockets) => sockets.all().try_for_each(set)?,
            IdStage::Listening(listener) => listener.for_each(set)?,
            IdStage::Dialing(attempt) => set(attempt.as_fd())?,
            IdStage::Refused(call) => set(call.fd.as_fd())?,
            IdStage::Requested(request) => set(request.as_fd())?,
            IdStage::Quiet
            | IdStage::Probing(_)
            | IdStage::Asked(_)
            | IdStage::Linked
            | IdStage::Parting(_) => {}
        }
        Ok(())
    }
}
