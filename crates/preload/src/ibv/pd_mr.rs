//! Protection domains, memory regions, and the thread and parent domains that are only names.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_fault::Verb;
use weft_host::{Advice, Pd};
use weft_os::calls::LibraryCall;
use weft_verbs::{Access, Misuse};

use super::context::{Held, family_of};
use super::import::{self, ImportedObject};
use super::object::{Object, handle};
use super::post;
use crate::errno::{self, needs_memory};
use crate::pass;
use crate::real::pass_when_off;
use weft_verbs_abi::*;

/// Private tail of the C structure of a protection domain.
pub struct PdTail {
    /// The domain in `weft-host`; a parent domain shares that of the domain it was made from.
    pub core: Arc<Pd>,
    parents: Parents,
    /// Parent domains made from this one.
    children: AtomicUsize,
    context: Held,
}

type PdObject = Object<ibv_pd, PdTail>;
type TdObject = Object<ibv_td, TdTail>;
type MrObject = Object<ibv_mr, Held>;

/// Private tail of the C structure of a thread domain.
struct TdTail {
    /// Protection domains that were made for it.
    users: AtomicUsize,
    _context: Held,
}

/// The private tail of `pd`.
///
/// # Safety
/// `pd` came from [`ibv_alloc_pd`] and is not deallocated while the reference lives.
pub unsafe fn pd_tail<'a>(pd: *mut ibv_pd) -> &'a PdTail {
    // SAFETY: as this function's contract.
    unsafe { PdObject::tail(pd) }
}

/// What a parent domain was made of, which cannot be deallocated before it.
#[derive(Clone, Copy)]
struct Parents {
    /// NULL for a domain of its own.
    base: *mut ibv_pd,
    /// May be NULL.
    td: *mut ibv_td,
}

impl Parents {
    const NONE: Self = Self { base: std::ptr::null_mut(), td: std::ptr::null_mut() };

    /// Changes how often each is in use.
    ///
    /// # Safety
    /// They are alive, and `base` is not NULL.
    unsafe fn count(&self, change: impl Fn(&AtomicUsize) -> usize) {
        // SAFETY: alive by contract.
        change(&unsafe { pd_tail(self.base) }.children);
        if !self.td.is_null() {
            // SAFETY: alive by contract.
            change(&unsafe { TdObject::tail(self.td) }.users);
        }
    }
}

impl PdTail {
    /// The device as its opener sees it.
    pub fn host_context(&self) -> &Arc<weft_host::Context> {
        &self.context.tail().core
    }
}

/// `ibv_alloc_pd`.
///
/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    pass_when_off!(ibv_alloc_pd(context), pass::calls::alloc_pd);
    needs_memory!(errno::null);
    // SAFETY: open by contract.
    let held = unsafe { Held::new(context) };
    if let Err(misuse) = held.tail().core.refuse(Verb::AllocPd) {
        return errno::null(misuse.errno());
    }
    let core = held.tail().core.alloc_pd();
    let handle = handle();
    import::offer(handle, held.tail().core.id(), ImportedObject::Pd(Arc::clone(&core)));
    make_pd(ibv_pd { context, handle }, core, Parents::NONE, held)
}

fn make_pd(public: ibv_pd, core: Arc<Pd>, parents: Parents, held: Held) -> *mut ibv_pd {
    let tail = PdTail { core, parents, children: AtomicUsize::new(0), context: held };
    PdObject::make(public, tail)
}

/// A second object for a domain.
///
/// # Safety
/// `context` is open.
pub unsafe fn import_pd(context: *mut ibv_context, core: Arc<Pd>, handle: u32) -> *mut ibv_pd {
    // SAFETY: open by contract.
    let held = unsafe { Held::new(context) };
    make_pd(ibv_pd { context, handle }, core, Parents::NONE, held)
}

/// Ends an object and leaves its domain.
///
/// # Safety
/// `pd` came from [`import_pd`] and is not used afterwards.
pub unsafe fn unimport_pd(pd: *mut ibv_pd) {
    // SAFETY: not used afterwards by contract.
    unsafe { PdObject::free(pd) };
}

/// `ibv_dealloc_pd`: `EBUSY` while anything is in it.
///
/// # Safety
/// `pd` is alive and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    pass_when_off!(ibv_dealloc_pd(pd));
    // SAFETY: alive by contract.
    let tail = unsafe { pd_tail(pd) };
    if tail.context.is_inherited() {
        return 0;
    }
    if tail.children.load(Ordering::Acquire) > 0 {
        return errno::code(libc::EBUSY);
    }
    if tail.parents.base.is_null() {
        let result = errno::positive(tail.context.tail().core.dealloc_pd(&tail.core));
        if result != 0 {
            return result;
        }
        // SAFETY: alive by contract.
        import::withdraw(unsafe { (*pd).handle });
    } else {
        // SAFETY: domains with children are not deallocated.
        unsafe { tail.parents.count(|uses| uses.fetch_sub(1, Ordering::AcqRel)) };
    }
    // SAFETY: not used afterwards by contract.
    unsafe { PdObject::free(pd) };
    0
}

