//! A byte stream over a queue pair of `weft-host`: SDP, its private memory and its completions.
//!
//! Invariant: the memory outlives its registration, and that outlives the queue pair.
//!
//! Order of calls: [`SdpStream::open`] gives the Hello, [`SdpStream::finish`] takes the answer; or
//! [`SdpStream::accept`] does both. From then on [`SdpStream::settle`] whenever the waker was
//! called, and [`SdpStream::ring`] after each call that may send.

use std::net::IpAddr;
use std::sync::Arc;

use weft_host::{Context, DeviceKind, HostCq, HostQp, HostQpInit, capability};
use weft_sdp::{
    Choice, HelloRequest, Names, Opening, SdpCompletion, SdpConfig, SdpConnection, SdpFault,
    SdpQueuePair, SdpStyle,
};
use weft_sync::TryOnceLock;
use weft_verbs::{Access, CompChannel, Misuse, Pd, QpCap, QpType, Sge, Wake, Wc};

use crate::memory::{MemoryParts, PrivateMemory};
use crate::{rdma, sys};

/// Buffers and their size in bytes within this machine: few enough to stay in the caches.
const LOCAL: (u16, u32) = (64, 32 << 10);
/// The same to other hosts: each byte in flight needs a buffer, and 32 MiB fill a path of
/// 1.3 Gbit/s with a round trip of 200 ms. Pages of buffers that are never used are never mapped.
const REMOTE: (u16, u32) = (512, 64 << 10);
/// Work requests beyond one per buffer.
const SPARE_REQUESTS: u32 = 16;
/// Completions taken in one poll, at most.
const BATCH: usize = 64;

/// An open device and its protection domain.
struct SdpDevice {
    context: Arc<Context>,
    pd: Arc<Pd>,
}

/// The devices of a process, opened at their first use.
pub struct SdpDevices {
    slots: [TryOnceLock<SdpDevice>; 2],
    /// SDP is used in basic style only.
    basic: bool,
}

impl SdpDevices {
    /// No device is open yet.
    pub const fn new(basic: bool) -> Self {
        Self { slots: [TryOnceLock::new(), TryOnceLock::new()], basic }
    }

    fn get(&self, personality: DeviceKind) -> Result<&SdpDevice, Misuse> {
        self.slots[personality as usize].get_or_try_init(|| {
            let context = Context::open(rdma::host(), personality, Box::new(Unheard))?;
            let pd = context.alloc_pd();
            Ok(SdpDevice { context, pd })
        })
    }
}

/// Ignores asynchronous events of a device: its connections report the same.
struct Unheard;

impl Wake for Unheard {
    fn wake(&self) {}
}

/// A stream: opening, open or closed.
pub struct SdpStream {
    personality: DeviceKind,
    device: &'static SdpDevice,
    qp: Arc<HostQp>,
    cq: Arc<HostCq>,
    channel: Arc<CompChannel>,
    verbs: SdpQueuePair,
    key: u32,
    connection: Option<SdpConnection>,
    opening: Option<Opening>,
    armed: bool,
    memory: PrivateMemory,
}

impl SdpStream {
    /// Begins to open a stream to `remote`; returns its Hello too. `waker` is called when
    /// completions wait.
    ///
    /// # Errors
    /// Without memory or resources for a queue pair.
    pub fn open(
        devices: &'static SdpDevices,
        personality: DeviceKind,
        remote: IpAddr,
        names: Names,
        waker: Box<dyn Wake>,
    ) -> Result<(Self, Vec<u8>), SdpFault> {
        let config = config(personality, devices.basic, is_here(&names, remote));
        let mut stream = Self::new(devices, personality, &config, waker)?;
        let opening = Opening::new(&config, names, &mut stream.verbs)?;
        let hello = opening.hello();
        stream.opening = Some(opening);
        Ok((stream, hello))
    }

    /// Opens the stream that `request` asks for; returns the HelloAck too.
    ///
    /// # Errors
    /// As [`SdpStream::open`], and if the terms of the request cannot be met.
    pub fn accept(
        devices: &'static SdpDevices,
        personality: DeviceKind,
        remote: IpAddr,
        request: HelloRequest,
        waker: Box<dyn Wake>,
    ) -> Result<(Self, Vec<u8>), SdpFault> {
        let config = config(personality, devices.basic, is_here(&request.names(), remote));
        let mut stream = Self::new(devices, personality, &config, waker)?;
        let (connection, answer) = request.accept(&config, &mut stream.verbs)?;
        stream.keep(connection);
        Ok((stream, answer))
    }

