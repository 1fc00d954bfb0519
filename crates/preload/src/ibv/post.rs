//! Posting: converts the application's lists of work requests, and posts one after the other.
//!
//! The first request that is refused ends the call and is reported through `bad_wr`; those before
//! it stay posted. The doorbell rings once, at the end of the list.

use std::borrow::Cow;
use std::ffi::c_int;
use std::ptr::slice_from_raw_parts;

use weft_host::{HostPosting, HostQp};
use weft_verbs::{Misuse, QpType, RecvWr, SendFlags, SendOp, SendWr, limits};

use super::{ah, mw, qp, srq};
use crate::errno::needs_memory;
use weft_verbs_abi::*;

/// Slot `post_send`.
///
/// # Safety
/// `qp` is alive; `wr` is a well-formed list; `bad` is NULL or writable.
pub unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: alive by contract.
    let core = unsafe { &qp::tail(qp).core };
    // SAFETY: by contract.
    let (posted, refused) = unsafe { post_sends(core, wr) };
    if posted > 0 {
        core.ring();
    }
    let Some((item, misuse)) = refused else { return 0 };
    // SAFETY: NULL or writable by contract.
    unsafe { report(bad, item) };
    misuse.errno()
}

/// Queues the requests of a list; how many, and which one was refused and why.
///
/// # Safety
/// `wr` is a well-formed list.
unsafe fn post_sends(
    core: &HostQp,
    wr: *mut ibv_send_wr,
) -> (usize, Option<(*mut ibv_send_wr, Misuse)>) {
    let (mut posted, mut next) = (0, wr);
    let mut posting = match core.posting() {
        Ok(posting) => posting,
        Err(misuse) => return (0, (!wr.is_null()).then_some((wr, misuse))),
    };
    while !next.is_null() {
        // SAFETY: requests of the list are readable by contract.
        let item = &unsafe { lent(next, 1) }[0];
        // SAFETY: as above.
        if let Err(misuse) = unsafe { post_one(&mut posting, item) } {
            return (posted, Some((next, misuse)));
        }
        (posted, next) = (posted + 1, item.next);
    }
    (posted, None)
}

/// # Safety
/// The entries of the request are readable, and so is the address handle of a datagram.
unsafe fn post_one(posting: &mut HostPosting<'_>, item: &ibv_send_wr) -> Result<(), Misuse> {
    needs_memory!(refuse);
    // SAFETY: readable by contract.
    let sges = unsafe { entries(item.sg_list, item.num_sge) }?;
    // SAFETY: as above.
    let wr = unsafe { send_wr(item, &sges) }?;
    match posting.kind() {
        QpType::Ud => {}
        QpType::XrcSend => return posting.send_to(&wr, item.remote_srqn),
        _ => return posting.send(&wr),
    }
    // SAFETY: requests of this kind of queue pair carry this member.
    let WrUd { ah, remote_qpn, remote_qkey } = unsafe { item.wr.ud };
    // SAFETY: alive by contract.
    let to = unsafe { ah::destination(ah, remote_qpn, remote_qkey) }?;
    posting.datagram(&wr, &to)
}

/// Slot `post_recv`.
///
/// # Safety
/// `qp` is alive; `wr` is a well-formed list; `bad` is NULL or writable.
pub unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: alive by contract.
    let core = unsafe { &qp::tail(qp).core };
    // SAFETY: as this function's contract.
    unsafe { post_receives(wr, bad, |wr| core.post_recv(wr)) }
}

/// Slot `post_srq_recv`.
///
/// # Safety
/// `srq` is alive; `wr` is a well-formed list; `bad` is NULL or writable.
pub unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: alive by contract.
    let core = unsafe { &srq::tail(srq).core };
    // SAFETY: as this function's contract.
    unsafe { post_receives(wr, bad, |wr| core.post_recv(wr)) }
}

