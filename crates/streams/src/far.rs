//! The far end of streams: does what the near end asks for.
//!
//! Invariant: it obeys whoever started it by ssh, as a shell would.
//!
//! Order: [`serve`] with the request.

use std::time::Duration;

use anyhow::Result;
use weft_session::{MessageChannel, parse_message};

use crate::forward::{self, ForwardEnd};
use crate::messages::StreamRequest;
use crate::process;

/// How long the near end may take to hear the last word: what it still writes may take its time.
const END_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Does what `request`, a message, asks for.
///
/// # Errors
/// The channel has failed, or the request cannot be met; the near end has been told then.
pub fn serve(channel: &MessageChannel, request: &[u8]) -> Result<()> {
    let (request, _) = parse_message::<StreamRequest>(request)?;
    match request {
        StreamRequest::Pipe { command } => process::serve(channel, &command)?,
        StreamRequest::Forward { forwards } => {
            // What goes wrong with one connection the other end sees.
            forward::run(channel, ForwardEnd::Far, &forwards, &|_| {}, &|| {})?;
        }
    }
    channel.finish(END_LIMIT)
}
