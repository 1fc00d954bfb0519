//! Any text as the rules of sockets, and any octets as the name of one: no panic, rules say the
//! same each by itself, and a name that is one is written as it was read.

use std::net::SocketAddr;

use names::Ends;
use rules::{Role, Rules};

// Not by the crate, which puts itself before the C library.
#[allow(dead_code)]
#[path = "../../crates/sockets/src/names.rs"]
mod names;
#[allow(dead_code)]
#[path = "../../crates/sockets/src/rules.rs"]
mod rules;

/// `data` as rules, which are then asked about two sockets.
pub fn rules(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parts = || text.split([';', '\n']);
    match Rules::parse(text) {
        Err(_) => assert!(parts().any(|part| Rules::parse(part).is_err())),
        Ok(rules) => {
            let near = SocketAddr::from(([127, 0, 0, 1], 80));
            let far = SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 65535));
            for (role, address) in [(Role::Client, near), (Role::Server, far)] {
                // A socket that is kept from SDP is so by some rule.
                let permitted = |part| Rules::parse(part).unwrap().permit(role, address, "nc");
                assert!(rules.permit(role, address, "nc") || !parts().all(permitted));
            }
        }
    }
}

/// `data` as a name.
pub fn socket_name(data: &[u8]) {
    if let Some(ends) = Ends::parse(data) {
        assert_eq!(Ends::parse(&ends.name(0)), Some(ends));
    }
}
