//! Server: serves one client after another with the tests that it asks for.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weft_units::WrongArgument;

use crate::control::{ControlConn, ControlMessage, Gone};
use crate::meeting::{Meet, StreamToken};
use crate::report;
use crate::run::{TestSide, prepare, run};
use crate::test::Test;
use crate::verbs::{Cm, OwnedCmId, check_device};

/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a client may take between two tests, and until it starts one.
const BETWEEN: Duration = Duration::from_secs(60);
/// How long another client waits for the one before it to be done with.
const GRACE: Duration = Duration::from_secs(2);
/// How long a process without descriptors waits before it accepts again.
const RETRY: Duration = Duration::from_millis(100);

/// Options of the server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where clients come to; the streams come to the next one. 0 lets the system choose both.
    pub port: u16,
    /// Whether to end after one client.
    pub one_off: bool,
    /// The only device that will do.
    pub device: Option<String>,
    /// How long a client may be silent in the middle of a test, while nothing comes from it either.
    pub patience: Duration,
}

/// Says on stdout what happens. A log that takes no more ends no test.
fn tell(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// Serves one client after another; with `one_off` until one of them had a test.
///
/// # Errors
/// It cannot listen; or the one client's test failed.
pub fn serve(options: &ServerOptions) -> Result<()> {
    let wrong = |error: anyhow::Error| WrongArgument(format!("{error:#}"));
    options.device.as_deref().map_or(Ok(()), check_device).map_err(wrong)?;
    // Without rdma-cm there is nothing to wait for.
    Cm::new()?;
    let listener = listen(options.port).map_err(wrong)?;
    tell(format_args!("weft perf: listening on port {}", listener.local_addr()?.port()));
    let seat = Arc::new(ClientSlot::default());
    let (hand_over, clients) = mpsc::channel();
    let door = seat.clone();
    thread::Builder::new().name("door".into()).spawn(move || door.keep(&listener, &hand_over))?;
    loop {
        let (stream, peer) = clients.recv().context("nobody listens any more")?;
        let (tests, ended) = session(options, stream);
        if let Err(error) = &ended {
            tell(format_args!("{}: {error:#}", address(peer).ip()));
        }
        if options.one_off && tests > 0 {
            return ended;
        }
        seat.leave();
    }
}

/// Both families at once, where the machine has both.
fn listen(port: u16) -> Result<TcpListener> {
    let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    let addresses = any.map(|ip| SocketAddr::new(ip, port));
    TcpListener::bind(&addresses[..])
        .with_context(|| format!("cannot listen at port {port} (-p takes another)"))
}

/// The next client; none if the listener has failed for good.
fn accept(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    loop {
        match listener.accept() {
            Ok(client) => return Some(client),
            Err(error) => match error.raw_os_error() {
                Some(libc::ECONNABORTED | libc::EINTR) => {}
                // Clients that are served leave some.
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    thread::park_timeout(RETRY);
                }
                _ => return None,
            },
        }
    }
}

/// The slot of the client that is being served.
#[derive(Default)]
struct ClientSlot {
    taken: Mutex<bool>,
    left: Condvar,
}

impl ClientSlot {
    /// Lets clients in, and tells those for whom there is no place.
    fn keep(&self, listener: &TcpListener, hand_over: &mpsc::Sender<(TcpStream, SocketAddr)>) {
        while let Some((stream, peer)) = accept(listener) {
            let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.left.wait_timeout_while(taken, GRACE, |taken| *taken);
            let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if *taken {
                let reason = String::from("it is busy with another client");
                let told = ControlConn::new(stream)
                    .map(|mut c| c.say(&ControlMessage::Refused { reason }));
                // Who does not hear it finds the connection closed.
                drop(told);
                continue;
            }
            *taken = true;
            if hand_over.send((stream, peer)).is_err() {
                return;
            }
        }
    }

    fn leave(&self) {
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.left.notify_one();
    }
}

/// A client's tests, one after another: how many, and how the last one ended.
fn session(options: &ServerOptions, stream: TcpStream) -> (usize, Result<()>) {
    let mut tests = 0;
    let ended = ControlConn::new(stream).and_then(|mut control| {
        let ended = serve_client(options, &mut control, &mut tests);
        if let Err(error) = &ended
            && !error.is::<Gone>()
        {
            // A client that is gone need not be told.
            let _ = control.say(&ControlMessage::Refused { reason: format!("{error:#}") });
        }
        ended
    });
    match ended {
        Err(error) if tests == 0 && error.is::<Gone>() => (0, Ok(())),
        ended => (tests, ended),
    }
}

fn serve_client(
    options: &ServerOptions,
    control: &mut ControlConn,
    tests: &mut usize,
) -> Result<()> {
    let first = control.expect(PATIENCE)?;
    let peer = address(control.stream().peer_addr()?);
    let mut at = address(control.stream().local_addr()?);
    at.set_port(options.data_port());
    let cm = Cm::new()?;
    let listener = cm.listen(at)?;
    let mut message: Result<ControlMessage> = Ok(first);
    loop {
        let test = match message {
            Ok(ControlMessage::Test { test }) => test,
            Ok(other) => bail!("the other side said {other:?}, which is no test"),
            // Between two tests that is the end.
            Err(error) if *tests > 0 && error.is::<Gone>() => return Ok(()),
            Err(error) => return Err(error),
        };
        test.check()?;
        *tests += 1;
        let line = measure(options, control, &cm, &listener, &test)?;
        tell(format_args!("{}: {line}", peer.ip()));
        message = control.expect(BETWEEN);
    }
}

impl ServerOptions {
    fn data_port(&self) -> u16 {
        if self.port == 0 { 0 } else { self.port.wrapping_add(1) }
    }
}

/// One test; the line that says what it came to.
fn measure(
    options: &ServerOptions,
    control: &mut ControlConn,
    cm: &Cm,
    listener: &OwnedCmId,
    test: &Test,
) -> Result<String> {
    let token = new_token();
    let text = token.iter().map(|byte| format!("{byte:02x}")).collect();
    control.say(&ControlMessage::Ready { port: listener.port(), token: text })?;
    let device = options.device.as_deref();
    let control_here = &mut *control;
    let mut meet =
        Meet { calls: false, announced: false, control: control_here, test, token, device };
    let meeting = meet.answer(cm)?;
    let device = meeting.device.clone();
    let prepared = prepare(meeting, test, false);
    control.say(&ControlMessage::Connected)?;
    match control.expect(BETWEEN)? {
        ControlMessage::Start => {}
        other => bail!("the other side said {other:?} instead of to start"),
    }
    let interrupted = AtomicBool::new(false);
    let observe = &mut |_: &_| {};
    let (tells, patience) = (test.down, options.patience);
    let side = TestSide { test, control, interrupted: &interrupted, tells, patience, observe };
    let ended = run(side, prepared)?;
    Ok(report::served(test, &device, &ended))
}

/// Unpredictable token, from the random keys of the standard library's hash.
fn new_token() -> StreamToken {
    let half = || RandomState::new().hash_one(0).to_le_bytes();
    let mut token = StreamToken::default();
    token[..8].copy_from_slice(&half());
    token[8..].copy_from_slice(&half());
    token
}

/// Turns an IPv4-mapped IPv6 address into IPv4.
pub fn address(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(v4.into(), v6.port()),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}
