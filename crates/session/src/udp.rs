//! A channel over UDP: Sends and receives of a reliable connection of `weft0`.
//!
//! A message is a Send: a header of eight bytes (kind, whether its sender's room is short, zeros),
//! then its bytes. One thread takes completions; it copies nothing. Who sends copies into a buffer
//! of the pool, who receives copies out of the buffer that the message came into, in whatever
//! thread.
//!
//! Invariant: a buffer belongs to exactly one of the pool, a posted request, and a
//! [`ReceivedSlot`].
//!
//! Order: [`UdpEnd::new`]; [`UdpEnd::ready`], which posts receives; [`UdpEnd::connect`] or
//! [`UdpEnd::accept`]; the calls of the channel; [`UdpLink::finish`] or [`UdpLink::fail`].

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use weft_os::clock::{self, Moment};
use weft_rdma::{
    Access, Completion, CompletionQueue, Connection, Device, DeviceKind, Error, HostOptions,
    Listener, LocalHost, ProtectionDomain, QueuePair, QueuePairOptions, Region, WcOpcode, Work,
};
use weft_sync::{Condvar, Mutex};

use crate::MESSAGE_MAX;
use crate::channel::ChannelTraffic;
use crate::hello::PortRange;
use crate::peer_life::PeerLife;
use crate::ssh::SshEnd;
use crate::window::{RESERVE, ReceiveWindow, SendWindow, WINDOW_FIRST, WINDOW_MAX};

/// Bytes before a message.
const HEADER: usize = 8;
/// Bytes of a buffer.
const SLOT: usize = HEADER + MESSAGE_MAX;
/// Requests of each queue: messages, and some of the channel itself.
const DEPTH: u32 = WINDOW_MAX as u32 + 1024;
/// The variable by which paths are not remembered: `off`.
const PATHS: &str = "WEFT_PATHS";
/// The variable that names a file for events.
const TRACE: &str = "WEFT_TRACE";
/// The variable that says where the near end's paths begin.
const MULTIPATH: &str = "WEFT_MULTIPATH";
/// The name of requests that have no buffer.
const NO_SLOT: u64 = u64::MAX;
/// The name of the request that says that nothing follows.
const CLOSING: u64 = u64::MAX - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Grant,
    Ping,
    Pong,
    Close,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Data, Self::Grant, Self::Ping, Self::Pong, Self::Close]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// Which end of a session it is.
#[derive(Clone, Debug)]
pub(crate) enum SessionSide {
    /// It connects, by several paths if `WEFT_MULTIPATH` says so.
    Near,
    /// It listens, and lets the near end open further paths at these ports.
    Far(PortRange),
}

impl SessionSide {
    /// What this end is to have besides.
    fn set(self, options: HostOptions) -> Result<HostOptions> {
        match self {
            Self::Near => match std::env::var(MULTIPATH) {
                Ok(places) => options.multipath(&places).context(MULTIPATH),
                Err(_) => Ok(options),
            },
            // From 0 on the kernel chooses. Without a port there is one path.
            Self::Far(PortRange(ports)) => Ok(options.multipath("on")?.path_ports(ports)?),
        }
    }
}

/// An end that is not connected yet.
pub(crate) struct UdpEnd {
    device: Device,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    buffers: Vec<Region>,
}

impl UdpEnd {
    /// An end under `key`.
    pub fn new(key: [u8; 32], side: SessionSide) -> Result<Self> {
        let remembers = std::env::var_os(PATHS).is_none_or(|value| value != "off");
        let mut options =
            HostOptions::default().key(key).remember_paths(remembers).lost_twice(true);
        if let Some(path) = std::env::var_os(TRACE).filter(|path| !path.is_empty()) {
            options = options.trace(path);
        }
        let host = LocalHost::new(side.set(options)?);
        let device = Device::open(&host, DeviceKind::Roce)?;
        let domain = device.protection_domain();
        let cq = device.completion_queue(2 * DEPTH)?;
        let options = QueuePairOptions::reliable(&cq).depth(DEPTH);
        let qp = domain.queue_pair(options)?;
        Ok(Self { device, domain, cq, qp, buffers: Vec::new() })
    }

    /// The end with receives posted.
    pub fn ready(mut self) -> Result<Self> {
        for number in 0..WINDOW_FIRST + RESERVE {
            let buffer = self.domain.register(SLOT, Access::empty())?;
            self.qp.recv(number, &buffer.whole()?)?;
            self.buffers.push(buffer);
        }
        Ok(self)
    }

    /// Listens at `addr`.
    pub fn listen(&self, addr: SocketAddr) -> Result<Listener> {
        Ok(Listener::bind(&self.device, addr)?)
    }

