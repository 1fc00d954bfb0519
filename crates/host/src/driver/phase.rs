//! How far a connection is, and the only transitions.

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The peer is to ask for it, or to answer, or to send its first message.
    Connecting,
    /// Both ends know of it. Datagrams and loopback begin here.
    Open,
    /// The peer has ended it, which the queue pair does not show while it has no request.
    Left,
    /// This half is closed; what arrives is thrown away until the peer closes too.
    Lingering,
    /// Nothing is left of it.
    Closed,
}

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PhaseChange {
    /// The peer knows of it.
    Established,
    /// The peer has ended it, and the queue pair has not failed.
    PeerLeft,
    /// This side has failed or ended it, and everything that it had to say is written.
    Finished,
    /// There is no connection any more.
    Gone,
}

impl Phase {
    /// The phase after `change`; the same one where that comes too late to matter.
    pub fn after(self, change: PhaseChange) -> Self {
        use Phase::*;
        match (self, change) {
            (Connecting, PhaseChange::Established) => Open,
            (Connecting | Open | Lingering, PhaseChange::PeerLeft) => Left,
            (Connecting | Open, PhaseChange::Finished) => Lingering,
            (Connecting | Open | Left | Lingering, PhaseChange::Gone) => Closed,
            (phase, _) => phase,
        }
    }

    /// Whether there is a socket to receive from and to watch.
    pub fn has_socket(self) -> bool {
        !matches!(self, Self::Left | Self::Closed)
    }

    /// Whether nothing was ended yet.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Connecting | Self::Open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Phase; 5] =
        [Phase::Connecting, Phase::Open, Phase::Left, Phase::Lingering, Phase::Closed];

    #[test]
    fn what_is_closed_stays_so_and_everything_can_be_closed() {
        for phase in ALL {
            assert_eq!(phase.after(PhaseChange::Gone), Phase::Closed);
        }
        for change in [
            PhaseChange::Established,
            PhaseChange::PeerLeft,
            PhaseChange::Finished,
            PhaseChange::Gone,
        ] {
            assert_eq!(Phase::Closed.after(change), Phase::Closed);
        }
    }

    #[test]
    fn no_connection_opens_again() {
        for phase in [Phase::Left, Phase::Lingering] {
            assert_eq!(phase.after(PhaseChange::Established), phase);
            assert_eq!(phase.after(PhaseChange::Finished), phase);
        }
        assert_eq!(Phase::Connecting.after(PhaseChange::Established), Phase::Open);
    }

    #[test]
    fn only_what_has_a_socket_is_watched() {
        let watched = ALL.map(Phase::has_socket);
        assert_eq!(watched, [true, true, false, true, false]);
    }
}
