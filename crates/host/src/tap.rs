//! What sees the packets of a connection whose peer's queue pair may become known later.

use std::sync::{Arc, Weak};

use weft_capture::CaptureTap;
use weft_rnic::wire::tap::{PacketTap, TapDirection, TapEnds, Tapped};
use weft_verbs::Qp;

/// A tap that looks the number of the peer's queue pair up until there is one.
pub(crate) struct QpTap {
    tap: CaptureTap,
    /// None once the number is known.
    qp: Option<Weak<Qp>>,
}

impl QpTap {
    /// Of a connection of `qp`.
    pub fn new(tap: CaptureTap, qp: &Arc<Qp>) -> Self {
        Self { tap, qp: Some(Arc::downgrade(qp)) }
    }

    fn look_up(&mut self) {
        let qp = self.qp.as_ref().and_then(Weak::upgrade);
        let number = qp.map_or(0, |qp| qp.attrs().dest_qp_num);
        if number != 0 {
            self.tap.set_peer(number);
            self.qp = None;
        }
    }
}

impl PacketTap for QpTap {
    fn see(&mut self, direction: TapDirection, ends: Option<TapEnds>, what: Tapped<'_>) {
        if self.qp.is_some() {
            self.look_up();
        }
        self.tap.see(direction, ends, what);
    }
}
