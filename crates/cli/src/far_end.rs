//! `weft far-end`: what ssh starts at the far end of `weft cp`, `weft pipe` and `weft forward`.
//!
//! Invariant: stdout belongs to the protocol of `weft-session`; what goes wrong is said on stderr,
//! which ssh carries to the near end.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::OUR_FAILURE;
use crate::args::FarEndArgs;

/// How long the near end may take to hear why this one has failed.
const LAST_WORD: Duration = Duration::from_secs(2);

/// Serves the near end; gives the exit status.
pub fn main(options: &FarEndArgs) -> u8 {
    let outcome = match (options.protocol, options.hash) {
        (false, false) => serve(),
        (_, hash) => weft_session::server::describe(hash).map(|()| 0),
    };
    outcome.unwrap_or_else(|error| {
        // Without a stderr the near end sees the channel end.
        let _ = writeln!(std::io::stderr(), "weft at the far end: {error:#}");
        OUR_FAILURE
    })
}

fn serve() -> Result<u8> {
    let channel = weft_session::server::serve()?;
    let first = channel.receiver().recv()?.context("the near end has ended")?.into_bytes()?;
    let outcome = match first.split_first() {
        Some((&weft_copy::command::SERVICE, request)) => {
            weft_copy::far::serve(&channel, request).map(|()| 0)
        }
        Some((&weft_streams::command::SERVICE, request)) => {
            weft_streams::far::serve(&channel, request).map(|()| 0)
        }
        _ => bail!("the near end asks for something unknown"),
    };
    if outcome.is_err() {
        // The near end has been told why: it is to hear that before it finds this end gone.
        let _ = channel.finish(LAST_WORD);
    }
    outcome
}