/// Slot `alloc_parent_domain`: a second name for a domain. Custom allocators are accepted and
/// never called, because no queue lives in memory that an application could provide; and leave to
/// allocate memory that a confidential guest shares with its host is not needed, because no device
/// reads it.
///
/// # Safety
/// `context` is open; `attr` is readable and names live domains.
pub unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    let _call = LibraryCall::begin();
    const KNOWN: u32 = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS
        | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
        | IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
    // SAFETY: readable by contract.
    let attr = unsafe { *attr };
    if attr.pd.is_null() {
        return errno::null(libc::EINVAL);
    }
    if attr.comp_mask & !KNOWN != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    needs_memory!(errno::null);
    let parents = Parents { base: attr.pd, td: attr.td };
    // SAFETY: alive by contract.
    unsafe { parents.count(|uses| uses.fetch_add(1, Ordering::AcqRel)) };
    // SAFETY: alive by contract.
    let core = unsafe { pd_tail(attr.pd) }.core.clone();
    // SAFETY: open by contract.
    let held = unsafe { Held::new(context) };
    make_pd(ibv_pd { context, handle: handle() }, core, parents, held)
}

/// Slot `advise_mr`: advice about memory that is registered on demand is followed at once.
///
/// # Safety
/// `pd` is alive; `list` has `count` entries.
pub unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: c_int,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    let _call = LibraryCall::begin();
    let advice = match advice {
        IBV_ADVISE_MR_ADVICE_PREFETCH => Advice::Prefetch,
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => Advice::PrefetchWrite,
        IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => Advice::PrefetchNoFault,
        _ => return errno::code(libc::EOPNOTSUPP),
    };
    if flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 || count > 0 && list.is_null() {
        return errno::code(libc::EINVAL);
    }
    // SAFETY: alive by contract.
    let tail = unsafe { pd_tail(pd) };
    // SAFETY: as many entries by contract.
    let sges = unsafe { post::lent(list, count as usize) };
    errno::positive(tail.host_context().advise(&tail.core, advice, &sges))
}

/// Slot `alloc_td`.
///
/// # Safety
/// `context` is open and `attr` readable.
pub unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    let _call = LibraryCall::begin();
    // SAFETY: readable by contract.
    if unsafe { (*attr).comp_mask } != 0 {
        return errno::null(libc::EINVAL);
    }
    needs_memory!(errno::null);
    // SAFETY: open by contract.
    let held = unsafe { Held::new(context) };
    TdObject::make(ibv_td { context }, TdTail { users: AtomicUsize::new(0), _context: held })
}

/// Slot `dealloc_td`: `EBUSY` while a protection domain was made for it.
///
/// # Safety
/// `td` came from [`alloc_td`], and is not used after it was deallocated.
pub unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: alive by contract.
    if unsafe { TdObject::tail(td) }.users.load(Ordering::Acquire) > 0 {
        return errno::code(libc::EBUSY);
    }
    // SAFETY: not used afterwards by contract.
    unsafe { TdObject::free(td) };
    0
}

/// The rights that `bits` ask for. Hints (relaxed ordering, huge pages) are ignored.
pub fn access(bits: u32) -> Result<Access, Misuse> {
    if bits & IBV_ACCESS_FLUSH != 0 {
        return Err(Misuse::Unsupported("flushes"));
    }
    Access::from_user(bits & !IBV_ACCESS_HUGETLB).ok_or(Misuse::Invalid("unknown access flags"))
}

/// Registers memory whose first byte peers name `iova`; NULL with `errno` set if that fails.
///
/// # Safety
/// `pd` is alive.
pub unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    bits: u32,
) -> *mut ibv_mr {
    needs_memory!(errno::null);
    // The application may unmap the memory while it is registered.
    weft_guard::install();
    // SAFETY: alive by contract.
    let tail = unsafe { pd_tail(pd) };
    let key = access(bits).and_then(|access| {
        tail.host_context().reg_mr(&tail.core, addr as u64, length as u64, iova, access)
    });
    // SAFETY: alive by contract.
    unsafe { make_mr(pd, addr, length, key) }
}

/// The object of a region; NULL with `errno` set if there is none.
///
/// # Safety
/// `pd` is alive.
pub unsafe fn make_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    key: Result<u32, Misuse>,
) -> *mut ibv_mr {
    let key = match key {
        Ok(key) => key,
        Err(misuse) => return errno::null(misuse.errno()),
    };
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    // SAFETY: the context of a live domain is open.
    let held = unsafe { Held::new(context) };
    let handle = handle();
    import::offer(handle, held.tail().core.id(), ImportedObject::Mr([key, key]));
    MrObject::make(ibv_mr { context, pd, addr, length, handle, lkey: key, rkey: key }, held)
}

