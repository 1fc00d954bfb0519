//! TCP ports that Weft holds and can do without, should the application want them.
//!
//! A listener of rdma-cm that serves both transports has its port in TCP and in UDP. On an adapter
//! rdma-cm's ports are not those of sockets, so programs listen at one number by both.

use std::net::SocketAddr;
use std::sync::Weak;

use weft_sync::Mutex;

/// What holds a TCP port and can do without it.
pub trait TcpPortHolder: Send + Sync {
    /// Frees the port, if a socket at `wanted` cannot be had because of this; whether it did.
    fn give_up(&self, wanted: SocketAddr) -> bool;
}

/// Those of a process.
#[derive(Default)]
pub(crate) struct TcpPorts(Mutex<Vec<Weak<dyn TcpPortHolder>>>);

impl TcpPorts {
    /// `holder` has one.
    pub fn note(&self, holder: Weak<dyn TcpPortHolder>) {
        let mut holders = self.0.lock();
        holders.retain(|holder| holder.strong_count() > 0);
        holders.push(holder);
    }

    /// Frees the port of `wanted`; whether anybody held it. By the wildcard several may.
    pub fn free(&self, wanted: SocketAddr) -> bool {
        let holders: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        holders.iter().filter(|holder| holder.give_up(wanted)).count() > 0
    }
}
