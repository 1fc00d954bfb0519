//! Each operation, with what it leaves in memory and what its completion says.

use weft_rdma::{DeviceKind, QpType, QueuePairOptions, WcOpcode, WcStatus, Work};

use crate::side::{BOTH, Side, pair};

#[test]
fn a_send_fills_the_slices_of_a_receive_in_turn() {
    for kind in BOTH {
        let (a, b) = pair(kind);
        let (from, to) = (a.memory(b"abcdef"), b.memory(&[0; 16]));
        b.qp.recv(1, &[to.slice(0..4).unwrap(), to.slice(8..16).unwrap()]).unwrap();
        a.qp.send(2, &[from.slice(2..6).unwrap(), from.slice(0..2).unwrap()]).unwrap();
        let received = b.expect(1);
        assert_eq!((received.len, received.imm), (6, None));
        assert_eq!(received.operation, WcOpcode::Recv);
        assert_eq!(to.read(0..16).unwrap(), b"cdef\0\0\0\0ab\0\0\0\0\0\0");
        a.expect(2);
    }
}

#[test]
fn bytes_that_are_copied_when_posted_need_no_region() {
    for kind in BOTH {
        let (a, b) = pair(kind);
        let to = b.memory(&[0; 8]);
        b.qp.recv(1, &to.whole().unwrap()).unwrap();
        let bytes = b"12345".to_vec();
        a.qp.post(2, Work::send_inline(&bytes).with_imm(0x0102_0304)).unwrap();
        drop(bytes);
        assert_eq!(b.expect(1).imm, Some(0x0102_0304));
        assert_eq!(to.read(0..5).unwrap(), b"12345");
        a.expect(2);
    }
}

#[test]
fn writes_and_reads_reach_the_part_that_the_key_names() {
    for kind in BOTH {
        let (a, b) = pair(kind);
        let (mine, theirs) = (a.memory(b"wxyz"), b.memory(&[7; 12]));
        let key = theirs.remote_key().slice(4..8).unwrap();
        a.qp.write(1, &mine.whole().unwrap(), key).unwrap();
        a.expect(1);
        let back = a.memory(&[0; 12]);
        a.qp.read(2, &back.whole().unwrap(), theirs.remote_key()).unwrap();
        assert_eq!(a.expect(2).operation, WcOpcode::RdmaRead);
        assert_eq!(back.read(0..12).unwrap(), b"\x07\x07\x07\x07wxyz\x07\x07\x07\x07");
        assert_eq!(theirs.read(4..8).unwrap(), b"wxyz");
    }
}

#[test]
fn atomics_give_the_old_value_and_change_the_word() {
    for kind in BOTH {
        let (a, b) = pair(kind);
        let (old, word) = (a.memory(&[0; 8]), b.memory(&[0; 8]));
        word.store(0, 40).unwrap();
        let (result, key) = (old.whole().unwrap(), word.remote_key());
        a.qp.post(1, Work::fetch_add(&result, key, 2)).unwrap();
        a.expect(1);
        assert_eq!((old.load(0).unwrap(), word.load(0).unwrap()), (40, 42));
        a.qp.post(2, Work::compare_swap(&result, key, 42, 7)).unwrap();
        a.expect(2);
        assert_eq!((old.load(0).unwrap(), word.load(0).unwrap()), (42, 7));
        a.qp.post(3, Work::compare_swap(&result, key, 42, 8)).unwrap();
        a.expect(3);
        assert_eq!((old.load(0).unwrap(), word.load(0).unwrap()), (7, 7));
    }
}

#[test]
fn silent_requests_complete_with_the_next_one_that_is_not() {
    for kind in BOTH {
        let (a, b) = pair(kind);
        let (from, to) = (a.memory(b"0123456789"), b.memory(&[0; 10]));
        for i in 0..10 {
            let (slice, key) = (from.slice(i..i + 1).unwrap(), to.remote_key());
            let work = Work::write(&slice, key.slice(i as u64..10).unwrap());
            let work = if i < 9 { work.silent() } else { work.fenced() };
            a.qp.post(i as u64, work).unwrap();
        }
        a.expect(9);
        assert!(a.cq.poll().unwrap().is_none());
        let back = a.memory(&[0; 10]);
        a.qp.read(10, &back.whole().unwrap(), to.remote_key()).unwrap();
        a.expect(10);
        assert_eq!(back.read(0..10).unwrap(), b"0123456789");
    }
}

#[test]
fn a_send_may_take_the_key_of_a_region_and_says_so() {
    for kind in BOTH {
        let (a, b) = pair(kind);
        let (lent, inbox) = (b.memory(b"lent"), b.memory(&[0; 8]));
        b.qp.recv(1, &inbox.whole().unwrap()).unwrap();
        let key = lent.remote_key();
        a.qp.post(2, Work::send_inline(b"done").invalidating(key)).unwrap();
        a.expect(2);
        let told = b.expect(1);
        assert_eq!((told.invalidated, told.imm), (Some(key.rkey), None), "{kind:?}");
        assert_eq!(lent.read(0..4).unwrap(), b"lent", "it can be read here");
        b.qp.send(3, &lent.whole().unwrap()).unwrap();
        let failed = b.next();
        assert_eq!((failed.id, failed.status), (3, WcStatus::LocProtErr), "{kind:?}");
    }
}

