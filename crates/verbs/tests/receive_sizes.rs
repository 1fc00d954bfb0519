//! Sizes of receives of a queue pair whose receives come from elsewhere.

mod support;

use std::sync::Arc;

use support::parts;
use weft_verbs::{QpState, QpType};

#[test]
fn sizes_of_receives_are_ignored_where_receives_come_from_elsewhere() {
    let parts = parts();
    let large = |kind, shares: bool| {
        let mut init = parts.init(kind, QpState::Init);
        (init.cap.max_recv_wr, init.cap.max_recv_sge) = (u32::MAX, u32::MAX);
        init.srq = shares.then(|| Arc::new(parts.srq(0)));
        parts.make(init)
    };
    assert!(large(QpType::Rc, false).is_err());
    assert!(large(QpType::Rc, true).is_ok() && large(QpType::XrcSend, false).is_ok());
}
