//! The work request builders (`ibv_wr_*`): requests are gathered between `wr_start` and
//! `wr_complete`, on one thread, and then posted as a list.

use std::cell::UnsafeCell;
use std::convert::identity;
use std::ffi::{c_int, c_void};
use std::ptr;

use weft_host::{DeviceKind, HostPosting, HostQp};
use weft_os::calls::LibraryCall;
use weft_verbs::{Destination, Misuse, QpType, SendFlags, SendOp, SendWr, limits};

use super::object::SpanLock;
use super::qp::{self, QpDomain, QpTail};
use super::query::personality;
use super::{ah, mw, post};
use crate::errno::{self, needs_memory};
use weft_verbs_abi::*;

/// Operations that both devices can build. Over iWARP immediate data and atomics reach Weft peers
/// only.
const SUPPORTED: u64 = IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_SEND_WITH_INV;

/// The operations that queue pairs of a device can build.
fn supported(personality: DeviceKind) -> u64 {
    match personality {
        DeviceKind::Iwarp => SUPPORTED,
        DeviceKind::Roce => SUPPORTED | IBV_QP_EX_WITH_ATOMIC_WRITE,
    }
}

/// A request that is being built.
struct PendingRequest {
    wr_id: u64,
    flags: SendFlags,
    op: SendOp,
    /// The destination, for datagrams.
    to: Option<Destination>,
    /// Which receive queue of the peer it is for, of an extended reliable connection.
    srqn: u32,
    sges: Vec<ibv_sge>,
    inline: Vec<u8>,
}

/// The requests of one span.
struct RequestSpan {
    /// Slots are kept for the next span, so that nothing is allocated in the steady state.
    slots: Vec<PendingRequest>,
    used: usize,
    error: c_int,
}

/// The builder of a queue pair: locked from `wr_start` to `wr_complete` or `wr_abort`.
pub struct Builder {
    lock: SpanLock,
    span: UnsafeCell<RequestSpan>,
}

// SAFETY: `span` is only touched while `lock` is held.
unsafe impl Sync for Builder {}

impl Builder {
    /// An empty span: no request is being built.
    pub fn new() -> Self {
        let span = RequestSpan { slots: Vec::new(), used: 0, error: 0 };
        Self { lock: SpanLock::new(), span: UnsafeCell::new(span) }
    }
}

impl RequestSpan {
    fn clear(&mut self) {
        (self.used, self.error) = (0, 0);
    }

    fn begin(&mut self, wr_id: u64, flags: SendFlags, op: SendOp) {
        if self.used == self.slots.len() {
            if self.slots.try_reserve(1).is_err() {
                self.error = libc::ENOMEM;
                return;
            }
            let (sges, inline) = (Vec::new(), Vec::new());
            self.slots.push(PendingRequest { wr_id, flags, op, to: None, srqn: 0, sges, inline });
        }
        let slot = &mut self.slots[self.used];
        (slot.wr_id, slot.flags, slot.op) = (wr_id, flags, op);
        (slot.to, slot.srqn) = (None, 0);
        slot.sges.clear();
        slot.inline.clear();
        self.used += 1;
    }

    /// The request begun last; without one the span fails.
    fn last(&mut self) -> Option<&mut PendingRequest> {
        if self.used == 0 {
            self.error = libc::EINVAL;
            return None;
        }
        self.slots.get_mut(self.used - 1)
    }

    /// Posts the requests in order, or none if one is refused (ibv_wr_post(3)).
    fn post(&mut self, tail: &QpTail) -> c_int {
        if self.error != 0 {
            return self.error;
        }
        needs_memory!(identity);
        let (posted, result) = self.queue(&tail.core);
        if posted > 0 {
            tail.core.ring();
        }
        result.map_or_else(|misuse| misuse.errno(), |()| 0)
    }

    /// Queues them; how many there was nothing against, and what there was against the next.
    fn queue(&mut self, core: &HostQp) -> (usize, Result<(), Misuse>) {
        let xrc = core.kind() == QpType::XrcSend;
        let mut posting = match core.posting() {
            Ok(posting) => posting,
            Err(misuse) => return (0, Err(misuse)),
        };
        posting.all_or_none(|posting| self.queue_each(posting, xrc))
    }

