//! What reaches a Shuttle connection: by its lane, its own socket, or the socket of another one.
//!
//! What came by the lane before a datagram is taken before it.

use weft_net::buffers::Buffer;
use weft_net::udp::{BUNDLE_OCTETS, Bundle};
use weft_os::clock::{self, Moment, ns_at};
use weft_rnic::shuttle::Route;
use weft_rnic::{Conn, Input};

use super::absence::DOUBT;
use super::admission::{HelloAdmission, turn_away};
use super::lane_setup::LaneSetup;
use super::{ShuttleSocket, shuttle_of, shuttle_of_mut};
use crate::driver::cm_hook::CmHook;
use crate::driver::transport::{AckDue, Core, Step, todo};

/// Bundles received in one go at most, so that one connection does not starve the others.
const RECEIVES_MAX: usize = 16;
/// Looks in a row after which datagrams are taken to come one by one, and how often a look makes
/// sure of it.
const SINGLE_LOOKS: u32 = 4;
const WHOLE_LOOKS: u32 = 16;
/// Polls of a connection with a lane between two looks at its socket, where little arrives: each
/// costs a system call.
const LANE_POLLS: u32 = 1024;

/// Whether datagrams come one by one, as those of requests and their answers do: to find that
/// nothing is behind one costs as much as to receive it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ArrivalHabit {
    /// Looks in a row that found one at most.
    single: u32,
}

impl ArrivalHabit {
    /// Whether more than one is unlikely.
    fn is_single(self) -> bool {
        self.single >= SINGLE_LOOKS && !self.single.is_multiple_of(WHOLE_LOOKS)
    }

    /// A look has found so many bundles.
    fn note(&mut self, bundles: u32) {
        match bundles {
            0 => {}
            1 => self.single = self.single.wrapping_add(1),
            _ => self.single = 0,
        }
    }
}

/// One of the sockets of a connection.
#[derive(Clone, Copy, Debug)]
enum SocketOf {
    FirstPath,
    FurtherPaths,
}

impl ShuttleSocket {
    /// Takes what is in the lane; whether anything was new.
    pub(super) fn receive_lane(&mut self, core: &mut Core, step: &Step) -> bool {
        let waits = step.due || step.has(todo::POSTED | todo::SEND);
        let Some(link) = self.lane.link() else { return false };
        if !step.is_readable && !link.has_news() && !waits {
            return false;
        }
        self.told_at = self.told_at.max(step.now);
        let rung = link.heed_bell(step);
        let received = link.receive(core, step.now) | rung;
        if link.is_over() || link.is_abandoned() {
            // What it placed and said before it went is there now.
            link.receive(core, step.now);
            let is_broken_off = link.is_broken_off();
            self.receive_bundles(core);
            // Before its descriptor is closed: the next socket may have the same number.
            core.ignore_beside();
            self.lane = LaneSetup::None;
            match is_broken_off {
                // The peer would go on answering, and nobody would fail what the lane had.
                true => self.close(core, step.now),
                false => self.handle_lane_lost(core, step.now),
            }
            return true;
        }
        received
    }

    /// Whether the socket is to be looked at: a thread that polls a lane does so now and then.
    pub(super) fn is_due_for_socket(&mut self, core: &Core, step: &Step) -> bool {
        let polls_lane = core.schedule.leased && matches!(self.lane, LaneSetup::Open(_));
        let due = !self.counts_poll() || !polls_lane || step.due;
        if due {
            self.polls = 0;
        }
        due
    }

    /// Counts a look at the lane; whether the socket can wait for a later one.
    pub(super) fn counts_poll(&mut self) -> bool {
        self.polls += 1;
        self.polls < LANE_POLLS
    }

    /// Receives what is there; whether something was. The time is taken after each call: a process
    /// that had to wait for a processor before it would else believe in round trips shorter than
    /// the path's.
    pub(super) fn receive_bundles(&mut self, core: &mut Core) -> bool {
        self.receive_until(core, |_, _| false)
    }

    /// The same for a thread that looks again soon: it may leave what is behind a single datagram
    /// that has brought a completion.
    pub(super) fn receive_soon_again(&mut self, core: &mut Core) -> bool {
        self.receive_until(core, |arrivals, core| {
            // A thread that has slept for this goes on at once.
            core.schedule.slept_for || core.schedule.leased && arrivals.is_single()
        })
    }

    /// Receives until nothing is there, or after a single datagram that has brought a completion
    /// where that `is_enough`.
    fn receive_until(
        &mut self,
        core: &mut Core,
        is_enough: impl Fn(ArrivalHabit, &Core) -> bool,
    ) -> bool {
        let late = self.wire.is_some() && self.take_late(core, clock::now());
        // What is received stays where it is while the connection takes it.
        let mut buffer = self.buffer.take().unwrap_or_else(Buffer::take);
        self.is_emptied = true;
        let bundles = self.receive_in_turn(core, &mut buffer, is_enough);
        self.arrivals.note(bundles);
        match core.keeps_buffer() {
            true => self.buffer = Some(buffer),
            false => buffer.put(),
        }
        late || bundles > 0
    }

    /// Receives so, from both sockets in turn if there are two: what has come by one is about as
    /// old as what has come by the other. Gives the number of bundles.
    fn receive_in_turn(
        &mut self,
        core: &mut Core,
        buffer: &mut Buffer,
        is_enough: impl Fn(ArrivalHabit, &Core) -> bool,
    ) -> u32 {
        let mut may_have = [true, self.further.is_some()];
        let mut bundles = 0;
        for _ in 0..RECEIVES_MAX {
            let mut is_single = true;
            for socket in [SocketOf::FirstPath, SocketOf::FurtherPaths] {
                if !may_have[socket as usize] {
                    continue;
                }
                match self.receive_bundle(core, socket, buffer) {
                    Some(was_single) => is_single &= was_single,
                    None => {
                        may_have[socket as usize] = false;
                        continue;
                    }
                }
                bundles += 1;
            }
            if may_have == [false; 2] {
                return bundles;
            }
            if is_single && is_enough(self.arrivals, core) && core.has_completions() {
                break;
            }
        }
        self.is_emptied = false;
        bundles
    }

