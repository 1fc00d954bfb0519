//! The receiving end: a log of what came, and when to tell.

use std::collections::VecDeque;

use super::{Acks, PacketRun};
use crate::agenda::NEVER_NS;
use crate::flow::PacketBody;

/// Notes what arrives and acknowledges it.
#[derive(Debug)]
pub struct Receiver {
    acks: Acks,
    /// Where the last run ends, if it may still grow.
    open_end: Option<u64>,
    /// Runs noted so far.
    runs: u64,
    newest_ns: u64,
    ack_due_ns: u64,
    arrived: u64,
    marked: u64,
    acks_sent: u64,
}

impl Receiver {
    pub fn new(acks: Acks) -> Self {
        Self {
            acks,
            open_end: None,
            runs: 0,
            newest_ns: 0,
            ack_due_ns: NEVER_NS,
            arrived: 0,
            marked: 0,
            acks_sent: 0,
        }
    }

    /// Notes a packet of data in the log.
    pub fn handle_data(
        &mut self,
        now: u64,
        number: u64,
        marked: bool,
        interval: u64,
        log: &mut VecDeque<PacketRun>,
    ) {
        self.arrived += 1;
        self.marked += u64::from(marked);
        self.newest_ns = now;
        match log.back_mut() {
            Some(run) if self.open_end == Some(number) => run.count += 1,
            _ => {
                log.push_back(PacketRun { first: number, count: 1 });
                self.runs += 1;
            }
        }
        self.open_end = Some(number + 1);
        let due_ns = if self.acks == Acks::Each { now } else { now + interval };
        self.ack_due_ns = self.ack_due_ns.min(due_ns);
    }

    /// The acknowledgement that is due now.
    pub fn poll_ack(&mut self, now_ns: u64) -> Option<PacketBody> {
        if self.ack_due_ns > now_ns {
            return None;
        }
        self.ack_due_ns = NEVER_NS;
        self.open_end = None;
        self.acks_sent += 1;
        let (runs, marked, arrived_ns) = (self.runs, self.marked, self.newest_ns);
        Some(PacketBody::Ack { runs, delay_ns: now_ns - arrived_ns, arrived_ns, marked })
    }

    pub fn next_due_ns(&self) -> u64 {
        self.ack_due_ns
    }

    /// Packets that arrived, and acknowledgements sent.
    pub fn counts(&self) -> (u64, u64) {
        (self.arrived, self.acks_sent)
    }
}
