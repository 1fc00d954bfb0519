//! Queue pairs and shared receive queues that belong to an id.

use std::ffi::c_int;
use std::ptr;

use super::id::object;
use super::object::IdObject;
use super::route;
use crate::errno::{self, needs_memory};
use crate::ibv::{channel, cq, qp as verbs_qp, qp_ex, srq as verbs_srq};
use crate::pass;
use crate::real::pass_when_off;
use weft_rdmacm::PortSpace;
use weft_verbs::{QpAttrMask, QpState};
use weft_verbs_abi::cma::rdma_cm_id;
use weft_verbs_abi::{
    IBV_QP_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_BASIC,
    ibv_comp_channel, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};

/// A completion queue with its channel, as made for an id.
struct Completions {
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
}

impl Completions {
    /// A queue of `size` entries whose events name the id; or an errno.
    fn create(object: &IdObject, size: u32) -> Result<Completions, c_int> {
        let verbs = object.head.id.verbs.get();
        // SAFETY: the id is bound to a context that lives for ever.
        let channel = unsafe { channel::ibv_create_comp_channel(verbs) };
        if channel.is_null() {
            return Err(errno::get());
        }
        let size = c_int::try_from(size).unwrap_or(c_int::MAX);
        // SAFETY: the context as above, and the channel was just made.
        let cq = unsafe { cq::ibv_create_cq(verbs, size, object.as_ptr().cast(), channel, 0) };
        let made = Completions { channel, cq };
        if cq.is_null() {
            let code = errno::get();
            made.destroy();
            return Err(code);
        }
        Ok(made)
    }

    fn destroy(self) {
        if !self.cq.is_null() {
            // SAFETY: the queue was made by `create`, and its queue pair is gone.
            unsafe { cq::ibv_destroy_cq(self.cq) };
        }
        if !self.channel.is_null() {
            // SAFETY: the channel was made by `create`, and its queue is gone.
            unsafe { channel::ibv_destroy_comp_channel(self.channel) };
        }
    }
}

/// Gives the id the completion queues that the attributes lack.
fn create_completions(object: &IdObject, attr: &ibv_qp_init_attr_ex) -> Result<(), c_int> {
    let id = &object.head.id;
    if attr.recv_cq.is_null() && id.recv_cq.get().is_null() && attr.cap.max_recv_wr > 0 {
        let made = Completions::create(object, attr.cap.max_recv_wr)?;
        id.recv_cq_channel.set(made.channel);
        id.recv_cq.set(made.cq);
    }
    if attr.send_cq.is_null() && id.send_cq.get().is_null() && attr.cap.max_send_wr > 0 {
        let made = Completions::create(object, attr.cap.max_send_wr)?;
        id.send_cq_channel.set(made.channel);
        id.send_cq.set(made.cq);
    }
    Ok(())
}

/// Destroys the completion queues of the id, those that the application put there included:
/// rsockets puts one queue with one channel into both places.
fn destroy_completions(object: &IdObject) {
    let id = &object.head.id;
    let recv = Completions {
        channel: id.recv_cq_channel.replace(ptr::null_mut()),
        cq: id.recv_cq.replace(ptr::null_mut()),
    };
    let mut send = Completions {
        channel: id.send_cq_channel.replace(ptr::null_mut()),
        cq: id.send_cq.replace(ptr::null_mut()),
    };
    if send.cq == recv.cq {
        send.cq = ptr::null_mut();
    }
    if send.channel == recv.channel {
        send.channel = ptr::null_mut();
    }
    send.destroy();
    recv.destroy();
}

/// Makes the queue pair of an id, and brings it to the state in which receives can be posted.
fn create(object: &IdObject, attr: &mut ibv_qp_init_attr_ex) -> Result<(), c_int> {
    let id = &object.head.id;
    if !id.qp.get().is_null() || id.verbs.get().is_null() {
        return Err(libc::EINVAL);
    }
    if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
        attr.pd = id.pd.get();
    }
    // SAFETY: the domain is the caller's, or the id's own.
    if unsafe { (*attr.pd).context } != id.verbs.get() {
        return Err(libc::EINVAL);
    }
    let clash =
        |own: *mut ibv_cq, given: *mut ibv_cq| !own.is_null() && !given.is_null() && own != given;
    if clash(id.recv_cq.get(), attr.recv_cq) || clash(id.send_cq.get(), attr.send_cq) {
        return Err(libc::EINVAL);
    }
    let made = create_completions(object, attr).and_then(|()| create_with(object, attr));
    if made.is_err() {
        destroy_completions(object);
    }
    made
}

