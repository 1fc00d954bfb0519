//! Queue pairs: making them and posting to them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use weft_host::{DeviceKind, HostQpInit};
use weft_verbs::{Access, QpAttr, QpAttrMask, QpCap, QpState, QpType, RecvWr, SendWr, Sge};

use crate::address::check_local;
use crate::cq::CompletionQueue;
use crate::device::{Device, ProtectionDomain};
use crate::events::ObjectId;
use crate::posted::{Kept, Posted, PostedReceives};
use crate::region::RemoteKey;
use crate::srq::SharedReceiveQueue;
use crate::work::{Entries, Payload, Slices, Work};
use crate::{Error, Result};

/// Requests of each queue, unless the application says otherwise.
const DEPTH: u32 = 64;
/// Slices of a request, unless the application says otherwise.
const SLICES: u32 = 4;
/// Bytes that are copied when a request is posted, unless the application says otherwise.
const INLINE: u32 = 64;

/// What a queue pair is made of: begun by [`QueuePairOptions::reliable`] and the like, and changed
/// by setters or by its fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueuePairOptions {
    /// Its service: [`QpType::Rc`], [`QpType::Uc`] or [`QpType::Ud`].
    pub kind: QpType,
    /// Where its sends complete.
    pub send_cq: CompletionQueue,
    /// Where its receives complete.
    pub recv_cq: CompletionQueue,
    /// Where its receives come from, instead of a queue of its own.
    pub srq: Option<SharedReceiveQueue>,
    /// Requests that its send queue holds.
    pub send_depth: u32,
    /// Requests that its receive queue holds. As in the send queue, one keeps its place until its
    /// completion was taken.
    pub recv_depth: u32,
    /// Slices of a request, at most.
    pub slices: u32,
    /// Bytes that [`Work::send_inline`] takes, at most.
    pub inline_bytes: u32,
    /// Of a queue pair for datagrams: the local address that they are sent from.
    pub local: IpAddr,
    /// Of a queue pair for datagrams: the key that those for it must have. Its highest bit is 0.
    pub qkey: u32,
}

impl QueuePairOptions {
    fn new(kind: QpType, cq: &CompletionQueue) -> Self {
        Self {
            kind,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            send_depth: DEPTH,
            recv_depth: DEPTH,
            slices: SLICES,
            inline_bytes: INLINE,
            local: Ipv4Addr::LOCALHOST.into(),
            qkey: 0,
        }
    }

    /// Of a reliable connection, which completes at `cq`: all operations, in order.
    pub fn reliable(cq: &CompletionQueue) -> Self {
        Self::new(QpType::Rc, cq)
    }

    /// Of an unreliable connection: Sends and Writes, which may be lost. Only `weft0` has them.
    pub fn unreliable(cq: &CompletionQueue) -> Self {
        Self::new(QpType::Uc, cq)
    }

    /// Of datagrams from the address `local`, with the key `qkey`. Only `weft0` has them. A message
    /// has 4096 bytes at most; a longer one completes and is not sent, nor is one to an address of
    /// the other IP version. A receive needs 40 bytes more than its message, for the route header.
    pub fn datagrams(cq: &CompletionQueue, local: IpAddr, qkey: u32) -> Self {
        Self { local, qkey, ..Self::new(QpType::Ud, cq) }
    }

    /// The same, with `depth` requests in each queue.
    #[must_use]
    pub fn depth(self, depth: u32) -> Self {
        Self { send_depth: depth, recv_depth: depth, ..self }
    }

    /// The same, with `depth` requests in the send queue.
    #[must_use]
    pub fn send_depth(self, depth: u32) -> Self {
        Self { send_depth: depth, ..self }
    }

    /// The same, with `depth` requests in the receive queue.
    #[must_use]
    pub fn recv_depth(self, depth: u32) -> Self {
        Self { recv_depth: depth, ..self }
    }

    /// The same, with receives that complete at `cq`.
    #[must_use]
    pub fn recv_cq(self, cq: &CompletionQueue) -> Self {
        Self { recv_cq: cq.clone(), ..self }
    }

    /// The same, with up to `slices` slices in a request, 32 at most.
    #[must_use]
    pub fn slices(self, slices: u32) -> Self {
        Self { slices, ..self }
    }

    /// The same, with up to `bytes` bytes in [`Work::send_inline`], 512 at most.
    #[must_use]
    pub fn inline_bytes(self, bytes: u32) -> Self {
        Self { inline_bytes: bytes, ..self }
    }

    /// The same, with receives from a shared queue.
    #[must_use]
    pub fn receive_from(self, srq: &SharedReceiveQueue) -> Self {
        Self { srq: Some(srq.clone()), ..self }
    }

