//! The counters of a port in sysfs, under the names that mlx5 and rxe have.
//!
//! Here they are sums over all processes of this user that the reader can reach, those that ended
//! among them ([`weft_observe`]). A counter that such an adapter has and Weft does not keep has no
//! file: a script that needs it finds that out, instead of a zero that means nothing.
//!
//! Invariant: a read waits for no process longer than [`LIMITS`], and asks none twice within
//! [`FRESH`].

use std::sync::Mutex;
use std::time::Duration;

use weft_host::DeviceId;
use weft_observe::{Counters, ReadLimits, ReaderAnswer, place, read_with_ended};
use weft_os::clock::{self, Moment};

use super::tree::{Node, Tree, ViewEntry, ViewPath};
use crate::ibv::device::{name, visible};

const LIMITS: ReadLimits =
    ReadLimits { each: Duration::from_millis(50), all: Duration::from_millis(500) };
/// For so long the same answers are used again: a script reads the files one by one.
const FRESH: Duration = Duration::from_millis(100);
/// `port_xmit_data` and `port_rcv_data` are in words of four bytes (IBTA, PortCounters).
const WORD_BYTES: u64 = 4;

/// A file with a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterFile {
    device: DeviceId,
    /// Its place among [`FILES`].
    place: usize,
}

type NamedCounter = (&'static str, fn(&Counters) -> u64);

/// Every counter by its path below the port. What only a physical link has is zero.
const FILES: [NamedCounter; 26] = [
    ("counters/port_xmit_data", |sums| sums.bytes_out / WORD_BYTES),
    ("counters/port_rcv_data", |sums| sums.bytes_in / WORD_BYTES),
    ("counters/port_xmit_packets", |sums| sums.packets_out),
    ("counters/port_rcv_packets", |sums| sums.packets_in),
    ("counters/unicast_xmit_packets", |sums| sums.packets_out),
    ("counters/unicast_rcv_packets", |sums| sums.packets_in),
    ("counters/multicast_xmit_packets", |_| 0),
    ("counters/multicast_rcv_packets", |_| 0),
    ("counters/port_rcv_errors", |sums| sums.foreign),
    ("counters/port_rcv_constraint_errors", |_| 0),
    ("counters/port_rcv_remote_physical_errors", |_| 0),
    ("counters/port_rcv_switch_relay_errors", |_| 0),
    ("counters/port_xmit_constraint_errors", |_| 0),
    ("counters/port_xmit_discards", |_| 0),
    ("counters/symbol_error", |_| 0),
    ("counters/link_error_recovery", |_| 0),
    ("counters/link_downed", |_| 0),
    ("counters/local_link_integrity_errors", |_| 0),
    ("counters/excessive_buffer_overrun_errors", |_| 0),
    ("counters/VL15_dropped", |_| 0),
    // Those of mlx5, and then those that rxe alone has.
    ("hw_counters/duplicate_request", |sums| sums.duplicates),
    ("hw_counters/packet_seq_err", |sums| sums.lost.saturating_sub(sums.spurious)),
    ("hw_counters/local_ack_timeout_err", |sums| sums.timeouts),
    ("hw_counters/sent_pkts", |sums| sums.packets_out),
    ("hw_counters/rcvd_pkts", |sums| sums.packets_in),
    ("hw_counters/completer_retry_err", |sums| sums.timeouts),
];

/// Adds the files of a port at `root`.
pub fn add(tree: &mut Tree, root: &str, device: DeviceId) {
    for (place, (path, _)) in FILES.iter().enumerate() {
        let file = CounterFile { device, place };
        tree.add(format!("{root}/{path}"), ViewEntry::Counter(file));
    }
    // Milliseconds for which a driver uses the same numbers again.
    tree.add_line(format!("{root}/hw_counters/lifespan"), "100");
}

/// What was found, with the text of a counter in its place.
pub fn filled(found: ViewPath) -> ViewPath {
    let Node::Entry(ViewEntry::Counter(file)) = &found.node else { return found };
    let sums = sums()[file.device.slot()];
    let value = FILES.get(file.place).map_or(0, |(_, value)| value(&sums));
    let text = format!("{value}\n");
    ViewPath { node: Node::Entry(ViewEntry::Text(text)), ..found }
}

type Sums = [Counters; DeviceId::SLOTS];

fn sums() -> Sums {
    static LAST: Mutex<Option<(Moment, Sums)>> = Mutex::new(None);
    // Not waited for: a child of fork may find the lock held by a thread that it does not have.
    let Ok(mut last) = LAST.try_lock() else { return read() };
    match &*last {
        Some((at, sums)) if clock::now().saturating_duration_since(*at) < FRESH => *sums,
        _ => {
            let sums = read();
            *last = Some((clock::now(), sums));
            sums
        }
    }
}

fn read() -> Sums {
    let dir = place::directory(|name| std::env::var_os(name));
    let (all, ended) = read_with_ended(&dir, LIMITS);
    let devices = visible().iter().map(|id| (id.slot(), name(*id)));
    let mut sums = [Counters::default(); DeviceId::SLOTS];
    for (slot, name) in devices.clone() {
        sums[slot] = ended.of(name);
    }
    for seen in all {
        if let ReaderAnswer::Report(report) = seen.answer {
            for (slot, name) in devices.clone() {
                let device = report.devices.iter().find(|device| device.name == name);
                if let Some(device) = device {
                    sums[slot].add(&device.counters);
                }
            }
        }
    }
    sums
}
