//! The steps of a connect: the call by TCP, the peer's answer by SDP, and the decision.

use std::io::ErrorKind;
use std::time::Duration;

use libc::c_int;
use weft_os::clock::{self, Moment};
use weft_rdmacm::{CmEvent, EventKind};
use weft_reactor::Interest;

use super::SdpConn;
use super::attempt::{ConnectAttempt, Decision};
use super::inner::ConnInner;
use super::state::ConnChange;
use crate::report::Carrier;
use crate::shadow_tcp::TcpRelay;
use crate::stream::SdpStream;
use crate::{address, late_writes, shadow_tcp, strict, sys};

/// How long after the decision, and how often then, the thread that waits for it is looked for.
const WAITER_INTERVAL: Duration = Duration::from_secs(1);

impl ConnInner {
    /// Begins to connect by TCP.
    ///
    /// # Errors
    /// The errno of a connect that failed at once.
    pub fn call_tcp(&mut self) -> Result<(), c_int> {
        let (Some(attempt), Some(tcp)) = (&mut self.attempt, &mut self.shadow) else {
            return Ok(());
        };
        attempt.call_tcp(clock::now());
        if let Err(error) = sys::connect(tcp.raw(), &attempt.remote)
            && error.kind() != ErrorKind::WouldBlock
            && error.raw_os_error() != Some(libc::EINPROGRESS)
        {
            return Err(error.raw_os_error().unwrap_or(libc::ECONNREFUSED));
        }
        tcp.watch(Interest::WRITE);
        Ok(())
    }

    /// The same for an application that does not wait; whether it has begun. If not, the socket
    /// reports a refused connect.
    fn call_tcp_unwaited(&mut self) -> bool {
        let called = self.call_tcp().is_ok();
        if let (false, Some(attempt), Some(tcp)) = (called, &self.attempt, &self.shadow) {
            strict::refuse(tcp.raw(), attempt.remote);
        }
        called
    }

    /// The peer has agreed to SDP, with this HelloAck.
    pub fn handle_agreed(&mut self, answer: &[u8]) {
        let finished = self.stream.as_mut().map(|stream| stream.finish(answer));
        let Some(attempt) = &mut self.attempt else { return };
        match finished {
            Some(Ok(())) => attempt.agree(),
            _ => attempt.refuse("its HelloAck makes no sense", false),
        }
    }

    /// The peer has refused SDP, or nobody is there who could answer.
    pub fn handle_refused(&mut self, event: &CmEvent) {
        let Some(attempt) = &mut self.attempt else { return };
        let why = match event.kind {
            EventKind::Rejected => "it does not take SDP",
            EventKind::Unreachable => "it does not answer",
            _ => "SDP has failed",
        };
        // Keys that differ were reported where that was found.
        attempt.refuse(why, event.status == -libc::EACCES);
    }

    /// Takes the result of the connect by TCP.
    fn poll_tcp(&mut self) {
        let (Some(attempt), Some(tcp)) = (&mut self.attempt, &mut self.shadow) else { return };
        if !attempt.is_calling_tcp() {
            return;
        }
        if let Some(succeeded) = shadow_tcp::connect_result(tcp) {
            if !succeeded {
                return attempt.fail_tcp();
            }
            attempt.end_tcp(clock::now(), sys::rtt(tcp.raw()));
            tcp.watch(Interest::NONE);
            if attempt.is_for_tcp() {
                let peer = address::meant(attempt.remote).ip();
                self.env().near.note(peer, clock::now());
            }
        }
    }

    /// SDP carries the data from now on.
    pub fn go_by_sdp(&mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        self.change(ConnChange::SdpChosen);
        self.due = None;
        if let Some((connection, verbs)) = self.stream.as_mut().and_then(SdpStream::parts) {
            // The peer waits for this. A connection that has failed reports it in its state.
            let _ = connection.greet(verbs);
        }
        let style = self.stream.as_ref().map_or("over", SdpStream::style);
        let carrier = Carrier::Sdp(attempt.fabric.name, style);
        self.env().reports.connected(attempt.remote, carrier);
        if let Some(tcp) = &mut self.shadow {
            tcp.watch(Interest::READ);
        }
        self.clear_jam();
    }

