//! Wakers are called without any lock that the end of a handle takes: each of these ends one.
//!
//! A waker that waits for another thread, which ends a handle meanwhile, needs the same.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use weft_sync::Mutex;
use weft_verbs::Access;

use crate::wait::block_on;
use crate::{
    CompletionQueue, Connection, Device, DeviceKind, HostOptions, Incoming, Listener, LocalHost,
    ProtectionDomain, QueuePair, QueuePairOptions, RegionSlice, Work,
};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LIMIT: Duration = Duration::from_secs(20);
const BOTH: [DeviceKind; 2] = [DeviceKind::Iwarp, DeviceKind::Roce];

/// Drops what it has on the thread that calls it, and says that it is gone.
struct DropAtWake {
    victim: Mutex<Option<Box<dyn Send>>>,
    done: Sender<()>,
}

impl Wake for DropAtWake {
    fn wake(self: Arc<Self>) {
        let victim = self.victim.lock().take();
        if victim.is_some() {
            drop(victim);
            let _nobody_waits = self.done.send(());
        }
    }
}

impl DropAtWake {
    fn new() -> (Arc<Self>, Receiver<()>) {
        let (done, dropped) = channel();
        (Arc::new(Self { victim: Mutex::default(), done }), dropped)
    }

    /// Has this called when `future` is to be polled again.
    fn await_ready<F: Future + ?Sized>(self: &Arc<Self>, future: Pin<&mut F>) {
        let waker = Waker::from(Arc::clone(self));
        assert!(future.poll(&mut Context::from_waker(&waker)).is_pending());
    }

    fn drop_later(&self, victim: impl Send + 'static) {
        *self.victim.lock() = Some(Box::new(victim));
    }
}

fn has_come(said: &Receiver<()>) {
    said.recv_timeout(LIMIT).expect("the waker waits for no lock");
}

/// A queue pair and what it stands on.
struct Side {
    device: Device,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
}

impl Side {
    fn new(host: &LocalHost, kind: DeviceKind) -> Self {
        let device = Device::open(host, kind).unwrap();
        let (domain, cq) = (device.protection_domain(), device.completion_queue(16).unwrap());
        let qp = domain.queue_pair(QueuePairOptions::reliable(&cq)).unwrap();
        Self { device, domain, cq, qp }
    }

    fn room(&self, len: usize) -> RegionSlice {
        self.domain.register(len, Access::empty()).unwrap().whole().unwrap()
    }
}

/// Two sides on a host of their own: a thread that hangs is not one that other tests need.
fn two(kind: DeviceKind) -> [Side; 2] {
    let host = LocalHost::new(HostOptions::default());
    [(); 2].map(|()| Side::new(&host, kind))
}

/// Connects both by their addresses.
fn exchange(near: &QueuePair, far: &QueuePair) {
    near.connect_to(HERE, far.address(HERE)).unwrap();
    far.connect_to(HERE, near.address(HERE)).unwrap();
}

fn listen(side: &Side) -> Listener {
    Listener::bind(&side.device, (HERE, 0).into()).unwrap()
}

/// Both ends of a connection of two queue pairs.
fn connect(near: &Side, far: &Side) -> [Connection; 2] {
    let (listener, qp) = (listen(far), near.qp.clone());
    let to = listener.local_addr();
    let client = thread::spawn(move || Connection::open(&qp, to, b"", LIMIT).unwrap());
    let accepted = listener.accept().unwrap().accept(&far.qp, b"").unwrap();
    [client.join().unwrap(), accepted]
}

#[test]
fn a_waker_of_requests_may_end_the_listener() {
    for kind in BOTH {
        let [near, far] = two(kind);
        let (waker, dropped) = DropAtWake::new();
        let listener = listen(&far);
        let to = listener.local_addr();
        let mut accept = Box::pin(async move { listener.accept_async().await });
        waker.await_ready(accept.as_mut());
        waker.drop_later(accept);
        let client = thread::spawn(move || Connection::open(&near.qp, to, b"", LIMIT));
        has_come(&dropped);
        client.join().unwrap().unwrap_err();
    }
}

#[test]
fn a_waker_of_the_end_may_end_the_handles_of_the_connection() {
    for kind in BOTH {
        let [near, far] = two(kind);
        let (waker, dropped) = DropAtWake::new();
        let [connection, peer] = connect(&near, &far);
        let mut ended = Box::pin(async move { connection.ended().await });
        waker.await_ready(ended.as_mut());
        waker.drop_later((ended, near.qp));
        peer.disconnect().unwrap();
        has_come(&dropped);
    }
}

