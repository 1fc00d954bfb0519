//! `weft top`, `weft ss` and `weft metrics`: what the processes of this user say of themselves.
//!
//! Invariant: what is printed of a report has been through [`weft_observe`], which leaves printable
//! characters only.

mod figures;
mod http;
pub mod metrics;
mod sample;
pub mod ss;
mod terminal;
pub mod top;
mod top_table;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use weft_observe::place;

/// Where the processes of this user are.
fn directory() -> PathBuf {
    place::directory(|name| std::env::var_os(name))
}

/// The arguments of `weft ss`.
#[derive(Debug, Args)]
#[command(after_long_help = SS_SECTIONS)]
pub struct SsOptions {
    /// Say it in JSON: a list of processes, each with `devices` and `connections`
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `weft top`.
#[derive(Debug, Args)]
#[command(after_long_help = TOP_SECTIONS)]
pub struct TopOptions {
    /// Write plain text instead of filling the screen, as for a file
    #[arg(short, long)]
    pub batch: bool,

    /// Seconds between refreshes
    #[arg(short, long, default_value = "1", value_name = "SECONDS", value_parser = delay)]
    pub delay: Duration,

    /// End after so many refreshes
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub iterations: Option<u64>,
}

/// The arguments of `weft metrics`.
#[derive(Debug, Args)]
#[command(after_long_help = METRICS_SECTIONS)]
pub struct MetricsOptions {
    /// Serve them by HTTP at `unix:PATH`, or at a port of this host's loopback address
    #[arg(long, value_name = "unix:PATH|127.0.0.1:PORT")]
    pub listen: Option<http::ListenAt>,
}

fn delay(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().map_err(|_| "not a number of seconds".to_owned())?;
    match (0.1..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("between 0.1 and 3600 seconds".to_owned()),
    }
}

const SS_SECTIONS: &str = "\
COLUMNS
    SENDQ, RECVQ   requests posted and not complete; receives posted
    LOSS           packets lost of those sent
    LIMIT          what keeps it from being faster: application, receiver, network or CPU

EXAMPLES
    Which connections have lost anything?
        weft ss --json | jq '.[].connections[]? | select(.counters.lost > 0)'

EXIT STATUS
    0    it was said
    125  weft itself failed, or was called wrongly

docs/observe.md says what the numbers are.";

const TOP_SECTIONS: &str = "\
COLUMNS
    SEND/RECVQ     requests posted and not complete; receives posted
    LOSS           packets lost of those sent
    FLIGHT/WINDOW  bytes in flight, of those that the rate control lets be in flight
    LIMIT          what keeps it from being faster: application, receiver, network or CPU

KEYS
    q        quit
    space    refresh now
    r        sort by rate, as at first
    t        sort by round trip
    l        sort by loss
    p        sort by process
    h, ?     help

EXAMPLES
    What does the run on this machine wait for?
        weft top

    A minute for a file:
        weft top -b -n 60 > minute.txt

docs/observe.md says what the numbers are.";

const METRICS_SECTIONS: &str = "\
EXAMPLES
    Once, to stdout:
        weft metrics

    For Prometheus on this host:
        weft metrics --listen 127.0.0.1:9464

    For one who has the right to a socket:
        weft metrics --listen unix:/run/user/1000/weft.metrics
        curl --unix-socket /run/user/1000/weft.metrics http://localhost/metrics

docs/observe.md has the names, and docs/grafana.json a dashboard.";
