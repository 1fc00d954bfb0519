//! An application that sleeps until its sends complete is roused by what the peer writes in reply
//! to them, although verbs have no completion for it.

mod common;

use common::{ALL, Memory, Side, pair, settle};
use weft_verbs::SendOp;

const SIZE: u32 = 4000;

/// Two sides and what a Write of the second goes from and to.
fn sides() -> (Side, Side, Memory, Memory) {
    let (mut near, mut far) = pair(1460);
    settle(&mut near, &mut far);
    let (inbox, data) = (near.memory(SIZE.into(), ALL), far.memory(SIZE.into(), ALL));
    (near, far, data, inbox)
}

/// Posts a message without effect, polls its completion, and arms.
fn send_and_sleep(near: &mut Side, far: &mut Side) {
    near.send(1, SendOp::Write { to: 0, stag: 0 }, &[]);
    settle(near, far);
    assert_eq!(near.statuses(), [(1, 0)]);
    near.cq.req_notify(false);
}

fn write(near: &mut Side, far: &mut Side, data: &Memory, inbox: &Memory) {
    far.send(2, SendOp::Write { to: inbox.addr(), stag: inbox.key }, &[data.sge(0, SIZE)]);
    settle(near, far);
}

#[test]
fn once_for_each_request() {
    let (mut near, mut far, data, inbox) = sides();
    near.cq.req_notify(false);
    write(&mut near, &mut far, &data, &inbox);
    assert!(near.cq.is_armed(), "there is nothing that this could be a reply to");
    send_and_sleep(&mut near, &mut far);
    send_and_sleep(&mut near, &mut far);
    for roused in [true, true, false] {
        write(&mut near, &mut far, &data, &inbox);
        assert_eq!(near.cq.is_armed(), !roused);
        near.cq.req_notify(false);
    }
    assert_eq!(near.statuses(), []);
}

#[test]
fn by_the_last_segment_of_a_write_that_brings_something() {
    let (mut near, mut far, data, inbox) = sides();
    send_and_sleep(&mut near, &mut far);
    far.send(1, SendOp::Write { to: 0, stag: 0 }, &[]);
    settle(&mut near, &mut far);
    assert!(near.cq.is_armed(), "nothing was written");
    far.send(2, SendOp::Write { to: inbox.addr(), stag: inbox.key }, &[data.sge(0, SIZE)]);
    let segments = far.output(usize::MAX);
    let (most, last) = segments.split_at(segments.len() - 1);
    near.input(most);
    assert!(near.cq.is_armed(), "not all is written");
    near.input(last);
    assert!(!near.cq.is_armed());
}

#[test]
fn not_when_it_wants_solicited_completions_only() {
    let (mut near, mut far, data, inbox) = sides();
    near.send(1, SendOp::Write { to: 0, stag: 0 }, &[]);
    near.cq.req_notify(true);
    write(&mut near, &mut far, &data, &inbox);
    assert!(near.cq.is_armed());
}
