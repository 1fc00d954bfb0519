//! Ends of connections within this process.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use weft_rdma::{
    Access, Completion, CompletionQueue, Device, DeviceKind, LocalHost, ProtectionDomain,
    QueuePair, QueuePairOptions, Region, WcStatus,
};

/// How long anything may take before a test gives up.
pub const LIMIT: Duration = Duration::from_secs(20);
pub const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub const BOTH: [DeviceKind; 2] = [DeviceKind::Iwarp, DeviceKind::Roce];

/// A queue pair and what it stands on.
pub struct Side {
    pub device: Device,
    pub domain: ProtectionDomain,
    pub cq: CompletionQueue,
    pub qp: QueuePair,
}

impl Side {
    pub fn new(kind: DeviceKind) -> Self {
        Self::with(kind, |_, cq| QueuePairOptions::reliable(cq))
    }

    pub fn with(
        kind: DeviceKind,
        options: impl FnOnce(&ProtectionDomain, &CompletionQueue) -> QueuePairOptions,
    ) -> Self {
        Self::on(&LocalHost::from_environment(), kind, options)
    }

    /// On a host of its own.
    pub fn of(host: &LocalHost, kind: DeviceKind) -> Self {
        Self::on(host, kind, |_, cq| QueuePairOptions::reliable(cq))
    }

    fn on(
        host: &LocalHost,
        kind: DeviceKind,
        options: impl FnOnce(&ProtectionDomain, &CompletionQueue) -> QueuePairOptions,
    ) -> Self {
        let device = Device::open(host, kind).unwrap();
        let domain = device.protection_domain();
        let cq = device.completion_queue(256).unwrap();
        let qp = domain.queue_pair(options(&domain, &cq)).unwrap();
        Self { device, domain, cq, qp }
    }

    pub fn connect(&self, peer: &Self) {
        self.qp.connect_to(HERE, peer.qp.address(HERE)).unwrap();
    }

    /// Memory for which the peer has every right.
    pub fn memory(&self, bytes: &[u8]) -> Region {
        let region = self.domain.register(bytes.len(), Access::REMOTE).unwrap();
        region.write_at(0, bytes).unwrap();
        region
    }

    /// The next completion, whatever it says.
    pub fn next(&self) -> Completion {
        self.cq.wait(LIMIT).unwrap()
    }

    /// The next completion, which is that of `id` and a success.
    pub fn expect(&self, id: u64) -> Completion {
        let completion = self.next();
        assert_eq!((completion.id, completion.status), (id, WcStatus::Success), "{completion:?}");
        completion
    }
}

/// Two connected sides.
pub fn pair(kind: DeviceKind) -> (Side, Side) {
    let (a, b) = (Side::new(kind), Side::new(kind));
    a.connect(&b);
    b.connect(&a);
    (a, b)
}