    fn init(&self, domain: &ProtectionDomain, object: ObjectId) -> HostQpInit {
        HostQpInit {
            kind: self.kind,
            pd: Arc::clone(domain.pd()),
            send_cq: Arc::clone(self.send_cq.engine()),
            recv_cq: Arc::clone(self.recv_cq.engine()),
            srq: self.srq.as_ref().map(|srq| Arc::clone(srq.engine())),
            xrcd: None,
            cap: QpCap {
                max_send_wr: self.send_depth,
                max_recv_wr: self.recv_depth,
                max_send_sge: self.slices,
                max_recv_sge: self.slices,
                max_inline_data: self.inline_bytes,
            },
            sq_sig_all: false,
            cookie: object.0,
        }
    }
}

struct QpInner {
    object: ObjectId,
    qp: Arc<weft_host::HostQp>,
    posted: Arc<Posted>,
    options: QueuePairOptions,
    domain: ProtectionDomain,
}

impl Drop for QpInner {
    fn drop(&mut self) {
        // When this returns, no completion of it is left or will come.
        let _announced = self.qp.destroy();
        for cq in [&self.options.send_cq, &self.options.recv_cq] {
            cq.leave(self.qp.num(), &self.posted);
        }
        self.posted.receives.end_with(self.object);
    }
}

/// A queue pair.
#[derive(Clone)]
pub struct QueuePair {
    inner: Arc<QpInner>,
}

impl QueuePair {
    fn new(domain: &ProtectionDomain, options: QueuePairOptions) -> Result<Self> {
        let during = "making a queue pair";
        if options.kind.is_xrc() {
            return Err(Error::Unsupported { during, what: "extended reliable connections here" });
        }
        if domain.device().kind() == DeviceKind::Iwarp && options.kind != QpType::Rc {
            return Err(Error::Unsupported { during, what: "unreliable queue pairs over iWARP" });
        }
        if options.kind == QpType::Ud {
            check_local(during, options.local)?;
        }
        for cq in [&options.send_cq, &options.recv_cq] {
            domain.check_device(during, cq.device())?;
        }
        if let Some(srq) = &options.srq {
            domain.check_device(during, srq.device())?;
        }
        let object = ObjectId::new();
        let qp = domain.context().create_qp(options.init(domain, object));
        let qp = qp.map_err(Error::of(during))?;
        let receives = match &options.srq {
            Some(srq) => Arc::clone(srq.posted()),
            None => Arc::new(PostedReceives::own(options.recv_depth)),
        };
        let posted = Arc::new(Posted::new(receives));
        for cq in [&options.send_cq, &options.recv_cq] {
            cq.join(qp.num(), &posted);
        }
        let domain = domain.clone();
        let made = Self { inner: Arc::new(QpInner { object, qp, posted, options, domain }) };
        made.prepare(during)?;
        Ok(made)
    }

    /// Takes it to where receives may be posted; one for datagrams to where sends may be, too.
    fn prepare(&self, during: &'static str) -> Result<()> {
        use QpAttrMask as Mask;
        let attr = QpAttr {
            port: 1,
            access: Access::REMOTE | Access::LOCAL_WRITE,
            qkey: self.inner.options.qkey,
            ..QpAttr::default()
        };
        let common = Mask::PKEY_INDEX | Mask::PORT;
        if self.inner.options.kind != QpType::Ud {
            return self.step(during, &attr, QpState::Init, common | Mask::ACCESS_FLAGS);
        }
        self.step(during, &attr, QpState::Init, common | Mask::QKEY)?;
        self.step(during, &attr, QpState::Rtr, Mask::empty())?;
        self.step(during, &attr, QpState::Rts, Mask::SQ_PSN)
    }

    /// Goes to `state` with the attributes that `mask` names.
    pub(crate) fn step(
        &self,
        during: &'static str,
        attr: &QpAttr,
        state: QpState,
        mask: QpAttrMask,
    ) -> Result<()> {
        let attr = QpAttr { state, ..*attr };
        self.inner.qp.modify(&attr, mask | QpAttrMask::STATE).map_err(Error::of(during))
    }

    /// Ends it: its connection, if it has one, ends without a word of rdma-cm, and requests and
    /// receives that are not complete do so with
    /// [`WcStatus::WrFlushErr`](crate::WcStatus::WrFlushErr). Receives of a shared queue stay
    /// there. It is in [`QpState::Err`] from then on.
    ///
    /// # Errors
    /// [`Error::DeviceReset`].
    pub fn fail(&self) -> Result<()> {
        self.step("failing a queue pair", &QpAttr::default(), QpState::Err, QpAttrMask::empty())
    }

    /// Its number, 24 bits.
    pub fn number(&self) -> u32 {
        self.inner.qp.num()
    }

    /// What events of the device name it by.
    pub fn object_id(&self) -> ObjectId {
        self.inner.object
    }

    /// Its state. Requests that are posted in [`QpState::Err`] complete with an error.
    pub fn state(&self) -> QpState {
        self.inner.qp.state()
    }

    /// What it was made of.
    pub fn options(&self) -> &QueuePairOptions {
        &self.inner.options
    }

