//! The states of an id and the only transitions between them.

use crate::error::CmMisuse;

/// State of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CmState {
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
pub enum CmCommand {
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
pub(crate) enum NetworkOutcome {
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
    /// The device of the id is gone.
    DeviceGone,
}

impl CmState {
    /// The state after a command.
    ///
    /// # Errors
    /// [`CmMisuse::WrongState`] where the command does not fit.
    pub(crate) fn command(self, command: CmCommand) -> Result<CmState, CmMisuse> {
        use CmState::*;
        let next = match (command, self) {
            (CmCommand::Bind, Idle) => AddrBound,
            (CmCommand::Listen, Idle | AddrBound) => Listening,
            (CmCommand::ResolveAddr, Idle | AddrBound) => AddrQuery,
            (CmCommand::ResolveRoute, AddrResolved) => RouteQuery,
            (CmCommand::Connect, RouteResolved) => Connecting,
            (CmCommand::Accept, ConnectRequest) => Accepting,
            (CmCommand::Reject, ConnectRequest) => Closed,
            (CmCommand::Establish, Answered) => Connected,
            (CmCommand::Disconnect, Answered | Connected | Disconnecting) => Disconnecting,
            // Nothing is established yet, or no longer: there is only an attempt to give up.
            (CmCommand::Disconnect, Connecting | ConnectRequest | Accepting | Closed) => Closed,
            (CmCommand::Notify, state) if state.has_peer() => state,
            (command, state) => return Err(CmMisuse::WrongState { command, state }),
        };
        Ok(next)
    }

    /// The state after a report, or nothing where the report comes too late to matter.
    pub(crate) fn outcome(self, outcome: NetworkOutcome) -> Option<CmState> {
        use CmState::*;
        match (outcome, self) {
            (NetworkOutcome::AddrFound, AddrQuery) => Some(AddrResolved),
            (NetworkOutcome::AddrMissing, AddrQuery) => Some(AddrBound),
            (NetworkOutcome::RouteFound, RouteQuery) => Some(RouteResolved),
            (NetworkOutcome::RouteMissing, RouteQuery) => Some(AddrResolved),
            (NetworkOutcome::Answered, Connecting) => Some(Answered),
            (NetworkOutcome::LinkUp, Connecting | Accepting) => Some(Connected),
            (NetworkOutcome::LinkFailed, Connecting | Accepting) => Some(Closed),
            (
                NetworkOutcome::LinkDown,
                Connecting | Accepting | Answered | Connected | Disconnecting,
            ) => Some(Closed),
            // One that has no device yet, or had its end, is not on it.
            (NetworkOutcome::DeviceGone, Idle | Closed) => None,
            (NetworkOutcome::DeviceGone, _) => Some(Closed),
            _ => None,
        }
    }

    /// Whether there is, or was, a peer at the other end.
    pub fn has_peer(self) -> bool {
        use CmState::*;
        let before = matches!(
            self,
            Idle | AddrBound | AddrQuery | AddrResolved | RouteQuery | RouteResolved | Listening
        );
        !before
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::CmState::*;
    use super::*;

    pub(crate) const STATES: [CmState; 14] = [
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

    pub(crate) const COMMANDS: [CmCommand; 10] = [
        CmCommand::Bind,
        CmCommand::Listen,
        CmCommand::ResolveAddr,
        CmCommand::ResolveRoute,
        CmCommand::Connect,
        CmCommand::Accept,
        CmCommand::Reject,
        CmCommand::Disconnect,
        CmCommand::Establish,
        CmCommand::Notify,
    ];

    /// One row per command, one letter per state in the order of `STATES`: the state it leads to,
    /// or `.` where the command is refused.
    const TABLE: [(CmCommand, &str); 10] = [
        (CmCommand::Bind, "b............."),
        (CmCommand::Listen, "ll............"),
        (CmCommand::ResolveAddr, "qq............"),
        (CmCommand::ResolveRoute, "...u.........."),
        (CmCommand::Connect, ".....c........"),
        (CmCommand::Accept, "........a....."),
        (CmCommand::Reject, "........x....."),
        (CmCommand::Disconnect, ".......xxxdddx"),
        (CmCommand::Establish, "..........e..."),
        (CmCommand::Notify, ".......crawedx"),
    ];

    fn named(letter: char) -> Option<CmState> {
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
                let expected = named(letter).ok_or(CmMisuse::WrongState { command, state });
                assert_eq!(state.command(command), expected, "{command:?} in {state:?}");
            }
        }
    }

    #[test]
    fn a_late_report_changes_nothing() {
        for outcome in
            [NetworkOutcome::LinkUp, NetworkOutcome::LinkFailed, NetworkOutcome::LinkDown]
        {
            assert_eq!(Closed.outcome(outcome), None);
            assert_eq!(Idle.outcome(outcome), None);
            assert_eq!(Listening.outcome(outcome), None);
        }
        assert_eq!(Connected.outcome(NetworkOutcome::LinkUp), None);
        assert_eq!(Disconnecting.outcome(NetworkOutcome::LinkUp), None);
    }
}