/// Polls `open` until the peer has been asked.
fn ask(open: Pin<&mut (impl Future + ?Sized)>, listener: &Listener) -> Incoming {
    let (mut open, mut accept) = (open, pin!(listener.accept_async()));
    block_on(std::future::poll_fn(|context| {
        assert!(open.as_mut().poll(context).is_pending());
        match accept.as_mut().poll(context) {
            Poll::Ready(incoming) => Poll::Ready(incoming.unwrap()),
            Poll::Pending => Poll::Pending,
        }
    }))
}

#[test]
fn a_waker_of_the_answer_may_give_the_attempt_up() {
    for kind in BOTH {
        let [near, far] = two(kind);
        let (waker, dropped) = DropAtWake::new();
        let listener = listen(&far);
        let (to, qp) = (listener.local_addr(), near.qp.clone());
        let mut open = Box::pin(async move { Connection::open_async(&qp, to, b"", LIMIT).await });
        let incoming = ask(open.as_mut(), &listener);
        waker.await_ready(open.as_mut());
        waker.drop_later((open, near.qp));
        // It is the answer that matters, and not what becomes of it.
        let _gone = incoming.accept(&far.qp, b"");
        has_come(&dropped);
    }
}

#[test]
fn a_waker_of_device_events_may_end_the_queue_pair() {
    let [side, far] = two(DeviceKind::Roce);
    let (waker, dropped) = DropAtWake::new();
    exchange(&side.qp, &far.qp);
    side.qp.recv(1, &side.room(2)).unwrap();
    let mut next = Box::pin(side.device.next_event());
    waker.await_ready(next.as_mut());
    waker.drop_later(side.qp);
    far.qp.post(2, Work::send_inline(b"too long")).unwrap();
    has_come(&dropped);
}

#[test]
fn a_waker_of_completions_may_end_a_queue_pair_that_is_just_given_its_stream() {
    // One end calls, and the other one is called.
    for at in [0, 1] {
        // The first request fails as soon as there is a connection.
        let host = LocalHost::with_faults("qp-error:after=0");
        let mut sides = [(); 2].map(|()| Side::new(&host, DeviceKind::Iwarp));
        sides.swap(0, at);
        let [side, far] = sides;
        let (waker, dropped) = DropAtWake::new();
        let mut next = side.cq.next();
        waker.await_ready(Pin::new(&mut next));
        side.qp.connect_to(HERE, far.qp.address(HERE)).unwrap();
        side.qp.post(1, Work::send_inline(b"x")).unwrap();
        let to = side.qp.address(HERE);
        waker.drop_later(side.qp);
        far.qp.connect_to(HERE, to).unwrap();
        has_come(&dropped);
    }
}

#[test]
fn a_waker_may_end_a_queue_pair_whose_completions_are_just_taken() {
    // Who polls the queue that fails so has a request of another queue flushed.
    let host = LocalHost::with_faults("cq-overflow:after=1");
    let [near, far] = [(); 2].map(|()| Side::new(&host, DeviceKind::Roce));
    let receives = far.device.completion_queue(16).unwrap();
    let options = far.qp.options().clone().recv_cq(&receives);
    let qp = far.domain.queue_pair(options).unwrap();
    exchange(&near.qp, &qp);
    let inbox = far.room(8);
    (0..2).for_each(|id| qp.recv(id, &inbox).unwrap());
    qp.post(2, Work::send_inline(b"no receive")).unwrap();
    let (waker, dropped) = DropAtWake::new();
    let mut next = far.cq.next();
    waker.await_ready(Pin::new(&mut next));
    waker.drop_later(qp);
    (0..2).for_each(|id| near.qp.post(id, Work::send_inline(b"x")).unwrap());
    thread::spawn(move || while receives.poll().is_ok() {});
    has_come(&dropped);
}

/// Takes all completions on the thread that calls it.
struct PollAtWake(CompletionQueue, Sender<()>);

impl Wake for PollAtWake {
    fn wake(self: Arc<Self>) {
        while self.0.poll().unwrap().is_some() {}
        let _nobody_waits = self.1.send(());
    }
}

#[test]
fn a_waker_may_poll_while_another_request_is_posted() {
    for kind in BOTH {
        let [side, _far] = two(kind);
        // What is posted now completes within the call.
        side.qp.fail().unwrap();
        let (inbox, cq) = (side.room(4), side.cq.clone());
        let (done, polled) = channel();
        let waker = Waker::from(Arc::new(PollAtWake(cq.clone(), done)));
        thread::spawn(move || {
            for is_receive in [true, false] {
                let mut next = cq.next();
                assert!(Pin::new(&mut next).poll(&mut Context::from_waker(&waker)).is_pending());
                match is_receive {
                    true => side.qp.recv(1, &inbox).unwrap(),
                    false => side.qp.post(2, Work::send_inline(b"x")).unwrap(),
                }
            }
        });
        (0..2).for_each(|_| has_come(&polled));
    }
}
