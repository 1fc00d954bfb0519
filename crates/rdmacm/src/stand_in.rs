//! Stand-ins: queue pairs that no application sees, for ids of applications that connect their
//! queue pairs themselves and have rdma-cm carry only the numbers. They carry no data.

use std::sync::Arc;

use weft_host::{Context, DeviceKind, Host, HostCq, HostQp, HostQpInit};
use weft_sync::TryOnceLock;
use weft_verbs::{Misuse, Pd, QpCap, QpType, Wake};

struct Silent;

impl Wake for Silent {
    fn wake(&self) {}
}

struct Home {
    context: Arc<Context>,
    pd: Arc<Pd>,
    cq: Arc<HostCq>,
}

/// Makes queue pairs that stand in for others, all of one device.
#[derive(Default)]
pub(crate) struct StandIns(TryOnceLock<Home>);

impl StandIns {
    /// A new one, of `host`.
    ///
    /// # Errors
    /// If the system has no port to give.
    pub(crate) fn make(&self, host: &Arc<Host>) -> Result<Arc<HostQp>, Misuse> {
        let home = self.0.get_or_try_init(|| {
            let context = Context::open(host, DeviceKind::Roce, Box::new(Silent))?;
            let pd = context.alloc_pd();
            let cq = context.create_cq(1, None, 0)?;
            Ok::<_, Misuse>(Home { context, pd, cq })
        })?;
        let cap = QpCap { max_send_wr: 1, max_recv_wr: 1, ..QpCap::default() };
        home.context.create_qp(HostQpInit {
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
}
