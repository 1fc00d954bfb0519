//! Datagrams of peers that have another key, or none where one is needed: each end is told.

use std::net::IpAddr;

use weft_net::secrecy::{Lower, Refused};
use weft_rnic::shuttle::{Route, Unopened};
use weft_rnic::wire::datagram::{Header, NOTICE_LEN, Notice};

use super::Mailbox;

/// What a notice repeats, and what comes before that.
pub(super) type Head = [u8; NOTICE_LEN];

impl Mailbox {
    /// A datagram that begins with `head` did not open: says why, here and to its sender.
    pub(super) fn drop_unopened(&self, head: Option<Head>, why: Unopened, route: &Route) {
        let secrecy = crate::Host::get().secrecy();
        let Some(why) = secrecy.why_unopened(why) else { return };
        secrecy.tell_of_stranger(why, route.remote.ip());
        self.notify(head, why, route);
    }

    /// Whether clear text between these is taken; its sender is told if it is not.
    pub(super) fn admits(&self, head: Option<Head>, route: &Route) -> bool {
        let (here, there): (IpAddr, IpAddr) = (route.local.ip(), route.remote.ip());
        let admitted = crate::Host::get().secrecy().admit(Lower::Shuttle, here, there);
        admitted.inspect_err(|why| self.notify(head, *why, route)).is_ok()
    }

    /// Tells the sender of a datagram why it is dropped, if it is no stranger. Not that of one to a
    /// group, which all members would answer.
    fn notify(&self, head: Option<Head>, why: Refused, route: &Route) {
        let Some(head) = head.filter(|head| self.is_of_acquaintance(head, route)) else { return };
        if let Some(notice) = crate::Host::get().secrecy().notice(&head, why, route.remote.ip()) {
            // What cannot leave is lost, as on the way.
            let _written = self.port.send_staged(route, &notice.to_bytes(), NOTICE_LEN);
        }
    }

    /// Whether a datagram comes from who may know that this queue pair is here.
    fn is_of_acquaintance(&self, head: &Head, route: &Route) -> bool {
        let (here, there) = (route.local.ip(), route.remote.ip());
        let names_this = || Header::parse(head).is_some_and(|(header, _)| self.is_wanted(&header));
        // Both addresses are one where this machine speaks to itself.
        let known = || here == there || crate::Host::get().secrecy().is_destination(there);
        self.group.is_none() && (names_this() || known())
    }

    /// Takes a notice; whether the datagram was one. It must be about one that this queue pair has
    /// sent.
    pub(super) fn take_notice(&self, datagram: &[u8], route: &Route) -> bool {
        let Some(notice) = Notice::parse(datagram) else { return false };
        let is_own = match &self.letters {
            Some((sealer, _)) => notice.is_of_sender(sealer.sender()),
            None => {
                let (to, from) = notice.queue_pairs();
                from == self.qp.num() && to >> 8 == u32::from(route.remote.port())
            }
        };
        if is_own && self.group.is_none() {
            crate::Host::get().secrecy().report_notice(notice, route.remote.ip());
        }
        true
    }
}