    fn queue_each(
        &mut self,
        posting: &mut HostPosting<'_>,
        xrc: bool,
    ) -> (usize, Result<(), Misuse>) {
        for (posted, slot) in self.slots[..self.used].iter_mut().enumerate() {
            if slot.flags.contains(SendFlags::INLINE) {
                let addr = slot.inline.as_ptr() as u64;
                slot.sges.push(ibv_sge { addr, length: slot.inline.len() as u32, lkey: 0 });
            }
            let (wr_id, op, flags) = (slot.wr_id, slot.op, slot.flags);
            let wr = SendWr { wr_id, op, flags, sges: &slot.sges };
            let outcome = match &slot.to {
                Some(to) => posting.datagram(&wr, to),
                None if xrc => posting.send_to(&wr, slot.srqn),
                None => posting.send(&wr),
            };
            if outcome.is_err() {
                return (posted, outcome);
            }
        }
        (self.used, Ok(()))
    }
}

/// Slot `create_qp_ex`.
///
/// # Safety
/// `context` is open, `attr` readable and writable; the objects it names are alive.
pub unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let _call = LibraryCall::begin();
    // SAFETY: readable by contract.
    let attr = unsafe { &mut *attr };
    // SAFETY: open by contract.
    let supported = supported(unsafe { personality(context) });
    let known = IBV_QP_INIT_ATTR_PD
        | IBV_QP_INIT_ATTR_XRCD
        | IBV_QP_INIT_ATTR_CREATE_FLAGS
        | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let has = |bit: u32| attr.comp_mask & bit != 0;
    let extended = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    if attr.comp_mask & !known != 0
        || (has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags != 0)
        || (extended && attr.send_ops_flags & !supported != 0)
    {
        return errno::null(libc::EOPNOTSUPP);
    }
    let home = match (has(IBV_QP_INIT_ATTR_XRCD), has(IBV_QP_INIT_ATTR_PD)) {
        (true, _) if !attr.xrcd.is_null() => QpDomain::Xrcd(attr.xrcd),
        (false, true) => QpDomain::Pd(attr.pd),
        _ => return errno::null(libc::EINVAL),
    };
    let mut init = ibv_qp_init_attr {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    };
    // SAFETY: as this function's contract.
    let qp = unsafe { qp::create(context, home, &mut init, extended) };
    if qp.is_null() {
        return qp.cast();
    }
    attr.cap = init.cap;
    if extended {
        // SAFETY: just made, and nobody else has it yet.
        fill(unsafe { &mut *qp });
    }
    qp.cast()
}

fn fill(qp: &mut ibv_qp_ex) {
    qp.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    qp.wr_atomic_write = Some(wr_atomic_write);
    qp.wr_bind_mw = Some(wr_bind_mw);
    qp.wr_local_inv = Some(wr_local_inv);
    qp.wr_rdma_read = Some(wr_rdma_read);
    qp.wr_rdma_write = Some(wr_rdma_write);
    qp.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    qp.wr_send = Some(wr_send);
    qp.wr_send_imm = Some(wr_send_imm);
    qp.wr_send_inv = Some(wr_send_inv);
    qp.wr_set_ud_addr = Some(wr_set_ud_addr);
    qp.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
}

/// The span of `qp`.
///
/// # Safety
/// `qp` is alive, and this thread has begun a span and holds no other reference to it.
unsafe fn span<'a>(qp: *mut ibv_qp_ex) -> &'a mut RequestSpan {
    // SAFETY: alive by contract.
    let builder = unsafe { &qp::tail(qp).builder };
    // SAFETY: the lock is held by this thread.
    unsafe { &mut *builder.span.get() }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the application passes a live queue pair.
    unsafe { &qp::tail(qp).builder }.lock.lock();
    // SAFETY: the span has begun.
    unsafe { span(qp) }.clear();
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the application passes a live queue pair.
    let tail = unsafe { qp::tail(qp) };
    // SAFETY: the application began a span.
    let result = unsafe { span(qp) }.post(tail);
    tail.builder.lock.unlock();
    result
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: the application passes a live queue pair, in a span.
    unsafe { &qp::tail(qp).builder }.lock.unlock();
}

/// Begins a request with the name and flags that the application put into the structure.
///
/// # Safety
/// `qp` is alive and in a span of this thread.
unsafe fn begin(qp: *mut ibv_qp_ex, op: SendOp) {
    // SAFETY: alive by contract.
    let wr_id = unsafe { (*qp).wr_id };
    // SAFETY: alive by contract.
    let flags = unsafe { (*qp).wr_flags };
    // Inline data is known by the setter that brings it.
    let flags = SendFlags::from_bits_truncate(flags) - SendFlags::INLINE;
    // SAFETY: in a span by contract.
    unsafe { span(qp) }.begin(wr_id, flags, op);
}

/// Defines the builders that begin a request.
macro_rules! builders {
    ($($name:ident($($arg:ident: $kind:ty),*) => $op:expr;)*) => {
        $(
            unsafe extern "C" fn $name(qp: *mut ibv_qp_ex, $($arg: $kind),*) {
                // SAFETY: the application calls it between wr_start and wr_complete.
                unsafe { begin(qp, $op) };
            }
        )*
    };
}

