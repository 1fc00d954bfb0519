//! As much of HTTP/1.1 (RFC 9112) as who collects metrics needs: `GET`, one answer, the end.
//!
//! Invariant: a client costs a thread for [`PATIENCE`] at most, there are [`CLIENTS_MAX`] of them
//! at a time, and what it sends is not kept beyond [`REQUEST_MAX`]. Clients that say nothing lock
//! nobody out: one more ends the one that is there longest.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use weft_os::clock;

use crate::run_log;

/// How long a client has for its request.
const PATIENCE: Duration = Duration::from_secs(2);
/// Clients at a time.
const CLIENTS_MAX: usize = 8;
/// Length of a request in bytes, at most.
const REQUEST_MAX: usize = 8 << 10;

/// Where to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAt {
    /// A Unix socket.
    Unix(PathBuf),
    /// A loopback address.
    Tcp(SocketAddr),
}

impl FromStr for ListenAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        match text.parse::<SocketAddr>() {
            Ok(at) if at.ip().is_loopback() => Ok(Self::Tcp(at)),
            Ok(at) => Err(format!(
                "{} is not a loopback address, and nothing here asks who reads; \
                 a proxy that does can read from 127.0.0.1",
                at.ip()
            )),
            Err(_) => Err("neither unix:PATH nor an address such as 127.0.0.1:9464".to_owned()),
        }
    }
}

/// A client's end, over TCP or a Unix socket.
trait HttpClient: Read + Write + Send {
    fn limit(&self, time: Duration) -> io::Result<()>;
    /// Another handle of the same client.
    fn twin(&self) -> io::Result<Box<dyn HttpClient>>;
    /// Ends it, for whoever uses a handle of it, too.
    fn end(&self);
}

macro_rules! clients {
    ($($stream:ty),*) => {
        $(impl HttpClient for $stream {
            fn limit(&self, time: Duration) -> io::Result<()> {
                self.set_read_timeout(Some(time))?;
                self.set_write_timeout(Some(time))
            }

            fn twin(&self) -> io::Result<Box<dyn HttpClient>> {
                Ok(Box::new(self.try_clone()?))
            }

            fn end(&self) {
                // One that is gone has ended.
                let _ = self.shutdown(Shutdown::Both);
            }
        })*
    };
}

clients!(std::net::TcpStream, std::os::unix::net::UnixStream);

