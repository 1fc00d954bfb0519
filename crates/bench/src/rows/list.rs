//! The rows, with the targets of the benchmark plan.

use super::series::*;
use super::{Beside, Row, row};
use crate::probes::{MEAN, P50, api};

const PUTS_1M: &[&str] = &[UCX_PUT_1M, FABRIC_1M];
const PUTS_4K: &[&str] = &[UCX_PUT_4K, FABRIC_4K];
const PUTS_64: &[&str] = &[UCX_PUT_64, FABRIC_64];
const MEDIANS: &[&str] = &[UCX_TAG_LAT, SOCKPERF];
const MEANS: &[&str] = &[UCX_TAG_LAT, FABRIC_LAT, SOCKPERF];
const CPU: &str = ", CPU";
const MESSAGES: &str = ", messages";

/// A latency, by medians.
const fn latency(number: &'static str, weft: &'static str, beside: Beside) -> Row {
    row(number, weft, beside).aspect(P50).lower()
}

/// CPU time of both ends for an amount of data.
const fn cpu(number: &'static str, weft: &'static str, beside: Beside) -> Row {
    row(number, weft, beside).aspect(CPU).lower()
}

/// Messages in a second.
const fn messages(number: &'static str, weft: &'static str, beside: Beside) -> Row {
    row(number, weft, beside).aspect(MESSAGES)
}

/// `weft_iw0` by the network.
const IWARP: [Row; 34] = [
    row("1", NET_WRITE_1M, Beside::One(IPERF_RENO)).goals(1.15, 0.95),
    row("1", NET_WRITE_1M, Beside::One(IPERF)),
    row("1", NET_WRITE_1M, Beside::One(STREAM_256K)),
    row("1", NET_WRITE_1M, Beside::One(STREAM_1M)),
    row("1", NET_READ_1M, Beside::One(IPERF_RENO)),
    row("1", NET_SEND_1M, Beside::One(IPERF_RENO)),
    row("1e", NET_SEND_1M_E, Beside::One(IPERF_RENO)),
    row("2", NET_WRITE_1M, Beside::One(FABRIC_1M)).goals(2.0, 1.2),
    row("3", NET_WRITE_1M, Beside::Best(PUTS_1M)).goals(1.0, 0.8),
    row("3", NET_WRITE_1M, Beside::One(UCX_TAG_1M)),
    cpu("4", NET_WRITE_1M, Beside::One(IPERF_RENO)).goals(0.85, 1.05),
    cpu("4e", NET_SEND_1M_E, Beside::One(IPERF_RENO)).goals(0.85, 1.05),
    row("5", NET_WRITE_64K, Beside::One(FABRIC_64K)).goals(2.0, 1.3),
    row("5", NET_WRITE_64K, Beside::One(UCX_PUT_64K)).goals(1.3, 1.0),
    row("6", NET_WRITE_4K, Beside::Best(PUTS_4K)).goals(3.0, 1.5),
    messages("7", NET_WRITE_64, Beside::Best(PUTS_64)).goals(8.0, 3.0),
    messages("7", NET_WRITE_64_ONE, Beside::Best(PUTS_64)),
    latency("8", NET_SEND_LAT, Beside::One(SPIN)).goals(1.15, 1.35),
    latency("8", NET_SEND_LAT, Beside::One(SPIN)).aspect(MEAN),
    latency("9", NET_SEND_LAT, Beside::One(BLOCK)).goals(0.55, 0.65),
    latency("9e", NET_SEND_LAT_E, Beside::One(BLOCK)).goals(1.0, 1.3),
    latency("9e", NET_SEND_LAT_E, Beside::One(BLOCK)).aspect(MEAN),
    latency("10", NET_SEND_LAT, Beside::Best(MEDIANS)).goals(1.0, 1.15),
    latency("10", NET_SEND_LAT, Beside::Best(MEANS)).aspect(MEAN),
    latency("11", NET_WRITE_LAT, Beside::One(MEMORY)).goals(1.05, 1.2),
    latency("11", NET_WRITE_LAT, Beside::One(UCX_PUT_LAT)).goals(1.1, 1.35),
    latency("12", NET_READ_LAT, Beside::Sum(SPIN, BLOCK)).goals(1.1, 1.3),
    row("13", NET_FIO, Beside::One(FIO_TCP)),
    latency("17", NET_ONE_256, Beside::One(NET_ONE_16)).goals(1.2, 1.5),
    latency("17", NET_ONE_256, Beside::One(TCP_ONE_256)),
    row("18", NET_ALL_256, Beside::One(NET_ALL_16)).goals(1.2, 1.0),
    row("18", NET_ALL_256, Beside::One(TCP_ALL_256)),
    row("19", NET_CALLS_1000, Beside::Nothing).aspect(ARM).lower().goals(0.1, 0.5),
    row("20", NET_CALLS_1000, Beside::Nothing).aspect(POLL_ONE).lower().goals(0.1, 0.3),
];

