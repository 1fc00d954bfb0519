//! The socket of a queue pair for unreliable datagrams; [`weft_rnic::UdQp`] does what is the same
//! on any network.
//!
//! What arrives while no receive is posted stays with the socket, as if it were still on its way; a
//! full socket loses it.

mod policy;

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use weft_fault::FaultDirection;
use weft_net::buffers::Buffer;
use weft_net::tcp;
use weft_net::udp::{BUNDLE_OCTETS, Bundle, UdpPort};
use weft_os::clock::{self, Moment};
use weft_rnic::{Batch, ConnEvent, Input, Sending, UdConfig, UdQp, Written};
use weft_verbs::Qp;

use policy::{HostPolicy, answer_dropped};

use super::phase::{Phase, PhaseChange};
use super::transport::{Core, Ending, ReactorWatch, Step, Transport, todo};
use super::watcher::Notices;
use crate::faults::LinkFaults;
use crate::host::Host;

/// Bundles received in one go at most, so that one queue pair does not starve the others.
const RECEIVES_MAX: usize = 16;
/// Bundles of an earlier life of the queue pair that are thrown away.
const STALE_MAX: usize = 1 << 20;

/// The socket of a queue pair for datagrams.
pub(super) struct UdSocket {
    port: Arc<UdpPort>,
    /// What was received, in the room of the buffer, and how many bytes of it are delivered.
    arrived: Option<(Buffer, Bundle, usize)>,
    wire: Option<Box<LinkFaults<()>>>,
    /// Datagrams are sealed, by the time of day.
    is_sealed: bool,
}

/// Opens `qp` for what comes to `port`. With a `group` it only receives, what comes to that.
pub(super) fn open(
    host: &Arc<Host>,
    qp: Arc<Qp>,
    port: Arc<UdpPort>,
    group: Option<IpAddr>,
) -> (UdQp, UdSocket) {
    let secrecy = host.secrecy();
    let groups_limited = port.limit_groups(secrecy.group_hops());
    let config = UdConfig {
        port: port.number(),
        group,
        seals: secrecy.sealed_datagrams(group.is_some()),
        protection: secrecy.protection(),
        policy: Box::new(HostPolicy { host: Arc::clone(host), groups_limited }),
        screened: !secrecy.is_clear_text_kept() || port.screen(),
    };
    let mut scratch = Buffer::take();
    for _ in 0..STALE_MAX {
        if port.receive(&mut scratch.room()[..BUNDLE_OCTETS], None).is_none() {
            break;
        }
    }
    scratch.put();
    let is_sealed = config.seals.is_some();
    (UdQp::new(qp, config), UdSocket { port, arrived: None, wire: None, is_sealed })
}

impl UdSocket {
    /// The time of day, if anything is sealed by it.
    fn seal_time_ns(&self) -> u64 {
        if self.is_sealed { clock::time_of_day_ns() } else { 0 }
    }

    /// Delivers what has arrived to the receives that are posted; whether anything was there.
    fn receive_bundles(&mut self, core: &mut Core) -> bool {
        let mut received = false;
        for _ in 0..RECEIVES_MAX {
            self.deliver(core);
            if self.arrived.is_some() {
                break;
            }
            let mut buffer = Buffer::take();
            let room = &mut buffer.room()[..BUNDLE_OCTETS];
            let Some(mut bundle) = self.port.receive(room, None) else {
                buffer.put();
                break;
            };
            if let Some(wire) = &mut self.wire {
                lose_some(wire, &mut room[..bundle.octets], &mut bundle);
            }
            self.arrived = Some((buffer, bundle, 0));
            received = true;
        }
        received
    }

    /// Delivers the datagrams of the bundle at hand, as far as there are receives.
    fn deliver(&mut self, core: &mut Core) {
        if core.waits_for_recv() || self.arrived.is_none() {
            return;
        }
        let now_ns = self.seal_time_ns();
        while let Some((mut buffer, bundle, done)) = self.arrived.take() {
            if done >= bundle.octets {
                buffer.put();
                return;
            }
            let end = (done + bundle.each).min(bundle.octets);
            let (Bundle { route, marked, .. }, bytes) = (bundle, &mut buffer.room()[done..end]);
            let consumed = core.handle(Input::Datagram { route, marked, bytes }, now_ns);
            self.arrived = Some((buffer, bundle, done + consumed));
            if consumed == 0 && !core.await_recv() {
                return;
            }
        }
    }