    fn new(
        devices: &'static SdpDevices,
        personality: DeviceKind,
        config: &SdpConfig,
        waker: Box<dyn Wake>,
    ) -> Result<Self, Misuse> {
        let device = devices.get(personality)?;
        let bytes = config.private_octets();
        let memory =
            PrivateMemory::map(bytes as usize).map_err(|_| Misuse::System(libc::ENOMEM))?;
        let requests = u32::from(config.buffers) + SPARE_REQUESTS;
        let channel = CompChannel::new(waker);
        let cq = device.context.create_cq(2 * requests, Some(Arc::clone(&channel)), 0)?;
        let cap = QpCap {
            max_send_wr: requests,
            max_recv_wr: requests,
            max_send_sge: 2,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let qp = device.context.create_qp(HostQpInit {
            kind: QpType::Rc,
            pd: Arc::clone(&device.pd),
            send_cq: Arc::clone(&cq),
            recv_cq: Arc::clone(&cq),
            srq: None,
            xrcd: None,
            cap,
            sq_sig_all: false,
            cookie: 0,
        })?;
        if qp.state() == weft_verbs::QpState::Reset {
            qp.queues().enter(weft_verbs::QpState::Init);
        }
        let (addr, access) = (memory.addr(), Access::LOCAL_WRITE);
        let key = device.context.reg_mr(&device.pd, addr, bytes, addr, access)?;
        let private = Sge { addr, length: bytes as u32, lkey: key };
        let entropy = Box::new(|| sys::random() as u32);
        let (queues, pd) = (Arc::clone(qp.queues()), Arc::clone(&device.pd));
        let verbs = SdpQueuePair::new(queues, pd, private, entropy);
        let (connection, opening) = (None, None);
        let armed = false;
        Ok(Self {
            personality,
            device,
            qp,
            cq,
            channel,
            verbs,
            key,
            connection,
            opening,
            armed,
            memory,
        })
    }

    /// The queue pair, which the caller connects.
    pub fn qp(&self) -> &Arc<HostQp> {
        &self.qp
    }

    /// The peer has accepted, with this HelloAck.
    ///
    /// # Errors
    /// If the HelloAck is malformed.
    pub fn finish(&mut self, answer: &[u8]) -> Result<(), SdpFault> {
        let opening = self.opening.take().ok_or(Misuse::Invalid("it is open"))?;
        self.keep(opening.finish(answer)?);
        Ok(())
    }

    /// Enhanced style relies on the transport's flow control, so a message waits for its receive
    /// without limit.
    fn keep(&mut self, connection: SdpConnection) {
        if connection.style() == SdpStyle::Enhanced {
            self.qp.wait_for_recv_forever();
        }
        self.connection = Some(connection);
    }

    /// Handles the completions that wait, and arms the waker for the next; whether there were any.
    pub fn settle(&mut self) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        let mut any = false;
        let mut wcs = [Wc::default(); BATCH];
        while self.channel.pop().is_some() {
            self.armed = false;
        }
        loop {
            // An overflow fails the queue pair too, which is reported.
            let count = self.qp.queues().recv_cq().poll(&mut wcs).unwrap_or(0);
            for completion in wcs[..count].iter().filter_map(SdpCompletion::of) {
                connection.handle_completion(&mut self.verbs, completion);
            }
            any |= count > 0;
            if count == 0 && self.armed {
                break;
            }
            if count == 0 {
                self.qp.queues().recv_cq().req_notify(false);
                self.armed = true;
            }
        }
        while connection.poll_event().is_some() {}
        any
    }

    /// Sends the posted work requests.
    pub fn ring(&self) {
        self.qp.ring();
    }

    /// The connection, once it is open, and the verbs that carry it.
    pub fn parts(&mut self) -> Option<(&mut SdpConnection, &mut SdpQueuePair)> {
        Some((self.connection.as_mut()?, &mut self.verbs))
    }

    /// Whether sent bytes may be in flight.
    pub fn is_flying(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.flying() > 0)
    }

    /// Memory for the next bytes to send, which [`SdpStream::commit`] sends; none in basic style.
    pub fn vacant(&self) -> Option<MemoryParts<'_>> {
        let connection = self.connection.as_ref()?;
        Some(self.memory.parts(connection.vacant()))
    }

    /// Sends the first `bytes` of what [`SdpStream::vacant`] returned.
    pub fn commit(&mut self, bytes: usize) {
        if let Some(connection) = &mut self.connection {
            // A connection that has failed reports it in its state.
            let _ = connection.commit(&mut self.verbs, bytes as u32);
        }
    }

    /// The bytes that have arrived, up to an urgent one, until [`SdpStream::consume`]; none in
    /// basic style.
    pub fn arrived(&self) -> Option<MemoryParts<'_>> {
        let connection = self.connection.as_ref()?;
        Some(self.memory.parts(connection.arrived()))
    }

    /// The first `bytes` of what [`SdpStream::arrived`] returned were read.
    pub fn consume(&mut self, bytes: usize) {
        if let Some(connection) = &mut self.connection {
            // As above.
            let _ = connection.consume(&mut self.verbs, bytes);
        }
    }

    /// Whether the transport itself reports the end of the peer's process, after all data that were
    /// sent before: iWARP has a TCP connection of its own.
    pub fn outlasts_peer(&self) -> bool {
        self.personality == DeviceKind::Iwarp
    }

    /// The style of SDP, for reports.
    pub fn style(&self) -> &'static str {
        match self.connection.as_ref().map(SdpConnection::style) {
            Some(SdpStyle::Basic) => "basic",
            Some(SdpStyle::Enhanced) => "enhanced",
            None => "unopened",
        }
    }
}

impl Drop for SdpStream {
    fn drop(&mut self) {
        // Failures leave nothing that is still in use.
        let _ = self.qp.destroy();
        let _ = self.device.context.dereg_mr(self.key);
        let _ = self.cq.destroy();
    }
}

fn is_here(names: &Names, remote: IpAddr) -> bool {
    remote.to_canonical().is_loopback() || names.from == names.to
}

fn config(personality: DeviceKind, basic: bool, here: bool) -> SdpConfig {
    let all = capability::capabilities(rdma::host());
    let below = all.iter().find(|(device, _)| *device == personality);
    let mut config = below.map(|(_, below)| SdpConfig::over(below)).unwrap_or_default();
    if basic {
        config.style = Choice::Only(SdpStyle::Basic);
    }
    let (buffers, bytes) = if here { LOCAL } else { REMOTE };
    (config.buffers, config.buffer_octets, config.buffer_octets_max) = (buffers, bytes, bytes);
    // The transport takes as much as there are buffers for.
    config.high_octets = u32::from(buffers) * bytes;
    config.low_octets = config.high_octets / 4;
    config
}
