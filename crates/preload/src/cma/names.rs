//! Names that are resolved while the application goes on, and events of the application's own: what
//! node RDMACM_1.4 of librdmacm added.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use weft_os::thread;
use weft_rdmacm::{CmEvent, CmId, EventKind};
use weft_sync::Mutex;

use super::addrinfo::{AddrInfo, Hints};
use super::events::complete;
use super::id::object;
use crate::errno::{self, needs_memory};
use crate::real::pass_when_off;
use weft_verbs_abi::cma::{rdma_addrinfo, rdma_cm_id};

/// The last result for an id: shared with the thread that looks for it, which may outlive the id.
pub type SharedAddrInfo = Arc<Mutex<Option<AddrInfo>>>;

/// A lookup, and the id that its event is for.
struct Query {
    node: Option<CString>,
    service: Option<CString>,
    wish: Hints,
    found: SharedAddrInfo,
    cm: Arc<CmId>,
}

impl Query {
    /// Waits for the C library, which may ask a name server.
    fn run(self) {
        let text = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |t| t.as_ptr());
        // SAFETY: strings of this value, or NULL.
        let answer = unsafe { AddrInfo::find(text(&self.node), text(&self.service), self.wish) };
        let event = match &answer {
            Ok(_) => CmEvent::plain(EventKind::AddrinfoResolved),
            Err(status) => CmEvent { status: *status, ..CmEvent::plain(EventKind::AddrinfoError) },
        };
        *self.found.lock() = answer.ok();
        self.cm.post(event);
    }
}

/// `rdma_resolve_addrinfo`: `rdma_getaddrinfo` on a thread of its own, so that the caller need not
/// wait for a name server. There is no InfiniBand subnet to ask, so `RAI_SA` is `EOPNOTSUPP`.
///
/// # Safety
/// `id` is live, `node` and `service` are NULL or NUL-terminated, `hints` NULL or readable with
/// what it names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    pass_when_off!(rdma_resolve_addrinfo(id, node, service, hints));
    needs_memory!(errno::minus_one);
    let object = object!(id);
    if node.is_null() && service.is_null() && hints.is_null() {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: the caller passes NULL or readable hints.
    let wish = unsafe { Hints::given(hints) };
    if let Some(code) = wish.refusal() {
        return errno::minus_one(code);
    }
    let copy = |text: *const c_char| {
        // SAFETY: NULL or NUL-terminated by contract.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
    };
    let (found, cm) = (Arc::clone(&object.found), Arc::clone(&object.cm));
    let query = Query { node: copy(node), service: copy(service), wish, found, cm };
    match thread::spawn(c"weft-names", || query.run()) {
        Ok(()) => complete(object),
        Err(e) => errno::minus_one(e.raw_os_error().unwrap_or(libc::EAGAIN)),
    }
}

/// `rdma_query_addrinfo`: a copy of the last result, for `rdma_freeaddrinfo`; `ENODATA` before
/// there is one.
///
/// # Safety
/// `id` is live, `info` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_query_addrinfo(
    id: *mut rdma_cm_id,
    info: *mut *mut rdma_addrinfo,
) -> c_int {
    pass_when_off!(rdma_query_addrinfo(id, info));
    let object = object!(id);
    if info.is_null() {
        return errno::minus_one(libc::EINVAL);
    }
    let Some(answer) = object.found.lock().clone() else {
        return errno::minus_one(libc::ENODATA);
    };
    // SAFETY: the caller passes a writable pointer.
    unsafe { info.write(answer.into_raw()) };
    0
}

/// `rdma_write_cm_event`: an event of the application's own in the channel of an id.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_write_cm_event(
    id: *mut rdma_cm_id,
    event: u32,
    status: c_int,
    arg: u64,
) -> c_int {
    pass_when_off!(rdma_write_cm_event(id, event, status, arg));
    let object = object!(id);
    if event != EventKind::User as u32 {
        return errno::minus_one(libc::EINVAL);
    }
    object.cm.post(CmEvent { status, arg, ..CmEvent::plain(EventKind::User) });
    0
}
