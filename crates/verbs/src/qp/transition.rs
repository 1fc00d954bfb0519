//! State transitions of a channel adapter's queue pairs, and the attributes that each requires and
//! accepts.
//!
//! The tables are those of the InfiniBand architecture (volume 1, section 10.3 and table 96), as
//! the Linux kernel checks them before any driver is asked. An RNIC has no such tables.

use super::attr::{QpAttrMask as Mask, QpState, QpType};
use crate::misuse::Misuse;

/// Required and optional attributes of a transition, besides the state.
struct Rule {
    needs: Mask,
    takes: Mask,
}

/// Checks a change of a `kind` queue pair from `from` to `to` that sets what `mask` names. A
/// change of attributes alone is one from a state to itself.
pub fn check(kind: QpType, from: QpState, to: QpState, mask: Mask) -> Result<(), Misuse> {
    use QpState::{Rtr, Rts, Sqd, Sqe};
    if mask.contains(Mask::CUR_STATE) && !matches!(from, Rtr | Rts | Sqd | Sqe) {
        return Err(Misuse::Invalid("no current state may be given in this state"));
    }
    let Some(Rule { needs, takes }) = rule(kind, from, to) else {
        return Err(Misuse::Invalid("no such transition of a queue pair"));
    };
    if !mask.contains(needs) {
        return Err(Misuse::Invalid("an attribute that the transition needs is missing"));
    }
    if !(needs | takes | Mask::STATE).contains(mask) {
        return Err(Misuse::Invalid("an attribute that the transition does not take is set"));
    }
    Ok(())
}

