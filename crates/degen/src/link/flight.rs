//! Packets in flight, ordered by arrival time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What arrives in the order in which it was sent goes through a queue, which costs next to
/// nothing; only what does not goes through a heap.
#[derive(Debug)]
pub struct PropagationQueue<T> {
    in_order: VecDeque<InFlight<T>>,
    others: BinaryHeap<Reverse<InFlight<T>>>,
    last_in_order_ns: u64,
    pushed: u64,
}

#[derive(Debug)]
struct InFlight<T> {
    due_ns: u64,
    /// The earlier sent comes first of two that arrive at once.
    number: u64,
    item: T,
}

impl<T> Default for PropagationQueue<T> {
    fn default() -> Self {
        Self {
            in_order: VecDeque::new(),
            others: BinaryHeap::new(),
            last_in_order_ns: 0,
            pushed: 0,
        }
    }
}

impl<T> PropagationQueue<T> {
    /// Sends `item`; unless it is `free`, nothing sent later that is not free will overtake it.
    pub fn push(&mut self, due_ns: u64, free: bool, item: T) {
        let entry = InFlight { due_ns, number: self.pushed, item };
        self.pushed += 1;
        if free {
            self.others.push(Reverse(entry));
            return;
        }
        debug_assert!(due_ns >= self.last_in_order_ns);
        self.last_in_order_ns = due_ns;
        self.in_order.push_back(entry);
    }

    /// The earliest time at which something may arrive that is not free.
    pub fn last_in_order_ns(&self) -> u64 {
        self.last_in_order_ns
    }

    /// The next item that has arrived by `now_ns`.
    pub fn pop(&mut self, now_ns: u64) -> Option<T> {
        if self.next_due_ns()? > now_ns {
            return None;
        }
        let entry =
            if self.other_is_next() { self.others.pop()?.0 } else { self.in_order.pop_front()? };
        Some(entry.item)
    }

    /// When the next item arrives.
    pub fn next_due_ns(&self) -> Option<u64> {
        let other = self.others.peek().map(|Reverse(entry)| entry.due_ns);
        let in_order = self.in_order.front().map(|entry| entry.due_ns);
        other.into_iter().chain(in_order).min()
    }

    /// How many items are on their way.
    pub fn len(&self) -> usize {
        self.in_order.len() + self.others.len()
    }

    fn other_is_next(&self) -> bool {
        match (self.others.peek(), self.in_order.front()) {
            (Some(Reverse(other)), Some(first)) => other < first,
            (other, _) => other.is_some(),
        }
    }
}

impl<T> Ord for InFlight<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due_ns, self.number).cmp(&(other.due_ns, other.number))
    }
}

impl<T> PartialOrd for InFlight<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for InFlight<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for InFlight<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_by_time_then_by_number() {
        let mut flight = PropagationQueue::default();
        flight.push(10, false, 'b');
        flight.push(5, true, 'a');
        flight.push(10, true, 'c');
        flight.push(10, false, 'd');
        assert_eq!(flight.pop(4), None);
        assert_eq!(flight.next_due_ns(), Some(5));
        let order: String = std::iter::from_fn(|| flight.pop(10)).collect();
        assert_eq!(order, "abcd");
        assert_eq!((flight.len(), flight.next_due_ns()), (0, None));
    }
}
