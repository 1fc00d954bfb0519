//! The fuzz targets of packets and paths, over mutated examples.

#[path = "../../../fuzz/src/degen.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

#[test]
fn path_spec() {
    let seeds = [
        "70ms 0.1% 1gbit queue=2bdp",
        "satellite back:rate=10mbit outage=1s+100ms/5s",
        "gilbert=1%:20%:90%:1% jitter=1ms:reorder reorder=1%:2ms duplicate=1% corrupt=1%",
        "step=2s:loss=5% step=1s:delay=9ms ecn=5ms policer=2mbit:16KiB mtu=9000 seed=7",
    ];
    let seeds: Vec<Vec<u8>> = seeds.map(|seed| seed.as_bytes().to_vec()).to_vec();
    mutate::smoke("path_spec", &seeds, 5000, bodies::path_spec);
}

#[test]
fn tun_packet() {
    let mut seeds = Vec::new();
    for (gso_type, number, checksum_offset, header) in [(1, 6, 16, 20), (5, 17, 6, 8), (0, 1, 0, 8)]
    {
        let mut packet = vec![u8::from(gso_type != 0), gso_type, 40, 0, 100, 0, 20, 0];
        packet.extend([checksum_offset, 0, 0x45, 0x02]);
        packet.resize(10 + 20 + header + 450, 0);
        packet[10 + 9] = number;
        packet[10 + 20 + 12] = 0x50;
        seeds.push(packet);
    }
    mutate::smoke("tun_packet", &seeds, 5000, bodies::tun_packet);
}