/// Serves what `content` gives; its error is the answer where it has one.
///
/// # Errors
/// The address cannot be served.
#[expect(clippy::disallowed_methods, reason = "nothing tells when a descriptor becomes free")]
pub fn serve(
    at: &ListenAt,
    content: impl Fn() -> io::Result<String> + Send + Sync + 'static,
) -> Result<()> {
    let mut clients = HttpClients { content: Arc::new(content), served: VecDeque::new() };
    let accept = listener(at)?;
    loop {
        let client = match accept() {
            Ok(client) => client,
            Err(_) => {
                // Out of descriptors, perhaps: one becomes free, or the client tries again.
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        // Without a descriptor or a thread for it a client is turned away.
        let _ = clients.take(client);
    }
}

/// A client, and the thread that answers it.
struct ServedClient {
    client: Box<dyn HttpClient>,
    thread: JoinHandle<()>,
}

/// The clients that are answered, in the order in which they came.
struct HttpClients<C> {
    content: Arc<C>,
    served: VecDeque<ServedClient>,
}

impl<C: Fn() -> io::Result<String> + Send + Sync + 'static> HttpClients<C> {
    /// Answers one more.
    fn take(&mut self, client: Box<dyn HttpClient>) -> io::Result<()> {
        self.served.retain(|served| !served.thread.is_finished());
        if self.served.len() == CLIENTS_MAX
            && let Some(oldest) = self.served.pop_front()
        {
            oldest.client.end();
            // It waits for nothing now, and must be over before another one begins.
            let _ = oldest.thread.join();
        }
        let (mut answered, content) = (client.twin()?, Arc::clone(&self.content));
        let serve = move || {
            // A client that goes in the middle has its reasons.
            let _ = answer(&mut *answered, &*content);
            answered.end();
        };
        let thread = thread::Builder::new().spawn(serve)?;
        self.served.push_back(ServedClient { client, thread });
        Ok(())
    }
}

type Accept = Box<dyn Fn() -> io::Result<Box<dyn HttpClient>>>;

fn listener(at: &ListenAt) -> Result<Accept> {
    Ok(match at {
        ListenAt::Tcp(at) => {
            let listener =
                TcpListener::bind(at).with_context(|| format!("cannot listen at {at}"))?;
            run_log::say(&format!("metrics at http://{}/metrics", listener.local_addr()?));
            Box::new(move || Ok(Box::new(listener.accept()?.0)))
        }
        ListenAt::Unix(path) => {
            let left = std::fs::symlink_metadata(path).is_ok_and(|at| at.file_type().is_socket());
            if left && std::os::unix::net::UnixStream::connect(path).is_err() {
                // Nobody listens there any more.
                std::fs::remove_file(path)?;
            }
            let shown = path.display();
            let listener =
                UnixListener::bind(path).with_context(|| format!("cannot listen at {shown}"))?;
            run_log::say(&format!("metrics at unix:{shown}"));
            Box::new(move || Ok(Box::new(listener.accept()?.0)))
        }
    })
}

fn answer(client: &mut dyn HttpClient, content: &dyn Fn() -> io::Result<String>) -> io::Result<()> {
    let (status, kind, body) = match request(client)?.as_deref() {
        Some("/" | "/metrics") => match content() {
            Ok(content) => {
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                ("200 OK", kind, content)
            }
            Err(error) => ("500 Internal Server Error", "text/plain", format!("{error}\n")),
        },
        Some(_) => ("404 Not Found", "text/plain", "metrics are at /metrics\n".to_owned()),
        None => ("400 Bad Request", "text/plain", "GET /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    client.limit(PATIENCE)?;
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

/// The path of a `GET`; `None` if the request is another one.
fn request(client: &mut dyn HttpClient) -> io::Result<Option<String>> {
    let until = clock::now() + PATIENCE;
    let (mut bytes, mut room) = (Vec::new(), [0; 1024]);
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(clock::now());
        if left.is_zero() || bytes.len() > REQUEST_MAX {
            return Ok(None);
        }
        client.limit(left)?;
        match client.read(&mut room)? {
            0 => return Ok(None),
            len => bytes.extend_from_slice(&room[..len]),
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    let is_get = words.next() == Some("GET");
    let path = words.next().and_then(|path| path.split('?').next()).map(str::to_owned);
    Ok(path.filter(|_| is_get))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn answered(request: &[u8]) -> String {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let server = thread::spawn(move || answer(&mut theirs, &|| Ok("x 1\n".into())));
        ours.write_all(request).unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        server.join().unwrap().unwrap();
        text
    }

    #[test]
    fn metrics_are_at_their_path_and_nothing_else_is() {
        let well = answered(b"GET /metrics?x HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            well.starts_with("HTTP/1.1 200 OK\r\n") && well.ends_with("\r\n\r\nx 1\n"),
            "{well}"
        );
        assert!(answered(b"GET /etc HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        for bad in [&b"PUT / HTTP/1.1\r\n\r\n"[..], b"", b"\xff\xff\r\n\r\n"] {
            assert!(answered(bad).starts_with("HTTP/1.1 400"));
        }
    }

    #[test]
    fn clients_that_say_nothing_lock_nobody_out() {
        let content = Arc::new(|| Ok(String::from("x 1\n")));
        let mut clients = HttpClients { content, served: VecDeque::new() };
        let mut connect = |said: &[u8]| {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            ours.write_all(said).unwrap();
            clients.take(Box::new(theirs)).unwrap();
            ours
        };
        let _half: Vec<_> = (0..2 * CLIENTS_MAX).map(|_| connect(b"GET /")).collect();
        let mut asking = connect(b"GET /metrics HTTP/1.1\r\n\r\n");
        let mut text = String::new();
        asking.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("x 1\n"), "{text}");
    }

    #[test]
    fn only_this_host_is_served() {
        assert!("0.0.0.0:9464".parse::<ListenAt>().is_err());
        assert!("[::1]:9464".parse::<ListenAt>().is_ok());
        assert_eq!("unix:/x".parse(), Ok(ListenAt::Unix("/x".into())));
        assert!("unix:".parse::<ListenAt>().is_err());
    }
}
