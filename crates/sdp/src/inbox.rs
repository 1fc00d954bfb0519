//! Receive buffer: payload received and not yet read.
//!
//! Payload stays in its slot until it is read; then the slot is posted again. A read stops at the
//! last urgent byte, and the next one begins behind it (SD-31).

use std::collections::VecDeque;

use weft_verbs::Misuse;

use crate::layout::Stretch;
use crate::verbs::Verbs;

/// Payload in a slot.
#[derive(Clone, Copy, Debug)]
struct SlotPayload {
    slot: u16,
    /// Offset of the next byte in private memory.
    at: u64,
    /// Bytes from there.
    len: u64,
}

/// Received payload, oldest first.
#[derive(Debug, Default)]
pub struct Inbox {
    items: VecDeque<SlotPayload>,
    /// Bytes of the stream that have been read.
    read: u64,
    /// Bytes of the stream that are in `items`.
    len: u64,
    /// Bytes of the stream before the last urgent byte.
    mark: Option<u64>,
    /// Urgent bytes stay in the stream (SO_OOBINLINE).
    inline: bool,
    /// The last urgent byte, until it is taken.
    urgent: Option<u8>,
}

impl Inbox {
    /// Sets whether urgent bytes stay in the stream or are read apart.
    pub fn set_inline(&mut self, inline: bool) {
        self.inline = inline;
    }

    /// `len` bytes of payload at `at` in `slot`, one at least; the last of them is urgent if
    /// `urgent`. Tells whether the slot is kept.
    pub fn push(
        &mut self,
        verbs: &impl Verbs,
        slot: u16,
        at: u64,
        len: u32,
        urgent: bool,
    ) -> Result<bool, Misuse> {
        let mut len = u64::from(len);
        if urgent {
            let mut octet = [0];
            verbs.fetch(at + len - 1, &mut octet)?;
            self.urgent = Some(octet[0]);
            self.mark = Some(self.read + self.len + len - 1);
            len -= u64::from(!self.inline);
        }
        if len > 0 {
            self.items.push_back(SlotPayload { slot, at, len });
            self.len += len;
        }
        Ok(len > 0)
    }

    /// Bytes to read.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the next read begins at the last urgent byte.
    pub fn is_at_mark(&self) -> bool {
        self.mark == Some(self.read)
    }

    /// Takes the last urgent byte.
    pub fn take_urgent(&mut self) -> Option<u8> {
        self.urgent.take()
    }

    /// Most bytes of the next read: up to an urgent byte.
    fn limit(&self) -> u64 {
        let to_mark = self.mark.map_or(0, |mark| mark.saturating_sub(self.read));
        if to_mark > 0 { to_mark } else { u64::MAX }
    }

    /// Ranges of memory of the next read, slot by slot.
    pub fn arrived(&self) -> impl Iterator<Item = Stretch> {
        let mut left = self.limit();
        let part = move |item: &SlotPayload| {
            let len = item.len.min(left);
            left -= len;
            Stretch { at: item.at, len: len as u32 }
        };
        self.items.iter().map(part).take_while(|stretch| stretch.len > 0)
    }

    /// Copies the next read to `into` without consuming it.
    pub fn copy(&self, verbs: &impl Verbs, into: &mut [u8]) -> Result<usize, Misuse> {
        let mut copied = 0;
        for Stretch { at, len } in self.arrived() {
            let now = (into.len() - copied).min(len as usize);
            if now == 0 {
                break;
            }
            verbs.fetch(at, &mut into[copied..copied + now])?;
            copied += now;
        }
        Ok(copied)
    }

    /// Consumes `octets` of what [`Inbox::copy`] or [`Inbox::arrived`] gave; calls back for each
    /// slot that becomes free.
    pub fn consume(&mut self, octets: usize, mut free: impl FnMut(u16)) {
        let mut left = octets as u64;
        self.read += left;
        self.len -= left;
        while left > 0
            && let Some(item) = self.items.front_mut()
        {
            let gone = left.min(item.len);
            item.at += gone;
            item.len -= gone;
            left -= gone;
            if item.len == 0 {
                free(item.slot);
                self.items.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::tests::Receives;

    const MEMORY: Receives = Receives(0);

    fn read(inbox: &mut Inbox, len: usize) -> (Vec<u8>, Vec<u16>) {
        let mut into = vec![0; len];
        let copied = inbox.copy(&MEMORY, &mut into).unwrap();
        into.truncate(copied);
        let mut free = Vec::new();
        inbox.consume(copied, |slot| free.push(slot));
        (into, free)
    }

    #[test]
    fn slots_are_free_when_their_last_octet_is_read() {
        let mut inbox = Inbox::default();
        inbox.push(&MEMORY, 4, 10, 3, false).unwrap();
        inbox.push(&MEMORY, 2, 50, 2, false).unwrap();
        assert_eq!(inbox.len(), 5);
        assert_eq!(read(&mut inbox, 2), (vec![10, 11], vec![]));
        assert_eq!(read(&mut inbox, 2), (vec![12, 50], vec![4]));
        assert_eq!(read(&mut inbox, 9), (vec![51], vec![2]));
        assert_eq!(read(&mut inbox, 9), (vec![], vec![]));
    }

    #[test]
    fn reads_stop_at_the_mark() {
        for inline in [false, true] {
            let mut inbox = Inbox::default();
            inbox.set_inline(inline);
            inbox.push(&MEMORY, 0, 10, 3, true).unwrap();
            inbox.push(&MEMORY, 1, 20, 2, false).unwrap();
            assert_eq!(inbox.take_urgent(), Some(12));
            assert_eq!(inbox.take_urgent(), None);
            assert!(!inbox.is_at_mark());
            assert_eq!(read(&mut inbox, 9).0, [10, 11]);
            assert!(inbox.is_at_mark());
            let rest = if inline { vec![12, 20, 21] } else { vec![20, 21] };
            assert_eq!(inbox.len(), rest.len() as u64);
            assert_eq!(read(&mut inbox, 9).0, rest);
            assert!(!inbox.is_at_mark());
        }
    }

    #[test]
    fn an_urgent_octet_alone_keeps_no_slot() {
        let mut inbox = Inbox::default();
        let kept = [0, 1, 2]
            .map(|slot| inbox.push(&MEMORY, slot, 10 * u64::from(slot), 1, slot < 2).unwrap());
        assert_eq!(kept, [false, false, true]);
        assert_eq!(inbox.take_urgent(), Some(10));
        assert!(inbox.is_at_mark());
        assert_eq!(read(&mut inbox, 1), (vec![20], vec![2]));
    }
}
