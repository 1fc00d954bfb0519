//! A server and a client, each in its own process, over one address of this machine.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::ports;
use crate::process::{BenchProcess, Finished, Spec};
use crate::sys;

/// How long a server may take until it listens.
const START: Duration = Duration::from_secs(60);
/// How long the other side may go on when one has ended.
const END: Duration = Duration::from_secs(15);
/// How often to look whether the server listens.
const LOOK: Duration = Duration::from_millis(2);

/// How the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEnds {
    /// After its client.
    ByItself,
    /// When it is asked to, with this signal.
    On(Signal),
}

/// Result of the two sides.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The server.
    pub server: Finished,
    /// The client.
    pub client: Finished,
    /// From the client's start to its end.
    pub elapsed: Duration,
}

impl Pair {
    /// The CPU time of both.
    pub fn cpu(&self) -> Duration {
        self.server.cpu + self.client.cpu
    }
}

/// Starts `server`, waits until it listens on `port`, then runs `client`, for at most `limit`.
///
/// # Errors
/// One of the two fails, does not end, or the user interrupts.
pub fn run(
    server: &Spec,
    client: &Spec,
    port: u16,
    ends: ServerEnds,
    limit: Duration,
) -> Result<Pair> {
    let mut server = server.start().context("the server")?;
    wait_until_listening(&mut server, port).context("the server")?;
    let began = Instant::now();
    let mut client = client.start().context("the client")?;
    watch(&mut server, &mut client, began + limit)?;
    let client = client.wait(Instant::now()).context("the client")?;
    let elapsed = began.elapsed();
    let deadline = Instant::now() + END;
    let server = match ends {
        ServerEnds::ByItself => server.wait(deadline),
        ServerEnds::On(signal) => server.finish(signal, deadline),
    };
    Ok(Pair { server: server.context("the server")?, client, elapsed })
}

fn wait_until_listening(server: &mut BenchProcess, port: u16) -> Result<()> {
    let deadline = Instant::now() + START;
    while !ports::is_listening(port)? {
        ensure!(!sys::interrupted(), "interrupted");
        if server.has_ended()? {
            server.check()?;
            bail!("it ended before it listened on port {port}");
        }
        ensure!(Instant::now() < deadline, "it does not listen on port {port}");
        sys::wait_readable(server.end(), LOOK)?;
    }
    Ok(())
}

/// Waits until the client ends or `deadline` comes. A server that fails explains more than the
/// client that it leaves waiting, so it is reported first.
fn watch(server: &mut BenchProcess, client: &mut BenchProcess, deadline: Instant) -> Result<()> {
    let mut server_gone = false;
    let mut deadline = deadline;
    while !client.has_ended()? && Instant::now() < deadline {
        ensure!(!sys::interrupted(), "interrupted");
        if !server_gone && server.has_ended()? {
            server.check().context("the server")?;
            server_gone = true;
            deadline = deadline.min(Instant::now() + END);
        }
        let live_server = server.end().filter(|_| !server_gone);
        let fds = client.end().into_iter().chain(live_server);
        sys::wait_readable(fds, deadline.saturating_duration_since(Instant::now()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn iperf_server(port: u16) -> Spec {
        Spec::new("iperf3").args(&format!("-s -1 -p {port}"))
    }

    #[test]
    fn a_server_that_never_listens_is_reported() {
        let error = run(&Spec::new("false"), &Spec::new("true"), 1, ServerEnds::ByItself, LIMIT);
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.contains("the server: false failed with status 1"), "{error}");
    }

    #[test]
    fn the_client_starts_when_the_server_listens() {
        let port = ports::free().unwrap();
        let client = Spec::new("iperf3").args(&format!("-c 127.0.0.1 -p {port} -n 1M"));
        let pair = run(&iperf_server(port), &client, port, ServerEnds::ByItself, LIMIT).unwrap();
        assert!(pair.client.stdout.contains("receiver"), "{}", pair.client.stdout);
    }

    #[test]
    fn a_client_that_fails_is_reported_and_the_server_ended() {
        let port = ports::free().unwrap();
        let end = ServerEnds::On(Signal::TERM);
        let error = run(&iperf_server(port), &Spec::new("false"), port, end, LIMIT).unwrap_err();
        assert!(format!("{error:#}").contains("the client: false failed"), "{error:#}");
        assert!(!ports::is_listening(port).unwrap());
    }
}
