//! Queue pairs: posting, states and completion.
//!
//! A queue pair is shared by the application's threads, which post, and by the thread that drives
//! its connection, which takes work out and completes it. The state changes in [`Qp::enter`] and
//! [`Qp::fail`] only. A failed queue pair flushes what is posted, then and later, each request
//! once.
//!
//! A Write of the peer may wake an application that sleeps until its sends complete, by an event
//! without a completion: the reply to a send may come after the send's completion here, unlike on
//! hardware ([`Qp::written`]).

pub(crate) mod attr;
pub mod failure;
pub mod posting;
pub mod recv_queue;
pub mod send_queue;
mod send_wqe;
pub mod transition;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use weft_sync::{Mutex, MutexGuard};

pub use attr::{AddressVector, AlternatePath, QpAttr, QpAttrMask, QpCap, QpState, QpType};
use failure::FirstFailure;
pub use failure::QpFailure;
use recv_queue::{RecvQueue, RecvWqe};
use send_queue::SendQueue;
pub use send_wqe::SendWqe;

use crate::access::Access;
use crate::channel::Wake;
use crate::cq::Cq;
use crate::event::{AsyncKind, AsyncQueue};
use crate::limits::Limits;
use crate::misuse::Misuse;
use crate::mr::{Accessor, Invalidate, Lends, RegionFault, RegionTable};
use crate::pd::Pd;
use crate::srq::Srq;
use crate::usage::InUse;
use crate::wc::{Wc, WcFlags, WcOpcode, WcStatus};
use crate::wr::{RecvWr, SendOp};
use crate::xrcd::Xrcd;

/// Rights of a queue pair without restrictions: those of each region hold.
const NO_SAY: u32 = u32::MAX;

/// Parameters of a queue pair.
pub struct QpInit {
    /// Service type.
    pub kind: QpType,
    /// Initial state.
    pub start: QpState,
    /// Protection domain.
    pub pd: Arc<Pd>,
    /// Completion queue of sends.
    pub send_cq: Arc<Cq>,
    /// Completion queue of receives.
    pub recv_cq: Arc<Cq>,
    /// Shared receive queue in place of its own.
    pub srq: Option<Arc<Srq>>,
    /// XRC domain whose queues it receives for; for [`QpType::XrcRecv`], whose protection domain is
    /// that of the domain.
    pub xrcd: Option<Arc<Xrcd>>,
    /// Queue sizes.
    pub cap: QpCap,
    /// Every send is signaled.
    pub sq_sig_all: bool,
    /// Cookie for its events.
    pub cookie: u64,
}

/// Objects that cannot be destroyed before the queue pair. The connection of a destroyed queue pair
/// may live on briefly, but holds none of them.
struct QpUses {
    _pd: InUse<Pd>,
    _send_cq: InUse<Cq>,
    _recv_cq: InUse<Cq>,
    _srq: Option<InUse<Srq>>,
}

/// A queue pair.
pub struct Qp {
    num: u32,
    kind: QpType,
    pd: Arc<Pd>,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    srq: Option<Arc<Srq>>,
    xrcd: Option<Arc<Xrcd>>,
    /// Queue of the domain that last had no receive.
    lacking: Mutex<Weak<Srq>>,
    /// What lends the memory of its requests.
    lender: OnceLock<Weak<dyn Lends>>,
    uses: Mutex<Option<QpUses>>,
    sq: Mutex<SendQueue>,
    rq: Mutex<RecvQueue>,
    state: AtomicU8,
    /// An event is due once all started requests are complete (SQD).
    draining: AtomicBool,
    /// Its peer's first message has come before it was ready to send.
    heard_early: AtomicBool,
    /// No completion or event is added: it is being destroyed or reset.
    muted: AtomicBool,
    attrs: Mutex<QpAttr>,
    /// Why it is in ERR.
    failure: FirstFailure,
    /// Remote access rights of the queue pair.
    rights: AtomicU32,
    cap: QpCap,
    sq_sig_all: bool,
    events: Arc<AsyncQueue>,
    regions: Arc<RegionTable>,
    cookie: u64,
}

