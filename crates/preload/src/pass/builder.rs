//! Work requests by `ibv_wr_...`: the functions of an `ibv_qp_ex`.
//!
//! The application begins a request (`wr_send`), says more of it (`wr_set_sge`), and ends the list
//! (`wr_complete`). Of one that is held back the provider hears nothing.

use std::ffi::{c_int, c_void};

use weft_fault::Verb;
use weft_sync::Mutex;
use weft_verbs::WcOpcode;
use weft_verbs_abi::*;

use super::qp::PassQp;
use super::work::{PostVerdict, SendRequest};
use super::{mr, qp};
use crate::errno;
use crate::ibv::qp::ibv_qp_to_qp_ex;
use crate::real::next;

/// The builders of a queue pair.
pub struct PassBuilder {
    real: RealBuilder,
    list: Mutex<BuiltList>,
}

/// The list that is being built: between `wr_start` and its end the provider lets one thread in.
#[derive(Default)]
struct BuiltList {
    /// The provider knows nothing of the request that is being built.
    is_held: bool,
    /// Requests of the list that the provider has.
    passed: usize,
    /// The send queue had no room.
    is_full: bool,
}

impl PassBuilder {
    /// Puts the functions here in the place of those of `qp`; none if it has no builders.
    ///
    /// # Safety
    /// `qp` was just made.
    pub unsafe fn adopt(qp: *mut ibv_qp) -> Option<Self> {
        let real = next!(ibv_qp_to_qp_ex(qp))?;
        // SAFETY: just made.
        let ex: *mut ibv_qp_ex = unsafe { real(qp) };
        if ex.is_null() {
            return None;
        }
        // SAFETY: the provider's structure, which nobody else has yet.
        let real = unsafe { replace(ex) };
        Some(Self { real, list: Mutex::default() })
    }

    /// Begins a request.
    ///
    /// # Safety
    /// `qp` is alive, between `wr_start` and the end of its list.
    unsafe fn begin(
        &self,
        pass: &PassQp,
        qp: *mut ibv_qp_ex,
        opcode: WcOpcode,
        real: impl FnOnce(),
    ) {
        mr::note_posts(1);
        // SAFETY: alive by contract.
        let ibv_qp_ex { wr_id, wr_flags, .. } = unsafe { &*qp };
        let (id, flags) = (*wr_id, *wr_flags);
        let signaled = pass.signals_all || flags & IBV_SEND_SIGNALED != 0;
        let request = SendRequest { id, opcode: opcode as u32, signaled };
        let verdict = pass.work.lock().post(request);
        let mut list = self.list.lock();
        list.is_full |= verdict == PostVerdict::Full;
        list.is_held = matches!(verdict, PostVerdict::Full | PostVerdict::Hold);
        if list.is_held {
            return;
        }
        list.passed += 1;
        drop(list);
        if verdict == PostVerdict::PassSignaled {
            // SAFETY: alive by contract; the application sets it for each request.
            unsafe { (*qp).wr_flags = flags | IBV_SEND_SIGNALED };
        }
        real();
        // SAFETY: as above.
        unsafe { (*qp).wr_flags = flags };
    }

    /// The requests of the list were not posted.
    fn take_back(&self, pass: &PassQp) {
        let list = std::mem::take(&mut *self.list.lock());
        pass.with_work(|work| work.undo(list.passed));
    }

    /// The errno that the end of the list fails with, if it does.
    fn refusal(&self, pass: &PassQp) -> Option<c_int> {
        if self.list.lock().is_full {
            return Some(libc::ENOMEM);
        }
        let context = &pass.context;
        let counts = context.needs.calls;
        counts.then(|| context.faults.errno_of(Verb::PostSend, &context.name)).flatten()
    }
}

