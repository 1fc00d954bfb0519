//! Threads that bring, end and use the connection of one queue pair at the same time.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Duration;

use weft_reactor::{Leased, Readiness};
use weft_rnic::mpa::{Agreed, MpaRole};
use weft_verbs::{AddressVector, QpAttr, QpAttrMask, QpCap, QpType, Wake};

use super::*;
use crate::{Context, DeviceKind, HostCq, HostQp, HostQpInit, HostSetup};

struct Silent;
impl Wake for Silent {
    fn wake(&self) {}
}

struct Nobody;
impl LinkWatcher for Nobody {
    fn established(&self) {}
    fn disconnected(&self) {}
}

fn context() -> Arc<Context> {
    let host = Host::new(HostSetup::default());
    Context::open(&host, DeviceKind::Iwarp, Box::new(Silent)).unwrap()
}

fn queue_pair(context: &Context) -> Arc<HostQp> {
    let cq = || context.create_cq(1, None, 0).unwrap();
    queue_pair_with(context, cq(), cq())
}

fn queue_pair_with(context: &Context, send_cq: Arc<HostCq>, recv_cq: Arc<HostCq>) -> Arc<HostQp> {
    let qp = context.create_qp(HostQpInit {
        kind: QpType::Rc,
        pd: context.alloc_pd(),
        send_cq,
        recv_cq,
        srq: None,
        xrcd: None,
        cap: QpCap::default(),
        sq_sig_all: false,
        cookie: 0,
    });
    qp.unwrap()
}

/// Both ends of a stream.
fn stream() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nonblocking(true).unwrap();
    let (far, _) = listener.accept().unwrap();
    far.set_nonblocking(true).unwrap();
    (near, far)
}

fn attach(qp: &HostQp, stream: TcpStream, watcher: Arc<dyn LinkWatcher>) {
    // Who was destroyed before takes nothing.
    let _taken = qp.attach(stream, &Agreed::default(), MpaRole::Initiator, watcher);
}

fn is_listed(slot: &ConnSlot) -> bool {
    let listed = slot.host.local().connections.all();
    listed.iter().any(|other| std::ptr::addr_eq(Arc::as_ptr(other), std::ptr::from_ref(slot)))
}

/// Lets another thread go on for a while that differs from round to round.
fn pause(round: usize) {
    (0..round % 64).for_each(|_| thread::yield_now());
}

/// Does `act` while another thread brings a connection to `qp`. Gives the peer's end of it.
fn while_brought(qp: &HostQp, round: usize, act: impl FnOnce()) -> TcpStream {
    let (near, far) = stream();
    let start = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            attach(qp, near, Arc::new(Nobody));
        });
        start.wait();
        pause(round / 4 % 8);
        act();
    });
    far
}

#[test]
fn a_lease_stays_with_the_thread_that_is_at_work() {
    let cell = Arc::clone(&queue_pair(&context()).slot);
    let long_after = clock::now() + Duration::from_secs(1);
    assert!(cell.lease.claim());
    assert!(!cell.reclaim(long_after), "it was taken since the last look");
    let at_work = cell.slot.lock();
    assert!(!cell.reclaim(long_after), "somebody works on it now");
    drop(at_work);
    cell.lease.note_work();
    assert!(!cell.reclaim(long_after), "somebody did since the last look");
    assert!(cell.reclaim(long_after), "nobody did since then");
}

/// Notes whether the connection that it hears of was there.
struct Early {
    slot: Arc<ConnSlot>,
    missed: Arc<AtomicUsize>,
}

impl LinkWatcher for Early {
    fn established(&self) {
        self.missed.fetch_add(usize::from(!self.slot.is_attached()), Ordering::Relaxed);
    }
    fn disconnected(&self) {}
}

