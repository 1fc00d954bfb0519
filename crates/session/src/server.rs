//! The far end: reads the key from ssh, and waits for the near end by UDP.
//!
//! Invariant: who cannot show the key is not heard, and after the first who can nobody else is.
//!
//! Order: [`serve`]; then the channel.

use std::fs::File;
use std::io::{BufRead, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_os::random;
use weft_rdma::Listener;

use crate::channel::MessageChannel;
use crate::hello::{FarAnswer, Greeter, PROTOCOL, PathChoice, PortRange};
use crate::pipe::PipeLink;
use crate::push;
use crate::ssh::SshEnd;
use crate::udp::{SessionSide, UdpEnd, UdpLink};

/// How long the near end may take to come by UDP.
const ACCEPT_LIMIT: Duration = Duration::from_secs(60);
/// How long after its input ssh may take the output away.
const OUTPUT_END_LIMIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
/// Ports of the range that are tried.
const TRIES_MAX: u32 = 256;

/// What a far end that is asked about itself prints: its protocol, or the hash of its program.
///
/// # Errors
/// It cannot be read, or nobody reads it.
pub fn describe(hash: bool) -> Result<()> {
    let text = if hash { push::own_hash()? } else { PROTOCOL.to_owned() };
    writeln!(std::io::stdout(), "{text}").context("writing to stdout")
}

/// Greets the near end through stdin and stdout, and makes the channel.
///
/// # Errors
/// The near end is gone, or speaks something else.
pub fn serve() -> Result<MessageChannel> {
    let greeter = Greeter::read(&mut std::io::stdin().lock())?;
    let listening = greeter.ports.as_ref().and_then(|ports| listen(greeter.key, ports));
    let mut stdout = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let port = listening.as_ref().map_or(0, |(_, listener)| listener.local_addr().port());
    let line = FarAnswer::line(port, reached_address());
    stdout.write_all(line.as_bytes()).context("answering the near end")?;
    // What takes time is done while the answer is on its way.
    let accept = |(end, listener): (UdpEnd, Listener)| {
        thread::spawn(move || end.ready()?.accept(listener, ACCEPT_LIMIT))
    };
    let accepting = listening.map(accept);
    match PathChoice::read(&mut std::io::stdin().lock())? {
        PathChoice::Udp => {
            let accepting = accepting.context("the near end chose UDP, which is not there")?;
            let accepted = accepting.join().map_err(|_| anyhow!("accepting has failed"))?;
            let link = accepted.context("accepting the near end")?;
            watch_stdin(Arc::clone(&link))?;
            Ok(MessageChannel::over_udp(link))
        }
        PathChoice::Ssh => {
            let link = PipeLink::new(Box::new(std::io::stdin()), Box::new(stdout));
            Ok(MessageChannel::over_pipe(link))
        }
    }
}

/// Tells the channel when ssh has ended.
fn watch_stdin(link: Arc<UdpLink>) -> Result<()> {
    let watch = move || {
        let mut stdin = std::io::stdin().lock();
        while let Ok(bytes @ [_, ..]) = stdin.fill_buf() {
            let count = bytes.len();
            stdin.consume(count);
        }
        // A near end that is killed leaves ssh there, which waits for this one. Where ssh has ended
        // too, or lost its connection, sshd takes the output away as well.
        let stdout = std::io::stdout();
        let mut output = [PollFd::new(&stdout, PollFlags::empty())];
        let is_lost = poll(&mut output, Some(&OUTPUT_END_LIMIT)).is_ok_and(|count| count > 0);
        link.note_ssh_end(if is_lost { SshEnd::Unclear } else { SshEnd::WithProcess });
    };
    thread::Builder::new().name("weft-ssh".into()).spawn(watch).context("starting a thread")?;
    Ok(())
}

/// Listens at a port of the range; `None` if all that were tried are taken.
fn listen(key: [u8; 32], ports: &PortRange) -> Option<(UdpEnd, Listener)> {
    let end = UdpEnd::new(key, SessionSide::Far(ports.clone())).ok()?;
    let (first, last) = (u32::from(*ports.0.start()), u32::from(*ports.0.end()));
    let count = last - first + 1;
    // From a random one on, so that several users of a host do not try the same ones first.
    let start = random::random() % count;
    for step in 0..count.min(TRIES_MAX) {
        let port = u16::try_from(first + (start + step) % count).ok()?;
        for any in [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()] {
            if let Ok(listener) = end.listen(SocketAddr::from((any, port))) {
                return Some((end, listener));
            }
        }
    }
    None
}

/// The address of this host that ssh reached.
fn reached_address() -> Option<IpAddr> {
    let connection = std::env::var("SSH_CONNECTION").ok()?;
    connection.split_ascii_whitespace().nth(2)?.parse().ok()
}
