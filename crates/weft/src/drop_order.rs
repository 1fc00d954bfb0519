//! Whatever the order in which handles are dropped, while data flows: nothing hangs, and nothing is
//! left of what they stood for.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use weft_os::{clock, random};
use weft_verbs::Access;

use crate::{
    CompletionQueue, Connection, Device, DeviceKind, Listener, LocalHost, ProtectionDomain,
    QueuePair, QueuePairOptions, Work,
};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LIMIT: Duration = Duration::from_secs(20);
/// Orders that are tried on each device.
const ORDERS: u64 = 40;

/// Numbers that are the same for the same seed (xorshift64*).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

/// Handles, and how many of the objects they stand for there still are.
#[derive(Default)]
struct Set {
    handles: Vec<Box<dyn Any>>,
    objects: Vec<Weak<dyn Any>>,
}

impl Set {
    fn hold(&mut self, handle: impl Any) {
        self.handles.push(Box::new(handle));
    }

    fn watch<T: Any>(&mut self, object: &Arc<T>) {
        let object: Weak<T> = Arc::downgrade(object);
        self.objects.push(object);
    }

    fn drop_in_any_order(&mut self, chance: &mut Chance) {
        while !self.handles.is_empty() {
            let at = chance.below(self.handles.len());
            drop(self.handles.swap_remove(at));
        }
    }

    fn left(&self) -> usize {
        self.objects.iter().filter(|object| object.strong_count() > 0).count()
    }
}

/// A queue pair with requests of every kind, some of which never complete.
fn busy(
    set: &mut Set,
    domain: &ProtectionDomain,
    cqs: [&CompletionQueue; 2],
    is_shared: bool,
) -> QueuePair {
    let srq = domain.shared_receive_queue(8, 1).unwrap();
    let mut options = QueuePairOptions::reliable(cqs[0]);
    options.recv_cq = cqs[1].clone();
    options.srq = is_shared.then(|| srq.clone());
    let qp = domain.queue_pair(options).unwrap();
    let region = domain.register(64, Access::REMOTE).unwrap();
    let slice = region.slice(8..16).unwrap();
    for id in 0..4 {
        match is_shared {
            true => srq.recv(id, &slice).unwrap(),
            false => qp.recv(id, &region.whole().unwrap()).unwrap(),
        }
    }
    set.watch(qp.engine());
    set.watch(srq.engine());
    set.hold(region);
    set.hold(slice);
    set.hold(srq);
    qp
}

fn post(qp: &QueuePair, domain: &ProtectionDomain) {
    let region = domain.register(64, Access::empty()).unwrap();
    let whole = region.whole().unwrap();
    for id in 0..6 {
        qp.post(id, Work::send(&whole.region().slice(0..8).unwrap()).silent()).unwrap();
    }
    qp.send(6, &whole).unwrap();
}

fn fill(set: &mut Set, kind: DeviceKind, chance: &mut Chance) {
    let device = Device::open(&LocalHost::from_environment(), kind).unwrap();
    let domain = device.protection_domain();
    let (sends, receives) =
        (device.completion_queue(64).unwrap(), device.completion_queue(64).unwrap());
    let cqs = [&sends, &receives];
    let near = busy(set, &domain, cqs, false);
    let far = busy(set, &domain, cqs, true);
    near.connect_to(HERE, far.address(HERE)).unwrap();
    far.connect_to(HERE, near.address(HERE)).unwrap();
    post(&near, &domain);

    let listener = Listener::bind(&device, (HERE, 0).into()).unwrap();
    let to = listener.local_addr();
    let [calling, called] = [(); 2].map(|()| busy(set, &domain, cqs, chance.below(2) == 0));
    let caller = calling.clone();
    let client = thread::spawn(move || Connection::open(&caller, to, b"", LIMIT).unwrap());
    let accepted = listener.accept().unwrap().accept(&called, b"").unwrap();
    set.hold(client.join().unwrap());
    set.hold(accepted);
    post(&calling, &domain);

    for _ in 0..chance.below(4) {
        let _some = receives.poll().unwrap();
    }
    let mut next = Box::pin(sends.next());
    let _early = next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    set.watch(sends.engine());
    set.watch(receives.engine());
    set.watch(domain.pd());
    set.watch(device.context());
    set.hold(next);
    for qp in [near, far, calling, called] {
        set.hold(qp);
    }
    set.hold(listener);
    set.hold(sends);
    set.hold(receives);
    set.hold(domain);
    set.hold(device);
}

#[test]
fn handles_may_be_dropped_in_any_order_while_data_flows() {
    let seed = std::env::var("WEFT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| random::random().into());
    println!("WEFT_SEED={seed}");
    for order in 0..ORDERS {
        for kind in [DeviceKind::Iwarp, DeviceKind::Roce] {
            let mut chance = Chance(seed.wrapping_add(order).max(1));
            let mut set = Set::default();
            fill(&mut set, kind, &mut chance);
            assert_eq!(set.left(), set.objects.len());
            set.drop_in_any_order(&mut chance);
            let start = clock::now();
            // A thread of the engine may just be at work on one of them.
            while set.left() > 0 && start.elapsed() < LIMIT {
                thread::yield_now();
            }
            assert_eq!(set.left(), 0, "{kind:?}, order {order} of seed {seed}");
        }
    }
}