/// Another thread drives the connection as soon as it is there, as the reactor does, and it ends at
/// once.
#[test]
fn a_connection_that_ends_while_it_is_brought_was_there_and_is_not_listed() {
    let context = context();
    let missed = Arc::new(AtomicUsize::new(0));
    for round in 0..200 {
        let qp = queue_pair(&context);
        let (slot, over) = (Arc::clone(&qp.slot), AtomicBool::new(false));
        let (near, far) = stream();
        drop(far);
        let watcher = Early { slot: Arc::clone(&slot), missed: Arc::clone(&missed) };
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    slot.ready(Readiness { read: true, write: false });
                    thread::yield_now();
                }
            });
            pause(round);
            attach(&qp, near, Arc::new(watcher));
            over.store(true, Ordering::Release);
        });
        slot.settle();
        assert!(slot.inspect(|driver| driver.is_none()), "its peer has gone");
        assert!(!is_listed(&slot), "round {round}: nothing is left of it");
        qp.destroy().unwrap();
    }
    assert_eq!(missed.load(Ordering::Relaxed), 0, "it was told of before it was there");
}

#[test]
fn a_connection_that_is_brought_to_a_queue_pair_which_is_being_destroyed_ends() {
    let context = context();
    for round in 0..500 {
        let qp = queue_pair(&context);
        let _far = while_brought(&qp, round, || {
            qp.destroy().unwrap();
        });
        let is_open = qp.slot.inspect(|driver| driver.is_some_and(Driver::is_open));
        assert!(!is_open, "round {round}: its connection lives on");
    }
}

/// Has the application set the state of a queue pair while a connection is brought to it; gives
/// the state that it has then, and whether the connection is open.
fn set_while_brought(state: QpState) -> impl Iterator<Item = (QpState, bool)> {
    let context = context();
    (0..500).map(move |round| {
        let qp = queue_pair(&context);
        let attr = QpAttr { state, ..QpAttr::default() };
        let _far = while_brought(&qp, round, || qp.modify(&attr, QpAttrMask::STATE).unwrap());
        let is_open = qp.slot.inspect(|driver| driver.is_some_and(Driver::is_open));
        let state = qp.state();
        qp.destroy().unwrap();
        (state, is_open)
    })
}

#[test]
fn a_queue_pair_that_the_application_fails_while_a_connection_is_brought_stays_failed() {
    assert!(set_while_brought(QpState::Err).all(|after| after == (QpState::Err, false)));
}

#[test]
fn a_queue_pair_that_the_application_resets_while_a_connection_is_brought_stays_reset() {
    assert!(set_while_brought(QpState::Reset).all(|after| after == (QpState::Reset, false)));
}

/// Names `peer` to `qp`, which connects by itself then.
fn name_peer(qp: &HostQp, peer: &HostQp) {
    let gid = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    let path =
        AddressVector { sgid: gid, dgid: gid, is_global: true, port: 1, ..Default::default() };
    let attr = QpAttr {
        state: QpState::Rtr,
        path,
        dest_qp_num: peer.num(),
        max_dest_rd_atomic: 1,
        ..QpAttr::default()
    };
    let mask = QpAttrMask::STATE | QpAttrMask::AV | QpAttrMask::DEST_QPN;
    qp.modify(&attr, mask | QpAttrMask::MAX_DEST_RD_ATOMIC).unwrap();
}

#[test]
fn a_queue_pair_that_is_destroyed_while_the_reactor_connects_it_has_no_connection() {
    let context = context();
    for round in 0..300 {
        let qps = [queue_pair(&context), queue_pair(&context)];
        name_peer(&qps[0], &qps[1]);
        name_peer(&qps[1], &qps[0]);
        // The number of the first is the smaller one: it calls, and the other one is called.
        let (qp, peer) = (&qps[round % 2], &qps[1 - round % 2]);
        let ways = [qp, peer].map(|qp| qp.connects_by());
        pause(round / 2);
        qp.destroy().unwrap();
        peer.destroy().unwrap();
        // The reactor may still be at it.
        ways.iter().flatten().for_each(|way| {
            while way.strong_count() > 0 {
                thread::yield_now();
            }
        });
        let is_open = |qp: &HostQp| qp.slot.inspect(|driver| driver.is_some_and(Driver::is_open));
        assert!(!is_open(qp) && !is_open(peer), "round {round}: a connection lives on");
    }
}