    /// Tells what was dropped, here and to who has sent it.
    fn take_events(&self, core: &mut Core) {
        while let Some(event) = core.poll_event(|| None) {
            match event {
                ConnEvent::Dropped(dropped) => answer_dropped(&core.host, &self.port, &dropped),
                ConnEvent::Notice { notice, from } => {
                    core.host.secrecy().report_notice(notice, from)
                }
                ConnEvent::Established(_)
                | ConnEvent::PathFound { .. }
                | ConnEvent::Ended { .. } => {}
            }
        }
    }

    /// Sends what is posted, burst by burst.
    fn send(&mut self, core: &mut Core) {
        let (port, wire) = (&self.port, &mut self.wire);
        let mut alone = false;
        let write = |batch: &Batch<'_>| {
            let Some(wire) = wire else { return send(port, batch, &mut alone) };
            match batch.lengths.first() {
                Some(length) if wire.loses(FaultDirection::Out) => {
                    Written::Octets((*length).into())
                }
                _ => port.send_first(batch, None),
            }
        };
        let Some(conn) = &mut core.conn else { return };
        let outcome = conn.poll_transmit(clock::time_of_day_ns, write);
        core.schedule.blocked = outcome == Sending::Blocked;
    }
}

/// Sends as much of a burst as one call takes. Datagrams that are longer than the path takes are
/// not sent together, which is tried once for each burst; `alone` is what came of that.
fn send(port: &UdpPort, batch: &Batch<'_>, alone: &mut bool) -> Written {
    if *alone && batch.written > 0 {
        return port.send_first(batch, None);
    }
    let written = port.send(batch, None);
    let first = batch.lengths.first().map_or(0, |first| usize::from(*first));
    *alone = matches!(written, Written::Octets(octets) if octets <= first);
    written
}

/// Takes out of a bundle what a bad wire loses. What it changes fails UDP's checksum.
fn lose_some(wire: &mut LinkFaults<()>, octets: &mut [u8], bundle: &mut Bundle) {
    let mut kept = 0;
    let mut at = 0;
    while at < octets.len() {
        let end = (at + bundle.each).min(octets.len());
        if !wire.loses(FaultDirection::In) && !wire.spoil(&mut octets[at..end].to_vec()) {
            octets.copy_within(at..end, kept);
            kept += end - at;
        }
        at = end;
    }
    bundle.octets = kept;
}

impl Transport for UdSocket {
    fn fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }

    fn inject_faults(&mut self, core: &Core, number: u32) {
        self.wire = core.link_faults(number);
    }

    fn receive(&mut self, core: &mut Core, step: &Step) -> bool {
        step.has(todo::RECEIVE | todo::POSTED) && self.receive_bundles(core)
    }

    fn advance(&mut self, core: &mut Core, _: &Step) {
        self.take_events(core);
    }

    /// Nothing that arrives has anything to be sent.
    fn transmit(&mut self, core: &mut Core, step: &Step) {
        if step.has(todo::SEND | todo::WRITABLE) {
            self.send(core);
        }
    }

    fn end(&mut self, core: &mut Core, how: Ending) {
        match how {
            Ending::PeerLost => {
                if let Some(wire) = &mut self.wire {
                    wire.cut();
                }
                return;
            }
            Ending::Orderly if core.phase != Phase::Closed => self.send(core),
            Ending::Orderly | Ending::Abandoned | Ending::Retired => {}
        }
        core.handle(Input::Close, 0);
        core.phase = core.phase.after(PhaseChange::Gone);
    }

    fn finish_step(&mut self, core: &mut Core, _: Moment, _: &mut Notices) -> ReactorWatch {
        let (read, write) = (!core.waits_for_recv(), core.schedule.blocked);
        ReactorWatch { read, moderated: false, write_beside: false, write, timer: None }
    }

    fn flush_at_exit(&mut self, core: &mut Core, until: Moment) -> bool {
        self.send(core);
        while core.schedule.blocked && clock::now() < until {
            tcp::wait(self.port.as_fd(), true);
            self.send(core);
        }
        !core.schedule.blocked
    }
}
