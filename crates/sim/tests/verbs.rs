//! Queue pairs over Shuttle across a simulated WAN: what is in memory afterwards, and when.

#[path = "../../rnic/tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use common::{ALL, Host, Memory, entropy, flatten};
use degen::link::Link;
use degen::spec::PathSpec;
use weft_rnic::shuttle::{Identity, PeerRequest, Route, ShuttleConfig, cc};
use weft_rnic::wire::shuttle::ConnectionId;
use weft_rnic::{Binding, Sending, ShuttleQp, WhenClosed, Written};
use weft_verbs::{QpState, SendOp};

const MS: u64 = 1_000_000;
const DATAGRAM: u16 = 1472;
const IP_UDP: u32 = 28;

/// Two hosts and the two directions of the path between them.
struct Wan {
    hosts: [Host; 2],
    associations: Vec<ShuttleQp>,
    links: [Link<Vec<u8>>; 2],
    now_ns: u64,
}

fn binding(host: usize) -> Binding {
    let at = |host: usize| ([10, 0, 0, host as u8 + 1], 4000).into();
    let seed = host as u64 + 1;
    let controller_params = cc::Params { datagram_octets: DATAGRAM, seed, ..cc::Params::default() };
    Binding {
        config: ShuttleConfig {
            datagram_octets: DATAGRAM,
            controller: cc::weave,
            controller_params,
            ..ShuttleConfig::default()
        },
        identity: Identity {
            cid: ConnectionId(0x1100 << host),
            nonce: seed,
            seed,
            entropy: [host as u8; 32],
        },
        route: Route { local: at(host), remote: at(1 - host) },
        when_closed: WhenClosed::Fail,
    }
}

impl Wan {
    fn new(path: &str) -> Self {
        let words: Vec<&str> = path.split_whitespace().collect();
        let [there, back] = PathSpec::parse(&words).unwrap().links();
        let hosts = [Host::new(7), Host::new(11)];
        hosts.iter().for_each(|host| host.qp.enter(QpState::Rts));
        let asks = ShuttleQp::connect(Arc::clone(&hosts[0].qp), binding(0), b"", 0).unwrap();
        let links = [Link::new(there, 1), Link::new(back, 2)];
        Self { hosts, associations: vec![asks], links, now_ns: 0 }
    }

    /// Everything that a host sends now.
    fn send(&mut self, host: usize) {
        let Some(shuttle) = self.associations.get_mut(host) else { return };
        let (link, now_ns) = (&mut self.links[host], self.now_ns);
        let table = Arc::clone(self.hosts[host].device.regions());
        let done = |sending| sending == Sending::Done;
        while !done(shuttle.poll_transmit(
            || now_ns,
            |burst| {
                let all = flatten(burst, &table.reader());
                let mut rest = &all[..];
                for length in burst.lengths {
                    let (datagram, after) = rest.split_at(usize::from(*length));
                    link.handle(now_ns, u32::from(*length) + IP_UDP, false, datagram.to_vec());
                    rest = after;
                }
                Written::Octets(all.len())
            },
        )) {}
    }

    fn receive(&mut self, host: usize) {
        while let Some(delivery) = self.links[1 - host].poll(self.now_ns) {
            let mut datagram = delivery.packet;
            if let Some(flip) = delivery.corrupt {
                let bit = flip as usize % (8 * datagram.len());
                datagram[bit / 8] ^= 1 << (bit % 8);
            }
            if self.associations.len() == host {
                let grant = binding(host);
                let parsed = PeerRequest::parse(&datagram, &grant.config, [3; 32]);
                let Ok(mut request) = parsed else { continue };
                let qp = Arc::clone(&self.hosts[host].qp);
                let granted = ShuttleQp::accept(qp, grant, &mut request, b"", self.now_ns);
                self.associations.push(granted.unwrap());
            }
            let route = binding(host).route;
            self.associations[host].receive(self.now_ns, route, false, &mut datagram);
        }
    }

    /// Lets time pass until all that the first host has posted is complete; gives when.
    fn complete(&mut self, until_ns: u64) -> u64 {
        loop {
            (0..2).for_each(|host| self.send(host));
            if self.hosts[0].qp.sq().is_idle() {
                return self.now_ns;
            }
            let timers = self.associations.iter().filter_map(ShuttleQp::poll_timeout);
            let arrivals = self.links.iter().filter_map(Link::next_due_ns);
            let next_ns = timers.chain(arrivals).min().expect("something is still to come");
            assert!(next_ns < until_ns, "not complete at {} ms", until_ns / MS);
            self.now_ns = next_ns.max(self.now_ns);
            (0..2).for_each(|host| self.receive(host));
            let now_ns = self.now_ns;
            self.associations.iter_mut().for_each(|one| one.handle_timeout(now_ns));
        }
    }
}

/// Words that differ everywhere.
fn fill(memory: &mut Memory, seed: u32) {
    let random = entropy(seed);
    memory
        .bytes
        .iter_mut()
        .for_each(|word| *word = u64::from(random()) << 32 | u64::from(random()));
}

#[test]
fn memory_is_right_after_a_path_that_loses_delays_doubles_and_corrupts() {
    const OCTETS: u64 = 4 << 20;
    let mut wan = Wan::new("70ms 2% 200mbit queue=1bdp reorder=10%:3ms duplicate=1% corrupt=0.5%");
    let [near, far] = &wan.hosts;
    let (mut source, mut remote) = (near.memory(OCTETS, ALL), far.memory(OCTETS, ALL));
    let (sink, mut other) = (near.memory(OCTETS / 4, ALL), far.memory(OCTETS / 4, ALL));
    let counter = far.memory(8, ALL);
    let inbox = far.memory(64, ALL);
    fill(&mut source, 1);
    fill(&mut remote, 2);
    fill(&mut other, 3);
    far.recv(9, &[inbox.sge(0, 64)]);
    let at = |memory: &Memory| (memory.addr(), memory.key);
    let (to, stag) = at(&remote);
    near.send(1, SendOp::Write { to, stag }, &[source.sge(0, OCTETS as u32)]);
    let (to, stag) = at(&other);
    near.send(2, SendOp::Read { to, stag }, &[sink.sge(0, OCTETS as u32 / 4)]);
    let (to, stag) = at(&counter);
    for number in 0..8 {
        let old = source.sge(8 * number, 8);
        near.send(3 + number, SendOp::FetchAdd { to, stag, add: 5 }, &[old]);
    }
    near.send(11, SendOp::Send, &[source.sge(OCTETS - 64, 64)]);
    let done_ns = wan.complete(10_000 * MS);
    let [near, far] = &wan.hosts;
    let statuses = near.statuses();
    assert_eq!(statuses, (1..=11).map(|id| (id, 0)).collect::<Vec<_>>());
    assert_eq!(far.statuses(), [(9, 0)]);
    // The atomics have put into the source's first words what stood in the counter.
    assert_eq!(source.bytes[..8], [0, 5, 10, 15, 20, 25, 30, 35]);
    assert_eq!((&source.bytes[8..], counter.bytes[0]), (&remote.bytes[8..], 40));
    assert_eq!(sink.bytes, other.bytes);
    assert_eq!(inbox.bytes[..], source.bytes[source.bytes.len() - 8..]);
    // 4 MiB take 0.17 s at this rate; the start, repairs and four more trips are the rest.
    assert!(done_ns < 2500 * MS, "{} ms", done_ns / MS);
}
