//! Queue pairs: creation, attributes, destruction.
//!
//! Every queue pair is allocated as an `ibv_qp_ex`, whose head is an `ibv_qp`; [`super::qp_ex`]
//! fills the builders where an application asked for them.
//!
//! rdma-cm reaches the queue pair of `weft-host` through [`tail`], and calls [`refresh`] when the
//! connection changed its state.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::{self, offset_of};
use std::ptr;
use std::sync::{Arc, Weak};

use weft_host::{DeviceKind, HostQp, HostQpInit};
use weft_sync::{Mutex, MutexGuard};
use weft_verbs::{QpAttrMask, QpCap, QpState, QpType};

use super::context::{Held, family_of};
use super::object::{AckCounts, Object, handle};
use super::qp_ex::Builder;
use super::{cq, pd_mr, qp_attr, registry, srq, xrcd};
use crate::errno::{self, needs_memory};
use crate::pass;
use crate::real::pass_when_off;
use weft_verbs_abi::*;

/// Private tail of the C structure of a queue pair.
pub struct QpTail {
    /// The queue pair in `weft-host`.
    pub core: Arc<HostQp>,
    /// The work requests that an application is building.
    pub builder: Builder,
    /// Whether it was made with builders.
    pub extended: bool,
    cookie: u64,
    context: Held,
    sq_sig_all: c_int,
}

impl QpTail {
    /// The kind of its device.
    pub fn personality(&self) -> DeviceKind {
        self.context.tail().core.personality()
    }
}

type QpObject = Object<ibv_qp_ex, QpTail>;

/// The private tail of `qp`, an `ibv_qp` or `ibv_qp_ex`.
///
/// # Safety
/// `qp` came from [`ibv_create_qp`] or its extended form and is not destroyed while the reference
/// lives.
pub unsafe fn tail<'a, Q>(qp: *mut Q) -> &'a QpTail {
    // SAFETY: as this function's contract.
    unsafe { QpObject::tail(qp) }
}

/// The acknowledged events of `qp`.
pub fn acks(qp: *mut ibv_qp) -> AckCounts {
    let completed = offset_of!(ibv_qp, events_completed);
    AckCounts::at(qp, [offset_of!(ibv_qp, mutex), offset_of!(ibv_qp, cond), completed])
}

/// As [`refresh`], for a pointer that an application may have destroyed, or destroys just now: of
/// the queue pair with that number, which this gives, and of no other.
pub fn refresh_living(personality: DeviceKind, num: u32, qp: *mut ibv_qp) -> Option<Arc<HostQp>> {
    let numbers = numbers();
    let known = numbers.get(&(personality as u8, num)).filter(|known| known.place == qp.addr())?;
    let core = known.core.upgrade()?;
    // SAFETY: who destroys it takes it off the list before, which is locked here.
    unsafe { (*qp).state = core.state() as c_int };
    Some(core)
}

/// Copies the state of the queue pair to the field that applications read.
///
/// # Safety
/// `qp` is alive.
pub unsafe fn refresh(qp: *mut ibv_qp) {
    // SAFETY: alive by contract.
    let state = unsafe { tail(qp) }.core.state();
    // SAFETY: alive by contract.
    unsafe { (*qp).state = state as c_int };
}

/// The domain of a queue pair.
#[derive(Clone, Copy)]
pub enum QpDomain {
    /// A protection domain.
    Pd(*mut ibv_pd),
    /// A domain of extended reliable connections.
    Xrcd(*mut ibv_xrcd),
}

impl QpDomain {
    /// The protection domain that the application sees.
    fn pd(self) -> *mut ibv_pd {
        match self {
            Self::Pd(pd) => pd,
            Self::Xrcd(_) => ptr::null_mut(),
        }
    }
}

