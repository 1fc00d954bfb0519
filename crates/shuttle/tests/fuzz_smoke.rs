//! The fuzz target of the endpoint, over mutated handshakes.

#[path = "../../../fuzz/src/endpoint.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
mod support;

use support::network::Link;
use support::site::World;
use support::{MS, seed};
use weft_shuttle::{Credentials, ShuttleConfig};
use weft_wire::shuttle::hello::protection;

/// Everything that went over the wire in two handshakes, each datagram after its length.
fn handshakes(protection: u8) -> Vec<u8> {
    let credentials = Credentials::PreShared([5; 32]);
    let config = ShuttleConfig { protection, credentials, ..ShuttleConfig::default() };
    let mut world = World::new(seed(), [&config, &config], &Link::default());
    world.ask();
    world.ask();
    world.run_for(100 * MS);
    let mut octets = vec![u8::from(protection != protection::CRC32C)];
    for (_, datagram) in &world.trace {
        octets.extend((datagram.len() as u16).to_be_bytes());
        octets.extend(datagram);
    }
    octets
}

#[test]
fn endpoint() {
    let seeds = [protection::CRC32C, protection::AES128GCM].map(handshakes);
    mutate::smoke("shuttle_endpoint", &seeds, 3000, bodies::datagrams);
}
