//! A stream of octets over a queue pair of `weft-io`: SDP, its private memory and its completions.
//!
//! Invariant: the memory outlives its registration, and that outlives the queue pair.
//!
//! Order of calls: [`Stream::open`] gives the Hello, [`Stream::finish`] takes the answer; or
//! [`Stream::accept`] does both. From then on [`Stream::settle`] whenever the waker was called, and
//! [`Stream::ring`] after anything that may send.

use std::net::IpAddr;
use std::sync::Arc;

use weft_io::{Context, Cq, Personality, Qp, QpInit, capability};
use weft_sdp::{
    Choice, Completion, Config, Connection, Fault, Names, Opening, QueuePair, Request, Style,
};
use weft_sync::TryOnceLock;
use weft_verbs::{Access, CompChannel, Misuse, Pd, QpCap, QpType, Sge, Wake, Wc};

use crate::memory::{Memory, Parts};
use crate::settings::Settings;
use crate::sys;

/// Buffers towards this machine, and their octets: so few stay in the caches.
const NEAR: (u16, u32) = (64, 32 << 10);
/// Towards others. All that is on its way must find a buffer, and a fast path of 200 ms holds so
/// much; buffers that are never used are never there.
const FAR: (u16, u32) = (512, 64 << 10);
/// Requests beyond those for the buffers.
const SPARE_REQUESTS: u32 = 16;
/// Completions taken at once.
const BATCH: usize = 64;

/// A device as this process uses it.
struct Device {
    context: Arc<Context>,
    pd: Arc<Pd>,
}

impl Device {
    fn get(personality: Personality) -> Result<&'static Self, Misuse> {
        static DEVICES: [TryOnceLock<Device>; 2] = [TryOnceLock::new(), TryOnceLock::new()];
        DEVICES[personality as usize].get_or_try_init(|| {
            let context = Context::open(personality, Box::new(Unheard))?;
            let pd = context.alloc_pd();
            Ok(Self { context, pd })
        })
    }
}

/// Events of a device say nothing that its connections do not say as well.
struct Unheard;

impl Wake for Unheard {
    fn wake(&self) {}
}

/// A stream that is being opened, is open or was.
pub struct Stream {
    personality: Personality,
    device: &'static Device,
    qp: Arc<Qp>,
    cq: Arc<Cq>,
    channel: Arc<CompChannel>,
    verbs: QueuePair,
    key: u32,
    connection: Option<Connection>,
    opening: Option<Opening>,
    armed: bool,
    memory: Memory,
}

impl Stream {
    /// Begins to open one to `remote`; gives the Hello too. `waker` is called when completions
    /// wait.
    pub fn open(
        personality: Personality,
        remote: IpAddr,
        names: Names,
        waker: Box<dyn Wake>,
    ) -> Result<(Self, Vec<u8>), Fault> {
        let config = config(personality, is_here(&names, remote));
        let mut stream = Self::new(personality, &config, waker)?;
        let opening = Opening::new(&config, names, &mut stream.verbs)?;
        let hello = opening.hello();
        stream.opening = Some(opening);
        Ok((stream, hello))
    }

    /// Opens the one that `request` asks for; gives the HelloAck too.
    pub fn accept(
        personality: Personality,
        remote: IpAddr,
        request: Request,
        waker: Box<dyn Wake>,
    ) -> Result<(Self, Vec<u8>), Fault> {
        let config = config(personality, is_here(&request.names(), remote));
        let mut stream = Self::new(personality, &config, waker)?;
        let (connection, answer) = request.accept(&config, &mut stream.verbs)?;
        stream.keep(connection);
        Ok((stream, answer))
    }

