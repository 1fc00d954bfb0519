//! Completions field by field: the functions of an `ibv_cq_ex`.
//!
//! They poll one completion at a time as `ibv_poll_cq` does, which providers serve on such queues
//! too. What that does not tell, such as timestamps, is refused when the queue is made.

use std::ffi::{c_int, c_uint};

use weft_fault::Verb;
use weft_sync::Mutex;
use weft_verbs_abi::*;

use super::cq::{PassCq, adopt, with_real_fds};
use super::{context, cq};
use crate::errno;
use crate::ibv::object::SpanLock;

/// The completion that the application reads.
pub struct CurrentCompletion {
    wc: Mutex<ibv_wc>,
    /// Held between the start and the end of a look.
    look: SpanLock,
}

impl Default for CurrentCompletion {
    fn default() -> Self {
        Self { wc: Mutex::default(), look: SpanLock::new() }
    }
}

/// `ibv_create_cq_ex` in a context.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    init: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let pass = context::find(context);
    let real = pass.as_ref().and_then(|pass| Some((pass, pass.real.create_cq_ex?)));
    let Some((pass, real)) = real else { return errno::null(libc::EOPNOTSUPP) };
    if let Some(code) = pass.errno_of(Verb::CreateCq) {
        return errno::null(code);
    }
    // SAFETY: readable by contract.
    let ibv_cq_init_attr_ex { wc_flags, channel, .. } = unsafe { *init };
    if pass.needs.work && wc_flags & !IBV_WC_STANDARD_FLAGS != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    // SAFETY: the caller's arguments.
    let make = || unsafe { real(context, init) };
    // SAFETY: open and alive by contract.
    let cq = unsafe { with_real_fds(context, channel, make) };
    if !cq.is_null() && pass.needs.work {
        adopt(pass, cq.cast(), channel);
        // SAFETY: just made; nobody else has it yet.
        unsafe { replace(cq) };
    }
    cq
}

/// Puts the functions here in the place of those that are there.
///
/// # Safety
/// Nobody else uses `cq`.
unsafe fn replace(cq: *mut ibv_cq_ex) {
    // SAFETY: by contract.
    let ex = unsafe { &mut *cq };
    ex.start_poll = Some(start_poll);
    ex.next_poll = Some(next_poll);
    ex.end_poll = Some(end_poll);
    ex.read_opcode = Some(read_opcode);
    ex.read_vendor_err = Some(read_vendor_err);
    ex.read_byte_len = Some(read_byte_len);
    ex.read_imm_data = Some(read_imm_data);
    ex.read_qp_num = Some(read_qp_num);
    ex.read_src_qp = Some(read_src_qp);
    ex.read_wc_flags = Some(read_wc_flags);
    ex.read_slid = Some(read_slid);
    ex.read_sl = Some(read_sl);
    ex.read_dlid_path_bits = Some(read_dlid_path_bits);
}

/// Takes the next completion: 0, `ENOENT` if there is none, or another errno.
///
/// # Safety
/// `cq` is alive, and this thread holds the look.
unsafe fn advance(pass: &PassCq, cq: *mut ibv_cq_ex) -> c_int {
    let mut wc = ibv_wc::default();
    // SAFETY: room for one.
    match unsafe { pass.poll(1, &raw mut wc) } {
        0 => return libc::ENOENT,
        1 => {}
        _ => return libc::EIO,
    }
    // SAFETY: alive by contract.
    unsafe { (*cq).status = wc.status as c_int };
    // SAFETY: as above.
    unsafe { (*cq).wr_id = wc.wr_id };
    *pass.current.wc.lock() = wc;
    0
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    let Some(pass) = cq::find(cq.cast()) else { return libc::EINVAL };
    // SAFETY: readable by the C function's contract.
    if unsafe { (*attr).comp_mask } != 0 {
        return libc::EINVAL;
    }
    pass.current.look.lock();
    // SAFETY: alive by the C function's contract.
    let result = unsafe { advance(&pass, cq) };
    if result != 0 {
        pass.current.look.unlock();
    }
    result
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    let Some(pass) = cq::find(cq.cast()) else { return libc::EINVAL };
    // SAFETY: alive by the C function's contract, between a start and its end.
    unsafe { advance(&pass, cq) }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    if let Some(pass) = cq::find(cq.cast()) {
        pass.current.look.unlock();
    }
}

macro_rules! readers {
    ($($name:ident: $field:ident as $kind:ty;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $kind {
            cq::find(cq.cast()).map_or(0, |pass| pass.current.wc.lock().$field as $kind)
        })*
    };
}

readers! {
    read_opcode: opcode as c_int;
    read_vendor_err: vendor_err as u32;
    read_byte_len: byte_len as u32;
    read_imm_data: imm_data as u32;
    read_qp_num: qp_num as u32;
    read_src_qp: src_qp as u32;
    read_wc_flags: wc_flags as c_uint;
    read_slid: slid as u32;
    read_sl: sl as u8;
    read_dlid_path_bits: dlid_path_bits as u8;
}