impl Qp {
    /// A queue pair with number `num`.
    pub fn new(
        num: u32,
        init: QpInit,
        limits: &Limits,
        regions: Arc<RegionTable>,
        events: Arc<AsyncQueue>,
    ) -> Result<Self, Misuse> {
        let receives = init.srq.is_none() && !init.kind.is_xrc();
        let cap = if receives { init.cap } else { init.cap.without_receives() };
        let cap = cap.granted(limits)?;
        if init.xrcd.is_some() != (init.kind == QpType::XrcRecv) {
            return Err(Misuse::Invalid("queue pairs that receive for a domain, and only they"));
        }
        if init.srq.as_ref().is_some_and(|srq| init.kind.is_xrc() || srq.number().is_some()) {
            return Err(Misuse::Invalid("a shared receive queue of another kind"));
        }
        let attrs = QpAttr { port: 1, cap, ..QpAttr::default() };
        Ok(Self {
            num,
            kind: init.kind,
            uses: Mutex::new(Some(QpUses {
                _pd: InUse::of(&init.pd),
                _send_cq: InUse::of(&init.send_cq),
                _recv_cq: InUse::of(&init.recv_cq),
                _srq: init.srq.as_ref().map(InUse::of),
            })),
            pd: init.pd,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            xrcd: init.xrcd,
            lacking: Mutex::default(),
            lender: OnceLock::new(),
            sq: Mutex::new(SendQueue::new(&cap, init.kind == QpType::Ud)),
            rq: Mutex::new(RecvQueue::new(cap.max_recv_wr, cap.max_recv_sge)),
            state: AtomicU8::new(init.start as u8),
            draining: AtomicBool::new(false),
            heard_early: AtomicBool::new(false),
            muted: AtomicBool::new(false),
            attrs: Mutex::new(attrs),
            failure: FirstFailure::default(),
            // An RNIC has no rights per queue pair.
            rights: AtomicU32::new(if init.start == QpState::Reset { 0 } else { NO_SAY }),
            cap,
            sq_sig_all: init.sq_sig_all,
            events,
            regions,
            cookie: init.cookie,
        })
    }

    /// Names what lends the memory of its requests, once; to be called before any is posted.
    pub fn set_lender(&self, lender: Weak<dyn Lends>) {
        let _only_the_first = self.lender.set(lender);
    }

    /// What lends the memory of its requests.
    pub fn lender(&self) -> Option<&Weak<dyn Lends>> {
        self.lender.get()
    }

    /// Queue pair number, 24 bits.
    pub fn num(&self) -> u32 {
        self.num
    }

    /// Service type.
    pub fn kind(&self) -> QpType {
        self.kind
    }

    /// Protection domain.
    pub fn pd(&self) -> u32 {
        self.pd.id()
    }

    /// The accessor for memory accesses of its peer.
    pub fn accessor(&self) -> Accessor {
        Accessor { pd: self.pd.id(), qp: Some(self.num) }
    }

    /// Protection domain of the regions in `wqe`.
    pub fn recv_pd(&self, wqe: &RecvWqe) -> u32 {
        let shared = wqe.home.as_ref().or(self.srq.as_ref());
        shared.map_or(self.pd.id(), |srq| srq.pd().id())
    }

    /// Region table of its device.
    pub fn regions(&self) -> &Arc<RegionTable> {
        &self.regions
    }

    /// Completion queue of sends.
    pub fn send_cq(&self) -> &Arc<Cq> {
        &self.send_cq
    }

    /// Completion queue of receives.
    pub fn recv_cq(&self) -> &Arc<Cq> {
        &self.recv_cq
    }