#[test]
fn what_cannot_take_a_key_is_refused() {
    let (a, b) = pair(DeviceKind::Roce);
    let (word, key) = (a.memory(&[0; 8]).whole().unwrap(), b.memory(&[0; 8]).remote_key());
    for work in [Work::send(&word).with_imm(1), Work::write(&word, key), Work::read(&word, key)] {
        let refused = a.qp.post(1, work.invalidating(key)).unwrap_err();
        assert!(refused.to_string().contains("invalidates"), "{refused}");
    }
}

#[test]
fn queue_pairs_share_a_receive_queue() {
    for kind in BOTH {
        let shared = Side::with(kind, |domain, cq| {
            let srq = domain.shared_receive_queue(16, 2).unwrap();
            QueuePairOptions::reliable(cq).receive_from(&srq)
        });
        let options = shared.qp.options().clone();
        let second = shared.domain.queue_pair(options.clone()).unwrap();
        let (a, b) = (Side::new(kind), Side::new(kind));
        a.connect(&shared);
        shared.connect(&a);
        second.connect_to(crate::side::HERE, b.qp.address(crate::side::HERE)).unwrap();
        b.qp.connect_to(crate::side::HERE, second.address(crate::side::HERE)).unwrap();

        let (memory, srq) = (shared.memory(&[0; 4]), options.srq.unwrap());
        for id in 0..2 {
            let at = 2 * id as usize;
            srq.recv(id, &memory.slice(at..at + 2).unwrap()).unwrap();
        }
        a.qp.post(1, Work::send_inline(b"aa")).unwrap();
        let first = shared.expect(0);
        b.qp.post(1, Work::send_inline(b"bb")).unwrap();
        let then = shared.expect(1);
        assert_eq!(memory.read(0..4).unwrap(), b"aabb");
        assert_eq!((first.qp_number, then.qp_number), (shared.qp.number(), second.number()));
    }
}

#[test]
fn what_a_queue_pair_has_taken_of_a_shared_queue_ends_with_it() {
    let shared = Side::with(DeviceKind::Roce, |domain, cq| {
        let srq = domain.shared_receive_queue(16, 2).unwrap();
        QueuePairOptions::reliable(cq).receive_from(&srq)
    });
    let options = shared.qp.options().clone();
    let second = shared.domain.queue_pair(options.clone()).unwrap();
    let (a, b) = (Side::new(DeviceKind::Roce), Side::new(DeviceKind::Roce));
    a.connect(&shared);
    shared.connect(&a);
    second.connect_to(crate::side::HERE, b.qp.address(crate::side::HERE)).unwrap();
    b.qp.connect_to(crate::side::HERE, second.address(crate::side::HERE)).unwrap();
    let inbox = shared.memory(&[0; 4]);
    let key = inbox.remote_key();
    options.srq.unwrap().recv(7, &inbox.whole().unwrap()).unwrap();
    drop(inbox);
    b.qp.post(1, Work::send_inline(b"gone")).unwrap();
    b.expect(1);
    // Nobody has polled it, and nobody will.
    drop(second);
    let source = a.memory(b"late");
    a.qp.write(2, &source.whole().unwrap(), key).unwrap();
    let failed = a.next();
    assert_eq!((failed.id, failed.status), (2, WcStatus::RemAccessErr));
}

#[test]
fn a_shared_queue_is_of_the_device_of_its_queue_pairs() {
    let [roce, iwarp] = [DeviceKind::Roce, DeviceKind::Iwarp].map(Side::new);
    let srq = iwarp.domain.shared_receive_queue(16, 2).unwrap();
    let options = roce.qp.options().clone().receive_from(&srq);
    let refused = roce.domain.queue_pair(options).unwrap_err();
    assert!(matches!(refused, weft_rdma::Error::Invalid { .. }), "{refused}");
}

#[test]
fn an_unreliable_connection_sends_and_writes() {
    let options = |_: &_, cq: &_| QueuePairOptions::unreliable(cq);
    let (a, b) = (Side::with(DeviceKind::Roce, options), Side::with(DeviceKind::Roce, options));
    a.connect(&b);
    b.connect(&a);
    assert_eq!(a.qp.options().kind, QpType::Uc);
    let to = b.memory(&[0; 4]);
    b.qp.recv(1, &to.whole().unwrap()).unwrap();
    // Sent before the peer is ready, a message is lost; so this one waits for the connection.
    let word = a.memory(b"once");
    a.qp.post(2, Work::write(&word.whole().unwrap(), to.remote_key()).with_imm(5)).unwrap();
    a.expect(2);
    assert_eq!(b.expect(1).imm, Some(5));
    assert_eq!(to.read(0..4).unwrap(), b"once");
}

#[test]
fn one_process_relays_from_one_device_to_the_other() {
    let (client, front) = pair(DeviceKind::Iwarp);
    let (back, server) = pair(DeviceKind::Roce);
    let (inbox, outbox) = (front.memory(&[0; 32]), back.memory(&[0; 32]));
    let last = server.memory(&[0; 32]);
    front.qp.recv(1, &inbox.whole().unwrap()).unwrap();
    server.qp.recv(2, &last.whole().unwrap()).unwrap();
    client.qp.post(3, Work::send_inline(b"through both")).unwrap();
    let len = front.expect(1).len as usize;
    outbox.write_at(0, &inbox.read(0..len).unwrap()).unwrap();
    back.qp.send(4, &outbox.slice(0..len).unwrap()).unwrap();
    server.expect(2);
    assert_eq!(last.read(0..len).unwrap(), b"through both");
}
