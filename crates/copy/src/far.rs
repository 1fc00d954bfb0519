//! The far end of a copy: does what the near end asks for, and shows nothing.
//!
//! Invariant: it obeys whoever started it by ssh, as a shell would.
//!
//! Order: [`serve`] with the request.

use std::fs::File;
use std::os::unix::ffi::OsStringExt;

use anyhow::{Context, Result};
use weft_os::{own_file, sys};
use weft_session::{END_LIMIT, MessageChannel};

use crate::destination::expand_home;
use crate::messages::{CopyRequest, ToReceiver, parse_message, send_message};
use crate::meter::{Meter, ShowStyle};
use crate::rel_path::escape;
use crate::{byte_stream, receive, send, wildcard};

/// Copies as `request`, a message, says.
///
/// # Errors
/// The copy could not go on; the near end has been told if that was possible.
pub fn serve(channel: &MessageChannel, request: &[u8]) -> Result<()> {
    // Files wait with the descriptors of their directories.
    sys::raise_descriptor_limit();
    own_file::ignore_limit_signal();
    let (request, _) = parse_message::<CopyRequest>(request)?;
    let meter = Meter::new(ShowStyle::Silent, false);
    match request {
        CopyRequest::Receive { destination, options } => {
            let destination = expand_home(&destination).into_os_string().into_vec();
            receive::receive(channel, &destination, &options, None, None, &meter)?;
            // All is there and has been said; a near end that has heard it may be gone.
            let _ = channel.finish(END_LIMIT);
            return Ok(());
        }
        CopyRequest::ReceiveStream { destination } => {
            let destination = expand_home(&destination).into_os_string().into_vec();
            byte_stream::receive_file(channel, &destination, &meter)?;
        }
        CopyRequest::SendStream { source, limit_bps } => {
            let file = open_source(&source).inspect_err(|error| {
                let why = ToReceiver::Problem(format!("{error:#}"));
                let _ = send_message(&channel.sender(), &why, &[]);
            })?;
            byte_stream::send(channel, file, limit_bps, &meter)?;
        }
        CopyRequest::Send { sources, options } => {
            let sources: Vec<_> = sources.iter().flat_map(|it| wildcard::expand(it)).collect();
            send::send(channel, &sources, &options, &meter)?;
        }
    }
    channel.finish(END_LIMIT)
}

fn open_source(named: &[u8]) -> Result<File> {
    let path = expand_home(named);
    let opened = File::open(&path).and_then(|file| match file.metadata()?.is_dir() {
        true => Err(std::io::Error::other("it is a directory")),
        false => Ok(file),
    });
    opened.with_context(|| escape(named))
}
