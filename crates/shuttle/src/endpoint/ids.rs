//! Connection ids: random, found in one lookup, and quarantined after use (S-2, S-22).

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use weft_wire::shuttle::ConnectionId;

use crate::csprng::Csprng;

/// Quarantine of a used id, 30 s: packets of the old connection have left the network by then.
const QUARANTINE_NS: u64 = 30_000_000_000;
/// Random draws before ids count as exhausted; at 2^23 connections, half of all, one in 2^64 fails.
const DRAWS: u32 = 64;

/// Hash table for keys that are random already.
pub(super) type RandomKeys<K, V> = HashMap<K, V, BuildHasherDefault<AsIs>>;

/// Identity hash.
#[derive(Default)]
pub(super) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        octets.iter().for_each(|octet| self.write_u64(u64::from(*octet)));
    }

    fn write_u32(&mut self, number: u32) {
        // The table looks at the top bits and at the lowest; an id is random in 24 in the middle.
        self.write_u64(u64::from(number >> 8) << 40 | u64::from(number >> 8));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(8) ^ number;
    }
}

enum IdSlot<K> {
    Drawn,
    Attached(K),
    Quarantined,
}

/// Table of connection ids of an endpoint.
pub(super) struct Ids<K> {
    slots: RandomKeys<u32, IdSlot<K>>,
    quarantine: VecDeque<(u64, ConnectionId)>,
}

impl<K> Ids<K> {
    pub(super) fn new() -> Self {
        Self { slots: RandomKeys::default(), quarantine: VecDeque::new() }
    }

    /// A random id that is neither in use nor in quarantine; `None` if none was found.
    pub(super) fn draw(&mut self, now_ns: u64, csprng: &mut Csprng) -> Option<ConnectionId> {
        while let Some((until_ns, cid)) = self.quarantine.front()
            && *until_ns <= now_ns
        {
            self.slots.remove(&cid.0);
            self.quarantine.pop_front();
        }
        let free = |cid: &ConnectionId| cid.0 != 0 && !self.slots.contains_key(&cid.0);
        let mut cids = (0..DRAWS).map(|_| ConnectionId(csprng.next_words()[0] as u32).base());
        let cid = cids.find(free)?;
        self.slots.insert(cid.0, IdSlot::Drawn);
        Some(cid)
    }

    /// Maps `cid` to `key`.
    pub(super) fn attach(&mut self, cid: ConnectionId, key: K) {
        if let Some(slot) = self.slots.get_mut(&cid.base().0) {
            *slot = IdSlot::Attached(key);
        }
    }

    /// Key of the connection with id `cid`.
    pub(super) fn find(&self, cid: ConnectionId) -> Option<&K> {
        match self.slots.get(&cid.base().0) {
            Some(IdSlot::Attached(key)) => Some(key),
            _ => None,
        }
    }

    /// Ends the use of an id; its quarantine begins.
    pub(super) fn release(&mut self, now_ns: u64, cid: ConnectionId) {
        if let Some(slot) = self.slots.get_mut(&cid.base().0)
            && !matches!(slot, IdSlot::Quarantined)
        {
            *slot = IdSlot::Quarantined;
            self.quarantine.push_back((now_ns + QUARANTINE_NS, cid.base()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_spread_and_kept_back() {
        let (mut ids, mut csprng) = (Ids::new(), Csprng::new([1; 32]));
        let drawn: Vec<_> = (0..3000).map(|_| ids.draw(0, &mut csprng).unwrap()).collect();
        assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), drawn.len());
        assert_eq!(ids.draw(0, &mut Csprng::new([1; 32])), None, "all of them are in use");
        assert!(drawn.iter().all(|cid| cid.0 & 0xff == 0 && cid.0 != 0));
        let high = drawn.iter().filter(|cid| cid.0 >> 31 == 1).count();
        assert!((1300..1700).contains(&high), "{high}");
        assert_eq!(ids.find(drawn[7]), None);
        ids.attach(drawn[7], "seven");
        assert_eq!(ids.find(ConnectionId(drawn[7].0 | 5)), Some(&"seven"));
        ids.release(9, drawn[7]);
        ids.release(9, drawn[7]);
        assert_eq!((ids.find(drawn[7]), ids.quarantine.len()), (None, 1));
        ids.draw(QUARANTINE_NS, &mut csprng);
        assert!(ids.slots.contains_key(&drawn[7].0));
        ids.draw(QUARANTINE_NS + 9, &mut csprng);
        assert!(!ids.slots.contains_key(&drawn[7].0));
    }
}
