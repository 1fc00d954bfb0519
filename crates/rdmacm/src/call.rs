//! Connections over Shuttle: asking, granting, refusing. The queue pair's connection makes the
//! handshake; what both programs say to each other stands in its private data.
//!
//! A program may connect its queue pair by itself. Then the connection that is made here is that of
//! a stand-in, which carries nothing but the beginning and the end. Queue pairs for datagrams need
//! no connection: who is asked answers with their number and key, by a refusal that is none.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

use weft_host::managed::{self, Answer, CmHook, ManagedConn, Requester, RocePeer};
use weft_host::{Attachment, DeviceKind, Host, HostQp};
use weft_net::udp::UdpPort;
use weft_os::clock::{self, ns_at};
use weft_rnic::cm::{CmCommand, CmState, ConnParam, Depths, Failure, QpTerms, RETRIES_MAX};
use weft_rnic::shuttle::{ConnectionEnd, Route};
use weft_rnic::wire::shuttle::greeting::{DATAGRAMS, Greeting, Purpose};
use weft_rnic::{Binding, Established, RetryLimits, ShuttleQp, WhenClosed};
use weft_verbs::{AddressVector, Misuse, QpState, QpType};

use crate::config;
use crate::device::{HOP_LIMIT, PortSpace, wildcard};
use crate::error::CmError;
use crate::id::{CmId, IdInner, IdStage};
use crate::link::{Watcher, check_ready, hang_up};
use crate::locked::LockedId;
use crate::probe::Introduction;
use crate::shuttle_listener::{ConnRequest, ListenerRef};
use crate::sockets::Sockets;
use crate::words::{self, NOT_HERE, padded, terms, words};

/// InfiniBand's largest packet, and the time that its connection manager grants an
/// acknowledgement on Ethernet.
const MTU_4096: u8 = 5;
const ACK_TIMEOUT: u8 = 19;

/// What is at this end.
#[derive(Clone)]
pub(crate) enum LocalEnd {
    /// A queue pair that is connected here.
    Managed(Arc<HostQp>),
    /// One that the program connects by itself, or that takes datagrams.
    Elsewhere,
}

impl CmId {
    /// Starts to connect a queue pair that the program connects by itself, or asks for one that
    /// takes datagrams; `param` has its number. The outcome is an event.
    ///
    /// # Errors
    /// The wrong state, bad parameters, or a device that connects its queue pairs here.
    pub fn connect_elsewhere(&self, param: &ConnParam) -> Result<(), CmError> {
        let mut inner = self.lock_for_elsewhere(CmCommand::Connect)?;
        let depths = inner.machine.connect(param)?;
        self.call(inner, param, depths, LocalEnd::Elsewhere)
    }

