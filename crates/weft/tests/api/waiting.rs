//! Completions by waiting and as futures.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use weft_rdma::{DeviceKind, Error, Work};

use crate::side::{BOTH, LIMIT, Side, pair};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Posts `count` receives of a byte.
fn receive(side: &Side, count: u64) {
    let inbox = side.memory(&[0]).whole().unwrap();
    (0..count).for_each(|id| side.qp.recv(id, &inbox).unwrap());
}

#[test]
fn who_waits_in_vain_is_told_so() {
    let side = Side::new(DeviceKind::Iwarp);
    let error = side.cq.wait(Duration::from_millis(5)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
}

#[test]
fn a_thread_that_sleeps_is_woken_by_a_message() {
    for kind in BOTH {
        let (a, b) = pair(kind);
        receive(&b, 60);
        let cq = b.cq.clone();
        let sleeper = thread::spawn(move || {
            (0..60).map(|_| cq.wait(LIMIT).unwrap().ok().unwrap().id).collect::<Vec<_>>()
        });
        for id in 0..60 {
            a.qp.post(id, Work::send_inline(b"x")).unwrap();
            a.expect(id);
        }
        assert_eq!(sleeper.join().unwrap(), (0..60).collect::<Vec<_>>());
    }
}

#[test]
fn tasks_share_a_queue_and_each_completion_goes_to_one_of_them() {
    for kind in BOTH {
        let (a, b) = pair(kind);
        receive(&b, 60);
        let tasks = [(); 3].map(|()| {
            let cq = b.cq.clone();
            thread::spawn(move || {
                let take = async { cq.next().await.unwrap().ok().unwrap().id };
                let mut ids = vec![block_on(take)];
                ids.extend((1..20).map(|_| block_on(cq.next()).unwrap().ok().unwrap().id));
                ids
            })
        });
        for id in 0..60 {
            a.qp.post(id, Work::send_inline(b"x")).unwrap();
            a.expect(id);
        }
        let mut ids: Vec<u64> = tasks.into_iter().flat_map(|t| t.join().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..60).collect::<Vec<_>>(), "{kind:?}");
    }
}

#[test]
fn a_future_that_is_dropped_takes_nothing_along() {
    let (a, b) = pair(DeviceKind::Roce);
    receive(&b, 1);
    let count = Arc::new(Unpark(thread::current()));
    let waker = Waker::from(Arc::clone(&count));
    let mut next = Box::pin(b.cq.next());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop((next, waker));
    assert_eq!(Arc::strong_count(&count), 1, "its waker is gone too");
    a.qp.post(1, Work::send_inline(b"x")).unwrap();
    assert_eq!(block_on(b.cq.next()).unwrap().id, 0);
}

#[test]
fn several_completions_are_taken_at_once() {
    let (a, b) = pair(DeviceKind::Iwarp);
    receive(&b, 40);
    for id in 0..40 {
        a.qp.post(id, Work::send_inline(b"x")).unwrap();
    }
    for id in 0..40 {
        a.expect(id);
    }
    let mut all = vec![b.expect(0)];
    while all.len() < 40 {
        let missing = 40 - all.len();
        assert!(b.cq.poll_into(&mut all, 7).unwrap() <= missing.min(7));
    }
    assert!(all.iter().map(|completion| completion.id).eq(0..40));
}
