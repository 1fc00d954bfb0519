//! A box on the way between two ends: it passes on what it gets under another address, as one does
//! that translates addresses, and does to it what it is told.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a thread waits before it looks whether something has changed.
const LOOK: Duration = Duration::from_millis(5);
/// Datagrams that are remembered.
const RECORD_MAX: usize = 20_000;
const OCTETS_MAX: usize = 65_536;

/// The box. Dropping it ends it.
pub struct Relay {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    front: UdpSocket,
    /// The socket that the far end sees, which changes.
    back: Mutex<Arc<UdpSocket>>,
    near: SocketAddr,
    far: SocketAddr,
    over: AtomicBool,
    broken: AtomicBool,
    /// What is lost, and what is kept back behind the next one, of 1000 datagrams.
    lost: AtomicU64,
    late: AtomicU64,
    recording: AtomicBool,
    record: Mutex<[Vec<Vec<u8>>; 2]>,
    passes: Mutex<Filter>,
}

/// Whether a datagram passes on its way outward, or inward.
type Filter = Box<dyn Fn(bool, &[u8]) -> bool + Send>;

impl Relay {
    /// What comes to `front` is of `near` and for `far`.
    pub fn new(front: UdpSocket, near: SocketAddr, far: SocketAddr) -> Self {
        let shared = Arc::new(Shared {
            front,
            back: Mutex::new(Arc::new(socket((Ipv4Addr::LOCALHOST, 0).into()))),
            near,
            far,
            over: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            late: AtomicU64::new(0),
            recording: AtomicBool::new(false),
            record: Mutex::default(),
            passes: Mutex::new(Box::new(|_, _| true)),
        });
        let threads = [true, false].map(|outward| {
            let (shared, random) = (Arc::clone(&shared), Random::new());
            thread::spawn(move || shared.pass(outward, random))
        });
        Self { shared, threads: threads.into() }
    }

    /// The far end sees another port from now on.
    pub fn rebind(&self) {
        *self.shared.back.lock().unwrap() = Arc::new(socket((Ipv4Addr::LOCALHOST, 0).into()));
    }

    /// Nothing passes while it is broken.
    pub fn set_broken(&self, broken: bool) {
        self.shared.broken.store(broken, Ordering::SeqCst);
    }

    /// Loses and delays so many of 1000 datagrams.
    pub fn spoil(&self, lost: u64, late: u64) {
        self.shared.lost.store(lost, Ordering::SeqCst);
        self.shared.late.store(late, Ordering::SeqCst);
    }

    /// Lets only pass what `passes` says, of each way.
    pub fn filter(&self, passes: impl Fn(bool, &[u8]) -> bool + Send + 'static) {
        *self.shared.passes.lock().unwrap() = Box::new(passes);
    }

    /// Remembers what passes from now on, or comes to be held back.
    pub fn record(&self) {
        self.shared.recording.store(true, Ordering::SeqCst);
    }

    /// Sends all that was remembered once more, both ways; gives how many datagrams that were.
    pub fn replay(&self) -> usize {
        self.shared.recording.store(false, Ordering::SeqCst);
        let record = std::mem::take(&mut *self.shared.record.lock().unwrap());
        for (outward, datagrams) in [true, false].into_iter().zip(&record) {
            datagrams.iter().for_each(|datagram| self.shared.send(outward, datagram));
        }
        record.iter().map(Vec::len).sum()
    }

    /// Sends `datagram` to an end as if the other one had sent it.
    pub fn inject(&self, outward: bool, datagram: &[u8]) {
        self.shared.send(outward, datagram);
    }

    /// Some of what was remembered of one way.
    pub fn recorded(&self, outward: bool) -> Vec<Vec<u8>> {
        self.shared.record.lock().unwrap()[usize::from(!outward)].clone()
    }
}

impl Shared {
    fn pass(&self, outward: bool, mut random: Random) {
        let mut room = vec![0; OCTETS_MAX];
        let mut kept: Option<Vec<u8>> = None;
        while !self.over.load(Ordering::SeqCst) {
            let back = Arc::clone(&self.back.lock().unwrap());
            let socket = if outward { &self.front } else { &*back };
            let received = socket.recv(&mut room);
            let delayed = kept.take();
            if let Ok(octets) = received
                && !self.broken.load(Ordering::SeqCst)
            {
                let datagram = &room[..octets];
                self.note(outward, datagram);
                if !self.passes.lock().unwrap()(outward, datagram) {
                    // It is lost.
                } else if random.one_in(self.late.load(Ordering::SeqCst)) && delayed.is_none() {
                    kept = Some(datagram.to_vec());
                } else if !random.one_in(self.lost.load(Ordering::SeqCst)) {
                    self.send(outward, datagram);
                }
            }
            if let Some(datagram) = delayed {
                self.send(outward, &datagram);
            }
        }
    }

    fn note(&self, outward: bool, datagram: &[u8]) {
        if self.recording.load(Ordering::SeqCst) {
            let record = &mut self.record.lock().unwrap()[usize::from(!outward)];
            if record.len() < RECORD_MAX {
                record.push(datagram.to_vec());
            }
        }
    }

    /// What cannot be sent is lost, as anywhere.
    fn send(&self, outward: bool, datagram: &[u8]) {
        let _ = match outward {
            true => self.back.lock().unwrap().send_to(datagram, self.far),
            false => self.front.send_to(datagram, self.near),
        };
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// A socket of a box.
pub fn socket(at: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(at).expect("loopback has every address, and the port is free");
    socket.set_read_timeout(Some(LOOK)).unwrap();
    socket
}

/// A cheap source of numbers, the same for the same seed.
pub struct Random(u64);

impl Random {
    /// From `WEFT_SEED`, or a fresh seed; it is printed.
    pub fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let given = std::env::var("WEFT_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
        println!("WEFT_SEED={seed}");
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Whether a thing happens that does in `per_mille` of 1000 cases.
    pub fn one_in(&mut self, per_mille: u64) -> bool {
        self.next() % 1000 < per_mille
    }
}
