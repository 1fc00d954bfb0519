//! Errors: what happened, in which call, and what to do about it.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use weft_net::socket;
use weft_verbs::Misuse;

use crate::completion::Completion;

/// Why a device of [`DeviceKind::Iwarp`](crate::DeviceKind::Iwarp) connects to nobody else.
pub(crate) const CLEAR_UNDER_KEY: &str = "this host has a key, and iWARP is not encrypted";

/// What every command of a device says that was reset.
const EIO: i32 = 5;

/// Reasons of InfiniBand for a refusal, and that of a device of
/// [`DeviceKind::Iwarp`](crate::DeviceKind::Iwarp): `-ECONNREFUSED`.
const NOBODY_LISTENS: i32 = 8;
const APPLICATION_SAYS_NO: i32 = 28;
const REFUSED: i32 = -111;

/// What to do about a lack of descriptors, threads or memory.
const LIMITS: &str = "look at the limits of the process";

/// Why a call failed. Its text says what happened, in which call, and what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The call does not fit its arguments or the state of the object.
    Invalid {
        /// The call.
        during: &'static str,
        /// What is wrong.
        why: Cow<'static, str>,
    },
    /// The queue holds as many requests as it was made for.
    QueueFull {
        /// The call.
        during: &'static str,
    },
    /// Bytes beyond the end of a region or of a remote key.
    Range {
        /// The call.
        during: &'static str,
        /// Where the range begins, in bytes.
        offset: u64,
        /// Its length in bytes.
        len: u64,
        /// How many bytes there are.
        size: u64,
    },
    /// The device does not do this.
    Unsupported {
        /// The call.
        during: &'static str,
        /// What it does not do.
        what: &'static str,
    },
    /// The policy of this host forbids to speak with the peer.
    Forbidden {
        /// The call.
        during: &'static str,
        /// Which rule forbids it.
        why: &'static str,
    },
    /// The operating system refused.
    System {
        /// The call.
        during: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The device was reset: what was made with it is of no use any more.
    DeviceReset {
        /// The call.
        during: &'static str,
    },
    /// More completions came than the queue holds, and some are lost.
    Overflow,
    /// A request failed.
    Failed(Completion),
    /// The peer, or its host, refused the connection.
    Rejected {
        /// The peer.
        peer: SocketAddr,
        /// A negative errno, or a reason of InfiniBand: 8 if nobody listens, 28 if the
        /// application said no. [`DeviceKind::Iwarp`](crate::DeviceKind::Iwarp) says -111 to both.
        status: i32,
        /// What the application at the peer said along.
        private_data: Vec<u8>,
    },
    /// The connection did not come about.
    Unreachable {
        /// The peer.
        peer: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// What was waited for did not come in time.
    TimedOut {
        /// The call.
        during: &'static str,
        /// How long it waited.
        after: Duration,
    },
}

impl Error {
    /// What to do about it, in a few words.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "correct the call",
            Self::QueueFull { .. } => "take completions first, or make the queue larger",
            Self::Range { .. } => "name a range within the region",
            Self::Unsupported { .. } => "use the other device, or another operation",
            Self::Forbidden { why: CLEAR_UNDER_KEY, .. } => {
                "take a device of DeviceKind::Roce, or allow clear text"
            }
            Self::Forbidden { .. } => {
                "give both hosts the same key, by WEFT_KEY or HostOptions::key"
            }
            Self::System { source, .. } => advice_to_system(source),
            Self::DeviceReset { .. } => "open the device again, and make all of its objects anew",
            Self::Overflow => "make the completion queue as large as all queues that use it",
            Self::Failed(_) => "make a new queue pair: this one takes no more requests",
            Self::Rejected { status: NOBODY_LISTENS, .. } => {
                "look at the port, and have the peer listen first"
            }
            Self::Rejected { status: APPLICATION_SAYS_NO, .. } => {
                "look what the application there expects"
            }
            Self::Rejected { .. } => "look whether the peer listens, and what it expects",
            Self::Unreachable { .. } => "look at the address, the firewall and the keys of both",
            Self::TimedOut { .. } => "wait longer, or look whether the peer is alive",
        }
    }

    /// An error of the layer below, met in the call `during`.
    pub(crate) fn of(during: &'static str) -> impl FnOnce(Misuse) -> Self {
        move |misuse| match misuse {
            Misuse::Full => Self::QueueFull { during },
            Misuse::Unsupported(what) => Self::Unsupported { during, what },
            Misuse::Refused(why) => Self::Forbidden { during, why },
            Misuse::System(EIO) => Self::DeviceReset { during },
            Misuse::NoMemory | Misuse::System(_) => {
                let source = io::Error::from_raw_os_error(misuse.errno());
                Self::System { during, source }
            }
            Misuse::Invalid(why) => Self::Invalid { during, why: why.into() },
            Misuse::Busy | Misuse::NotFound | Misuse::Fault => {
                Self::Invalid { during, why: misuse.to_string().into() }
            }
        }
    }

    /// A call that does not fit.
    pub(crate) fn invalid(during: &'static str, why: &'static str) -> Self {
        Self::Invalid { during, why: why.into() }
    }
}

