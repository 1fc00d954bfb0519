//! A network in memory: a rate, a queue, a delay, and what goes wrong.

use std::collections::BTreeMap;

use weft_shuttle::Route;

/// The local ports of a host's paths.
const FIRST_PORTS: std::ops::Range<u16> = 4000..4016;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Whether an event of this probability happens.
    pub fn happens(&mut self, probability: f64) -> bool {
        (self.next() >> 11) as f64 / ((1_u64 << 53) as f64) < probability
    }
}

/// One direction of a network.
#[derive(Clone, Debug)]
pub struct Link {
    pub delay_ns: u64,
    /// 0 for no limit.
    pub rate_bps: u64,
    /// Time that a packet may wait for its turn; one that would wait longer is dropped.
    pub queue_ns: u64,
    pub loss: f64,
    pub duplicate: f64,
    /// Part of the packets that come later, and by how much at most.
    pub late: f64,
    pub late_ns: u64,
    /// Part of the packets in which a bit is flipped.
    pub corrupt: f64,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            delay_ns: 5_000_000,
            rate_bps: 0,
            queue_ns: u64::MAX,
            loss: 0.0,
            duplicate: 0.0,
            late: 0.0,
            late_ns: 0,
            corrupt: 0.0,
        }
    }
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub sent: u64,
    pub lost: u64,
    pub lost_data_octets: u64,
    pub late: u64,
}

/// Both directions, and what is on its way.
pub struct Network {
    pub links: [Link; 2],
    pub counts: [Counts; 2],
    /// Nothing gets through.
    pub down: bool,
    /// The sender's address as the receiver sees it has another port.
    pub rebound: [u16; 2],
    /// Bytes of the largest datagram that gets through...
    pub carries: usize,
    /// ... or of those that may not be cut.
    pub fragments: bool,
    /// Datagrams longer than this are lost with this probability besides.
    pub grey: Option<(usize, f64)>,
    /// A port that leads nowhere.
    pub nobody: Option<u16>,
    /// An address that no host has any more.
    pub gone: Option<core::net::IpAddr>,
    /// A path that carries nothing in either direction.
    pub dead_path: Option<u16>,
    /// Whether a rebound host is gone from its old port.
    pub strict_nat: bool,
    free_ns: [u64; 2],
    flying: BTreeMap<(u64, u64), (usize, Route, Vec<u8>)>,
    order: u64,
    random: Random,
}

impl Network {
    pub fn new(seed: u64, link: &Link) -> Self {
        Self {
            links: [link.clone(), link.clone()],
            counts: [Counts::default(); 2],
            down: false,
            rebound: [0; 2],
            carries: usize::MAX,
            fragments: false,
            grey: None,
            nobody: None,
            gone: None,
            dead_path: None,
            strict_nat: false,
            free_ns: [0; 2],
            flying: BTreeMap::new(),
            order: 0,
            random: Random(seed),
        }
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.flying.first_key_value().map(|(key, _)| key.0)
    }

    /// The next datagram that has arrived: at which host, over which route.
    pub fn poll(&mut self, now_ns: u64) -> Option<(usize, Route, Vec<u8>)> {
        let entry = self.flying.first_entry().filter(|entry| entry.key().0 <= now_ns)?;
        Some(entry.remove())
    }

    /// Host `from` sends.
    pub fn send(&mut self, now_ns: u64, from: usize, route: Route, datagram: Vec<u8>) {
        self.send_whole(now_ns, from, route, datagram, false);
    }

    /// Host `from` sends what the network may cut if it is `cuttable`.
    pub fn send_whole(
        &mut self,
        now_ns: u64,
        from: usize,
        route: Route,
        datagram: Vec<u8>,
        cuttable: bool,
    ) {
        let link = self.links[from].clone();
        let octets = datagram.len() as u64;
        self.counts[from].sent += 1;
        let starts = self.free_ns[from].max(now_ns);
        if link.rate_bps > 0 && starts - now_ns > link.queue_ns {
            return self.lose(from, &datagram);
        }
        let takes = ((octets + 28) * 8 * 1_000_000_000).checked_div(link.rate_bps);
        self.free_ns[from] = starts + takes.unwrap_or(0);
        let fits = datagram.len() <= self.carries || (cuttable && self.fragments);
        let moved =
            !FIRST_PORTS.contains(&route.remote.port().wrapping_sub(self.rebound[1 - from]));
        let dead =
            self.dead_path.is_some_and(|path| route.local.port() == FIRST_PORTS.start + path);
        let grey = self.grey.filter(|(octets, _)| datagram.len() > *octets);
        let fits = fits && !grey.is_some_and(|(_, part)| self.random.happens(part));
        if !fits
            || self.down
            || dead
            || (self.strict_nat && moved)
            || self.nobody == Some(route.remote.port())
            || self.gone == Some(route.remote.ip())
            || self.random.happens(link.loss)
        {
            return self.lose(from, &datagram);
        }
        let copies = if self.random.happens(link.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            let mut arrives = self.free_ns[from] + link.delay_ns;
            if self.random.happens(link.late) {
                self.counts[from].late += 1;
                arrives += self.random.below(link.late_ns + 1);
            }
            let mut copy = datagram.clone();
            if self.random.happens(link.corrupt) {
                let bit = self.random.below(octets * 8);
                copy[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
            let mut seen = Route { local: route.remote, remote: route.local };
            seen.remote.set_port(seen.remote.port() + self.rebound[from]);
            seen.local.set_port(route.local.port());
            self.order += 1;
            self.flying.insert((arrives, self.order), (1 - from, seen, copy));
        }
    }

    fn lose(&mut self, from: usize, datagram: &[u8]) {
        self.counts[from].lost += 1;
        if datagram[0] >> 5 == 5 {
            self.counts[from].lost_data_octets += datagram.len() as u64;
        }
    }
}