#[test]
fn a_connection_that_is_brought_while_its_queue_joins_a_group_is_watched_with_that() {
    let context = context();
    let mut alone = 0;
    for round in 0..1000 {
        let qp = queue_pair(&context);
        let group = PollGroup::new(qp.host(), 0).unwrap();
        let _far = while_brought(&qp, round, || qp.slot.join(&group));
        let is_alone = qp.slot.inspect(|driver| driver.is_some_and(|d| !d.is_in_group()));
        alone += usize::from(is_alone);
        qp.destroy().unwrap();
    }
    assert_eq!(alone, 0, "connections that no poll of the group finds");
}

#[test]
fn a_group_keeps_no_completion_queue_whose_connections_are_gone() {
    let context = context();
    let shared = context.create_cq(1, None, 0).unwrap();
    let create = || {
        let own = context.create_cq(1, None, 0).unwrap();
        let (send_cq, recv_cq) = (Arc::clone(&shared), Arc::clone(&own));
        (own, queue_pair_with(&context, send_cq, recv_cq))
    };
    // As many as are polled together.
    let _stay: Vec<_> = (0..8).map(|_| create()).collect();
    let (own, qp) = create();
    assert!(qp.slot.group().is_some());
    let inner = Arc::downgrade(own.inner());
    qp.destroy().unwrap();
    drop(qp);
    own.destroy().unwrap();
    drop(own);
    assert_eq!(inner.strong_count(), 0);
}

#[test]
fn who_is_late_to_end_a_connection_does_not_end_the_next_one() {
    let qp = queue_pair(&context());
    let bring = || {
        let (near, far) = stream();
        let agreed = Agreed::default();
        (qp.attach(near, &agreed, MpaRole::Initiator, Arc::new(Nobody)).unwrap(), far)
    };
    let set = |state| qp.modify(&QpAttr { state, ..QpAttr::default() }, QpAttrMask::STATE).unwrap();
    let is_open = || qp.slot.inspect(|driver| driver.is_some_and(Driver::is_open));
    let (first, _far) = bring();
    set(QpState::Reset);
    set(QpState::Init);
    let (second, _far) = bring();
    qp.disconnect_only(first);
    assert!(is_open());
    qp.disconnect_only(second);
    assert!(!is_open());
}

/// Has an adapter's queue pair connect to `peer` and ready to send.
fn connect_adapter(qp: &HostQp, peer: &HostQp) {
    use QpAttrMask as Mask;
    let gid = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    let path =
        AddressVector { sgid: gid, dgid: gid, is_global: true, port: 1, ..Default::default() };
    let connected = Mask::STATE | Mask::AV | Mask::PATH_MTU | Mask::DEST_QPN | Mask::RQ_PSN;
    let retries = Mask::TIMEOUT | Mask::RETRY_CNT | Mask::RNR_RETRY;
    for (state, mask) in [
        (QpState::Init, Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::ACCESS_FLAGS),
        (QpState::Rtr, connected | Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER),
        (QpState::Rts, Mask::STATE | Mask::SQ_PSN | retries | Mask::MAX_QP_RD_ATOMIC),
    ] {
        let dest_qp_num = peer.num();
        let attr = QpAttr { state, port: 1, path, path_mtu: 5, dest_qp_num, ..QpAttr::default() };
        qp.modify(&attr, mask).unwrap();
    }
}

#[test]
fn who_ends_a_connection_waits_for_its_peer_no_longer() {
    let host = Host::new(HostSetup::default());
    let context = Context::open(&host, DeviceKind::Roce, Box::new(Silent)).unwrap();
    let [qp, silent] = [queue_pair(&context), queue_pair(&context)];
    connect_adapter(&qp, &silent);
    qp.slot.with_driver(|driver| {
        assert!(driver.awaits_peer());
        driver.disconnect();
        assert!(!driver.awaits_peer());
    });
}
