//! Client: runs one test for each size and reports the results.

use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use weft_units::WrongArgument;

use crate::control::{ControlConn, ControlMessage};
use crate::meeting::{Meet, Meeting, StreamToken};
use crate::report::ClientReport;
use crate::run::{SILENT_MAX, TestSide, prepare, run};
use crate::server::address;
use crate::test::Test;
use crate::verbs::{Cm, check_device};

/// How long the server's port may take to answer TCP.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long the server may take to answer: it waits 2 s for another client to leave.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long all streams may take to be connected.
const CONNECTED_LIMIT: Duration = Duration::from_secs(40);
/// The status of a process that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// Options of the client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// One for each size.
    pub tests: Vec<Test>,
    /// The only device that will do.
    pub device: Option<String>,
    /// Whether to say everything in JSON, at the end.
    pub json: bool,
}

/// How a client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientOutcome {
    /// All sizes were measured.
    Whole,
    /// Interrupted; the results until then were reported.
    Interrupted,
    /// Verification found wrong data.
    Wrong,
}

/// Runs all tests and reports them.
///
/// # Errors
/// The server cannot be reached or refuses, or a request failed.
pub fn measure(options: &ClientOptions) -> Result<ClientOutcome> {
    let mut report = ClientReport::new(options);
    let ended = measure_into(options, &mut report);
    report.finish(ended.as_ref().err())?;
    ended
}

fn measure_into(options: &ClientOptions, report: &mut ClientReport) -> Result<ClientOutcome> {
    let wrong = |error: anyhow::Error| WrongArgument(format!("{error:#}"));
    options.tests.iter().try_for_each(Test::check).map_err(wrong)?;
    options.device.as_deref().map_or(Ok(()), check_device).map_err(wrong)?;
    let (host, port) = (&options.host, options.port);
    let stream = connect(host, port, CONNECT_LIMIT).with_context(|| {
        format!("no `weft perf server` can be reached at {host}, port {port} of TCP")
    })?;
    let mut control = ControlConn::new(stream)?;
    let interrupted = interrupts()?;
    let mut end = ClientOutcome::Whole;
    for test in &options.tests {
        match one(options, test, &mut control, &interrupted, report) {
            Ok(wrong) if wrong > 0 => end = ClientOutcome::Wrong,
            Ok(_) => {}
            Err(error) => {
                // A server that is gone need not be told.
                let _ = control.say(&ControlMessage::Refused { reason: format!("{error:#}") });
                return Err(error);
            }
        }
        if interrupted.load(Ordering::Relaxed) {
            return Ok(ClientOutcome::Interrupted);
        }
    }
    Ok(end)
}

/// Connects to the first address of `host` that answers. A port that a firewall drops would be
/// silent for two minutes.
fn connect(host: &str, port: u16, limit: Duration) -> Result<TcpStream> {
    let deadline = Instant::now() + limit;
    let mut last = None;
    for to in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(left) = Some(left).filter(|left| !left.is_zero()) else { break };
        match TcpStream::connect_timeout(&to, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| ErrorKind::TimedOut.into());
    if error.kind() == ErrorKind::TimedOut {
        let limit_s = limit.as_secs_f64();
        bail!("no answer within {limit_s} s; is the host up, and does a firewall drop the port?");
    }
    if error.kind() == ErrorKind::ConnectionRefused {
        bail!("the connection was refused; is `weft perf server` running there?");
    }
    Err(error.into())
}

/// The first Ctrl-C ends a test early, the second one everything.
fn interrupts() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, INTERRUPTED, interrupted.clone())?;
        flag::register(signal, interrupted.clone())?;
    }
    Ok(interrupted)
}

/// Runs one test; returns the number of messages with wrong data.
fn one(
    options: &ClientOptions,
    test: &Test,
    control: &mut ControlConn,
    interrupted: &AtomicBool,
    report: &mut ClientReport,
) -> Result<u64> {
    let cm = Cm::new()?;
    let meeting = meet(options, test, control, &cm)?;
    report.begin(test, &meeting.device)?;
    let prepared = prepare(meeting, test, true);
    control.say(&ControlMessage::Start)?;
    let mut told = Ok(());
    let observe = &mut |interval: &_| {
        if told.is_ok() {
            told = report.interval(test, interval);
        }
    };
    let side = TestSide { test, control, interrupted, tells: false, patience: SILENT_MAX, observe };
    let ended = run(side, prepared)?;
    told?;
    report.end(test, &ended)?;
    Ok(ended.verdict.wrong)
}

fn meet(
    options: &ClientOptions,
    test: &Test,
    control: &mut ControlConn,
    cm: &Cm,
) -> Result<Meeting> {
    control.say(&ControlMessage::Test { test: test.clone() })?;
    let answer = control.hear(Instant::now() + ANSWER_LIMIT)?.with_context(|| {
        let (host, port) = (&options.host, options.port);
        format!("{host}, port {port} of TCP, is open but silent: no `weft perf server` is there")
    })?;
    let (port, token) = match answer {
        ControlMessage::Ready { port, token } => (port, parse_token(&token)?),
        other => bail!("the other side said {other:?} instead of that it is ready"),
    };
    let mut to = address(control.stream().peer_addr()?);
    to.set_port(port);
    let device = options.device.as_deref();
    let control_here = &mut *control;
    let mut meet =
        Meet { calls: true, announced: false, control: control_here, test, token, device };
    let meeting = meet.call(cm, to)?;
    if meet.announced {
        return Ok(meeting);
    }
    match control.expect(CONNECTED_LIMIT)? {
        ControlMessage::Connected => Ok(meeting),
        other => bail!("the other side said {other:?} instead of that all is connected"),
    }
}

fn parse_token(text: &str) -> Result<StreamToken> {
    let mut token = StreamToken::default();
    let whole = text.len() == 2 * token.len() && text.is_ascii();
    ensure!(whole, "the other side's token is none");
    for (at, byte) in token.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).context("a token")?;
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_that_drops_what_comes_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        // The kernel drops what comes for a listener whose queue is full.
        rustix::net::listen(&listener, 0).unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            match connect("127.0.0.1", at.port(), Duration::from_millis(200)) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error.to_string(),
            }
            assert!(waiting.len() < 10, "the queue has no end");
        };
        assert!(error.contains("no answer within 0.2 s"), "{error}");
    }
}
