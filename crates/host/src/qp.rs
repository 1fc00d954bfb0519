//! Queue pairs as the verbs ABI sees them: making, connecting, ending. [`modify`] has their
//! attributes and states, [`posting`] their sends.

mod modify;
mod posting;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_fault::Verb;
use weft_net::secrecy::Chosen;
use weft_net::stream::MpaCarrier;
use weft_net::tcp;
use weft_net::udp::UdpPort;
use weft_os::clock;
use weft_rnic::mpa::{Agreed, MpaRole};
use weft_rnic::wire::capability::Capabilities;
use weft_rnic::wire::tap::TapEnds;
use weft_rnic::{MpaLink, MpaQp, RdmaDevice, WhenClosed};
use weft_sync::Mutex;
use weft_verbs::qp::QpInit as Init;
use weft_verbs::{Misuse, Pd, QpAttr, QpCap, QpFailure, QpState, QpType, RecvWr};

use crate::conn_slot::{Attachment, ConnSlot};
use crate::cq::HostCq;
use crate::device_kind::{DeviceId, DeviceKind};
use crate::driver::{Driver, LinkWatcher};
use crate::faults::DeviceWatch;
use crate::host::Host;
use crate::iwarp_connect::IwarpConnect;
use crate::iwarp_ports::Number;
use crate::srq::HostSrq;
use crate::tap::joined;
use crate::xrcd::HostXrcd;

pub use posting::HostPosting;

/// A round trip shorter than this is a local network, where the kernel's loss-based congestion
/// control fills the path with less work than one that paces.
const LOCAL_RTT_US: u32 = 1000;

/// How long a message waits for a receive to be posted. iWARP knows no "receiver not ready", but
/// applications that were written for InfiniBand count on it. Not longer: a peer that disconnects
/// is not heard either until its last message is read.
const RNR_TIMER_NS: u64 = 1_000_000_000;

/// What a queue pair is made of.
pub struct HostQpInit {
    /// What it offers.
    pub kind: QpType,
    /// Its protection domain.
    pub pd: Arc<Pd>,
    /// Where sends complete.
    pub send_cq: Arc<HostCq>,
    /// Where receives complete.
    pub recv_cq: Arc<HostCq>,
    /// Where receives come from, instead of a receive queue of its own.
    pub srq: Option<Arc<HostSrq>>,
    /// The domain that it receives for, with [`QpType::XrcRecv`]: its protection domain and
    /// completion queues are then [`HostXrcd::pd`] and [`HostXrcd::cq`].
    pub xrcd: Option<Arc<HostXrcd>>,
    /// Sizes.
    pub cap: QpCap,
    /// Every send is signaled.
    pub sq_sig_all: bool,
    /// Names it in events.
    pub cookie: u64,
}

/// A queue pair.
pub struct HostQp {
    inner: Arc<weft_verbs::Qp>,
    device: Arc<RdmaDevice>,
    send_cq: Arc<HostCq>,
    recv_cq: Arc<HostCq>,
    pub(crate) slot: Arc<ConnSlot>,
    xrcd: Option<Arc<HostXrcd>>,
    /// Where it is reached, which its number says; an RNIC's queue pair has none.
    port: Option<Arc<UdpPort>>,
    /// The same for an RNIC's.
    number: Option<Number>,
    /// What is to become of its device.
    watch: Option<Arc<DeviceWatch>>,
    /// Its path to the peer that the application named.
    iwarp: Mutex<Option<Arc<IwarpConnect>>>,
    /// The groups whose datagrams come to it, and its places for them.
    pub(crate) groups: Mutex<Vec<(IpAddr, Arc<ConnSlot>)>>,
}

