//! A peer reaches memory through a window as the binding says, from the binding to its end.

mod common;

use common::{ALL, Memory, Side, pair, settle};
use weft_verbs::mr::{Bind, WindowKind};
use weft_verbs::{Access, Misuse, SendOp, WcOpcode, WcStatus};

const SUCCESS: u32 = WcStatus::Success as u32;

/// What a window of `side` is bound to: the second half of 64 bytes.
fn binding(side: &Side, kind: WindowKind, access: Access) -> (Memory, Bind) {
    let memory = side.memory(64, ALL);
    let window = side.device.alloc_mw(&side.pd, kind);
    let key = Bind::next_key(window);
    let bind = Bind { window, key, region: memory.key, addr: memory.addr() + 32, len: 32, access };
    (memory, bind)
}

/// Has the peer write eight bytes; whether the connection outlives it.
fn write(a: &mut Side, b: &mut Side, to: u64, stag: u32) -> bool {
    let source = b.memory(8, ALL);
    b.send(9, SendOp::Write { to, stag }, &[source.sge(0, 8)]);
    settle(b, a);
    !a.mpa.is_dead()
}

/// The STag of a binding by which something is asked for.
type Named = fn(&Bind) -> u32;

#[test]
fn a_bound_window_lets_a_peer_in_and_no_further() {
    for kind in [WindowKind::Type1, WindowKind::Type2] {
        let (mut a, mut b) = pair(1460);
        let (memory, bind) = binding(&a, kind, Access::REMOTE_WRITE);
        a.send(1, SendOp::BindMw(bind), &[]);
        settle(&mut a, &mut b);
        let done = a.completions();
        assert_eq!((done[0].status, done[0].opcode), (SUCCESS, WcOpcode::BindMw as u32));
        assert!(write(&mut a, &mut b, memory.addr() + 32, bind.key));
        assert_eq!(a.device.regions().deregister(memory.key), Err(Misuse::Busy));
        let inside = write(&mut a, &mut b, memory.addr() + 24, bind.key);
        assert!(!inside, "{kind:?} let a peer in before its first octet");
    }
}

#[test]
fn rights_and_old_keys_are_checked() {
    let refusals: [(Access, Named); 2] =
        [(Access::REMOTE_READ, |bind| bind.key), (Access::REMOTE_WRITE, |bind| bind.window)];
    for (access, key) in refusals {
        let (mut a, mut b) = pair(1460);
        let (memory, bind) = binding(&a, WindowKind::Type2, access);
        a.send(1, SendOp::BindMw(bind), &[]);
        settle(&mut a, &mut b);
        assert!(!write(&mut a, &mut b, bind.addr, key(&bind)));
        assert!(memory.octets().iter().all(|octet| *octet == 0));
    }
}

#[test]
fn an_invalidated_window_is_closed_and_may_be_bound_again() {
    let (mut a, mut b) = pair(1460);
    let (memory, bind) = binding(&a, WindowKind::Type2, Access::REMOTE_WRITE);
    let key = Bind::next_key(bind.key);
    let again = Bind { window: bind.key, key, ..bind };
    a.send(1, SendOp::BindMw(bind), &[]);
    a.send(2, SendOp::LocalInv { stag: bind.key }, &[]);
    a.send(3, SendOp::BindMw(again), &[]);
    settle(&mut a, &mut b);
    assert_eq!(a.statuses(), [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]);
    assert!(write(&mut a, &mut b, memory.addr() + 32, again.key));
    assert!(!write(&mut a, &mut b, memory.addr() + 32, bind.key));
}

#[test]
fn a_peer_may_invalidate_a_window_of_type_2() {
    let (mut a, mut b) = pair(1460);
    let (memory, bind) = binding(&a, WindowKind::Type2, Access::REMOTE_WRITE);
    a.send(1, SendOp::BindMw(bind), &[]);
    settle(&mut a, &mut b);
    a.recv(2, &[]);
    b.send(3, SendOp::SendInv { stag: bind.key }, &[]);
    settle(&mut a, &mut b);
    let wc = a.completions()[1];
    assert_eq!((wc.wr_id, wc.status, wc.imm_data), (2, SUCCESS, bind.key));
    assert_eq!(a.device.regions().deregister(memory.key), Ok(()));
}

#[test]
fn what_follows_a_binding_leaves_after_it() {
    let (mut a, mut b) = pair(1460);
    let (_memory, bind) = binding(&a, WindowKind::Type2, Access::REMOTE_WRITE);
    b.recv(7, &[]);
    a.send(1, SendOp::BindMw(bind), &[]);
    a.send(2, SendOp::Send, &[]);
    settle(&mut a, &mut b);
    assert_eq!(a.statuses(), [(1, SUCCESS), (2, SUCCESS)]);
    assert_eq!(b.statuses(), [(7, SUCCESS)]);
}

#[test]
fn a_binding_that_cannot_be_fails_its_request() {
    let wrong: [fn(&mut Bind); 6] = [
        |bind| bind.key = bind.window.wrapping_add(1 << 8),
        |bind| bind.window = 1 << 20,
        |bind| bind.region ^= 1,
        |bind| bind.len = 33,
        |bind| bind.len = 0,
        |bind| bind.access = Access::MW_BIND,
    ];
    for spoil in wrong {
        let (mut a, mut b) = pair(1460);
        let (_memory, mut bind) = binding(&a, WindowKind::Type2, Access::REMOTE_WRITE);
        spoil(&mut bind);
        a.send(1, SendOp::BindMw(bind), &[]);
        a.send(2, SendOp::Send, &[]);
        settle(&mut a, &mut b);
        let flushed = (2, WcStatus::WrFlushErr as u32);
        assert_eq!(a.statuses(), [(1, WcStatus::MwBindErr as u32), flushed]);
    }
}

#[test]
fn a_region_that_does_not_allow_it_is_not_bound() {
    let (mut a, mut b) = pair(1460);
    let (memory, bind) = binding(&a, WindowKind::Type1, Access::REMOTE_WRITE);
    let mut spec = a.device.regions().spec(memory.key).unwrap();
    spec.access = ALL - Access::MW_BIND;
    a.device.regions().reregister(memory.key, &spec).unwrap();
    a.send(1, SendOp::BindMw(bind), &[]);
    settle(&mut a, &mut b);
    assert_eq!(a.statuses(), [(1, WcStatus::MwBindErr as u32)]);
}

#[test]
fn windows_of_a_queue_pair_that_is_gone_are_closed() {
    let (mut a, mut b) = pair(1460);
    let (memory, bind) = binding(&a, WindowKind::Type2, Access::REMOTE_WRITE);
    a.send(1, SendOp::BindMw(bind), &[]);
    settle(&mut a, &mut b);
    a.qp.retire();
    assert_eq!(a.device.regions().deregister(memory.key), Ok(()));
    assert_eq!(a.device.regions().free_window(bind.key), Ok(()));
    assert_eq!(a.device.regions().free_window(bind.key), Err(Misuse::NotFound));
}
