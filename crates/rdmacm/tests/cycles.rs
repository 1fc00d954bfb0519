//! Connections come and go, and leave nothing behind: neither descriptors nor memory, not even
//! for a while. A process of its own, because it counts what the whole process has.

#[path = "cm/common.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod common;
#[path = "../../host/tests/common/mod.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod side;

use std::net::Ipv4Addr;
use std::sync::Arc;

use common::*;
use weft_host::{CmTransport, DeviceKind};
use weft_rdmacm::{CmId, EventChannel, EventKind, PortSpace};
use weft_verbs::{AddressVector, QpAttr, QpAttrMask, QpState, SendOp};

/// Descriptors that a connection on its way in or out may have, at both ends together, and those
/// of the ended ones whose peer may not know yet: of all connections of the process.
const DESCRIPTORS_MAX: usize = 64;
/// How much the process may grow: less than what 100 connections take.
const GROWTH_OCTETS_MAX: usize = 12 << 20;
/// How often it is told on each way what the process has.
const TOLD: u32 = 10;
/// Cycles after which the allocator has the memory that it keeps.
const WARM_UP: u32 = 64;

/// How the two ends find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By rdma-cm.
    Manager,
    /// By numbers that they have told each other, without rdma-cm.
    Exchange,
}

#[test]
fn cycles_leave_nothing_behind() {
    for_each_way(1000);
}

/// `make soak-connections`.
#[test]
#[ignore = "a hundred thousand connections on each way take minutes"]
fn a_hundred_thousand_cycles_leave_nothing_behind() {
    for_each_way(100_000);
}

fn for_each_way(times: u32) {
    // The engine starts a thread with each of the first queue pairs.
    let mut peers = Peers::new(DeviceKind::Iwarp, Way::Exchange);
    (0..WARM_UP).for_each(|_| peers.cycle());
    for device in [DeviceKind::Roce, DeviceKind::Iwarp] {
        for way in [Way::Manager, Way::Exchange] {
            let mut peers = Peers::new(device, way);
            let before = (descriptors(), resident_octets());
            let mut most = 0;
            for cycle in 1..=times {
                peers.cycle();
                let open = descriptors();
                most = most.max(open);
                if cycle % (times / TOLD) == 0 {
                    let octets = resident_octets();
                    println!("{device:?} {way:?} {cycle}: {open} descriptors, {octets} octets");
                }
            }
            let grown = resident_octets().saturating_sub(before.1);
            println!("{device:?} {way:?}: {} to {most} descriptors, {grown} octets more", before.0);
            assert!(most <= before.0 + DESCRIPTORS_MAX, "{device:?} {way:?}: {before:?} {most}");
            assert!(grown <= GROWTH_OCTETS_MAX, "{device:?} {way:?}: {grown} octets more");
        }
    }
}

/// Two ends that connect again and again.
struct Peers {
    device: DeviceKind,
    /// Who listens, where rdma-cm connects.
    listener: Option<(Arc<EventChannel>, Arc<CmId>)>,
    /// Which end goes first.
    turn: bool,
}

impl Peers {
    fn new(device: DeviceKind, way: Way) -> Self {
        let listener = (way == Way::Manager).then(|| {
            let channel = EventChannel::new(side::host()).unwrap();
            let id = CmId::new(Arc::clone(&channel), PortSpace::Tcp, transport(device));
            id.bind(loopback()).unwrap();
            id.listen(0).unwrap();
            (channel, id)
        });
        Self { device, listener, turn: false }
    }

    fn cycle(&mut self) {
        self.turn = !self.turn;
        let (near, far) = (Side::on(self.device), Side::on(self.device));
        match &self.listener {
            Some((channel, id)) => self.manage(channel, id, &near, &far),
            None => {
                connect(&near, self.device, far.qp.num());
                connect(&far, self.device, near.qp.num());
                self.part(&near, &far);
            }
        }
    }

