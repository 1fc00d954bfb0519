//! Queue pairs that stand in for those that a program connects by itself: they carry no data.

use std::sync::{Arc, OnceLock};

use weft_verbs::{Misuse, Pd, QpCap, QpType, Wake};

use crate::cq::Cq;
use crate::{Context, Personality, Qp, QpInit};

struct Silent;

impl Wake for Silent {
    fn wake(&self) {}
}

struct Home {
    context: Arc<Context>,
    pd: Arc<Pd>,
    cq: Arc<Cq>,
}

/// A new one.
///
/// # Errors
/// If the system has no port to give.
pub(super) fn make() -> Result<Arc<Qp>, Misuse> {
    static HOME: OnceLock<Option<Home>> = OnceLock::new();
    let home = HOME.get_or_init(|| {
        let context = Context::open(Personality::Roce, Box::new(Silent));
        let pd = context.alloc_pd();
        let cq = context.create_cq(1, None, 0).ok()?;
        Some(Home { context, pd, cq })
    });
    let home = home.as_ref().ok_or(Misuse::System(libc::ENOMEM))?;
    let cap = QpCap { max_send_wr: 1, max_recv_wr: 1, ..QpCap::default() };
    home.context.create_qp(QpInit {
        kind: QpType::Rc,
        pd: Arc::clone(&home.pd),
        send_cq: Arc::clone(&home.cq),
        recv_cq: Arc::clone(&home.cq),
        srq: None,
        xrcd: None,
        cap,
        sq_sig_all: false,
        cookie: 0,
    })
}
