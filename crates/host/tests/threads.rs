//! Any thread may post and poll at any time; no doorbell and no completion is lost.
#![allow(dead_code)]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use common::{ALL, DEADLINE, Memory, Side, pair};
use weft_verbs::{Misuse, SendFlags, SendOp, SendWr, Wc};

const THREADS: usize = 8;
const POSTS: usize = 400;

/// Posts `count` Writes, going round when the queue is full.
fn post(side: &Side, source: &Memory, target: &Memory, count: usize) {
    for i in 0..count {
        let op = SendOp::Write { to: target.addr(), stag: target.key };
        let sges = [source.sge(0, 1 + i % 3000)];
        let wr = SendWr { wr_id: i as u64, op, flags: SendFlags::SIGNALED, sges: &sges };
        let start = weft_os::clock::now();
        loop {
            match side.qp.post_send(&wr) {
                Ok(()) => break,
                Err(Misuse::Full) => std::thread::yield_now(),
                Err(other) => panic!("{other}"),
            }
            assert!(start.elapsed() < DEADLINE, "the queue stays full");
        }
        side.qp.ring();
    }
}

fn poll(side: &Side, seen: &AtomicUsize, total: usize) {
    let start = weft_os::clock::now();
    while seen.load(Ordering::Acquire) < total {
        let mut out = [Wc::default(); 4];
        let n = side.cq.poll(&mut out).unwrap();
        assert!(out[..n].iter().all(|wc| wc.status == 0));
        seen.fetch_add(n, Ordering::AcqRel);
        assert!(start.elapsed() < DEADLINE, "{} of {total}", seen.load(Ordering::Acquire));
    }
}

#[test]
fn many_threads_on_one_queue_pair() {
    let (a, b) = pair();
    let (source, target) = (a.memory(4096, 5, ALL), b.memory(4096, 0, ALL));
    let seen = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| post(&a, &source, &target, POSTS));
            scope.spawn(|| poll(&a, &seen, THREADS * POSTS));
        }
    });
    assert_eq!(seen.into_inner(), THREADS * POSTS);
    assert_eq!(a.cq.poll(&mut [Wc::default()]), Ok(0), "each completes once");
    // Over TCP they are complete before they are placed: the memory is needed for longer.
    b.recv(0, &[]);
    a.send(0, SendOp::Send, &[]);
    b.completions(1);
}

#[test]
fn posts_without_polls_are_sent_all_the_same() {
    let (a, b) = pair();
    let (source, target) = (a.memory(4096, 5, ALL), b.memory(4096, 0, ALL));
    for round in 0..20 {
        // Enough in a row that doorbells are batched, then nobody polls this side any more.
        post(&a, &source, &target, 40);
        a.completions(40);
        b.recv(round, &[]);
        post(&a, &source, &target, 40);
        a.send(round, SendOp::Send, &[]);
        assert_eq!(b.completions(1)[0].wr_id, round);
        a.completions(41);
    }
}
