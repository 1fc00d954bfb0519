//! A connection as who watches it sees it ([`weft_observe`]).
//!
//! Nothing is counted for it here: the numbers are those that a connection, a queue or the kernel
//! keeps anyway.

use std::net::SocketAddr;

use weft_net::tcp_info::{self, TcpMeasure};
use weft_observe::{ConnLimit, ConnReport, Counters, Gauges};
use weft_os::clock::{self, Moment};
use weft_rnic::wire::shuttle::PathId;
use weft_rnic::{Conn, ShuttleQp};

use super::{AnySocket, Driver};
use crate::diagnostics::state_name;

/// The window counts as full from this share of it on: 7/8.
const FULL: (u64, u64) = (7, 8);
/// The first path of a connection over Shuttle.
const PATH: PathId = PathId(0);

impl Driver {
    /// What the connection is like, on the device of this name.
    pub fn report(&self, device: &str) -> ConnReport {
        let qp = &self.core.qp;
        let mut report = ConnReport {
            device: device.to_owned(),
            qpn: qp.num(),
            kind: format!("{:?}", qp.kind()).to_uppercase(),
            state: state_name(qp.state()).to_owned(),
            carrier: self.carrier().to_owned(),
            counters: self.counters(),
            ..ConnReport::default()
        };
        let (sends, waiting) = qp.sq().backlog();
        let gauges = &mut report.gauges;
        (gauges.sends, gauges.sends_waiting) = (sends.into(), waiting.into());
        gauges.recvs = qp.recvs_posted() as u64;
        match (&self.core.conn, self.tcp()) {
            (Some(Conn::Shuttle(shuttle)), _) => measure_shuttle(shuttle, &mut report),
            (_, Some(tcp)) => measure_tcp(&tcp, &mut report),
            _ => {}
        }
        if let Some((local, peer)) = self.addresses() {
            (report.local, report.peer) = (local, peer);
        }
        report.limit = self.limit(&report.gauges, clock::now());
        report
    }

    fn carrier(&self) -> &'static str {
        match &self.socket {
            _ if self.core.lanes > 0 => "lane",
            AnySocket::Tcp(_) => "tcp",
            AnySocket::Lane(_) => "lane",
            AnySocket::Shuttle(_) => "shuttle",
            AnySocket::Ud(_) => "udp",
            AnySocket::None => "self",
        }
    }

    fn tcp(&self) -> Option<TcpMeasure> {
        match &self.socket {
            AnySocket::Tcp(_) => tcp_info::measure(self.socket.get()?.fd()),
            _ => None,
        }
    }

    fn addresses(&self) -> Option<(String, String)> {
        let text = |(local, peer): (SocketAddr, SocketAddr)| (local.to_string(), peer.to_string());
        match (&self.core.conn, &self.socket) {
            (Some(Conn::Shuttle(shuttle)), _) => {
                let route = shuttle.connection().route();
                Some(text((route.local, route.remote)))
            }
            (_, AnySocket::Tcp(_)) => weft_net::tcp::addresses(self.socket.get()?.fd()).map(text),
            (_, AnySocket::Lane(lane)) => Some((String::new(), lane.peer?.to_string())),
            _ => None,
        }
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let work = self.core.work_done();
        let Some(conn) = &self.core.conn else { return Counters::default() };
        let stats = conn.stats();
        let mut counters = Counters {
            connections: work.connections,
            operations: work.operations,
            bytes_out: stats.octets_out,
            bytes_in: stats.octets_in,
            segments_out: stats.segments_out,
            segments_in: stats.segments_in,
            ..Counters::default()
        };
        match conn {
            Conn::Shuttle(shuttle) => count_shuttle(shuttle, &mut counters),
            Conn::Datagram(_) => {
                (counters.packets_out, counters.packets_in) =
                    (stats.segments_out, stats.segments_in);
            }
            Conn::Mpa(_) | Conn::Loopback(_) => {}
        }
        if let Some(tcp) = self.tcp() {
            (counters.packets_out, counters.packets_in) =
                (tcp.segments_out.into(), tcp.segments_in.into());
            (counters.resent, counters.lost) = (tcp.resent.into(), tcp.resent.into());
        }
        counters
    }

    /// What keeps it from being faster. A connection of which nothing waits to be sent is as fast
    /// as the application wants, or as its peer sends.
    fn limit(&self, gauges: &Gauges, now: Moment) -> ConnLimit {
        let Some(conn) = &self.core.conn else { return ConnLimit::None };
        let peer_waits = matches!(conn, Conn::Shuttle(shuttle) if shuttle.awaits_peer_recv());
        let unsent = self.tcp().map_or(0, |tcp| tcp.unsent_bytes);
        let (part, whole) = FULL;
        let window = gauges.window_bytes;
        let full = window > 0 && gauges.in_flight_bytes >= window / whole * part;
        if conn.is_held() || peer_waits {
            ConnLimit::Receiver
        } else if gauges.sends == 0 {
            ConnLimit::None
        } else if gauges.sends_waiting == 0 && unsent == 0 {
            ConnLimit::Application
        } else if full {
            ConnLimit::Network
        } else if self.carrier() == "lane" {
            // A lane is as fast as who copies out of it.
            ConnLimit::Receiver
        } else if unsent > 0 || self.core.due.is_some_and(|due| due > now) && !self.is_blocked() {
            // Whoever paces holds the next packet back.
            ConnLimit::Network
        } else {
            ConnLimit::Cpu
        }
    }

    fn is_blocked(&self) -> bool {
        self.core.schedule.blocked
    }
}

