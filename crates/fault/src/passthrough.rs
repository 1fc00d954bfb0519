//! Which faults can be made above a device of another provider, from within its verbs.

use std::error::Error;
use std::fmt;

use crate::{FaultKind, FaultPlan, PlannedFault};

/// A fault that needs the device itself, or the wire behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeyondPassthrough {
    /// The fault, as in the text of a plan.
    fault: String,
    reason: &'static str,
}

impl fmt::Display for BeyondPassthrough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, reason } = self;
        write!(f, "{fault} cannot be made with passthrough: {reason}")
    }
}

impl Error for BeyondPassthrough {}

impl FaultKind {
    /// Why a library above the verbs of a device cannot make this fault; none if it can.
    fn beyond_passthrough(self) -> Option<&'static str> {
        let reason = match self {
            Self::Drop(..) | Self::Corrupt(..) => {
                "packets pass below the verbs of the device; tc netem reaches those of rxe and siw"
            }
            Self::Rnr(_) => {
                "the peer's device answers it; qp-error:status=rnr-retry-exc has the same end"
            }
            Self::PeerGone => {
                "the wire would have to fall silent; hang, or qp-error:status=retry-exc, has the \
                 same end"
            }
            Self::AddrGone(_) => {
                "the kernel has the addresses; ip address del takes one from its interface"
            }
            _ => return None,
        };
        Some(reason)
    }
}

impl FaultPlan {
    /// The first fault that cannot be made above a device of another provider.
    pub fn beyond_passthrough(&self) -> Option<BeyondPassthrough> {
        let beyond = |fault: &PlannedFault| {
            let reason = fault.kind.beyond_passthrough()?;
            Some(BeyondPassthrough { fault: fault.to_string(), reason })
        };
        self.faults.iter().find_map(beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_the_wire_is_named_with_its_reason() {
        for text in ["drop=1%", "corrupt=1%", "rnr:3", "peer-gone", "addr-gone=1s"] {
            let plan = FaultPlan::parse(&format!("hang; {text}")).unwrap();
            let said = plan.beyond_passthrough().unwrap().to_string();
            assert!(said.starts_with(text) && said.contains("cannot be made"), "{said}");
        }
    }

    #[test]
    fn what_the_verbs_show_can_be_made() {
        let plan = "qp-error; hang; slow-ack=1ms; delay=1ms; cq-overrun; cq-overflow; mr-invalid; \
                    alloc-fail=mr; fail=post_send; port-down=1s; device-fatal=1s; gid-change; \
                    pkey-change=1; lid-change=1; seed=1";
        assert_eq!(FaultPlan::parse(plan).unwrap().beyond_passthrough(), None);
    }
}