    /// The id, if it may do `command` for a queue pair that is not connected here.
    fn lock_for_elsewhere(&self, command: CmCommand) -> Result<LockedId<'_>, CmError> {
        let inner = self.lock();
        inner.machine.may(command)?;
        if inner.device != Some(DeviceKind::Roce) {
            return Err(Misuse::Invalid("queue pairs of this device are connected here").into());
        }
        Ok(inner)
    }

    /// Asks the peer.
    pub(crate) fn call(
        &self,
        mut inner: LockedId<'_>,
        param: &ConnParam,
        depths: Depths,
        seat: LocalEnd,
    ) -> Result<(), CmError> {
        let called = self.begin_call(&mut inner, param, depths, &seat);
        let (qp, conn) = match called {
            Ok(called) => called,
            Err(error) => {
                inner.machine.handle_failed(Failure::from_errno(error.errno()));
                self.publish(&mut inner);
                return Ok(());
            }
        };
        inner.stage = IdStage::Linked;
        drop(inner);
        self.give(&qp, conn);
        Ok(())
    }

    /// Gives the queue pair its connection. The id must not be locked.
    fn give(&self, qp: &HostQp, conn: ManagedConn) {
        let held = qp.hold(conn);
        drop(self.note_held(qp, held));
    }

    /// The queue pair holds the connection of this id, which may have been given up or destroyed
    /// before there was a connection to end: then it ends.
    fn note_held(&self, qp: &HostQp, held: Option<Attachment>) -> LockedId<'_> {
        let mut inner = self.lock();
        inner.held = held;
        if !std::mem::take(&mut inner.gives_up) && !inner.is_dead() {
            return inner;
        }
        drop(inner);
        hang_up(qp, held);
        self.lock()
    }

    fn begin_call(
        &self,
        inner: &mut IdInner,
        param: &ConnParam,
        depths: Depths,
        seat: &LocalEnd,
    ) -> Result<(Arc<HostQp>, ManagedConn), CmError> {
        let IdStage::Bound(Sockets { datagram: Some(fd), .. }) = inner.leave_stage() else {
            return Err(Misuse::Invalid("the id has no socket").into());
        };
        let peer = inner.peer.ok_or(Misuse::Invalid("nobody to connect to"))?;
        let local = inner.local.unwrap_or_else(|| wildcard(&peer));
        log::debug!("connecting to {peer} from {local} over Shuttle");
        // Where nobody is, that is what is reported, not the policy.
        if inner.introduction.as_ref().is_some_and(|known| known.refused)
            && !inner.channel.host().secrecy().permits(local.ip(), peer.ip())
        {
            log::info!("nobody takes Requests over UDP at {peer}; the policy keeps TCP unasked");
            return Err(std::io::Error::from_raw_os_error(libc::ECONNREFUSED).into());
        }
        inner.channel.host().secrecy().permit(local.ip(), peer.ip())?;
        weft_net::socket::connect(std::os::fd::AsFd::as_fd(&fd), &peer)?;
        let port = Arc::new(UdpPort::adopt(fd)?);
        let mut param = param.clone();
        let (qp, purpose) = self.seat(inner, seat, false, &mut param)?;
        let said = words(purpose, port.room_octets(), &param, 0);
        let route = Route { local, remote: peer };
        let binding = binding(inner.channel.host(), route, depths);
        let binding = introduced(inner.introduction.take(), binding);
        let mut shuttle = ask(&qp, binding, &said)?;
        shuttle.set_retry_limits(retry_limits(inner));
        let cid = shuttle.connection().cid();
        let hook = CmHook::new(Arc::new(Watcher(self.me())), cid, None);
        let conn = ManagedConn { shuttle, port, hook, says_silence: !inner.is_prompt() };
        Ok((qp, conn))
    }

    /// The queue pair whose connection it will be, and what that is for.
    fn seat(
        &self,
        inner: &mut IdInner,
        seat: &LocalEnd,
        aside: bool,
        param: &mut ConnParam,
    ) -> Result<(Arc<HostQp>, Purpose), CmError> {
        if let LocalEnd::Managed(qp) = seat {
            param.terms.qp_num = qp.num();
            inner.managed = Some(Arc::downgrade(qp));
        }
        let (qp, purpose) = match seat {
            LocalEnd::Managed(qp) if !aside => (Arc::clone(qp), Purpose::Manager),
            _ if self.space() == PortSpace::Udp => (stand_in(inner)?, Purpose::Datagrams),
            _ => (stand_in(inner)?, Purpose::Aside),
        };
        inner.qp = Arc::downgrade(&qp);
        inner.terms = param.terms;
        Ok((qp, purpose))
    }

    /// Says yes for a queue pair that the program connects by itself, or that takes datagrams;
    /// `param` has its number. That the peer knows is an event, but for datagrams.
    ///
    /// # Errors
    /// As [`CmId::accept`].
    pub fn accept_elsewhere(&self, param: &ConnParam) -> Result<(), CmError> {
        let mut inner = self.lock_for_elsewhere(CmCommand::Accept)?;
        let depths = inner.machine.accept(param)?;
        self.answer(inner, param, depths, LocalEnd::Elsewhere)
    }

    /// Answers a Request over Shuttle.
    pub(crate) fn answer(
        &self,
        mut inner: LockedId<'_>,
        param: &ConnParam,
        depths: Depths,
        seat: LocalEnd,
    ) -> Result<(), CmError> {
        let IdStage::Asked(ask) = inner.leave_stage() else {
            return Err(Misuse::Invalid("the id has no request").into());
        };
        if ask.purpose == Purpose::Datagrams {
            let said = words(ask.purpose, 0, param, param.terms.qkey);
            ask.refuse(DATAGRAMS, &said);
            return Ok(());
        }
        let granted = self.grant(&mut inner, &ask, param, depths, &seat);
        let (qp, conn) = match granted {
            Ok(granted) => granted,
            Err(error) => {
                ask.refuse(NOT_HERE, &[]);
                inner.machine.handle_failed(Failure::from_errno(error.errno()));
                // The caller learns it from the result, so there is no event.
                inner.machine.poll_event();
                return Err(error);
            }
        };
        inner.stage = IdStage::Linked;
        drop(inner);
        self.give(&qp, conn);
        Ok(())
    }

    fn grant(
        &self,
        inner: &mut IdInner,
        ask: &ConnRequest,
        param: &ConnParam,
        depths: Depths,
        seat: &LocalEnd,
    ) -> Result<(Arc<HostQp>, ManagedConn), CmError> {
        inner.channel.host().secrecy().permit(ask.route.local.ip(), ask.route.remote.ip())?;
        let (mut param, aside) = (param.clone(), ask.purpose == Purpose::Aside);
        let (qp, purpose) = self.seat(inner, seat, aside, &mut param)?;
        inner.terms.take_retries(ask.terms);
        let said = words(purpose, ask.own_room_octets(), &param, ask.terms.qp_num);
        let (mut shuttle, port) = grant(&qp, ask, depths, &said)?;
        let _as_it_can = inner.set_tos_of(std::os::fd::AsFd::as_fd(&port));
        shuttle.connection_mut().set_peer_room(u64::from(ask.room_octets) / 2);
        shuttle.set_retry_limits(retry_limits(inner));
        if let LocalEnd::Managed(qp) = seat {
            if aside {
                reach(inner, qp, ask.terms.qp_num, depths)?;
            }
            show_connected(inner, qp, ask.terms.qp_num, depths);
        }
        let guest = Box::new(ListenerRef::new(&ask.listener));
        let cid = shuttle.connection().cid();
        let hook = CmHook::new(Arc::new(Watcher(self.me())), cid, Some(guest));
        let conn = ManagedConn { shuttle, port: Arc::new(port), hook, says_silence: true };
        Ok((qp, conn))
    }

    /// The handshake has ended.
    pub(crate) fn link_answered(&self, answer: Answer) {
        let mut inner = self.lock();
        if !matches!(inner.stage, IdStage::Linked) {
            return;
        }
        if let Some(peer) = inner.peer {
            log::debug!("connection to {peer} over Shuttle: {answer}");
        }
        if let Answer::Granted(established) = answer {
            return self.link_granted(inner, &established);
        }
        inner.leave_stage();
        let (left, held) = (inner.qp.upgrade(), inner.held);
        drop(inner);
        // The queue pair has failed, and is free for another connection, before the application
        // hears: it may destroy it then.
        match (left, held) {
            (Some(qp), Some(held)) => qp.abandon_only(held),
            (Some(qp), None) => qp.abandon(),
            (None, _) => {}
        }
        let mut inner = self.lock();
        inner.link_refused(answer);
        self.publish(&mut inner);
    }

    fn link_granted<'a>(&'a self, mut inner: LockedId<'a>, established: &Established) {
        let depths = Depths { ird: established.ird, ord: established.ord };
        inner.machine.handle_agreed(depths);
        let Some(greeting) = Greeting::parse(&established.private_data) else {
            // The peer has shown that it knows: its words came with the Request.
            inner.machine.handle_link_up(Vec::new(), QpTerms::default());
            return self.publish(&mut inner);
        };
        let (words, terms) = (padded(greeting.private_data, words::REPLY), terms(&greeting));
        inner.peer_qp_num = terms.qp_num;
        inner.terms.rnr_retry_count = terms.rnr_retry_count;
        let Some(qp) = inner.managed.as_ref().map(Weak::upgrade) else {
            inner.machine.handle_response(words, terms);
            return self.publish(&mut inner);
        };
        if let Some(qp) = qp {
            if greeting.purpose == Purpose::Aside {
                inner = self.step_aside(inner, &qp, terms.qp_num, depths);
            }
            show_connected(&inner, &qp, terms.qp_num, depths);
        }
        inner.machine.handle_link_up(words, terms);
        self.publish(&mut inner);
    }

    /// The peer's program connects its queue pair by itself, so this one needs a connection of its
    /// own too.
    fn step_aside<'a>(
        &'a self,
        mut inner: LockedId<'a>,
        qp: &Arc<HostQp>,
        peer: u32,
        depths: Depths,
    ) -> LockedId<'a> {
        let Ok(other) = stand_in(&mut inner) else { return inner };
        (inner.qp, inner.held) = (Arc::downgrade(&other), None);
        drop(inner);
        let held = qp.hand_over(&other);
        let inner = self.note_held(&other, held);
        // What cannot be reached fails with the first request.
        let _later = reach(&inner, qp, peer, depths);
        inner
    }
}

