//! One connection manager id: commands in, outcomes in, events out.

use std::collections::VecDeque;

use crate::error::{CmMisuse, Failure, rejection};
use crate::event::{CmEvent, EventKind};
use crate::param::{
    CmConvention, ConnParam, Depths, DeviceProperties, QpTerms, check_private_data, event_depth,
};
use crate::state::{CmCommand, CmState, NetworkOutcome};

/// What the caller closes after [`IdMachine::disconnect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The established link, gracefully; [`IdMachine::handle_link_down`] reports that it is done.
    Link,
    /// A connection attempt or an unanswered request: its stream is dropped.
    Attempt,
    /// Nothing: there is no connection left.
    Nothing,
}

/// The state machine of one id.
#[derive(Debug)]
pub struct IdMachine {
    state: CmState,
    device: DeviceProperties,
    /// Depths wanted by this side, then those negotiated.
    own: Depths,
    /// Depths of the peer's request, from this side's view: its ORD is the inbound depth here.
    peer: Depths,
    events: VecDeque<CmEvent>,
}

impl IdMachine {
    /// An id of the application's making, on this device unless [`IdMachine::settle`] finds
    /// another.
    pub fn new(device: DeviceProperties) -> IdMachine {
        IdMachine::in_state(CmState::Idle, device, device.depths)
    }

    /// An id made by a listener for a peer's request, and the event that announces it.
    ///
    /// `peer` is in the peer's own words: its inbound and its outbound depth.
    pub fn from_request(
        device: DeviceProperties,
        peer: Depths,
        private_data: Vec<u8>,
        terms: QpTerms,
    ) -> IdMachine {
        let wanted = peer.crossed().within(device.depths);
        let mut id = IdMachine::in_state(CmState::ConnectRequest, device, wanted);
        id.events.push_back(CmEvent {
            responder_resources: event_depth(wanted.ird),
            initiator_depth: event_depth(wanted.ord),
            private_data,
            terms,
            ..CmEvent::plain(EventKind::ConnectRequest)
        });
        id
    }

    fn in_state(state: CmState, device: DeviceProperties, peer: Depths) -> IdMachine {
        IdMachine { state, device, own: device.depths, peer, events: VecDeque::new() }
    }

    /// Sets the device that reaches the destination.
    pub fn settle(&mut self, device: DeviceProperties) {
        if !self.state.has_peer() {
            (self.device, self.own) = (device, device.depths);
        }
    }

    /// Current state.
    pub fn state(&self) -> CmState {
        self.state
    }

    /// The depths in force: those asked for, and once connected those agreed.
    pub fn depths(&self) -> Depths {
        self.own
    }

    /// Whether a command fits now.
    ///
    /// # Errors
    /// [`CmMisuse::WrongState`].
    pub fn may(&self, command: CmCommand) -> Result<(), CmMisuse> {
        self.state.command(command).map(drop)
    }

    fn enter(&mut self, command: CmCommand) -> Result<(), CmMisuse> {
        self.state = self.state.command(command)?;
        Ok(())
    }

    /// The id has a local address now.
    ///
    /// # Errors
    /// [`CmMisuse::WrongState`] unless the id is idle.
    pub fn bind(&mut self) -> Result<(), CmMisuse> {
        self.enter(CmCommand::Bind)
    }

    /// The id listens now.
    ///
    /// # Errors
    /// [`CmMisuse::WrongState`] unless the id is idle or bound.
    pub fn listen(&mut self) -> Result<(), CmMisuse> {
        self.enter(CmCommand::Listen)
    }

    /// A destination is being looked up; [`IdMachine::handle_addr`] has the outcome.
    ///
    /// # Errors
    /// [`CmMisuse::WrongState`] unless the id is idle or bound.
    pub fn resolve_addr(&mut self) -> Result<(), CmMisuse> {
        self.enter(CmCommand::ResolveAddr)
    }