impl HostQp {
    pub(crate) fn new(
        host: &Arc<Host>,
        id: DeviceId,
        device: &Arc<RdmaDevice>,
        init: HostQpInit,
        events: &Arc<weft_verbs::AsyncQueue>,
    ) -> Result<Self, Misuse> {
        let (send_cq, recv_cq) = (init.send_cq, init.recv_cq);
        let inner = Init {
            kind: init.kind,
            // An RNIC has nothing that an application could set before the connection is made.
            start: match id.kind {
                DeviceKind::Iwarp => QpState::Init,
                DeviceKind::Roce => QpState::Reset,
            },
            pd: init.pd,
            send_cq: Arc::clone(send_cq.inner()),
            recv_cq: Arc::clone(recv_cq.inner()),
            srq: init.srq.map(|srq| Arc::clone(srq.inner())),
            xrcd: init.xrcd.as_ref().map(|domain| Arc::clone(domain.inner())),
            cap: init.cap,
            sq_sig_all: init.sq_sig_all,
            cookie: init.cookie,
        };
        let (port, number) = match id.kind {
            DeviceKind::Iwarp => (None, Some(Number::take(host)?)),
            DeviceKind::Roce => {
                let port = UdpPort::for_queue_pair(host.settings().ports)?;
                if init.kind == QpType::Ud {
                    port.cut_long();
                }
                (Some(Arc::new(port)), None)
            }
        };
        let led = number.as_ref().map(Number::value);
        let led = led.or(port.as_ref().map(|port| port.qp_number())).unwrap_or_default();
        let inner = device.create_qp_numbered(led, inner, events)?;
        let inner = Arc::new(inner);
        let cell = ConnSlot::new(host, id, &inner);
        let weak = Arc::downgrade(&cell);
        inner.set_lender(weak);
        match &init.xrcd {
            Some(domain) => domain.join(&cell),
            None => {
                send_cq.join(&cell);
                recv_cq.join(&cell);
            }
        }
        let (device, iwarp, groups) = (Arc::clone(device), Mutex::default(), Mutex::default());
        Ok(Self {
            inner,
            device,
            send_cq,
            recv_cq,
            slot: cell,
            xrcd: init.xrcd,
            port,
            number,
            watch: None,
            iwarp,
            groups,
        })
    }

    /// The same, which ends when its device does.
    pub(crate) fn watched(mut self, watch: Option<&Arc<DeviceWatch>>) -> Self {
        if let Some(watch) = watch {
            let slot: Weak<ConnSlot> = Arc::downgrade(&self.slot);
            watch.enlist(slot);
        }
        self.watch = watch.cloned();
        self
    }

    /// Fails a call that is to fail, or any command once the device is gone.
    fn refuse(&self, verb: Verb) -> Result<(), Misuse> {
        let posts = matches!(verb, Verb::PostSend | Verb::PostRecv);
        if !posts && self.watch.as_ref().is_some_and(|watch| watch.is_gone()) {
            return Err(Misuse::System(libc::EIO));
        }
        self.host().refuse(verb, self.slot.device())
    }

    /// Fails a call that posts, and counts it.
    fn refuse_post(&self, verb: Verb) -> Result<(), Misuse> {
        let Some(faults) = self.host().faults() else { return Ok(()) };
        self.refuse(verb)?;
        faults.regions.note_post(faults);
        Ok(())
    }

    /// The host whose device it is one of.
    pub fn host(&self) -> &Arc<Host> {
        self.slot.host()
    }

    pub(crate) fn port(&self) -> Option<&Arc<UdpPort>> {
        self.port.as_ref()
    }

    pub(crate) fn inner(&self) -> &Arc<weft_verbs::Qp> {
        &self.inner
    }

    /// Its queues, for who posts to them by itself; [`HostQp::ring`] sets the sends going.
    pub fn queues(&self) -> &Arc<weft_verbs::Qp> {
        &self.inner
    }

    pub(crate) fn recv_cq(&self) -> &Arc<HostCq> {
        &self.recv_cq
    }

    /// Its number, 24 bits.
    pub fn num(&self) -> u32 {
        self.inner.num()
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.inner.state()
    }

