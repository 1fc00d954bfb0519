//! The near end: starts the far end by ssh, and reaches it by UDP if that is possible.
//!
//! Invariant: the key leaves this process through ssh's stdin only; what the far end prints reaches
//! the terminal without control characters; and it is said when the channel does not go by UDP.
//!
//! Order: [`open`]; then [`FarSession::channel`]; then [`FarSession::close`], or
//! [`FarSession::leave`] once nothing matters any more.

use std::io::{BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use weft_os::{clock, random, sys};
use weft_sync::Mutex;

use crate::END_LIMIT;
use crate::channel::MessageChannel;
use crate::codec::send_after;
use crate::hello::{FarAnswer, Greeter, PathChoice};
use crate::pipe::PipeLink;
use crate::push;
use crate::ssh::{self, SshArgs, SshEnd};
use crate::udp::{SessionSide, UdpEnd, UdpLink};

/// How long it may take until UDP works, or is taken to be blocked.
const UDP_LIMIT: Duration = Duration::from_millis(2400);
/// How long ssh may take to end after its output, and how often that is looked at.
const SSH_END_LIMIT: Duration = Duration::from_secs(1);
const SSH_END_INTERVAL: Duration = Duration::from_millis(10);
/// How many addresses of the far end are tried.
const ADDRESSES_MAX: usize = 3;

/// A far end, and the channel to it.
pub struct FarSession {
    channel: MessageChannel,
    ssh: Arc<Mutex<KilledChild>>,
    /// ssh's stdin while the channel does not go through it: the far end sees by its end that this
    /// process is gone.
    life_line: Option<ChildStdin>,
    greeted: Duration,
}

impl FarSession {
    /// The channel.
    pub fn channel(&self) -> &MessageChannel {
        &self.channel
    }

    /// How long it took until the far end answered by ssh: the log-in, the start of weft there, and
    /// sending it if it was missing.
    pub fn greeted(&self) -> Duration {
        self.greeted
    }

    /// Sends the first message, which asks the far end for `service`; `request` says for what.
    ///
    /// # Errors
    /// The channel has failed.
    pub fn ask<T: Serialize>(&self, service: u8, request: &T) -> Result<()> {
        send_after(&self.channel.sender(), &[service], request, &[])
    }

    /// Waits until both ends have said all, for [`END_LIMIT`] at most, and ends ssh.
    ///
    /// # Errors
    /// The channel has failed, or the peer took longer.
    pub fn close(mut self) -> Result<()> {
        let outcome = self.channel.finish(END_LIMIT);
        self.life_line = None;
        outcome
    }

    /// Ends the session at once: the far end has said all, and what it still hears does not matter.
    pub fn leave(self) {
        self.channel.leave();
    }

    /// The process id of ssh.
    pub fn ssh_id(&self) -> u32 {
        self.ssh.lock().0.id()
    }
}

/// A child that does not outlive this.
pub(crate) struct KilledChild(pub Child);

impl Drop for KilledChild {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// ssh while the ends greet each other.
struct StartedSsh {
    child: KilledChild,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// Where the far end listens.
struct FarPort {
    port: u16,
    address: Option<IpAddr>,
}

/// Starts a far end on `host`, and makes a channel to it. `tell` takes what a person should know.
///
/// # Errors
/// With one line that says what to do: ssh does not get there, there is no weft, or UDP is blocked
/// against `--udp-only`.
pub fn open(args: &SshArgs, host: &str, tell: &dyn Fn(&str)) -> Result<FarSession> {
    let greeter = Greeter {
        key: random::random_octets(),
        ports: (!args.ssh_only).then(|| args.ports.clone()),
    };
    let prepared = (!args.ssh_only).then(|| UdpPreparation::start(args, host, greeter.key));
    let began = clock::now();
    let (mut ssh, far) = start(args, host, &greeter)?;
    let greeted = began.elapsed();
    let udp = match (prepared, far.port) {
        (None, _) => None,
        (_, 0) => Some(Err(anyhow!("{host} has no UDP port free of {}", args.ports))),
        (Some(prepared), _) => Some(reach(prepared, host, &far)),
    };
    match udp {
        Some(Ok(link)) => {
            ssh.stdin.write_all(PathChoice::Udp.line().as_bytes()).context("writing to ssh")?;
            let child = Arc::new(Mutex::new(ssh.child));
            watch(ssh.stdout, Arc::downgrade(&child), Arc::clone(&link))?;
            let (channel, life_line) = (MessageChannel::over_udp(link), Some(ssh.stdin));
            return Ok(FarSession { channel, ssh: child, life_line, greeted });
        }
        Some(Err(error)) if args.udp_only => return Err(error.context("--udp-only")),
        Some(Err(error)) => tell(&format!("{error:#}; going on through ssh")),
        None => {}
    }
    ssh.stdin.write_all(PathChoice::Ssh.line().as_bytes()).context("writing to ssh")?;
    let link = PipeLink::new(Box::new(ssh.stdout), Box::new(ssh.stdin));
    let channel = MessageChannel::over_pipe(link);
    let child = Arc::new(Mutex::new(ssh.child));
    Ok(FarSession { channel, ssh: child, life_line: None, greeted })
}

/// What is made ready while ssh logs in.
struct UdpPreparation {
    key: [u8; 32],
    name: Option<Child>,
    end: thread::JoinHandle<Result<UdpEnd>>,
}

impl UdpPreparation {
    fn start(args: &SshArgs, host: &str, key: [u8; 32]) -> Self {
        // Without it the name is taken as it stands.
        let name = args.query(host).spawn().ok();
        Self { key, name, end: thread::spawn(move || UdpEnd::new(key, SessionSide::Near)?.ready()) }
    }
}

/// Starts the far end; sends it this weft first if it has none.
fn start(args: &SshArgs, host: &str, greeter: &Greeter) -> Result<(StartedSsh, FarPort)> {
    let hash = push::own_hash()?;
    for is_last in [false, true] {
        let mut ssh = spawn(args, host, &args.script(&hash))?;
        // If the far end is gone already, its status says more than this failure.
        let _ = ssh.stdin.write_all(greeter.line().as_bytes());
        match FarAnswer::read(&mut ssh.stdout)? {
            Some(FarAnswer::Here { port, address }) => return Ok((ssh, FarPort { port, address })),
            Some(FarAnswer::Missing { machine }) if !is_last => {
                drop(ssh);
                push::send(args, host, &hash, &machine)?;
            }
            Some(FarAnswer::Missing { .. }) => break,
            None => {
                drop(ssh.stdin);
                let status = ssh.child.0.wait().context("waiting for ssh")?;
                bail!(ssh::explain(host, status));
            }
        }
    }
    bail!("{host} does not start the weft that was sent there; --remote-weft PATH names another")
}

fn spawn(args: &SshArgs, host: &str, script: &str) -> Result<StartedSsh> {
    let mut command = args.command(host, script)?;
    command.stderr(Stdio::piped());
    let child = command.spawn();
    let mut child = child.with_context(|| format!("starting `{}`: is it in PATH?", args.rsh))?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let stderr = child.stderr.take();
    let child = KilledChild(child);
    let stdin = stdin.context("ssh has no stdin")?;
    let stdout = BufReader::new(stdout.context("ssh has no stdout")?);
    show(stderr.context("ssh has no stderr")?)?;
    Ok(StartedSsh { child, stdin, stdout })
}

/// Tells the channel when ssh has ended: the far end may have.
fn watch(
    mut stdout: BufReader<ChildStdout>,
    ssh: Weak<Mutex<KilledChild>>,
    link: Arc<UdpLink>,
) -> Result<()> {
    let watch = move || {
        // Nothing more comes; whether it ends well does not matter.
        let _ = std::io::copy(&mut stdout, &mut std::io::sink());
        if let Some(how) = how_ended(&ssh) {
            link.note_ssh_end(how);
        }
    };
    thread::Builder::new().name("weft-ssh".into()).spawn(watch).context("starting a thread")?;
    Ok(())
}

/// How `ssh`, whose output is over, has ended; `None` if nobody needs it any more.
fn how_ended(ssh: &Weak<Mutex<KilledChild>>) -> Option<SshEnd> {
    let until = clock::now() + SSH_END_LIMIT;
    while clock::now() < until {
        let status = ssh.upgrade()?.lock().0.try_wait();
        match status {
            Ok(None) => sys::pause(SSH_END_INTERVAL),
            Ok(Some(status)) => return Some(SshEnd::of(status)),
            Err(_) => break,
        }
    }
    // What it ran has closed its output.
    Some(SshEnd::WithProcess)
}

/// Passes on what ssh and the far end print, without what a terminal would obey.
fn show(mut stderr: ChildStderr) -> Result<()> {
    let pass_on = move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stderr.read(&mut bytes) {
            for byte in &mut bytes[..count] {
                if byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t') {
                    *byte = if *byte == b'\r' { b'\n' } else { b'?' };
                }
            }
            // C1 controls in UTF-8 are two bytes, of which no terminal of today obeys the second
            // alone; the first is replaced with them.
            let text = String::from_utf8_lossy(&bytes[..count]);
            let text: String = text.chars().map(printable).collect();
            // Without a stderr nobody reads it.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    };
    thread::Builder::new().name("weft-ssh".into()).spawn(pass_on).context("starting a thread")?;
    Ok(())
}

fn printable(c: char) -> char {
    if c.is_control() && !matches!(c, '\n' | '\t') { '?' } else { c }
}

/// Connects by UDP to one of the far end's addresses.
fn reach(prepared: UdpPreparation, host: &str, far: &FarPort) -> Result<Arc<UdpLink>> {
    let addresses = addresses(&host_name(prepared.name, host), far);
    let limit = UDP_LIMIT / u32::try_from(addresses.len().max(1))?;
    let mut ready = Some(prepared.end.join().map_err(|_| anyhow!("making an end has failed"))?);
    let mut last = None;
    for address in &addresses {
        let end = ready
            .take()
            .unwrap_or_else(|| UdpEnd::new(prepared.key, SessionSide::Near)?.ready())?;
        match end.connect(*address, limit) {
            Ok(link) => return Ok(link),
            Err(error) => last = Some((address, error)),
        }
    }
    match last {
        Some((address, _)) => bail!(
            "no answer by UDP from {address} within 3 s: a firewall may block it (--port names \
             the ports)"
        ),
        None => bail!("no address of {host} is known"),
    }
}

/// Where the far end may be reached: at the address that ssh reached if the name has it, else at
/// those of the name, and last at what the far end says, which may be behind a translator.
fn addresses(name: &str, far: &FarPort) -> Vec<SocketAddr> {
    let found = (name, far.port).to_socket_addrs();
    let mut all: Vec<SocketAddr> = found.into_iter().flatten().collect();
    if let Some(told) = far.address {
        let told = SocketAddr::from((told, far.port));
        match all.iter().position(|known| known.ip() == told.ip()) {
            Some(at) => all.swap(0, at),
            None => {
                all.truncate(ADDRESSES_MAX - 1);
                all.push(told);
            }
        }
    }
    all.dedup();
    all.truncate(ADDRESSES_MAX);
    all
}

/// The name or address that ssh takes `host` for, which `query` prints.
fn host_name(query: Option<Child>, host: &str) -> String {
    let bare = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let Some(Ok(out)) = query.map(Child::wait_with_output) else { return bare.to_owned() };
    let text = String::from_utf8_lossy(&out.stdout);
    let named = text.lines().find_map(|line| line.strip_prefix("hostname "));
    named.unwrap_or(bare).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_name_that_ssh_reached_is_tried_first() {
        let far = |told: &str| FarPort { port: 9, address: told.parse().ok() };
        let to = addresses(&host_name(None, "me@127.0.0.1"), &far("127.0.0.1"));
        assert_eq!(to, ["127.0.0.1:9".parse().unwrap()]);
        let to = addresses("127.0.0.1", &far("10.0.0.9"));
        assert_eq!(to, ["127.0.0.1:9".parse().unwrap(), "10.0.0.9:9".parse().unwrap()]);
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_passed_on() {
        assert_eq!("a\x1b[2J\u{9b}b\n".chars().map(printable).collect::<String>(), "a?[2J?b\n");
    }
}
