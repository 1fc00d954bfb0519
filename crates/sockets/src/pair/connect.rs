//! Connecting to an application of this host by a pair.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use weft_os::clock;

use super::is_special;
use super::offer::PairOffer;
use crate::connect::ConnectResult;
use crate::env::Env;
use crate::guard::sleeping;
use crate::names::SocketEnds;
use crate::report::Carrier;
use crate::socket_diag::SocketDiag;
use crate::{address, late_writes, sys};

/// Why a connection that was to have a pair goes by TCP.
const NOT_HERE: &str = "its peer does not accept here, or not yet";

/// Connects the application's TCP socket `fd` to `remote`, if a process of this host takes offers
/// there; none if nothing has happened.
pub fn connect(env: &Env, fd: RawFd, remote: SocketAddr) -> Option<ConnectResult> {
    if env.pair_lives.is_short_lived(address::meant(remote), clock::now()) {
        return None;
    }
    let call = PairCall::begin(fd, address::meant(remote))?;
    Some(call.finish(env, sleeping(|| sys::connect(fd, &remote))))
}

/// A connect for which a pair was offered.
struct PairCall {
    fd: RawFd,
    remote: SocketAddr,
    diag: SocketDiag,
    offer: PairOffer,
}

impl PairCall {
    fn begin(fd: RawFd, remote: SocketAddr) -> Option<Self> {
        if address::is_of_this_host(remote) != Some(true) || is_special(fd) {
            return None;
        }
        let diag = SocketDiag::open().ok()?;
        let listener = diag.listener(remote)?;
        let offer = PairOffer::make(&listener, fd).ok()?;
        Some(Self { fd, remote, diag, offer })
    }

    /// Decides, once TCP is `connected`, has failed, or is still connecting.
    fn finish(self, env: &Env, connected: io::Result<()>) -> ConnectResult {
        let Self { fd, remote, diag, offer } = self;
        let ends = ends_of(fd).ok();
        let ends = ends.filter(|ends| diag.is_peer_here(ends.local, ends.remote));
        let is_over = |error: &io::Error| error.raw_os_error() != Some(libc::EINPROGRESS);
        let end = ends.and_then(|ends| offer.commit(&ends).ok());
        let carrier = match end.map(|end| install(env, fd, remote, &end)) {
            Some(Err(error)) => return failed(&error),
            Some(Ok(())) => Carrier::Pair,
            None => Carrier::Tcp(NOT_HERE),
        };
        if !connected.as_ref().is_err_and(is_over) {
            env.reports.connected(remote, carrier);
        }
        connected.map_or_else(|error| failed(&error), |()| ConnectResult::Done)
    }
}

fn failed(error: &io::Error) -> ConnectResult {
    ConnectResult::Error(error.raw_os_error().unwrap_or(libc::ECONNREFUSED))
}

/// Puts the application's end of the pair in the place of its TCP socket.
fn install(env: &Env, fd: RawFd, listener: SocketAddr, end: &OwnedFd) -> io::Result<()> {
    sys::inherit(fd, end, sys::flags(fd)?);
    env.options.inherit(fd, end.as_raw_fd());
    env.watches.carry(fd, || sys::install(end, fd, sys::closes_on_exec(fd)))?;
    late_writes::begin(fd);
    env.pair_lives.begin(fd, listener, clock::now());
    Ok(())
}

fn ends_of(fd: RawFd) -> io::Result<SocketEnds> {
    Ok(SocketEnds { local: sys::local(fd)?, remote: sys::remote(fd)? })
}