    /// Nothing would carry out what a child of the process posts, and a lock of the queues may be
    /// one that a thread of the parent holds for ever.
    fn check_owner(&self) -> Result<(), Misuse> {
        if self.slot.is_inherited() {
            return Err(Misuse::Invalid("the queue pair is the parent process's"));
        }
        Ok(())
    }

    /// What it offers.
    pub fn kind(&self) -> QpType {
        self.inner.kind()
    }

    /// The doorbell: what is queued goes out, on this thread if nobody else drives.
    pub fn ring(&self) {
        if self.slot.is_attached() {
            self.slot.ring();
        }
    }

    /// Queues a receive.
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), Misuse> {
        self.check_owner()?;
        self.refuse_post(Verb::PostRecv)?;
        self.host().events().note_recv(self.num(), wr);
        self.inner.post_recv(wr)
    }

    /// Waits until no other thread is in the middle of a step on the connection: an application may
    /// have polled the completion of a request that failed before the queue pair shows ERR.
    pub fn await_step(&self) {
        self.slot.await_step();
    }

    /// The attributes.
    pub fn query(&self) -> QpAttr {
        self.inner.attrs()
    }

    /// Binds the queue pair to a stream whose set-up is done: it goes to RTS and owns the socket.
    /// `watcher` is told that the connection is established, at once or with the first message of
    /// the peer if that was to be awaited, and of the end.
    pub fn attach(
        &self,
        stream: impl Into<MpaCarrier>,
        agreed: &Agreed,
        role: MpaRole,
        watcher: Arc<dyn LinkWatcher>,
    ) -> Result<Attachment, Misuse> {
        let stream = stream.into();
        if !matches!(self.state(), QpState::Init | QpState::Rtr) {
            return Err(Misuse::Invalid("the queue pair is not waiting for a connection"));
        }
        take_stream(&self.inner, &self.slot, stream, agreed, role, watcher, CompletionRule::OfIwarp)
    }

    /// Who does what below the verbs, while there is a connection.
    pub fn capabilities(&self) -> Option<Capabilities> {
        self.slot.capabilities()
    }

    /// Has messages for an RNIC's queue pair wait for their receives without end, and not for a
    /// second, as an `rnr_retry` of 7 has it for an adapter's. Both ends must want that: what waits
    /// stays with TCP, whose window closes, and then the sender does not hear either that its peer
    /// has ended the connection. So a peer that is silent is waited for as long as TCP does by
    /// itself. To be called before the connection is made, or when the peer is known to agree.
    pub fn wait_for_recv_forever(&self) {
        self.slot.wait_for_recv_forever();
    }

    /// Has datagrams that arrive taken from now on.
    pub(crate) fn open_for_datagrams(&self) -> Result<(), Misuse> {
        let Some(port) = self.port() else {
            return Err(Misuse::Unsupported("queue pairs without a port"));
        };
        let woken = self.slot.woken(&self.inner);
        let driver = Driver::ud(self.host(), woken, Arc::clone(port), None);
        self.slot.hold(Box::new(driver));
        Ok(())
    }

    /// Gives the connection to another queue pair, before anything was sent on it.
    pub fn hand_over(&self, to: &Self) -> Option<Attachment> {
        let mut driver = self.slot.release()?;
        driver.rebind(to.slot.woken(&to.inner));
        to.slot.hold(driver)
    }

    /// How many completions the application has yet to poll until it knows of all requests of this
    /// queue pair that have succeeded. Each poll makes it less, whoever else completes there.
    pub fn unseen(&self) -> usize {
        let cqs = [self.inner.send_cq(), self.inner.recv_cq()];
        cqs.iter().map(|cq| cq.depth_of_success(self.num())).sum()
    }

    /// Closes the connection: what was posted goes out as far as TCP takes it at once, the rest
    /// is flushed, and the watcher hears of it.
    pub fn disconnect(&self) {
        self.slot.disconnect();
    }

    /// The same, if the connection is that one still: who brought it may be late.
    pub fn disconnect_only(&self, attachment: Attachment) {
        self.slot.disconnect_only(attachment);
    }

    /// Ends it. Its completions that were not polled are gone, and so are its events; gives how
    /// many of those had been announced.
    pub fn destroy(&self) -> Result<usize, Misuse> {
        self.inner.mute();
        self.inner.failure().note(QpFailure::Destroyed);
        self.hang_up();
        self.detach_groups();
        self.slot.retire();
        self.inner.fail(None);
        self.send_cq.leave(&self.slot);
        self.recv_cq.leave(&self.slot);
        if let Some(domain) = &self.xrcd {
            domain.leave(&self.slot);
        }
        let announced = self.inner.retire();
        self.device.release(self.num());
        Ok(announced)
    }
}