fn advice_to_system(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "take another port, or end what has this one",
        io::ErrorKind::AddrNotAvailable => "name an address of this host, or take another port",
        io::ErrorKind::PermissionDenied => "take a port above 1023, or ask for the permission",
        // No thread is left.
        io::ErrorKind::WouldBlock => LIMITS,
        _ if socket::is_exhausted(source) => LIMITS,
        _ => "look up what the system says",
    }
}

/// What happened, where a peer or its host refuses with `status`.
fn refusal(status: i32) -> &'static str {
    match status {
        NOBODY_LISTENS => "nobody listens there",
        APPLICATION_SAYS_NO => "the application there said no",
        REFUSED => "nobody listens there, or the application there said no",
        _ => "refused",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { during, why } => write!(out, "{during}: {why}")?,
            Self::QueueFull { during } => write!(out, "{during}: the queue is full")?,
            Self::Range { during, offset, len, size } => {
                write!(out, "{during}: {len} bytes from {offset} on, of {size}")?;
            }
            Self::Unsupported { during, what } => {
                write!(out, "{during}: the device does not offer {what}")?;
            }
            Self::Forbidden { during, why } => write!(out, "{during}: {why}")?,
            Self::System { during, source } => write!(out, "{during}: {source}")?,
            Self::DeviceReset { during } => write!(out, "{during}: the device was reset")?,
            Self::Overflow => write!(out, "taking completions: the queue overflowed")?,
            Self::Failed(completion) => write!(
                out,
                "request {} of queue pair {:#x} failed: {:?}",
                completion.id, completion.qp_number, completion.status
            )?,
            Self::Rejected { peer, status, .. } => {
                write!(out, "connection with {peer}: {} ({status})", refusal(*status))?;
            }
            Self::Unreachable { peer, source } => write!(out, "connection with {peer}: {source}")?,
            Self::TimedOut { during, after } => {
                write!(out, "{during}: nothing within {} ms", after.as_millis())?;
            }
        }
        write!(out, "; {}", self.advice())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { source, .. } | Self::Unreachable { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_what_happened_where_and_what_to_do() {
        let full = Error::of("posting a send")(Misuse::Full).to_string();
        assert!(full.starts_with("posting a send: the queue is full; take completions"), "{full}");
        let system = Error::of("opening a device")(Misuse::System(24));
        assert!(
            matches!(&system, Error::System { source, .. } if source.raw_os_error() == Some(24))
        );
        assert!(std::error::Error::source(&system).is_some());
        let forbidden = Error::of("connecting")(Misuse::Refused("no key")).to_string();
        assert!(forbidden.contains("no key; give both hosts the same key"), "{forbidden}");
    }

    #[test]
    fn the_advice_fits_what_the_system_says() {
        let advice = |errno| Error::of("listening")(Misuse::System(errno)).advice();
        let (emfile, eaddrinuse, eaddrnotavail, eacces) = (24, 98, 99, 13);
        assert_eq!(advice(emfile), LIMITS);
        assert!(advice(eaddrinuse).contains("port"));
        assert!(advice(eaddrnotavail).contains("address of this host"));
        assert_ne!(advice(eacces), LIMITS);
        assert_ne!(advice(22), LIMITS);
    }

    #[test]
    fn a_refusal_says_who_refused() {
        let text = |status| {
            let peer = ([127, 0, 0, 1], 1).into();
            Error::Rejected { peer, status, private_data: Vec::new() }.to_string()
        };
        assert!(text(8).contains("127.0.0.1:1: nobody listens there (8); look at the port"));
        assert!(text(28).contains("the application there said no (28); look what"));
        assert!(text(-111).contains("nobody listens there, or the application there said no"));
        assert!(text(4).contains(": refused (4); look whether"));
    }
}
