//! What Weft says in the private data of a handshake: for which queue pair the connection is.
//!
//! ```text
//! kind 1 | zero 3 | room 4 | from 4 | to 4 | the program's private data
//! ```

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
}

/// The private data of a handshake packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting<'a> {
    /// For what the connection is.
    pub purpose: Purpose,
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
            _ => return None,
        };
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Some(Self { purpose, room_octets: word(4), from: word(8), to: word(12), private_data })
    }

    /// The octets.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.purpose as u8, 0, 0, 0];
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