/// The functions that begin a request or say more of one: their real ones, and those here.
macro_rules! builders {
    (
        begin { $($begin:ident = $opcode:ident($($arg:ident: $kind:ty),*);)* }
        more { $($more:ident($($given:ident: $of:ty),*);)* }
    ) => {
        #[derive(Clone, Copy)]
        struct RealBuilder {
            $($begin: Option<unsafe extern "C" fn(*mut ibv_qp_ex, $($kind),*)>,)*
            $($more: Option<unsafe extern "C" fn(*mut ibv_qp_ex, $($of),*)>,)*
            wr_start: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
            wr_complete: Option<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int>,
            wr_abort: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
        }

        /// Replaces the functions that are there, and gives them.
        ///
        /// # Safety
        /// Nobody else uses `qp`, which ends where the oldest header with builders has it end.
        unsafe fn replace(qp: *mut ibv_qp_ex) -> RealBuilder {
            // SAFETY: by contract; what newer headers have behind it is not touched.
            let ex = unsafe { &mut *qp };
            let real = RealBuilder {
                $($begin: ex.$begin,)*
                $($more: ex.$more,)*
                wr_start: ex.wr_start,
                wr_complete: ex.wr_complete,
                wr_abort: ex.wr_abort,
            };
            $(ex.$begin = ex.$begin.map(|_| $begin as _);)*
            $(ex.$more = ex.$more.map(|_| $more as _);)*
            ex.wr_start = ex.wr_start.map(|_| wr_start as _);
            ex.wr_complete = ex.wr_complete.map(|_| wr_complete as _);
            ex.wr_abort = ex.wr_abort.map(|_| wr_abort as _);
            real
        }

        $(unsafe extern "C" fn $begin(qp: *mut ibv_qp_ex, $($arg: $kind),*) {
            let Some(pass) = qp::find(qp.cast()) else { return };
            let Some(builder) = &pass.builder else { return };
            let Some(real) = builder.real.$begin else { return };
            // SAFETY: the caller's arguments.
            let post = || unsafe { real(qp, $($arg),*) };
            // SAFETY: alive by the C function's contract.
            unsafe { builder.begin(&pass, qp, WcOpcode::$opcode, post) };
        })*

        $(unsafe extern "C" fn $more(qp: *mut ibv_qp_ex, $($given: $of),*) {
            let Some(pass) = qp::find(qp.cast()) else { return };
            let Some(builder) = &pass.builder else { return };
            let Some(real) = builder.real.$more else { return };
            if !builder.list.lock().is_held {
                // SAFETY: the caller's arguments.
                unsafe { real(qp, $($given),*) };
            }
        })*
    };
}

builders! {
    begin {
        wr_atomic_cmp_swp = CompSwap(rkey: u32, addr: u64, compare: u64, swap: u64);
        wr_atomic_fetch_add = FetchAdd(rkey: u32, addr: u64, add: u64);
        wr_bind_mw = BindMw(mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info);
        wr_local_inv = LocalInv(rkey: u32);
        wr_rdma_read = RdmaRead(rkey: u32, addr: u64);
        wr_rdma_write = RdmaWrite(rkey: u32, addr: u64);
        wr_rdma_write_imm = RdmaWrite(rkey: u32, addr: u64, imm: u32);
        wr_send = Send();
        wr_send_imm = Send(imm: u32);
        wr_send_inv = Send(rkey: u32);
    }
    more {
        wr_set_ud_addr(ah: *mut ibv_ah, qpn: u32, qkey: u32);
        wr_set_xrc_srqn(number: u32);
        wr_set_inline_data(addr: *mut c_void, length: usize);
        wr_set_inline_data_list(count: usize, list: *const ibv_data_buf);
        wr_set_sge(lkey: u32, addr: u64, length: u32);
        wr_set_sge_list(count: usize, list: *const ibv_sge);
    }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    let Some(pass) = qp::find(qp.cast()) else { return };
    let Some(builder) = &pass.builder else { return };
    let Some(real) = builder.real.wr_start else { return };
    pass.context.tick();
    pass.act();
    // SAFETY: the caller's argument.
    unsafe { real(qp) };
    // From now on no other thread builds a list.
    *builder.list.lock() = BuiltList::default();
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let Some(pass) = qp::find(qp.cast()) else { return errno::code(libc::EINVAL) };
    let Some(builder) = &pass.builder else { return errno::code(libc::EINVAL) };
    if let Some(code) = builder.refusal(&pass) {
        builder.take_back(&pass);
        if let Some(abort) = builder.real.wr_abort {
            // SAFETY: the caller's argument.
            unsafe { abort(qp) };
        }
        return errno::code(code);
    }
    let Some(real) = builder.real.wr_complete else { return errno::code(libc::EINVAL) };
    // SAFETY: the caller's argument.
    let result = unsafe { real(qp) };
    if result == 0 {
        // What follows from the list is done when the provider has let go of it.
        pass.with_work(|_| ());
    } else {
        builder.take_back(&pass);
    }
    result
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    let Some(pass) = qp::find(qp.cast()) else { return };
    let Some(builder) = &pass.builder else { return };
    builder.take_back(&pass);
    if let Some(real) = builder.real.wr_abort {
        // SAFETY: the caller's argument.
        unsafe { real(qp) };
    }
}