    /// The route is being looked up; [`IdMachine::handle_route`] has the outcome.
    ///
    /// # Errors
    /// [`CmMisuse::WrongState`] unless the address is resolved.
    pub fn resolve_route(&mut self) -> Result<(), CmMisuse> {
        self.enter(CmCommand::ResolveRoute)
    }

    /// Starts to connect with `param`; returns the depths to offer.
    ///
    /// # Errors
    /// [`CmMisuse::WrongState`] unless the route is resolved, and what [`ConnParam::check`] finds.
    pub fn connect(&mut self, param: &ConnParam) -> Result<Depths, CmMisuse> {
        self.may(CmCommand::Connect)?;
        param.check(self.device.depths)?;
        self.own = param.depths(self.device.depths);
        self.enter(CmCommand::Connect)?;
        Ok(self.own)
    }

    /// Says yes with `param`; returns the depths to offer. "All" means what the peer asked for, as
    /// far as the device has it.
    ///
    /// # Errors
    /// [`CmMisuse::WrongState`] unless a request is unanswered, and what [`ConnParam::check`]
    /// finds.
    pub fn accept(&mut self, param: &ConnParam) -> Result<Depths, CmMisuse> {
        self.may(CmCommand::Accept)?;
        param.check(self.device.depths)?;
        self.own = param.depths(self.peer);
        self.enter(CmCommand::Accept)?;
        Ok(self.own)
    }

    /// Rejects the request of a peer.
    ///
    /// # Errors
    /// [`CmMisuse::WrongState`] unless a request is unanswered; [`CmMisuse::PrivateDataTooLong`].
    pub fn reject(&mut self, private_data: &[u8]) -> Result<(), CmMisuse> {
        self.may(CmCommand::Reject)?;
        check_private_data(private_data)?;
        self.enter(CmCommand::Reject)
    }

    /// Ends the connection, or gives up the attempt; returns what there is to close.
    ///
    /// # Errors
    /// [`CmMisuse::WrongState`] if the id never had a peer.
    pub fn disconnect(&mut self) -> Result<Close, CmMisuse> {
        let before = self.state;
        self.enter(CmCommand::Disconnect)?;
        match before {
            CmState::Connected | CmState::Answered => Ok(Close::Link),
            CmState::Connecting | CmState::Accepting => {
                self.report_failure(Failure::Aborted);
                Ok(Close::Attempt)
            }
            CmState::ConnectRequest => Ok(Close::Attempt),
            _ => Ok(Close::Nothing),
        }
    }

    /// Confirms a connection whose queue pair the application has connected, after
    /// [`EventKind::ConnectResponse`]. There is no event.
    ///
    /// # Errors
    /// [`CmMisuse::WrongState`] at any other time; always over iWARP, which establishes by itself.
    pub fn establish(&mut self) -> Result<(), CmMisuse> {
        self.enter(CmCommand::Establish)
    }

    /// Takes note of an event of the queue pair, of which there is no use here.
    ///
    /// # Errors
    /// [`CmMisuse::WrongState`] if the id never had a peer.
    pub fn notify(&mut self) -> Result<(), CmMisuse> {
        self.enter(CmCommand::Notify)
    }

    /// Handles the result of the address lookup.
    pub fn handle_addr(&mut self, result: Result<(), Failure>) {
        match result {
            Ok(()) => {
                self.report(NetworkOutcome::AddrFound, CmEvent::plain(EventKind::AddrResolved))
            }
            Err(why) => {
                self.report(
                    NetworkOutcome::AddrMissing,
                    CmEvent::failed(EventKind::AddrError, why),
                );
            }
        }
    }

    /// Handles the result of the route lookup.
    pub fn handle_route(&mut self, result: Result<(), Failure>) {
        match result {
            Ok(()) => {
                self.report(NetworkOutcome::RouteFound, CmEvent::plain(EventKind::RouteResolved))
            }
            Err(why) => {
                self.report(
                    NetworkOutcome::RouteMissing,
                    CmEvent::failed(EventKind::RouteError, why),
                );
            }
        }
    }