/// `weft0` by the network.
const SHUTTLE: [Row; 23] = [
    row("14", NET0_WRITE_1M, Beside::One(IPERF_RENO)).goals(0.65, 0.5),
    row("14", NET0_READ_1M, Beside::One(IPERF_RENO)),
    row("14e", NET0_SEND_1M_E, Beside::One(IPERF_RENO)),
    cpu("14", NET0_WRITE_1M, Beside::One(IPERF_RENO)),
    cpu("14e", NET0_SEND_1M_E, Beside::One(IPERF_RENO)),
    row("15", SEALED_WRITE_1M, Beside::One(NET0_WRITE_1M)).goals(0.75, 0.6),
    messages("7", NET0_WRITE_64, Beside::Nothing).goals(4.0, 2.0),
    messages("7", NET0_WRITE_64, Beside::Best(PUTS_64)),
    messages("7", NET0_WRITE_64_ONE, Beside::Best(PUTS_64)),
    latency("16", NET0_SEND_LAT, Beside::One(SPIN)).goals(0.75, 1.0),
    latency("16", NET0_SEND_LAT, Beside::One(SPIN)).aspect(MEAN),
    latency("16e", NET0_SEND_LAT_E, Beside::One(BLOCK)).goals(1.0, 1.3),
    latency("11", NET0_WRITE_LAT, Beside::One(NET_WRITE_LAT)).goals(1.0, 1.3),
    latency("11", NET0_WRITE_LAT, Beside::One(MEMORY)),
    latency("12", NET0_READ_LAT, Beside::Nothing).goals(9.0, 12.0),
    latency("12", NET0_READ_LAT, Beside::Sum(SPIN, BLOCK)),
    row("13", NET0_FIO, Beside::One(FIO_TCP)),
    latency("17", NET0_ONE_256, Beside::One(NET0_ONE_16)).goals(1.2, 1.5),
    latency("17", NET0_ONE_256, Beside::One(TCP_ONE_256)),
    row("18", NET0_ALL_256, Beside::One(NET0_ALL_16)).goals(1.2, 1.0),
    row("18", NET0_ALL_256, Beside::One(TCP_ALL_256)),
    row("19", NET0_CALLS_1000, Beside::Nothing).aspect(ARM).lower().goals(0.1, 0.5),
    row("20", NET0_CALLS_1000, Beside::Nothing).aspect(POLL_ONE).lower().goals(0.1, 0.3),
];

/// One device as Weft comes, between two processes of one host.
struct OneHost {
    write_1m: &'static str,
    send_1m_e: &'static str,
    read_1m: &'static str,
    write_64: &'static str,
    send_lat: &'static str,
    send_lat_e: &'static str,
    write_lat: &'static str,
    read_lat: &'static str,
    fio: &'static str,
    one_16: &'static str,
    one_256: &'static str,
    all_16: &'static str,
    all_256: &'static str,
}

