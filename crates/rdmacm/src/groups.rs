//! The multicast groups that an id is in.
//!
//! There is nobody to ask: to join is to attach the queue pair, and that has happened when the
//! event is there.

use std::net::IpAddr;
use std::sync::Weak;

use weft_host::HostQp;

/// A group that was joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// Its address.
    pub group: IpAddr,
    /// What the program gave along.
    pub context: usize,
}

/// A group that an id is in.
pub(crate) struct Membership {
    pub(crate) join: Join,
    /// The queue pair that was attached for it.
    pub(crate) qp: Weak<HostQp>,
}

impl Membership {
    pub(crate) fn leave(self) {
        if let Some(qp) = self.qp.upgrade() {
            // The program may have detached it.
            let _gone = qp.detach_group(self.join.group);
        }
    }
}