fn rule(kind: QpType, from: QpState, to: QpState) -> Option<Rule> {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    let none = Mask::empty();
    let (needs, takes) = match (from, to) {
        (_, Reset) => (none, none),
        (Init | Rtr | Rts | Sqd | Sqe | Err, Err) => (none, none),
        (Reset, Init) => (to_init(kind), none),
        (Init, Init) => (none, to_init(kind)),
        (Init, Rtr) => to_rtr(kind),
        (Rtr, Rts) => (to_rts(kind), while_sending(kind)),
        (Rts | Sqd, Rts) => (none, while_sending(kind)),
        (Rts, Sqd) => (none, Mask::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => (none, while_drained(kind)),
        (Sqe, Rts) => (none, after_error(kind)),
        _ => return None,
    };
    Some(Rule { needs, takes })
}

fn to_init(kind: QpType) -> Mask {
    let common = Mask::PKEY_INDEX | Mask::PORT;
    match kind {
        QpType::Ud => common | Mask::QKEY,
        _ => common | Mask::ACCESS_FLAGS,
    }
}

fn to_rtr(kind: QpType) -> (Mask, Mask) {
    let connected = Mask::AV | Mask::PATH_MTU | Mask::DEST_QPN | Mask::RQ_PSN;
    let responder = connected | Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER;
    let takes = Mask::ALT_PATH | Mask::ACCESS_FLAGS | Mask::PKEY_INDEX;
    match kind {
        QpType::Ud => (Mask::empty(), Mask::PKEY_INDEX | Mask::QKEY),
        QpType::Uc | QpType::XrcSend => (connected, takes),
        QpType::Rc | QpType::XrcRecv => (responder, takes),
    }
}

fn to_rts(kind: QpType) -> Mask {
    let requester = Mask::TIMEOUT | Mask::RETRY_CNT | Mask::RNR_RETRY | Mask::MAX_QP_RD_ATOMIC;
    match kind {
        QpType::Ud | QpType::Uc => Mask::SQ_PSN,
        QpType::Rc | QpType::XrcSend => Mask::SQ_PSN | requester,
        QpType::XrcRecv => Mask::SQ_PSN | Mask::TIMEOUT,
    }
}

fn while_sending(kind: QpType) -> Mask {
    let connected = Mask::CUR_STATE | Mask::ALT_PATH | Mask::ACCESS_FLAGS | Mask::PATH_MIG_STATE;
    match kind {
        QpType::Ud => Mask::CUR_STATE | Mask::QKEY,
        QpType::Uc | QpType::XrcSend => connected,
        QpType::Rc | QpType::XrcRecv => connected | Mask::MIN_RNR_TIMER,
    }
}

fn while_drained(kind: QpType) -> Mask {
    let connected =
        Mask::AV | Mask::ALT_PATH | Mask::ACCESS_FLAGS | Mask::PKEY_INDEX | Mask::PATH_MIG_STATE;
    let reliable = connected | Mask::PORT | Mask::TIMEOUT;
    let requester = Mask::RETRY_CNT | Mask::RNR_RETRY | Mask::MAX_QP_RD_ATOMIC;
    let responder = Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER;
    match kind {
        QpType::Ud => Mask::PKEY_INDEX | Mask::QKEY,
        QpType::Uc => connected,
        QpType::Rc => reliable | requester | responder,
        QpType::XrcSend => reliable | requester,
        QpType::XrcRecv => reliable | responder,
    }
}

fn after_error(kind: QpType) -> Mask {
    match kind {
        QpType::Ud => Mask::CUR_STATE | Mask::QKEY,
        QpType::Uc => Mask::CUR_STATE | Mask::ACCESS_FLAGS,
        QpType::Rc | QpType::XrcSend | QpType::XrcRecv => Mask::empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

    const KINDS: [QpType; 5] =
        [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcSend, QpType::XrcRecv];
    const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];

    #[test]
    fn a_queue_pair_walks_up_with_what_each_step_needs_and_not_with_less() {
        for kind in KINDS {
            for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts), (Rts, Sqd), (Sqd, Rts)] {
                let Rule { needs, .. } = rule(kind, from, to).unwrap();
                assert_eq!(check(kind, from, to, needs | Mask::STATE), Ok(()));
                for one in needs.iter() {
                    assert!(check(kind, from, to, Mask::STATE | (needs - one)).is_err());
                }
                assert!(check(kind, from, to, needs | Mask::STATE | Mask::CAP).is_err());
            }
        }
    }

    /// The bits of each attribute stand for themselves: these are the tables once more, as numbers.
    #[test]
    fn each_transition_needs_and_takes_what_the_tables_say() {
        // For RC, UC, UD and both ends of XRC: what is needed, and what is taken besides.
        let table = [
            (Reset, Init, [(0x38, 0), (0x38, 0), (0x70, 0), (0x38, 0), (0x38, 0)]),
            (Init, Init, [(0, 0x38), (0, 0x38), (0, 0x70), (0, 0x38), (0, 0x38)]),
            (
                Init,
                Rtr,
                [
                    (0x12_9180, 0x4018),
                    (0x10_1180, 0x4018),
                    (0, 0x50),
                    (0x10_1180, 0x4018),
                    (0x12_9180, 0x4018),
                ],
            ),
            (
                Rtr,
                Rts,
                [
                    (0x1_2e00, 0x4_c00a),
                    (0x1_0000, 0x4_400a),
                    (0x1_0000, 0x42),
                    (0x1_2e00, 0x4_400a),
                    (0x1_0200, 0x4_c00a),
                ],
            ),
            (Rts, Rts, [(0, 0x4_c00a), (0, 0x4_400a), (0, 0x42), (0, 0x4_400a), (0, 0x4_c00a)]),
            (Sqd, Rts, [(0, 0x4_c00a), (0, 0x4_400a), (0, 0x42), (0, 0x4_400a), (0, 0x4_c00a)]),
            (Rts, Sqd, [(0, 4); 5]),
            (Sqd, Sqd, [(0, 0x6_eeb8), (0, 0x4_4098), (0, 0x50), (0, 0x4_6eb8), (0, 0x6_c2b8)]),
            (Sqe, Rts, [(0, 0), (0, 0xa), (0, 0x42), (0, 0), (0, 0)]),
        ];
        for (from, to, rows) in table {
            for (kind, (needs, takes)) in KINDS.into_iter().zip(rows) {
                let rule = rule(kind, from, to).unwrap();
                let found = (rule.needs.bits(), rule.takes.bits());
                assert_eq!(found, (needs, takes), "{kind:?} {from:?} {to:?}");
            }
        }
    }

    #[test]
    fn every_state_may_be_left_for_reset_and_all_but_reset_for_error() {
        for (kind, from) in KINDS.iter().flat_map(|k| STATES.map(|s| (*k, s))) {
            assert_eq!(check(kind, from, Reset, Mask::STATE), Ok(()));
            assert_eq!(check(kind, from, Err, Mask::STATE).is_ok(), from != Reset);
        }
    }

    #[test]
    fn nothing_skips_a_step_or_goes_back() {
        for (from, to) in [(Reset, Rtr), (Reset, Rts), (Init, Rts), (Rts, Init), (Rtr, Init)] {
            assert!(KINDS.iter().all(|kind| rule(*kind, from, to).is_none()));
        }
        assert!(STATES.iter().all(|from| rule(QpType::Ud, *from, Sqe).is_none()));
    }

    #[test]
    fn the_current_state_may_be_named_from_rtr_on() {
        let mask = Mask::STATE | Mask::CUR_STATE;
        assert!(check(QpType::Rc, Rts, Rts, mask).is_ok());
        assert!(check(QpType::Rc, Init, Init, mask).is_err());
        assert!(check(QpType::Rc, Rts, Sqd, mask).is_err());
    }
}