    /// The device that it is one of.
    pub fn device(&self) -> &Device {
        self.inner.domain.device()
    }

    /// Posts a receive: a message of the peer comes into `slices`, and `id` names its completion.
    /// Post it before the peer sends, as [`QueuePair::send`] says.
    ///
    /// # Errors
    /// [`Error::QueueFull`]; [`Error::Invalid`] for slices of another protection domain, too many,
    /// or a queue pair that shares its receives.
    pub fn recv<'a>(&self, id: u64, slices: impl Into<Slices<'a>>) -> Result<()> {
        let during = "posting a receive";
        let slices = slices.into().0;
        let entries = Entries::new(during, &self.inner.domain, slices)?;
        let post = |wr_id| {
            let wr = RecvWr { wr_id, sges: entries.as_slice() };
            self.inner.qp.post_recv(&wr).map_err(Error::of(during))
        };
        if self.inner.options.srq.is_some() {
            return Err(Error::invalid(during, "receives go to the shared receive queue"));
        }
        self.inner.posted.receives.post(during, id, Kept::all(slices), post)
    }

    /// Sends `slices` to a receive of the peer. If none is posted there, a reliable connection of
    /// [`DeviceKind::Roce`] waits for one without end. One of [`DeviceKind::Iwarp`] waits for 1 s;
    /// then the peer ends it, and what is posted fails. Unreliable services drop the message.
    ///
    /// # Errors
    /// As [`QueuePair::post`].
    pub fn send<'a>(&self, id: u64, slices: impl Into<Slices<'a>>) -> Result<()> {
        self.post(id, Work::send(slices))
    }

    /// Writes `slices` into memory of the peer.
    ///
    /// # Errors
    /// As [`QueuePair::post`].
    pub fn write<'a>(
        &self,
        id: u64,
        slices: impl Into<Slices<'a>>,
        remote: RemoteKey,
    ) -> Result<()> {
        self.post(id, Work::write(slices, remote))
    }

    /// Reads memory of the peer into `slices`.
    ///
    /// # Errors
    /// As [`QueuePair::post`].
    pub fn read<'a>(
        &self,
        id: u64,
        slices: impl Into<Slices<'a>>,
        remote: RemoteKey,
    ) -> Result<()> {
        self.post(id, Work::read(slices, remote))
    }

    /// Posts a request; `id` names its completion. It keeps its regions until that was taken.
    ///
    /// # Errors
    /// [`Error::QueueFull`]; [`Error::Range`] beyond the remote key; [`Error::Invalid`] before it
    /// is connected, for slices of another protection domain, or for what its service lacks.
    pub fn post(&self, id: u64, work: Work<'_>) -> Result<()> {
        let during = "posting a send";
        let op = work.operation(during)?;
        match work.payload {
            Payload::Slices(slices) => {
                let entries = Entries::new(during, &self.inner.domain, slices)?;
                let kept = Kept::all(slices);
                self.post_entries(during, id, kept, &work, op, entries.as_slice())
            }
            Payload::Inline(bytes) => {
                let Ok(length) = u32::try_from(bytes.len()) else {
                    return Err(Error::invalid(during, "too many bytes to be copied"));
                };
                let entry = Sge { addr: bytes.as_ptr() as u64, length, lkey: 0 };
                self.post_entries(during, id, Kept::default(), &work, op, &[entry])
            }
        }
    }

    fn post_entries(
        &self,
        during: &'static str,
        id: u64,
        kept: Kept,
        work: &Work<'_>,
        op: weft_verbs::SendOp,
        sges: &[Sge],
    ) -> Result<()> {
        let qp = &self.inner.qp;
        let to = match (work.to, self.inner.options.kind) {
            (Some(to), QpType::Ud) => Some(to.destination(self.inner.options.local)),
            (None, QpType::Ud) => return Err(Error::invalid(during, "a datagram has an address")),
            (Some(_), _) => return Err(Error::invalid(during, "a connection has one peer")),
            (None, _) => None,
        };
        self.inner.posted.post_send(id, kept, |wr_id| {
            let wr = SendWr { wr_id, op, flags: work.flags, sges };
            let posted = match &to {
                Some(to) => qp.post_datagram(&wr, to),
                None => qp.post_send(&wr),
            };
            posted.map_err(Error::of(during))
        })?;
        qp.ring();
        Ok(())
    }

    pub(crate) fn engine(&self) -> &Arc<weft_host::HostQp> {
        &self.inner.qp
    }
}

impl ProtectionDomain {
    /// Makes a queue pair.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it exceeds the limits of the device or its completion queues are of
    /// another one, [`Error::System`] if there is no port left for it or the address of one for
    /// datagrams is not this host's.
    pub fn queue_pair(&self, options: QueuePairOptions) -> Result<QueuePair> {
        QueuePair::new(self, options)
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, state) = (self.number(), self.state());
        out.debug_struct("QueuePair")
            .field("number", &number)
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
