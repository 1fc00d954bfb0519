//! A call by SDP that was given up before its answer came.
//!
//! To end it at once would leave the peer to wait for a caller that is gone: Shuttle says nothing
//! before it has an answer. So the call goes on for a while, and ends when the answer is there,
//! which the peer then hears.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_io::cm::CmId;
use weft_io::engine::Engine;
use weft_os::clock;
use weft_reactor::{Readiness, Source};
use weft_sync::Mutex;

use crate::registry::Center;
use crate::stream::Stream;

/// How long the answer may take: the peer has decided by itself then.
const PATIENCE: Duration = Duration::from_secs(5);

/// Such a call.
pub struct Leaver {
    id: u64,
    cm: Arc<CmId>,
    _stream: Mutex<Stream>,
}

impl Leaver {
    /// That of the connection with this `id`, which [`Center::part`] ends.
    pub fn new(id: u64, cm: Arc<CmId>, stream: Stream) -> Arc<Self> {
        let leaver = Arc::new(Self { id, cm, _stream: Mutex::new(stream) });
        let source: Arc<dyn Source> = leaver.clone();
        Engine::get().set_timer(clock::now() + PATIENCE, Arc::downgrade(&source));
        leaver
    }
}

impl Source for Leaver {
    fn ready(&self, _: Readiness) {}

    fn timeout(&self, _: Instant) {
        Center::get().part(self.id);
    }
}

impl Drop for Leaver {
    fn drop(&mut self) {
        self.cm.destroy();
    }
}
