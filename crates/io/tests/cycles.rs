//! Connections come and go, and leave nothing behind. A process of its own, because it counts the
//! descriptors of the process.

#[path = "cm/common.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod common;
#[path = "common/mod.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod side;

use weft_io::cm::EventKind;

use common::*;

/// Threads that the engine has at most.
const THREADS_MAX: usize = 16;

#[test]
fn cycles_leave_nothing_behind() {
    cycle(300);
}

/// `make soak`.
#[test]
#[ignore = "ten thousand connections take a minute"]
fn ten_thousand_cycles_leave_nothing_behind() {
    cycle(10_000);
}

fn cycle(times: u32) {
    let server = Server::new();
    // The engine starts a thread with each of the first queue pairs.
    (0..THREADS_MAX).for_each(|_| prove_alive(&server));
    let before = settle(None);
    let start = weft_io::clock::now();
    for _ in 0..times {
        let client = Client::connecting(server.addr, b"");
        let (accepted, side) = server.accept(&params(b""));
        expect(&client.channel, EventKind::Established);
        expect(&server.channel, EventKind::Established);
        client.id.disconnect().unwrap();
        expect(&client.channel, EventKind::Disconnected);
        expect(&server.channel, EventKind::Disconnected);
        accepted.destroy();
        client.id.destroy();
        side.qp.destroy().unwrap();
        client.side.qp.destroy().unwrap();
    }
    let per_cycle = start.elapsed() / times;
    assert!(per_cycle.as_millis() < 100, "a cycle takes {per_cycle:?}");
    settle(Some(before));
    prove_alive(&server);
}

/// Waits until the process has no more than `limit` descriptors, or until their number stays; gives
/// their number.
fn settle(limit: Option<usize>) -> usize {
    let start = weft_io::clock::now();
    let mut last = usize::MAX;
    loop {
        let now = descriptors();
        if now <= limit.unwrap_or(last) && last != usize::MAX {
            return now;
        }
        assert!(start.elapsed() < DEADLINE, "{now} descriptors, not {limit:?}");
        last = now;
        std::thread::yield_now();
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
