//! The states of an id and the only transitions between them.

use crate::error::Misuse;

/// State of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// After creation.
    Idle,
    /// Has a local address.
    AddrBound,
    /// A destination is being looked up.
    AddrQuery,
    /// Has a destination and a source address that reaches it.
    AddrResolved,
    /// The route is being looked up.
    RouteQuery,
    /// Has a route; ready to connect.
    RouteResolved,
    /// Peers may connect to it.
    Listening,
    /// Connecting: waits for the peer's answer.
    Connecting,
    /// Came from a listener; waits for the application's answer.
    ConnectRequest,
    /// Accepted; waits for the peer's first message.
    Accepting,
    /// The peer accepted; the application has to confirm.
    Answered,
    /// Established: data may flow.
    Connected,
    /// The application asked for the end; the stream is being closed.
    Disconnecting,
    /// Disconnected, failed or rejected: can only be destroyed.
    Closed,
}

/// Command of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Take a local address.
    Bind,
    /// Let peers connect.
    Listen,
    /// Resolve a destination address.
    ResolveAddr,
    /// Resolve the route to the destination.
    ResolveRoute,
    /// Connect to the destination.
    Connect,
    /// Accept a request.
    Accept,
    /// Reject a request.
    Reject,
    /// End the connection, or give up the attempt.
    Disconnect,
    /// Confirm a connection whose queue pair the application connects: InfiniBand only.
    Establish,
    /// Tell the connection manager of an event of the queue pair.
    Notify,
}

/// Outcome reported by the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// The address was found.
    AddrFound,
    /// The lookup failed.
    AddrMissing,
    /// The route was found.
    RouteFound,
    /// The lookup failed.
    RouteMissing,
    /// The peer accepted, which the application has to confirm.
    Answered,
    /// The link is up: the peer accepted, or its first message arrived.
    LinkUp,
    /// The attempt failed.
    LinkFailed,
    /// The link is down.
    LinkDown,
}

impl State {
    /// The state after a command.
    ///
    /// # Errors
    /// [`Misuse::WrongState`] where the command does not fit.
    pub(crate) fn command(self, command: Command) -> Result<State, Misuse> {
        use State::*;
        let next = match (command, self) {
            (Command::Bind, Idle) => AddrBound,
            (Command::Listen, Idle | AddrBound) => Listening,
            (Command::ResolveAddr, Idle | AddrBound) => AddrQuery,
            (Command::ResolveRoute, AddrResolved) => RouteQuery,
            (Command::Connect, RouteResolved) => Connecting,
            (Command::Accept, ConnectRequest) => Accepting,
            (Command::Reject, ConnectRequest) => Closed,
            (Command::Establish, Answered) => Connected,
            (Command::Disconnect, Answered | Connected | Disconnecting) => Disconnecting,
            // Nothing is established yet, or no longer: there is only an attempt to give up.
            (Command::Disconnect, Connecting | ConnectRequest | Accepting | Closed) => Closed,
            (Command::Notify, state) if state.has_peer() => state,
            (command, state) => return Err(Misuse::WrongState { command, state }),
        };
        Ok(next)
    }

    /// The state after a report, or nothing where the report comes too late to matter.
    pub(crate) fn outcome(self, outcome: Outcome) -> Option<State> {
        use State::*;
        match (outcome, self) {
            (Outcome::AddrFound, AddrQuery) => Some(AddrResolved),
            (Outcome::AddrMissing, AddrQuery) => Some(AddrBound),
            (Outcome::RouteFound, RouteQuery) => Some(RouteResolved),
            (Outcome::RouteMissing, RouteQuery) => Some(AddrResolved),
            (Outcome::Answered, Connecting) => Some(Answered),
            (Outcome::LinkUp, Connecting | Accepting) => Some(Connected),
            (Outcome::LinkFailed, Connecting | Accepting) => Some(Closed),
            (Outcome::LinkDown, Accepting | Answered | Connected | Disconnecting) => Some(Closed),
            _ => None,
        }
    }

    /// Whether there is, or was, a peer at the other end.
    pub fn has_peer(self) -> bool {
        use State::*;
        let before = matches!(
            self,
            Idle | AddrBound | AddrQuery | AddrResolved | RouteQuery | RouteResolved | Listening
        );
        !before
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::State::*;
    use super::*;

    pub(crate) const STATES: [State; 14] = [
        Idle,
        AddrBound,
        AddrQuery,
        AddrResolved,
        RouteQuery,
        RouteResolved,
        Listening,
        Connecting,
        ConnectRequest,
        Accepting,
        Answered,
        Connected,
        Disconnecting,
        Closed,
    ];

    pub(crate) const COMMANDS: [Command; 10] = [
        Command::Bind,
        Command::Listen,
        Command::ResolveAddr,
        Command::ResolveRoute,
        Command::Connect,
        Command::Accept,
        Command::Reject,
        Command::Disconnect,
        Command::Establish,
        Command::Notify,
    ];

    /// One row per command, one letter per state in the order of `STATES`: the state it leads to,
    /// or `.` where the command is refused.
    const TABLE: [(Command, &str); 10] = [
        (Command::Bind, "b............."),
        (Command::Listen, "ll............"),
        (Command::ResolveAddr, "qq............"),
        (Command::ResolveRoute, "...u.........."),
        (Command::Connect, ".....c........"),
        (Command::Accept, "........a....."),
        (Command::Reject, "........x....."),
        (Command::Disconnect, ".......xxxdddx"),
        (Command::Establish, "..........e..."),
        (Command::Notify, ".......crawedx"),
    ];

    fn named(letter: char) -> Option<State> {
        let state = match letter {
            'b' => AddrBound,
            'l' => Listening,
            'q' => AddrQuery,
            'u' => RouteQuery,
            'c' => Connecting,
            'r' => ConnectRequest,
            'a' => Accepting,
            'w' => Answered,
            'e' => Connected,
            'd' => Disconnecting,
            'x' => Closed,
            _ => return None,
        };
        Some(state)
    }

    #[test]
    fn every_state_answers_every_command_as_the_table_says() {
        assert_eq!(TABLE.map(|(command, _)| command), COMMANDS);
        for (command, row) in TABLE {
            assert_eq!(row.len(), STATES.len());
            for (state, letter) in STATES.into_iter().zip(row.chars()) {
                let expected = named(letter).ok_or(Misuse::WrongState { command, state });
                assert_eq!(state.command(command), expected, "{command:?} in {state:?}");
            }
        }
    }

    #[test]
    fn a_late_report_changes_nothing() {
        for outcome in [Outcome::LinkUp, Outcome::LinkFailed, Outcome::LinkDown] {
            assert_eq!(Closed.outcome(outcome), None);
            assert_eq!(Idle.outcome(outcome), None);
            assert_eq!(Listening.outcome(outcome), None);
        }
        assert_eq!(Connected.outcome(Outcome::LinkUp), None);
        assert_eq!(Disconnecting.outcome(Outcome::LinkUp), None);
    }
}
