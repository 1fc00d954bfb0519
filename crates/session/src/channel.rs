//! A channel of messages, over UDP or through ssh.
//!
//! Invariant: messages arrive whole, once and in order, or the channel fails for good, with one
//! reason that all calls give.
//!
//! Order: see the crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;

use crate::pipe::PipeLink;
use crate::udp::{ReceivedSlot, UdpLink};

/// Bytes that a channel has carried.
#[derive(Debug, Default)]
pub struct ChannelTraffic {
    /// Sent by this end, in bytes.
    pub sent: AtomicU64,
    /// Sent, and the peer has said that it came, in bytes; through ssh, handed to ssh.
    pub delivered: AtomicU64,
    /// Received by this end, in bytes.
    pub received: AtomicU64,
}

impl ChannelTraffic {
    /// Bytes that were sent and may not have come.
    pub fn on_the_way(&self) -> u64 {
        let delivered = self.delivered.load(Ordering::Relaxed);
        self.sent.load(Ordering::Relaxed).saturating_sub(delivered)
    }

    pub(crate) fn count_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_delivered(&self, bytes: usize) {
        self.delivered.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The peer has all that was sent.
    pub(crate) fn settle(&self) {
        self.delivered.store(self.sent.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(crate) fn count_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

#[derive(Clone)]
pub(crate) enum ChannelLink {
    Udp(Arc<UdpLink>),
    Pipe(Arc<PipeLink>),
}

/// One end of a channel.
pub struct MessageChannel {
    link: ChannelLink,
}

impl MessageChannel {
    pub(crate) fn over_udp(link: Arc<UdpLink>) -> Self {
        Self { link: ChannelLink::Udp(link) }
    }

    pub(crate) fn over_pipe(link: Arc<PipeLink>) -> Self {
        Self { link: ChannelLink::Pipe(link) }
    }

    /// A channel through two byte streams, one for each direction.
    pub fn through(
        input: impl std::io::Read + Send + 'static,
        output: impl std::io::Write + Send + 'static,
    ) -> Self {
        Self::over_pipe(PipeLink::new(Box::new(input), Box::new(output)))
    }

    /// Whether it goes by UDP; through ssh otherwise.
    pub fn is_udp(&self) -> bool {
        matches!(self.link, ChannelLink::Udp(_))
    }

    /// What messages are sent by; clones may be used by any thread.
    pub fn sender(&self) -> ChannelSender {
        ChannelSender { link: self.link.clone() }
    }

    /// What messages come from. One thread should use it, since a message goes to whoever asks.
    pub fn receiver(&self) -> ChannelReceiver {
        ChannelReceiver { link: self.link.clone() }
    }

    /// What it has carried.
    pub fn traffic(&self) -> Arc<ChannelTraffic> {
        match &self.link {
            ChannelLink::Udp(link) => Arc::clone(&link.traffic),
            ChannelLink::Pipe(link) => Arc::clone(&link.traffic),
        }
    }

    /// Tells the peer that nothing follows, and waits until it has all that was sent and has
    /// nothing more to say either, for `limit` at most. What still comes is dropped.
    ///
    /// # Errors
    /// The channel has failed, or the peer took longer.
    pub fn finish(&self, limit: Duration) -> Result<()> {
        match &self.link {
            ChannelLink::Udp(link) => link.finish(limit),
            ChannelLink::Pipe(link) => link.finish(limit),
        }
    }

    /// Tells the peer that nothing follows, and ends the channel without waiting for an answer.
    pub(crate) fn leave(&self) {
        match &self.link {
            ChannelLink::Udp(link) => link.leave(),
            ChannelLink::Pipe(link) => link.leave(),
        }
    }

    /// Ends the channel at once; all calls fail with `reason` from now on.
    pub fn abort(&self, reason: &str) {
        self.sender().abort(reason);
    }
}

/// Sends messages.
#[derive(Clone)]
pub struct ChannelSender {
    link: ChannelLink,
}

impl ChannelSender {
    /// Sends `parts` as one message of [`crate::MESSAGE_MAX`] bytes at most. Waits while the peer
    /// has no room.
    ///
    /// # Errors
    /// The channel has failed, or the message is too long.
    pub fn send(&self, parts: &[&[u8]]) -> Result<()> {
        match &self.link {
            ChannelLink::Udp(link) => link.send(parts),
            ChannelLink::Pipe(link) => link.send(parts),
        }
    }

    /// Ends the channel at once; all calls fail with `reason` from now on.
    pub fn abort(&self, reason: &str) {
        match &self.link {
            ChannelLink::Udp(link) => link.fail(reason),
            ChannelLink::Pipe(link) => link.fail(reason),
        }
    }
}

/// Receives messages.
pub struct ChannelReceiver {
    link: ChannelLink,
}

impl ChannelReceiver {
    /// The next message; waits for it. `None` once the peer has said that nothing follows.
    ///
    /// # Errors
    /// The channel has failed.
    pub fn recv(&mut self) -> Result<Option<Message>> {
        Ok(match &self.link {
            ChannelLink::Udp(link) => link.recv()?.map(|received| Message(Source::Slot(received))),
            ChannelLink::Pipe(link) => link.recv()?.map(|bytes| Message(Source::Owned(bytes))),
        })
    }
}

enum Source {
    Slot(ReceivedSlot),
    Owned(Vec<u8>),
}

/// A message that has come. While it exists its buffer is taken, so it holds the peer back.
pub struct Message(Source);

impl Message {
    /// Puts its bytes into `out`, in place of what was there. A buffer that is used again costs no
    /// new memory, which the kernel clears.
    ///
    /// # Errors
    /// The channel has failed.
    pub fn read_into(self, out: &mut Vec<u8>) -> Result<()> {
        match self.0 {
            Source::Slot(received) => received.read_into(out),
            Source::Owned(bytes) => {
                *out = bytes;
                Ok(())
            }
        }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// The channel has failed.
    pub fn into_bytes(self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.read_into(&mut out)?;
        Ok(out)
    }
}
