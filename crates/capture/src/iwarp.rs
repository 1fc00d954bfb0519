//! A stream of MPA as the TCP connection that it is, without TCP's own retransmissions: those
//! are the kernel's, and nothing is known of them here.

use weft_wire::tap::{TapDirection, TapEnds};

use crate::ip::{
    PAYLOAD_MAX, PacketPath, TCP_ACK, TCP_FIN, TCP_PUSH, TCP_SYN, TcpFields, tcp_packet,
};

/// The TCP connection of a stream.
pub(crate) struct TcpConversation {
    ends: TapEnds,
    /// Sequence numbers of what is sent and received next.
    next: [u32; 2],
}

impl TcpConversation {
    /// A connection between `ends`, and the segments that open it; `calls` if this end does.
    pub fn open(ends: TapEnds, calls: bool) -> (Self, Vec<(TapDirection, Vec<u8>)>) {
        let mut conversation = Self { ends, next: [0; 2] };
        let (caller, listener) = match calls {
            true => (TapDirection::Sent, TapDirection::Received),
            false => (TapDirection::Received, TapDirection::Sent),
        };
        let mut segment = |direction, flags, used| {
            let bytes = conversation.segment(direction, flags, &[]);
            conversation.next[at(direction)] += used;
            (direction, bytes)
        };
        let opening = vec![
            segment(caller, TCP_SYN, 1),
            segment(listener, TCP_SYN | TCP_ACK, 1),
            segment(caller, TCP_ACK, 0),
        ];
        (conversation, opening)
    }

    /// The packets that carry `bytes`.
    pub fn carry(&mut self, direction: TapDirection, bytes: &[u8]) -> Vec<Vec<u8>> {
        let chunk = |part: &[u8]| {
            let packet = self.segment(direction, TCP_PUSH | TCP_ACK, part);
            let next = &mut self.next[at(direction)];
            *next = next.wrapping_add(part.len() as u32);
            packet
        };
        bytes.chunks(PAYLOAD_MAX).map(chunk).collect()
    }

    /// The segment by which this end ends it.
    pub fn close(&mut self) -> Vec<u8> {
        self.segment(TapDirection::Sent, TCP_FIN | TCP_ACK, &[])
    }

    fn segment(&self, direction: TapDirection, flags: u8, payload: &[u8]) -> Vec<u8> {
        let TapEnds { local, remote } = self.ends;
        let [sent, received] = self.next;
        let (path, sequence, acknowledged) = match direction {
            TapDirection::Sent => (PacketPath { from: local, to: remote }, sent, received),
            TapDirection::Received => (PacketPath { from: remote, to: local }, received, sent),
        };
        let acknowledged = if flags & TCP_ACK != 0 { acknowledged } else { 0 };
        tcp_packet(path, TcpFields { sequence, acknowledged, flags }, payload)
    }
}

fn at(direction: TapDirection) -> usize {
    match direction {
        TapDirection::Sent => 0,
        TapDirection::Received => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_count_the_bytes_of_each_direction() {
        let ends = TapEnds {
            local: "192.0.2.1:7".parse().unwrap(),
            remote: "192.0.2.2:8".parse().unwrap(),
        };
        let (mut conversation, opening) = TcpConversation::open(ends, false);
        assert_eq!(opening[0].0, TapDirection::Received);
        let numbers = |packet: &[u8]| {
            let word = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
            (word(24), word(28), packet[33])
        };
        assert_eq!(numbers(&opening[0].1), (0, 0, TCP_SYN));
        assert_eq!(numbers(&opening[1].1), (0, 1, TCP_SYN | TCP_ACK));
        assert_eq!(numbers(&opening[2].1), (1, 1, TCP_ACK));
        conversation.carry(TapDirection::Received, &[0; 10]);
        let packets = conversation.carry(TapDirection::Sent, &vec![0; PAYLOAD_MAX + 1]);
        assert_eq!(packets.len(), 2);
        assert_eq!(numbers(&packets[1]), (1 + PAYLOAD_MAX as u32, 11, TCP_PUSH | TCP_ACK));
    }
}
