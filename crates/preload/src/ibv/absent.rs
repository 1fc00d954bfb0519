//! What no device has: memory of other devices, hints for a PCI bus, counters in place of
//! completion queues. Each answers `EOPNOTSUPP`; left out, it would reach the real library, which
//! would look for its own data in our context.

use std::ffi::{c_int, c_void};

use crate::errno;
use crate::real::pass_when_off;
use weft_verbs_abi::*;

/// The return value of a function that is not offered.
trait AbsentResult {
    fn refuse() -> Self;
}

impl AbsentResult for c_int {
    fn refuse() -> Self {
        errno::code(libc::EOPNOTSUPP)
    }
}

impl<T> AbsentResult for *mut T {
    fn refuse() -> Self {
        errno::null(libc::EOPNOTSUPP)
    }
}

/// Defines exported functions that refuse.
macro_rules! refuse {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`: not offered.")]
            ///
            /// # Safety
            /// As for the C function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $kind),*) -> $result {
                pass_when_off!($name($($arg),*));
                AbsentResult::refuse()
            }
        )*
    };
}

refuse! {
    ibv_reg_dmabuf_mr(
        pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int
    ) -> *mut ibv_mr;
    ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
    ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
    ibv_alloc_dmah(context: *mut ibv_context, attr: *mut c_void) -> *mut c_void;
    ibv_dealloc_dmah(dmah: *mut c_void) -> c_int;
    ibv_create_comp_cntr(context: *mut ibv_context, attr: *mut c_void) -> *mut c_void;
    ibv_destroy_comp_cntr(counter: *mut c_void) -> c_int;
    ibv_set_comp_cntr(counter: *mut c_void, value: u64) -> c_int;
    ibv_set_err_comp_cntr(counter: *mut c_void, value: u64) -> c_int;
    ibv_read_comp_cntr(counter: *mut c_void, value: *mut u64) -> c_int;
    ibv_read_err_comp_cntr(counter: *mut c_void, value: *mut u64) -> c_int;
    ibv_inc_comp_cntr(counter: *mut c_void, amount: u64) -> c_int;
    ibv_inc_err_comp_cntr(counter: *mut c_void, amount: u64) -> c_int;
    ibv_qp_attach_comp_cntr(qp: *mut ibv_qp, counter: *mut c_void, attr: *mut c_void) -> c_int;
    _ibv_query_comp_cntr_caps(
        context: *mut ibv_context, caps: *mut c_void, size: usize
    ) -> c_int;
}

/// `ibv_dm_export_dmabuf_fd`: device memory is the process's own, of which there is no DMA-buf.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dm_export_dmabuf_fd(dm: *mut ibv_dm) -> c_int {
    pass_when_off!(ibv_dm_export_dmabuf_fd(dm));
    errno::minus_one(libc::EOPNOTSUPP)
}

/// `ibv_query_qp_data_in_order`: no. Bytes of a frame are copied in whatever order the CPU does
/// it.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp_data_in_order(
    qp: *mut ibv_qp,
    op: c_int,
    flags: u32,
) -> c_int {
    pass_when_off!(ibv_query_qp_data_in_order(qp, op, flags));
    0
}