    fn manage(&self, events: &Arc<EventChannel>, listener: &CmId, near: &Side, far: &Side) {
        for side in [near, far] {
            side.qp.modify(&attr(QpState::Init, 0), init_mask(self.device)).unwrap();
        }
        let channel = EventChannel::new(side::host()).unwrap();
        let id = CmId::new(Arc::clone(&channel), PortSpace::Tcp, transport(self.device));
        id.resolve_addr(None, listener.local_addr().unwrap(), DEADLINE).unwrap();
        expect(&channel, EventKind::AddrResolved);
        id.resolve_route().unwrap();
        expect(&channel, EventKind::RouteResolved);
        id.connect(&params(b""), &near.qp).unwrap();
        let accepted = expect(events, EventKind::ConnectRequest).id;
        accepted.accept(&params(b""), &far.qp).unwrap();
        expect(&channel, EventKind::Established);
        expect(events, EventKind::Established);
        self.talk(near, far);
        let (first, second) = if self.turn { (&id, &accepted) } else { (&accepted, &id) };
        first.disconnect().unwrap();
        expect(&channel, EventKind::Disconnected);
        expect(events, EventKind::Disconnected);
        second.disconnect().unwrap();
        accepted.destroy();
        id.destroy();
        near.qp.destroy().unwrap();
        far.qp.destroy().unwrap();
    }

    fn part(&self, near: &Side, far: &Side) {
        self.talk(near, far);
        let (first, second) = if self.turn { (near, far) } else { (far, near) };
        first.qp.destroy().unwrap();
        second.qp.destroy().unwrap();
    }

    /// Sends something, so that the connection is at work.
    fn talk(&self, near: &Side, far: &Side) {
        let (from, to) = (near.memory(64, 7, side::ALL), far.memory(64, 0, side::ALL));
        far.recv(1, &[to.sge(0, 64)]);
        near.send(2, SendOp::Send, &[from.sge(0, 64)]);
        assert!(near.completions(1)[0].is_success());
        assert!(far.completions(1)[0].is_success());
        near.context.dereg_mr(from.key).unwrap();
        far.context.dereg_mr(to.key).unwrap();
    }
}

fn transport(device: DeviceKind) -> CmTransport {
    match device {
        DeviceKind::Roce => CmTransport::Shuttle,
        DeviceKind::Iwarp => CmTransport::Iwarp,
    }
}

fn init_mask(device: DeviceKind) -> QpAttrMask {
    match device {
        DeviceKind::Roce => {
            let bare = QpAttrMask::STATE | QpAttrMask::ACCESS_FLAGS;
            bare | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT
        }
        DeviceKind::Iwarp => QpAttrMask::STATE | QpAttrMask::ACCESS_FLAGS,
    }
}

fn attr(state: QpState, peer: u32) -> QpAttr {
    let here = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    QpAttr {
        state,
        access: side::ALL,
        port: 1,
        path: AddressVector {
            sgid: here,
            dgid: here,
            is_global: true,
            port: 1,
            ..Default::default()
        },
        path_mtu: 5,
        dest_qp_num: peer,
        max_dest_rd_atomic: 4,
        max_rd_atomic: 4,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 12,
        ..QpAttr::default()
    }
}

/// Walks a queue pair to RTS; its peer has the number `peer`.
fn connect(side: &Side, device: DeviceKind, peer: u32) {
    use QpAttrMask as Mask;
    let reached = Mask::STATE | Mask::AV | Mask::DEST_QPN | Mask::MAX_DEST_RD_ATOMIC;
    let (rtr, rts) = match device {
        DeviceKind::Iwarp => (reached, Mask::STATE),
        DeviceKind::Roce => {
            let retries = Mask::TIMEOUT | Mask::RETRY_CNT | Mask::RNR_RETRY;
            let rts = Mask::STATE | Mask::SQ_PSN | retries | Mask::MAX_QP_RD_ATOMIC;
            (reached | Mask::PATH_MTU | Mask::RQ_PSN | Mask::MIN_RNR_TIMER, rts)
        }
    };
    let steps = [(QpState::Init, init_mask(device)), (QpState::Rtr, rtr), (QpState::Rts, rts)];
    for (state, mask) in steps {
        side.qp.modify(&attr(state, peer), mask).unwrap();
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// What the process has of the machine's memory.
fn resident_octets() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kilobytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes << 10
}