fn measure_tcp(tcp: &TcpMeasure, report: &mut ConnReport) {
    let gauges = &mut report.gauges;
    gauges.rtt_ns = u64::from(tcp.rtt_us) * 1000;
    gauges.rtt_var_ns = u64::from(tcp.rtt_var_us) * 1000;
    gauges.rtt_min_ns = u64::from(tcp.rtt_min_us) * 1000;
    gauges.window_bytes = tcp.window_bytes;
    gauges.in_flight_bytes = tcp.in_flight_bytes;
    gauges.pace_bps = tcp.pace_bps;
    (gauges.busy_us, gauges.peer_full_us) = (tcp.busy_us, tcp.peer_full_us);
}

fn measure_shuttle(shuttle: &ShuttleQp, report: &mut ConnReport) {
    let connection = shuttle.connection();
    let gauges = &mut report.gauges;
    if let Some(rtt) = connection.rtt(PATH) {
        gauges.rtt_ns = rtt.smoothed_ns;
        gauges.rtt_var_ns = rtt.var_ns;
        gauges.rtt_min_ns = rtt.min_ns;
    }
    for path in connection.paths() {
        gauges.paths += 1;
        if let Some(controller) = connection.controller(path) {
            // The largest value stands for no limit.
            let limited = |value: u64| if value == u64::MAX { 0 } else { value };
            gauges.window_bytes += limited(controller.window_octets());
            gauges.pace_bps += limited(controller.pacing_rate_bps());
        }
        gauges.in_flight_bytes += connection.in_flight_octets(path).unwrap_or_default();
    }
}

fn count_shuttle(shuttle: &ShuttleQp, counters: &mut Counters) {
    let connection = shuttle.connection();
    let stats = connection.stats();
    counters.packets_out = stats.datagrams_out;
    counters.packets_in = stats.packets_in;
    counters.resent = stats.segments_resent;
    counters.duplicates = stats.duplicate_segments + stats.stale_packets;
    counters.foreign = stats.foreign_datagrams;
    for path in connection.paths().filter_map(|path| connection.recovery_stats(path)) {
        counters.lost += path.lost_packets;
        counters.spurious += path.spurious_packets;
        counters.timeouts += path.probe_timeouts;
        counters.peer_drops += path.dropped_by_peer;
    }
}
