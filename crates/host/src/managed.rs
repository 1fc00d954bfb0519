//! What a connection manager does with queue pairs: connections over Shuttle that it makes for them
//! and hears of, and the state of those that it hands a stream.

use std::sync::{Arc, Weak};

use weft_net::udp::UdpPort;
use weft_rnic::ShuttleQp;
use weft_rnic::shuttle::Route;

use crate::conn_slot::{Attachment, ConnSlot};
use crate::driver::{Beginning, Driver};
use crate::qp::HostQp;

pub use crate::driver::Answer;
pub use crate::driver::cm_hook::{CmHook, Demux, asks, requests};
pub use crate::link::{config, identity};
pub use crate::multipath::offer;
pub use crate::roce_connect::{Requester, RocePeer};
pub use crate::slot::Outbox;

/// A connection over Shuttle that the manager has asked for or granted.
pub struct ManagedConn {
    /// The connection.
    pub shuttle: Box<ShuttleQp>,
    /// Its socket.
    pub port: Arc<UdpPort>,
    /// Who hears of it.
    pub hook: CmHook,
    /// A peer that is silent is mentioned; otherwise whoever waits for it says so itself.
    pub says_silence: bool,
}

/// Names the connection of a queue pair, as long as there is the queue pair.
#[derive(Clone)]
pub struct ConnRef(Weak<ConnSlot>);

impl ConnRef {
    /// Has the connection take a datagram that reached another socket than its own.
    pub fn handle_foreign_datagram(&self, from: (Route, bool), datagram: &mut [u8]) {
        if let Some(cell) = self.0.upgrade() {
            cell.handle_foreign_datagram(from, datagram);
        }
    }
}

impl HostQp {
    /// Takes a connection that the manager has made.
    pub fn hold(&self, conn: ManagedConn) -> Option<Attachment> {
        let ManagedConn { shuttle, port, hook, says_silence } = conn;
        let beginning = Beginning::Managed { shuttle, hook, mentioned: says_silence };
        let woken = self.slot.woken(self.inner());
        self.slot.hold(Box::new(Driver::shuttle(self.host(), woken, port, beginning)))
    }

    /// Its connection, whichever it has.
    pub fn conn_ref(&self) -> ConnRef {
        ConnRef(Arc::downgrade(&self.slot))
    }

    /// Whether it has, or had, a connection that this process may touch.
    pub fn is_connected(&self) -> bool {
        self.slot.is_attached()
    }

    /// Whether it is a channel adapter's, which has a port of its own.
    pub fn is_adapter(&self) -> bool {
        self.port().is_some()
    }

    /// Forgets the connection, so that another one may be made.
    pub fn abandon(&self) {
        self.slot.abandon(None);
    }

    /// The same, if the connection is that one still.
    pub fn abandon_only(&self, attachment: Attachment) {
        self.slot.abandon(Some(attachment));
    }

    /// Whether no other connection has come after that one.
    pub fn is_last(&self, attachment: Attachment) -> bool {
        self.slot.is_last(attachment)
    }

    /// Takes what has arrived, and returns once all that has come of it is told.
    pub fn settle(&self) {
        self.slot.settle();
    }
}
