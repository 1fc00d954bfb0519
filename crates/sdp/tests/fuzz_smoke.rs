//! The fuzz target of the Hello, over mutations of one.

#[path = "../../../fuzz/src/sdp.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

use weft_wire::sdp::{Base, Flags, SdpHello, SdpMessage, encode};

#[test]
fn hello() {
    let hello = SdpHello {
        version: 0x22,
        ip_version_and_capabilities: 0x48,
        max_adverts: 1,
        desired_remote_size: 4096,
        local_size: 4096,
        local_port: 7174,
        src_ip: [1; 16],
        dst_ip: [2; 16],
        ext_max_adverts: 0,
    };
    let base = Base { flags: Flags(0), bufs: 8, seq: 0, ack: 0 };
    let mut bytes = Vec::new();
    encode(&base, &SdpMessage::Hello(hello), 0, &mut bytes);
    mutate::smoke("sdp_hello", &[bytes], 20_000, bodies::hello);
}
