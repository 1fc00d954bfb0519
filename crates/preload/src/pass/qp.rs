//! Queue pairs of other providers, and what is posted to them.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};

use weft_fault::Verb;
use weft_os::clock;
use weft_sync::Mutex;
use weft_verbs::{AsyncKind, WcOpcode};
use weft_verbs_abi::*;

use super::builder::PassBuilder;
use super::calls::{refuse_receives, refused};
use super::context::{EndsWithContext, PassContext, next_number, with_real_events};
use super::cq::PassCq;
use super::table::ObjectTable;
use super::work::{Effect, PostVerdict, QpWork, SendRequest};
use super::{context, cq, mr, query};
use crate::errno;
use crate::ibv::qp::ibv_modify_qp;
use crate::real::next;

const IBV_QPS_ERR: c_int = 6;

static QPS: ObjectTable<PassQp> = ObjectTable::new();

/// What is known of a queue pair.
pub fn find(qp: *mut ibv_qp) -> Option<Arc<PassQp>> {
    QPS.find(qp)
}

/// A queue pair.
pub struct PassQp {
    address: usize,
    /// Its number.
    pub qpn: u32,
    /// Its device.
    pub context: Arc<PassContext>,
    /// What becomes of its requests.
    pub work: Mutex<QpWork>,
    send_cq: Option<Arc<PassCq>>,
    recv_cq: Option<Arc<PassCq>>,
    /// Every request is signaled.
    pub signals_all: bool,
    /// Its functions for building requests, if it has some.
    pub builder: Option<PassBuilder>,
}

/// What is said of a queue pair when it is made.
#[derive(Clone, Copy)]
pub struct QpRequest {
    send_cq: *mut ibv_cq,
    recv_cq: *mut ibv_cq,
    room: u32,
    signals_all: bool,
    /// Requests may be posted by builders.
    builds: bool,
}

impl PassQp {
    /// Notes a queue pair that was made.
    ///
    /// # Safety
    /// `qp` was just made on the device of `context`.
    unsafe fn adopt(context: &Arc<PassContext>, qp: *mut ibv_qp, request: QpRequest) {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = next_number(&MADE);
        // SAFETY: just made.
        let qpn = unsafe { (*qp).qp_num };
        let faults = &context.faults;
        let drawn: Vec<_> = faults.of_named(number, Some(qpn), &context.name).collect();
        let room = request.room as usize;
        let work = QpWork::new(faults, drawn.into_iter(), context.outages(), room);
        // SAFETY: just made.
        let builder = request.builds.then(|| unsafe { PassBuilder::adopt(qp) }).flatten();
        let (send_cq, recv_cq) = (cq::find(request.send_cq), cq::find(request.recv_cq));
        let pass = Arc::new(Self {
            address: qp as usize,
            qpn,
            context: Arc::clone(context),
            work: Mutex::new(work),
            send_cq,
            recv_cq,
            signals_all: request.signals_all,
            builder,
        });
        for cq in pass.cqs() {
            cq.add_qp(&pass);
        }
        let member: Weak<Self> = Arc::downgrade(&pass);
        context.enlist(member);
        QPS.add(qp, pass);
    }

    fn cqs(&self) -> impl Iterator<Item = &Arc<PassCq>> {
        self.send_cq.iter().chain(&self.recv_cq)
    }

    fn pointer(&self) -> *mut ibv_qp {
        self.address as *mut ibv_qp
    }

    /// Does something with the requests, and then what follows from it.
    pub fn with_work<T>(&self, act: impl FnOnce(&mut QpWork) -> T) -> T {
        let (result, effects) = {
            let mut work = self.work.lock();
            (act(&mut work), work.effects())
        };
        self.apply(effects);
        result
    }

    /// Does what is due at a time.
    pub fn act(&self) {
        let is_due = |at| at <= clock::now();
        if self.work.lock().next_time().is_some_and(is_due) {
            self.with_work(|work| work.act(clock::now()));
        }
    }

    /// Does what follows from a step of the requests; neither they nor a completion queue is
    /// locked.
    pub fn apply(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Note(place) => self.context.faults.note(place),
                Effect::ModifyToErr => self.modify_to_err(),
                Effect::QpFatal => {
                    if let Some(events) = &self.context.events {
                        events.push(AsyncKind::QpFatal, self.pointer());
                    }
                }
                Effect::Fail(failed) => match &self.send_cq {
                    Some(cq) => cq.fail(self.qpn, &failed, || self.modify_to_err()),
                    None if failed.modify => self.modify_to_err(),
                    None => {}
                },
            }
        }
    }

    fn modify_to_err(&self) {
        // SAFETY: all zeroes is valid: integers alone.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = IBV_QPS_ERR;
        let (qp, attr) = (self.pointer(), &raw mut attr);
        if let Some(real) = next!(ibv_modify_qp(qp, attr, IBV_QP_STATE)) {
            // A queue pair that cannot go there is in ERR or was never connected.
            // SAFETY: the queue pair is alive: it is forgotten before it is destroyed.
            unsafe { real(qp, attr, IBV_QP_STATE) };
        }
    }
}