    fn new(
        personality: Personality,
        config: &Config,
        waker: Box<dyn Wake>,
    ) -> Result<Self, Misuse> {
        let device = Device::get(personality)?;
        let octets = config.private_octets();
        let memory = Memory::map(octets as usize).map_err(|_| Misuse::System(libc::ENOMEM))?;
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
        let qp = device.context.create_qp(QpInit {
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
        let key = device.context.reg_mr(&device.pd, addr, octets, addr, access)?;
        let private = Sge { addr, length: octets as u32, lkey: key };
        let entropy = Box::new(|| sys::random() as u32);
        let (queues, pd) = (Arc::clone(qp.queues()), Arc::clone(&device.pd));
        let verbs = QueuePair::new(queues, pd, private, entropy);
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

    /// The queue pair, to be connected.
    pub fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    /// The peer has said yes, with this HelloAck.
    pub fn finish(&mut self, answer: &[u8]) -> Result<(), Fault> {
        let opening = self.opening.take().ok_or(Misuse::Invalid("it is open"))?;
        self.keep(opening.finish(answer)?);
        Ok(())
    }

    /// In enhanced style the layer below holds back what nobody reads, for as long as that takes.
    fn keep(&mut self, connection: Connection) {
        if connection.style() == Style::Enhanced {
            self.qp.wait_for_recv_forever();
        }
        self.connection = Some(connection);
    }

    /// Takes the completions that wait, and has the waker called for the next; whether there were
    /// any.
    pub fn settle(&mut self) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        let mut any = false;
        let mut wcs = [Wc::default(); BATCH];
        while self.channel.pop().is_some() {
            self.armed = false;
        }
        loop {
            // A queue that overflowed has failed its queue pair, which is told too.
            let count = self.qp.queues().recv_cq().poll(&mut wcs).unwrap_or(0);
            for completion in wcs[..count].iter().filter_map(Completion::of) {
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

    /// What was posted leaves.
    pub fn ring(&self) {
        self.qp.ring();
    }

    /// The connection, once it is open, and the verbs below it.
    pub fn parts(&mut self) -> Option<(&mut Connection, &mut QueuePair)> {
        Some((self.connection.as_mut()?, &mut self.verbs))
    }

    /// Whether octets that were sent may be on their way.
    pub fn is_flying(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.flying() > 0)
    }

    /// Where the next octets to be sent may be put, which is nowhere in basic style;
    /// [`Stream::commit`] sends them.
    pub fn vacant(&self) -> Option<Parts<'_>> {
        let connection = self.connection.as_ref()?;
        Some(self.memory.parts(connection.vacant()))
    }

    /// Sends the first `octets` of what [`Stream::vacant`] gave.
    pub fn commit(&mut self, octets: usize) {
        if let Some(connection) = &mut self.connection {
            // A connection that has failed says so by itself.
            let _ = connection.commit(&mut self.verbs, octets as u32);
        }
    }

    /// The octets that have arrived, up to an urgent one, until [`Stream::consume`]; none in basic
    /// style.
    pub fn arrived(&self) -> Option<Parts<'_>> {
        let connection = self.connection.as_ref()?;
        Some(self.memory.parts(connection.arrived()))
    }

    /// The first `octets` of what [`Stream::arrived`] gave have been read.
    pub fn consume(&mut self, octets: usize) {
        if let Some(connection) = &mut self.connection {
            // As above.
            let _ = connection.consume(&mut self.verbs, octets);
        }
    }

    /// Whether it notices by itself that the process of the peer has ended, and may have octets
    /// until then that are read later: it has a TCP connection of its own.
    pub fn outlasts_peer(&self) -> bool {
        self.personality == Personality::Iwarp
    }

    /// How it is used, in words.
    pub fn style(&self) -> &'static str {
        match self.connection.as_ref().map(Connection::style) {
            Some(Style::Basic) => "basic",
            Some(Style::Enhanced) => "enhanced",
            None => "unopened",
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Nothing of it is of use any more, whatever the order in which that is found out.
        let _ = self.qp.destroy();
        let _ = self.device.context.dereg_mr(self.key);
        let _ = self.cq.destroy();
    }
}

fn is_here(names: &Names, remote: IpAddr) -> bool {
    remote.to_canonical().is_loopback() || names.from == names.to
}

fn config(personality: Personality, here: bool) -> Config {
    let all = capability::capabilities();
    let below = all.iter().find(|(device, _)| *device == personality);
    let mut config = below.map(|(_, below)| Config::over(below)).unwrap_or_default();
    if Settings::get().basic {
        config.style = Choice::Only(Style::Basic);
    }
    let (buffers, octets) = if here { NEAR } else { FAR };
    (config.buffers, config.buffer_octets, config.buffer_octets_max) = (buffers, octets, octets);
    // The layer below takes all that there are buffers for.
    config.high_octets = u32::from(buffers) * octets;
    config.low_octets = config.high_octets / 4;
    config
}