impl IdInner {
    /// The handshake has not led to a connection.
    fn link_refused(&mut self, answer: Answer) {
        let machine = &mut self.machine;
        match answer {
            // [`CmId::link_granted`] has handled it.
            Answer::Granted(_) => {}
            Answer::Refused { reason, private_data } => {
                let greeting = Greeting::parse(&private_data);
                match greeting {
                    Some(greeting) if reason == DATAGRAMS => {
                        let words = padded(greeting.private_data, words::DATAGRAM_REPLY);
                        machine.handle_link_up(words, terms(&greeting));
                    }
                    _ if reason == NOT_HERE => machine.handle_failed(Failure::Refused),
                    greeting => {
                        let (words, purpose) = greeting.map_or((&[][..], None), |said| {
                            (said.private_data, Some(said.purpose))
                        });
                        let room = match purpose {
                            Some(Purpose::Datagrams) => words::DATAGRAM_REPLY,
                            _ => words::REJECT,
                        };
                        machine.handle_rejected(Depths { ird: 0, ord: 0 }, padded(words, room));
                    }
                }
            }
            Answer::Nobody => {
                let asked = machine.state() == CmState::Connecting;
                machine.handle_failed(if asked { Failure::Refused } else { Failure::TimedOut });
            }
            Answer::None(end) => machine.handle_failed(failure(end)),
        }
    }
}

