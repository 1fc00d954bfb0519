//! The rows, with the targets of the benchmark plan.

use super::series::*;
use super::{Beside, Row, row};
use crate::probes::api;

const PUTS_1M: &[&str] = &[UCX_PUT_1M, FABRIC_1M];
const PUTS_4K: &[&str] = &[UCX_PUT_4K, FABRIC_4K];
const PUTS_64: &[&str] = &[UCX_PUT_64, FABRIC_64];
const LATENCIES: &[&str] = &[UCX_TAG_LAT, FABRIC_LAT, SOCKPERF];
const CPU: &str = ", CPU";
const MESSAGES: &str = ", messages";

const ROWS: [Row; 27] = [
    row("1", WRITE_1M, Beside::One(IPERF_RENO)).goals(1.15, 0.95),
    row("1", WRITE_1M, Beside::One(IPERF)),
    row("1", WRITE_1M, Beside::One(STREAM_256K)),
    row("1", WRITE_1M, Beside::One(STREAM_1M)),
    row("1", READ_1M, Beside::One(IPERF_RENO)),
    row("1", SEND_1M, Beside::One(IPERF_RENO)),
    row("2", WRITE_1M, Beside::One(FABRIC_1M)).goals(2.0, 1.2),
    row("3", WRITE_1M, Beside::Best(PUTS_1M)).goals(1.0, 0.8),
    row("3", WRITE_1M, Beside::One(UCX_TAG_1M)),
    row("4", WRITE_1M, Beside::One(IPERF_RENO)).aspect(CPU).lower().goals(0.85, 1.05),
    row("5", WRITE_64K, Beside::One(FABRIC_64K)).goals(2.0, 1.3),
    row("5", WRITE_64K, Beside::One(UCX_PUT_64K)).goals(1.3, 1.0),
    row("6", WRITE_4K, Beside::Best(PUTS_4K)).goals(3.0, 1.5),
    row("7", WRITE_64, Beside::Best(PUTS_64)).aspect(MESSAGES).goals(8.0, 3.0),
    row("8", SEND_LAT, Beside::One(SPIN)).lower().goals(1.15, 1.35),
    row("9", SEND_LAT, Beside::One(BLOCK)).lower().goals(0.55, 0.65),
    row("10", SEND_LAT, Beside::Best(LATENCIES)).lower().goals(1.0, 1.15),
    row("11", WRITE_LAT, Beside::One(MEMORY)).lower().goals(1.05, 1.2),
    row("11", WRITE_LAT, Beside::One(UCX_PUT_LAT)).lower().goals(1.1, 1.35),
    row("12", READ_LAT, Beside::Sum(SPIN, BLOCK)).lower().goals(1.1, 1.3),
    row("14", SHUTTLE_WRITE_1M, Beside::One(IPERF_RENO)).goals(0.65, 0.5),
    row("15", SEALED_WRITE_1M, Beside::One(SHUTTLE_WRITE_1M)).goals(0.75, 0.6),
    row("16", SHUTTLE_SEND_LAT, Beside::One(SPIN)).lower().goals(0.75, 1.0),
    row("21", api::POLL, Beside::Nothing).lower().goals(25.0, 250.0),
    row("21", api::POST_LIST, Beside::Nothing).lower().goals(150.0, 2000.0),
    row("21", api::REGISTER, Beside::Nothing).lower().goals(1000.0, 20_000.0),
    row("idle", api::IDLE, Beside::Nothing).lower().goals(0.0, 0.1),
];

/// Every row, in the order of the table.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.iter()
}
