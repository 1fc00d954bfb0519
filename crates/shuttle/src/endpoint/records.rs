//! Records of Requests: one for each, for as long as it may be repeated (S-13, S-19).
//!
//! Invariant: a record is half open, and counted so, until the peer has shown that it got the
//! answer, the Request was refused, or the record expired.

use std::collections::{BTreeSet, VecDeque};

use weft_wire::shuttle::ConnectionId;

use super::ids::RandomKeys;
use crate::connection::PeerRequest;
use crate::path::Route;

/// Lifetime of a pending Request, 10 s: more than twice the longest interval of repetitions.
const KEEP_NS: u64 = 10_000_000_000;
/// Lifetime of a refused or lapsed Request, 20 s: longer than its cookie, so that no Request counts
/// as new twice.
const REFUSED_NS: u64 = 20_000_000_000;
const _: () = assert!(REFUSED_NS > super::cookie::LIFE_NS && LINGER_NS > super::cookie::LIFE_NS);
/// Time after a connection's end in which its Request may still arrive, 30 s.
const LINGER_NS: u64 = 30_000_000_000;
/// Most records of ended connections; the oldest is dropped.
const ENDED_MAX: usize = 16_384;
/// Most refusals kept for repetition.
const REFUSALS_MAX: usize = 1024;
/// Most identities kept of Requests whose record was dropped before their cookie expired.
const SPENT_MAX: usize = 65_536;
/// Their stage.
const SPENT: &RecordStage = &RecordStage::Lapsed;

/// Stage of a Request.
pub(super) enum RecordStage {
    /// Pending.
    Asked(Box<PeerRequest>, Route),
    /// Refused by this datagram.
    Refused(Vec<u8>),
    /// Expired without an answer.
    Lapsed,
    /// Accepted as the connection with this id.
    Granted(ConnectionId),
}

struct Record {
    stage: RecordStage,
    half_open: bool,
    /// Expiry; never for an established connection.
    until_ns: u64,
}

/// Records of an endpoint by Request identity.
pub(super) struct Records {
    records: RandomKeys<u64, Record>,
    granted: RandomKeys<u32, u64>,
    ends: BTreeSet<(u64, u64)>,
    refused: VecDeque<u64>,
    /// Ended connections, oldest first.
    ended: VecDeque<ConnectionId>,
    /// Requests whose record was dropped early, with the time until which they are known.
    spent: RandomKeys<u64, ()>,
    spent_order: VecDeque<(u64, u64)>,
    half_open: usize,
}

impl Records {
    pub(super) fn new() -> Self {
        Self {
            records: RandomKeys::default(),
            granted: RandomKeys::default(),
            ends: BTreeSet::new(),
            refused: VecDeque::new(),
            ended: VecDeque::new(),
            spent: RandomKeys::default(),
            spent_order: VecDeque::new(),
            half_open: 0,
        }
    }

    pub(super) fn half_open(&self) -> usize {
        self.half_open
    }

    /// Drops expired records.
    pub(super) fn expire(&mut self, now_ns: u64) {
        while let Some((until_ns, name)) = self.ends.first().copied()
            && until_ns <= now_ns
        {
            self.ends.pop_first();
            let Some(record) = self.records.get_mut(&name) else { continue };
            let half_open = std::mem::take(&mut record.half_open);
            self.half_open -= usize::from(half_open);
            // An established connection reports its own end.
            if half_open && matches!(record.stage, RecordStage::Granted(_)) {
                record.until_ns = u64::MAX;
                continue;
            }
            if half_open {
                record.stage = RecordStage::Lapsed;
                self.keep(name, now_ns.saturating_add(REFUSED_NS));
                continue;
            }
            if let Some(Record { stage: RecordStage::Granted(cid), .. }) =
                self.records.remove(&name)
            {
                self.granted.remove(&cid.0);
            }
        }
    }

    /// Looks up the Request `name`; returns its stage if it is a repetition.
    pub(super) fn hear(&mut self, now_ns: u64, name: u64) -> Option<&RecordStage> {
        let asked = |record: &Record| matches!(record.stage, RecordStage::Asked(..));
        if self.records.get(&name).is_some_and(asked) {
            self.keep(name, now_ns.saturating_add(KEEP_NS));
        }
        let spent = self.spent.contains_key(&name).then_some(SPENT);
        self.records.get(&name).map(|record| &record.stage).or(spent)
    }

