//! Messages as types: the length of the head (32 bits, little-endian), the head in the form of
//! postcard, and any bytes behind it.
//!
//! Invariant: nothing is taken from a message that does not parse as a whole.
//!
//! Order: any.

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ChannelSender;

/// Sends `head`, and `payload` behind it.
///
/// # Errors
/// The channel has failed.
pub fn send_message<T: Serialize>(to: &ChannelSender, head: &T, payload: &[u8]) -> Result<()> {
    send_after(to, &[], head, payload)
}

/// The same behind some bytes.
pub(crate) fn send_after<T: Serialize>(
    to: &ChannelSender,
    prefix: &[u8],
    head: &T,
    payload: &[u8],
) -> Result<()> {
    let head = postcard::to_allocvec(head).context("writing a message")?;
    let len = u32::try_from(head.len())?.to_le_bytes();
    to.send(&[prefix, &len, &head, payload])
}

/// A message as it came: its head, and what follows it.
///
/// # Errors
/// It is none.
pub fn parse_message<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8])> {
    let (len, rest) = bytes.split_first_chunk().context("a message without a head")?;
    let len = u32::from_le_bytes(*len) as usize;
    let (head, payload) = rest.split_at_checked(len).context("a message that is cut off")?;
    let (head, left) = postcard::take_from_bytes(head).context("a message that is none")?;
    ensure!(left.is_empty(), "a message with more in its head than belongs there");
    Ok((head, payload))
}