fn create_with(object: &IdObject, attr: &mut ibv_qp_init_attr_ex) -> Result<(), c_int> {
    let id = &object.head.id;
    let or = |given: *mut ibv_cq, own: *mut ibv_cq| if given.is_null() { own } else { given };
    attr.send_cq = or(attr.send_cq, id.send_cq.get());
    attr.recv_cq = or(attr.recv_cq, id.recv_cq.get());
    if attr.srq.is_null() {
        attr.srq = id.srq.get();
    }
    let qp = create_qp(id.verbs.get(), attr)?;
    if let Err(code) = initialise(object, qp) {
        // SAFETY: the queue pair was just made.
        unsafe { verbs_qp::ibv_destroy_qp(qp) };
        return Err(code);
    }
    id.pd.set(attr.pd);
    id.qp.set(qp);
    // SAFETY: the queue pair was just made.
    object.qp_num.set(unsafe { (*qp).qp_num });
    Ok(())
}

fn create_qp(
    verbs: *mut ibv_context,
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, c_int> {
    let qp = if attr.comp_mask == IBV_QP_INIT_ATTR_PD {
        let mut plain = plain_of(attr);
        // SAFETY: the domain and the queues are live.
        let qp = unsafe { verbs_qp::ibv_create_qp(attr.pd, &raw mut plain) };
        attr.cap = plain.cap;
        qp
    } else {
        // SAFETY: as above.
        unsafe { qp_ex::create_qp_ex(verbs, attr) }
    };
    if qp.is_null() { Err(errno::get()) } else { Ok(qp) }
}

/// Brings a new queue pair as far as it gets without a peer: one for datagrams needs none.
fn initialise(object: &IdObject, qp: *mut ibv_qp) -> Result<(), c_int> {
    let states: &[QpState] = match object.cm.space() {
        PortSpace::Tcp => &[QpState::Init],
        PortSpace::Udp => &[QpState::Init, QpState::Rtr, QpState::Rts],
    };
    for state in states {
        // SAFETY: zeroes are valid attributes.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = *state as c_int;
        let mask = route::attributes(&object.cm, &mut attr).ok_or(libc::EINVAL)?;
        // SAFETY: the queue pair was just made.
        match unsafe { verbs_qp::ibv_modify_qp(qp, &raw mut attr, mask) } {
            0 => {}
            code => return Err(code),
        }
    }
    Ok(())
}

/// Fails the queue pair of an id, if it has one; 0, or -1 and `errno`.
pub fn fail(object: &IdObject) -> c_int {
    let qp = object.head.id.qp.get();
    if qp.is_null() {
        return 0;
    }
    // SAFETY: zeroes are valid attributes.
    let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
    attr.qp_state = QpState::Err as c_int;
    // SAFETY: the application keeps the queue pair of an id that it disconnects.
    match unsafe { verbs_qp::ibv_modify_qp(qp, &raw mut attr, QpAttrMask::STATE.bits() as c_int) } {
        0 => 0,
        code => errno::minus_one(code),
    }
}

fn plain_of(attr: &ibv_qp_init_attr_ex) -> ibv_qp_init_attr {
    ibv_qp_init_attr {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    }
}

/// `rdma_create_qp_ex`.
///
/// # Safety
/// `id` is live, `attr` readable and writable, what it names live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    pass_when_off!(rdma_create_qp_ex(id, attr));
    needs_memory!(errno::minus_one);
    let object = object!(id);
    // SAFETY: the caller passes NULL or attributes of its own.
    let Some(attr) = (unsafe { attr.as_mut() }) else { return errno::minus_one(libc::EINVAL) };
    match create(object, attr) {
        Ok(()) => 0,
        Err(code) => errno::minus_one(code),
    }
}