/// A second object for a region.
///
/// # Safety
/// `pd` is alive.
pub unsafe fn import_mr(pd: *mut ibv_pd, [lkey, rkey]: [u32; 2], handle: u32) -> *mut ibv_mr {
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    // SAFETY: the context of a live domain is open.
    let held = unsafe { Held::new(context) };
    let (addr, length) = (std::ptr::null_mut(), 0);
    MrObject::make(ibv_mr { context, pd, addr, length, handle, lkey, rkey }, held)
}

/// Ends an object and leaves its region.
///
/// # Safety
/// `mr` came from [`import_mr`] and is not used afterwards.
pub unsafe fn unimport_mr(mr: *mut ibv_mr) {
    // SAFETY: not used afterwards by contract.
    unsafe { MrObject::free(mr) };
}

/// `ibv_reg_mr`.
///
/// # Safety
/// `pd` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    pass_when_off!(ibv_reg_mr(pd, addr, length, access), pass::calls::reg_mr);
    // SAFETY: as this function's contract.
    unsafe { register(pd, addr, length, addr as u64, access as u32) }
}

/// `ibv_reg_mr_iova`: peers name the first byte `iova`.
///
/// # Safety
/// `pd` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    pass_when_off!(ibv_reg_mr_iova(pd, addr, length, iova, access), pass::calls::reg_mr_iova);
    // SAFETY: as this function's contract.
    unsafe { register(pd, addr, length, iova, access as u32) }
}

/// `ibv_reg_mr_iova2`, which the header calls when flags may contain optional ones.
///
/// # Safety
/// `pd` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    pass_when_off!(ibv_reg_mr_iova2(pd, addr, length, iova, access), pass::calls::reg_mr_iova2);
    // SAFETY: as this function's contract.
    unsafe { register(pd, addr, length, iova, access) }
}

/// `ibv_dereg_mr`: from then on no peer reaches the memory.
///
/// # Safety
/// `mr` is alive and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    pass_when_off!(ibv_dereg_mr(mr), pass::mr::dereg_mr);
    // SAFETY: alive by contract.
    let held = unsafe { MrObject::tail(mr) };
    if held.is_inherited() {
        return 0;
    }
    // SAFETY: alive by contract.
    let key = unsafe { (*mr).lkey };
    let result = errno::positive(held.tail().core.dereg_mr(key));
    // A key that is gone was invalidated by a work request; the registration is the application's
    // to give back all the same.
    if result != 0 && result != libc::ENOENT {
        return result;
    }
    // SAFETY: alive by contract.
    import::withdraw(unsafe { (*mr).handle });
    // SAFETY: not used afterwards by contract.
    unsafe { MrObject::free(mr) };
    0
}

/// `ibv_rereg_mr`: 0, or one of the negative codes of the header, with the old region intact.
///
/// # Safety
/// `mr` is alive; `pd` is alive where the flags say that it is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    pass_when_off!(ibv_rereg_mr(mr, flags, pd, addr, length, access), pass::mr::rereg_mr);
    let wants = |flag| flags & flag != 0;
    let known =
        IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
    let moved = wants(IBV_REREG_MR_CHANGE_TRANSLATION);
    if flags & !known != 0 || flags == 0 || (moved && (length == 0 || addr.is_null())) {
        errno::set(libc::EINVAL);
        return IBV_REREG_MR_ERR_INPUT;
    }
    let change = Reregistration {
        pd: wants(IBV_REREG_MR_CHANGE_PD).then_some(pd),
        range: moved.then_some((addr, length)),
        access: wants(IBV_REREG_MR_CHANGE_ACCESS).then_some(access as u32),
    };
    // SAFETY: as this function's contract.
    match unsafe { change.apply(mr) } {
        Ok(()) => 0,
        Err(misuse) => {
            errno::set(misuse.errno());
            IBV_REREG_MR_ERR_INPUT
        }
    }
}

/// The changes of a re-registration.
struct Reregistration {
    pd: Option<*mut ibv_pd>,
    range: Option<(*mut c_void, usize)>,
    access: Option<u32>,
}

impl Reregistration {
    /// # Safety
    /// `mr` and the new domain, if any, are alive.
    unsafe fn apply(self, mr: *mut ibv_mr) -> Result<(), Misuse> {
        // SAFETY: alive by contract.
        let held = unsafe { MrObject::tail(mr) };
        let access = self.access.map(access).transpose()?;
        // SAFETY: alive by contract.
        if self.pd.is_some_and(|pd| unsafe { family_of(pd) } != held.tail().family) {
            return Err(Misuse::Invalid("the protection domain is one of another context"));
        }
        let domain = self.pd.map(|pd| {
            // SAFETY: alive by contract.
            unsafe { &pd_tail(pd).core }
        });
        let range = self.range.map(|(addr, length)| (addr as u64, length as u64));
        // SAFETY: alive by contract; only its owner changes a region.
        let mr = unsafe { &mut *mr };
        held.tail().core.rereg_mr(mr.lkey, domain, range, access)?;
        if let Some(pd) = self.pd {
            mr.pd = pd;
        }
        if let Some((addr, length)) = self.range {
            (mr.addr, mr.length) = (addr, length);
        }
        Ok(())
    }
}