impl Drop for HostQp {
    /// The number is free again now at the latest, and nobody can have taken it before: the port
    /// that it names was this queue pair's until here.
    fn drop(&mut self) {
        self.device.release(self.num());
    }
}

/// What the application of a queue pair over TCP was written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletionRule {
    /// Requests complete when TCP has them, and the end of the stream is the queue pair's.
    OfIwarp,
    /// Requests complete when the peer has placed them, and a queue pair whose peer has gone learns
    /// of it by its next request.
    OfAdapters,
}

fn prepare_tcp(fd: BorrowedFd<'_>, stall_after: Duration) {
    tcp::no_delay(fd);
    tcp::give_up_after(fd, stall_after);
    if tcp::rtt_us(fd).is_some_and(|rtt| rtt < LOCAL_RTT_US) {
        tcp::congestion_control(fd, "reno");
    }
}

/// Binds a queue pair, of which `slot` is the place for its connection, to a stream.
///
/// # Errors
/// If it has a connection or is past having one.
pub(crate) fn take_stream(
    qp: &Arc<weft_verbs::Qp>,
    slot: &ConnSlot,
    stream: MpaCarrier,
    agreed: &Agreed,
    role: MpaRole,
    watcher: Arc<dyn LinkWatcher>,
    manner: CompletionRule,
) -> Result<Attachment, Misuse> {
    let open = matches!(qp.state(), QpState::Init | QpState::Rtr | QpState::Rts);
    if !open || slot.is_attached() {
        return Err(Misuse::Invalid("the queue pair is not waiting for a connection"));
    }
    let stall_after = slot.host().settings().stall_after;
    if let MpaCarrier::Tcp(stream) = &stream {
        if let Some((local, remote)) = tcp::ends(stream.fd()) {
            slot.host().secrecy().permit_stream(Chosen::ByName, local, remote)?;
        }
        prepare_tcp(stream.fd(), stall_after);
    }
    let (emss, batch_bytes) = match &stream {
        MpaCarrier::Tcp(stream) => (stream.segment_bytes(), stream.batch_bytes()),
        // Nothing is framed.
        MpaCarrier::Lane { .. } => (u16::MAX.into(), 0),
    };
    let link = MpaLink {
        role,
        agreed,
        emss,
        batch_bytes,
        stall_ns: stall_after.as_nanos() as u64,
        confirm: manner == CompletionRule::OfAdapters,
        when_closed: match manner {
            CompletionRule::OfAdapters => WhenClosed::Stay,
            CompletionRule::OfIwarp => WhenClosed::Fail,
        },
    };
    let mut mpa = MpaQp::new(Arc::clone(qp), &link, clock::ns_at(clock::now()));
    mpa.set_rnr_timer(RNR_TIMER_NS);
    if let MpaCarrier::Tcp(stream) = &stream
        && let Some((local, remote)) = tcp::addresses(stream.fd())
    {
        let mut capture = slot.tap(qp);
        if let Some(capture) = &mut capture {
            let [request, reply] = &agreed.frames;
            let calls = role == MpaRole::Initiator;
            capture.begin_stream(TapEnds { local, remote }, calls, [request, reply]);
        }
        if let Some(tap) = joined(slot.host(), qp, capture) {
            mpa.set_tap(tap);
        }
    }
    slot.attach(mpa, stream, watcher)
}