    /// Puts the application's TCP socket back in its place; whether nothing is left to do here. If
    /// only other processes have the place, this process relays their data by TCP.
    fn go_by_tcp(&mut self) -> bool {
        let Some(app) = &self.app else { return true };
        let (holders, theirs) = (app.holders(), app.other());
        if holders.is_empty() && !app.is_left() {
            self.change(ConnChange::TcpChosen);
            self.attempt = None;
            if let Some(tcp) = &self.shadow {
                TcpRelay::begin(tcp);
            }
            self.clear_jam();
            return false;
        }
        let Some(mut tcp) = self.shadow.take() else { return true };
        tcp.ignore();
        // Options that the application has set meanwhile apply to it too.
        if let Some(first) = holders.first() {
            let _ = sys::flags(*first).and_then(|flags| sys::set_flags(tcp.raw(), flags));
            sys::repeat_options(*first, tcp.raw());
        }
        let watches = &self.env().watches;
        let mut tcp = Some(tcp);
        for (left, fd) in (0..holders.len()).rev().zip(holders) {
            watches.carry(fd, || {
                // The application may have closed it meanwhile, and opened something else there.
                let is_theirs = sys::inode(fd) == Some(theirs);
                if let Some(tcp) = tcp.as_ref().filter(|_| is_theirs) {
                    late_writes::forget(fd);
                    let _left = sys::install(&tcp.raw(), fd, sys::closes_on_exec(fd));
                }
                // Dropped before the socket is watched again: the application's close must be the
                // last one.
                tcp = tcp.take().filter(|_| left > 0);
            });
        }
        true
    }

    /// Sets the time of the next look at a connect, and reports a silent peer.
    fn look_again(&mut self, now: Moment, until: Moment) {
        let Some(attempt) = &mut self.attempt else { return };
        let report_due = attempt.report_due();
        if report_due.is_some_and(|due| due <= now) {
            attempt.set_reported();
            let remote = attempt.remote;
            self.env().reports.silent(remote);
        }
        let report_due = report_due.filter(|due| *due > now);
        self.due = Some(report_due.map_or(until, |due| due.min(until)));
    }
}

impl SdpConn {
    /// Decides between SDP and TCP, if the answers allow it.
    pub(super) fn decide(&self, inner: &mut ConnInner) {
        inner.poll_tcp();
        let Some(attempt) = &mut inner.attempt else { return };
        if attempt.decision().is_some() {
            return self.check_waiter(inner);
        }
        if !attempt.is_waiting() {
            return;
        }
        let now = clock::now();
        if attempt.is_tcp_due(now) {
            if !inner.call_tcp_unwaited()
                && let Some(attempt) = &mut inner.attempt
            {
                attempt.fail_tcp();
            }
            return self.decide(inner);
        }
        match attempt.judge(now) {
            Err(None) => {}
            Err(Some(until)) => inner.look_again(now, until),
            Ok(decision) => self.carry_out(inner, decision),
        }
    }

    /// Ends a connect whose decision no thread takes any more.
    fn check_waiter(&self, inner: &mut ConnInner) {
        let now = clock::now();
        if inner.due.is_none_or(|due| now < due) {
            return;
        }
        let waiter = inner.attempt.as_ref().and_then(ConnectAttempt::waiter);
        match waiter.filter(|waiter| waiter.is_gone()) {
            Some(waiter) => {
                if let Some(tcp) = &inner.shadow {
                    waiter.leave(tcp.raw());
                }
                self.finish(inner);
                inner.attempt = None;
            }
            None => inner.due = Some(now + WAITER_INTERVAL),
        }
    }

    fn carry_out(&self, inner: &mut ConnInner, decision: Decision) {
        let reports = &inner.env().reports;
        let Some(attempt) = &mut inner.attempt else { return };
        attempt.decide(decision);
        inner.due = None;
        match decision {
            Decision::Sdp => {}
            Decision::Tcp(_) if attempt.has_tcp_failed() => inner.drop_stream(),
            Decision::Tcp(why) => {
                reports.connected(attempt.remote, Carrier::Tcp(why));
                inner.drop_stream();
            }
            Decision::Neither(why) => {
                if !attempt.is_reported() {
                    reports.refused(attempt.remote, why);
                }
                if let (None, Some(tcp)) = (attempt.waiter(), &inner.shadow) {
                    strict::refuse(tcp.raw(), attempt.remote);
                }
                inner.drop_stream();
            }
        }
        let Some(attempt) = &mut inner.attempt else { return };
        if let Some(waiter) = attempt.waiter() {
            waiter.raise();
            inner.due = Some(clock::now() + WAITER_INTERVAL);
            if let Some(tcp) = &mut inner.shadow {
                tcp.watch(Interest::NONE);
            }
        } else if decision == Decision::Sdp {
            inner.go_by_sdp();
        } else if inner.go_by_tcp() {
            inner.attempt = None;
            self.finish(inner);
        }
    }
}
