//! Moves bytes between the two ends of a connection.
//!
//! Invariant: what was taken from one end is at the other, or in one bounded buffer between them,
//! before more is taken.

use std::io::ErrorKind;

use weft_reactor::Interest;
use weft_sdp::{SdpConnection, SdpStyle};

use super::inner::ConnInner;
use super::state::{AppHalf, ConnPhase};
use crate::app_socket::{AppRead, AppSocket};
use crate::env::SCRATCH_BYTES;
use crate::stream::SdpStream;
use crate::sys;

/// Size of the buffer in bytes where memory is short.
const SCRATCH_BYTES_LEAST: usize = 4 << 10;
/// Passes over a connection before the reactor serves the others.
const PASSES_MAX: usize = 8;

impl ConnInner {
    /// Moves all bytes that can be moved; whether there may be more.
    pub fn pump(&mut self) -> bool {
        let env = self.env();
        let mut scratch = env.scratch.take(SCRATCH_BYTES_LEAST);
        let mut more = true;
        for _ in 0..PASSES_MAX {
            more = self.pass(&mut scratch);
            if !more {
                break;
            }
        }
        env.scratch.put(scratch);
        self.watch();
        more
    }

    /// Whether `count` bytes can be sent on the application's own thread: there is room for all of
    /// them, and nothing waits before them. A stream in flight is not for this: two threads move it
    /// sooner than one.
    pub fn may_send_inline(&mut self, count: usize) -> bool {
        let open = self.phase() == ConnPhase::Sdp && self.app_half == AppHalf::Open;
        let is_streaming = self.stream.as_ref().is_none_or(SdpStream::is_flying);
        open && !is_streaming
            && self.far_room() >= count
            && self.app.as_ref().is_some_and(AppSocket::is_silent)
    }

