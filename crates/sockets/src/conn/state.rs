//! The phases of a connection and the only transitions between them.
//!
//! The end that connects decides between SDP and TCP. The end that accepts learns the decision from
//! what the peer does: a message by SDP, or data or the end of the stream on the TCP connection.

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnPhase {
    /// This end connects and has not decided.
    Connecting,
    /// A peer was granted SDP. It may not know, and the application has not accepted it.
    Offered,
    /// The peer knows; the application has not accepted it.
    Reached,
    /// The peer has sent by SDP; the application has not accepted it.
    Heard,
    /// The application has accepted the peer, which may not know of SDP.
    Accepted,
    /// The application has accepted the peer, which knows and decides.
    Deciding,
    /// Decided: SDP carries the data.
    Sdp,
    /// Decided: TCP carries the data.
    Tcp,
    /// The connection has ended and holds no resources.
    Over,
}

/// Events that may change the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnChange {
    /// The transport is established: the peer knows of the grant.
    PeerReached,
    /// A message has come by SDP.
    SdpHeard,
    /// The application has accepted the connection.
    AppAccepted,
    /// This end has decided for SDP.
    SdpChosen,
    /// This end or the peer has decided for TCP.
    TcpChosen,
    /// All resources were released.
    Finished,
}

impl ConnPhase {
    /// The phase after `change`, or nothing where it changes nothing.
    pub fn after(self, change: ConnChange) -> Option<ConnPhase> {
        use ConnPhase::*;
        match (change, self) {
            (ConnChange::PeerReached, Offered) => Some(Reached),
            (ConnChange::PeerReached, Accepted) => Some(Deciding),
            (ConnChange::SdpHeard, Offered | Reached) => Some(Heard),
            (ConnChange::SdpHeard, Accepted | Deciding) => Some(Sdp),
            (ConnChange::AppAccepted, Offered) => Some(Accepted),
            (ConnChange::AppAccepted, Reached) => Some(Deciding),
            (ConnChange::AppAccepted, Heard) => Some(Sdp),
            (ConnChange::SdpChosen, Connecting) => Some(Sdp),
            (ConnChange::TcpChosen, Connecting | Offered | Reached | Accepted | Deciding) => {
                Some(Tcp)
            }
            (ConnChange::Finished, state) if state != Over => Some(Over),
            _ => None,
        }
    }

    /// Whether neither SDP nor TCP carries data yet.
    pub fn is_undecided(self) -> bool {
        !matches!(self, ConnPhase::Sdp | ConnPhase::Tcp | ConnPhase::Over)
    }

    /// Whether a peer was granted the connection and the application has not accepted it.
    pub fn is_unclaimed(self) -> bool {
        matches!(self, ConnPhase::Offered | ConnPhase::Reached | ConnPhase::Heard)
    }
}

/// The application's half of the stream: what it may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AppHalf {
    /// This half may send.
    Open,
    /// It has shut down sending, or may send no more.
    ShutDown,
    /// It has closed its socket.
    Closed,
}

#[cfg(test)]
mod tests {
    use super::ConnPhase::*;
    use super::*;

    const PHASES: [ConnPhase; 9] =
        [Connecting, Offered, Reached, Heard, Accepted, Deciding, Sdp, Tcp, Over];

    /// One row per change, one letter per phase in the order of `PHASES`: the phase it leads to, or
    /// `.` where nothing changes.
    const TABLE: [(ConnChange, &str); 6] = [
        (ConnChange::PeerReached, ".r..d...."),
        (ConnChange::SdpHeard, ".hh.ss..."),
        (ConnChange::AppAccepted, ".ads....."),
        (ConnChange::SdpChosen, "s........"),
        (ConnChange::TcpChosen, "ttt.tt..."),
        (ConnChange::Finished, "xxxxxxxx."),
    ];

    fn named(letter: char) -> Option<ConnPhase> {
        let phase = match letter {
            'r' => Reached,
            'h' => Heard,
            'a' => Accepted,
            'd' => Deciding,
            's' => Sdp,
            't' => Tcp,
            'x' => Over,
            _ => return None,
        };
        Some(phase)
    }

    #[test]
    fn every_phase_takes_every_change_as_the_table_says() {
        for (change, row) in TABLE {
            assert_eq!(row.len(), PHASES.len());
            for (phase, letter) in PHASES.into_iter().zip(row.chars()) {
                assert_eq!(phase.after(change), named(letter), "{change:?} in {phase:?}");
            }
        }
    }

    #[test]
    fn a_decision_is_final() {
        for phase in [Sdp, Tcp] {
            for (change, _) in TABLE.iter().filter(|(change, _)| *change != ConnChange::Finished) {
                assert_eq!(phase.after(*change), None);
            }
            assert!(!phase.is_undecided() && !phase.is_unclaimed());
        }
    }
}