impl EndsWithContext for PassQp {
    fn end_with_context(&self) {
        self.with_work(QpWork::end_with_device);
    }
}

/// `ibv_create_qp`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn create_qp(
    real: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    if let Some(code) = refused(context, Verb::CreateQp) {
        return errno::null(code);
    }
    // SAFETY: the caller's arguments.
    let make = || unsafe { real(pd, init) };
    // SAFETY: open by contract.
    let qp = unsafe { with_real_events(context, make) };
    let pass = super::faults().and_then(|_| context::find(context));
    if let Some(pass) = pass.filter(|pass| pass.needs.work && !qp.is_null()) {
        // SAFETY: readable by contract.
        let ibv_qp_init_attr { send_cq, recv_cq, cap, sq_sig_all, .. } = unsafe { *init };
        let (room, signals_all) = (cap.max_send_wr, sq_sig_all != 0);
        // SAFETY: just made.
        let request = QpRequest { send_cq, recv_cq, room, signals_all, builds: false };
        // SAFETY: as above.
        unsafe { PassQp::adopt(&pass, qp, request) };
    }
    qp
}

/// `ibv_create_qp_ex` in a context.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let pass = context::find(context);
    let real = pass.as_ref().and_then(|pass| Some((pass, pass.real.create_qp_ex?)));
    let Some((pass, real)) = real else { return errno::null(libc::EOPNOTSUPP) };
    if let Some(code) = pass.errno_of(Verb::CreateQp) {
        return errno::null(code);
    }
    // SAFETY: the caller's arguments.
    let make = || unsafe { real(context, init) };
    // SAFETY: open by contract.
    let qp = unsafe { with_real_events(context, make) };
    if qp.is_null() || !pass.needs.work {
        return qp;
    }
    // SAFETY: readable by contract.
    let ibv_qp_init_attr_ex { send_cq, recv_cq, cap, sq_sig_all, comp_mask, .. } = unsafe { *init };
    let (room, signals_all) = (cap.max_send_wr, sq_sig_all != 0);
    let builds = comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    // SAFETY: just made.
    unsafe { PassQp::adopt(pass, qp, QpRequest { send_cq, recv_cq, room, signals_all, builds }) };
    qp
}

/// `ibv_modify_qp`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn modify_qp(
    real: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: alive by contract.
    let context = unsafe { (*qp).context };
    if let Some(code) = refused(context, Verb::ModifyQp) {
        return errno::code(code);
    }
    let mut moved: ibv_qp_attr;
    let mut told = attr;
    if mask & IBV_QP_AV != 0 && query::gids_moved(context) > 0 {
        // SAFETY: readable by contract.
        moved = unsafe { *attr };
        match query::real_address(context, moved.ah_attr) {
            Ok(address) => moved.ah_attr = address,
            Err(code) => return errno::code(code),
        }
        told = &raw mut moved;
    }
    // SAFETY: the caller's arguments, but for the row of the GID.
    let result = unsafe { real(qp, told, mask) };
    if result == 0
        && mask & IBV_QP_STATE != 0
        && let Some(pass) = super::faults().and_then(|_| find(qp))
    {
        // SAFETY: readable by contract.
        let state = unsafe { (*attr).qp_state };
        pass.with_work(|work| work.modified(state));
    }
    result
}

/// `ibv_destroy_qp`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn destroy_qp(
    real: unsafe extern "C" fn(*mut ibv_qp) -> c_int,
    qp: *mut ibv_qp,
) -> c_int {
    // Forgotten first: another thread may get a new one at the same address.
    let pass = super::faults().and_then(|_| QPS.remove(qp));
    // SAFETY: the caller's argument.
    let result = unsafe { real(qp) };
    let Some(pass) = pass else { return result };
    if result != 0 {
        QPS.add(qp, pass);
        return result;
    }
    for cq in pass.cqs() {
        cq.remove_qp(pass.qpn);
    }
    if let Some(events) = &pass.context.events {
        events.forget(qp);
    }
    0
}

/// `ibv_post_send`.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: alive by contract.
    let context = context::find(unsafe { (*qp).context });
    let real = context.as_ref().and_then(|context| Some((context, context.real.ops.post_send?)));
    let Some((context, real)) = real else { return errno::code(libc::ENODEV) };
    context.tick();
    if context.needs.calls
        && let Some(code) = context.faults.errno_of(Verb::PostSend, &context.name)
    {
        // SAFETY: writable by contract.
        unsafe { bad.write(wr) };
        return errno::code(code);
    }
    // SAFETY: the caller's list.
    mr::note_posts(unsafe { length(wr) });
    let Some(pass) = find(qp) else {
        // SAFETY: the caller's arguments.
        return unsafe { real(qp, wr, bad) };
    };
    pass.act();
    // SAFETY: the caller's arguments.
    pass.with_work(|work| unsafe { post_list(&pass, work, real, wr, bad) })
}

