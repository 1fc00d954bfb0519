//! Connections that a listener has granted SDP and its application has not accepted.
//!
//! A peer may ask for them without ever connecting by TCP, and each holds descriptors of this
//! process. So their number is bounded, and where there is no room one makes room that belongs to
//! whoever holds most of them.
//!
//! A Hello says by itself which TCP port its sender connects from, so on this host any user could
//! name the port of another one. The kernel knows who has opened which socket: a grant is for the
//! TCP connection of the user whose socket has sent the Hello ([`HelloSender`]).

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use libc::c_int;
use weft_os::clock::Moment;

use crate::address;
use crate::names::SocketEnds;
use crate::socket_diag::SocketDiag;
use crate::sys;

/// How long a grant waits at least before it ends to make room: a peer may have asked for it and
/// never have connected by TCP.
const GRANT_LIFETIME: Duration = Duration::from_secs(60);

/// Grants that wait at all listeners of a process, at most.
const GRANTS_MAX: usize = 1024;
/// They may take this part of the descriptors that the process may have.
const DESCRIPTORS_SHARE: usize = 4;
/// As many may wait at a listener however many there are.
const LEAST_AT_EACH: usize = 16;

/// Grants that may wait at each of the `listeners` of a process that may have so many
/// `descriptors`, most of which are the application's.
pub fn most_at_each(descriptors: usize, listeners: usize) -> usize {
    let all = (descriptors / DESCRIPTORS_SHARE).min(GRANTS_MAX);
    (all / listeners.max(1)).max(LEAST_AT_EACH.min(all)).max(1)
}

/// Who has sent a Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloSender {
    /// A process of this network namespace, by a socket that this user has opened.
    Here(u32),
    /// Another host, or another network namespace.
    Elsewhere(IpAddr),
}

/// Who holds grants: a user of this host, or a network elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum GrantHolder {
    User(u32),
    Network(IpAddr),
}

/// A grant that waits for its TCP connection to be accepted.
pub struct PendingGrant<C> {
    /// The addresses of the TCP connection that the Hello announces.
    pub ends: SocketEnds,
    /// Who has asked for it.
    pub sender: HelloSender,
    /// What was granted.
    pub conn: C,
    since: Moment,
}

/// The grants of a listener, the oldest first.
pub struct PendingGrants<C>(Vec<PendingGrant<C>>);

impl HelloSender {
    /// The sender of a Hello that came between `ends`, seen from there, by this protocol of IP.
    /// None if the system does not say who that is.
    pub fn find(protocol: c_int, ends: SocketEnds) -> Option<Self> {
        let ip = ends.local.ip().to_canonical();
        if !address::is_of_this_host(ends.local)? {
            return Some(Self::Elsewhere(ip));
        }
        SocketDiag::open().ok()?.owner(protocol, &ends).map(Self::Here)
    }

    /// Whether the TCP connection between `ends`, seen from the peer, may be the one that the Hello
    /// is about. On this host that of another user is not.
    ///
    /// A caller may have closed its connection, and ended, before it was accepted: the kernel does
    /// not say then whose it was. It is taken for the Hello's if it `brought_nothing` by TCP: who
    /// uses SDP sends nothing there, and of who does not nothing is lost.
    ///
    /// # Errors
    /// Without a descriptor to ask the kernel.
    pub fn may_connect(
        &self,
        ends: &SocketEnds,
        brought_nothing: impl Fn() -> bool,
    ) -> io::Result<bool> {
        let Self::Here(user) = self else { return Ok(true) };
        let Some(diag) = sys::unless_lacking(SocketDiag::open())? else { return Ok(false) };
        let caller = diag.owner(libc::IPPROTO_TCP, ends);
        Ok(caller.map_or_else(brought_nothing, |caller| caller == *user))
    }

    fn holder(&self) -> GrantHolder {
        match self {
            Self::Here(user) => GrantHolder::User(*user),
            Self::Elsewhere(IpAddr::V6(ip)) => {
                // A host has as many addresses of its link as it likes.
                let network = Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64);
                GrantHolder::Network(network.into())
            }
            Self::Elsewhere(ip) => GrantHolder::Network(*ip),
        }
    }
}

impl<C> Default for PendingGrants<C> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<C> PendingGrants<C> {
    /// Leaves out those for which `keep` does not hold.
    pub fn retain(&mut self, keep: impl Fn(&C) -> bool) {
        self.0.retain(|grant| keep(&grant.conn));
    }

    /// Makes room for one more grant, to this sender, where there may be `most`: one may leave,
    /// which is returned. None if none may.
    ///
    /// One leaves that has had its time. Else it is the oldest one of whoever holds most whose peer
    /// has not called by TCP (`has_called`), unless the new sender holds as many.
    pub fn make_room(
        &mut self,
        most: usize,
        sender: &HelloSender,
        now: Moment,
        has_called: impl Fn(&SocketEnds) -> bool,
    ) -> Option<Option<C>> {
        if self.0.len() < most {
            return Some(None);
        }
        let oldest = self.0.first()?;
        let leaves = if now >= oldest.since + GRANT_LIFETIME {
            0
        } else {
            self.first_of_largest(sender.holder(), has_called)?
        };
        Some(Some(self.0.remove(leaves).conn))
    }

