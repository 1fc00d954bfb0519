//! Queue pairs for unreliable datagrams with their sockets: [`UdQp`] does what is the same on any
//! network.
//!
//! What arrives while no receive is posted stays with the socket, as if it were still on its way; a
//! full socket loses it.

mod policy;

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

use policy::{HostPolicy, answer_dropped};
use weft_fault::Way;
use weft_net::buffers::Buffer;
use weft_net::tcp;
use weft_net::udp::{BUNDLE_OCTETS, Bundle, Port};
use weft_os::clock;
use weft_reactor::{Interest, Source, Token};
use weft_rnic::wire::capability::Capabilities;
use weft_rnic::{Batch, Event, Sending, UdConfig, UdQp, Written};
use weft_verbs::{Misuse, Qp as VerbsQp, Wake};

use crate::device_kind::Personality;
use crate::drive::{Drive, Notices, Turn, todo};
use crate::faults::Wire;
use crate::host::Host;
use crate::qp::Qp;
use crate::tally::Work;

/// Bundles received in one go at most, so that one queue pair does not starve the others.
const RECEIVES_MAX: usize = 16;
/// Bundles of an earlier life of the queue pair that are thrown away.
const STALE_MAX: usize = 4096;

impl Qp {
    /// What arrives is taken from now on.
    pub(crate) fn open_for_datagrams(&self) -> Result<(), Misuse> {
        let Some(port) = self.port() else {
            return Err(Misuse::Unsupported("queue pairs without a port"));
        };
        let (qp, waker) = (Arc::clone(self.inner()), self.cell.waker());
        let host = Arc::clone(self.cell.host());
        self.cell.hold(Box::new(Mailbox::new(host, qp, Arc::clone(port), waker, None)));
        Ok(())
    }
}

/// A queue pair and its socket.
pub(crate) struct Mailbox {
    host: Arc<Host>,
    ud: UdQp,
    port: Arc<Port>,
    token: Option<Token>,
    /// Is woken when a receive is posted.
    waker: Weak<dyn Wake>,
    /// It will be: datagrams wait for one.
    waits: bool,
    /// What was received, in the room of the buffer, and how many octets of it are delivered.
    arrived: Option<(Buffer, Bundle, usize)>,
    watched: Interest,
    turn: Turn,
    closed: bool,
    wire: Option<Box<Wire<()>>>,
}

impl Mailbox {
    /// With a `group` it only receives, what comes to that.
    pub fn new(
        host: Arc<Host>,
        qp: Arc<VerbsQp>,
        port: Arc<Port>,
        waker: Weak<dyn Wake>,
        group: Option<IpAddr>,
    ) -> Self {
        let secrecy = host.secrecy();
        let config = UdConfig {
            port: port.number(),
            group,
            seals: secrecy.letters(group.is_some()),
            protection: secrecy.protection(),
            policy: Box::new(HostPolicy {
                host: Arc::clone(&host),
                groups_limited: port.limit_groups(secrecy.group_hops()),
            }),
            screened: !secrecy.is_clear_text_kept() || port.screen(),
        };
        let mut scratch = Buffer::take();
        for _ in 0..STALE_MAX {
            if port.receive(&mut scratch.room()[..BUNDLE_OCTETS], None).is_none() {
                break;
            }
        }
        scratch.put();
        Self {
            host,
            ud: UdQp::new(qp, config),
            port,
            token: None,
            waker,
            waits: false,
            arrived: None,
            watched: Interest::READ,
            turn: Turn::default(),
            closed: false,
            wire: None,
        }
    }

    /// The time of day, if anything is sealed by it.
    fn seal_time_ns(&self) -> u64 {
        if self.ud.is_sealed() { clock::time_of_day_ns() } else { 0 }
    }