    /// Sends `bytes`, which [`ConnInner::may_send_inline`] allowed.
    pub fn send_inline(&mut self, bytes: &[u8]) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let Some((connection, verbs)) = stream.parts() else { return false };
        let sent = connection.send(verbs, bytes).is_ok();
        stream.ring();
        self.watch();
        sent
    }

    /// Makes the application's socket writable: the connection is made.
    pub fn clear_jam(&mut self) {
        let env = self.env();
        let mut scratch = env.scratch.take(SCRATCH_BYTES_LEAST);
        if let Some(app) = &mut self.app {
            app.clear_jam(&mut scratch);
        }
        env.scratch.put(scratch);
    }

    fn pass(&mut self, scratch: &mut [u8]) -> bool {
        let settled = self.settle();
        if self.phase().is_undecided() {
            let over = |(connection, _): (&mut SdpConnection, _)| connection.is_over();
            if self.phase().is_unclaimed()
                && self.stream.as_mut().and_then(SdpStream::parts).is_some_and(over)
            {
                self.limit_unclaimed();
            }
            return settled;
        }
        if self.phase() == ConnPhase::Tcp {
            // First: the room that this makes may be for the last bytes of the application.
            self.flush_relay();
        }
        let pulled = self.pull(scratch);
        let pushed = self.push(scratch);
        if let Some(stream) = &self.stream {
            stream.ring();
        }
        settled || pulled || pushed
    }

    /// From the application to the far end; whether anything has moved.
    fn pull(&mut self, scratch: &mut [u8]) -> bool {
        let room = self.far_room().min(scratch.len());
        let has_ended = self.app_half > AppHalf::Open;
        let phase = self.phase();
        let Some(app) = &mut self.app else { return false };
        if !self.is_app_ready || room == 0 && !has_ended {
            return false;
        }
        if has_ended {
            self.is_app_ready = false;
            return app.is_left() && self.close_far();
        }
        let stream = self.stream.as_ref().filter(|_| phase == ConnPhase::Sdp);
        let shared = stream.and_then(SdpStream::vacant);
        let shared = shared.filter(|parts| parts.bytes() > 0);
        let is_shared = shared.is_some();
        let (read, room) = match shared {
            Some(mut parts) => (app.read(|fd| parts.receive(fd)), parts.bytes()),
            None => (app.read(|fd| sys::receive(fd, &mut scratch[..room], 0)), room),
        };
        match read {
            AppRead::Nothing => {
                self.is_app_ready = false;
                false
            }
            AppRead::Bytes(count) => {
                // Less than there is room for is all; the kernel reports more.
                self.is_app_ready = count == room || !app.fd.is_watched();
                match &mut self.stream {
                    Some(stream) if is_shared => stream.commit(count),
                    _ => self.send_far(&scratch[..count]),
                }
                true
            }
            AppRead::Urgent(byte) => {
                self.send_far_urgent(byte);
                true
            }
            AppRead::End if app.is_left() => self.close_far(),
            AppRead::End => {
                self.end_app_half();
                self.shut_far();
                true
            }
            AppRead::Reset => {
                self.abort_far();
                self.handle_app_closed();
                true
            }
        }
    }

    /// Bytes that the far end takes.
    fn far_room(&mut self) -> usize {
        match self.phase() {
            ConnPhase::Sdp => {
                let parts = self.stream.as_mut().and_then(SdpStream::parts);
                parts.map_or(0, |(connection, _)| connection.writable() as usize)
            }
            ConnPhase::Tcp if self.relay.is_flushed() => SCRATCH_BYTES,
            _ => 0,
        }
    }

    fn send_far(&mut self, bytes: &[u8]) {
        if self.phase() == ConnPhase::Tcp {
            self.relay.send(self.shadow.as_ref(), bytes);
        } else if let Some((connection, verbs)) = self.stream.as_mut().and_then(SdpStream::parts) {
            // There is room for all of it; a connection that has failed reports it in its state.
            let _ = connection.send(verbs, bytes);
        }
    }

    fn send_far_urgent(&mut self, byte: u8) {
        if self.phase() == ConnPhase::Tcp {
            if let Some(tcp) = &self.shadow {
                // TCP may lose urgent data as well when much of it is sent.
                let _ = sys::send(tcp.raw(), &[byte], libc::MSG_OOB);
            }
        } else if let Some((connection, verbs)) = self.stream.as_mut().and_then(SdpStream::parts) {
            // As above.
            let _ = connection.send_urgent(verbs, byte);
        }
    }

    fn shut_far(&mut self) {
        if self.phase() == ConnPhase::Tcp {
            self.flush_relay();
        } else if let Some((connection, verbs)) = self.stream.as_mut().and_then(SdpStream::parts) {
            // As above.
            let _ = connection.shutdown(verbs);
        }
    }

    /// The application has closed its socket; what it has written still arrives.
    fn close_far(&mut self) -> bool {
        self.end_app_half();
        if self.is_abortive {
            self.abort_far();
        } else if self.phase() == ConnPhase::Tcp {
            self.flush_relay();
        } else if let Some((connection, verbs)) = self.stream.as_mut().and_then(SdpStream::parts) {
            connection.close(verbs);
        }
        self.handle_app_closed();
        true
    }

    fn abort_far(&mut self) {
        self.end_app_half();
        if let (ConnPhase::Tcp, Some(tcp)) = (self.phase(), &self.shadow) {
            self.relay.reset(tcp);
        } else if let Some((connection, verbs)) = self.stream.as_mut().and_then(SdpStream::parts) {
            connection.abort(verbs);
        }
    }

    /// From the far end to the application; whether anything has moved.
    fn push(&mut self, scratch: &mut [u8]) -> bool {
        let phase = self.phase();
        let Some(app) = &mut self.app else { return false };
        if !app.is_flushed() {
            let moved = app.write_rest();
            if moved || !app.is_flushed() {
                return moved;
            }
        }
        match phase {
            ConnPhase::Tcp => self.push_relay(scratch),
            ConnPhase::Sdp => self.push_stream(scratch),
            _ => false,
        }
    }

    fn push_stream(&mut self, scratch: &mut [u8]) -> bool {
        let Some(app) = &mut self.app else { return false };
        let Some((connection, verbs)) = self.stream.as_mut().and_then(SdpStream::parts) else {
            return false;
        };
        if connection.is_at_mark()
            && let Some(byte) = connection.receive_urgent()
        {
            app.write_urgent(byte);
            return true;
        }
        if connection.is_at_end() {
            let first = !std::mem::replace(&mut self.is_end_told, true);
            if first {
                app.write_end();
            }
            return first;
        }
        if connection.style() == SdpStyle::Enhanced {
            return self.push_shared();
        }
        match connection.receive(verbs, scratch) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                app.write(&scratch[..count]);
                true
            }
        }
    }

    /// The same without a copy, from the receive buffers.
    fn push_shared(&mut self) -> bool {
        let (Some(app), Some(stream)) = (&mut self.app, &mut self.stream) else { return false };
        let Some(parts) = stream.arrived().filter(|parts| parts.bytes() > 0) else { return false };
        let count = app.offer(parts);
        stream.consume(count);
        count > 0 && app.is_flushed()
    }

    fn push_relay(&mut self, scratch: &mut [u8]) -> bool {
        let (Some(app), Some(tcp)) = (&mut self.app, &self.shadow) else { return false };
        if self.is_end_told || self.relay.has_failed() {
            return false;
        }
        // A read stops before an urgent byte, which then stands alone.
        let urgent = sys::is_at_mark(tcp.raw());
        let most = if urgent { 1 } else { scratch.len() };
        match sys::receive(tcp.raw(), &mut scratch[..most], 0) {
            Ok(1) if urgent => {
                app.write_urgent(scratch[0]);
                true
            }
            Ok(0) => {
                self.is_end_told = true;
                app.write_end();
                true
            }
            Ok(count) => {
                app.write(&scratch[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            Err(_) => {
                // The application is told once all that came before is with it.
                self.relay.fail();
                self.end_app_half();
                false
            }
        }
    }

    fn flush_relay(&mut self) {
        self.relay.flush(self.shadow.as_ref(), self.app_half > AppHalf::Open);
    }

    /// Has the reactor watch for the events that the next pass needs.
    fn watch(&mut self) {
        let room = self.far_room() > 0;
        let has_ended = self.app_half > AppHalf::Open;
        let mut flushed = true;
        if let Some(app) = &mut self.app {
            flushed = app.is_flushed();
            let read = room && !has_ended;
            if !read && !has_ended && app.is_left() {
                // The close is known and waits for room; the kernel would report it over and over.
                // So far the socket was only polled for bytes.
                app.fd.ignore();
                self.is_app_ready = true;
            } else {
                app.fd.watch(Interest { read, write: !flushed });
            }
        }
        if let (ConnPhase::Tcp, Some(tcp)) = (self.phase(), &mut self.shadow) {
            let read = flushed && !self.is_end_told;
            tcp.watch(Interest { read, write: !self.relay.is_flushed() });
        }
    }
}
