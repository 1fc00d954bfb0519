//! Extended completion queues: polled one completion at a time, field by field.

use std::ffi::{c_int, c_uint};

use super::cq::{self, CqRequest, CqTail};
use crate::errno;
use weft_os::calls::LibraryCall;
use weft_verbs_abi::*;

/// Slot `create_cq_ex`. Fields beyond the standard ones and time stamps (VLAN, tags) are refused.
///
/// # Safety
/// `context` is open; `attr` is readable and its channel NULL or alive.
pub unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let _call = LibraryCall::begin();
    // SAFETY: readable by contract.
    let attr = unsafe { *attr };
    let has_flags = attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0;
    let flags = if has_flags { attr.flags } else { 0 };
    let known_masks = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    let known_flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    if attr.comp_mask & !known_masks != 0 || flags & !known_flags != 0 {
        return errno::null(libc::EINVAL);
    }
    // An overrun is always noticed: who asks for the flag has to do without.
    if flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    let stamps =
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    if attr.wc_flags & !(IBV_WC_STANDARD_FLAGS | stamps) != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    let request = CqRequest {
        cqe: attr.cqe,
        cq_context: attr.cq_context,
        channel: attr.channel,
        comp_vector: attr.comp_vector,
        stamped: attr.wc_flags & stamps != 0,
        single_threaded: flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0,
    };
    // SAFETY: as this function's contract.
    let cq = unsafe { cq::create(context, &request) };
    if !cq.is_null() {
        // SAFETY: just made, and nobody else has it yet.
        fill(unsafe { &mut *cq });
    }
    cq
}

fn fill(cq: &mut ibv_cq_ex) {
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_byte_len = Some(read_byte_len);
    cq.read_imm_data = Some(read_imm_data);
    cq.read_qp_num = Some(read_qp_num);
    cq.read_src_qp = Some(read_src_qp);
    cq.read_wc_flags = Some(read_wc_flags);
    cq.read_slid = Some(read_slid);
    cq.read_sl = Some(read_sl);
    cq.read_dlid_path_bits = Some(read_dlid_path_bits);
    cq.read_completion_ts = Some(read_completion_ts);
    cq.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
}

/// `ENOENT` when empty; then `end_poll` must not be called.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: NULL or readable, as the application calls it.
    if !attr.is_null() && unsafe { (*attr).comp_mask } != 0 {
        return libc::EINVAL;
    }
    // SAFETY: the application passes a live queue.
    let tail = unsafe { cq::tail(cq) };
    if tail.core.is_inherited() {
        return libc::EINVAL;
    }
    if let Some(span) = &tail.span {
        span.lock();
    }
    // SAFETY: the span was begun just above.
    let result = unsafe { advance(cq, tail) };
    if result != 0
        && let Some(span) = &tail.span
    {
        span.unlock();
    }
    result
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the application passes a live queue.
    let tail = unsafe { cq::tail(cq) };
    // SAFETY: the application calls it between start_poll and end_poll.
    unsafe { advance(cq, tail) }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the application passes a live queue.
    if let Some(span) = unsafe { &cq::tail(cq).span } {
        span.unlock();
    }
}

/// Takes one completion: more would have to be put back for `ibv_poll_cq` on the same queue.
///
/// # Safety
/// `cq` is alive, within a span, and `tail` is behind it.
unsafe fn advance(cq: *mut ibv_cq_ex, tail: &CqTail) -> c_int {
    let mut wc = [ibv_wc::default()];
    match tail.core.poll(&mut wc) {
        Ok(0) => return libc::ENOENT,
        Ok(_) => {}
        Err(_) => return libc::EIO,
    }
    // SAFETY: alive by contract; the application reads this field within the span.
    unsafe { (*cq).status = wc[0].status as c_int };
    // SAFETY: as above.
    unsafe { (*cq).wr_id = wc[0].wr_id };
    // SAFETY: the span makes this access exclusive.
    unsafe { *tail.current.get() = wc[0] };
    0
}

/// # Safety
/// `cq` is alive and within a span.
unsafe fn current(cq: *mut ibv_cq_ex) -> ibv_wc {
    // SAFETY: alive by contract.
    let tail = unsafe { cq::tail(cq) };
    // SAFETY: nobody writes it while the span lasts.
    unsafe { *tail.current.get() }
}

/// When the completion was added, by the clock of `ibv_query_rt_values_ex`.
unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: the application calls it between start_poll and end_poll.
    unsafe { cq::tail(cq) }.core.stamp_ns()
}

/// The same as the machine's own clock has it.
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: as above.
    weft_os::clock::wall_ns(unsafe { read_completion_ts(cq) })
}

/// Defines functions that read one field of the current completion.
macro_rules! readers {
    ($($name:ident -> $kind:ty: $field:ident;)*) => {
        $(
            unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $kind {
                // SAFETY: the application calls it between start_poll and end_poll.
                unsafe { current(cq) }.$field as $kind
            }
        )*
    };
}

readers! {
    read_opcode -> c_int: opcode;
    read_vendor_err -> u32: vendor_err;
    read_byte_len -> u32: byte_len;
    read_imm_data -> u32: imm_data;
    read_qp_num -> u32: qp_num;
    read_src_qp -> u32: src_qp;
    read_wc_flags -> c_uint: wc_flags;
    read_slid -> u32: slid;
    read_sl -> u8: sl;
    read_dlid_path_bits -> u8: dlid_path_bits;
}
