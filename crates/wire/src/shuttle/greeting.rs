//! What Weft says in the private data of a handshake: for which queue pair the connection is.
//!
//! ```text
//! kind 1 | bits 1 | retries 1 | rnr 1 | room 4 | from 4 | to 4 | the program's private data
//! ```
//!
//! Bits are 1 for flow control and 2 for a shared receive queue.

/// Octets before the program's private data.
pub const GREETING_LEN: usize = 16;

/// For what a connection is asked for or granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// For two queue pairs that learnt of each other by other means.
    QueuePair = 1,
    /// For a listener of the connection manager, and the queue pair that it will have.
    Manager = 2,
    /// For a listener that only says which queue pair takes datagrams: the answer is a refusal
    /// with [`DATAGRAMS`] for its reason.
    Datagrams = 3,
    /// As [`Purpose::Manager`], but the queue pairs are connected by other means: their connection
    /// is of its own.
    Aside = 4,
}

/// Reason of a refusal that is the answer to who asked for [`Purpose::Datagrams`].
pub const DATAGRAMS: u16 = 1;

/// What rdma-cm tells the peer's program of a connection. Nothing here depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CmTerms {
    /// Flow control is available.
    pub flow_control: bool,
    /// Receives come from a shared queue.
    pub srq: bool,
    /// How often a request is repeated.
    pub retry_count: u8,
    /// How often a request is repeated whose receiver is not ready.
    pub rnr_retry_count: u8,
}

impl CmTerms {
    fn bits(self) -> u8 {
        u8::from(self.flow_control) | u8::from(self.srq) << 1
    }

    fn from_octets([bits, retry_count, rnr_retry_count]: [u8; 3]) -> Self {
        let (flow_control, srq) = (bits & 1 != 0, bits & 2 != 0);
        Self { flow_control, srq, retry_count, rnr_retry_count }
    }
}

/// The private data of a handshake packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting<'a> {
    /// For what the connection is.
    pub purpose: Purpose,
    /// What the program said about it.
    pub terms: CmTerms,
    /// Octets that the sender's socket holds until somebody reads them.
    pub room_octets: u32,
    /// Number of the sender's queue pair.
    pub from: u32,
    /// Number of the receiver's, or 0 where the sender does not know it.
    pub to: u32,
    /// The program's own.
    pub private_data: &'a [u8],
}

impl<'a> Greeting<'a> {
    /// Reads the private data of a handshake packet; `None` if it is not Weft's.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, private_data) = bytes.split_first_chunk::<GREETING_LEN>()?;
        let purpose = match head[0] {
            1 => Purpose::QueuePair,
            2 => Purpose::Manager,
            3 => Purpose::Datagrams,
            4 => Purpose::Aside,
            _ => return None,
        };
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let terms = CmTerms::from_octets([head[1], head[2], head[3]]);
        Some(Self {
            purpose,
            terms,
            room_octets: word(4),
            from: word(8),
            to: word(12),
            private_data,
        })
    }

    /// The octets.
    pub fn encode(&self) -> Vec<u8> {
        let CmTerms { retry_count, rnr_retry_count, .. } = self.terms;
        let mut bytes = vec![self.purpose as u8, self.terms.bits(), retry_count, rnr_retry_count];
        for word in [self.room_octets, self.from, self.to] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(self.private_data);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_come_back_and_others_are_none() {
        let greeting = Greeting {
            purpose: Purpose::Manager,
            terms: CmTerms { flow_control: true, srq: true, retry_count: 7, rnr_retry_count: 6 },
            room_octets: 212_992,
            from: 0x00ab_cdef,
            to: 7,
            private_data: b"hello",
        };
        assert_eq!(Greeting::parse(&greeting.encode()), Some(greeting));
        assert_eq!(Greeting::parse(&[1; GREETING_LEN - 1]), None);
        assert_eq!(Greeting::parse(&[9; GREETING_LEN]), None);
    }
}
