//! A local invalidate completes in its turn, and the key is dead by then.

mod common;

use common::{ALL, pair, settle};
use weft_verbs::{Access, RegionFault, SendOp};

#[test]
fn the_last_request_of_a_queue_completes_although_it_sends_nothing() {
    let (mut a, mut b) = pair(1460);
    let memory = a.memory(64, ALL);
    a.send(1, SendOp::Write { to: 0, stag: 0 }, &[]);
    a.send(2, SendOp::LocalInv { stag: memory.key }, &[]);
    settle(&mut a, &mut b);
    assert_eq!(a.statuses(), [(1, 0), (2, 0)]);
    let pd = a.pd.id();
    let access = a.device.regions().check(memory.key, pd, memory.addr(), 1, Access::empty());
    assert_eq!(access, Err(RegionFault::InvalidStag));
}

#[test]
fn a_key_that_does_not_exist_fails_the_request() {
    let (mut a, mut b) = pair(1460);
    a.send(1, SendOp::LocalInv { stag: 99 }, &[]);
    settle(&mut a, &mut b);
    assert_eq!(a.statuses(), [(1, weft_verbs::WcStatus::LocProtErr as u32)]);
}
