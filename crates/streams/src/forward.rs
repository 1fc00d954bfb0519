//! Forwarding of TCP connections, `ssh -L` and `-R` over Shuttle.
//!
//! One end listens, the other connects; for each forward it is said which. A stream is a
//! connection: its number is even if the near end took it.
//!
//! Invariant: an end connects only to what the near end's user named: the far end chooses among the
//! forwards of this command, and names no address.
//!
//! Order: [`parse_forward`] for each argument; [`run`] at both ends.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use weft_os::sys;
use weft_session::MessageChannel;

use crate::dialer::{DialRequest, Dialer};
use crate::event_loop::{EventLoop, LoopOwner, OwnerEvent};
use crate::event_queue::{EventSender, LoopEvent};
use crate::messages::{ForwardSpec, StreamMessage};
use crate::stream::{reset_when_closed, socket_fds};

/// Connections, at most.
const CONNECTIONS_MAX: usize = 16 * 1024;
/// Connections that the kernel keeps until they are accepted; `net.core.somaxconn` may allow fewer.
const BACKLOG: i32 = 4096;

/// What `-L` and `-R` take: `[ADDR:]PORT:HOST:PORT`, with `[` and `]` around addresses of IPv6.
///
/// # Errors
/// It is none.
pub fn parse_forward(text: &str, is_remote: bool) -> Result<ForwardSpec> {
    let words = words(text).filter(|words| matches!(words.len(), 3 | 4));
    let words = words.with_context(|| format!("`{text}` is no [ADDR:]PORT:HOST:PORT"))?;
    let (bind, rest) = match &words[..] {
        [bind, rest @ ..] if words.len() == 4 => (bind.clone(), rest),
        rest => (String::from("localhost"), rest),
    };
    let port = |text: &str| {
        let port = text.parse::<u16>().ok().filter(|port| *port > 0);
        port.with_context(|| format!("`{text}` is no port from 1 to 65535"))
    };
    Ok(ForwardSpec {
        is_remote,
        bind: if bind == "*" { String::from("::") } else { bind },
        port: port(&rest[0])?,
        to_host: rest[1].clone(),
        to_port: port(&rest[2])?,
    })
}

/// The parts between colons, without the brackets around one.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = text;
    loop {
        let (word, after) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']')?,
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        words.push(word.to_owned());
        match after.strip_prefix(':') {
            Some(next) => rest = next,
            None => return after.is_empty().then_some(words),
        }
    }
}

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardEnd {
    /// Where the user is.
    Near,
    /// Where ssh led.
    Far,
}

/// Forwards until the channel ends. `ready` is called once all that listens does.
///
/// # Errors
/// The channel has failed, or an address cannot be listened at.
pub fn run(
    channel: &MessageChannel,
    end: ForwardEnd,
    forwards: &[ForwardSpec],
    tell: &dyn Fn(&str),
    ready: &dyn Fn(),
) -> Result<()> {
    // Each connection needs one.
    sys::raise_descriptor_limit();
    let mut streams = EventLoop::new(channel)?;
    let listened = listen_all(end, forwards, &streams.events());
    if let Err(error) = &listened
        && end == ForwardEnd::Far
    {
        let why = format!("{error:#}");
        streams.say(&StreamMessage::Problem { why, is_fatal: true })?;
    }
    listened?;
    streams.say(&StreamMessage::Ready)?;
    let dialer = Dialer::new(streams.events());
    let mut owner = Forwarder { end, forwards, dialer, next: 0, tell, ready };
    streams.run(&mut owner)
}

fn listen_all(end: ForwardEnd, forwards: &[ForwardSpec], events: &EventSender) -> Result<()> {
    for (number, forward) in (0..).zip(forwards) {
        if forward.is_remote != (end == ForwardEnd::Far) {
            continue;
        }
        let shown = format!("{}:{}", forward.bind, forward.port);
        let addresses = (forward.bind.as_str(), forward.port).to_socket_addrs();
        let addresses: Vec<_> = addresses.with_context(|| format!("finding {shown}"))?.collect();
        let listeners = bind_all(&addresses);
        for listener in listeners.with_context(|| format!("cannot listen at {shown}"))? {
            accept(listener, number, events.clone())?;
        }
    }
    Ok(())
}

/// Listens at all of the addresses of a name that this host has.
fn bind_all(addresses: &[SocketAddr]) -> io::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    let mut failure = None;
    for (number, address) in addresses.iter().enumerate() {
        // A name may have one address twice.
        if addresses[..number].contains(address) {
            continue;
        }
        match listen(address) {
            Ok(listener) => listeners.push(listener),
            // Who connects to the name would often meet whoever is there.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if listeners.is_empty() => Err(error),
        _ => Ok(listeners),
    }
}

