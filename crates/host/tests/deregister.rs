//! A region that is deregistered while a peer writes it is not touched once the call returned.
#![allow(dead_code)]

mod common;

use std::sync::atomic::{AtomicU8, Ordering};

use common::{ALL, agreed, pair_with};
use weft_verbs::{SendFlags, SendOp, SendWr};

/// Bytes of the region.
const SIZE: usize = 256 << 10;

#[test]
fn nothing_is_written_after_the_end_of_a_region() {
    for round in 0..10 {
        let (a, b) = pair_with(&agreed(), &agreed());
        let source = a.memory(SIZE, 0xaa, ALL);
        let target: Vec<AtomicU8> = (0..SIZE).map(|_| AtomicU8::new(0)).collect();
        let to = target.as_ptr() as u64;
        let stag = b.context.reg_mr(&b.pd, to, SIZE as u64, to, ALL).unwrap();
        let op = SendOp::Write { to, stag };
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let sges = [source.sge(0, SIZE)];
                for wr_id in 0..400 {
                    let flags = SendFlags::SIGNALED;
                    if a.qp.post_send(&SendWr { wr_id, op, flags, sges: &sges }).is_err() {
                        break;
                    }
                    a.qp.ring();
                }
            });
            let last = &target[SIZE - 1];
            let start = weft_os::clock::now();
            // The last byte of the first Write is there once all the others are.
            while round % 2 == 0 && last.load(Ordering::Acquire) == 0 {
                let _ = b.cq.poll(&mut [Default::default()]);
                assert!(start.elapsed() < common::DEADLINE);
            }
            b.context.dereg_mr(stag).unwrap();
            target.iter().for_each(|octet| octet.store(0x55, Ordering::Release));
            writer.join().unwrap();
        });
        assert_eq!(b.reports.wait_over(), 1, "the stream ends");
        assert_eq!(a.reports.wait_over(), 1);
        let touched = target.iter().any(|octet| octet.load(Ordering::Acquire) != 0x55);
        assert!(!touched, "written after its end");
    }
}
