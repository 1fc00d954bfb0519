//! The probes of the LAN table. Those whose series are compared follow each other, so that the two
//! numbers of a ratio are taken within seconds.

use crate::machine;
use crate::probes::fio::FioStream;
use crate::probes::floor::FloorProbe;
use crate::probes::iperf::IperfStream;
use crate::probes::libfabric::{LibfabricPingPong, Writes};
use crate::probes::mpi::Mpi;
use crate::probes::pattern::{Pattern, PatternProgram, PatternTransport};
use crate::probes::perftest::{Bandwidth, Latency};
use crate::probes::route::WeftRoute;
use crate::probes::sockperf::SockperfPingPong;
use crate::probes::ucx::Ucx;
use crate::probes::{BenchProbe, api};
use crate::rows::series::*;

type Probes = Vec<Box<dyn BenchProbe>>;

const MIB: u64 = 1 << 20;
/// `weft_iw0` and `weft0`, by the network and as Weft comes.
const NET: WeftRoute = WeftRoute::IWARP.network();
const NET0: WeftRoute = WeftRoute::SHUTTLE.network();
const LANE: WeftRoute = WeftRoute::IWARP;
const LANE0: WeftRoute = WeftRoute::SHUTTLE;

/// Many connections of one application; over sockets they are in one epoll instance.
const MANY: PatternProgram = PatternProgram {
    verbs: ("many", include_str!("../../c/many.c")),
    pattern: "one",
    floor: "many --count {}",
};
const MANY_ACTIVE: PatternProgram =
    PatternProgram { pattern: "all", floor: "many --all --count {}", ..MANY };
const MANY_CALLS: PatternProgram = PatternProgram { pattern: "calls", ..MANY };

/// All of them.
pub fn probes() -> Probes {
    let groups = [bulk(), smaller(), messages(), latencies(), events(), verified(), many()];
    let mut all: Probes = groups.into_iter().flatten().collect();
    all.push(Box::new(api::Calls));
    all.push(Box::new(api::Idle));
    all
}

fn writes(size: u64, route: WeftRoute, label: &str) -> Bandwidth {
    Bandwidth::new("ib_write_bw", size, label).over(route)
}

fn bulk() -> Probes {
    let reno = machine::allows_congestion("reno").then_some("reno");
    let reads = |route, label| Box::new(Bandwidth::new("ib_read_bw", MIB, label).over(route));
    let polling = |route, label| Box::new(writes(MIB, route, label).counting_cpu());
    let sends = |route, label| Bandwidth::new("ib_send_bw", MIB, label).over(route);
    let sleeping = |route, label| Box::new(sends(route, label).with("-e").counting_cpu());
    vec![
        Box::new(FloorProbe::new("stream --call 1048576", STREAM_1M)),
        Box::new(FloorProbe::new("stream --call 262144", STREAM_256K)),
        Box::new(sends(NET, NET_SEND_1M)),
        reads(NET, NET_READ_1M),
        reads(NET0, NET0_READ_1M),
        sleeping(NET0, NET0_SEND_1M_E),
        sleeping(NET, NET_SEND_1M_E),
        Box::new(Ucx::new("tag_bw", MIB, UCX_TAG_1M)),
        Box::new(Ucx::new("ucp_put_bw", MIB, UCX_PUT_1M)),
        Box::new(Writes::new(MIB, FABRIC_1M)),
        polling(NET, NET_WRITE_1M),
        Box::new(IperfStream::new(reno, IPERF_RENO)),
        Box::new(IperfStream::new(None, IPERF)),
        polling(NET0, NET0_WRITE_1M),
        Box::new(writes(MIB, NET0, SEALED_WRITE_1M).sealed()),
        polling(LANE, LANE_WRITE_1M),
        polling(LANE0, LANE0_WRITE_1M),
        Box::new(Ucx::new("ucp_put_bw", MIB, SHM_UCX_PUT_1M).by_shared_memory()),
        Box::new(Mpi::by_shared_memory("stream", MIB)),
        Box::new(FloorProbe::new("stream --unix --call 262144", UNIX_STREAM)),
        Box::new(FloorProbe::ring("stream", MIB, RING_STREAM)),
        reads(LANE, LANE_READ_1M),
        reads(LANE0, LANE0_READ_1M),
        sleeping(LANE, LANE_SEND_1M_E),
        sleeping(LANE0, LANE0_SEND_1M_E),
    ]
}

fn smaller() -> Probes {
    vec![
        Box::new(writes(1 << 16, NET, NET_WRITE_64K)),
        Box::new(Ucx::new("ucp_put_bw", 1 << 16, UCX_PUT_64K)),
        Box::new(Writes::new(1 << 16, FABRIC_64K)),
        Box::new(writes(1 << 12, NET, NET_WRITE_4K)),
        Box::new(Ucx::new("ucp_put_bw", 1 << 12, UCX_PUT_4K)),
        Box::new(Writes::new(1 << 12, FABRIC_4K)),
    ]
}

fn messages() -> Probes {
    let in_lists = |route, label| Box::new(writes(64, route, label).with("-l 64"));
    vec![
        Box::new(writes(64, NET, NET_WRITE_64_ONE)),
        in_lists(NET, NET_WRITE_64),
        Box::new(Ucx::new("ucp_put_bw", 64, UCX_PUT_64)),
        Box::new(Writes::new(64, FABRIC_64)),
        in_lists(NET0, NET0_WRITE_64),
        Box::new(writes(64, NET0, NET0_WRITE_64_ONE)),
        in_lists(LANE, LANE_WRITE_64),
        in_lists(LANE0, LANE0_WRITE_64),
        Box::new(Ucx::new("ucp_put_bw", 64, SHM_UCX_PUT_64).by_shared_memory()),
        Box::new(FloorProbe::ring("stream", 64, RING_64)),
    ]
}

