//! The values that C programs see, and what each kind of request is.

use weft_verbs::limits::{IWARP, ROCE};
use weft_verbs::mr::Bind;
use weft_verbs::{Access, Misuse, QpAttr, QpState, QpType, SendOp, Wc, WcOpcode, WcStatus};

const STAG: u32 = 9;

fn operations() -> [SendOp; 11] {
    let (to, stag) = (8, STAG);
    [
        SendOp::Send,
        SendOp::SendInv { stag },
        SendOp::SendImm { imm: 1 },
        SendOp::Write { to, stag },
        SendOp::AtomicWrite { to, stag },
        SendOp::WriteImm { to, stag, imm: 1 },
        SendOp::Read { to, stag },
        SendOp::FetchAdd { to, stag, add: 1 },
        SendOp::CmpSwap { to, stag, compare: 1, swap: 2 },
        SendOp::LocalInv { stag },
        SendOp::BindMw(Bind::default()),
    ]
}

/// The places in the list above for which `what` holds.
fn of(what: impl Fn(&SendOp) -> bool) -> Vec<usize> {
    let all = operations();
    (0..all.len()).filter(|at| what(&all[*at])).collect()
}

#[test]
fn each_request_is_what_it_says() {
    assert_eq!(of(SendOp::takes_receive), [0, 1, 2, 5]);
    assert_eq!(of(SendOp::is_write), [3, 4, 5]);
    assert_eq!(of(SendOp::is_read), [6]);
    assert_eq!(of(SendOp::is_atomic), [7, 8]);
    assert_eq!(of(SendOp::awaits_response), [6, 7, 8]);
    assert_eq!(of(SendOp::is_local), [9, 10]);
}

#[test]
fn each_service_offers_its_requests() {
    let offered = |kind| of(|op| op.is_offered_by(kind));
    let all: Vec<_> = (0..11).collect();
    assert_eq!(offered(QpType::Rc), all);
    assert_eq!(offered(QpType::XrcSend), all);
    assert_eq!(offered(QpType::Uc), [0, 2, 3, 5, 9, 10]);
    assert_eq!(offered(QpType::Ud), [0, 2]);
    assert_eq!(offered(QpType::XrcRecv), []);
}

#[test]
fn numbers_name_states_and_types() {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    let states = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];
    for (raw, state) in states.into_iter().enumerate() {
        assert_eq!(QpState::from_raw(raw as u32), Some(state));
    }
    assert_eq!(QpState::from_raw(7), None);
    let types = [
        (2, QpType::Rc, false),
        (3, QpType::Uc, false),
        (4, QpType::Ud, false),
        (9, QpType::XrcSend, true),
        (10, QpType::XrcRecv, true),
    ];
    for (raw, kind, is_xrc) in types {
        assert_eq!((QpType::from_raw(raw), kind.is_xrc()), (Some(kind), is_xrc));
    }
    assert_eq!((QpType::from_raw(0), QpType::from_raw(8)), (None, None));
}

#[test]
fn rights_are_those_of_the_callers_flags() {
    assert_eq!(Access::from_user(0x1f).map(|access| access.bits()), Some(0x1f));
    assert_eq!(Access::from_user(0x3ff0_0001), Some(Access::LOCAL_WRITE), "optional ones go");
    assert_eq!(Access::from_user(1 << 10), None);
    assert_eq!(Access::REMOTE.bits(), 0xe);
    let all = Access::from_user(0x7f).unwrap();
    for one in all.iter() {
        let (needs, remote) = ([2, 8].contains(&one.bits()), one.bits() & 0xe != 0);
        assert_eq!(one.is_consistent(), !needs, "{one:?}");
        assert!((one | Access::LOCAL_WRITE).is_consistent());
        assert_eq!(one.is_remote(), remote);
        assert_eq!(one.changes_memory(), needs || one == Access::LOCAL_WRITE);
    }
}

#[test]
fn each_misuse_has_its_errno() {
    let all = [
        (Misuse::Invalid(""), 22),
        (Misuse::Full, 12),
        (Misuse::NoMemory, 12),
        (Misuse::Busy, 16),
        (Misuse::Unsupported(""), 95),
        (Misuse::NotFound, 2),
        (Misuse::Fault, 14),
        (Misuse::Refused(""), 13),
        (Misuse::System(99), 99),
    ];
    for (misuse, errno) in all {
        assert_eq!(misuse.errno(), errno);
    }
    let refused = Vec::<u64>::new().try_reserve(usize::MAX).unwrap_err();
    assert_eq!(Misuse::from(refused), Misuse::NoMemory);
}

#[test]
fn completions_say_whose_they_are() {
    let wc = Wc::new(5, 7, WcOpcode::RdmaRead, WcStatus::Success);
    assert_eq!((wc.wr_id, wc.qp_num, wc.opcode, wc.status), (5, 7, 2, 0));
    assert!(wc.is_success());
    assert!(!Wc::new(5, 7, WcOpcode::Send, WcStatus::WrFlushErr).is_success());
}

#[test]
fn receivers_name_their_waits_by_rows_of_the_table() {
    let wait = |min_rnr_timer| QpAttr { min_rnr_timer, ..QpAttr::default() }.rnr_wait_us();
    assert_eq!([0, 1, 5, 12, 31].map(wait), [655_360, 10, 60, 640, 491_520]);
    assert_eq!(wait(32 + 12), 640, "five bits");
}

#[test]
fn a_channel_adapter_has_address_handles_and_an_rnic_none() {
    assert_eq!((IWARP.max_ah, ROCE.max_ah), (0, 1 << 20));
    assert_eq!((IWARP.max_msg_size, IWARP.max_dm_octets), (1 << 31, 4 << 20));
    assert_eq!(ROCE.max_mw, 1 << 20);
    assert_eq!(IWARP.max_mr, 1 << 24);
}