    /// Delivers what has arrived to the receives that are posted; whether anything was there.
    fn receive(&mut self) -> bool {
        let mut received = false;
        for _ in 0..RECEIVES_MAX {
            self.deliver();
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
    fn deliver(&mut self) {
        if self.waits {
            return;
        }
        let now_ns = self.seal_time_ns();
        while let Some((mut buffer, bundle, done)) = self.arrived.take() {
            if done >= bundle.octets {
                buffer.put();
                return;
            }
            let end = (done + bundle.each).min(bundle.octets);
            let datagram = &mut buffer.room()[done..end];
            let consumed = self.ud.receive(now_ns, &bundle.route, datagram);
            self.arrived = Some((buffer, bundle, done + consumed));
            self.take_events();
            if consumed == 0 && !self.ud.qp().await_recv(Weak::clone(&self.waker)) {
                self.waits = true;
                return;
            }
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.ud.poll_event() {
            match event {
                Event::Dropped(dropped) => answer_dropped(&self.host, &self.port, &dropped),
                Event::Notice { notice, from } => self.host.secrecy().report_notice(notice, from),
                Event::Established(_) | Event::Ended { .. } => {}
            }
        }
    }

    /// Sends what is posted, burst by burst.
    fn transmit(&mut self) {
        let (port, wire) = (&self.port, &mut self.wire);
        let mut alone = false;
        let write = |batch: &Batch<'_>| {
            let Some(wire) = wire else { return send(port, batch, &mut alone) };
            match batch.lengths.first() {
                Some(length) if wire.loses(Way::Out) => Written::Octets((*length).into()),
                _ => port.send_first(batch, None),
            }
        };
        let outcome = self.ud.poll_transmit(clock::time_of_day_ns, write);
        self.turn.blocked = outcome == Sending::Blocked;
    }

    fn watch(&mut self) {
        let read = !self.waits;
        let interest = match self.turn.leased {
            true => Interest::NONE,
            false => Interest { read, write: self.turn.blocked },
        };
        if interest != self.watched
            && let Some(token) = self.token
        {
            self.watched = interest;
            self.host.reactor().modify(token, interest);
        }
    }
}

/// Sends as much of a burst as one call takes. Datagrams that are longer than the path takes are
/// not sent together, which is tried once for each burst; `alone` is what came of that.
fn send(port: &Port, batch: &Batch<'_>, alone: &mut bool) -> Written {
    if *alone && batch.written > 0 {
        return port.send_first(batch, None);
    }
    let written = port.send(batch, None);
    let first = batch.lengths.first().map_or(0, |first| usize::from(*first));
    *alone = matches!(written, Written::Octets(octets) if octets <= first);
    written
}

/// Takes out of a bundle what a bad wire loses. What it changes fails UDP's checksum.
fn lose_some(wire: &mut Wire<()>, octets: &mut [u8], bundle: &mut Bundle) {
    let mut kept = 0;
    let mut at = 0;
    while at < octets.len() {
        let end = (at + bundle.each).min(octets.len());
        if !wire.loses(Way::In) && !wire.spoil(&mut octets[at..end].to_vec()) {
            octets.copy_within(at..end, kept);
            kept += end - at;
        }
        at = end;
    }
    bundle.octets = kept;
}

impl Drive for Mailbox {
    fn register(&mut self, source: Arc<dyn Source>) {
        self.token = Some(self.host.reactor().add(self.port.as_fd(), Interest::READ, source));
    }

    fn capabilities(&self) -> Option<Capabilities> {
        Some(self.ud.capabilities())
    }

    fn qp(&self) -> &Arc<VerbsQp> {
        self.ud.qp()
    }

    fn spoil(&mut self, number: u32) {
        self.wire = Wire::of(self.host.faults(), number);
    }

    fn lose_peer(&mut self) {
        if let Some(wire) = &mut self.wire {
            wire.cut();
        }
    }

    fn work_done(&self) -> (Personality, Work) {
        let (sends, stats) = (self.ud.group().is_none(), self.ud.stats());
        let operations = if sends { self.ud.qp().sq().succeeded() } else { 0 };
        let (octets_out, octets_in) = (stats.octets_out, stats.octets_in);
        (Personality::Roce, Work { operations, octets_out, octets_in, ..Work::default() })
    }

    fn turn(&mut self) -> &mut Turn {
        &mut self.turn
    }

    fn is_over(&self) -> bool {
        self.closed
    }

    fn look(&self) -> u8 {
        let receive = if self.waits { 0 } else { todo::RECEIVE };
        match () {
            () if self.closed => 0,
            () if !self.turn.blocked => receive,
            () if tcp::ready(self.port.as_fd()).write => receive | todo::SEND | todo::WRITABLE,
            () => receive,
        }
    }

    fn has_arrivals(&self) -> bool {
        !self.waits && tcp::ready(self.port.as_fd()).read
    }

    fn work(&mut self, work: u8, _now: Instant) {
        if self.closed {
            return;
        }
        if work & todo::POSTED != 0 {
            self.waits = false;
        }
        if work & (todo::RECEIVE | todo::POSTED) != 0 {
            self.receive();
        }
        let open = !self.turn.blocked || work & todo::WRITABLE != 0;
        if open && work & (todo::SEND | todo::WRITABLE) != 0 {
            self.transmit();
        }
    }

    fn finds_nothing(&mut self, _now: Instant) -> bool {
        !self.receive() && !self.closed
    }

    fn disconnect(&mut self) {
        self.transmit();
        self.closed = true;
    }

    fn abandon(&mut self) {
        self.closed = true;
    }

    fn conclude(&mut self, _now: Instant, _this: &Weak<dyn Source>) -> Notices {
        let mut notices = Notices::default();
        if self.closed {
            notices.finished = self.token.take();
        } else {
            self.watch();
        }
        notices
    }

    fn flush_at_exit(&mut self, until: Instant) {
        self.transmit();
        while self.turn.blocked && clock::now() < until {
            tcp::wait(self.port.as_fd(), true);
            self.transmit();
        }
    }
}
