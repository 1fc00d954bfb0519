//! Domains of extended reliable connections.

use std::ffi::c_int;
use std::sync::Arc;

use weft_host::{HostXrcd, XrcdFile};
use weft_os::calls::LibraryCall;

use super::context::Held;
use super::object::Object;
use crate::errno::{self, needs_memory};
use weft_verbs_abi::*;

/// Private tail of the C structure of a domain.
pub struct XrcdTail {
    /// The domain in `weft-host`.
    pub core: Arc<HostXrcd>,
    _context: Held,
}

type XrcdObject = Object<ibv_xrcd, XrcdTail>;

/// The private tail of `xrcd`.
///
/// # Safety
/// `xrcd` came from [`open_xrcd`] and is not closed while the reference lives.
pub unsafe fn tail<'a>(xrcd: *mut ibv_xrcd) -> &'a XrcdTail {
    // SAFETY: as this function's contract.
    unsafe { XrcdObject::tail(xrcd) }
}

/// Slot `open_xrcd`: a domain of its own, or the one of a file.
///
/// # Safety
/// `context` is open and `attr` readable.
pub unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    const KNOWN: u32 = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    let _call = LibraryCall::begin();
    needs_memory!(errno::null);
    // SAFETY: open by contract.
    let held = unsafe { Held::new(context) };
    // SAFETY: readable by contract.
    let ibv_xrcd_init_attr { comp_mask, fd, oflags } = unsafe { *attr };
    let file = (fd != -1).then_some(XrcdFile {
        fd,
        create: oflags & libc::O_CREAT != 0,
        exclusive: oflags & libc::O_EXCL != 0,
    });
    let core = match held.tail().core.open_xrcd(file) {
        Ok(core) if comp_mask != KNOWN => {
            // It may be one that was open before.
            let _nobody_has_it = core.close();
            return errno::null(libc::EINVAL);
        }
        Ok(core) => core,
        Err(misuse) => return errno::null(misuse.errno()),
    };
    XrcdObject::make(ibv_xrcd { context }, XrcdTail { core, _context: held })
}

/// Slot `close_xrcd`: `EBUSY` while a queue pair or a shared receive queue is in it.
///
/// # Safety
/// `xrcd` is open and not used afterwards.
pub unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    let _call = LibraryCall::begin();
    // SAFETY: open by contract.
    let result = errno::positive(unsafe { tail(xrcd) }.core.close());
    if result == 0 {
        // SAFETY: not used afterwards by contract.
        unsafe { XrcdObject::free(xrcd) };
    }
    result
}
