//! Joining and leaving multicast groups.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use weft_host::HostQp;
use weft_rnic::cm::{CmEvent, EventKind};

use crate::channel::IdEvent;
use crate::device::PortSpace;
use crate::error::CmError;
use crate::groups::{Join, Membership};
use crate::id::CmId;

impl CmId {
    /// Joins a group, perhaps once more: what comes to it by the network interfaces `interfaces` is
    /// for `qp`, if there is one. An event tells that it is done.
    ///
    /// # Errors
    /// If the id is not one for datagrams, or has no local address; or what
    /// [`HostQp::attach_group`] says.
    pub fn join_group(
        &self,
        join: Join,
        qp: Option<&Arc<HostQp>>,
        interfaces: &[u32],
    ) -> Result<(), CmError> {
        if self.space() != PortSpace::Udp {
            return Err(CmError::PortSpace);
        }
        let placed = self.local_addr().is_some_and(|local| !local.ip().is_unspecified());
        if !placed || !join.group.is_multicast() {
            return Err(weft_verbs::Misuse::Invalid("the id cannot join this group").into());
        }
        if let Some(qp) = qp {
            qp.attach_group(join.group, interfaces)?;
        }
        let mut inner = self.lock();
        let qp = qp.map_or(Weak::new(), Arc::downgrade);
        inner.memberships.push(Membership { join, qp });
        let event = CmEvent::plain(EventKind::MulticastJoin);
        if let Some(id) = self.me().upgrade().filter(|_| !inner.is_dead()) {
            inner.channel.push(IdEvent { id, listen: None, event, join: Some(join) });
        }
        Ok(())
    }

    /// Leaves a group, as it has joined it last; whether it was in it. The queue pair gets nothing
    /// from there any more, however often the group was joined. That it has joined is not told any
    /// more: the application may free what it gave along.
    pub fn leave_group(&self, group: IpAddr) -> bool {
        let mut inner = self.lock();
        let at = inner.memberships.iter().rposition(|known| known.join.group == group);
        let Some(membership) = at.map(|at| inner.memberships.remove(at)) else { return false };
        let (channel, join) = (inner.channel.clone(), Some(membership.join));
        drop(inner);
        membership.leave();
        drop(channel.withdraw_if(|delivery| delivery.is_of(self) && delivery.join == join));
        true
    }

    pub(crate) fn leave_groups(&self) {
        let all = std::mem::take(&mut self.lock().memberships);
        all.into_iter().for_each(Membership::leave);
    }
}
