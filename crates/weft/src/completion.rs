//! Completions: how requests ended.

use weft_verbs::{Wc, WcFlags, WcOpcode, WcStatus};

use crate::{Error, Result};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The name that the request was posted with.
    pub id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What it was; of use only if it succeeded.
    pub operation: WcOpcode,
    /// Bytes received or read. Those of a datagram include the 40 of the route header before it.
    pub len: u32,
    /// Immediate data of the peer.
    pub imm: Option<u32>,
    /// The key of a region of this side, [`RemoteKey::rkey`](crate::RemoteKey::rkey), that the peer
    /// has invalidated with its Send: requests that name the region fail from now on.
    pub invalidated: Option<u32>,
    /// The number of the queue pair.
    pub qp_number: u32,
    /// The number of the sender's queue pair, of a datagram. For its address see
    /// [`Address::of_sender`](crate::Address::of_sender).
    pub source: u32,
}

impl Completion {
    /// Itself if the request succeeded.
    ///
    /// # Errors
    /// [`Error::Failed`] if not.
    pub fn ok(self) -> Result<Self> {
        if self.status == WcStatus::Success { Ok(self) } else { Err(Error::Failed(self)) }
    }

    pub(crate) fn new(id: u64, wc: &Wc) -> Self {
        let has = |flag: WcFlags| wc.wc_flags & flag.bits() != 0;
        Self {
            id,
            status: status(wc.status),
            operation: operation(wc.opcode),
            len: wc.byte_len,
            imm: has(WcFlags::WITH_IMM).then(|| u32::from_be(wc.imm_data)),
            invalidated: has(WcFlags::WITH_INV).then_some(wc.imm_data),
            qp_number: wc.qp_num,
            source: wc.src_qp,
        }
    }
}

fn status(raw: u32) -> WcStatus {
    use WcStatus as Is;
    let known = [
        Is::Success,
        Is::LocLenErr,
        Is::LocQpOpErr,
        Is::LocProtErr,
        Is::WrFlushErr,
        Is::MwBindErr,
        Is::BadRespErr,
        Is::LocAccessErr,
        Is::RemInvReqErr,
        Is::RemAccessErr,
        Is::RemOpErr,
        Is::RetryExcErr,
        Is::RnrRetryExcErr,
    ];
    known.into_iter().find(|status| *status as u32 == raw).unwrap_or(Is::FatalErr)
}

fn operation(raw: u32) -> WcOpcode {
    use WcOpcode as Was;
    let known = [
        Was::RdmaWrite,
        Was::RdmaRead,
        Was::CompSwap,
        Was::FetchAdd,
        Was::BindMw,
        Was::LocalInv,
        Was::AtomicWrite,
        Was::Recv,
        Was::RecvRdmaWithImm,
    ];
    known.into_iter().find(|operation| *operation as u32 == raw).unwrap_or(Was::Send)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_reports_is_told_as_it_is() {
        let wc = Wc {
            imm_data: 7_u32.to_be(),
            wc_flags: WcFlags::WITH_IMM.bits(),
            byte_len: 3,
            ..Wc::new(1, 2, WcOpcode::RecvRdmaWithImm, WcStatus::Success)
        };
        let told = Completion::new(9, &wc).ok().unwrap();
        assert_eq!((told.id, told.imm, told.len, told.qp_number), (9, Some(7), 3, 2));
        assert_eq!(told.operation, WcOpcode::RecvRdmaWithImm);
        let wc = Wc::new(1, 2, WcOpcode::Send, WcStatus::RemAccessErr);
        let failed = Completion::new(9, &wc).ok().unwrap_err();
        assert!(failed.to_string().starts_with("request 9 of queue pair 0x2 failed: RemAccessErr"));
    }
}