fn listen(address: &SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // The standard library has 128: more at once wait for a second, and some are reset.
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

fn accept(listener: TcpListener, forward: u32, events: EventSender) -> Result<()> {
    let accept = move || {
        loop {
            let accepted = listener.accept().map(|(connection, _)| connection);
            match accepted.and_then(reset_when_closed) {
                Ok(connection) => events.send(LoopEvent::Accepted { forward, connection }),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // No descriptor is left: connections that end give some back.
                Err(_) => thread::park_timeout(Duration::from_millis(100)),
            }
        }
    };
    thread::Builder::new().name("weft-accept".into()).spawn(accept).context("a thread")?;
    Ok(())
}

struct Forwarder<'a> {
    end: ForwardEnd,
    forwards: &'a [ForwardSpec],
    dialer: Arc<Dialer>,
    /// Connections that were taken here.
    next: u64,
    tell: &'a dyn Fn(&str),
    ready: &'a dyn Fn(),
}

impl LoopOwner for Forwarder<'_> {
    fn handle(&mut self, streams: &mut EventLoop, event: OwnerEvent) -> Result<bool> {
        match event {
            OwnerEvent::Accepted { forward, connection } => {
                self.take(streams, forward, connection)?;
            }
            OwnerEvent::Message(StreamMessage::Open { id, forward }) => {
                self.open(streams, id, forward)?;
            }
            OwnerEvent::Message(StreamMessage::Ready) => (self.ready)(),
            OwnerEvent::Message(StreamMessage::Problem { why, is_fatal }) => {
                ensure!(!is_fatal, "{}", why.escape_debug());
                (self.tell)(&why);
            }
            OwnerEvent::StreamOver => {}
            OwnerEvent::PeerDone => bail!("the other end has ended"),
            OwnerEvent::Message(_) | OwnerEvent::Exited { .. } => {
                bail!("the other end says something that forwarding does not need")
            }
        }
        Ok(true)
    }
}

impl Forwarder<'_> {
    fn take(&mut self, streams: &mut EventLoop, forward: u32, connection: TcpStream) -> Result<()> {
        if streams.count() >= CONNECTIONS_MAX {
            (self.tell)("too many connections: one more was reset");
            return Ok(());
        }
        let id = 2 * self.next + u64::from(self.end == ForwardEnd::Far);
        self.next += 1;
        // Without descriptors for it the connection is reset, and others go on.
        let Ok(fds) = socket_fds(connection) else { return Ok(()) };
        streams.say(&StreamMessage::Open { id, forward })?;
        streams.add(id, Some(fds))
    }

    fn open(&mut self, streams: &mut EventLoop, id: u64, forward: u32) -> Result<()> {
        let is_peers = (id % 2 == 1) == (self.end == ForwardEnd::Near);
        let forward = self.forwards.get(forward as usize);
        let forward =
            forward.filter(|it| is_peers && it.is_remote == (self.end == ForwardEnd::Near));
        let forward = forward.context("the other end opened a connection that nobody named")?;
        if streams.count() >= CONNECTIONS_MAX {
            return streams.say(&StreamMessage::Reset { id });
        }
        streams.add(id, None)?;
        let (host, port) = (forward.to_host.clone(), forward.to_port);
        if self.dialer.dial(DialRequest { id, host, port }).is_err() {
            streams.cut(id);
            return streams.say(&StreamMessage::Reset { id });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_port_that_somebody_has_at_one_address_is_not_forwarded() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let at = |address: &str| SocketAddr::new(address.parse().unwrap(), port);
        let error = bind_all(&[at("127.0.0.2"), at("127.0.0.1")]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        // One address is not this host's, and one is named twice.
        let some = bind_all(&[at("192.0.2.1"), at("127.0.0.3"), at("127.0.0.3")]).unwrap();
        assert_eq!(some.len(), 1);
    }

    #[test]
    fn a_connection_beyond_the_limit_is_reset() {
        let (channel_in, _far_out) = io::pipe().unwrap();
        let channel = MessageChannel::through(channel_in, io::sink());
        let mut streams = EventLoop::new(&channel).unwrap();
        for id in 0..CONNECTIONS_MAX as u64 {
            streams.add(id, None).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        accept(listener, 0, streams.events()).unwrap();
        let dialer = Dialer::new(streams.events());
        // It is told of a connection that is refused, and has the loop end.
        let tell = |why: &str| channel.abort(why);
        let (end, forwards) = (ForwardEnd::Near, &[]);
        let mut owner = Forwarder { end, forwards, dialer, next: 0, tell: &tell, ready: &|| {} };
        let error = streams.run(&mut owner).unwrap_err();
        assert_eq!(error.to_string(), "too many connections: one more was reset");
        let error = client.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn forwards_are_read_as_ssh_reads_them() {
        let parse = |text: &str| {
            let spec = parse_forward(text, false).ok()?;
            Some((spec.bind, spec.port, spec.to_host, spec.to_port))
        };
        let wanted =
            |bind: &str, port, host: &str, to| Some((bind.to_owned(), port, host.to_owned(), to));
        assert_eq!(parse("8080:h:80"), wanted("localhost", 8080, "h", 80));
        assert_eq!(parse("*:8080:h:80"), wanted("::", 8080, "h", 80));
        assert_eq!(parse("[::1]:8080:[fe80::1]:80"), wanted("::1", 8080, "fe80::1", 80));
        for text in
            ["", "80", "80:h", "80:h:x", "a:b:c:d:e", "[::1:8080:h:80", "70000:h:1", "8080:h:0"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
