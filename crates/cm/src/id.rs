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
mod tests {
    use super::*;
    use crate::state::tests::{COMMANDS, STATES};

    const DEPTHS: Depths = Depths { ird: 32, ord: 16 };
    const DEVICE: DeviceProperties =
        DeviceProperties { depths: DEPTHS, manner: CmConvention::Iwarp };
    const ADAPTER: DeviceProperties =
        DeviceProperties { depths: DEPTHS, manner: CmConvention::InfiniBand };
    const PEER: Depths = Depths { ird: 4, ord: 200 };

    /// An id brought to a state by the shortest legal way, with its events read.
    fn id_in(state: CmState) -> IdMachine {
        let mut id = match state {
            CmState::ConnectRequest | CmState::Accepting => {
                IdMachine::from_request(DEVICE, PEER, b"hello".to_vec(), QpTerms::default())
            }
            _ => IdMachine::new(DEVICE),
        };
        for step in way_to(state) {
            step(&mut id);
        }
        while id.poll_event().is_some() {}
        assert_eq!(id.state(), state);
        id
    }

    fn way_to(state: CmState) -> &'static [fn(&mut IdMachine)] {
        const BIND: fn(&mut IdMachine) = |id| id.bind().unwrap();
        const LISTEN: fn(&mut IdMachine) = |id| id.listen().unwrap();
        const RESOLVE: fn(&mut IdMachine) = |id| id.resolve_addr().unwrap();
        const FOUND: fn(&mut IdMachine) = |id| id.handle_addr(Ok(()));
        const ROUTE: fn(&mut IdMachine) = |id| id.resolve_route().unwrap();
        const ROUTED: fn(&mut IdMachine) = |id| id.handle_route(Ok(()));
        const CONNECT: fn(&mut IdMachine) = |id| {
            id.connect(&ConnParam::device_max()).unwrap();
        };
        const ACCEPT: fn(&mut IdMachine) = |id| {
            id.accept(&ConnParam::device_max()).unwrap();
        };
        const ANSWER: fn(&mut IdMachine) = |id| id.handle_response(Vec::new(), QpTerms::default());
        const UP: fn(&mut IdMachine) = |id| id.handle_link_up(Vec::new(), QpTerms::default());
        const CLOSE: fn(&mut IdMachine) = |id| {
            id.disconnect().unwrap();
        };
        const DOWN: fn(&mut IdMachine) = |id| id.handle_link_down();
        match state {
            CmState::Idle | CmState::ConnectRequest => &[],
            CmState::AddrBound => &[BIND],
            CmState::Listening => &[BIND, LISTEN],
            CmState::AddrQuery => &[RESOLVE],
            CmState::AddrResolved => &[RESOLVE, FOUND],
            CmState::RouteQuery => &[RESOLVE, FOUND, ROUTE],
            CmState::RouteResolved => &[RESOLVE, FOUND, ROUTE, ROUTED],
            CmState::Connecting => &[RESOLVE, FOUND, ROUTE, ROUTED, CONNECT],
            CmState::Accepting => &[ACCEPT],
            CmState::Answered => &[RESOLVE, FOUND, ROUTE, ROUTED, CONNECT, ANSWER],
            CmState::Connected => &[RESOLVE, FOUND, ROUTE, ROUTED, CONNECT, UP],
            CmState::Disconnecting => &[RESOLVE, FOUND, ROUTE, ROUTED, CONNECT, UP, CLOSE],
            CmState::Closed => &[RESOLVE, FOUND, ROUTE, ROUTED, CONNECT, UP, CLOSE, DOWN],
        }
    }

    fn perform(id: &mut IdMachine, command: CmCommand) -> Result<(), CmMisuse> {
        match command {
            CmCommand::Bind => id.bind(),
            CmCommand::Listen => id.listen(),
            CmCommand::ResolveAddr => id.resolve_addr(),
            CmCommand::ResolveRoute => id.resolve_route(),
            CmCommand::Connect => id.connect(&ConnParam::default()).map(drop),
            CmCommand::Accept => id.accept(&ConnParam::default()).map(drop),
            CmCommand::Reject => id.reject(b"no"),
            CmCommand::Disconnect => id.disconnect().map(drop),
            CmCommand::Establish => id.establish(),
            CmCommand::Notify => id.notify(),
        }
    }

    #[test]
    fn every_command_in_every_state_works_or_changes_nothing() {
        for state in STATES {
            for command in COMMANDS {
                let mut id = id_in(state);
                let allowed = id.may(command);
                assert_eq!(perform(&mut id, command), allowed, "{command:?} in {state:?}");
                match allowed {
                    Ok(()) => assert_eq!(id.state(), state.command(command).unwrap()),
                    Err(misuse) => {
                        assert_eq!(misuse.errno(), 22);
                        assert_eq!(id.state(), state);
                        assert_eq!(id.poll_event(), None);
                    }
                }
            }
        }
    }

    #[test]
    fn a_device_that_goes_is_told_to_every_id_on_it_once_and_ends_it() {
        for state in STATES {
            let mut id = id_in(state);
            let was_on_it = !matches!(state, CmState::Idle | CmState::Closed);
            assert_eq!(id.handle_device_gone(), was_on_it, "{state:?}");
            let told = id.poll_event().map(|event| event.kind);
            assert_eq!(told, was_on_it.then_some(EventKind::DeviceRemoval), "{state:?}");
            id.handle_link_down();
            assert!(!id.handle_device_gone() && id.poll_event().is_none(), "{state:?}");
        }
    }

    #[test]
    fn bad_parameters_change_nothing() {
        let bad = ConnParam { private_data: vec![0; 252], ..ConnParam::default() };
        let deep = ConnParam { initiator_depth: 17, ..ConnParam::default() };
        for param in [&bad, &deep] {
            let mut id = id_in(CmState::RouteResolved);
            assert!(id.connect(param).is_err());
            assert_eq!(id.state(), CmState::RouteResolved);
            let mut id = id_in(CmState::ConnectRequest);
            assert!(id.accept(param).is_err());
            assert_eq!(id.state(), CmState::ConnectRequest);
        }
        let mut id = id_in(CmState::ConnectRequest);
        assert!(id.reject(&[0; 252]).is_err());
        assert_eq!(id.state(), CmState::ConnectRequest);
    }

    #[test]
    fn a_request_can_be_accepted_with_its_own_numbers() {
        let terms = QpTerms { qp_num: 0x1234, ..QpTerms::default() };
        let mut id = IdMachine::from_request(DEVICE, PEER, b"hello".to_vec(), terms);
        let event = id.poll_event().unwrap();
        assert_eq!((event.kind, event.terms), (EventKind::ConnectRequest, terms));
        assert_eq!((event.responder_resources, event.initiator_depth), (32, 4));
        assert_eq!(event.private_data, b"hello");
        let param = ConnParam {
            responder_resources: event.responder_resources,
            initiator_depth: event.initiator_depth,
            ..ConnParam::default()
        };
        assert_eq!(id.accept(&param), Ok(Depths { ird: 32, ord: 4 }));
    }

    #[test]
    fn all_in_an_accept_is_what_the_peer_asked_for() {
        let mut id = id_in(CmState::ConnectRequest);
        assert_eq!(id.accept(&ConnParam::device_max()), Ok(Depths { ird: 32, ord: 4 }));
    }

    #[test]
    fn established_reports_the_agreed_depths() {
        let mut id = id_in(CmState::Connecting);
        id.handle_agreed(Depths { ird: 5, ord: 6 });
        let terms = QpTerms { qp_num: 0x1234, ..QpTerms::default() };
        id.handle_link_up(b"welcome".to_vec(), terms);
        let event = id.poll_event().unwrap();
        assert_eq!((event.kind, event.status), (EventKind::Established, 0));
        assert_eq!(event.terms, terms);
        assert_eq!((event.responder_resources, event.initiator_depth), (6, 5));
        assert_eq!(event.private_data, b"welcome");
        assert_eq!(id.depths(), Depths { ird: 5, ord: 6 });
    }

    #[test]
    fn a_rejection_carries_the_peers_words() {
        let mut id = id_in(CmState::Connecting);
        id.handle_rejected(PEER, b"busy".to_vec());
        let event = id.poll_event().unwrap();
        assert_eq!((event.kind, event.status), (EventKind::Rejected, -111));
        assert_eq!(event.private_data, b"busy");
        // What both could do, from this side's view.
        assert_eq!((event.responder_resources, event.initiator_depth), (32, 4));
        assert_eq!(id.state(), CmState::Closed);
    }

    #[test]
    fn an_adapter_tells_what_infiniband_tells() {
        let connecting = || {
            let mut id = id_in(CmState::AddrResolved);
            id.settle(ADAPTER);
            id.resolve_route().unwrap();
            id.handle_route(Ok(()));
            id.connect(&ConnParam { initiator_depth: 3, ..ConnParam::default() }).unwrap();
            while id.poll_event().is_some() {}
            id
        };
        let terms = QpTerms { qp_num: 0x1234, ..QpTerms::default() };
        let mut id = connecting();
        id.handle_response(b"yes".to_vec(), terms);
        let event = id.poll_event().unwrap();
        assert_eq!((event.kind, event.terms), (EventKind::ConnectResponse, terms));
        assert_eq!(event.private_data, b"yes");
        assert_eq!((event.responder_resources, event.initiator_depth), (0, 3));
        id.establish().unwrap();
        // Not before it is over.
        id.handle_timewait_exit();
        assert_eq!((id.state(), id.poll_event()), (CmState::Connected, None));
        id.handle_link_down();
        id.handle_timewait_exit();
        assert_eq!(id.poll_event().unwrap().kind, EventKind::Disconnected);
        assert_eq!(id.poll_event().unwrap().kind, EventKind::TimewaitExit);

        let mut id = connecting();
        id.handle_failed(Failure::Refused);
        assert_eq!(id.poll_event().unwrap().status, 8);
        let mut id = connecting();
        id.handle_rejected(PEER, b"no".to_vec());
        assert_eq!(id.poll_event().unwrap().status, 28);
    }

    #[test]
    fn who_refuses_datagrams_is_unreachable() {
        let connecting = || {
            let mut id = id_in(CmState::AddrResolved);
            id.settle(DeviceProperties { manner: CmConvention::Datagrams, ..ADAPTER });
            id.resolve_route().unwrap();
            id.handle_route(Ok(()));
            id.connect(&ConnParam::default()).unwrap();
            while id.poll_event().is_some() {}
            id
        };
        let mut id = connecting();
        id.handle_failed(Failure::Refused);
        let event = id.poll_event().unwrap();
        assert_eq!((event.kind, event.status), (EventKind::Unreachable, 1));
        let mut id = connecting();
        id.handle_rejected(PEER, b"no".to_vec());
        let event = id.poll_event().unwrap();
        assert_eq!((event.kind, event.status), (EventKind::Unreachable, 2));
        assert_eq!(event.private_data, b"no");
        id.handle_timewait_exit();
        assert_eq!(id.poll_event(), None);
    }

    #[test]
    fn a_look_up_that_failed_may_be_tried_again() {
        let mut id = id_in(CmState::AddrQuery);
        id.handle_addr(Err(Failure::Os(101)));
        let event = id.poll_event().unwrap();
        assert_eq!((event.kind, event.status), (EventKind::AddrError, -101));
        assert_eq!(id.resolve_addr(), Ok(()));
        let mut id = id_in(CmState::RouteQuery);
        id.handle_route(Err(Failure::Os(101)));
        assert_eq!(id.poll_event().unwrap().kind, EventKind::RouteError);
        assert_eq!(id.resolve_route(), Ok(()));
    }

    #[test]
    fn disconnected_is_reported_once_whoever_began() {
        let mut id = id_in(CmState::Connected);
        assert_eq!(id.disconnect(), Ok(Close::Link));
        assert_eq!(id.disconnect(), Ok(Close::Nothing));
        id.handle_link_down();
        id.handle_link_down();
        id.handle_timewait_exit();
        assert_eq!(id.poll_event(), Some(CmEvent::plain(EventKind::Disconnected)));
        assert_eq!(id.poll_event(), None);

        let mut id = id_in(CmState::Connected);
        id.handle_link_down();
        assert_eq!(id.poll_event(), Some(CmEvent::plain(EventKind::Disconnected)));
        assert_eq!(id.disconnect(), Ok(Close::Nothing));
        assert_eq!(id.poll_event(), None);
    }

    #[test]
    fn giving_up_an_attempt_is_an_error_not_a_disconnection() {
        for state in [CmState::Connecting, CmState::Accepting] {
            let mut id = id_in(state);
            assert_eq!(id.disconnect(), Ok(Close::Attempt));
            let event = id.poll_event().unwrap();
            assert_eq!((event.kind, event.status), (EventKind::ConnectError, -103));
            id.handle_link_down();
            assert_eq!(id.poll_event(), None);
        }
    }

    #[test]
    fn giving_up_a_request_drops_its_attempt() {
        let mut id = id_in(CmState::ConnectRequest);
        assert_eq!(id.disconnect(), Ok(Close::Attempt));
        assert_eq!(id.poll_event(), None);
    }

    #[test]
    fn an_accepted_peer_that_leaves_before_it_speaks_was_never_connected() {
        let mut id = id_in(CmState::Accepting);
        id.handle_link_down();
        let event = id.poll_event().unwrap();
        assert_eq!((event.kind, event.status), (EventKind::ConnectError, -104));
    }
}
