//! Two queue pairs of one process, connected over loopback.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use weft_host::mpa::{Agreed, MpaRole, Rtr};
use weft_host::{Context, DeviceKind, Host, HostCq, HostQp, HostQpInit, LinkWatcher, Pd};
use weft_verbs::{Access, QpCap, QpType, RecvWr, SendFlags, SendOp, SendWr, Sge, Wake, Wc};

/// How long anything may take before a test gives up.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// The host of a test, as its environment says.
pub fn host() -> &'static Arc<Host> {
    static HOST: OnceLock<Arc<Host>> = OnceLock::new();
    HOST.get_or_init(Host::from_environment)
}

pub struct Silent;
impl Wake for Silent {
    fn wake(&self) {}
}

/// Counts what a connection reports.
#[derive(Default)]
pub struct Reports {
    pub established: AtomicUsize,
    over: Mutex<usize>,
    changed: Condvar,
}

impl LinkWatcher for Reports {
    fn established(&self) {
        self.established.fetch_add(1, Ordering::SeqCst);
    }
    fn disconnected(&self) {
        *self.over.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

impl Reports {
    /// Waits for the end of the connection and gives how often it was reported.
    pub fn wait_over(&self) -> usize {
        let over = self.over.lock().unwrap();
        let (over, timeout) =
            self.changed.wait_timeout_while(over, DEADLINE, |over| *over == 0).unwrap();
        assert!(!timeout.timed_out(), "the connection did not end");
        *over
    }
}

/// One side.
pub struct Side {
    pub context: Arc<Context>,
    pub pd: Arc<Pd>,
    pub cq: Arc<HostCq>,
    pub qp: Arc<HostQp>,
    pub reports: Arc<Reports>,
}

/// Memory with a key.
pub struct Memory {
    pub bytes: Vec<u8>,
    pub key: u32,
}

impl Memory {
    pub fn addr(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge { addr: self.addr() + offset as u64, length: length as u32, lkey: self.key }
    }
}

pub const ALL: Access = Access::all().difference(Access::ON_DEMAND.union(Access::ZERO_BASED));

/// What a reliable connection that completes in `cq` is made of.
pub fn reliable(pd: &Arc<Pd>, cq: &Arc<HostCq>, cap: QpCap) -> HostQpInit {
    HostQpInit {
        kind: QpType::Rc,
        pd: Arc::clone(pd),
        send_cq: Arc::clone(cq),
        recv_cq: Arc::clone(cq),
        srq: None,
        xrcd: None,
        cap,
        sq_sig_all: true,
        cookie: 2,
    }
}

impl Side {
    pub fn new() -> Self {
        Self::on(DeviceKind::Iwarp)
    }

    pub fn on(personality: DeviceKind) -> Self {
        Self::of(host(), personality)
    }

    pub fn of(host: &Arc<Host>, personality: DeviceKind) -> Self {
        let context = Context::open(host, personality, Box::new(Silent)).unwrap();
        let pd = context.alloc_pd();
        let cq = context.create_cq(4096, None, 1).unwrap();
        let cap = QpCap {
            max_send_wr: 512,
            max_recv_wr: 512,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 64,
        };
        let qp = context.create_qp(reliable(&pd, &cq, cap)).unwrap();
        Self { context, pd, cq, qp, reports: Arc::default() }
    }

    pub fn memory(&self, len: usize, fill: u8, access: Access) -> Memory {
        let bytes = vec![fill; len];
        let addr = bytes.as_ptr() as u64;
        let key = self.context.reg_mr(&self.pd, addr, len as u64, addr, access).unwrap();
        Memory { bytes, key }
    }

    pub fn attach(&self, socket: TcpStream, role: MpaRole, agreed: &Agreed) {
        let watcher = Arc::clone(&self.reports);
        self.qp.attach(socket, agreed, role, watcher).unwrap();
    }

    pub fn send(&self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        self.qp.post_send(&SendWr { wr_id, op, flags: SendFlags::SIGNALED, sges }).unwrap();
        self.qp.ring();
    }

    pub fn recv(&self, wr_id: u64, sges: &[Sge]) {
        self.qp.post_recv(&RecvWr { wr_id, sges }).unwrap();
    }

    /// Polls until `count` completions are there.
    pub fn completions(&self, count: usize) -> Vec<Wc> {
        let start = weft_os::clock::now();
        let mut all = Vec::new();
        while all.len() < count {
            let mut out = [Wc::default(); 16];
            let n = self.cq.poll(&mut out).unwrap();
            all.extend_from_slice(&out[..n]);
            assert!(start.elapsed() < DEADLINE, "{} of {count} completions: {all:?}", all.len());
        }
        all
    }
}

/// A pair of sockets.
pub fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    (near, far)
}

pub fn agreed() -> Agreed {
    Agreed { crc: true, ird: 16, ord: 16, rtr: Some(Rtr::Write), ..Agreed::default() }
}

/// Two connected sides, the initiator first.
pub fn pair() -> (Side, Side) {
    pair_with(&agreed(), &agreed())
}

pub fn pair_with(near: &Agreed, far: &Agreed) -> (Side, Side) {
    let (a, b) = (Side::new(), Side::new());
    let (near_socket, far_socket) = sockets();
    b.attach(far_socket, MpaRole::Responder, far);
    a.attach(near_socket, MpaRole::Initiator, near);
    (a, b)
}