const fn one_host(of: &OneHost) -> [Row; 25] {
    [
        row("lane", of.write_1m, Beside::One(IPERF_RENO)).goals(3.0, 2.0),
        row("lane", of.read_1m, Beside::One(IPERF_RENO)).goals(3.0, 2.0),
        row("lane", of.send_1m_e, Beside::One(IPERF_RENO)),
        cpu("lane", of.write_1m, Beside::One(IPERF_RENO)).goals(0.3, 0.4),
        cpu("lane", of.send_1m_e, Beside::One(IPERF_RENO)).goals(0.3, 0.4),
        row("lane", of.write_1m, Beside::One(SHM_UCX_PUT_1M)),
        row("lane", of.write_1m, Beside::One(SHM_MPI_1M)),
        row("lane", of.write_1m, Beside::One(UNIX_STREAM)),
        row("lane", of.write_1m, Beside::One(RING_STREAM)),
        messages("lane", of.write_64, Beside::Nothing).goals(15.0, 8.0),
        messages("lane", of.write_64, Beside::One(SHM_UCX_PUT_64)),
        messages("lane", of.write_64, Beside::One(RING_64)),
        latency("lane", of.send_lat, Beside::Nothing).goals(0.5, 1.0),
        latency("lane", of.send_lat, Beside::One(SHM_UCX_TAG_LAT)).goals(1.0, 1.5),
        latency("lane", of.send_lat, Beside::One(SHM_MPI_LAT)).goals(1.0, 1.5),
        latency("lane", of.send_lat, Beside::One(UNIX_SPIN)),
        latency("lane", of.send_lat, Beside::One(RING_LAT)),
        latency("lane", of.send_lat_e, Beside::One(BLOCK)).goals(1.0, 1.3),
        latency("lane", of.send_lat_e, Beside::One(UNIX_BLOCK)),
        latency("lane", of.write_lat, Beside::Nothing).goals(0.5, 1.0),
        latency("lane", of.write_lat, Beside::One(SHM_UCX_PUT_LAT)).goals(1.0, 1.5),
        latency("lane", of.read_lat, Beside::Nothing).goals(0.5, 1.0),
        row("lane", of.fio, Beside::One(FIO_TCP)),
        latency("lane", of.one_256, Beside::One(of.one_16)).goals(1.2, 1.5),
        row("lane", of.all_256, Beside::One(of.all_16)).goals(1.2, 1.0),
    ]
}

const LANE: [Row; 25] = one_host(&OneHost {
    write_1m: LANE_WRITE_1M,
    send_1m_e: LANE_SEND_1M_E,
    read_1m: LANE_READ_1M,
    write_64: LANE_WRITE_64,
    send_lat: LANE_SEND_LAT,
    send_lat_e: LANE_SEND_LAT_E,
    write_lat: LANE_WRITE_LAT,
    read_lat: LANE_READ_LAT,
    fio: LANE_FIO,
    one_16: LANE_ONE_16,
    one_256: LANE_ONE_256,
    all_16: LANE_ALL_16,
    all_256: LANE_ALL_256,
});

const LANE_SHUTTLE: [Row; 25] = one_host(&OneHost {
    write_1m: LANE0_WRITE_1M,
    send_1m_e: LANE0_SEND_1M_E,
    read_1m: LANE0_READ_1M,
    write_64: LANE0_WRITE_64,
    send_lat: LANE0_SEND_LAT,
    send_lat_e: LANE0_SEND_LAT_E,
    write_lat: LANE0_WRITE_LAT,
    read_lat: LANE0_READ_LAT,
    fio: LANE0_FIO,
    one_16: LANE0_ONE_16,
    one_256: LANE0_ONE_256,
    all_16: LANE0_ALL_16,
    all_256: LANE0_ALL_256,
});

/// Calls, and a process that does nothing.
const CALLS: [Row; 4] = [
    row("21", api::POLL, Beside::Nothing).lower().goals(25.0, 250.0),
    row("21", api::POST_LIST, Beside::Nothing).lower().goals(150.0, 2000.0),
    row("21", api::REGISTER, Beside::Nothing).lower().goals(1000.0, 20_000.0),
    row("idle", api::IDLE, Beside::Nothing).lower().goals(0.0, 0.1),
];

/// Every row, in the order of the table.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    let network = IWARP.iter().chain(&SHUTTLE);
    network.chain(&LANE).chain(&LANE_SHUTTLE).chain(&CALLS)
}
