//! Shared by all connections and listeners of a process: settings, reports, devices, buffers,
//! events of the connection manager, and the epoll instances of the application.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_reactor::warm::Warm;

use crate::cm_events::{CmEvents, CmHandlers};
use crate::near::NearPeers;
use crate::pair::lives::PairLives;
use crate::report::Reports;
use crate::settings::SocketSettings;
use crate::stream::SdpDevices;
use crate::tcp_options::TcpOptions;
use crate::watches::Watches;

/// Bytes moved between the two ends of a connection at once.
pub const SCRATCH_BYTES: usize = 256 << 10;

/// The environment of the connections of a process.
pub struct Env {
    /// Settings from the environment.
    pub settings: Arc<SocketSettings>,
    /// The reports on stderr.
    pub reports: Reports,
    /// The devices that carry SDP.
    pub devices: SdpDevices,
    /// Buffers of [`SCRATCH_BYTES`] for bytes in transit.
    pub scratch: Warm,
    /// Events of the connection manager.
    pub events: CmEvents,
    /// The epoll instances that watch sockets which may be replaced.
    pub watches: Watches,
    /// Options of connections that have no TCP socket.
    pub options: TcpOptions,
    /// How long connections by pairs last.
    pub pair_lives: PairLives,
    /// The hosts to which TCP is faster than SDP.
    pub near: NearPeers,
    /// The effective user of the process when this was made.
    pub user: u32,
    next_id: AtomicU64,
}

impl Env {
    /// The environment of a process, whose connection manager calls `handlers`. A child of a fork
    /// inherits the settings of its `parent` and what that watches.
    pub fn new(parent: Option<&Self>, handlers: CmHandlers) -> Self {
        let settings = match parent {
            Some(parent) => Arc::clone(&parent.settings),
            None => Arc::new(SocketSettings::read()),
        };
        Self {
            reports: Reports::new(settings.verbose, parent.map(|parent| &parent.reports)),
            devices: SdpDevices::new(settings.basic),
            scratch: Warm::new(SCRATCH_BYTES, 1),
            events: CmEvents::new(handlers),
            watches: Watches::new(parent.map(|parent| &parent.watches)),
            options: TcpOptions::new(parent.map(|parent| &parent.options)),
            pair_lives: PairLives::default(),
            near: NearPeers::default(),
            user: weft_os::sys::user(),
            next_id: AtomicU64::new(1),
            settings,
        }
    }

    /// An id that nothing else of this process has.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}
