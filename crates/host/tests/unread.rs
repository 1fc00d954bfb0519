//! What is left to send of a connection that has ended waits for a peer that does not read, but not
//! for ever: its host answers, so that TCP would wait.
#![allow(dead_code)]

mod common;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{ALL, DEADLINE, Side, agreed, sockets};
use weft_host::mpa::MpaRole;
use weft_host::{DeviceKind, Host, HostSetup, Settings};
use weft_os::clock;
use weft_verbs::SendOp;

/// Bytes of a Write, and Writes that are more than both sockets hold.
const LEN: usize = 1 << 20;
const WRITES: u64 = 64;
const STALL_AFTER: Duration = Duration::from_millis(200);

#[test]
fn a_peer_that_does_not_read_keeps_nothing_of_a_queue_pair_that_is_destroyed() {
    let setup = HostSetup::default();
    let settings = Settings { stall_after: STALL_AFTER, ..setup.settings };
    let host = Host::new(HostSetup { settings, ..setup });
    let (near, far) = sockets();
    let side = Side::of(&host, DeviceKind::Iwarp);
    side.attach(near, MpaRole::Initiator, &agreed());
    let source = side.memory(LEN, 7, ALL);
    for wr_id in 0..WRITES {
        side.send(wr_id, SendOp::Write { to: 0, stag: 1 << 20 }, &[source.sge(0, LEN)]);
    }
    side.qp.disconnect();
    let kept = Arc::downgrade(side.qp.queues());
    drop(side);
    let deadline = clock::now() + DEADLINE;
    while kept.strong_count() > 0 {
        assert!(clock::now() < deadline, "it is still kept");
        thread::yield_now();
    }
    drop(far);
}
