//! What a datagram holds, what of it can be read by the network, and what receivers report of the
//! packets that they got.
//!
//! Rules of `docs/shuttle.md`: S-4, S-48, S-63, S-84.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use support::network::Link;
use support::{MS, Pair, seed};
use weft_shuttle::cc::{Acked, Controller, Ecn, Fixed, Lost, Make, Params, Sent, Spurious, fixed};
use weft_shuttle::{Credentials, RecoveryStats, ShuttleConfig};
use weft_wire::shuttle::hello::protection;
use weft_wire::shuttle::{CtrlHeader, Packet, PathId};

const PATH: PathId = PathId(0);

fn pair_with(protection: u8, controller: Make) -> Pair {
    let credentials = Credentials::PreShared([5; 32]);
    let controller_params = Params { initial_rate_bps: Some(100_000_000), ..Params::default() };
    let config = ShuttleConfig {
        protection,
        credentials,
        controller,
        controller_params,
        ..ShuttleConfig::default()
    };
    let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
    pair.tracing = true;
    pair.open();
    pair
}

/// Sends a megabyte as a Write and a few messages, one way or the other.
fn talk(pair: &mut Pair) {
    pair.hosts[0].ports.post(true, 1_000_000);
    for host in &mut pair.hosts {
        (0..10).for_each(|_| host.ports.post(false, 3000));
    }
    pair.run_until(20_000 * MS, Pair::is_complete);
    pair.run_for(1000 * MS);
}

/// The headers of the packets that `host` has sent, as the network reads them; those of data
/// packets, and how many these are.
fn headers(pair: &Pair, host: usize) -> (Vec<CtrlHeader>, u64) {
    let (mut headers, mut data) = (Vec::new(), 0);
    for (_, _, datagram) in pair.trace.iter().filter(|(from, ..)| *from == host) {
        match Packet::parse(datagram).expect("a packet") {
            Packet::Data(header) => {
                headers.push(header.ctrl);
                data += 1;
            }
            Packet::Ctrl(header) => headers.push(header),
            Packet::Hello { .. } => {}
        }
    }
    (headers, data)
}

/// S-4: nothing is lost here, so that each segment travels once, and in a packet of its own.
/// S-84: whose it is and its number can be read, also under a cipher.
#[test]
fn each_datagram_is_one_packet_with_a_header_for_all_to_read() {
    for protection in [protection::CRC32C, protection::AES128GCM, protection::CHACHA20POLY1305] {
        let mut pair = pair_with(protection, fixed);
        talk(&mut pair);
        for host in 0..2 {
            let (headers, data) = headers(&pair, host);
            assert_eq!(data, pair.hosts[1 - host].ports.ends[0].sink.segments);
            let peer = pair.connection(1 - host).cid().0;
            assert!(headers.iter().all(|header| header.cid.0 & !0xff == peer & !0xff));
            let numbers: Vec<u32> = headers.iter().map(|header| header.pn).collect();
            let first = numbers[0];
            let expected: Vec<u32> = (first..).take(numbers.len()).collect();
            assert_eq!(numbers, expected, "packet numbers in the clear, one after the other");
        }
    }
}

fn recovery(pair: &mut Pair, host: usize) -> RecoveryStats {
    pair.connection(host).recovery_stats(PATH).expect("its path")
}

/// S-48.
#[test]
fn what_the_receivers_host_had_no_room_for_is_told() {
    let mut pair = pair_with(protection::CRC32C, fixed);
    pair.connection(1).note_dropped(5);
    talk(&mut pair);
    assert_eq!(recovery(&mut pair, 0).dropped_by_peer, 5);
    pair.connection(1).note_dropped(2);
    talk(&mut pair);
    // Nothing of it was lost on the path, and the other direction has nothing to tell.
    let (near, far) = (recovery(&mut pair, 0), recovery(&mut pair, 1));
    assert_eq!((near.dropped_by_peer, near.lost_packets), (7, 0));
    assert_eq!(far.dropped_by_peer, 0);
}

/// Packets that were marked, as the only controller of this process hears.
static MARKED: AtomicU64 = AtomicU64::new(0);

/// A constant rate that counts marks.
struct MarkCounter(Fixed);

impl Controller for MarkCounter {
    fn on_sent(&mut self, sent: &Sent) {
        self.0.on_sent(sent);
    }

    fn on_acked(&mut self, acked: &Acked) {
        self.0.on_acked(acked);
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.0.on_lost(lost);
    }

    fn on_spurious(&mut self, spurious: &Spurious) {
        self.0.on_spurious(spurious);
    }

    fn on_ecn(&mut self, ecn: &Ecn) {
        MARKED.fetch_add(ecn.packets, Ordering::Relaxed);
    }

    fn pacing_rate_bps(&self) -> u64 {
        self.0.pacing_rate_bps()
    }

    fn window_octets(&self) -> u64 {
        self.0.window_octets()
    }

    fn name(&self) -> &'static str {
        "mark counter"
    }
}

fn mark_counter(params: &Params) -> Box<dyn Controller> {
    Box::new(MarkCounter(Fixed::new(params)))
}

/// S-63: everything arrives without a mark, and each mark is reported once.
#[test]
fn marks_of_the_network_are_counted_and_never_needed() {
    let mut pair = pair_with(protection::CRC32C, mark_counter);
    talk(&mut pair);
    assert_eq!(MARKED.load(Ordering::Relaxed), 0);
    // All packets that both have sent, and those of them that must be acknowledged.
    let sent = |pair: &Pair| {
        let [near, far] = [0, 1].map(|host| headers(pair, host));
        ((near.0.len() + far.0.len()) as u64, near.1 + far.1)
    };
    let before = sent(&pair);
    pair.marking = true;
    talk(&mut pair);
    let (marked, after) = (MARKED.load(Ordering::Relaxed), sent(&pair));
    let (all, data) = (after.0 - before.0, after.1 - before.1);
    assert!((data..=all).contains(&marked), "{data} to {all}, not {marked}");
    assert!(data > 800, "{data}");
}
