//! A region that is deregistered while a peer writes it is not touched once the call returned.
#![allow(dead_code)]

mod common;

use common::{ALL, agreed, pair_with};
use weft_verbs::{SendFlags, SendOp, SendWr};

#[test]
fn nothing_is_written_after_the_end_of_a_region() {
    for round in 0..10 {
        let (a, b) = pair_with(&agreed(), &agreed());
        let source = a.memory(256 << 10, 0xaa, ALL);
        let mut target = b.memory(256 << 10, 0, ALL);
        let op = SendOp::Write { to: target.addr(), stag: target.key };
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let sges = [source.sge(0, 256 << 10)];
                for wr_id in 0..400 {
                    let flags = SendFlags::SIGNALED;
                    if a.qp.post_send(&SendWr { wr_id, op, flags, sges: &sges }).is_err() {
                        break;
                    }
                    a.qp.ring();
                }
            });
            let last = (256 << 10) - 1;
            let start = weft_io::clock::now();
            // The last octet of the first Write is there once all the others are.
            while round % 2 == 0 && target.bytes[last] == 0 {
                let _ = b.cq.poll(&mut [Default::default()]);
                assert!(start.elapsed() < common::DEADLINE);
            }
            b.context.dereg_mr(target.key).unwrap();
            target.bytes.fill(0x55);
            writer.join().unwrap();
        });
        assert_eq!(b.reports.wait_over(), 1, "the stream ends");
        assert_eq!(a.reports.wait_over(), 1);
        assert!(target.bytes.iter().all(|octet| *octet == 0x55), "written after its end");
    }
}
