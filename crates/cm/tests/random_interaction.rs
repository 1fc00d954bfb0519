//! Random lives of an id, against what an application may rely on whatever happens: at most one
//! outcome per attempt, one end per beginning, nothing after the end.

use proptest::prelude::*;
use weft_cm::{
    CmConvention, CmEvent, CmState, ConnParam, Depths, DeviceProperties, EventKind, Failure,
    IdMachine, QpTerms,
};

const DEVICE: DeviceProperties =
    DeviceProperties { depths: Depths { ird: 16, ord: 16 }, manner: CmConvention::Iwarp };

#[derive(Clone, Debug)]
enum Op {
    Bind,
    Listen,
    ResolveAddr,
    ResolveRoute,
    Connect(u8, u8),
    Accept(u8, u8),
    Reject,
    Disconnect,
    Notify,
    AddrDone(bool),
    RouteDone(bool),
    Agreed(u16, u16),
    LinkUp,
    Rejected(u16, u16),
    Failed(i32),
    LinkDown,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => Just(Op::Bind),
        1 => Just(Op::Listen),
        4 => Just(Op::ResolveAddr),
        4 => Just(Op::ResolveRoute),
        4 => any::<(u8, u8)>().prop_map(|(ird, ord)| Op::Connect(ird % 20, ord % 20)),
        4 => any::<(u8, u8)>().prop_map(|(ird, ord)| Op::Accept(ird, ord)),
        1 => Just(Op::Reject),
        2 => Just(Op::Disconnect),
        1 => Just(Op::Notify),
        4 => any::<bool>().prop_map(Op::AddrDone),
        4 => any::<bool>().prop_map(Op::RouteDone),
        1 => any::<(u16, u16)>().prop_map(|(ird, ord)| Op::Agreed(ird, ord)),
        3 => Just(Op::LinkUp),
        1 => any::<(u16, u16)>().prop_map(|(ird, ord)| Op::Rejected(ird, ord)),
        1 => (1..200i32).prop_map(Op::Failed),
        2 => Just(Op::LinkDown),
    ]
}

fn apply(id: &mut IdMachine, op: &Op) {
    let param = |ird: u8, ord: u8| ConnParam {
        responder_resources: ird,
        initiator_depth: ord,
        ..ConnParam::default()
    };
    let before = id.state();
    let misuse = match *op {
        Op::Bind => id.bind().is_err(),
        Op::Listen => id.listen().is_err(),
        Op::ResolveAddr => id.resolve_addr().is_err(),
        Op::ResolveRoute => id.resolve_route().is_err(),
        Op::Connect(ird, ord) => id.connect(&param(ird, ord)).is_err(),
        Op::Accept(ird, ord) => id.accept(&param(ird, ord)).is_err(),
        Op::Reject => id.reject(b"no").is_err(),
        Op::Disconnect => id.disconnect().is_err(),
        Op::Notify => id.notify().is_err(),
        _ => false,
    };
    if misuse {
        assert_eq!(id.state(), before, "{op:?} failed and moved the id");
    }
    match *op {
        Op::AddrDone(found) => id.handle_addr(outcome(found)),
        Op::RouteDone(found) => id.handle_route(outcome(found)),
        Op::Agreed(ird, ord) => id.handle_agreed(Depths { ird, ord }),
        Op::LinkUp => id.handle_link_up(Vec::new(), QpTerms::default()),
        Op::Rejected(ird, ord) => id.handle_rejected(Depths { ird, ord }, Vec::new()),
        Op::Failed(errno) => id.handle_failed(Failure::from_errno(errno)),
        Op::LinkDown => id.handle_link_down(),
        _ => {}
    }
}

fn outcome(found: bool) -> Result<(), Failure> {
    if found { Ok(()) } else { Err(Failure::Os(101)) }
}

/// What an application has been told so far.
#[derive(Default)]
struct Told {
    attempt_over: bool,
    established: bool,
    disconnected: bool,
}

impl Told {
    fn check(&mut self, event: &CmEvent) {
        assert!(event.status <= 0, "iWARP has no positive status: {event:?}");
        assert!(!self.disconnected, "after the end: {event:?}");
        match event.kind {
            EventKind::Established => {
                assert!(!self.attempt_over, "two outcomes of one attempt");
                assert_eq!(event.status, 0);
                self.attempt_over = true;
                self.established = true;
            }
            EventKind::Rejected | EventKind::Unreachable | EventKind::ConnectError => {
                assert!(!self.attempt_over, "two outcomes of one attempt");
                assert!(event.status < 0, "a failure without a status: {event:?}");
                self.attempt_over = true;
            }
            EventKind::Disconnected => {
                assert!(self.established, "the end of what never began");
                self.disconnected = true;
            }
            EventKind::AddrError | EventKind::RouteError => assert!(event.status < 0),
            _ => assert_eq!(event.status, 0),
        }
    }
}

fn live(mut id: IdMachine, ops: &[Op]) {
    let mut told = Told::default();
    for op in ops {
        apply(&mut id, op);
        while let Some(event) = id.poll_event() {
            told.check(&event);
        }
        match id.state() {
            CmState::Connected | CmState::Disconnecting => assert!(told.established),
            CmState::Closed => assert_eq!(told.established, told.disconnected),
            _ => assert!(!told.attempt_over),
        }
    }
}

proptest! {
    #[test]
    fn an_application_can_rely_on_the_events(ops in prop::collection::vec(op(), 0..60)) {
        live(IdMachine::new(DEVICE), &ops);
    }

    #[test]
    fn a_request_can_always_be_accepted_with_its_own_numbers(
        ird: u16,
        ord: u16,
        ops in prop::collection::vec(op(), 0..20),
    ) {
        let depths = Depths { ird, ord };
        let mut id = IdMachine::from_request(DEVICE, depths, Vec::new(), QpTerms::default());
        let event = id.poll_event().expect("a request announces itself");
        let accept = Op::Accept(event.responder_resources, event.initiator_depth);
        apply(&mut id, &accept);
        prop_assert_eq!(id.state(), CmState::Accepting);
        let mut all = vec![accept];
        all.extend(ops);
        live(IdMachine::from_request(DEVICE, depths, Vec::new(), QpTerms::default()), &all);
    }
}
