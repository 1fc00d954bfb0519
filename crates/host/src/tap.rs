//! What sees the packets of a connection: the capture, the trace, or both.

use std::sync::{Arc, Weak};

use weft_capture::CaptureTap;
use weft_rnic::wire::tap::{PacketTap, TapDirection, TapEnds, Tapped};
use weft_verbs::Qp;

use crate::device_kind::DeviceId;
use crate::host::Host;

/// What sees the packets of a connection of `qp`, on this device, which is the one with
/// this `number` in the process; none if nobody wants to.
pub(crate) fn tap_of(
    host: &Host,
    device: DeviceId,
    qp: &Arc<Qp>,
    number: u32,
) -> Option<Box<dyn PacketTap>> {
    let capture = host.tap(device, qp, number).map(|tap| QpTap::new(tap, qp));
    joined(host, qp, capture)
}

/// `capture` and the trace, as far as there are.
pub(crate) fn joined(
    host: &Host,
    qp: &Qp,
    capture: Option<impl PacketTap + 'static>,
) -> Option<Box<dyn PacketTap>> {
    let trace = host.events().trace().map(|trace| trace.tap(qp.num()));
    match (capture, trace) {
        (Some(capture), Some(trace)) => Some(Box::new(BothTaps(capture, trace))),
        (Some(capture), None) => Some(Box::new(capture)),
        (None, Some(trace)) => Some(Box::new(trace)),
        (None, None) => None,
    }
}

/// Two that see the same.
struct BothTaps<A, B>(A, B);

impl<A: PacketTap, B: PacketTap> PacketTap for BothTaps<A, B> {
    fn see(&mut self, direction: TapDirection, ends: Option<TapEnds>, what: Tapped<'_>) {
        self.0.see(direction, ends, what);
        self.1.see(direction, ends, what);
    }
}

/// A capture that looks the number of the peer's queue pair up until there is one.
struct QpTap {
    tap: CaptureTap,
    /// None once the number is known.
    qp: Option<Weak<Qp>>,
}

impl QpTap {
    /// Of a connection of `qp`.
    fn new(tap: CaptureTap, qp: &Arc<Qp>) -> Self {
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