    /// Connects to a peer that listens at `to`; each step may take `limit`.
    pub fn connect(self, to: SocketAddr, limit: Duration) -> Result<Arc<UdpLink>> {
        let asked = clock::now();
        let connection = Connection::open(&self.qp, to, b"", limit)?;
        UdpLink::start(self, connection, None, asked.elapsed())
    }

    /// Accepts the first peer that has the key. The listener stays, since a peer whose address
    /// changes is heard there.
    pub fn accept(self, listener: Listener, limit: Duration) -> Result<Arc<UdpLink>> {
        let request = listener.accept_within(limit)?;
        let answered = clock::now();
        // Once the peer has confirmed it, which takes a round trip.
        let connection = request.accept(&self.qp, b"")?;
        UdpLink::start(self, connection, Some(listener), answered.elapsed())
    }
}

struct SendSide {
    window: SendWindow,
    /// Each with the bytes of the message that it has.
    buffers: Vec<(Region, usize)>,
    free: Vec<usize>,
    /// Messages whose completion has not come.
    open: usize,
}

struct ReceiveSide {
    window: ReceiveWindow,
    buffers: Vec<Region>,
    /// Messages nobody has taken: buffer, and bytes with the header.
    unread: VecDeque<(u64, usize)>,
}

struct LinkState {
    failure: Option<String>,
    closed_by_peer: bool,
    closed_here: bool,
    life: PeerLife,
}

/// A connected end.
pub(crate) struct UdpLink {
    pub traffic: Arc<ChannelTraffic>,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    send: Mutex<SendSide>,
    /// Something of `send` has changed, or the state.
    may_send: Condvar,
    receive: Mutex<ReceiveSide>,
    may_receive: Condvar,
    state: Mutex<LinkState>,
    connection: Mutex<Option<(Connection, Option<Listener>)>>,
}

impl UdpLink {
    /// A link whose connection took `rtt` to be made: a round trip, or more if packets were lost.
    fn start(
        end: UdpEnd,
        connection: Connection,
        listener: Option<Listener>,
        rtt: Duration,
    ) -> Result<Arc<Self>> {
        let now = clock::now();
        let UdpEnd { domain, cq, qp, buffers, .. } = end;
        let (mut window, unread) = (ReceiveWindow::new(now), VecDeque::new());
        window.measured(rtt);
        let link = Arc::new(Self {
            traffic: Arc::default(),
            domain,
            cq,
            qp,
            send: Mutex::new(SendSide {
                window: SendWindow::new(WINDOW_FIRST, WINDOW_MAX),
                buffers: Vec::new(),
                free: Vec::new(),
                open: 0,
            }),
            may_send: Condvar::default(),
            receive: Mutex::new(ReceiveSide { window, buffers, unread }),
            may_receive: Condvar::default(),
            state: Mutex::new(LinkState {
                failure: None,
                closed_by_peer: false,
                closed_here: false,
                life: PeerLife::new(now),
            }),
            connection: Mutex::new(Some((connection, listener))),
        });
        let driven = Arc::clone(&link);
        let thread = thread::Builder::new().name("weft-channel".into());
        thread.spawn(move || driven.run()).context("starting a thread")?;
        Ok(link)
    }