fn latencies() -> Probes {
    let of = |program, route, label| Box::new(Latency::new(program, 64, label).over(route));
    vec![
        of("ib_send_lat", NET0, NET0_SEND_LAT),
        of("ib_send_lat", NET, NET_SEND_LAT),
        Box::new(FloorProbe::new("pingpong --spin", SPIN)),
        Box::new(FloorProbe::new("pingpong", BLOCK)),
        of("ib_read_lat", NET, NET_READ_LAT),
        of("ib_read_lat", NET0, NET0_READ_LAT),
        Box::new(Ucx::new("tag_lat", 64, UCX_TAG_LAT)),
        Box::new(LibfabricPingPong::new(64, FABRIC_LAT)),
        Box::new(SockperfPingPong::new(64, SOCKPERF)),
        of("ib_write_lat", NET0, NET0_WRITE_LAT),
        of("ib_write_lat", NET, NET_WRITE_LAT),
        Box::new(FloorProbe::new("memory", MEMORY)),
        Box::new(Ucx::new("ucp_put_lat", 64, UCX_PUT_LAT)),
        of("ib_write_lat", LANE, LANE_WRITE_LAT),
        of("ib_write_lat", LANE0, LANE0_WRITE_LAT),
        Box::new(Ucx::new("ucp_put_lat", 64, SHM_UCX_PUT_LAT).by_shared_memory()),
        of("ib_read_lat", LANE, LANE_READ_LAT),
        of("ib_read_lat", LANE0, LANE0_READ_LAT),
        of("ib_send_lat", LANE, LANE_SEND_LAT),
        of("ib_send_lat", LANE0, LANE0_SEND_LAT),
        Box::new(Ucx::new("tag_lat", 64, SHM_UCX_TAG_LAT).by_shared_memory()),
        Box::new(Mpi::by_shared_memory("pingpong", 64)),
        Box::new(FloorProbe::ring("pingpong", 64, RING_LAT)),
        Box::new(FloorProbe::new("pingpong --unix --spin", UNIX_SPIN)),
    ]
}

fn events() -> Probes {
    let of = |route, label| Box::new(Latency::new("ib_send_lat", 64, label).over(route).with("-e"));
    vec![
        of(NET, NET_SEND_LAT_E),
        of(NET0, NET0_SEND_LAT_E),
        of(LANE, LANE_SEND_LAT_E),
        of(LANE0, LANE0_SEND_LAT_E),
        Box::new(FloorProbe::new("pingpong --unix", UNIX_BLOCK)),
    ]
}

fn verified() -> Probes {
    vec![
        Box::new(FioStream::rdma(NET, NET_FIO)),
        Box::new(FioStream::rdma(LANE, LANE_FIO)),
        Box::new(FioStream::net(FIO_TCP)),
        Box::new(FioStream::rdma(NET0, NET0_FIO)),
        Box::new(FioStream::rdma(LANE0, LANE0_FIO)),
    ]
}

fn many() -> Probes {
    let of = |route: WeftRoute, program, count, label: &str| {
        let way = match route.is_iwarp() {
            true => PatternTransport::Iwarp,
            false => PatternTransport::Shuttle,
        };
        let pattern = Pattern::new(way, program, count);
        let pattern = if route.is_network() { pattern } else { pattern.permitting_lane() };
        Box::new(pattern.called(label))
    };
    let tcp = |program, count, label: &str| {
        Box::new(Pattern::new(PatternTransport::Tcp, program, count).called(label))
    };
    vec![
        of(NET, MANY, 16, NET_ONE_16),
        of(NET, MANY, 256, NET_ONE_256),
        tcp(MANY, 16, TCP_ONE_16),
        tcp(MANY, 256, TCP_ONE_256),
        of(NET0, MANY, 256, NET0_ONE_256),
        of(NET0, MANY, 16, NET0_ONE_16),
        of(LANE0, MANY, 16, LANE0_ONE_16),
        of(LANE0, MANY, 256, LANE0_ONE_256),
        of(LANE, MANY, 256, LANE_ONE_256),
        of(LANE, MANY, 16, LANE_ONE_16),
        of(NET, MANY_ACTIVE, 16, NET_ALL_16),
        of(NET, MANY_ACTIVE, 256, NET_ALL_256),
        tcp(MANY_ACTIVE, 16, TCP_ALL_16),
        tcp(MANY_ACTIVE, 256, TCP_ALL_256),
        of(NET0, MANY_ACTIVE, 256, NET0_ALL_256),
        of(NET0, MANY_ACTIVE, 16, NET0_ALL_16),
        of(LANE0, MANY_ACTIVE, 16, LANE0_ALL_16),
        of(LANE0, MANY_ACTIVE, 256, LANE0_ALL_256),
        of(LANE, MANY_ACTIVE, 256, LANE_ALL_256),
        of(LANE, MANY_ACTIVE, 16, LANE_ALL_16),
        of(NET, MANY_CALLS, 1000, NET_CALLS_1000),
        of(NET0, MANY_CALLS, 1000, NET0_CALLS_1000),
    ]
}
