//! Events that do not come from the state machine: those of a name that was looked up, and the
//! application's own.

use weft_rnic::cm::CmEvent;

use crate::channel::IdEvent;
use crate::id::CmId;

impl CmId {
    /// Queues an event of this id. Nothing happens once the id is destroyed.
    pub fn post(&self, event: CmEvent) {
        let inner = self.lock();
        if let Some(id) = self.me().upgrade().filter(|_| !inner.is_dead()) {
            inner.channel.push(IdEvent { id, listen: None, event, join: None });
        }
    }
}
