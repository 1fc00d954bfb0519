//! Limits and times of the connection manager.

use std::time::Duration;

use weft_host::Settings;
use weft_os::clock::Moment;
use weft_rnic::cm::Depths;
use weft_rnic::mpa::MpaOffer;

use crate::device::IWARP;

/// How long an accepted stream may take to send its whole MPA Request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a peer may take to send its whole MPA Reply, which includes the time that its
/// application takes to accept.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long TCP may take to connect.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a peer may take to answer a Request over Shuttle, which includes the time that its
/// application takes to accept; and how long who asked may take to show that it has the answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long it takes to find out by which transport a peer is reached, where the application sets
/// no limit or a longer one.
pub const PROBE_LIMIT: Duration = Duration::from_secs(3);

/// How long after the first probe another one follows; twice as long after each further one.
pub const PROBE_PAUSE: Duration = Duration::from_millis(50);

/// Silence after which TCP is asked whether the peer is there at all.
pub const PROBE_SILENCE: Duration = Duration::from_millis(50);

/// How long a connected stream is kept for a program that resolved an address and does not connect
/// yet. It is less than any peer waits for a Request.
pub const SILENT_STREAM_MAX: Duration = Duration::from_secs(2);

/// After the end of a connection its queue pair may be used again after this long: InfiniBand's
/// life time of packets on Ethernet, twice.
pub const TIMEWAIT: Duration = Duration::from_secs(2);

/// How long the end of a connection is not told to a program that has yet to see what succeeded
/// before: some turns of a program that shares its processor with others. libfabric's ofi_rxm, told
/// too early, drops messages that have arrived.
pub const SIGHT_MAX: Duration = Duration::from_millis(100);

/// How often it is looked whether the program has seen it.
pub const SIGHT_LOOK: Duration = Duration::from_millis(1);

/// Packets received in one go, so that a flood of them does not starve established connections.
pub const RECEIVE_BATCH: usize = 64;

/// Numbers tried until one is free in the spaces of TCP and UDP.
pub const NUMBER_TRIES: usize = 64;

/// How long a peer that refuses may take to listen.
pub const REFUSED_PATIENCE: Duration = Duration::from_millis(250);

/// How long after the first refusal it is called again; twice as long after each further one.
pub const REDIAL_PAUSE: Duration = Duration::from_millis(5);

/// How long to wait until a peer that refuses is called again: `pause`, but for the last time as
/// soon as it is to be believed.
pub(crate) fn before_redial(pause: Duration, now: Moment, believed: Moment) -> Duration {
    pause.min(believed.saturating_duration_since(now))
}

/// How long a peer that asked for a peer-to-peer connection may take to send its first message
/// after the Reply (RFC 6581, section 9).
pub const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a peer that was rejected may take to close the stream.
pub const FAREWELL: Duration = Duration::from_secs(1);

/// Streams per listener that have not sent their whole Request yet, where this process may have
/// descriptors enough. One more closes the oldest.
pub const HALF_OPEN_MAX: usize = 1024;

/// Part of the descriptors that this process may have for such streams: the others are for the
/// application and for its connections.
const HALF_OPEN_PART: usize = 4;

/// Such streams per listener, at most.
pub(crate) fn half_open_max() -> usize {
    let descriptors = usize::try_from(weft_os::sys::descriptor_limit()).unwrap_or(0);
    HALF_OPEN_MAX.min(descriptors / HALF_OPEN_PART).max(1)
}

/// Requests per listener that wait for the application to read them, where it names no number or
/// a larger one. While there are as many, streams stay in the queue of the kernel.
pub const BACKLOG_MAX: usize = 1024;

/// Streams accepted in one go, so that a flood of them does not starve established connections.
pub const ACCEPT_BATCH: usize = 64;

/// How long a step may still take whose time ran out while the process was stopped.
pub const AFTER_STOP: Duration = Duration::from_secs(1);

/// Silence of a peer over Shuttle after which it is asked for a sign of life; then after twice the
/// time. The host of a process that was killed answers that nobody is there, and the application
/// is told, as the kernel's connection manager tells of a process that ends.
pub const KEEP_ALIVE_FIRST: Duration = Duration::from_secs(1);

/// What to offer a peer: CRCs and markers as the host is set to, and a first message by the
/// initiator so that either side may speak first.
pub(crate) fn offer(settings: &Settings, depths: Depths, private_data: Vec<u8>) -> MpaOffer {
    MpaOffer {
        ird_max: IWARP.depths.ird,
        crc: settings.crc,
        markers: settings.markers,
        private_data,
        ..MpaOffer::new(depths.ird, depths.ord)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_os::clock;

    /// As pauses double, the last one would end long after the refusal is to be believed.
    #[test]
    fn the_last_call_is_not_after_a_refusal_is_believed() {
        let now = clock::now();
        let wait = |pause_ms, left_ms| {
            let believed = now + Duration::from_millis(left_ms);
            before_redial(Duration::from_millis(pause_ms), now, believed).as_millis()
        };
        assert_eq!([wait(5, 250), wait(160, 95), wait(160, 0)], [5, 95, 0]);
    }
}
