//! Any text as the rules of sockets, and any bytes as the name of one or as what a client of the
//! handoff sends: no panic, rules say the same each by itself, a name that is one is written as it
//! was read, and no descriptor that has come is lost sight of.

use std::net::SocketAddr;

use message::HandoffContent;
use names::SocketEnds;
use rules::{Rules, SocketRole};

// Not by the crate, which puts itself before the C library.
#[allow(dead_code)]
#[path = "../../crates/sockets/src/handoff/message.rs"]
mod message;
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
            for (role, address) in [(SocketRole::Client, near), (SocketRole::Server, far)] {
                // A socket that is kept from SDP is so by some rule.
                let permitted = |part| Rules::parse(part).unwrap().permit(role, address, "nc");
                assert!(rules.permit(role, address, "nc") || !parts().all(permitted));
            }
        }
    }
}

/// `data` as what a client sends: whether the kernel has cut something off, how many bytes of the
/// word there are, these, and control data.
pub fn handoff(data: &[u8]) {
    let Some((&cut, rest)) = data.split_first() else { return };
    let Some((&octets, rest)) = rest.split_first() else { return };
    let (word, control) = rest.split_at(rest.len().min(usize::from(octets % 3)));
    let cut = cut & 1 != 0;
    match message::unpack(word, control, cut) {
        HandoffContent::Nothing => assert!(!cut && word == [message::WORD] && control.is_empty()),
        HandoffContent::One(fd) => {
            assert!(!cut && word == [message::WORD]);
            assert!(control.starts_with(&message::pack(fd)));
        }
        HandoffContent::Bad(fds) => {
            assert!(fds.len() <= control.len() / 4);
            // What is cut off, or no word, changes nothing about what has to be closed.
            match message::unpack(&[message::WORD], control, false) {
                HandoffContent::Nothing => assert!(fds.is_empty()),
                HandoffContent::One(fd) => assert_eq!(fds, [fd]),
                HandoffContent::Bad(all) => assert_eq!(fds, all),
            }
        }
    }
}

/// `data` as a name.
pub fn socket_name(data: &[u8]) {
    if let Some(ends) = SocketEnds::parse(data) {
        assert_eq!(SocketEnds::parse(&ends.name(0)), Some(ends));
    }
}
