//! Any datagrams to an endpoint that grants connections: no panic, no answer that is longer than
//! what it answers, no more waiting than is allowed.

use weft_shuttle::{
    Arrival, Credentials, Endpoint, Listen, Route, ShuttleConfig, ShuttleConnection,
};
use weft_wire::crc::Crc32c;
use weft_wire::shuttle::Packet;
use weft_wire::shuttle::hello::protection;

const WAITING_MAX: usize = 3;

/// `data` as datagrams, each after its length in two octets; the checksums of the handshake's are
/// put right. The first octet says whether a cipher is asked for.
pub fn datagrams(data: &[u8]) {
    let Some((first, mut data)) = data.split_first() else { return };
    let cipher = if first & 1 == 1 { protection::AES128GCM } else { protection::CRC32C };
    let credentials = Credentials::PreShared([5; 32]);
    let config = ShuttleConfig { protection: cipher, credentials, ..ShuttleConfig::default() };
    let listen = Listen {
        retry_above: 2,
        half_open_max: WAITING_MAX,
        clock: Some(|| 1_795_640_000_000),
        ..Listen::new(config.clone())
    };
    let mut endpoint = Endpoint::new([*first; 32]);
    endpoint.listen(Some(listen));
    let mut granted = Vec::new();
    let at = |port: u16| ([127, 0, 0, 1], port).into();
    for (now_ns, port) in (0..50).map(|step| (step * 700_000_001, 1 + step as u16 % 3)) {
        let Some((len, rest)) = data.split_first_chunk() else { break };
        let (datagram, rest) = rest.split_at(rest.len().min(u16::from_be_bytes(*len).into()));
        data = rest;
        let datagram = with_checksum(datagram);
        let route = Route { local: at(1), remote: at(port) };
        take(&mut endpoint, now_ns, route, &datagram, &config, &mut granted);
        assert!(endpoint.half_open() <= WAITING_MAX);
    }
}

fn take(
    endpoint: &mut Endpoint<()>,
    now_ns: u64,
    route: Route,
    datagram: &[u8],
    config: &ShuttleConfig,
    granted: &mut Vec<ShuttleConnection>,
) {
    match endpoint.handle_datagram(now_ns, route, datagram) {
        Arrival::Answer(answer) | Arrival::Refused { answer, .. } => {
            assert!(answer.len() <= datagram.len());
        }
        Arrival::Request(ticket) if now_ns.is_multiple_of(2) => {
            let accepted = endpoint.accept(now_ns, ticket, config.clone(), b"yes");
            let connection = accepted.expect("it has just asked for what is accepted here");
            endpoint.attach(connection.cid(), ());
            granted.push(connection);
        }
        Arrival::Request(ticket) => {
            let (_, answer) = endpoint.reject(now_ns, ticket, 1, b"no").expect("it has just asked");
            assert!(answer.len() <= datagram.len());
        }
        Arrival::Connection(()) | Arrival::Nothing => {}
    }
}

fn with_checksum(datagram: &[u8]) -> Vec<u8> {
    let hello = matches!(Packet::parse(datagram), Ok(Packet::Hello { .. }));
    match datagram.split_last_chunk::<4>() {
        Some((covered, _)) if hello => [covered, &Crc32c::of(covered)].concat(),
        _ => datagram.to_vec(),
    }
}
