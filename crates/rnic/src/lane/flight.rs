//! What was written to a flow of a lane, and is complete once the peer has placed it.

use std::collections::VecDeque;

use weft_rdmap::TxPort;
use weft_wire::llp::{SegmentId, SegmentRun};

/// Segments of a message that are not complete.
#[derive(Debug)]
pub(super) struct AwaitedRun {
    pub(super) run: SegmentRun,
    /// Segments of the flow that the peer has placed when the first of these is complete.
    pub(super) placed: u64,
    /// Each further one is complete when it is placed too; else all are with the first.
    pub(super) one_by_one: bool,
}

impl AwaitedRun {
    /// Segments of the flow that the peer has placed when all of these are complete.
    pub(super) fn end(&self) -> u64 {
        self.placed + if self.one_by_one { self.run.count - 1 } else { 0 }
    }
}

/// Segments of one flow that are not complete.
#[derive(Default, Debug)]
pub(super) struct LaneFlight {
    pub(super) runs: VecDeque<AwaitedRun>,
    pub(super) sent: u64,
    /// What the peer has placed when everything is complete.
    pub(super) awaited: u64,
    /// What it has placed when nothing is lent any more.
    pub(super) lent: u64,
}

impl LaneFlight {
    /// A segment was written, which is complete when it is placed, if it is `awaited`, or else when
    /// all before it are. Gives whether it is complete already.
    #[inline]
    pub(super) fn note(&mut self, id: &SegmentId, awaited: bool) -> bool {
        self.sent += 1;
        if awaited {
            self.awaited = self.sent;
        } else if self.runs.is_empty() {
            return true;
        }
        let last = self.runs.back_mut().filter(|last| last.one_by_one == awaited);
        if !last.is_some_and(|last| last.run.append(*id)) {
            let (run, placed) = (SegmentRun::new(*id), self.awaited);
            self.runs.push_back(AwaitedRun { run, placed, one_by_one: awaited });
        }
        false
    }

    /// Has `source` note everything that is complete with the segment `placed`.
    pub(super) fn acknowledge(&mut self, placed: u64, source: &mut TxPort<'_>) {
        while let Some(front) = self.runs.front()
            && front.placed <= placed
            && let Some(AwaitedRun { run, placed: first, one_by_one }) = self.runs.pop_front()
        {
            let count = if one_by_one { (placed - first).saturating_add(1) } else { run.count };
            let (complete, others) = run.split(count);
            source.note_acked(complete);
            if let Some(run) = others {
                self.runs.push_front(AwaitedRun { run, placed: first + count, one_by_one });
            }
        }
    }
}
