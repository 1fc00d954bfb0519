//! What is reported: counters, which only grow, and gauges, of a connection, a device, a process.

use std::fmt;

/// Defines a structure of numbers that are also known by their names.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl $name {
            /// Every number with its name, in the order of the definition.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }

            /// Sets the number called `name`; whether there is one.
            pub fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $(stringify!($field) => self.$field = value,)*
                    _ => return false,
                }
                true
            }

            /// Adds `more` to each number.
            pub fn add(&mut self, more: &Self) {
                $(self.$field = self.$field.saturating_add(more.$field);)*
            }
        }
    };
}

numbers! {
    /// Counters of a connection, or the sums of a device's.
    Counters {
        /// Ends of connections that were made.
        connections,
        /// Sends, Writes, Reads and Atomics that completed without an error.
        operations,
        /// Bytes of payload sent: of own requests, and in answer to the peer's.
        bytes_out,
        /// Bytes of payload placed.
        bytes_in,
        /// Segments of DDP sent.
        segments_out,
        /// Segments of DDP received.
        segments_in,
        /// Packets sent: datagrams of Shuttle, segments of TCP.
        packets_out,
        /// Packets received.
        packets_in,
        /// Segments sent again.
        resent,
        /// Packets declared lost; of TCP the segments sent again.
        lost,
        /// Packets declared lost that arrived after all.
        spurious,
        /// Segments received that were there already.
        duplicates,
        /// Times that the peer was silent for longer than a probe timeout.
        timeouts,
        /// Packets dropped by the peer's host, not by the network.
        peer_drops,
        /// Datagrams that were not authentic, or not of the connection.
        foreign,
    }
}

numbers! {
    /// What a connection is like at the moment.
    Gauges {
        /// Smoothed round trip, in nanoseconds; 0 if it is not known.
        rtt_ns,
        /// Its mean deviation.
        rtt_var_ns,
        /// The smallest so far.
        rtt_min_ns,
        /// Bytes that the rate control lets be in flight; 0 if there is no limit.
        window_bytes,
        /// Bytes in flight.
        in_flight_bytes,
        /// Bits per second at which packets are paced; 0 if they are not.
        pace_bps,
        /// Requests posted and not complete.
        sends,
        /// Of these, those that nothing was sent of yet.
        sends_waiting,
        /// Receives posted on the queue pair's own queue.
        recvs,
        /// Microseconds in which TCP had something to send.
        busy_us,
        /// Of these, those in which the peer's window was full.
        peer_full_us,
        /// Paths of a connection over Shuttle; more than one with `WEFT_MULTIPATH`.
        paths,
    }
}

/// Connections of a process in a report at most: one answer is one write to a socket's buffer.
pub const REPORTED_MAX: usize = 400;

/// What keeps a connection from being faster, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnLimit {
    /// Not known, or nothing is under way.
    #[default]
    None,
    /// The application here posts no more than is sent.
    Application,
    /// Messages wait for a receive, or for room, at the end that receives.
    Receiver,
    /// The rate control, which follows the path.
    Network,
    /// Work is due, and nobody has come to do it.
    Cpu,
}

impl ConnLimit {
    const ALL: [Self; 5] =
        [Self::None, Self::Application, Self::Receiver, Self::Network, Self::Cpu];

    /// Its word; `-` for none.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "-",
            Self::Application => "application",
            Self::Receiver => "receiver",
            Self::Network => "network",
            Self::Cpu => "CPU",
        }
    }

    pub(crate) fn of_word(word: &str) -> Self {
        Self::ALL.into_iter().find(|limit| limit.word() == word).unwrap_or_default()
    }
}

impl fmt::Display for ConnLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.word())
    }
}

/// Which of Weft's devices it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceType {
    /// The channel adapter, over Shuttle.
    #[default]
    Roce,
    /// The RNIC, over TCP.
    Iwarp,
}

impl DeviceType {
    /// As reports have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Roce => "roce",
            Self::Iwarp => "iwarp",
        }
    }

    pub(crate) fn of_word(word: &str) -> Option<Self> {
        [Self::Roce, Self::Iwarp].into_iter().find(|kind| kind.word() == word)
    }
}

/// A device, as one process uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceReport {
    /// Which it is.
    pub kind: DeviceType,
    /// Its name.
    pub name: String,
    /// What was done over it, by connections that ended too.
    pub counters: Counters,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnReport {
    /// The name of its device.
    pub device: String,
    /// The number of its queue pair.
    pub qpn: u32,
    /// The type of its queue pair: `RC`, `UD` and so on.
    pub kind: String,
    /// The state of its queue pair, as in `enum ibv_qp_state`, without the prefix.
    pub state: String,
    /// What carries it: `shuttle`, `tcp`, `lane`, `udp` or `self`.
    pub carrier: String,
    /// Its own address and port; empty if it has none.
    pub local: String,
    /// The peer's.
    pub peer: String,
    /// What keeps it from being faster, at the moment.
    pub limit: ConnLimit,
    /// What was done so far.
    pub counters: Counters,
    /// What it is like now.
    pub gauges: Gauges,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessReport {
    /// Its id, as it knows it: in another namespace it means another process.
    pub pid: u32,
    /// Its name, as the kernel has it.
    pub name: String,
    /// The time of the report, in nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// CPU time that the process has used, in nanoseconds; 0 if it is not known.
    pub cpu_ns: u64,
    /// Its devices.
    pub devices: Vec<DeviceReport>,
    /// Its connections, [`REPORTED_MAX`] at most.
    pub connections: Vec<ConnReport>,
    /// Connections that are not among them.
    pub left_out: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names() {
        let mut counters = Counters::default();
        assert!(counters.set("bytes_out", 5) && !counters.set("bites", 5));
        counters.add(&Counters { bytes_out: u64::MAX, lost: 1, ..Counters::default() });
        let named: Vec<_> = counters.named().filter(|(_, value)| *value > 0).collect();
        assert_eq!(named, [("bytes_out", u64::MAX), ("lost", 1)]);
    }

    #[test]
    fn words_and_limits_are_one_to_one() {
        for limit in ConnLimit::ALL {
            assert_eq!(ConnLimit::of_word(limit.word()), limit);
        }
        assert_eq!(ConnLimit::of_word("weather"), ConnLimit::None);
    }
}