/// Makes a queue pair and writes what was granted to `init`; NULL with `errno` set when it cannot
/// be made.
///
/// # Safety
/// `context` is open; `home` and the objects that `init` names are alive.
pub unsafe fn create(
    context: *mut ibv_context,
    home: QpDomain,
    init: &mut ibv_qp_init_attr,
    extended: bool,
) -> *mut ibv_qp_ex {
    needs_memory!(errno::null);
    // SAFETY: open by contract.
    let held = unsafe { Held::new(context) };
    let personality = held.tail().core.personality();
    let Some(kind) = kind(personality, init.qp_type) else {
        return errno::null(libc::EOPNOTSUPP);
    };
    // SAFETY: alive by contract.
    if !unsafe { is_of(held.tail().family, home, init) } {
        return errno::null(libc::EINVAL);
    }
    let cookie = registry::cookie();
    // SAFETY: alive by contract.
    let Some(wanted) = (unsafe { qp_init(kind, home, init, cookie) }) else {
        return errno::null(libc::EINVAL);
    };
    let core = match held.tail().core.create_qp(wanted) {
        Ok(core) => core,
        Err(misuse) => return errno::null(misuse.errno()),
    };
    let (number, weak) = ((personality as u8, core.num()), Arc::downgrade(&core));
    init.cap = qp_attr::cap_to_c(core.query().cap);
    // SAFETY: all zeroes is valid: integers, null pointers, absent functions.
    let mut public: ibv_qp_ex = unsafe { mem::zeroed() };
    public.qp_base = head(context, home.pd(), init, &core);
    let qp = QpObject::make(
        public,
        QpTail {
            core,
            builder: Builder::new(),
            extended,
            cookie,
            context: held,
            sq_sig_all: init.sq_sig_all,
        },
    );
    registry::add(cookie, qp);
    numbers().insert(number, NumberedQp { core: weak, place: qp.addr() });
    qp
}

/// Whether the domain and the objects that `init` names are those of this family of contexts.
///
/// # Safety
/// They are alive.
unsafe fn is_of(family: u32, home: QpDomain, init: &ibv_qp_init_attr) -> bool {
    // SAFETY: alive by contract.
    let of = |object: *mut ibv_cq| object.is_null() || unsafe { family_of(object) } == family;
    let home = match home {
        QpDomain::Pd(pd) => pd.cast(),
        QpDomain::Xrcd(xrcd) => xrcd.cast(),
    };
    [home, init.send_cq, init.recv_cq, init.srq.cast()].into_iter().all(of)
}

/// The type of queue pair that a device has for an `enum ibv_qp_type`.
fn kind(personality: DeviceKind, raw: c_int) -> Option<QpType> {
    let kind = u32::try_from(raw).ok().and_then(QpType::from_raw)?;
    match personality {
        DeviceKind::Iwarp => (kind == QpType::Rc).then_some(kind),
        DeviceKind::Roce => Some(kind),
    }
}

/// A queue pair, and where the application has it.
struct NumberedQp {
    core: Weak<HostQp>,
    place: usize,
}

/// Each device has numbers of its own.
type QpsByNumber = BTreeMap<(u8, u32), NumberedQp>;

fn numbers() -> MutexGuard<'static, QpsByNumber> {
    static NUMBERS: Mutex<QpsByNumber> = Mutex::new(QpsByNumber::new());
    NUMBERS.lock()
}

/// The queue pair of that number: rdma-cm connects queue pairs that it did not make by their
/// numbers.
pub fn by_number(personality: DeviceKind, num: u32) -> Option<Arc<HostQp>> {
    numbers().get(&(personality as u8, num))?.core.upgrade()
}

/// Converts the attributes of a creation; none without the objects that the type needs.
///
/// # Safety
/// `home` and the objects that `init` names are alive.
unsafe fn qp_init(
    kind: QpType,
    home: QpDomain,
    init: &ibv_qp_init_attr,
    cookie: u64,
) -> Option<HostQpInit> {
    let srq = (!init.srq.is_null()).then(|| {
        // SAFETY: alive by contract.
        unsafe { srq::tail(init.srq) }.core.clone()
    });
    let ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } =
        init.cap;
    let cap = QpCap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data };
    let sq_sig_all = init.sq_sig_all != 0;
    if let QpDomain::Xrcd(xrcd) = home {
        // SAFETY: alive by contract.
        let domain = unsafe { xrcd::tail(xrcd) }.core.clone();
        let (pd, cq) = (domain.pd().clone(), domain.cq().clone());
        let (send_cq, recv_cq, xrcd) = (cq.clone(), cq, Some(domain));
        return Some(HostQpInit { kind, pd, send_cq, recv_cq, srq, xrcd, cap, sq_sig_all, cookie });
    }
    // A queue pair that only sends (XRC initiator) needs no queue for completions of receives.
    let receives = if kind == QpType::XrcSend { init.send_cq } else { init.recv_cq };
    if home.pd().is_null() || init.send_cq.is_null() || receives.is_null() {
        return None;
    }
    // SAFETY: alive by contract.
    let pd = unsafe { pd_mr::pd_tail(home.pd()) }.core.clone();
    // SAFETY: alive by contract.
    let send_cq = unsafe { cq::tail(init.send_cq) }.core.clone();
    // SAFETY: alive by contract.
    let recv_cq = unsafe { cq::tail(receives) }.core.clone();
    Some(HostQpInit { kind, pd, send_cq, recv_cq, srq, xrcd: None, cap, sq_sig_all, cookie })
}

