//! The connections of a process.

use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_os::clock::{self, Moment};
use weft_rdmacm::{CmEvent, EventKind};
use weft_sync::Mutex;

use super::SdpConn;
use crate::abandoned::AbandonedConnects;
use crate::env::Env;
use crate::sys::{self, Inode};

/// The connections of a process, and what they use.
pub struct ConnTable {
    /// Settings, devices and buffers that all connections share.
    pub env: Env,
    /// Connects that were given up.
    pub abandoned: AbandonedConnects,
    by_id: Mutex<HashMap<u64, Arc<SdpConn>>>,
    /// By the socket that the application has. One that was handed to another process is not here:
    /// its descriptor in this process is the library's own.
    by_socket: Mutex<HashMap<Inode, Arc<SdpConn>>>,
    has_app_sockets: AtomicBool,
}

impl ConnTable {
    /// No connections, which will use `env`.
    pub fn new(env: Env) -> Self {
        Self {
            env,
            abandoned: AbandonedConnects::default(),
            by_id: Mutex::default(),
            by_socket: Mutex::default(),
            has_app_sockets: AtomicBool::new(false),
        }
    }

    /// Handles an event of the id whose connection is `id`.
    pub fn handle_event(&self, id: u64, event: &CmEvent) {
        let conn = self.by_id.lock().get(&id).cloned();
        if let Some(conn) = conn {
            conn.handle_event(event);
        }
        if !matches!(event.kind, EventKind::AddrResolved | EventKind::RouteResolved) {
            self.abandoned.end(id);
        }
    }

    /// Keeps a connection until [`ConnTable::remove`].
    pub fn add(&self, conn: Arc<SdpConn>) {
        self.by_id.lock().insert(conn.id, conn);
    }

    /// Removes a connection from the table, which ends its resources with the last reference.
    pub fn remove(&self, id: u64) {
        // Dropped without the lock.
        let conn = self.by_id.lock().remove(&id);
        drop(conn);
    }

    /// All connections, in no order, for who ends the process; none if they are being changed until
    /// then.
    pub fn all(&self, until: Moment) -> Option<Vec<Arc<SdpConn>>> {
        clock::retry(until, || Some(self.by_id.try_lock()?.values().cloned().collect()))
    }

    /// The application has `socket` for the connection.
    pub fn add_app_socket(&self, socket: Inode, conn: Arc<SdpConn>) {
        self.by_socket.lock().insert(socket, conn);
        self.has_app_sockets.store(true, Ordering::Release);
    }

    /// Whether the application has, or had, such a socket.
    pub fn has_app_sockets(&self) -> bool {
        self.has_app_sockets.load(Ordering::Acquire)
    }

    /// The application no longer has the socket.
    pub fn remove_app_socket(&self, socket: Inode) {
        let conn = self.by_socket.lock().remove(&socket);
        drop(conn);
    }

    /// Every socket that the application has for a connection, for who ends the process; none if
    /// they are being changed until then.
    pub fn app_sockets(&self, until: Moment) -> Option<HashSet<Inode>> {
        clock::retry(until, || Some(self.by_socket.try_lock()?.keys().copied().collect()))
    }

    /// The connection behind a descriptor of the application.
    pub fn find(&self, fd: RawFd) -> Option<Arc<SdpConn>> {
        let socket = sys::inode(fd)?;
        self.by_socket.lock().get(&socket).cloned()
    }

    /// The same, or none where another thread holds the lock until then.
    pub fn find_until(&self, fd: RawFd, until: Moment) -> Option<Arc<SdpConn>> {
        let socket = sys::inode(fd)?;
        clock::retry(until, || Some(self.by_socket.try_lock()?.get(&socket).cloned())).flatten()
    }

    /// The same, or none where another thread holds the lock.
    pub fn try_find(&self, fd: RawFd) -> Option<Arc<SdpConn>> {
        let socket = sys::inode(fd)?;
        self.by_socket.try_lock()?.get(&socket).cloned()
    }
}
