//! Finding the way to a peer: the route and source address, and by probing the device that leads
//! there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_host::{CmTransport, DeviceKind};
use weft_net::secrecy::{Chosen, PeerTransport};
use weft_net::socket::{self, NoRoute};
use weft_reactor::Pollable;
use weft_rnic::cm::{CmCommand, Failure};

use crate::device::{IWARP, PortSpace, failure, roce, wildcard};
use crate::error::CmError;
use crate::id::{CmId, IdInner, IdStage};
use crate::probe::{PeerProbe, ProbeVerdict};

impl CmId {
    /// Finds the way to `dst` and the device that leads there, and with it a source address unless
    /// the id has one; `src` is used if the id is not bound. The outcome is an event, not much
    /// later than in `limit`.
    ///
    /// # Errors
    /// The wrong state, two address families, or a source address that cannot be bound.
    pub fn resolve_addr(
        &self,
        src: Option<SocketAddr>,
        dst: SocketAddr,
        limit: Duration,
    ) -> Result<(), CmError> {
        let mut inner = self.lock();
        inner.machine.may(CmCommand::ResolveAddr)?;
        let src = inner.local.or(src).unwrap_or_else(|| wildcard(&dst));
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(CmError::Family);
        }
        let found = match socket::route(src, dst) {
            Ok((mut from, to)) => {
                from.set_port(src.port());
                match inner.keep_to(from.ip()) {
                    Ok(()) => {
                        inner.settle_source(self.space(), from)?;
                        inner.peer = Some(to);
                        Ok(to)
                    }
                    Err(none) => Err(Failure::from_errno(none.errno())),
                }
            }
            Err(NoRoute::Source(e)) => return Err(e.into()),
            Err(NoRoute::Destination(e)) => Err(failure(&e)),
        };
        inner.machine.resolve_addr()?;
        let outcome = match (found, inner.only_device(self.space())) {
            (Ok(to), None) if inner.must_probe(to) => {
                self.probe(&mut inner, to, limit);
                return Ok(());
            }
            (Ok(_), only) => {
                inner.settle_device(only.unwrap_or(DeviceKind::Roce), self.space());
                Ok(())
            }
            (Err(failure), _) => Err(failure),
        };
        inner.machine.handle_addr(outcome);
        self.publish(&mut inner);
        Ok(())
    }

    /// Finds the route, which IP has already done. The outcome is an event.
    ///
    /// # Errors
    /// The wrong state.
    pub fn resolve_route(&self) -> Result<(), CmError> {
        let mut inner = self.lock();
        inner.machine.resolve_route()?;
        inner.machine.handle_route(Ok(()));
        self.publish(&mut inner);
        Ok(())
    }

    /// Begins to find out by which transport the peer is reached; the outcome is an event.
    pub(crate) fn probe(&self, inner: &mut IdInner, peer: SocketAddr, limit: Duration) {
        let IdStage::Bound(sockets) = inner.leave_stage() else { return };
        let Some(source) = self.me().upgrade() else { return };
        let transport = inner.transport_towards(peer);
        match PeerProbe::start(inner.channel.host(), sockets, peer, transport, limit, source) {
            Ok(mut probe) => {
                log::debug!("finding out by which transport {peer} is reached");
                let pause = probe.pause();
                inner.stage = IdStage::Probing(Box::new(probe));
                self.limit_time(inner, pause);
            }
            Err(e) => {
                inner.machine.handle_addr(Err(failure(&e)));
                self.publish(inner);
            }
        }
    }

    /// Something may have happened.
    pub(crate) fn probed(&self, inner: &mut IdInner) {
        let Some(source) = self.me().upgrade() else { return };
        let source: Arc<dyn Pollable> = source;
        let IdStage::Probing(probe) = &mut inner.stage else { return };
        match probe.look(&source) {
            Some(verdict) => self.settle(inner, verdict),
            None => {
                let pause = probe.pause();
                self.limit_time(inner, pause);
            }
        }
    }

    /// Nothing has happened for a while.
    pub(crate) fn probe_again(&self, inner: &mut IdInner) {
        let Some(source) = self.me().upgrade() else { return };
        let source: Arc<dyn Pollable> = source;
        let IdStage::Probing(probe) = &mut inner.stage else { return };
        if let Some(verdict) = probe.look(&source) {
            return self.settle(inner, verdict);
        }
        probe.again();
        let pause = probe.pause();
        self.limit_time(inner, pause);
    }

    fn settle(&self, inner: &mut IdInner, verdict: ProbeVerdict) {
        let IdStage::Probing(mut probe) = inner.leave_stage() else { return };
        // Over Shuttle alone the connection that comes next does it.
        let waited = probe.transport == CmTransport::Auto && !probe.refused;
        if waited && verdict == ProbeVerdict::Nobody {
            probe.silence.mention();
        }
        log::debug!("{} is reached by: {verdict:?}", probe.peer);
        let (mut sockets, introduction) = probe.into_parts();
        inner.introduction = Some(introduction);
        let device = match verdict {
            ProbeVerdict::Failed(failure) => Err(failure),
            ProbeVerdict::Device(device) => Ok(device),
            // Whose peer is likely to be found at last.
            ProbeVerdict::Nobody => Ok(DeviceKind::Roce),
        };
        let outcome = device.map(|device| {
            match device {
                DeviceKind::Iwarp => sockets.datagram = None,
                DeviceKind::Roce => sockets.give_stream_up(),
            }
            inner.settle_device(device, self.space());
        });
        inner.stage = IdStage::Bound(sockets);
        // The application may have asked for it meanwhile, and was told that it is so.
        let _as_it_can = inner.apply_tos();
        inner.machine.handle_addr(outcome);
        self.publish(inner);
    }
}