    /// Both sides have agreed on these depths. The event follows with
    /// [`IdMachine::handle_link_up`].
    pub fn handle_agreed(&mut self, depths: Depths) {
        if matches!(self.state, CmState::Connecting | CmState::Accepting) {
            self.own = depths;
        }
    }

    /// The link is up: the peer's yes has arrived (with its words), or its first message has.
    pub fn handle_link_up(&mut self, private_data: Vec<u8>, terms: QpTerms) {
        let event = CmEvent { private_data, terms, ..self.answer(EventKind::Established) };
        self.report(NetworkOutcome::LinkUp, event);
    }

    /// The peer's yes has arrived, for a queue pair that the application connects by itself.
    pub fn handle_response(&mut self, private_data: Vec<u8>, terms: QpTerms) {
        let event = CmEvent { private_data, terms, ..self.answer(EventKind::ConnectResponse) };
        self.report(NetworkOutcome::Answered, event);
    }

    fn answer(&self, kind: EventKind) -> CmEvent {
        let (ird, ord) = (event_depth(self.own.ird), event_depth(self.own.ord));
        let (responder_resources, initiator_depth) = match (self.device.manner, self.state) {
            // The other way round than in a request, as the kernel's iWARP manager has it.
            (CmConvention::Iwarp, _) => (ord, ird),
            // What confirms an accept says nothing.
            (_, CmState::Accepting) => (0, 0),
            _ => (ird, ord),
        };
        CmEvent { responder_resources, initiator_depth, ..CmEvent::plain(kind) }
    }

    /// Handles a rejection by the peer.
    pub fn handle_rejected(&mut self, peer: Depths, private_data: Vec<u8>) {
        let depths = self.device.depths;
        let (kind, status) = rejection(self.device.manner);
        let event = CmEvent {
            status,
            responder_resources: event_depth(peer.ord.min(depths.ird)),
            initiator_depth: event_depth(peer.ird.min(depths.ord)),
            private_data,
            ..CmEvent::plain(kind)
        };
        self.report(NetworkOutcome::LinkFailed, event);
    }

    /// The attempt, this side's or the peer's that was accepted, came to nothing.
    pub fn handle_failed(&mut self, why: Failure) {
        self.report(NetworkOutcome::LinkFailed, CmEvent::unconnected(self.device.manner, why));
    }

    /// The link is down, whoever ended it.
    pub fn handle_link_down(&mut self) {
        let event = match self.state {
            // Gone before it was established: that is no disconnection.
            CmState::Connecting | CmState::Accepting => {
                CmEvent::failed(EventKind::ConnectError, Failure::Reset)
            }
            _ => CmEvent::plain(EventKind::Disconnected),
        };
        self.report(NetworkOutcome::LinkDown, event);
    }

    /// The device is removed; whether the id was on it. It can only be destroyed then.
    pub fn handle_device_gone(&mut self) -> bool {
        let before = self.state;
        self.report(NetworkOutcome::DeviceGone, CmEvent::plain(EventKind::DeviceRemoval));
        self.state != before
    }

    /// The queue pair may be used again, a while after the end. Told in InfiniBand's manner only.
    pub fn handle_timewait_exit(&mut self) {
        if self.state == CmState::Closed && self.device.manner == CmConvention::InfiniBand {
            self.events.push_back(CmEvent::plain(EventKind::TimewaitExit));
        }
    }

    /// The next event for the application.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    fn report(&mut self, outcome: NetworkOutcome, event: CmEvent) {
        if let Some(next) = self.state.outcome(outcome) {
            self.state = next;
            self.events.push_back(event);
        }
    }

    fn report_failure(&mut self, why: Failure) {
        self.events.push_back(CmEvent::failed(why.event_kind(), why));
    }
}

#[cfg(test)]
mod tests;