    /// Drops the record of `name`, and remembers that its Request is not new. Returns whether there
    /// are too many such.
    fn spend(&mut self, now_ns: u64, name: u64) -> bool {
        while let Some((until_ns, oldest)) = self.spent_order.front().copied()
            && (until_ns <= now_ns || self.spent_order.len() >= SPENT_MAX)
        {
            self.spent_order.pop_front();
            self.spent.remove(&oldest);
            if until_ns > now_ns {
                return true;
            }
        }
        self.spent.insert(name, ());
        self.spent_order.push_back((now_ns.saturating_add(REFUSED_NS), name));
        false
    }

    /// Looks up the Request `name`, as [`Records::hear`] does, without keeping it any longer.
    pub(super) fn stage(&self, name: u64) -> Option<&RecordStage> {
        self.records.get(&name).map(|record| &record.stage)
    }

    /// Nobody waits for an answer to pending `name` any more. It counts as half open as long as it
    /// would have otherwise, so that nobody can ask and withdraw without end.
    pub(super) fn withdraw(&mut self, name: u64) {
        if let Some(record) = self.records.get_mut(&name) {
            record.stage = RecordStage::Lapsed;
        }
    }

    /// Adds a pending Request.
    pub(super) fn ask(&mut self, now_ns: u64, name: u64, request: PeerRequest, route: Route) {
        self.half_open += 1;
        let stage = RecordStage::Asked(Box::new(request), route);
        self.records.insert(name, Record { stage, half_open: true, until_ns: u64::MAX });
        self.keep(name, now_ns.saturating_add(KEEP_NS));
    }

    /// Every pending Request.
    pub(super) fn pending(&self) -> Vec<u64> {
        let asked = |record: &Record| matches!(record.stage, RecordStage::Asked(..));
        self.records.iter().filter(|(_, record)| asked(record)).map(|(name, _)| *name).collect()
    }

    /// The Request `name`, if pending.
    pub(super) fn asked(&self, name: u64) -> Option<(&PeerRequest, Route)> {
        match &self.records.get(&name)?.stage {
            RecordStage::Asked(request, route) => Some((request, *route)),
            _ => None,
        }
    }

    /// As [`Records::asked`], mutable.
    pub(super) fn asked_mut(&mut self, name: u64) -> Option<(&mut PeerRequest, Route)> {
        match &mut self.records.get_mut(&name)?.stage {
            RecordStage::Asked(request, route) => Some((request, *route)),
            _ => None,
        }
    }

    /// Refuses pending `name`; returns whether a Request had to be forgotten for it.
    pub(super) fn refuse(&mut self, now_ns: u64, name: u64, answer: Vec<u8>) -> bool {
        let Some(record) = self.records.get_mut(&name) else { return false };
        record.stage = RecordStage::Refused(answer);
        self.half_open -= usize::from(std::mem::take(&mut record.half_open));
        self.keep(name, now_ns.saturating_add(REFUSED_NS));
        self.refused.push_back(name);
        if self.refused.len() > REFUSALS_MAX
            && let Some(oldest) = self.refused.pop_front()
        {
            return self.drop_refusal(now_ns, oldest);
        }
        false
    }

    fn drop_refusal(&mut self, now_ns: u64, name: u64) -> bool {
        let refused = |record: &Record| matches!(record.stage, RecordStage::Refused(_));
        if self.records.get(&name).is_some_and(refused)
            && let Some(record) = self.records.remove(&name)
        {
            self.ends.remove(&(record.until_ns, name));
            return self.spend(now_ns, name);
        }
        false
    }

    /// Accepts pending `name` as connection `cid`.
    pub(super) fn grant(&mut self, now_ns: u64, name: u64, cid: ConnectionId) {
        if let Some(record) = self.records.get_mut(&name) {
            record.stage = RecordStage::Granted(cid);
            self.granted.insert(cid.0, name);
            self.keep(name, now_ns.saturating_add(KEEP_NS));
        }
    }

    /// Notes that the peer of connection `cid` has the answer.
    pub(super) fn confirm(&mut self, cid: ConnectionId) {
        let Some(name) = self.granted.get(&cid.base().0).copied() else { return };
        if let Some(record) = self.records.get_mut(&name) {
            self.half_open -= usize::from(std::mem::take(&mut record.half_open));
            self.keep(name, u64::MAX);
        }
    }

