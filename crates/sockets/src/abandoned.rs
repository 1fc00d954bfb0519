//! Connects by SDP that were given up before the peer answered.
//!
//! Shuttle sends nothing before the peer has answered, so a connect that ended at once would leave
//! the peer waiting. It stays until the answer is there, which tells the peer, or for
//! [`ANSWER_LIMIT`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use weft_os::clock::{self, Moment};
use weft_rdmacm::CmId;
use weft_reactor::{Pollable, Readiness};
use weft_sync::Mutex;

use crate::rdma;
use crate::stream::SdpStream;

/// How long the answer may take; the peer gives up by itself in that time.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Abandoned connects that are kept; those beyond end at once.
const ABANDONED_MAX: usize = 64;

/// The abandoned connects of a process, by the ids of their connections.
#[derive(Default)]
pub struct AbandonedConnects(Mutex<HashMap<u64, Arc<AbandonedConnect>>>);

struct AbandonedConnect {
    id: u64,
    cm: Arc<CmId>,
    /// Keeps the queue pair until the peer has answered.
    _stream: Mutex<SdpStream>,
    table: &'static AbandonedConnects,
}

impl AbandonedConnects {
    /// Keeps the connect of connection `id` until [`AbandonedConnects::end`] or the time limit.
    pub fn add(&'static self, id: u64, cm: Arc<CmId>, stream: SdpStream) {
        let mut all = self.0.lock();
        if all.len() < ABANDONED_MAX {
            let _stream = Mutex::new(stream);
            let connect = Arc::new(AbandonedConnect { id, cm, _stream, table: self });
            let source: Arc<dyn Pollable> = connect.clone();
            rdma::host().reactor().set_timer(clock::now() + ANSWER_LIMIT, Arc::downgrade(&source));
            all.insert(id, connect);
        } else {
            drop(all);
            cm.destroy();
        }
    }

    /// Ends that of connection `id`, if there is one.
    pub fn end(&self, id: u64) {
        // Dropped without the lock.
        let connect = self.0.lock().remove(&id);
        drop(connect);
    }
}

impl Pollable for AbandonedConnect {
    fn ready(&self, _: Readiness) {}

    fn timeout(&self, _: Moment) {
        self.table.end(self.id);
    }
}

impl Drop for AbandonedConnect {
    fn drop(&mut self) {
        self.cm.destroy();
    }
}