fn binding(host: &Host, route: Route, depths: Depths) -> Binding {
    let mut config = managed::config(host, &route);
    (config.ord, config.ird) = (depths.ord, depths.ird);
    config.handshake_ns = config::ANSWER_TIMEOUT.as_nanos() as u64;
    (config.may_wait, config.may_withdraw) = (true, true);
    config.keep_alive_ns = config::KEEP_ALIVE_FIRST.as_nanos() as u64;
    Binding { config, identity: managed::identity(), route, when_closed: WhenClosed::Stay }
}

/// The peer has made a cookie for this id and nonce when it was asked by which transport it is
/// reached.
fn introduced(introduction: Option<Introduction>, mut binding: Binding) -> Binding {
    if let Some(Introduction { identity, cookie, .. }) = introduction {
        (binding.identity, binding.config.cookie) = (identity, cookie);
    }
    binding
}

/// Asks for a connection. It is boxed as soon as it is there: it is large, and some programs accept
/// and connect on threads whose stacks are small.
fn ask(qp: &HostQp, binding: Binding, said: &[u8]) -> Result<Box<ShuttleQp>, Misuse> {
    let now_ns = ns_at(clock::now());
    ShuttleQp::connect(Arc::clone(qp.queues()), binding, said, now_ns)
        .map(Box::new)
        .map_err(|_| Misuse::Invalid("the connection cannot be as it was asked for"))
}

/// Grants a connection, which gets a socket of its own.
fn grant(
    qp: &HostQp,
    ask: &ConnRequest,
    depths: Depths,
    said: &[u8],
) -> std::io::Result<(Box<ShuttleQp>, UdpPort)> {
    let Binding { mut config, when_closed, .. } = binding(qp.host(), ask.route, depths);
    let further = ask.offer_paths(qp.host());
    let further = further.map(|(further, addresses)| {
        config.addresses = Some(addresses);
        further
    });
    let (connection, port) = ask.grant(config, said, qp.conn_ref())?;
    further.into_iter().for_each(|further| port.keep_further(further));
    let (qp, served) = (Arc::clone(qp.queues()), (depths.ord, depths.ird));
    Ok((Box::new(ShuttleQp::granted(qp, *connection, served, when_closed)), port))
}