    /// Ends connection `cid`; returns whether a Request had to be forgotten for it.
    pub(super) fn release(&mut self, now_ns: u64, cid: ConnectionId) -> bool {
        self.confirm(cid);
        if let Some(name) = self.granted.get(&cid.base().0).copied() {
            self.keep(name, now_ns.saturating_add(LINGER_NS));
            self.ended.push_back(cid.base());
        }
        self.expire(now_ns);
        let mut forgotten = false;
        while let Some(oldest) = self.ended.front().copied()
            && (self.ended.len() > ENDED_MAX || !self.granted.contains_key(&oldest.0))
        {
            self.ended.pop_front();
            if let Some(name) = self.granted.remove(&oldest.0)
                && let Some(record) = self.records.remove(&name)
            {
                self.ends.remove(&(record.until_ns, name));
                forgotten |= self.spend(now_ns, name);
            }
        }
        forgotten
    }

    fn keep(&mut self, name: u64, until_ns: u64) {
        let Some(record) = self.records.get_mut(&name) else { return };
        self.ends.remove(&(record.until_ns, name));
        record.until_ns = until_ns;
        if until_ns < u64::MAX {
            self.ends.insert((until_ns, name));
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_wire::shuttle::hello::{Hello, HelloKind};

    use super::*;

    #[test]
    fn no_more_than_so_many_ended_connections_are_remembered() {
        let mut records = Records::new();
        for number in 1..=2 * ENDED_MAX as u64 {
            let cid = ConnectionId((number as u32) << 8);
            let stage = RecordStage::Refused(Vec::new());
            records.records.insert(number, Record { stage, half_open: false, until_ns: 0 });
            records.grant(number, number, cid);
            records.release(number, cid);
        }
        let last = 2 * ENDED_MAX as u64;
        assert_eq!(records.records.len(), ENDED_MAX);
        assert_eq!((records.granted.len(), records.ends.len()), (ENDED_MAX, ENDED_MAX));
        assert!(records.records.contains_key(&last));
        records.expire(last + LINGER_NS);
        assert!(records.records.is_empty() && records.granted.is_empty());
    }

    #[test]
    fn a_request_is_known_until_it_expires_or_too_many_follow() {
        let mut records = Records::new();
        assert!(!records.spend(0, 1));
        assert!(records.hear(REFUSED_NS - 1, 1).is_some());
        assert!(!records.spend(REFUSED_NS, 2), "what has expired is not forgotten early");
        assert!(records.hear(REFUSED_NS, 1).is_none());
        for name in 3..=SPENT_MAX as u64 + 1 {
            assert!(!records.spend(REFUSED_NS + 1, name));
        }
        assert!(records.spend(REFUSED_NS + 1, 1));
        assert!(records.hear(REFUSED_NS + 1, 2).is_none());
    }

    /// An application that takes its time costs its peers' Requests, no connections.
    #[test]
    fn who_waits_is_a_small_record() {
        let octets = size_of::<Record>() + size_of::<PeerRequest>();
        assert!(octets <= 256, "{octets}");
    }

    fn asked(now_ns: u64, names: &[u64]) -> Records {
        let mut records = Records::new();
        names.iter().for_each(|name| ask(&mut records, now_ns, *name));
        records
    }

    fn ask(records: &mut Records, now_ns: u64, name: u64) {
        let limits = Some(crate::ShuttleConfig::default().limits());
        let hello = Hello { nonce: name, limits, ..Hello::new(HelloKind::Request) };
        let config = crate::ShuttleConfig::default();
        let request = PeerRequest::parse(&hello.encode(), &config, [0; 32]).unwrap();
        let at = ([10, 0, 0, 1], 4000).into();
        records.ask(now_ns, name, request, Route { local: at, remote: at });
    }

    /// The stage as a letter, `-` for a Request that is new.
    fn stage(records: &mut Records, now_ns: u64, name: u64) -> char {
        records.expire(now_ns);
        match records.hear(now_ns, name) {
            Some(RecordStage::Asked(..)) => 'a',
            Some(RecordStage::Refused(_)) => 'r',
            Some(RecordStage::Lapsed) => 'l',
            Some(RecordStage::Granted(_)) => 'g',
            None => '-',
        }
    }

    #[test]
    fn a_request_lapses_10_s_after_its_last_repetition_and_is_known_for_20_s_more() {
        let mut records = asked(5, &[1]);
        assert_eq!(stage(&mut records, 5 + KEEP_NS - 1, 1), 'a');
        let last_ns = 5 + KEEP_NS - 1;
        assert_eq!(stage(&mut records, last_ns + KEEP_NS - 1, 1), 'a', "it was repeated");
        let last_ns = last_ns + KEEP_NS - 1;
        assert!(records.asked(1).is_some() && records.asked_mut(1).is_some());
        assert_eq!(records.half_open(), 1);
        assert_eq!(stage(&mut records, last_ns + KEEP_NS, 1), 'l');
        assert!(records.asked(1).is_none() && records.asked_mut(1).is_none());
        assert_eq!(records.half_open(), 0);
        let lapsed_ns = last_ns + KEEP_NS;
        assert_eq!(stage(&mut records, lapsed_ns + REFUSED_NS - 1, 1), 'l');
        assert_eq!(stage(&mut records, lapsed_ns + REFUSED_NS, 1), '-');
    }

    /// S-25.
    #[test]
    fn a_withdrawn_request_is_no_news_and_half_open_as_long_as_another() {
        let mut records = asked(0, &[1]);
        records.withdraw(1);
        assert!(records.asked(1).is_none());
        assert_eq!((stage(&mut records, KEEP_NS - 1, 1), records.half_open()), ('l', 1));
        assert_eq!((stage(&mut records, KEEP_NS, 1), records.half_open()), ('l', 0));
        assert_eq!(stage(&mut records, KEEP_NS + REFUSED_NS - 1, 1), 'l');
        assert_eq!(stage(&mut records, KEEP_NS + REFUSED_NS, 1), '-');
    }

    #[test]
    fn a_refusal_is_said_again_for_20_s_and_is_half_open_no_more() {
        let mut records = asked(0, &[1, 2]);
        assert!(!records.refuse(7, 1, vec![1]));
        assert_eq!(records.half_open(), 1);
        assert_eq!(stage(&mut records, 7 + REFUSED_NS - 1, 1), 'r');
        assert_eq!(stage(&mut records, 7 + REFUSED_NS, 1), '-');
        assert!(!records.refuse(0, 99, vec![1]), "it was never asked");
    }

    /// S-19: the datagram of the oldest refusal goes, and what is kept of it says that it is old.
    #[test]
    fn a_refusal_too_many_leaves_the_oldest_known_but_unanswered() {
        let count = REFUSALS_MAX as u64 + 1;
        let mut records = asked(0, &(1..=count).collect::<Vec<_>>());
        for name in 1..=count {
            assert_eq!(stage(&mut records, 1, 1), if name == 1 { 'a' } else { 'r' });
            assert!(!records.refuse(1, name, Vec::new()));
        }
        assert_eq!((stage(&mut records, 2, 1), stage(&mut records, 2, 2)), ('l', 'r'));
        assert_eq!((records.records.len(), records.ends.len()), (REFUSALS_MAX, REFUSALS_MAX));
        assert_eq!(records.half_open(), 0);
    }

    #[test]
    fn a_granted_request_is_half_open_until_the_peer_is_heard_or_10_s_are_over() {
        let (first, second) = (ConnectionId(0x100), ConnectionId(0x200));
        let mut records = asked(0, &[1, 2]);
        records.grant(5, 1, first);
        records.grant(5, 2, second);
        assert_eq!(records.half_open(), 2);
        records.confirm(ConnectionId(0x107));
        assert_eq!(records.half_open(), 1);
        records.confirm(first);
        assert_eq!(records.half_open(), 1, "once");
        assert_eq!(stage(&mut records, 5 + KEEP_NS - 1, 2), 'g');
        assert_eq!(records.half_open(), 1, "a repetition keeps no granted one");
        assert_eq!(stage(&mut records, 5 + KEEP_NS, 2), 'g', "it reports its own end");
        assert_eq!(records.half_open(), 0);
        assert_eq!(stage(&mut records, u64::MAX - 1, 1), 'g');
        // After the end a Request that was on its way may still arrive.
        assert!(!records.release(7 * KEEP_NS, first));
        assert_eq!(stage(&mut records, 7 * KEEP_NS + LINGER_NS - 1, 1), 'g');
        assert_eq!(stage(&mut records, 7 * KEEP_NS + LINGER_NS, 1), '-');
        assert_eq!(records.granted.len(), 1, "the other one is connected");
    }
}
