//! Connecting, accepting and events of devices as futures: one thread drives them all.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use weft_rdma::{
    AsyncKind, Connection, DeviceKind, Error, Listener, QueuePairOptions, Result, Work,
};

use crate::side::{BOTH, HERE, LIMIT, Side};
use crate::waiting::block_on;

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// Both outputs, of futures that run in turns on this thread.
fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    block_on(std::future::poll_fn(move |context| {
        if first.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(context)
        {
            first = Some(output);
        }
        if second.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(context)
        {
            second = Some(output);
        }
        match (first.take(), second.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (first, second) = (a, b);
                Poll::Pending
            }
        }
    }))
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

async fn serve(listener: &Listener, side: &Side) -> Result<Connection> {
    listener.accept_async().await?.accept_async(&side.qp, b"answer").await
}

#[test]
fn one_thread_connects_accepts_and_hears_of_the_end() {
    for kind in BOTH {
        let (near, far) = (Side::new(kind), Side::new(kind));
        let listener = Listener::bind(&far.device, LOOPBACK.into()).unwrap();
        let to = listener.local_addr();
        let (accepted, connection) =
            both(serve(&listener, &far), Connection::open_async(&near.qp, to, b"", LIMIT));
        let (accepted, connection) = (accepted.unwrap(), connection.unwrap());
        assert!(connection.private_data().starts_with(b"answer"));
        let (heard, asked) = both(accepted.ended(), async { connection.disconnect() });
        heard.and(asked).unwrap();
        block_on(connection.ended()).unwrap();
    }
}

#[test]
fn futures_may_move_between_threads() {
    fn is_send(_: &impl Send) {}
    let side = Side::new(DeviceKind::Iwarp);
    let listener = Listener::bind(&side.device, LOOPBACK.into()).unwrap();
    is_send(&serve(&listener, &side));
    is_send(&Connection::open_async(&side.qp, listener.local_addr(), b"", LIMIT));
    is_send(&side.device.next_event());
}

#[test]
fn who_waits_for_a_message_hears_that_the_peer_has_gone() {
    for kind in BOTH {
        let (near, far) = (Side::new(kind), Side::new(kind));
        let listener = Listener::bind(&far.device, LOOPBACK.into()).unwrap();
        let leave = async { serve(&listener, &far).await?.disconnect() };
        let asked = crate::cm_futures::ask(&near.device, listener.local_addr());
        let (left, asked) = both(leave, asked);
        left.unwrap();
        let error = asked.unwrap_err();
        assert!(error.to_string().contains("WrFlushErr"), "{kind:?}: {error}");
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_future_that_is_dropped_starts_no_thread_and_leaves_no_waker() {
    let side = Side::new(DeviceKind::Iwarp);
    let listener = Listener::bind(&side.device, LOOPBACK.into()).unwrap();
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let pending = || {
        let mut accept = Box::pin(listener.accept_async());
        assert!(accept.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        accept
    };
    let futures: Vec<_> = (0..500).map(|_| pending()).collect();
    // Other tests of this process start threads too, but not that many.
    assert!(threads() < 250, "{}", threads());
    drop(futures);
    drop(waker);
    assert_eq!(Arc::strong_count(&count), 1);
}

#[test]
fn a_silent_peer_is_given_up_in_time() {
    let side = Side::new(DeviceKind::Iwarp);
    // It takes the stream and never answers the Request.
    let silent = std::net::TcpListener::bind(SocketAddr::from(LOOPBACK)).unwrap();
    let to = silent.local_addr().unwrap();
    let limit = Duration::from_millis(200);
    let error = block_on(Connection::open_async(&side.qp, to, b"", limit)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { after, .. } if after == limit), "{error}");
}

#[test]
fn a_device_tells_of_a_queue_that_overflowed() {
    let side = Side::new(DeviceKind::Roce);
    let small = side.device.completion_queue(1).unwrap();
    let options = side.qp.options().clone().recv_cq(&small);
    let far = side.domain.queue_pair(options).unwrap();
    let near = Side::new(DeviceKind::Roce);
    near.qp.connect_to(HERE, far.address(HERE)).unwrap();
    far.connect_to(HERE, near.qp.address(HERE)).unwrap();
    let memory = side.memory(&[0; 4]);
    (0..3).for_each(|id| far.recv(id, &memory.whole().unwrap()).unwrap());
    let nothing = side.device.wait_event(Duration::from_millis(1)).unwrap_err();
    assert!(matches!(nothing, Error::TimedOut { .. }), "{nothing}");
    for id in 0..3 {
        near.qp.post(id, Work::send_inline(b"x")).unwrap();
    }
    let overflow = block_on(async {
        loop {
            let event = side.device.next_event().await.unwrap();
            if event.object == Some(small.object_id()) {
                break event;
            }
        }
    });
    assert_eq!(overflow.kind, AsyncKind::CqErr);
}

#[test]
fn the_end_of_one_queue_pair_keeps_the_events_of_another() {
    let side = Side::new(DeviceKind::Iwarp);
    let cq = side.device.completion_queue(16).unwrap();
    let another = || side.domain.queue_pair(QueuePairOptions::reliable(&cq)).unwrap();
    assert_ne!(another().object_id(), another().object_id());
    assert_ne!(cq.object_id(), side.cq.object_id());
    let (far, other) = (Side::new(DeviceKind::Iwarp), another());
    side.connect(&far);
    far.connect(&side);
    // A message that finds no room fails the queue pair, which is told.
    let small = side.memory(&[0; 2]);
    side.qp.recv(1, &small.whole().unwrap()).unwrap();
    far.qp.post(2, Work::send_inline(b"too long")).unwrap();
    assert!(side.next().ok().is_err());
    drop(other);
    let event = side.device.wait_event(LIMIT).unwrap();
    assert_eq!(event.object, Some(side.qp.object_id()), "{event:?}");
}