/// Posts what the device is to get of a list, and holds back the rest.
///
/// # Safety
/// As for `ibv_post_send`.
unsafe fn post_list(
    pass: &PassQp,
    work: &mut QpWork,
    real: PostSend,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's list.
    if !work.passes(unsafe { length(first) }) {
        // SAFETY: the caller's arguments.
        return unsafe { post_each(pass, work, real, first, bad) };
    }
    let mut wr = first;
    while !wr.is_null() {
        // SAFETY: a request of the list.
        let request = unsafe { &*wr };
        work.post(request_of(request, pass.signals_all));
        wr = request.next;
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real(pass.pointer(), first, bad) };
    if result != 0 {
        // SAFETY: the provider has written which request it did not take.
        work.undo(unsafe { untaken(bad) });
    }
    result
}

/// Posts a list one by one, by what is to become of each request: the device gets copies.
///
/// # Safety
/// As for `ibv_post_send`.
unsafe fn post_each(
    pass: &PassQp,
    work: &mut QpWork,
    real: PostSend,
    mut wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    while !wr.is_null() {
        // SAFETY: a request of the list.
        let verdict = work.post(request_of(unsafe { &*wr }, pass.signals_all));
        let result = match verdict {
            PostVerdict::Hold => 0,
            PostVerdict::Full => errno::code(libc::ENOMEM),
            // SAFETY: a request of the list, for a queue pair that is alive.
            PostVerdict::Pass => unsafe { post_copy(real, pass.pointer(), wr, 0) },
            // SAFETY: as above.
            PostVerdict::PassSignaled => unsafe {
                post_copy(real, pass.pointer(), wr, IBV_SEND_SIGNALED)
            },
        };
        if result != 0 {
            if verdict != PostVerdict::Full {
                work.undo(1);
            }
            // SAFETY: writable by contract.
            unsafe { bad.write(wr) };
            return result;
        }
        // SAFETY: a request of the list.
        wr = unsafe { (*wr).next };
    }
    0
}

/// Posts one request of a list alone, with more flags.
///
/// # Safety
/// `wr` is a request as for `ibv_post_send`.
unsafe fn post_copy(real: PostSend, qp: *mut ibv_qp, wr: *mut ibv_send_wr, flags: u32) -> c_int {
    // SAFETY: readable by contract.
    let mut copy = unsafe { *wr };
    copy.next = ptr::null_mut();
    copy.send_flags |= flags;
    let mut bad = ptr::null_mut();
    // SAFETY: as the C function's contract.
    unsafe { real(qp, &raw mut copy, &raw mut bad) }
}

/// Requests that the provider did not take.
///
/// # Safety
/// `bad` leads to a request of a list as for `ibv_post_send`.
unsafe fn untaken(bad: *mut *mut ibv_send_wr) -> usize {
    // SAFETY: readable by contract.
    let first = unsafe { *bad };
    // SAFETY: a list by contract.
    unsafe { length(first) }
}

/// Requests from `wr` on.
///
/// # Safety
/// A list as for `ibv_post_send`, or NULL.
unsafe fn length(mut wr: *mut ibv_send_wr) -> usize {
    let mut count = 0;
    while !wr.is_null() {
        count += 1;
        // SAFETY: a request of the list.
        wr = unsafe { (*wr).next };
    }
    count
}

fn request_of(wr: &ibv_send_wr, signals_all: bool) -> SendRequest {
    let opcode = match wr.opcode {
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => WcOpcode::RdmaWrite,
        IBV_WR_RDMA_READ => WcOpcode::RdmaRead,
        IBV_WR_ATOMIC_CMP_AND_SWP => WcOpcode::CompSwap,
        IBV_WR_ATOMIC_FETCH_AND_ADD => WcOpcode::FetchAdd,
        IBV_WR_LOCAL_INV => WcOpcode::LocalInv,
        IBV_WR_BIND_MW => WcOpcode::BindMw,
        IBV_WR_ATOMIC_WRITE => WcOpcode::AtomicWrite,
        _ => WcOpcode::Send,
    };
    let signaled = signals_all || wr.send_flags & IBV_SEND_SIGNALED != 0;
    SendRequest { id: wr.wr_id, opcode: opcode as u32, signaled }
}

/// `ibv_post_recv`.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: alive by contract.
    let context = context::find(unsafe { (*qp).context });
    let real = context.as_ref().and_then(|context| Some((context, context.real.ops.post_recv?)));
    let Some((context, real)) = real else { return errno::code(libc::ENODEV) };
    // SAFETY: the caller's list and place for a request.
    if let Some(code) = unsafe { refuse_receives(context, wr, bad) } {
        return code;
    }
    // SAFETY: the caller's arguments.
    unsafe { real(qp, wr, bad) }
}
