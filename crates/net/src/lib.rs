//! Sockets as RDMA needs them, and the policy of who is spoken to under which key.
//!
//! [`tcp`] and [`udp`] move bytes between registered memory and the kernel, in as few calls as the
//! kernel allows (gathered writes, GSO, GRO); [`socket`] makes, binds and connects sockets;
//! [`secrecy`] decides who may be spoken to at all; [`report`] and [`silence`] tell a person what
//! no verb can say.
//!
//! Invariant: no call here waits for the network, except [`tcp::wait`], which says for how long;
//! and this crate drives nothing: what is ready, and when, is for `weft-reactor` to say.
//!
//! Order of calls: [`Secrecy::decide`](secrecy::Secrecy::decide) or one of its kin before anything
//! is exchanged with a peer; [`udp::UdpPort::bind`] or [`socket::open`], then what a socket has.

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

pub mod buffers;
pub mod interfaces;
pub mod lane;
pub mod mpa_frame;
pub mod ports;
pub mod report;
pub mod secrecy;
pub mod silence;
pub mod socket;
pub mod stream;
pub mod tcp;
pub mod tcp_info;
pub mod udp;

pub use weft_rnic::path;

use std::io;

use weft_verbs::Misuse;

/// What a refusal of the system is to who has called a verb. That no descriptor is left is told,
/// since applications say of it that they found no device.
pub fn refused(error: io::Error) -> Misuse {
    tell_if_out_of_descriptors(&error);
    Misuse::System(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Tells that this process has no descriptor left, if that is the error.
pub fn tell_if_out_of_descriptors(error: &io::Error) {
    if error.raw_os_error() == Some(libc::EMFILE) {
        let limit = weft_os::sys::descriptor_limit();
        report::error(format!(
            "this process may have no more than {limit} descriptors open, and Weft needs another \
             one: raise `ulimit -n`"
        ));
    }
}

/// Tells why Weft's thread could not be started, unless that is told elsewhere.
pub fn tell_of_thread(error: &io::Error) {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::EBADF) => {}
        Some(libc::EAGAIN) => report::error(
            "this process can have no other thread, and Weft needs one: raise `ulimit -u`, or what \
             its control group may have of tasks and memory"
                .to_owned(),
        ),
        _ => report::error(format!("Weft cannot start its thread in this process: {error}")),
    }
}
