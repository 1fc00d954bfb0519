//! The far end of a copy: does what the near end asks for, and shows nothing.
//!
//! Invariant: it obeys whoever started it by ssh, as a shell would.
//!
//! Order: [`serve`] with the request.

use anyhow::Result;
use weft_session::{END_LIMIT, MessageChannel};

use crate::messages::{CopyRequest, parse_message};
use crate::meter::{Meter, ShowStyle};
use crate::{receive, send};

/// Copies as `request`, a message, says.
///
/// # Errors
/// The copy could not go on; the near end has been told if that was possible.
pub fn serve(channel: &MessageChannel, request: &[u8]) -> Result<()> {
    let (request, _) = parse_message::<CopyRequest>(request)?;
    let meter = Meter::new(ShowStyle::Silent);
    match request {
        CopyRequest::Receive { destination, options } => {
            receive::receive(channel, &destination, &options, &meter)?;
        }
        CopyRequest::Send { sources, options } => {
            send::send(channel, &sources, &options, &meter)?;
        }
    }
    channel.finish(END_LIMIT)
}
