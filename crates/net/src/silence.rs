//! Peers that do not answer: one line that says which address and port, before the person who
//! waits gives up.
//!
//! Nothing follows from it but the line: an application that is slow to connect is as silent as a
//! firewall.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use weft_os::clock::Moment;

use crate::report;

/// How long a peer may be silent before it is mentioned.
pub const MENTIONED_AFTER: Duration = Duration::from_millis(1500);

/// Who is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// An answer by UDP, from the peer's address and port to this port here.
    Answer {
        /// Where the peer is.
        peer: SocketAddr,
        /// The port here.
        here: u16,
    },
    /// A peer that is to ask by UDP, at this port here.
    Request {
        /// Where the peer is.
        peer: IpAddr,
        /// The port here.
        here: u16,
    },
    /// An answer by TCP, from the peer's address and port.
    Stream {
        /// Where the peer is.
        peer: SocketAddr,
    },
    /// An answer as iWARP, from the peer's address and port, which TCP has reached.
    Reply {
        /// Where the peer is.
        peer: SocketAddr,
    },
    /// A peer that is to connect by TCP, at this port here.
    Connect {
        /// Where the peer is.
        peer: IpAddr,
        /// The port here.
        here: u16,
    },
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UP: &str = "is the application up there, under Weft, and do firewalls let";
        match self {
            Self::Answer { peer, here } => {
                let (ip, port) = (peer.ip(), peer.port());
                write!(
                    f,
                    "no answer by UDP from {ip} port {port}: {UP} UDP through to that port, "
                )?;
                write!(f, "and back to port {here}?")
            }
            Self::Request { peer, here } => {
                write!(f, "nothing by UDP from {peer}, which is to connect to port {here}: {UP} ")?;
                write!(f, "UDP through to that port?")
            }
            Self::Stream { peer } => {
                let (ip, port) = (peer.ip(), peer.port());
                write!(f, "no answer by TCP from {ip} port {port}: {UP} TCP through to that port?")
            }
            Self::Reply { peer } => {
                let (ip, port) = (peer.ip(), peer.port());
                write!(
                    f,
                    "no answer from {ip} port {port}, which TCP reaches: is the application "
                )?;
                write!(f, "there under Weft, and has it accepted the connection?")
            }
            Self::Connect { peer, here } => {
                write!(f, "nothing by TCP from {peer}, which is to connect to port {here}: {UP} ")?;
                write!(f, "TCP through to that port?")
            }
        }
    }
}

impl Awaited {
    /// What one line is enough for: whoever calls again and again has another port here each time.
    fn topic(&self) -> String {
        let mut topic = *self;
        if let Self::Answer { here, .. } | Self::Request { here, .. } | Self::Connect { here, .. } =
            &mut topic
        {
            *here = 0;
        }
        topic.to_string()
    }
}

/// When a silent peer is mentioned.
#[derive(Debug)]
pub struct Silence {
    awaited: Awaited,
    due: Option<Moment>,
}

impl Silence {
    /// Of a peer that is waited for since `since`.
    pub fn new(awaited: Awaited, since: Moment) -> Self {
        Self { awaited, due: Some(since + MENTIONED_AFTER) }
    }

    /// The peer is waited for as before, for something else.
    pub fn await_instead(&mut self, awaited: Awaited) {
        self.awaited = awaited;
    }

    /// When [`Silence::look`] is to be called at the latest.
    pub fn due(&self) -> Option<Moment> {
        self.due
    }

    /// The peer has answered: nothing is to be mentioned.
    pub fn end(&mut self) {
        self.due = None;
    }

    /// Mentions the peer if it is time to; once.
    pub fn look(&mut self, now: Moment) {
        if self.due.is_some_and(|due| due <= now) {
            self.mention();
        }
    }

    /// Mentions the peer, which nobody waits for any longer.
    pub fn mention(&mut self) {
        if self.due.take().is_some() {
            report::warning_about(&self.awaited.topic(), &self.awaited.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_os::clock;

    #[test]
    fn is_mentioned_once_and_not_before_its_time() {
        let peer = SocketAddr::from(([203, 0, 113, 1], 49153));
        let now = clock::now();
        let mut silence = Silence::new(Awaited::Answer { peer, here: 5 }, now);
        silence.look(now);
        assert_eq!(silence.due(), Some(now + MENTIONED_AFTER));
        silence.look(now + MENTIONED_AFTER);
        assert_eq!(silence.due(), None);
        let mut answered = Silence::new(Awaited::Answer { peer, here: 6 }, now);
        answered.end();
        assert_eq!(answered.due(), None);
    }

    #[test]
    fn who_calls_from_another_port_each_time_is_told_of_one_peer_once() {
        let [peer, other] = [49153, 49154].map(|port| SocketAddr::from(([203, 0, 113, 1], port)));
        let answer = |peer, here| Awaited::Answer { peer, here }.topic();
        assert_eq!(answer(peer, 49257), answer(peer, 49258));
        assert_ne!(answer(peer, 49257), answer(other, 49257));
        let request = |here| Awaited::Request { peer: peer.ip(), here }.topic();
        assert_eq!(request(49257), request(49258));
        assert_ne!(request(49257), Awaited::Connect { peer: peer.ip(), here: 49257 }.topic());
        assert_ne!(Awaited::Stream { peer }.topic(), Awaited::Stream { peer: other }.topic());
    }

    #[test]
    fn says_which_address_and_which_port() {
        let peer = SocketAddr::from(([203, 0, 113, 1], 49153));
        for (awaited, port) in [
            (Awaited::Answer { peer, here: 4791 }, "49153"),
            (Awaited::Request { peer: peer.ip(), here: 4791 }, "4791"),
            (Awaited::Stream { peer }, "49153"),
            (Awaited::Connect { peer: peer.ip(), here: 4791 }, "4791"),
        ] {
            let line = awaited.to_string();
            assert!(line.contains("203.0.113.1") && line.contains(port), "{line}");
        }
    }
}
