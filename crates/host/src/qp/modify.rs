//! What an application changes about its queue pair, and the states that it walks it through.
//!
//! An RNIC's queue pair is connected by the connection manager or, where the application names the
//! peer, finds it by itself; otherwise an application may only reset it, or let it fail or drain. A
//! channel adapter's is connected by the application, in the steps and with the attributes that
//! InfiniBand prescribes.

use std::sync::Arc;

use weft_fault::Verb;
use weft_net::path;
use weft_net::refused;
use weft_net::secrecy::Chosen;
use weft_rnic::RetryLimits;
use weft_verbs::qp::transition;
use weft_verbs::{Misuse, QpAttr, QpAttrMask, QpFailure, QpState, QpType};

use super::HostQp;
use crate::iwarp_connect::IwarpConnect;
use crate::roce_connect::{Requester, RocePeer};

/// The highest values of what InfiniBand carries in five, three, and 24 bits.
const FIVE_BITS: u8 = 31;
const THREE_BITS: u8 = 7;
const NUMBER_MAX: u32 = 0x00ff_ffff;

impl HostQp {
    /// Changes attributes, and the state if `mask` says so. Nothing has changed after an error.
    pub fn modify(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Misuse> {
        self.refuse(Verb::ModifyQp)?;
        self.apply(attr, mask)?;
        self.slot.note_state(&self.inner);
        Ok(())
    }

    fn apply(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Misuse> {
        if mask.contains(QpAttrMask::CUR_STATE) && attr.cur_state != self.state() {
            return Err(Misuse::Invalid("the queue pair is not in that state"));
        }
        if self.port.is_some() {
            return self.modify_adapter(attr, mask);
        }
        check_ports(attr, mask)?;
        if mask.contains(QpAttrMask::STATE) {
            self.enter(attr, mask)?;
        }
        self.inner.set_attrs(|attrs| attrs.take(attr, mask));
        Ok(())
    }

    /// Changes the state of an RNIC's queue pair. RTR and RTS need a connection, which the
    /// connection manager makes, or a peer that the application names.
    fn enter(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Misuse> {
        use QpState::{Err as Failed, Init, Reset, Rtr, Rts, Sqd, Sqe};
        let named = mask.contains(QpAttrMask::AV | QpAttrMask::DEST_QPN) && attr.path.is_global;
        match (self.state(), attr.state) {
            (_, Reset) => self.reset()?,
            (_, Failed) => self.fail(),
            (Reset | Init, Init) => self.inner.proceed(Reset, Init),
            (Init, Rtr) if named => {
                self.set_out(peer(attr)?)?;
                // The peer may have called already, and then this is past RTR.
                self.inner.proceed(Init, Rtr);
            }
            (Rtr, Rts) if self.has_iwarp_peer() || self.slot.is_attached() => {
                self.inner.proceed(Rtr, Rts)
            }
            (Rts, Rts) | (Failed, Sqd) => {}
            // RFC 5040 closes a stream by draining it; what is posted is with TCP already.
            (Rts | Sqd, Sqd) => self.slot.disconnect(),
            (_, Rtr | Rts) => {
                return Err(Misuse::Invalid("an iWARP queue pair is connected by rdma-cm"));
            }
            (_, Init | Sqd | Sqe) => {
                return Err(Misuse::Invalid("no such transition of a queue pair"));
            }
        }
        Ok(())
    }

    fn reset(&self) -> Result<(), Misuse> {
        self.inner.mute();
        self.hang_up();
        self.slot.abandon(None);
        self.inner.reset();
        if self.slot.follow_reset() {
            self.inner.reset();
        }
        if let Some(port) = self.port() {
            self.host().local().time_waits.release(self.host(), port);
            // The next peer is another one.
            port.undevote().map_err(refused)?;
        }
        Ok(())
    }

    fn fail(&self) {
        self.inner.failure().note(QpFailure::Modified);
        self.hang_up();
        self.slot.disconnect();
        self.inner.fail(None);
        self.slot.follow_failure();
    }

    /// An RNIC's queue pair looks for the peer that the application named.
    fn set_out(&self, peer: RocePeer) -> Result<(), Misuse> {
        let Some(number) = &self.number else {
            return Err(Misuse::Unsupported("queue pairs without a number"));
        };
        self.inner.enforce_rights();
        if self.is_at(&peer) {
            self.reach_itself(&peer);
            return Ok(());
        }
        self.host().secrecy().permit_stream(Chosen::ByName, peer.local, peer.remote)?;
        let (qp, cell) = (Arc::clone(&self.inner), Arc::clone(&self.slot));
        let iwarp = IwarpConnect::open(qp, cell, number, peer)?;
        *self.iwarp.lock() = Some(iwarp);
        Ok(())
    }

    fn has_iwarp_peer(&self) -> bool {
        self.iwarp.lock().is_some()
    }

    /// What connects it, for who waits until nobody does.
    #[cfg(test)]
    pub(crate) fn connects_by(&self) -> Option<std::sync::Weak<IwarpConnect>> {
        self.iwarp.lock().as_ref().map(Arc::downgrade)
    }

    /// Looks for no peer any more.
    pub(super) fn hang_up(&self) {
        let iwarp = self.iwarp.lock().take();
        if let (Some(iwarp), Some(number)) = (iwarp, &self.number) {
            number.forget_call();
            iwarp.hang_up();
        }
    }

    fn modify_adapter(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Misuse> {
        let from = self.state();
        let to = if mask.contains(QpAttrMask::STATE) { attr.state } else { from };
        transition::check(self.inner.kind(), from, to, mask)?;
        check_ports(attr, mask)?;
        self.check_values(attr, mask)?;
        let mut wanted = self.query();
        wanted.take(attr, mask);
        self.walk(from, to, &wanted)?;
        self.inner.set_attrs(|attrs| attrs.take(attr, mask));
        Ok(())
    }

    fn check_values(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Misuse> {
        use QpAttrMask as Mask;
        let limits = self.device.limits();
        let ird = u32::from(attr.max_dest_rd_atomic) <= limits.max_qp_rd_atom;
        let ord = u32::from(attr.max_rd_atomic) <= limits.max_qp_init_rd_atom;
        let conditions = [
            (Mask::PKEY_INDEX, attr.pkey_index == 0, "there is one partition key"),
            (Mask::PATH_MTU, (1..=5).contains(&attr.path_mtu), "no such path MTU"),
            (Mask::TIMEOUT, attr.timeout <= FIVE_BITS, "the timeout has five bits"),
            (Mask::MIN_RNR_TIMER, attr.min_rnr_timer <= FIVE_BITS, "the timer has five bits"),
            (Mask::RETRY_CNT, attr.retry_cnt <= THREE_BITS, "the count has three bits"),
            (Mask::RNR_RETRY, attr.rnr_retry <= THREE_BITS, "the count has three bits"),
            (Mask::DEST_QPN, attr.dest_qp_num <= NUMBER_MAX, "the number has 24 bits"),
            (Mask::MAX_DEST_RD_ATOMIC, ird, "more inbound reads than the device has"),
            (Mask::MAX_QP_RD_ATOMIC, ord, "more outbound reads than the device has"),
        ];
        let broken = conditions.iter().find(|(bit, fine, _)| mask.contains(*bit) && !fine);
        broken.map_or(Ok(()), |(_, _, what)| Err(Misuse::Invalid(what)))
    }

    /// Changes the state of a channel adapter's queue pair; the transition is a legal one.
    fn walk(&self, from: QpState, to: QpState, attr: &QpAttr) -> Result<(), Misuse> {
        use QpState::{Err as Failed, Init, Reset, Rtr, Rts, Sqd};
        let connected = self.inner.kind() != QpType::Ud;
        match (from, to) {
            (_, Reset) => self.reset()?,
            (_, Failed) => self.fail(),
            (Init, Rtr) if !connected => {
                self.inner.proceed(Init, Rtr);
                self.open_for_datagrams()?;
            }
            (Init, Rtr) => {
                let peer = peer(attr)?;
                // First, as what the connection brings at once comes in this state.
                self.inner.proceed(Init, Rtr);
                self.reach(peer).inspect_err(|_| self.inner.proceed(Rtr, Init))?;
            }
            (Rtr, Rts) if connected => {
                self.speak(requester(self.kind(), attr))?;
                self.inner.proceed(Rtr, Rts);
            }
            (Rts, Sqd) => {
                self.inner.drain(attr.sqd_notify);
                // What drives its connection is to hear when the last request is acknowledged.
                self.ring();
            }
            (Sqd, Rts) => {
                self.inner.proceed(Sqd, Rts);
                self.ring();
            }
            // What drives its connection may have failed it meanwhile.
            _ => self.inner.proceed(from, to),
        }
        Ok(())
    }
}

/// What the kernel checks for every device.
fn check_ports(attr: &QpAttr, mask: QpAttrMask) -> Result<(), Misuse> {
    let alternate = &attr.alternate;
    let is_one = !mask.contains(QpAttrMask::PORT) || attr.port == 1;
    let is_one_too = !mask.contains(QpAttrMask::ALT_PATH) || alternate.port == 1;
    match is_one && is_one_too {
        true => Ok(()),
        false => Err(Misuse::Invalid("there is one port, number 1")),
    }
}

/// Where the attributes say that the peer is.
fn peer(attr: &QpAttr) -> Result<RocePeer, Misuse> {
    let (local, remote) = path::ends(&attr.path, false)?;
    Ok(RocePeer {
        local,
        remote,
        interface: attr.path.interface,
        qpn: attr.dest_qp_num,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
    })
}

fn requester(kind: QpType, attr: &QpAttr) -> Requester {
    let retry_limits = match kind {
        // What is unreliable waits for a peer no longer than the path asks for.
        QpType::Uc => RetryLimits { timeout_exp: 1, ..RetryLimits::default() },
        _ => RetryLimits {
            timeout_exp: attr.timeout,
            retry_cnt: attr.retry_cnt,
            ..RetryLimits::default()
        },
    };
    Requester { max_rd_atomic: attr.max_rd_atomic, retry_limits }
}