/// `rdma_create_qp`.
///
/// # Safety
/// `id` is live, `pd` NULL or live, `attr` readable and writable, what it names live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    pass_when_off!(rdma_create_qp(id, pd, attr));
    // SAFETY: the caller passes NULL or attributes of its own.
    let Some(attr) = (unsafe { attr.as_mut() }) else { return errno::minus_one(libc::EINVAL) };
    // SAFETY: zeroes are valid attributes.
    let mut extended: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    extended.qp_context = attr.qp_context;
    extended.send_cq = attr.send_cq;
    extended.recv_cq = attr.recv_cq;
    extended.srq = attr.srq;
    extended.cap = attr.cap;
    extended.qp_type = attr.qp_type;
    extended.sq_sig_all = attr.sq_sig_all;
    extended.comp_mask = IBV_QP_INIT_ATTR_PD;
    extended.pd = pd;
    // SAFETY: the id is the caller's, the attributes are ours.
    let result = unsafe { rdma_create_qp_ex(id, &raw mut extended) };
    if result == 0 {
        *attr = plain_of(&extended);
    }
    result
}

/// `rdma_destroy_qp`: with the completion queues that were made for it.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    pass_when_off!(rdma_destroy_qp(id));
    // SAFETY: the caller passes NULL or a live id.
    let Some(object) = (unsafe { IdObject::get(id) }) else { return };
    let qp = object.head.id.qp.replace(ptr::null_mut());
    if !qp.is_null() {
        // SAFETY: the id owned the queue pair.
        unsafe { verbs_qp::ibv_destroy_qp(qp) };
    }
    destroy_completions(object);
}

/// `rdma_create_srq_ex`.
///
/// # Safety
/// `id` is live, `attr` readable and writable, what it names live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    pass_when_off!(rdma_create_srq_ex(id, attr));
    let object = object!(id);
    // SAFETY: the caller passes NULL or attributes of its own.
    let Some(attr) = (unsafe { attr.as_mut() }) else { return errno::minus_one(libc::EINVAL) };
    let id = &object.head.id;
    let basic = attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || attr.srq_type == IBV_SRQT_BASIC;
    if !id.srq.get().is_null() || id.verbs.get().is_null() || !basic {
        return errno::minus_one(libc::EINVAL);
    }
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        attr.pd = id.pd.get();
    }
    let mut plain = ibv_srq_init_attr { srq_context: attr.srq_context, attr: attr.attr };
    // SAFETY: the domain is the caller's, or the id's own.
    let srq = unsafe { verbs_srq::ibv_create_srq(attr.pd, &raw mut plain) };
    if srq.is_null() {
        return -1;
    }
    attr.attr = plain.attr;
    id.pd.set(attr.pd);
    id.srq.set(srq);
    0
}

/// `rdma_create_srq`.
///
/// # Safety
/// `id` is live, `pd` NULL or live, `attr` readable and writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    pass_when_off!(rdma_create_srq(id, pd, attr));
    // SAFETY: the caller passes NULL or attributes of its own.
    let Some(attr) = (unsafe { attr.as_mut() }) else { return errno::minus_one(libc::EINVAL) };
    // SAFETY: zeroes are valid attributes.
    let mut extended: ibv_srq_init_attr_ex = unsafe { std::mem::zeroed() };
    extended.srq_context = attr.srq_context;
    extended.attr = attr.attr;
    extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    extended.srq_type = IBV_SRQT_BASIC;
    extended.pd = pd;
    // SAFETY: the id is the caller's, the attributes are ours.
    let result = unsafe { rdma_create_srq_ex(id, &raw mut extended) };
    if result == 0 {
        attr.attr = extended.attr;
    }
    result
}

/// `rdma_destroy_srq`.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    pass_when_off!(rdma_destroy_srq(id));
    // SAFETY: the caller passes NULL or a live id.
    let Some(object) = (unsafe { IdObject::get(id) }) else { return };
    let srq = object.head.id.srq.replace(ptr::null_mut());
    if !srq.is_null() {
        // SAFETY: the id owned the queue.
        unsafe { verbs_srq::ibv_destroy_srq(srq) };
    }
}

/// `rdma_init_qp_attr`: what an application that brings its queue pair to a state itself has to
/// set.
///
/// # Safety
/// `id` is live, `attr` readable and writable, `mask` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    pass_when_off!(rdma_init_qp_attr(id, attr, mask), pass::query::init_qp_attr);
    let object = object!(id);
    // SAFETY: the caller passes NULL or attributes of its own.
    let Some(attr) = (unsafe { attr.as_mut() }) else { return errno::minus_one(libc::EINVAL) };
    let Some(needed) = route::attributes(&object.cm, attr).filter(|_| !mask.is_null()) else {
        return errno::minus_one(libc::EINVAL);
    };
    // SAFETY: the caller passes a writable integer.
    unsafe { mask.write(needed) };
    0
}
