//! Names of the series that the rows compare.

/// Weft, by perftest.
pub const WRITE_1M: &str = "ib_write_bw 1 MiB";
/// Weft, by perftest.
pub const WRITE_64K: &str = "ib_write_bw 64 KiB";
/// Weft, by perftest.
pub const WRITE_4K: &str = "ib_write_bw 4 KiB";
/// Weft, by perftest, posted in lists.
pub const WRITE_64: &str = "ib_write_bw 64 B in lists";
/// Weft, by perftest.
pub const READ_1M: &str = "ib_read_bw 1 MiB";
/// Weft, by perftest.
pub const SEND_1M: &str = "ib_send_bw 1 MiB";
/// Weft, by perftest, the completion queue polled.
pub const SEND_LAT: &str = "ib_send_lat 64 B";
/// Weft, by perftest, the memory polled.
pub const WRITE_LAT: &str = "ib_write_lat 64 B";
/// Weft, by perftest; a whole round trip.
pub const READ_LAT: &str = "ib_read_lat 64 B";
/// Weft over Shuttle, by perftest.
pub const SHUTTLE_WRITE_1M: &str = "ib_write_bw 1 MiB, weft0";
/// Weft over Shuttle under a key, by perftest.
pub const SEALED_WRITE_1M: &str = "ib_write_bw 1 MiB, weft0 under a key";
/// Weft over Shuttle, by perftest, the completion queue polled.
pub const SHUTTLE_SEND_LAT: &str = "ib_send_lat 64 B, weft0";
/// TCP alone.
pub const STREAM_256K: &str = "floor: TCP stream, 256 KiB calls";
/// TCP alone.
pub const STREAM_1M: &str = "floor: TCP stream, 1 MiB calls";
/// TCP alone.
pub const SPIN: &str = "floor: TCP ping-pong, spinning";
/// TCP alone.
pub const BLOCK: &str = "floor: TCP ping-pong, blocking";
/// TCP alone, a thread receiving for another.
pub const MEMORY: &str = "floor: TCP ping-pong, memory watched";
/// iperf3 with Weft's own congestion control.
pub const IPERF_RENO: &str = "iperf3 -C reno";
/// iperf3 as it comes.
pub const IPERF: &str = "iperf3";
/// sockperf.
pub const SOCKPERF: &str = "sockperf --nonblocked 64 B";
/// libfabric.
pub const FABRIC_LAT: &str = "fi_pingpong 64 B";
/// libfabric.
pub const FABRIC_1M: &str = "libfabric RMA write 1 MiB";
/// libfabric.
pub const FABRIC_64K: &str = "libfabric RMA write 64 KiB";
/// libfabric.
pub const FABRIC_4K: &str = "libfabric RMA write 4 KiB";
/// libfabric.
pub const FABRIC_64: &str = "libfabric RMA write 64 B";
/// UCX.
pub const UCX_PUT_1M: &str = "ucp_put_bw 1 MiB";
/// UCX.
pub const UCX_PUT_64K: &str = "ucp_put_bw 64 KiB";
/// UCX.
pub const UCX_PUT_4K: &str = "ucp_put_bw 4 KiB";
/// UCX.
pub const UCX_PUT_64: &str = "ucp_put_bw 64 B";
/// UCX.
pub const UCX_TAG_1M: &str = "tag_bw 1 MiB";
/// UCX.
pub const UCX_TAG_LAT: &str = "tag_lat 64 B";
/// UCX.
pub const UCX_PUT_LAT: &str = "ucp_put_lat 64 B";
