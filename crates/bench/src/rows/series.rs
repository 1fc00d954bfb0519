//! Names of the series that the rows compare.
//!
//! Of Weft's, those called `network` are with `WEFT_LANE=off`; the others are Weft as it comes,
//! which on one host is the lane where both ends may use it. Where no device is named it is
//! `weft_iw0`.

/// RDMA Writes.
pub const NET_WRITE_1M: &str = "ib_write_bw 1 MiB, network";
/// Sends, both sides sleeping until events; perftest has no such mode for Writes.
pub const NET_SEND_1M_E: &str = "ib_send_bw -e 1 MiB, network";
/// RDMA Reads.
pub const NET_READ_1M: &str = "ib_read_bw 1 MiB, network";
/// Sends.
pub const NET_SEND_1M: &str = "ib_send_bw 1 MiB, network";
/// RDMA Writes.
pub const NET_WRITE_64K: &str = "ib_write_bw 64 KiB, network";
/// RDMA Writes.
pub const NET_WRITE_4K: &str = "ib_write_bw 4 KiB, network";
/// RDMA Writes, posted in lists.
pub const NET_WRITE_64: &str = "ib_write_bw 64 B in lists, network";
/// RDMA Writes, posted one by one.
pub const NET_WRITE_64_ONE: &str = "ib_write_bw 64 B, network";
/// The completion queue is polled.
pub const NET_SEND_LAT: &str = "ib_send_lat 64 B, network";
/// Sleeping until events.
pub const NET_SEND_LAT_E: &str = "ib_send_lat -e 64 B, network";
/// Memory is polled.
pub const NET_WRITE_LAT: &str = "ib_write_lat 64 B, network";
/// A whole round trip.
pub const NET_READ_LAT: &str = "ib_read_lat 64 B, network";
/// A stream whose blocks are checked.
pub const NET_FIO: &str = "fio, engine rdma, network";
/// Ping-pong on one connection of a completion queue of 16.
pub const NET_ONE_16: &str = "one of 16 connections, network";
/// Ping-pong on one connection of a completion queue of 256.
pub const NET_ONE_256: &str = "one of 256 connections, network";
/// Ping-pong on all connections at once.
pub const NET_ALL_16: &str = "16 active connections, network";
/// Ping-pong on all connections at once.
pub const NET_ALL_256: &str = "256 active connections, network";
/// Calls on a completion queue of 1000 connections.
pub const NET_CALLS_1000: &str = "1000 connections, network";
/// RDMA Writes.
pub const NET0_WRITE_1M: &str = "ib_write_bw 1 MiB, weft0, network";
/// Sends, both sides sleeping until events; perftest has no such mode for Writes.
pub const NET0_SEND_1M_E: &str = "ib_send_bw -e 1 MiB, weft0, network";
/// RDMA Reads.
pub const NET0_READ_1M: &str = "ib_read_bw 1 MiB, weft0, network";
/// RDMA Writes, posted in lists.
pub const NET0_WRITE_64: &str = "ib_write_bw 64 B in lists, weft0, network";
/// RDMA Writes, posted one by one.
pub const NET0_WRITE_64_ONE: &str = "ib_write_bw 64 B, weft0, network";
/// The completion queue is polled.
pub const NET0_SEND_LAT: &str = "ib_send_lat 64 B, weft0, network";
/// Sleeping until events.
pub const NET0_SEND_LAT_E: &str = "ib_send_lat -e 64 B, weft0, network";
/// Memory is polled.
pub const NET0_WRITE_LAT: &str = "ib_write_lat 64 B, weft0, network";
/// A whole round trip.
pub const NET0_READ_LAT: &str = "ib_read_lat 64 B, weft0, network";
/// A stream whose blocks are checked.
pub const NET0_FIO: &str = "fio, engine rdma, weft0, network";
/// Ping-pong on one connection of a completion queue of 16.
pub const NET0_ONE_16: &str = "one of 16 connections, weft0, network";
/// Ping-pong on one connection of a completion queue of 256.
pub const NET0_ONE_256: &str = "one of 256 connections, weft0, network";
/// Ping-pong on all connections at once.
pub const NET0_ALL_16: &str = "16 active connections, weft0, network";
/// Ping-pong on all connections at once.
pub const NET0_ALL_256: &str = "256 active connections, weft0, network";
/// Calls on a completion queue of 1000 connections.
pub const NET0_CALLS_1000: &str = "1000 connections, weft0, network";
/// RDMA Writes under a key.
pub const SEALED_WRITE_1M: &str = "ib_write_bw 1 MiB, weft0, network, under a key";
/// RDMA Writes.
pub const LANE_WRITE_1M: &str = "ib_write_bw 1 MiB";
/// Sends, both sides sleeping until events; perftest has no such mode for Writes.
pub const LANE_SEND_1M_E: &str = "ib_send_bw -e 1 MiB";
/// RDMA Reads.
pub const LANE_READ_1M: &str = "ib_read_bw 1 MiB";
/// RDMA Writes, posted in lists.
pub const LANE_WRITE_64: &str = "ib_write_bw 64 B in lists";
/// The completion queue is polled.
pub const LANE_SEND_LAT: &str = "ib_send_lat 64 B";
/// Sleeping until events.
pub const LANE_SEND_LAT_E: &str = "ib_send_lat -e 64 B";
/// Memory is polled.
pub const LANE_WRITE_LAT: &str = "ib_write_lat 64 B";
/// A whole round trip.
pub const LANE_READ_LAT: &str = "ib_read_lat 64 B";
/// A stream whose blocks are checked.
pub const LANE_FIO: &str = "fio, engine rdma";
/// Ping-pong on one connection of a completion queue of 16.
pub const LANE_ONE_16: &str = "one of 16 connections";
/// Ping-pong on one connection of a completion queue of 256.
pub const LANE_ONE_256: &str = "one of 256 connections";
/// Ping-pong on all connections at once.
pub const LANE_ALL_16: &str = "16 active connections";
/// Ping-pong on all connections at once.
pub const LANE_ALL_256: &str = "256 active connections";
/// RDMA Writes.
pub const LANE0_WRITE_1M: &str = "ib_write_bw 1 MiB, weft0";
/// Sends, both sides sleeping until events; perftest has no such mode for Writes.
pub const LANE0_SEND_1M_E: &str = "ib_send_bw -e 1 MiB, weft0";
/// RDMA Reads.
pub const LANE0_READ_1M: &str = "ib_read_bw 1 MiB, weft0";
/// RDMA Writes, posted in lists.
pub const LANE0_WRITE_64: &str = "ib_write_bw 64 B in lists, weft0";
/// The completion queue is polled.
pub const LANE0_SEND_LAT: &str = "ib_send_lat 64 B, weft0";
/// Sleeping until events.
pub const LANE0_SEND_LAT_E: &str = "ib_send_lat -e 64 B, weft0";
/// Memory is polled.
pub const LANE0_WRITE_LAT: &str = "ib_write_lat 64 B, weft0";
/// A whole round trip.
pub const LANE0_READ_LAT: &str = "ib_read_lat 64 B, weft0";
/// A stream whose blocks are checked.
pub const LANE0_FIO: &str = "fio, engine rdma, weft0";
/// Ping-pong on one connection of a completion queue of 16.
pub const LANE0_ONE_16: &str = "one of 16 connections, weft0";
/// Ping-pong on one connection of a completion queue of 256.
pub const LANE0_ONE_256: &str = "one of 256 connections, weft0";
/// Ping-pong on all connections at once.
pub const LANE0_ALL_16: &str = "16 active connections, weft0";
/// Ping-pong on all connections at once.
pub const LANE0_ALL_256: &str = "256 active connections, weft0";
/// Appended to [`NET_CALLS_1000`] and its like: `ibv_req_notify_cq`.
pub const ARM: &str = ": arm";
/// Appended likewise: a poll that finds a completion.
pub const POLL_ONE: &str = ": poll, something there";
/// TCP alone.
pub const STREAM_256K: &str = "floor: TCP stream, 256 KiB calls";
/// TCP alone.
pub const STREAM_1M: &str = "floor: TCP stream, 1 MiB calls";
/// AF_UNIX alone.
pub const UNIX_STREAM: &str = "floor: AF_UNIX stream, 256 KiB calls";
/// Two copies.
pub const RING_STREAM: &str = "floor: ring in shared memory, 1 MiB";
/// Two copies of each message.
pub const RING_64: &str = "floor: ring in shared memory, 64 B";
/// TCP alone.
pub const SPIN: &str = "floor: TCP ping-pong, spinning";
/// TCP alone.
pub const BLOCK: &str = "floor: TCP ping-pong, blocking";
/// TCP alone, a thread receiving for another.
pub const MEMORY: &str = "floor: TCP ping-pong, memory watched";
/// AF_UNIX alone.
pub const UNIX_SPIN: &str = "floor: AF_UNIX ping-pong, spinning";
/// AF_UNIX alone.
pub const UNIX_BLOCK: &str = "floor: AF_UNIX ping-pong, blocking";
/// Copies and polls alone.
pub const RING_LAT: &str = "floor: ring in shared memory, ping-pong";
/// TCP, its epoll instance polled.
pub const TCP_ONE_16: &str = "floor: TCP, one of 16 connections";
/// TCP, its epoll instance polled.
pub const TCP_ONE_256: &str = "floor: TCP, one of 256 connections";
/// TCP, its epoll instance polled.
pub const TCP_ALL_16: &str = "floor: TCP, 16 active connections";
/// TCP, its epoll instance polled.
pub const TCP_ALL_256: &str = "floor: TCP, 256 active connections";
/// iperf3 with Weft's own congestion control.
pub const IPERF_RENO: &str = "iperf3 -C reno";
/// iperf3 as it comes.
pub const IPERF: &str = "iperf3";
/// fio's engine of TCP.
pub const FIO_TCP: &str = "fio, engine net (TCP)";
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
/// UCX over shared memory.
pub const SHM_UCX_PUT_1M: &str = "ucp_put_bw 1 MiB, shared memory";
/// UCX over shared memory.
pub const SHM_UCX_PUT_64: &str = "ucp_put_bw 64 B, shared memory";
/// UCX over shared memory.
pub const SHM_UCX_TAG_LAT: &str = "tag_lat 64 B, shared memory";
/// UCX over shared memory.
pub const SHM_UCX_PUT_LAT: &str = "ucp_put_lat 64 B, shared memory";
/// Open MPI over shared memory.
pub const SHM_MPI_LAT: &str = "Open MPI, shared memory: pingpong 64";
/// Open MPI over shared memory.
pub const SHM_MPI_1M: &str = "Open MPI, shared memory: stream 1048576";
