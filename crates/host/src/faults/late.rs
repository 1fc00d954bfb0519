//! Completions of send requests that are late, as with acknowledgements that are.
//!
//! What the peer has acknowledged is done when it is done; the send queue is kept from completing
//! it until the time of each has come ([`weft_verbs::qp`], `complete_up_to`). So requests stay on
//! the queue as long as they would, and the application that fills it runs into its end.
//!
//! Order of calls: [`LateCompletions::act`] after each step of the connection.

use std::collections::VecDeque;
use std::time::Duration;

use weft_fault::{Dice, FaultKind, PlannedFault};
use weft_os::clock::Moment;
use weft_verbs::Qp;

use super::wire::Window;
use super::{DrawnFault, Faults};

/// Late completions of one queue pair.
pub(crate) struct LateCompletions {
    delays: Vec<SlowAck>,
    /// Up to which request is done, and from when on the application may see it; in order.
    due: VecDeque<(u32, Moment)>,
}

struct SlowAck {
    place: usize,
    fault: PlannedFault,
    delay_ns: u64,
    jitter_ns: u64,
    /// Known from the first step on.
    window: Option<Window>,
    dice: Dice,
}

impl SlowAck {
    fn new((place, fault, dice): DrawnFault<'_>) -> Option<Self> {
        let FaultKind::SlowAck { delay_ns, jitter_ns } = fault.kind else { return None };
        Some(Self { place, fault: fault.clone(), delay_ns, jitter_ns, window: None, dice })
    }

    fn lateness(&mut self, faults: &Faults) -> Duration {
        let window = self.window.get_or_insert_with(|| Window::of(faults, &self.fault));
        if !window.is_open() {
            return Duration::ZERO;
        }
        faults.note(self.place);
        let jitter = self.dice.below(self.jitter_ns.saturating_add(1));
        Duration::from_nanos(self.delay_ns + jitter)
    }
}

impl LateCompletions {
    /// Those among `planned`, the faults of a queue pair.
    pub fn of<'a>(planned: impl Iterator<Item = DrawnFault<'a>>) -> Option<Self> {
        let delays: Vec<_> = planned.filter_map(SlowAck::new).collect();
        (!delays.is_empty()).then(|| Self { delays, due: VecDeque::new() })
    }

    /// Completes what is due; gives when to call again.
    pub fn act(&mut self, qp: &Qp, faults: &Faults, now: Moment) -> Option<Moment> {
        let mut sq = qp.sq();
        let done = sq.done_to();
        let known = self.due.back().map_or(sq.tail(), |(seq, _)| *seq);
        if done != known && done != sq.tail() {
            let late: Duration = self.delays.iter_mut().map(|slow| slow.lateness(faults)).sum();
            // They keep their order, as acknowledgements do.
            let at = self.due.back().map_or(now + late, |(_, last)| (now + late).max(*last));
            self.due.push_back((done, at));
        }
        let mut up_to = None;
        while let Some((seq, at)) = self.due.front()
            && *at <= now
        {
            up_to = Some(*seq);
            self.due.pop_front();
        }
        // After a flush or a reset the tail is past what was known.
        let up_to = up_to.filter(|seq| (seq.wrapping_sub(sq.tail()) as i32) > 0);
        if let Some(seq) = up_to {
            sq.complete_up_to(seq);
            sq.complete(qp.num(), qp.send_cq());
            qp.check_drained(&sq);
        }
        let tail = sq.tail();
        sq.complete_up_to(tail);
        self.due.front().map(|(_, at)| *at)
    }
}
