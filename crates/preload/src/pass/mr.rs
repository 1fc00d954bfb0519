//! Memory regions of other providers that become invalid: they are deregistered, and the device
//! itself refuses what uses their keys.
//!
//! The application has a copy of the C structure of such a region, since the provider frees its own
//! when the region is deregistered.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use weft_fault::{FaultKind, When};
use weft_os::clock::{self, Moment};
use weft_sync::Mutex;
use weft_verbs_abi::*;

use super::context;
use super::context::{PassContext, next_number};
use super::table::ObjectTable;
use crate::errno;
use crate::ibv::pd_mr::ibv_dereg_mr;
use crate::real::next;

static MRS: ObjectTable<PassMr> = ObjectTable::new();

/// A region that becomes invalid.
pub struct PassMr {
    context: Arc<PassContext>,
    place: usize,
    end: PassRegionEnd,
    /// The provider's structure; none once it is deregistered.
    real: Mutex<Option<usize>>,
}

/// When a region becomes invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PassRegionEnd {
    /// Before the request after so many that the process posts.
    After(u64),
    At(Moment),
}

/// Requests that the process has posted.
static POSTED: AtomicU64 = AtomicU64::new(0);
/// Whether there are regions that become invalid.
static ANY: AtomicBool = AtomicBool::new(false);

impl PassMr {
    fn is_due(&self, posted: u64, now: Moment) -> bool {
        match self.end {
            PassRegionEnd::After(count) => count <= posted,
            PassRegionEnd::At(at) => at <= now,
        }
    }

    fn invalidate(&self) {
        let Some(real) = self.real.lock().take() else { return };
        self.context.faults.note(self.place);
        let mr = real as *mut ibv_mr;
        if let Some(dereg) = next!(ibv_dereg_mr(mr)) {
            // SAFETY: the provider's own structure, which nobody else has.
            unsafe { dereg(mr) };
        }
    }
}

/// Ends the regions whose time has come.
pub fn act() {
    if ANY.load(Ordering::Acquire) {
        end_due(POSTED.load(Ordering::Relaxed));
    }
}

/// So many requests are posted now: the regions that end with them do.
pub fn note_posts(count: usize) {
    if ANY.load(Ordering::Acquire) && count > 0 {
        let before = POSTED.fetch_add(count as u64, Ordering::Relaxed);
        end_due(before + count as u64 - 1);
    }
}

fn end_due(posted: u64) {
    let now = clock::now();
    for mr in MRS.all() {
        if mr.is_due(posted, now) {
            mr.invalidate();
        }
    }
}

/// The region that the application gets for one that was registered: a copy, if it is to become
/// invalid.
pub fn adopt(context: *mut ibv_context, mr: *mut ibv_mr) -> *mut ibv_mr {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let pass = super::faults().and_then(|_| context::find(context));
    let Some(pass) = pass.filter(|pass| pass.needs.regions && !mr.is_null()) else { return mr };
    let number = next_number(&MADE);
    let found = pass.faults.of_named(number, None, &pass.name).find_map(|(place, fault, _)| {
        let end = match (fault.kind, fault.when) {
            (FaultKind::MrInvalid, When::After(count)) => PassRegionEnd::After(count),
            (FaultKind::MrInvalid, When::AtNs(ns)) => {
                PassRegionEnd::At(clock::now() + Duration::from_nanos(ns))
            }
            _ => return None,
        };
        Some((place, end))
    });
    let Some((place, end)) = found else { return mr };
    // SAFETY: just registered.
    let copy = Box::into_raw(Box::new(unsafe { mr.read() }));
    let real = Mutex::new(Some(mr as usize));
    let context = Arc::clone(&pass);
    MRS.add(copy, Arc::new(PassMr { context, place, end, real }));
    ANY.store(true, Ordering::Release);
    copy
}

/// `ibv_dereg_mr`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn dereg_mr(real: unsafe extern "C" fn(*mut ibv_mr) -> c_int, mr: *mut ibv_mr) -> c_int {
    let Some(pass) = super::faults().and_then(|_| MRS.find(mr)) else {
        // SAFETY: the caller's argument.
        return unsafe { real(mr) };
    };
    let mut own = pass.real.lock();
    if let Some(address) = *own {
        // SAFETY: the provider's structure, alive while it is noted.
        let result = unsafe { real(address as *mut ibv_mr) };
        if result != 0 {
            return result;
        }
        *own = None;
    }
    MRS.remove(mr);
    // SAFETY: made by `adopt`; the application uses it no more, by contract.
    drop(unsafe { Box::from_raw(mr) });
    0
}

/// The type of `ibv_rereg_mr`.
type ReregMr =
    unsafe extern "C" fn(*mut ibv_mr, c_int, *mut ibv_pd, *mut c_void, usize, c_int) -> c_int;

/// `ibv_rereg_mr`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn rereg_mr(
    real: ReregMr,
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let Some(pass) = super::faults().and_then(|_| MRS.find(mr)) else {
        // SAFETY: the caller's arguments.
        return unsafe { real(mr, flags, pd, addr, length, access) };
    };
    let own = pass.real.lock();
    let Some(address) = *own else {
        errno::set(libc::EINVAL);
        return IBV_REREG_MR_ERR_INPUT;
    };
    let own = address as *mut ibv_mr;
    // SAFETY: the caller's arguments, and the provider's structure, alive while it is noted.
    let result = unsafe { real(own, flags, pd, addr, length, access) };
    // SAFETY: as above.
    let now = unsafe { own.read() };
    // SAFETY: made by `adopt`, alive by contract.
    unsafe { mr.write(now) };
    result
}