    pub fn send(&self, parts: &[&[u8]]) -> Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        ensure!(len <= MESSAGE_MAX, "a message of {len} bytes is too long");
        // What waits for room is on its way, for who has counted it.
        self.traffic.count_sent(len);
        let (number, buffer, is_short) = self.take_buffer(len)?;
        let posted = self.fill_and_post(number, &buffer, is_short, parts, len);
        posted.inspect_err(|error| self.fail(&format!("{error:#}")))
    }

    fn fill_and_post(
        &self,
        number: usize,
        buffer: &Region,
        is_short: bool,
        parts: &[&[u8]],
        len: usize,
    ) -> Result<()> {
        buffer.write_at(0, &[Kind::Data as u8, is_short.into(), 0, 0, 0, 0, 0, 0])?;
        let mut at = HEADER;
        for part in parts {
            buffer.write_at(at, part)?;
            at += part.len();
        }
        self.qp.send(number as u64, &buffer.slice(0..HEADER + len)?)?;
        Ok(())
    }

    /// The right to send, a buffer for a message of `len` bytes, and whether room is short.
    fn take_buffer(&self, len: usize) -> Result<(usize, Region, bool)> {
        let mut send = self.send.lock();
        let is_short = loop {
            self.check()?;
            if send.window.room() > 0 {
                break send.window.sent(1);
            }
            let is_full = |send: &mut SendSide| send.window.room() == 0 && self.is_sound();
            send = self.may_send.wait_while(send, is_full);
        };
        send.open += 1;
        if let Some(number) = send.free.pop() {
            let (buffer, used) = &mut send.buffers[number];
            *used = len;
            return Ok((number, buffer.clone(), is_short));
        }
        let buffer = self.domain.register(SLOT, Access::empty())?;
        send.buffers.push((buffer.clone(), len));
        Ok((send.buffers.len() - 1, buffer, is_short))
    }

    fn say(&self, kind: Kind, value: u64) -> Result<()> {
        self.say_as(NO_SLOT, kind, value)
    }

    fn say_as(&self, id: u64, kind: Kind, value: u64) -> Result<()> {
        let mut bytes = [0; 2 * HEADER];
        bytes[0] = kind as u8;
        bytes[HEADER..].copy_from_slice(&value.to_le_bytes());
        Ok(self.qp.post(id, Work::send_inline(&bytes))?)
    }

    pub fn recv(self: &Arc<Self>) -> Result<Option<ReceivedSlot>> {
        let mut receive = self.receive.lock();
        loop {
            if let Some((slot, len)) = receive.unread.pop_front() {
                let buffer = receive.buffers[slot as usize].clone();
                return Ok(Some(ReceivedSlot { link: Arc::clone(self), slot, buffer, len }));
            }
            if self.state.lock().closed_by_peer {
                return Ok(None);
            }
            self.check()?;
            receive = self.may_receive.wait_while(receive, |receive| {
                receive.unread.is_empty() && self.is_sound() && !self.state.lock().closed_by_peer
            });
        }
    }

    pub fn finish(&self, limit: Duration) -> Result<()> {
        self.check()?;
        // The peer may have said the same already. It must hear this end before it is gone.
        self.send.lock().open += 1;
        self.state.lock().closed_here = true;
        self.say_as(CLOSING, Kind::Close, 0)?;
        let until = clock::now() + limit;
        let is_waiting = |send: &SendSide| {
            let state = self.state.lock();
            state.failure.is_none() && (send.open > 0 || !state.closed_by_peer)
        };
        let mut send = self.send.lock();
        while is_waiting(&send) {
            let left = until.saturating_duration_since(clock::now());
            if left.is_zero() {
                drop(send);
                self.fail("the far end did not finish in time");
                bail!("the far end did not finish in time");
            }
            send = self.may_send.wait_timeout_while(send, left, |send| is_waiting(send));
        }
        drop(send);
        let outcome = self.check();
        if outcome.is_ok() {
            self.traffic.settle();
        }
        self.fail("the channel is finished");
        outcome
    }

    /// Says that nothing follows, and ends the connection. A peer that hears the end only has lost
    /// nothing.
    pub fn leave(&self) {
        let _ = self.say(Kind::Close, 0);
        self.fail("the channel is finished");
    }

    /// Ends the connection; every call fails from now on.
    pub fn fail(&self, reason: &str) {
        self.state.lock().failure.get_or_insert_with(|| reason.to_owned());
        self.wake();
        let connection = self.connection.lock().take();
        if let Some((connection, _listener)) = connection {
            // Its error says nothing more than the failure.
            let _ = connection.disconnect();
        }
    }

    /// ssh has ended. If the peer's process may have, too, it is asked for a sign of life.
    pub fn note_ssh_end(&self, how: SshEnd) {
        self.state.lock().life.note_ssh_end(how, clock::now());
    }

    fn wake(&self) {
        // Whoever is about to wait holds one of these locks.
        drop(self.send.lock());
        self.may_send.notify_all();
        drop(self.receive.lock());
        self.may_receive.notify_all();
    }

    fn check(&self) -> Result<()> {
        match &self.state.lock().failure {
            Some(reason) => Err(anyhow!("{reason}")),
            None => Ok(()),
        }
    }

    fn is_sound(&self) -> bool {
        self.state.lock().failure.is_none()
    }

    /// Takes completions until the channel is over.
    fn run(self: Arc<Self>) {
        let mut batch = Vec::new();
        // Its answer shows how long the path is if it took long to connect, because packets were
        // lost, unless much waits to be sent already.
        if let Err(error) = self.ping() {
            self.fail(&format!("{error:#}"));
        }
        while self.is_sound() {
            if let Err(error) = self.turn(&mut batch) {
                let is_finished = {
                    let state = self.state.lock();
                    state.closed_by_peer && state.closed_here
                };
                if is_finished {
                    // The peer has all and has gone; what it was told last needs no answer.
                    self.send.lock().open = 0;
                    self.wake();
                    return;
                }
                self.fail(&format!("{error:#}"));
            }
        }
    }

    fn turn(self: &Arc<Self>, batch: &mut Vec<Completion>) -> Result<()> {
        batch.clear();
        if self.cq.poll_into(batch, 64)? == 0 {
            let pause = self.pulse_pause();
            let due = clock::now() + pause;
            match self.cq.wait(pause) {
                Ok(completion) => batch.push(completion),
                Err(Error::TimedOut { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            self.note_stop(due);
        }
        for completion in &*batch {
            let done = completion.ok().map_err(|_| anyhow!("the connection was lost"))?;
            match done.operation {
                WcOpcode::Recv => self.arrived(done)?,
                _ => self.sent(done),
            }
        }
        self.pulse(!batch.is_empty())
    }

    fn sent(&self, done: Completion) {
        if done.id == NO_SLOT {
            return;
        }
        let mut send = self.send.lock();
        if done.id != CLOSING {
            let number = done.id as usize;
            self.traffic.count_delivered(send.buffers[number].1);
            send.free.push(number);
        }
        send.open -= 1;
        let is_last = send.open == 0;
        drop(send);
        if is_last {
            self.may_send.notify_all();
        }
    }

    fn arrived(&self, done: Completion) -> Result<()> {
        let len = done.len as usize;
        ensure!(len >= HEADER, "the far end sent a message without a header");
        let buffer = self.receive.lock().buffers[done.id as usize].clone();
        let header = buffer.read(0..len.min(2 * HEADER))?;
        let kind = Kind::from_byte(header[0]).context("the far end sent an unknown message")?;
        if kind == Kind::Data {
            return self.queue(done.id, len, header[1] != 0);
        }
        self.qp.recv(done.id, &buffer.whole()?)?;
        match kind {
            Kind::Grant => {
                let limit = header.last_chunk().context("a grant without a limit")?;
                self.send.lock().window.grant(u64::from_le_bytes(*limit));
                self.may_send.notify_all();
            }
            Kind::Ping => {
                let sent = header.last_chunk().context("a ping without a time")?;
                self.say(Kind::Pong, u64::from_le_bytes(*sent))?;
            }
            Kind::Pong => {
                let sent = header.last_chunk().context("a pong without a time")?;
                let rtt_ns = clock::ns_at(clock::now()).checked_sub(u64::from_le_bytes(*sent));
                // One that claims to be from the future says nothing.
                let rtt = rtt_ns.map(Duration::from_nanos);
                rtt.into_iter().for_each(|rtt| self.receive.lock().window.measured(rtt));
            }
            Kind::Close => {
                self.state.lock().closed_by_peer = true;
                self.wake();
            }
            Kind::Data => {}
        }
        Ok(())
    }

    fn queue(&self, slot: u64, len: usize, is_short: bool) -> Result<()> {
        self.traffic.count_received(len - HEADER);
        let mut receive = self.receive.lock();
        receive.unread.push_back((slot, len));
        let added = receive.window.arrived(is_short, clock::now());
        drop(receive);
        self.may_receive.notify_all();
        for _ in 0..added {
            let buffer = self.domain.register(SLOT, Access::empty())?;
            let mut receive = self.receive.lock();
            let number = receive.buffers.len() as u64;
            self.qp.recv(number, &buffer.whole()?)?;
            receive.buffers.push(buffer);
        }
        Ok(())
    }

    /// The process was stopped if it goes on long after `due`: that was no silence of the peer.
    fn note_stop(&self, due: Moment) {
        let now = clock::now();
        if let Some(stopped) = clock::stopped_since(due, now) {
            self.state.lock().life.note_stop(stopped, now);
        }
    }

    /// Asks a silent peer for a sign of life, and gives up on one that stays silent.
    fn pulse(&self, is_heard: bool) -> Result<()> {
        let now = clock::now();
        let mut state = self.state.lock();
        if is_heard {
            state.life.note_heard(now);
        }
        let asks = state.life.look(now)?;
        drop(state);
        if asks { self.ping() } else { Ok(()) }
    }

    /// Until it is to be looked again whether a sign of life is due.
    fn pulse_pause(&self) -> Duration {
        self.state.lock().life.pause()
    }

    fn ping(&self) -> Result<()> {
        self.say(Kind::Ping, clock::ns_at(clock::now()))
    }

    /// Posts the buffer of a message that was read, and tells the peer of the room.
    fn release(&self, slot: u64, buffer: &Region) -> Result<()> {
        if !self.is_sound() {
            return Ok(());
        }
        self.qp.recv(slot, &buffer.whole()?)?;
        let granted = self.receive.lock().window.consumed();
        if let Some(limit) = granted {
            self.say(Kind::Grant, limit)?;
        }
        Ok(())
    }
}

/// A message in the buffer that it came into.
pub(crate) struct ReceivedSlot {
    link: Arc<UdpLink>,
    slot: u64,
    buffer: Region,
    len: usize,
}

impl ReceivedSlot {
    pub fn read_into(&self, out: &mut Vec<u8>) -> Result<()> {
        out.resize(self.len - HEADER, 0);
        Ok(self.buffer.read_at(HEADER, out)?)
    }
}

impl Drop for ReceivedSlot {
    fn drop(&mut self) {
        if let Err(error) = self.link.release(self.slot, &self.buffer) {
            self.link.fail(&format!("{error:#}"));
        }
    }
}
