//! Ids in every state, and what each is told.

use super::*;
use crate::state::tests::{COMMANDS, STATES};

const DEPTHS: Depths = Depths { ird: 32, ord: 16 };
const DEVICE: DeviceProperties = DeviceProperties { depths: DEPTHS, manner: CmConvention::Iwarp };
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