impl IdInner {
    /// The device to the peer, where there is no other.
    fn only_device(&self, space: PortSpace) -> Option<DeviceKind> {
        let served = matches!(&self.stage, IdStage::Bound(sockets) if sockets.datagram.is_some());
        match self.transport {
            _ if space == PortSpace::Udp => Some(DeviceKind::Roce),
            CmTransport::Iwarp => Some(DeviceKind::Iwarp),
            _ if !served => Some(DeviceKind::Iwarp),
            CmTransport::Shuttle if self.is_prompt() => Some(DeviceKind::Roce),
            CmTransport::Auto | CmTransport::Shuttle => None,
        }
    }

    /// The way to the peer, or from it, is by this device.
    pub(crate) fn settle_device(&mut self, device: DeviceKind, space: PortSpace) {
        self.device = Some(device);
        self.machine.settle(match device {
            DeviceKind::Iwarp => IWARP,
            DeviceKind::Roce => roce(space),
        });
    }

    /// Binds to `from` unless bound already; a wildcard's place is taken by the route's address.
    fn settle_source(&mut self, space: PortSpace, from: SocketAddr) -> Result<(), CmError> {
        match &mut self.local {
            Some(local) => {
                if local.ip().is_unspecified() {
                    local.set_ip(from.ip());
                }
                Ok(())
            }
            None => self.take_address(space, from),
        }
    }

    /// Whether a Probe goes to the peer before the path to it is known: to find out by which
    /// transport it is reached, or on this host whether anybody is there yet. To another host that
    /// is reached by Shuttle alone the Request does the same, without waiting for an answer first:
    /// on paths longer than that wait the Retry comes so much sooner. Where it may not leave, that
    /// nobody is there is still to be said first.
    fn must_probe(&self, peer: SocketAddr) -> bool {
        let elsewhere = self.local.is_some_and(|local| {
            let secrecy = self.channel.host().secrecy();
            let permitted = secrecy.decide(PeerTransport::Shuttle, local.ip(), peer.ip()).is_ok();
            permitted && local.ip() != peer.ip()
        });
        let one_way = self.transport_towards(peer) == CmTransport::Shuttle && elsewhere;
        peer.port() != 0 && !peer.ip().is_multicast() && !one_way
    }

    /// The transports by which `peer` may be reached.
    fn transport_towards(&self, peer: SocketAddr) -> CmTransport {
        let Some(local) = self.local else { return self.transport };
        let stream = PeerTransport::Iwarp(Chosen::ByDefault);
        match self.channel.host().secrecy().decide(stream, local.ip(), peer.ip()) {
            Ok(()) => self.transport,
            Err(_) => CmTransport::Shuttle,
        }
    }
}