    /// The place of the oldest grant of whoever holds most, if that is more than `other` holds, of
    /// those whose peer has not called.
    fn first_of_largest(
        &self,
        other: GrantHolder,
        has_called: impl Fn(&SocketEnds) -> bool,
    ) -> Option<usize> {
        let mut counts: HashMap<GrantHolder, usize> = HashMap::new();
        for grant in &self.0 {
            *counts.entry(grant.sender.holder()).or_default() += 1;
        }
        let of_other = counts.get(&other).copied().unwrap_or(0);
        let (largest, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let leaves =
            |grant: &PendingGrant<C>| grant.sender.holder() == largest && !has_called(&grant.ends);
        (count > of_other).then(|| self.0.iter().position(leaves)).flatten()
    }

    /// Adds a grant. An earlier one of the same peer and holder leaves, and is returned.
    pub fn add(
        &mut self,
        ends: SocketEnds,
        sender: HelloSender,
        conn: C,
        since: Moment,
    ) -> Option<C> {
        let is_same = |other: &PendingGrant<C>| {
            other.ends.remote == ends.remote && other.sender.holder() == sender.holder()
        };
        let same = self.0.iter().position(is_same).map(|at| self.0.remove(at).conn);
        self.0.push(PendingGrant { ends, sender, conn, since });
        same
    }

    /// Takes all grants of this peer.
    pub fn take(&mut self, peer: SocketAddr) -> Vec<PendingGrant<C>> {
        self.0.extract_if(.., |grant| grant.ends.remote == peer).collect()
    }

    /// Takes all grants.
    pub fn take_all(&mut self) -> impl Iterator<Item = C> + use<C> {
        std::mem::take(&mut self.0).into_iter().map(|grant| grant.conn)
    }
}

#[cfg(test)]
mod tests {
    use weft_os::clock;

    use super::*;

    fn sender(host: u8) -> HelloSender {
        HelloSender::Elsewhere(IpAddr::from([192, 0, 2, host]))
    }

    fn ends(host: u8, port: u16) -> SocketEnds {
        let local = SocketAddr::from(([192, 0, 2, 250], 80));
        SocketEnds { local, remote: SocketAddr::from(([192, 0, 2, host], port)) }
    }

    /// Grants to these hosts, one a nanosecond.
    fn granted(hosts: &[u8], begun: Moment) -> PendingGrants<u16> {
        let mut grants = PendingGrants::default();
        for (number, host) in (0_u16..).zip(hosts) {
            let since = begun + Duration::from_nanos(number.into());
            assert_eq!(grants.add(ends(*host, number), sender(*host), number, since), None);
        }
        grants
    }

    #[test]
    fn the_oldest_grant_makes_room_once_it_has_had_its_time() {
        let begun = clock::now();
        let mut grants = granted(&[1, 1, 2], begun);
        let before = begun + GRANT_LIFETIME - Duration::from_nanos(1);
        assert_eq!(grants.make_room(4, &sender(1), before, |_| true), Some(None));
        assert_eq!(grants.make_room(3, &sender(1), before, |_| true), None);
        let at_last = begun + GRANT_LIFETIME;
        assert_eq!(grants.make_room(3, &sender(1), at_last, |_| true), Some(Some(0)));
        assert_eq!(granted(&[], begun).make_room(0, &sender(1), at_last, |_| true), None);
    }

    #[test]
    fn who_holds_most_makes_room_for_who_holds_less_and_for_nobody_else() {
        let begun = clock::now();
        let mut grants = granted(&[1, 2, 2, 2], begun);
        assert_eq!(grants.make_room(4, &sender(2), begun, |_| false), None);
        assert_eq!(grants.make_room(4, &sender(3), begun, |_| false), Some(Some(1)));
        assert_eq!(grants.make_room(3, &sender(1), begun, |_| false), Some(Some(2)));
        assert_eq!(grants.make_room(2, &sender(1), begun, |_| false), None);
    }

    #[test]
    fn the_listeners_of_a_process_share_a_part_of_its_descriptors() {
        assert_eq!(most_at_each(1024, 1), 256);
        assert_eq!(most_at_each(1024, 4), 64);
        assert_eq!(most_at_each(1 << 20, 2), GRANTS_MAX / 2);
        assert_eq!(most_at_each(1024, 100), LEAST_AT_EACH);
        assert_eq!(most_at_each(8, 100), 2);
    }

    #[test]
    fn a_peer_that_waits_to_be_accepted_keeps_its_grant() {
        let begun = clock::now();
        let mut grants = granted(&[1, 1], begun);
        let has_called = |of: &SocketEnds| *of == ends(1, 0);
        assert_eq!(grants.make_room(2, &sender(2), begun, |_| true), None);
        assert_eq!(grants.make_room(2, &sender(2), begun, has_called), Some(Some(1)));
    }

    #[test]
    fn two_senders_have_each_a_grant_for_one_address() {
        let begun = clock::now();
        let mut grants = granted(&[1], begun);
        assert_eq!(grants.add(ends(1, 0), sender(2), 7, begun), None);
        assert_eq!(grants.add(ends(1, 0), sender(2), 8, begun), Some(7));
        let both: Vec<u16> = grants.take(ends(1, 0).remote).into_iter().map(|of| of.conn).collect();
        assert_eq!(both, [0, 8]);
        assert_eq!(grants.take_all().count(), 0);
    }

    #[test]
    fn all_addresses_of_a_link_elsewhere_are_one_holder() {
        let of = |text: &str| HelloSender::Elsewhere(text.parse().unwrap()).holder();
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