    /// Locks the send queue.
    pub fn sq(&self) -> MutexGuard<'_, SendQueue> {
        self.sq.lock()
    }

    fn rq(&self) -> MutexGuard<'_, RecvQueue> {
        self.rq.lock()
    }

    /// Current state.
    pub fn state(&self) -> QpState {
        let raw = self.state.load(Ordering::Acquire);
        // Only states are stored.
        QpState::from_raw(u32::from(raw)).unwrap_or(QpState::Err)
    }

    /// All attributes, with the current state.
    pub fn attrs(&self) -> QpAttr {
        let mut attrs = *self.attrs.lock();
        attrs.state = self.state();
        attrs.cur_state = attrs.state;
        attrs.sq_draining = attrs.state == QpState::Sqd && !self.sq().is_drained();
        attrs
    }

    /// Changes attributes other than the state.
    pub fn set_attrs(&self, change: impl FnOnce(&mut QpAttr)) {
        let mut attrs = self.attrs.lock();
        change(&mut attrs);
        if self.rights.load(Ordering::Acquire) != NO_SAY {
            self.rights.store(attrs.access.bits(), Ordering::Release);
        }
    }

    /// Enforces the access rights of the attributes from now on, also with an RNIC.
    pub fn enforce_rights(&self) {
        self.rights.store(self.attrs().access.bits(), Ordering::Release);
    }

    /// Checks the queue pair's rights for access `what` of the peer.
    pub fn permit(&self, what: Access) -> Result<(), RegionFault> {
        let granted = Access::from_bits_retain(self.rights.load(Ordering::Acquire));
        if granted.contains(what) { Ok(()) } else { Err(RegionFault::Access) }
    }

    /// Enters `state`, other than RESET, SQE and ERR, whatever state it is in; for who knows that
    /// no thread can fail it at the same time. Else see [`Qp::proceed`].
    pub fn enter(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Enters `to`, other than RESET, SQE and ERR, if the state is still `from`.
    pub fn proceed(&self, from: QpState, to: QpState) {
        let (from, to) = (from as u8, to as u8);
        let _ = self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Enters SQD from RTS: started requests continue, others wait. With `notify`, an event tells
    /// when the former are complete. A queue pair that has failed meanwhile stays as it is.
    pub fn drain(&self, notify: bool) {
        let sq = self.sq();
        self.proceed(QpState::Rts, QpState::Sqd);
        if self.state() == QpState::Sqd {
            self.draining.store(notify, Ordering::Release);
            self.check_drained(&sq);
        }
    }

    /// Raises the event of [`Qp::drain`] if it is due; to be called with each completion of a send.
    pub fn check_drained(&self, sq: &SendQueue) {
        let due = self.draining.load(Ordering::Acquire) && sq.is_drained();
        if due && self.draining.swap(false, Ordering::AcqRel) {
            self.raise(AsyncKind::SqDrained);
        }
    }

    /// Posts a receive, and wakes whoever waits for one.
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), Misuse> {
        if self.srq.is_some() {
            return Err(Misuse::Invalid("receives go to the shared receive queue"));
        }
        if self.kind.is_xrc() {
            return Err(Misuse::Invalid("receives go to the queues of the domain"));
        }
        let mut rq = self.rq();
        let state = self.state();
        if state == QpState::Reset {
            return Err(Misuse::Invalid("receives may be posted from INIT on"));
        }
        let waiting = rq.push(wr)?;
        if state == QpState::Err {
            self.flush_recvs(&mut rq);
        }
        drop(rq);
        waiting.wake();
        Ok(())
    }

    /// Wakes `who` at the next receive, unless one is posted; returns whether so.
    pub fn await_recv(&self, who: Weak<dyn Wake>) -> bool {
        match (&self.srq, &self.xrcd) {
            (Some(srq), _) => srq.await_recv(who),
            (None, Some(_)) => {
                let lacking = self.lacking().upgrade();
                lacking.is_none_or(|srq| srq.await_recv(who))
            }
            (None, None) => self.rq().await_one(who),
        }
    }

    /// Whether a receive is posted, or never will be.
    pub fn has_recv(&self) -> bool {
        match &self.srq {
            Some(srq) => srq.has_recv(),
            None => !self.rq().is_empty(),
        }
    }

    /// Whether its receives are those of other queue pairs too.
    pub fn shares_receives(&self) -> bool {
        self.srq.is_some() || self.kind.is_xrc()
    }

    /// Count of receives posted on the queue pair's own queue.
    pub fn recvs_posted(&self) -> usize {
        if self.srq.is_some() { 0 } else { self.rq().len() }
    }

    /// Takes the receive for the next message.
    pub fn take_recv(&self) -> Option<RecvWqe> {
        match &self.srq {
            Some(srq) => srq.take_for(self.cookie),
            None => self.rq().pop(),
        }
    }

    /// Takes a receive of the domain's queue `number`, if one is posted.
    ///
    /// # Errors
    /// [`Misuse::NotFound`] if the domain has no such queue, or there is no domain.
    pub fn take_recv_of(&self, number: u32) -> Result<Option<RecvWqe>, Misuse> {
        let found = self.xrcd.as_ref().and_then(|domain| domain.find(number));
        let srq = found.ok_or(Misuse::NotFound)?;
        let Some(mut wqe) = srq.take() else {
            *self.lacking() = Arc::downgrade(&srq);
            return Ok(None);
        };
        wqe.home = Some(srq);
        Ok(Some(wqe))
    }

    fn lacking(&self) -> MutexGuard<'_, Weak<Srq>> {
        self.lacking.lock()
    }

    /// Completes a receive; `fill` adds the fields of the message. The first one of a connected
    /// queue pair in RTR is an event: applications move to RTS by it.
    pub fn complete_recv(&self, wqe: &RecvWqe, solicited: bool, fill: impl FnOnce(&mut Wc)) {
        if self.state() == QpState::Rtr {
            self.tell_of_early_message();
        }
        let mut wc = Wc::new(wqe.wr_id, self.num, WcOpcode::Recv, WcStatus::Success);
        fill(&mut wc);
        if wqe.home.is_some() {
            wc.src_qp = self.attrs.lock().dest_qp_num;
        }
        self.push_recv(wqe, wc, solicited);
    }

    fn tell_of_early_message(&self) {
        let connected = matches!(self.kind, QpType::Rc | QpType::Uc);
        if connected && !self.heard_early.swap(true, Ordering::AcqRel) {
            self.raise(AsyncKind::CommEst);
        }
    }

    fn push_recv(&self, wqe: &RecvWqe, wc: Wc, solicited: bool) {
        match &wqe.home {
            // The domain's queue is shared, and keeps successful completions.
            Some(_) if self.is_muted() && !wc.is_success() => {}
            Some(srq) => srq.complete(wc, solicited),
            None => self.recv_cq.push(wc, None, solicited),
        }
    }

    /// Invalidates a key on behalf of the peer or of a work request.
    pub fn invalidate(&self, stag: u32, who: Invalidate) -> Result<(), RegionFault> {
        self.regions.invalidate(stag, self.accessor(), who)
    }

    /// Executes local request `seq`, if still posted, and completes it; as an error, the status
    /// that it fails with.
    pub fn carry_out(&self, seq: u32) -> Result<(), WcStatus> {
        let mut sq = self.sq();
        if !sq.is_pending(seq) {
            return Ok(());
        }
        match sq.get(seq).op {
            SendOp::LocalInv { stag } => {
                self.invalidate(stag, Invalidate::Local).map_err(|_| WcStatus::LocProtErr)?;
            }
            SendOp::BindMw(bind) => {
                let bound = self.regions.bind(self.accessor(), &bind);
                bound.map_err(|_| WcStatus::MwBindErr)?;
            }
            _ => return Ok(()),
        }
        sq.done_locally(seq);
        sq.complete(self.num, &self.send_cq);
        Ok(())
    }

    /// Tells that the peer has written into memory of this side, of which verbs have no completion.
    ///
    /// An application may sleep until its sends complete and only then look for what the peer wrote
    /// in reply to them, a credit for more. An adapter of hardware completes a send when the peer
    /// has it, about when the reply comes; here it completes earlier, and the application would
    /// have slept over the reply. So it has an event more, and at most one for each request: who is
    /// written to and posts nothing sleeps on.
    pub fn written(&self) {
        if self.send_cq.is_armed() {
            self.sq().rouse(&self.send_cq);
        }
    }

    /// Raises an asynchronous event of this queue pair, unless muted.
    pub fn raise(&self, kind: AsyncKind) {
        self.events.push_if(kind, self.cookie, || !self.is_muted());
    }

    /// Takes its completions back; until [`Qp::reset`] or [`Qp::retire`], which is to follow, it
    /// adds none and raises no event. So destroying it flushes nothing that an application could
    /// see (ibv_destroy_qp(3) removes the completions of its queue pair).
    pub fn mute(&self) {
        self.muted.store(true, Ordering::Release);
        self.send_cq.mute_qp(self.num);
        self.recv_cq.mute_qp(self.num);
    }

    /// Whether no thread has the queue pair locked just now, or what it completes into; for who may
    /// have interrupted, in a signal handler, the very thread that has.
    pub fn is_unlocked(&self) -> bool {
        self.sq.try_lock().is_some()
            && self.rq.try_lock().is_some()
            && self.attrs.try_lock().is_some()
            && self.srq.as_ref().is_none_or(|srq| srq.is_unlocked())
            && self.send_cq.is_unlocked()
            && self.recv_cq.is_unlocked()
            && self.regions.is_unlocked()
            && self.events.is_unlocked()
    }

    /// Stops completions and events: the process ends, and its remaining threads must not see the
    /// effects.
    pub fn hush(&self) {
        self.muted.store(true, Ordering::Release);
        self.send_cq.hush_qp(self.num);
        self.recv_cq.hush_qp(self.num);
    }

    fn unmute_queues(&self) {
        self.send_cq.unmute_qp(self.num);
        self.recv_cq.unmute_qp(self.num);
    }

    fn is_muted(&self) -> bool {
        self.muted.load(Ordering::Acquire)
    }

    /// Enters ERR and flushes: first `taken`, receives in reassembly, then everything posted.
    /// Returns whether this call did it.
    pub fn fail(&self, taken: impl IntoIterator<Item = RecvWqe>) -> bool {
        // Whoever posts a receive next flushes those before it, which are to come after `taken`.
        let mut rq = self.rq();
        let before = self.state.swap(QpState::Err as u8, Ordering::AcqRel);
        if before == QpState::Err as u8 {
            return false;
        }
        let mut sq = self.sq();
        // After whoever began to drain it just before.
        self.draining.store(false, Ordering::Release);
        sq.flush(self.num, &self.send_cq);
        drop(sq);
        for wqe in taken.into_iter().take_while(|_| !self.is_muted()) {
            self.flush_recv(&wqe);
        }
        self.flush_recvs(&mut rq);
        drop(rq);
        if self.srq.is_some() {
            self.raise(AsyncKind::QpLastWqeReached);
        }
        true
    }

    /// Fails send `seq` with `status`, and flushes later ones; receives continue. The queue pair
    /// stays in SQE until the application recovers it.
    pub fn fail_sends(&self, seq: u32, status: WcStatus) {
        let mut sq = self.sq();
        let (from, to) = (QpState::Rts as u8, QpState::Sqe as u8);
        let _ = self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        sq.fail(seq, self.num, &self.send_cq, status, 0);
        sq.flush(self.num, &self.send_cq);
    }

    /// Why it is in ERR, if it is; who moves it there notes it first.
    pub fn failure(&self) -> &FirstFailure {
        &self.failure
    }

    /// Enters RESET: drops everything without completions.
    pub fn reset(&self) {
        self.enter(QpState::Reset);
        self.failure.clear();
        self.draining.store(false, Ordering::Release);
        self.heard_early.store(false, Ordering::Release);
        self.mute();
        self.sq().reset();
        self.rq().clear();
        self.unmute_queues();
        self.muted.store(false, Ordering::Release);
    }

    /// Destroys it: removes its completions and events, and releases the objects in use. Returns
    /// how many events had been announced.
    pub fn retire(&self) -> usize {
        self.uses.lock().take();
        self.regions.forget_qp(self.num);
        self.mute();
        // A thread in `fail` is waited for, and one that comes later finds nothing to flush:
        // completions of a destroyed queue pair name memory that the application has freed.
        self.sq().reset();
        self.rq().clear();
        self.unmute_queues();
        self.events.forget(self.cookie)
    }

    fn flush_recvs(&self, rq: &mut RecvQueue) {
        while let Some(wqe) = rq.pop() {
            self.flush_recv(&wqe);
        }
    }

    fn flush_recv(&self, wqe: &RecvWqe) {
        self.fail_recv(wqe, WcStatus::WrFlushErr);
    }

    /// Completes a receive in error; the caller fails the queue pair next.
    pub fn fail_recv(&self, wqe: &RecvWqe, status: WcStatus) {
        let wc = Wc::new(wqe.wr_id, self.num, WcOpcode::Recv, status);
        self.push_recv(wqe, wc, true);
    }
}

/// The flags of a receive completion that carries an invalidated key.
pub const WITH_INV: u32 = WcFlags::WITH_INV.bits();
/// The flags of a receive completion that carries immediate data.
pub const WITH_IMM: u32 = WcFlags::WITH_IMM.bits();
