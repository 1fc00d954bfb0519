//! A completion queue serves each of many connections, polled or slept on, and whichever others
//! come and go.
#![allow(dead_code)]

mod common;

use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use common::{DEADLINE, Reports, Side, agreed, reliable, sockets};
use weft_host::mpa::MpaRole;
use weft_host::{Context, DeviceKind, HostCq, HostQp, Pd, after_lock};
use weft_verbs::{
    AddressVector, CompChannel, QpAttr, QpAttrMask, QpCap, QpState, RecvWr, SendFlags, SendOp,
    SendWr, Wake, Wc,
};

/// More than a queue looks at one by one, and than it keeps active.
const CONNECTIONS: usize = 40;
const MESSAGES: usize = 400;

/// Numbers from a seed, by xorshift.
struct Random(u64);

impl Random {
    /// From `WEFT_SEED`, or a fresh seed; it is printed.
    fn new() -> Self {
        let given = std::env::var("WEFT_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed: u64 = given.unwrap_or_else(|| RandomState::new().hash_one(0));
        println!("WEFT_SEED={seed}");
        Self(seed | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit
    }
}

/// Counts events.
#[derive(Clone, Default)]
struct Bell(Arc<(Mutex<usize>, Condvar)>);

impl Wake for Bell {
    fn wake(&self) {
        *self.0.0.lock().unwrap() += 1;
        self.0.1.notify_all();
    }
}

impl Bell {
    fn wait(&self) {
        let count = self.0.0.lock().unwrap();
        let waited = self.0.1.wait_timeout_while(count, DEADLINE, |count| *count == 0).unwrap();
        assert!(!waited.1.timed_out(), "an event is lost");
        *{ waited.0 } -= 1;
    }
}

const KINDS: [DeviceKind; 2] = [DeviceKind::Iwarp, DeviceKind::Roce];

/// Connects two queue pairs of adapters by their numbers.
fn walk(qp: &HostQp, peer: &HostQp) {
    use QpAttrMask as Mask;
    let gid = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    let path =
        AddressVector { sgid: gid, dgid: gid, is_global: true, port: 1, ..Default::default() };
    let attr = |state| QpAttr {
        state,
        port: 1,
        path,
        path_mtu: 5,
        dest_qp_num: peer.num(),
        max_dest_rd_atomic: 1,
        max_rd_atomic: 1,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 12,
        ..QpAttr::default()
    };
    let init = Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::ACCESS_FLAGS;
    let connected = Mask::STATE | Mask::AV | Mask::PATH_MTU | Mask::DEST_QPN | Mask::RQ_PSN;
    let rtr = connected | Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER;
    let retries = Mask::TIMEOUT | Mask::RETRY_CNT | Mask::RNR_RETRY;
    let rts = Mask::STATE | Mask::SQ_PSN | retries | Mask::MAX_QP_RD_ATOMIC;
    for (state, mask) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
        qp.modify(&attr(state), mask).unwrap();
    }
}

/// Queue pairs that complete in one queue, and their peers.
struct Server {
    kind: DeviceKind,
    context: Arc<Context>,
    pd: Arc<Pd>,
    cq: Arc<HostCq>,
    channel: Arc<CompChannel>,
    bell: Bell,
    qps: Vec<Arc<HostQp>>,
    peers: Vec<Side>,
}

impl Server {
    fn new(kind: DeviceKind, count: usize) -> Self {
        let context = Context::open(common::host(), kind, Box::new(common::Silent));
        let (context, bell) = (context.unwrap(), Bell::default());
        let channel = CompChannel::new(after_lock(Box::new(bell.clone())));
        let cq = context.create_cq(4096, Some(Arc::clone(&channel)), 1).unwrap();
        let (pd, qps, peers) = (context.alloc_pd(), Vec::new(), Vec::new());
        let mut server = Self { kind, context, pd, cq, channel, bell, qps, peers };
        (0..count).for_each(|_| server.accept());
        server
    }