/// # Safety
/// `wr` is a well-formed list; `bad` is NULL or writable.
unsafe fn post_receives(
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    post: impl Fn(&RecvWr<'_>) -> Result<(), Misuse>,
) -> c_int {
    let mut next = wr;
    while !next.is_null() {
        // SAFETY: requests of the list are readable by contract.
        let item = &unsafe { lent(next, 1) }[0];
        // SAFETY: as above.
        if let Err(misuse) = unsafe { post_receive(item, &post) } {
            // SAFETY: NULL or writable by contract.
            unsafe { report(bad, next) };
            return misuse.errno();
        }
        next = item.next;
    }
    0
}

/// # Safety
/// The entries of the request are readable.
unsafe fn post_receive(
    item: &ibv_recv_wr,
    post: impl Fn(&RecvWr<'_>) -> Result<(), Misuse>,
) -> Result<(), Misuse> {
    needs_memory!(refuse);
    // SAFETY: readable by contract.
    let sges = unsafe { entries(item.sg_list, item.num_sge) }?;
    post(&RecvWr { wr_id: item.wr_id, sges: &sges })
}

/// Refuses a post with the errno of `needs_memory!`: queues allocate when they grow.
pub(super) fn refuse<T>(code: c_int) -> Result<T, Misuse> {
    Err(Misuse::System(code))
}

/// # Safety
/// `bad` is NULL or writable.
unsafe fn report<T>(bad: *mut *mut T, failed: *mut T) {
    if !bad.is_null() {
        // SAFETY: writable by contract.
        unsafe { bad.write_unaligned(failed) };
    }
}

/// The scatter/gather entries of a request.
///
/// # Safety
/// `list` has `count` entries if `count` is positive.
unsafe fn entries<'a>(list: *const ibv_sge, count: c_int) -> Result<Cow<'a, [ibv_sge]>, Misuse> {
    let count = usize::try_from(count).map_err(|_| Misuse::Invalid("a negative entry count"))?;
    if count > limits::IWARP.max_sge as usize {
        return Err(Misuse::Invalid("more entries than a device takes"));
    }
    // SAFETY: the entries are readable by contract; they describe memory and are not in it.
    Ok(unsafe { lent(list, count) })
}

/// `count` structures of the application. C programs may have them in packed structures, whose
/// members lie at any address (libiscsi's receive descriptors do): then this is a copy.
///
/// # Safety
/// `list` has `count` readable structures if `count` is positive.
pub(super) unsafe fn lent<'a, T: Copy>(list: *const T, count: usize) -> Cow<'a, [T]> {
    if count == 0 {
        Cow::Borrowed(&[])
    } else if list.is_aligned() {
        // SAFETY: readable by contract, and aligned.
        Cow::Borrowed(unsafe { &*slice_from_raw_parts(list, count) })
    } else {
        let each = (0..count).map(|index| list.wrapping_add(index));
        // SAFETY: readable by contract.
        Cow::Owned(each.map(|item| unsafe { item.read_unaligned() }).collect())
    }
}

/// Converts a request from C.
///
/// # Safety
/// What it binds is alive.
unsafe fn send_wr<'a>(wr: &ibv_send_wr, sges: &'a [ibv_sge]) -> Result<SendWr<'a>, Misuse> {
    let bind = &wr.bind_mw;
    Ok(SendWr {
        wr_id: wr.wr_id,
        op: match wr.opcode {
            // SAFETY: the window and the region are alive by contract.
            IBV_WR_BIND_MW => unsafe { mw::operation(bind.mw, bind.rkey, &bind.bind_info) }?,
            _ => operation(wr)?,
        },
        flags: SendFlags::from_bits_truncate(wr.send_flags),
        sges,
    })
}

fn operation(wr: &ibv_send_wr) -> Result<SendOp, Misuse> {
    let stag = wr.imm_data;
    Ok(match wr.opcode {
        IBV_WR_SEND => SendOp::Send,
        IBV_WR_SEND_WITH_IMM => SendOp::SendImm { imm: wr.imm_data },
        IBV_WR_SEND_WITH_INV => SendOp::SendInv { stag },
        IBV_WR_LOCAL_INV => SendOp::LocalInv { stag },
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM | IBV_WR_RDMA_READ | IBV_WR_ATOMIC_WRITE => {
            // SAFETY: requests with these codes carry this member.
            rdma(wr.opcode, unsafe { wr.wr.rdma }, wr.imm_data)
        }
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
            // SAFETY: requests with these codes carry this member.
            atomic(wr.opcode, unsafe { wr.wr.atomic })
        }
        _ => return Err(Misuse::Invalid("an unknown operation")),
    })
}

fn rdma(opcode: c_int, at: WrRdma, imm: u32) -> SendOp {
    let (to, stag) = (at.remote_addr, at.rkey);
    match opcode {
        IBV_WR_RDMA_WRITE => SendOp::Write { to, stag },
        IBV_WR_RDMA_READ => SendOp::Read { to, stag },
        IBV_WR_ATOMIC_WRITE => SendOp::AtomicWrite { to, stag },
        _ => SendOp::WriteImm { to, stag, imm },
    }
}

fn atomic(opcode: c_int, at: WrAtomic) -> SendOp {
    let (to, stag) = (at.remote_addr, at.rkey);
    match opcode {
        IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd { to, stag, add: at.compare_add },
        _ => SendOp::CmpSwap { to, stag, compare: at.compare_add, swap: at.swap },
    }
}

#[cfg(test)]
mod tests {
    use std::mem;

    use super::*;

    fn request(opcode: c_int) -> ibv_send_wr {
        // SAFETY: all zeroes is valid: integers and null pointers.
        let mut wr: ibv_send_wr = unsafe { mem::zeroed() };
        wr.opcode = opcode;
        wr.imm_data = 0x0102_0304;
        wr
    }

    #[test]
    fn each_operation_takes_its_own_member() {
        let mut wr = request(IBV_WR_RDMA_WRITE_WITH_IMM);
        wr.wr.rdma = WrRdma { remote_addr: 7, rkey: 9 };
        let imm = 0x0102_0304;
        assert_eq!(operation(&wr), Ok(SendOp::WriteImm { to: 7, stag: 9, imm }));
        wr.opcode = IBV_WR_RDMA_READ;
        assert_eq!(operation(&wr), Ok(SendOp::Read { to: 7, stag: 9 }));
        let mut wr = request(IBV_WR_ATOMIC_CMP_AND_SWP);
        wr.wr.atomic = WrAtomic { remote_addr: 7, compare_add: 1, swap: 2, rkey: 9 };
        let swap = SendOp::CmpSwap { to: 7, stag: 9, compare: 1, swap: 2 };
        assert_eq!(operation(&wr), Ok(swap));
        assert_eq!(operation(&request(IBV_WR_SEND_WITH_INV)), Ok(SendOp::SendInv { stag: imm }));
        assert_eq!(operation(&request(IBV_WR_SEND_WITH_IMM)), Ok(SendOp::SendImm { imm }));
    }

    #[test]
    fn what_cannot_be_sent_has_an_errno() {
        assert_eq!(operation(&request(99)).unwrap_err().errno(), 22);
        let mut wr = request(IBV_WR_SEND);
        wr.num_sge = -1;
        // SAFETY: the list is not read.
        assert_eq!(unsafe { entries(wr.sg_list, wr.num_sge) }.unwrap_err().errno(), 22);
    }
}