builders! {
    wr_send() => SendOp::Send;
    wr_send_imm(imm: u32) => SendOp::SendImm { imm };
    wr_send_inv(stag: u32) => SendOp::SendInv { stag };
    wr_local_inv(stag: u32) => SendOp::LocalInv { stag };
    wr_rdma_write(stag: u32, to: u64) => SendOp::Write { to, stag };
    wr_rdma_write_imm(stag: u32, to: u64, imm: u32) => SendOp::WriteImm { to, stag, imm };
    wr_rdma_read(stag: u32, to: u64) => SendOp::Read { to, stag };
    wr_atomic_fetch_add(stag: u32, to: u64, add: u64) => SendOp::FetchAdd { to, stag, add };
    wr_atomic_cmp_swp(stag: u32, to: u64, compare: u64, swap: u64) =>
        SendOp::CmpSwap { to, stag, compare, swap };
}

unsafe extern "C" fn wr_atomic_write(qp: *mut ibv_qp_ex, stag: u32, to: u64, value: *const c_void) {
    const BYTES: usize = 8;
    // SAFETY: the application calls it in a span.
    unsafe { begin(qp, SendOp::AtomicWrite { to, stag }) };
    // SAFETY: the application passes that many readable bytes.
    unsafe { wr_set_inline_data(qp, value.cast_mut(), BYTES) };
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    window: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: the application passes a readable binding.
    let info = unsafe { *info };
    // SAFETY: the application passes a live window and region.
    match unsafe { mw::operation(window, rkey, &info) } {
        // SAFETY: the application calls it in a span.
        Ok(op) => unsafe { begin(qp, op) },
        // SAFETY: as above.
        Err(misuse) => unsafe { span(qp) }.error = misuse.errno(),
    }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: the application calls it in a span.
    let span = unsafe { span(qp) };
    // SAFETY: the application passes a live handle.
    match unsafe { ah::destination(ah, qpn, qkey) } {
        Ok(to) => {
            if let Some(request) = span.last() {
                request.to = Some(to);
            }
        }
        Err(misuse) => span.error = misuse.errno(),
    }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, srqn: u32) {
    // SAFETY: the application calls it in a span.
    if let Some(request) = unsafe { span(qp) }.last() {
        request.srqn = srqn;
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the application calls it in a span.
    if let Some(request) = unsafe { span(qp) }.last() {
        request.sges.clear();
        request.sges.push(ibv_sge { addr, length, lkey });
    }
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the application calls it in a span.
    let span = unsafe { span(qp) };
    if count > limits::IWARP.max_sge as usize {
        span.error = libc::EINVAL;
    } else if let Some(request) = span.last() {
        request.sges.clear();
        // SAFETY: the application passes `count` entries.
        request.sges.extend_from_slice(&unsafe { post::lent(list, count) });
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let one = ibv_data_buf { addr, length };
    // SAFETY: one buffer; the application calls it in a span.
    unsafe { wr_set_inline_data_list(qp, 1, &raw const one) };
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: the application calls it in a span.
    let span = unsafe { span(qp) };
    let Some(request) = span.last() else { return };
    request.flags |= SendFlags::INLINE;
    request.sges.clear();
    request.inline.clear();
    // SAFETY: the application passes `count` buffers, to be copied before this returns.
    if !unsafe { gather(&mut request.inline, list, count) } {
        span.error = libc::EINVAL;
    }
}

/// Copies `count` buffers; whether they are no more than a request takes.
///
/// # Safety
/// The list and its buffers are readable.
unsafe fn gather(into: &mut Vec<u8>, list: *const ibv_data_buf, count: usize) -> bool {
    for index in 0..count {
        // SAFETY: readable by contract.
        let buffer = unsafe { list.wrapping_add(index).read_unaligned() };
        if buffer.length > limits::IWARP.max_inline_data as usize - into.len() {
            return false;
        }
        if buffer.length > 0 {
            // SAFETY: readable by contract.
            unsafe { append(into, &buffer) };
        }
    }
    true
}

/// Copies without a reference to the application's memory, which may be registered.
///
/// # Safety
/// The buffer is readable.
unsafe fn append(to: &mut Vec<u8>, from: &ibv_data_buf) {
    to.reserve(from.length);
    let end = to.spare_capacity_mut().as_mut_ptr().cast::<u8>();
    // SAFETY: readable by contract; room was reserved.
    unsafe { ptr::copy_nonoverlapping(from.addr.cast::<u8>(), end, from.length) };
    // SAFETY: that many bytes were just written.
    unsafe { to.set_len(to.len() + from.length) };
}
