//! Streams of a connection: opened for sending, woken, and held up while their receiver is not
//! ready.

use weft_wire::shuttle::StreamId;

use super::{Order, Ports, ShuttleConnection};
use crate::ack::AckPace;
use crate::error::ShuttleMisuse;
use crate::stream::{Credit, Profile, StreamState};

impl ShuttleConnection {
    /// Opens `stream` for sending with `weight` relative to the other streams.
    ///
    /// # Errors
    /// If the connection is not open, or the peer allows fewer streams.
    pub fn open_stream(&mut self, stream: StreamId, weight: u32) -> Result<(), ShuttleMisuse> {
        self.shape_stream(stream, Profile { weight, ..Profile::default() })
    }

    /// Opens `stream` for sending, if it is not open, and applies `profile`.
    ///
    /// # Errors
    /// If the connection is not open, the peer allows fewer streams, or the stream has sent and
    /// would change from the paths' controllers to its own or back.
    pub fn shape_stream(
        &mut self,
        stream: StreamId,
        profile: Profile,
    ) -> Result<(), ShuttleMisuse> {
        let session = self.session.as_ref().ok_or(ShuttleMisuse::NotOpen)?;
        let allowed = session.peer_limits.streams.min(self.config.streams);
        if u16::from(stream.0) >= allowed {
            return Err(ShuttleMisuse::Stream(stream.0));
        }
        let order = session.order;
        self.stream(stream, order);
        self.streams.shape(stream, profile)
    }

    /// Whether work waits for the peer. While a path is down nothing of it leaves, and the path is
    /// probed more often (S-55).
    pub fn set_awaited(&mut self, awaited: bool) {
        self.paths.iter_mut().for_each(|path| path.recovery.set_awaited(awaited));
    }

    /// Notes that work was posted on `stream`. An idle stream is not polled until this is called or
    /// something arrives for it; the only stream of a connection always is.
    pub fn wake(&mut self, stream: StreamId) {
        self.streams.wake(stream);
    }

    /// Reports receiver-not-ready of `stream` to the peer, now and whenever it asks, until `credit`
    /// is `None`.
    ///
    /// # Errors
    /// If the connection is not open.
    pub fn set_credit(
        &mut self,
        now_ns: u64,
        id: StreamId,
        credit: Option<Credit>,
    ) -> Result<(), ShuttleMisuse> {
        let order = self.session.as_ref().ok_or(ShuttleMisuse::NotOpen)?.order;
        let before = std::mem::replace(&mut self.stream(id, order).credit, credit);
        if credit.is_some() && credit != before {
            self.tell(now_ns, id);
        }
        Ok(())
    }

    /// Offers the held segments of `stream` to its sink again, after receives were posted.
    ///
    /// # Errors
    /// The fault of the first segment that must not be placed.
    pub fn retry<P: Ports>(
        &mut self,
        now_ns: u64,
        id: StreamId,
        ports: &mut P,
    ) -> Result<(), P::Fault> {
        let (Some(stream), Some(mut sink)) = (self.streams.get_mut(id), ports.sink(id)) else {
            return Ok(());
        };
        let before = stream.recv.frontier();
        stream.recv.retry(&mut sink)?;
        if stream.recv.frontier() > before {
            drop(sink);
            self.streams.wake(id);
            self.tell(now_ns, id);
        }
        Ok(())
    }

    pub(super) fn stream(&mut self, id: StreamId, order: Order) -> &mut StreamState {
        let (held_octets, Order { placement, repair }) = (self.config.held_octets, order);
        self.streams.open(id, || StreamState::new(placement, repair, held_octets))
    }

    /// Schedules an immediate report on `stream` to the peer.
    pub(super) fn tell(&mut self, now_ns: u64, stream: StreamId) {
        self.untold.insert(stream);
        let lead = self.lead();
        self.paths[lead].arrivals.owe(now_ns, AckPace::Now);
    }
}
