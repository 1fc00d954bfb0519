//! Any octets as the private data that opens a connection of sockets: no panic.

use weft_sdp::HelloRequest;

/// `data` as a Hello, and what it says of its sender.
pub fn hello(data: &[u8]) {
    let Ok(request) = HelloRequest::parse(data) else { return };
    let names = request.names();
    assert_eq!(data[16 + 16..16 + 32], names.from);
    assert!(names.ip_version < 16);
}