fn head(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    init: &ibv_qp_init_attr,
    core: &HostQp,
) -> ibv_qp {
    ibv_qp {
        context,
        qp_context: init.qp_context,
        pd,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        handle: handle(),
        qp_num: core.num(),
        // libibverbs shows RESET until the first query or modification, although an RNIC's queue
        // pair is already in INIT.
        state: QpState::Reset as c_int,
        qp_type: init.qp_type,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    }
}

/// `ibv_create_qp`: writes the sizes that were granted back to the attributes.
///
/// # Safety
/// `pd` and the objects that `init` names are alive; `init` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    pass_when_off!(ibv_create_qp(pd, init), pass::qp::create_qp);
    if pd.is_null() {
        return errno::null(libc::EINVAL);
    }
    // SAFETY: readable by contract.
    let mut asked = unsafe { *init };
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    // SAFETY: as this function's contract; the context of a live domain is open.
    let qp = unsafe { create(context, QpDomain::Pd(pd), &mut asked, false) };
    if !qp.is_null() {
        // Only the sizes: the header passes an extended structure here too, whose next field lies
        // in this one's padding.
        // SAFETY: writable by contract.
        unsafe { (*init).cap = asked.cap };
    }
    qp.cast()
}

/// `ibv_modify_qp`.
///
/// # Safety
/// `qp` is alive and `attr` readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    pass_when_off!(ibv_modify_qp(qp, attr, mask), pass::qp::modify_qp);
    needs_memory!(errno::code);
    // SAFETY: alive by contract.
    let tail = unsafe { tail(qp) };
    // SAFETY: readable by contract.
    let attr = unsafe { &*attr };
    let mask = QpAttrMask::from_bits_retain(mask as u32);
    let device = tail.context.tail().core.id();
    let Some(wanted) = qp_attr::from_c(attr, mask, device) else {
        return errno::code(libc::EINVAL);
    };
    let result = errno::positive(tail.core.modify(&wanted, mask));
    if result == 0 {
        // SAFETY: alive by contract.
        unsafe { refresh(qp) };
    }
    result
}

/// `ibv_query_qp`: fills all attributes, whatever the mask asks for.
///
/// # Safety
/// `qp` is alive; `attr` and `init` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    pass_when_off!(ibv_query_qp(qp, attr, mask, init), pass::query::query_qp);
    // SAFETY: alive by contract.
    let tail = unsafe { tail(qp) };
    tail.core.await_step();
    let attrs = tail.core.query();
    let mut full = qp_attr::to_c(&attrs);
    if tail.core.is_adapter() && mask & IBV_QP_AV != 0 {
        full.ah_attr.grh.sgid_index =
            qp_attr::sgid_index(&attrs.path, tail.context.tail().core.id());
    }
    // SAFETY: writable by contract.
    unsafe { attr.write(full) };
    // SAFETY: alive by contract; the fields read were set when it was made.
    let public = unsafe { &*qp };
    let made = ibv_qp_init_attr {
        qp_context: public.qp_context,
        send_cq: public.send_cq,
        recv_cq: public.recv_cq,
        srq: public.srq,
        cap: full.cap,
        qp_type: public.qp_type,
        sq_sig_all: tail.sq_sig_all,
    };
    // SAFETY: writable by contract.
    unsafe { init.write(made) };
    // SAFETY: alive by contract.
    unsafe { refresh(qp) };
    0
}

/// `ibv_destroy_qp`. Waits until the application has acknowledged every event that it was given.
///
/// # Safety
/// `qp` is alive and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    pass_when_off!(ibv_destroy_qp(qp), pass::qp::destroy_qp);
    // SAFETY: alive by contract.
    let tail = unsafe { tail(qp) };
    if tail.context.is_inherited() {
        return 0;
    }
    // Before the number can be given to another.
    let personality = tail.context.tail().core.personality();
    numbers().remove(&(personality as u8, tail.core.num()));
    match tail.core.destroy() {
        Ok(dropped) => tail.context.tail().events.retract(dropped),
        Err(misuse) => return errno::code(misuse.errno()),
    }
    let reported = registry::remove(tail.cookie);
    // SAFETY: alive by contract.
    unsafe { acks(qp).wait(reported.asynchronous) };
    // SAFETY: not used afterwards by contract.
    unsafe { QpObject::free(qp) };
    0
}

/// `ibv_qp_to_qp_ex`: NULL unless it was made with builders.
///
/// # Safety
/// `qp` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    pass_when_off!(ibv_qp_to_qp_ex(qp));
    // SAFETY: alive by contract.
    if unsafe { tail(qp) }.extended { qp.cast() } else { ptr::null_mut() }
}