    /// One more connection, whose queue pair has a receive.
    fn accept(&mut self) {
        let cap = QpCap { max_send_wr: 8, max_recv_wr: 8, ..QpCap::default() };
        let qp = self.context.create_qp(reliable(&self.pd, &self.cq, cap)).unwrap();
        let peer = Side::on(self.kind);
        if self.kind == DeviceKind::Iwarp {
            let (near, far) = sockets();
            qp.attach(near, &agreed(), MpaRole::Responder, Arc::<Reports>::default()).unwrap();
            peer.attach(far, MpaRole::Initiator, &agreed());
        } else {
            walk(&qp, &peer.qp);
            walk(&peer.qp, &qp);
        }
        qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).unwrap();
        self.qps.push(qp);
        self.peers.push(peer);
    }

    /// The next completion, polled for.
    fn poll(&self) -> Wc {
        let (start, mut out) = (weft_os::clock::now(), [Wc::default()]);
        while self.cq.poll(&mut out).unwrap() == 0 {
            assert!(start.elapsed() < DEADLINE, "nothing comes");
        }
        out[0]
    }

    /// The next completion, slept for: armed, polled once more, then waited.
    fn sleep(&self) -> Wc {
        let mut out = [Wc::default()];
        loop {
            self.cq.req_notify(false);
            if self.cq.poll(&mut out).unwrap() > 0 {
                return out[0];
            }
            self.bell.wait();
            self.channel.pop();
            if self.cq.poll(&mut out).unwrap() > 0 {
                return out[0];
            }
        }
    }

    /// Takes a message of `at`'s peer, and has a receive for the next.
    fn take(&self, at: usize, slept: bool) {
        let wc = if slept { self.sleep() } else { self.poll() };
        assert_eq!((wc.status, wc.qp_num), (0, self.qps[at].num()));
        self.qps[at].post_recv(&RecvWr { wr_id: 0, sges: &[] }).unwrap();
    }
}

#[test]
fn a_message_of_any_connection_is_found_by_who_polls_and_wakes_who_sleeps() {
    KINDS.into_iter().for_each(serve);
}

fn serve(kind: DeviceKind) {
    let (server, mut random) = (Server::new(kind, CONNECTIONS), Random::new());
    for wr_id in 0..MESSAGES as u64 {
        let (at, slept) = (random.below(CONNECTIONS), random.below(2) == 0);
        // The peer may be early or late.
        thread::scope(|scope| {
            scope.spawn(|| {
                server.peers[at].send(wr_id, SendOp::Send, &[]);
                server.peers[at].completions(1);
            });
            server.take(at, slept);
        });
    }
}

#[test]
fn connections_that_go_leave_the_others_served() {
    KINDS.into_iter().for_each(replace);
}

fn replace(kind: DeviceKind) {
    let (mut server, mut random) = (Server::new(kind, CONNECTIONS), Random::new());
    for round in 0..CONNECTIONS {
        let gone = random.below(server.qps.len());
        // It may have left something behind.
        server.peers[gone].send(0, SendOp::Send, &[]);
        server.qps.swap_remove(gone).destroy().unwrap();
        server.peers.swap_remove(gone).qp.destroy().unwrap();
        server.accept();
        let at = random.below(server.qps.len());
        server.peers[at].send(1, SendOp::Send, &[]);
        server.take(at, round % 2 == 0);
    }
    for qp in &server.qps {
        qp.destroy().unwrap();
    }
    server.cq.destroy().unwrap();
}

#[test]
fn all_that_is_posted_on_many_connections_between_two_polls_is_sent() {
    KINDS.into_iter().for_each(post);
}

fn post(kind: DeviceKind) {
    let server = Server::new(kind, CONNECTIONS);
    for round in 0..20 {
        // Enough in a row on each that doorbells are batched.
        for qp in &server.qps {
            for wr_id in 0..1 + round % 6 {
                let (op, flags) = (SendOp::Send, SendFlags::SIGNALED);
                let wr = SendWr { wr_id, op, flags, sges: &[] };
                qp.post_send(&wr).unwrap();
                qp.ring();
            }
        }
        for peer in &server.peers {
            (0..1 + round % 6).for_each(|wr_id| peer.recv(wr_id, &[]));
        }
        for _ in 0..CONNECTIONS as u64 * (1 + round % 6) {
            assert_eq!(server.poll().status, 0);
        }
        for peer in &server.peers {
            peer.completions(1 + round as usize % 6);
        }
    }
}