/// A new queue pair that stands in for one that has a connection of its own.
fn stand_in(inner: &mut IdInner) -> Result<Arc<HostQp>, CmError> {
    let qp = inner.channel.stand_ins().make(inner.channel.host())?;
    inner.stand_in = Some(Arc::clone(&qp));
    Ok(qp)
}

/// Connects a queue pair by the number of its peer.
fn reach(inner: &IdInner, qp: &HostQp, peer: u32, depths: Depths) -> Result<(), CmError> {
    let none = Misuse::Invalid("nobody to connect to");
    let (local, remote) = inner.local.zip(inner.peer).ok_or(none)?;
    let interface = match remote {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(remote) => remote.scope_id(),
    };
    qp.reach(RocePeer {
        local: local.ip(),
        remote: remote.ip(),
        interface,
        qpn: peer,
        max_dest_rd_atomic: octet(depths.ird),
    })?;
    let (max_rd_atomic, retry_limits) = (octet(depths.ord), retry_limits(inner));
    Ok(qp.speak(Requester { max_rd_atomic, retry_limits })?)
}

/// How long requests wait for a peer that is silent.
fn retry_limits(inner: &IdInner) -> RetryLimits {
    let (timeout_exp, retry_cnt) = (ack_timeout(inner), inner.terms.retry_count);
    let least_ns =
        u64::try_from(inner.channel.host().settings().stall_after.as_nanos()).unwrap_or(u64::MAX);
    RetryLimits { timeout_exp, retry_cnt, least_ns }
}

fn ack_timeout(inner: &IdInner) -> u8 {
    inner.ack_timeout().unwrap_or(ACK_TIMEOUT)
}

fn octet(depth: u16) -> u8 {
    depth.min(u16::from(u8::MAX)) as u8
}

/// Lets the queue pair send, and show whom it is connected to.
fn show_connected(inner: &IdInner, qp: &HostQp, peer: u32, depths: Depths) {
    let gid = |at: Option<SocketAddr>| match at.map(|at| at.ip()) {
        Some(IpAddr::V4(v4)) => v4.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(v6)) => v6.octets(),
        None => [0; 16],
    };
    let (sgid, dgid) = (gid(inner.local), gid(inner.peer));
    qp.queues().set_attrs(|attrs| {
        let path = AddressVector { sgid, dgid, is_global: true, port: 1, ..Default::default() };
        attrs.path = AddressVector { hop_limit: HOP_LIMIT, ..path };
        attrs.dest_qp_num = peer;
        attrs.path_mtu = MTU_4096;
        attrs.timeout = ack_timeout(inner);
        attrs.retry_cnt = inner.terms.retry_count.min(RETRIES_MAX);
        attrs.rnr_retry = inner.terms.rnr_retry_count.min(RETRIES_MAX);
        attrs.max_rd_atomic = octet(depths.ord);
        attrs.max_dest_rd_atomic = octet(depths.ird);
    });
    // The application may fail or reset it at the same time.
    qp.queues().proceed(QpState::Init, QpState::Rtr);
    qp.queues().proceed(QpState::Rtr, QpState::Rts);
}

fn failure(end: ConnectionEnd) -> Failure {
    match end {
        ConnectionEnd::NoAnswer | ConnectionEnd::Silence => Failure::TimedOut,
        ConnectionEnd::Local => Failure::Aborted,
        ConnectionEnd::Peer(_) | ConnectionEnd::Withdrawn => Failure::Reset,
        ConnectionEnd::Rejected(_) => Failure::Refused,
        ConnectionEnd::Stranger | ConnectionEnd::NothingInCommon | ConnectionEnd::ClearText => {
            Failure::Os(libc::EACCES)
        }
        ConnectionEnd::Version | ConnectionEnd::BadAnswer => Failure::Protocol,
    }
}

/// Whether `qp` is one of the device that the id is bound to, and waits for a connection.
pub(crate) fn check_seat(qp: &HostQp, device: Option<DeviceKind>) -> Result<(), Misuse> {
    let roce = qp.is_adapter();
    if roce != (device == Some(DeviceKind::Roce)) {
        return Err(Misuse::Invalid("the queue pair is one of another device"));
    }
    if roce && qp.kind() != QpType::Rc {
        return Err(Misuse::Invalid("only reliable queue pairs are connected here"));
    }
    check_ready(qp)
}