    /// Receives what one of the sockets has next; whether that was a single datagram.
    fn receive_bundle(
        &mut self,
        core: &mut Core,
        socket: SocketOf,
        buffer: &mut Buffer,
    ) -> Option<bool> {
        let room = &mut buffer.room()[..BUNDLE_OCTETS];
        let bundle = match socket {
            SocketOf::FirstPath => self.port.receive(room, self.own.as_ref()),
            SocketOf::FurtherPaths => self.further.as_ref()?.receive(room, None),
        }?;
        self.take_bundle(core, socket, &bundle, room);
        Some(bundle.octets <= bundle.each)
    }

    /// Takes a bundle that has arrived at one of the sockets.
    fn take_bundle(&mut self, core: &mut Core, socket: SocketOf, bundle: &Bundle, room: &mut [u8]) {
        let now = clock::now();
        // Zero where the kernel has nothing to say.
        let known = &mut self.dropped[socket as usize];
        let dropped = bundle.dropped.max(*known).wrapping_sub(*known);
        *known += dropped;
        if let (Some(shuttle), 1..) = (shuttle_of_mut(core), dropped) {
            shuttle.note_dropped(dropped);
            if let Some(moderation) = &mut self.moderation {
                moderation.note_drops(now);
            }
        }
        let arrived = now.checked_sub(bundle.waited).unwrap_or(now);
        self.absence = None;
        for datagram in room[..bundle.octets].chunks_mut(bundle.each) {
            let from = (bundle.route, bundle.marked);
            if let Some(wire) = &mut self.wire
                && !wire.passes(now, from, datagram)
            {
                continue;
            }
            if let Some(hook) = &self.hook
                && hook.is_strange(ns_at(now), bundle.route, datagram)
            {
                continue;
            }
            self.take(core, (now, arrived), from, datagram);
        }
    }

    /// Takes a datagram. A Request that the doorkeeper grants binds the queue pair; one that seems
    /// to be the peer's and cannot be granted is answered.
    fn take(
        &mut self,
        core: &mut Core,
        (now, arrived): (Moment, Moment),
        (route, marked): (Route, bool),
        bytes: &mut [u8],
    ) {
        self.has_heard = true;
        let admission = match &mut self.doorkeeper {
            Some(doorkeeper) => doorkeeper.admit(ns_at(now), route, bytes),
            None => HelloAdmission::None,
        };
        match admission {
            HelloAdmission::Granted(mut bound) => {
                // Before that of an earlier grant is closed: the next socket may have its number.
                core.ignore_beside();
                (self.further, self.dropped[1]) = (self.port.take_further(), 0);
                if let Some((ord, retry_limits)) = core.requester {
                    bound.set_ord(ord);
                    bound.set_retry_limits(retry_limits);
                }
                core.begin(Conn::Shuttle(bound));
                self.seek_lane(core);
            }
            HelloAdmission::Refused(why) if core.conn.is_none() => {
                turn_away(&self.port, &route, why, bytes);
                self.doubt.get_or_insert((now + DOUBT, why));
            }
            HelloAdmission::Refused(_) | HelloAdmission::None => {
                // What the peer wrote before it sent this comes first.
                if let Some(link) = self.lane.link() {
                    link.receive(core, now);
                    self.told_at = now;
                }
                self.told_at = arrived.max(self.told_at);
                core.handle(Input::Datagram { route, marked, bytes }, ns_at(self.told_at));
            }
        }
    }

    /// Takes what was late and is due; whether something was.
    pub(super) fn take_late(&mut self, core: &mut Core, now: Moment) -> bool {
        let mut received = false;
        while let Some(wire) = &mut self.wire
            && let Some((mut datagram, from)) = wire.line.pop(now)
        {
            received = true;
            self.take(core, (now, now), from, &mut datagram);
        }
        received
    }

    /// Takes a datagram that reached another socket.
    pub fn handle_foreign_datagram(
        &mut self,
        core: &mut Core,
        from: (Route, bool),
        bytes: &mut [u8],
    ) {
        let (route, marked) = from;
        let now = clock::now();
        core.note_stop(now);
        self.absence = None;
        if let Some(wire) = &mut self.wire
            && !wire.passes(now, from, bytes)
        {
            return;
        }
        if shuttle_of(core).is_some() {
            self.has_heard = true;
            // What waits in the connection's own socket may have come before.
            self.told_at = self.told_at.max(now);
            core.handle(Input::Datagram { route, marked, bytes }, ns_at(self.told_at));
            if core.reply == AckDue::None {
                core.reply = AckDue::Pending;
            }
            self.follow(core);
        }
    }

    /// A peer that comes from another address has the socket to itself once it is known to be
    /// there.
    pub(super) fn follow(&mut self, core: &Core) {
        let Some(shuttle) = shuttle_of(core) else { return };
        let remote = shuttle.connection().route().remote;
        if self.is_guest() && self.follows != Some(remote) {
            // Where the system refuses, the peer goes on to be heard elsewhere.
            let _connected = self.port.connect(remote);
            self.follows = Some(remote);
        }
    }

    /// Whether the connection was granted at a place that hears what comes from elsewhere.
    pub(super) fn is_guest(&self) -> bool {
        self.hook.as_ref().is_some_and(CmHook::is_guest)
    }
}
