//! The state of a connection under its lock, and its reactions to the stream and the TCP
//! connection.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use weft_os::clock::{self, Moment};
use weft_rdmacm::CmId;

use super::attempt::ConnectAttempt;
use super::state::{AppHalf, ConnChange, ConnPhase};
use super::table::ConnTable;
use crate::app_socket::AppSocket;
use crate::env::Env;
use crate::names::SocketEnds;
use crate::report::Carrier;
use crate::shadow_tcp::TcpRelay;
use crate::stream::SdpStream;
use crate::watched_fd::WatchedFd;
use crate::{strict, sys};

/// Grace period for in-flight SDP data after the shadow TCP connection has closed.
const SHADOW_GRACE: Duration = Duration::from_secs(1);
/// Limit for a peer that has all bytes and does not close after the application has closed.
const ORPHAN_LIMIT: Duration = Duration::from_secs(60);
/// Limit for a peer that takes none of the bytes that are left then: about that of Linux' TCP.
const DRAIN_LIMIT: Duration = Duration::from_secs(240);
/// Limit for the application to accept a connection that the peer has closed.
const UNCLAIMED_LIMIT: Duration = Duration::from_secs(60);

/// Why a peer that has asked for SDP is reached by TCP.
const GAVE_UP: &str = "it has given SDP up";

/// The state of a connection under its lock.
pub struct ConnInner {
    pub table: &'static ConnTable,
    /// The addresses of both ends, as the application knows them.
    pub ends: SocketEnds,
    /// Changed by [`ConnInner::change`] only.
    phase: ConnPhase,
    pub app: Option<AppSocket>,
    pub stream: Option<SdpStream>,
    pub cm: Option<Arc<CmId>>,
    pub shadow: Option<WatchedFd>,
    /// Present in [`ConnPhase::Connecting`], once the peer was asked.
    pub attempt: Option<ConnectAttempt>,
    /// The fabric of an accepted connection, until its carrier is reported.
    pub unreported_fabric: Option<&'static str>,
    pub app_half: AppHalf,
    /// The application was told that the peer sends no more.
    pub is_end_told: bool,
    pub relay: TcpRelay,
    /// The application socket may be readable.
    pub is_app_ready: bool,
    /// The reactor has reported an event of the TCP connection.
    pub is_shadow_ready: bool,
    /// `SO_LINGER` of zero: the application's close is a reset.
    pub is_abortive: bool,
    /// When the present phase, or the end of the connection, has taken too long.
    pub due: Option<Moment>,
    /// The time for which the reactor's timer was set last.
    pub timer: Option<Moment>,
}

impl ConnInner {
    /// A connection between `ends` that begins in `phase`.
    pub fn new(table: &'static ConnTable, ends: SocketEnds, phase: ConnPhase) -> Self {
        Self {
            table,
            ends,
            phase,
            app: None,
            stream: None,
            cm: None,
            shadow: None,
            attempt: None,
            unreported_fabric: None,
            app_half: AppHalf::Open,
            is_end_told: false,
            relay: TcpRelay::default(),
            is_app_ready: true,
            is_shadow_ready: false,
            is_abortive: false,
            due: None,
            timer: None,
        }
    }

