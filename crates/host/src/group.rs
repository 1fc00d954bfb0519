//! Multicast groups that queue pairs for unreliable datagrams are attached to.
//!
//! A datagram to a group is for queue pair 0xffffff, whose upper sixteen bits are UDP port 65535,
//! as with any queue pair's number ([`crate::roce_connect`]). Each member has a socket of its own
//! there and the kernel makes the copies. For each group a queue pair has one more [`Driver`], in a
//! slot of its own, which only receives.

use std::net::IpAddr;
use std::sync::Arc;

use weft_net::udp::UdpPort;
use weft_sync::MutexGuard;
use weft_verbs::{Misuse, QpType};

use crate::conn_slot::ConnSlot;
use crate::driver::Driver;
use crate::qp::HostQp;

impl HostQp {
    /// Has what comes to `group` by the network interfaces `interfaces` fill receives of this queue
    /// pair as well. To be attached already is no error.
    ///
    /// # Errors
    /// If the queue pair is not one for datagrams, the address is no group's, or the system
    /// refuses.
    pub fn attach_group(&self, group: IpAddr, interfaces: &[u32]) -> Result<(), Misuse> {
        if self.kind() != QpType::Ud || !group.is_multicast() {
            return Err(Misuse::Invalid("queue pairs for datagrams can be members of groups"));
        }
        let mut groups = self.groups();
        if groups.iter().any(|(known, _)| *known == group) {
            return Ok(());
        }
        let port = Arc::new(UdpPort::for_group(group, interfaces)?);
        let qp = Arc::clone(self.inner());
        let cell = self.slot.new_secondary(&qp);
        let driver = Driver::ud(cell.host(), cell.woken(&qp), port, Some(group));
        cell.hold(Box::new(driver));
        self.recv_cq().join(&cell);
        groups.push((group, cell));
        Ok(())
    }

    /// Ends that.
    ///
    /// # Errors
    /// If it is not attached to the group.
    pub fn detach_group(&self, group: IpAddr) -> Result<(), Misuse> {
        let mut groups = self.groups();
        let at = groups.iter().position(|(known, _)| *known == group);
        let at = at.ok_or(Misuse::Invalid("the queue pair is not attached to this group"))?;
        let (_, cell) = groups.swap_remove(at);
        self.leave(&cell);
        Ok(())
    }

    /// Leaves all groups.
    pub(crate) fn detach_groups(&self) {
        for (_, cell) in self.groups().drain(..) {
            self.leave(&cell);
        }
    }

    fn leave(&self, cell: &Arc<ConnSlot>) {
        self.recv_cq().leave(cell);
        cell.disconnect();
    }

    fn groups(&self) -> MutexGuard<'_, Vec<(IpAddr, Arc<ConnSlot>)>> {
        self.groups.lock()
    }
}
