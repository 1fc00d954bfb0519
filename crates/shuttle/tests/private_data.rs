//! Private data of the handshake: how much of it there may be.
//!
//! Rules of `docs/shuttle.md`: S-10.

mod support;

use support::model::{Memory, Ports, flatten};
use support::route;
use weft_shuttle::{
    Identity, PeerRequest, ShuttleConfig, ShuttleConnection, ShuttleMisuse, Transmit,
};
use weft_wire::shuttle::ConnectionId;
use weft_wire::shuttle::hello::MAX_PRIVATE_DATA;

fn identity(cid: u32) -> Identity {
    Identity { cid: ConnectionId(cid), nonce: 5, seed: 1, entropy: [1; 32] }
}

fn connect(private_data: &[u8]) -> Result<ShuttleConnection, ShuttleMisuse> {
    let config = ShuttleConfig::default();
    ShuttleConnection::connect(0, config, identity(0x500), route(0, 0), private_data)
}

/// The Request of a connection, with private data of a byte.
fn request() -> PeerRequest {
    let (mut out, mut ports) = (Transmit::default(), Ports::new(Vec::new()));
    assert!(connect(b"x").unwrap().poll_transmit(0, &mut ports, &Memory, &mut out));
    PeerRequest::parse(&flatten(&out.gather), &ShuttleConfig::default(), [0; 32]).unwrap()
}

fn accept(private_data: &[u8]) -> Option<ShuttleMisuse> {
    let config = ShuttleConfig::default();
    let (own, at) = (identity(0x600), route(1, 0));
    ShuttleConnection::accept(0, config, own, at, &mut request(), private_data).err()
}

#[test]
fn each_handshake_packet_has_room_for_512_bytes_and_no_more() {
    assert_eq!(MAX_PRIVATE_DATA, 512);
    let most = [7; MAX_PRIVATE_DATA];
    assert_eq!(connect(&most).err(), None);
    assert_eq!(accept(&most), None);
    assert_eq!(request().reject(1, &most).err(), None);
    let more = [7; MAX_PRIVATE_DATA + 1];
    let refused = Some(ShuttleMisuse::PrivateDataTooLong(513));
    assert_eq!(connect(&more).err(), refused);
    assert_eq!(accept(&more), refused);
    assert_eq!(request().reject(1, &more).err(), refused);
}