    pub fn env(&self) -> &'static Env {
        &self.table.env
    }

    pub fn phase(&self) -> ConnPhase {
        self.phase
    }

    /// Takes `change`; whether the phase is another one now.
    pub fn change(&mut self, change: ConnChange) -> bool {
        let next = self.phase.after(change);
        self.phase = next.unwrap_or(self.phase);
        next.is_some()
    }

    pub fn is_over(&self) -> bool {
        self.phase == ConnPhase::Over
    }

    /// The peer of a granted connection knows of it. It may still have chosen TCP, if the answer
    /// came too late; from now on its first message, or its close, says which.
    pub fn handle_reached(&mut self) {
        self.change(ConnChange::PeerReached);
        if self.phase.is_undecided() {
            self.due = None;
        }
    }

    /// Handles the completions of the stream; whether there were any.
    pub fn settle(&mut self) -> bool {
        let drains = self.drains();
        let Some(stream) = &mut self.stream else { return false };
        let any = stream.settle();
        let heard = stream.parts().is_some_and(|(connection, _)| connection.has_heard());
        if any && drains {
            self.limit_orphan();
        }
        if heard && self.change(ConnChange::SdpHeard) {
            self.due = None;
        }
        any
    }

    /// Reports the carrier of a connection that the application has accepted.
    pub fn report_carrier(&mut self) {
        if !self.phase.is_undecided()
            && self.app.is_some()
            && let Some(fabric) = self.unreported_fabric.take()
        {
            let style = self.stream.as_ref().map_or("over", SdpStream::style);
            let is_sdp = self.phase == ConnPhase::Sdp;
            let carrier = if is_sdp { Carrier::Sdp(fabric, style) } else { Carrier::Tcp(GAVE_UP) };
            self.env().reports.accepted(self.ends.remote, carrier);
        }
    }

    /// The stream has lost its peer.
    pub fn handle_lost(&mut self) {
        // Bytes that have arrived before are still delivered.
        self.settle();
        if self.phase.is_undecided() && self.phase != ConnPhase::Heard {
            // The peer has chosen TCP before it knew of the grant.
            self.turn_to_tcp();
        } else if let Some((connection, verbs)) = self.stream.as_mut().and_then(SdpStream::parts) {
            connection.handle_disconnect(verbs);
        }
    }

    /// The peer of a granted connection uses TCP.
    pub fn turn_to_tcp(&mut self) {
        self.drop_stream();
        self.change(ConnChange::TcpChosen);
        self.due = None;
        let SocketEnds { local, remote } = self.ends;
        if strict::refuses_peer(&self.env().settings, local.ip(), remote.ip()) {
            // No byte has moved. Without its TCP connection it is over.
            self.unreported_fabric = None;
            self.relay.fail();
            if let Some(tcp) = self.shadow.take() {
                sys::reset_at_close(tcp.raw());
            }
        } else if let Some(tcp) = self.shadow.as_ref().filter(|_| self.attempt.is_none()) {
            TcpRelay::begin(tcp);
        }
    }

    /// Releases the stream. A connect that the peer has not answered goes on for a while.
    pub fn drop_stream(&mut self) {
        let (Some(cm), stream) = (self.cm.take(), self.stream.take()) else { return };
        let unanswered = self.attempt.as_ref().is_some_and(ConnectAttempt::is_unanswered);
        match stream {
            Some(stream) if unanswered => self.table.abandoned.add(cm.cookie(), cm, stream),
            _ => cm.destroy(),
        }
    }

    /// Handles events of the TCP connection beside the stream, which is silent as long as both ends
    /// use SDP and run.
    pub fn check_shadow(&mut self) {
        let Some(shadow) = self.shadow.as_ref().filter(|shadow| shadow.is_watched()) else {
            return;
        };
        if self.phase == ConnPhase::Tcp || !std::mem::take(&mut self.is_shadow_ready) {
            return;
        }
        let ends = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
        let events = sys::poll_now(shadow.raw(), libc::POLLIN | libc::POLLRDHUP);
        if events == 0 {
            return;
        }
        self.settle();
        if self.phase.is_undecided() {
            // A peer that sends or closes here, and has sent nothing by SDP, has chosen TCP.
            self.turn_to_tcp();
        } else if events & ends != 0 {
            if let Some(shadow) = &mut self.shadow {
                shadow.ignore();
            }
            let in_order = events & (libc::POLLHUP | libc::POLLERR) == 0;
            if !(in_order && self.stream.as_ref().is_some_and(SdpStream::outlasts_peer)) {
                self.due = Some(clock::now() + SHADOW_GRACE);
            }
        } else if let Some((connection, verbs)) = self.stream.as_mut().and_then(SdpStream::parts) {
            // The peer takes this for a TCP connection; an abort corrects that.
            connection.abort(verbs);
        }
    }

    /// Ends what has taken too long.
    pub fn check_limits(&mut self) {
        if self.due.is_none_or(|due| clock::now() < due) {
            return;
        }
        self.due = None;
        if !self.phase.is_undecided() {
            if let Some((connection, verbs)) = self.stream.as_mut().and_then(SdpStream::parts) {
                connection.abort(verbs);
            }
        } else if self.app.is_some() {
            self.turn_to_tcp();
        } else {
            self.drop_stream();
        }
    }

    /// Whether the reactor's timer has to be set for `due`: none is set that comes before. The one
    /// of a limit that was renewed since finds that out when it comes.
    pub fn needs_timer(&self, due: Moment) -> bool {
        self.timer.is_none_or(|timer| due < timer || timer <= clock::now() && timer != due)
    }

    /// Whether the peer's reset, or a fault, has ended the connection.
    pub fn has_failed(&mut self) -> bool {
        if self.relay.has_failed() {
            return true;
        }
        let parts = self.stream.as_mut().and_then(SdpStream::parts);
        parts.is_some_and(|(connection, _)| connection.fault().is_some())
    }

    /// Whether nothing is left to do.
    pub fn is_done(&mut self) -> bool {
        match self.phase {
            ConnPhase::Over => true,
            ConnPhase::Tcp => self.shadow.is_none() || self.is_relay_done(),
            ConnPhase::Sdp => {
                let closed = self.app_half == AppHalf::Closed;
                let told = self.app.as_ref().is_none_or(AppSocket::is_flushed) || closed;
                let Some((connection, _)) = self.stream.as_mut().and_then(SdpStream::parts) else {
                    return true;
                };
                let read = connection.readable() == 0 || closed;
                connection.is_over() && told && read
            }
            _ => self.attempt.is_none() && self.stream.is_none(),
        }
    }

    /// Whether both halves of a connection over TCP have ended, or it has failed.
    pub fn is_relay_done(&self) -> bool {
        let has_failed = self.relay.has_failed();
        let sent = self.relay.is_flushed() && self.app_half > AppHalf::Open;
        let flushed = self.app.as_ref().is_none_or(AppSocket::is_flushed);
        let told = (self.is_end_told || has_failed) && flushed;
        sent && (self.app_half == AppHalf::Closed || told)
    }

    /// The application has closed its socket.
    pub fn handle_app_closed(&mut self) {
        self.app_half = AppHalf::Closed;
        if let Some(app) = self.app.take() {
            self.table.remove_app_socket(app.other());
        }
        self.limit_orphan();
    }

    /// Limits a connection that the application has closed, if the end of the peer's process does
    /// not.
    fn limit_orphan(&mut self) {
        let has_peer = self.shadow.as_ref().is_some_and(WatchedFd::is_watched);
        if has_peer || self.due.is_none() {
            let limit = if self.drains() { DRAIN_LIMIT } else { ORPHAN_LIMIT };
            self.due = Some(clock::now() + limit);
        }
    }

    /// Whether the application has closed its socket and the peer does not have all of its bytes.
    fn drains(&mut self) -> bool {
        self.app_half == AppHalf::Closed
            && self.stream.as_mut().and_then(SdpStream::parts).is_some_and(|(connection, _)| {
                !connection.is_flushed() && connection.fault().is_none()
            })
    }

    /// The application is about to send no more at `fd`; it can still be told of a reset.
    pub fn prepare_app_end(&mut self, fd: RawFd) {
        let may_be_reset = self.app_half == AppHalf::Open && !self.is_end_told;
        if let Some(app) = self.app.as_mut().filter(|_| may_be_reset && self.attempt.is_none()) {
            app.leave_sentinel(fd);
        }
    }

    /// The application sends no more.
    pub fn end_app_half(&mut self) {
        self.app_half = self.app_half.max(AppHalf::ShutDown);
    }

    /// Limits how long a connection that the peer has closed waits to be accepted.
    pub fn limit_unclaimed(&mut self) {
        if self.due.is_none() {
            self.due = Some(clock::now() + UNCLAIMED_LIMIT);
        }
    }
}
