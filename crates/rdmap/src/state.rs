//! The states of a stream and the only transitions between them: its life ([`Life`]), what is known
//! of the peer ([`Discovery`]), and which message goes next ([`Turn`], [`FirstMessage`]).

use crate::capability::PeerExtensions;
use crate::stream::LlpKind;

/// Whether a stream carries work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    /// Segments go out and are placed.
    Open,
    /// It has failed: nothing is placed, and only the Terminate goes out.
    Terminating,
    /// It has failed, and nothing goes out.
    Ended,
}

/// What changes the life of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LifeEvent {
    /// It failed, and a Terminate tells the peer why.
    FailedWithTerminate,
    /// It failed, and the peer is told by other means or not at all.
    Failed,
    /// The Terminate went out.
    TerminateSent,
}

impl Life {
    /// The state after `event`. The first failure counts, later ones change nothing.
    pub(crate) fn after(self, event: LifeEvent) -> Self {
        match (self, event) {
            (Self::Open, LifeEvent::FailedWithTerminate) => Self::Terminating,
            (Self::Open, LifeEvent::Failed) => Self::Ended,
            (Self::Terminating, LifeEvent::TerminateSent) => Self::Ended,
            (state, _) => state,
        }
    }
}

/// What is known of the peer: over MPA its first segment tells whether it speaks RFC 7306.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Discovery {
    /// Nothing has arrived.
    Unheard,
    /// Nothing has arrived, and a request waits for the answer: a Read of nothing is due.
    ProbeDue,
    /// The Read is out.
    Probed,
    /// Nothing arrived in time: the peer is taken for one without RFC 7306.
    AssumedPlain,
    /// Nothing arrived in time, and only a Weft peer can be there.
    AssumedExtended,
    /// Its first segment was not the message of a Weft peer.
    Plain,
    /// Its first segment was, or only a Weft peer can be there.
    Extended,
}

/// What tells something of the peer, or asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DiscoveryEvent {
    /// A request must know whether the peer speaks RFC 7306.
    Needed,
    /// The Read that finds out went out.
    ProbeSent,
    /// The first segment arrived, and it is the message of a Weft peer.
    HeardHello,
    /// The first segment arrived, and it is another one.
    HeardOther,
    /// The time for the first segment is over.
    TimedOut,
    /// The same where only a Weft peer can be there.
    WeftTimedOut,
}

impl Discovery {
    /// What is known before anything has arrived: only Weft speaks Shuttle.
    pub(crate) fn new(lower: LlpKind) -> Self {
        match lower {
            LlpKind::Mpa => Self::Unheard,
            LlpKind::Shuttle => Self::Extended,
        }
    }

    /// The state after `event`.
    pub(crate) fn after(self, event: DiscoveryEvent) -> Self {
        use DiscoveryEvent::{HeardHello, HeardOther, Needed, ProbeSent, TimedOut, WeftTimedOut};
        match (self, event) {
            (Self::Unheard, Needed) => Self::ProbeDue,
            (Self::ProbeDue, ProbeSent) => Self::Probed,
            (Self::Unheard | Self::ProbeDue | Self::Probed, TimedOut) => Self::AssumedPlain,
            (Self::Unheard | Self::ProbeDue | Self::Probed, WeftTimedOut) => Self::AssumedExtended,
            (Self::AssumedExtended, HeardOther) => Self::Extended,
            // A late first segment corrects the assumption.
            (state, HeardHello) if !state.is_heard() => Self::Extended,
            (state, HeardOther) if !state.is_heard() => Self::Plain,
            (state, _) => state,
        }
    }

    /// Whether anything has arrived, or need not arrive to know the peer.
    pub(crate) fn is_heard(self) -> bool {
        matches!(self, Self::Plain | Self::Extended)
    }

    /// The same in the words of the public interface.
    pub(crate) fn peer(self) -> PeerExtensions {
        match self {
            Self::Unheard | Self::ProbeDue | Self::Probed => PeerExtensions::Unknown,
            Self::AssumedPlain | Self::Plain => PeerExtensions::Plain,
            Self::AssumedExtended | Self::Extended => PeerExtensions::Extended,
        }
    }
}

/// Who goes first at the next message boundary where both a request and a response wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A request: the message before was a response.
    Request,
    /// A response: the message before was a request, or there was none.
    Response,
}

/// A message without effect on the application that is to go out before any request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstMessage {
    /// The zero-length Write that names a Weft peer.
    Hello,
    /// A zero-length Read.
    Read,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_fails_once_and_says_so_once() {
        use LifeEvent::{Failed, FailedWithTerminate, TerminateSent};
        let table = [
            (Life::Open, FailedWithTerminate, Life::Terminating),
            (Life::Open, Failed, Life::Ended),
            (Life::Open, TerminateSent, Life::Open),
            (Life::Terminating, FailedWithTerminate, Life::Terminating),
            (Life::Terminating, Failed, Life::Terminating),
            (Life::Terminating, TerminateSent, Life::Ended),
            (Life::Ended, FailedWithTerminate, Life::Ended),
            (Life::Ended, Failed, Life::Ended),
            (Life::Ended, TerminateSent, Life::Ended),
        ];
        for (before, event, after) in table {
            assert_eq!(before.after(event), after, "{before:?} {event:?}");
        }
    }

    #[test]
    fn the_first_segment_decides_and_the_read_goes_out_once() {
        use Discovery::{
            AssumedExtended, AssumedPlain, Extended, Plain, ProbeDue, Probed, Unheard,
        };
        use DiscoveryEvent::{HeardHello, HeardOther, Needed, ProbeSent, TimedOut, WeftTimedOut};
        // One row for each state: what follows each event.
        let events = [Needed, ProbeSent, HeardHello, HeardOther, TimedOut, WeftTimedOut];
        let [plain, extended] = [AssumedPlain, AssumedExtended];
        let table = [
            (Unheard, [ProbeDue, Unheard, Extended, Plain, plain, extended]),
            (ProbeDue, [ProbeDue, Probed, Extended, Plain, plain, extended]),
            (Probed, [Probed, Probed, Extended, Plain, plain, extended]),
            (plain, [plain, plain, Extended, Plain, plain, plain]),
            (extended, [extended, extended, Extended, Extended, extended, extended]),
            (Plain, [Plain; 6]),
            (Extended, [Extended; 6]),
        ];
        for (before, row) in table {
            for (event, after) in events.into_iter().zip(row) {
                assert_eq!(before.after(event), after, "{before:?} {event:?}");
            }
        }
    }

    #[test]
    fn over_shuttle_the_peer_is_known_from_the_start() {
        assert_eq!(Discovery::new(LlpKind::Mpa).peer(), PeerExtensions::Unknown);
        assert_eq!(Discovery::new(LlpKind::Shuttle).peer(), PeerExtensions::Extended);
        assert_eq!(Discovery::AssumedPlain.peer(), PeerExtensions::Plain);
    }
}
