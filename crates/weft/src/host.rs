//! The host, and the only place where this crate opens anything of the layers below it.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use weft_host::DeviceKind;
use weft_host::{
    CmTransport, Context, Host, HostHome, HostPlace, HostSetup, KnownPaths, Multipath, Settings,
};
use weft_net::ports::PortBounds;
use weft_net::secrecy::{Key, Secrecy};
use weft_os::clock::Moment;
use weft_rdmacm::{CmId, EventChannel, PortSpace};
use weft_reactor::{Pollable, THREADS_MAX};

use crate::bell::{Bell, Rope};
use crate::{Error, Result};

static HOST: HostPlace = HostPlace::new();

/// Follows the forks and the exit of the process.
struct ProcessHome;

impl HostHome for ProcessHome {
    fn place() -> &'static HostPlace {
        &HOST
    }
}

/// What a [`LocalHost`] of the application's own is made of. Nothing of it comes from the
/// environment. As it begins, it has the documented defaults: [`DeviceKind::Roce`] speaks clear
/// text with this machine alone, and [`DeviceKind::Iwarp`], which is not encrypted by Weft, with
/// anybody whom the application names. Ports are the kernel's choice, but for those that the
/// application names itself, and connections have one path.
#[derive(Default)]
pub struct HostOptions {
    key: Option<Key>,
    clear_text: bool,
    threads: Option<usize>,
    crc: Option<bool>,
    stall_timeout: Option<Duration>,
    remembers_paths: bool,
    trace: Option<PathBuf>,
    lost_twice: bool,
    multipath: Option<Multipath>,
    path_ports: PortBounds,
}

impl HostOptions {
    /// The key that this host and all that it speaks to have, 32 random bytes: what is sent by
    /// [`DeviceKind::Roce`] is encrypted, and who has another key is refused.
    #[must_use]
    pub fn key(self, key: [u8; 32]) -> Self {
        Self { key: Some(Key::new(key)), ..self }
    }

    /// The key as text, as `weft key new` prints it and `WEFT_KEY` takes it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is none.
    pub fn key_text(self, text: &str) -> Result<Self> {
        let key = Key::parse(text).map_err(|why| Error::Invalid {
            during: "reading a key",
            why: why.to_string().into(),
        })?;
        Ok(Self { key: Some(key), ..self })
    }

    /// Lets it speak clear text with other machines, as `WEFT_INSECURE=1` does.
    #[must_use]
    pub fn allow_clear_text(self) -> Self {
        Self { clear_text: true, ..self }
    }

    /// Threads that work for its connections, between 1 and 16; usually one for each processor,
    /// up to 4.
    ///
    /// # Errors
    /// [`Error::Invalid`] for any other number.
    pub fn threads(self, threads: usize) -> Result<Self> {
        if !(1..=THREADS_MAX).contains(&threads) {
            return Err(Error::invalid("choosing threads", "a host has 1 to 16 of them"));
        }
        Ok(Self { threads: Some(threads), ..self })
    }

    /// Whether to ask peers for checksums (CRC32C) where nothing is encrypted; usually so. Peers
    /// that ask get them in any case.
    #[must_use]
    pub fn crc(self, crc: bool) -> Self {
        Self { crc: Some(crc), ..self }
    }

    /// How long a message of a peer may stay incomplete before its connection fails; usually 60 s,
    /// a year at most.
    #[must_use]
    pub fn stall_timeout(self, limit: Duration) -> Self {
        Self { stall_timeout: Some(limit), ..self }
    }

    /// Whether connections by [`DeviceKind::Roce`] begin with what earlier ones of this user learnt
    /// of the path (RFC 9959), and leave what they learn: rates and round trips by address, in
    /// `weft/paths` in `XDG_STATE_HOME` or `~/.local/state`. Usually not.
    #[must_use]
    pub fn remember_paths(self, remembers_paths: bool) -> Self {
        Self { remembers_paths, ..self }
    }

    /// The file for events of connections and requests, as qlog; `weft trace show` draws them. The
    /// names of later hosts' files have the process id. A file that cannot be made is a warning.
    #[must_use]
    pub fn trace(self, path: impl Into<PathBuf>) -> Self {
        Self { trace: Some(path.into()), ..self }
    }

    /// Whether connections by [`DeviceKind::Roce`] send again twice what is lost where nothing else
    /// is to be sent. Across a path that loses, a message then waits for fewer round trips at its
    /// end, and some bytes go in vain. Usually not.
    #[must_use]
    pub fn lost_twice(self, lost_twice: bool) -> Self {
        Self { lost_twice, ..self }
    }

    /// Has connections by [`DeviceKind::Roce`] use several paths where their peer wants it too:
    /// from the first address of each network interface, with `on`, or from a list of addresses and
    /// interfaces with `,` between them, as in `WEFT_MULTIPATH`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if an item of the list can be neither.
    pub fn multipath(self, places: &str) -> Result<Self> {
        let multipath = Multipath::parse(places).map_err(|why| Error::Invalid {
            during: "reading where paths begin",
            why: why.to_string().into(),
        })?;
        Ok(Self { multipath, ..self })
    }

    /// The ports of which a connection with several paths takes one, at each end. `0..=0` is the
    /// kernel's choice, as usually.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range that ends before it begins, or others that begin with 0.
    pub fn path_ports(self, ports: RangeInclusive<u16>) -> Result<Self> {
        let path_ports = PortBounds::new(ports.clone());
        if path_ports == PortBounds::NONE && ports != (0..=0) {
            let why = "a range of ports begins with 1 or more and does not end before it begins";
            return Err(Error::invalid("choosing ports of paths", why));
        }
        Ok(Self { path_ports, ..self })
    }

    fn setup(self) -> HostSetup {
        let Self {
            key,
            clear_text,
            threads,
            crc,
            stall_timeout,
            remembers_paths,
            trace,
            lost_twice,
            multipath,
            path_ports,
        } = self;
        let default = HostSetup::default();
        let settings = Settings {
            threads: threads.unwrap_or(default.settings.threads),
            crc: crc.unwrap_or(default.settings.crc),
            stall_after: stall_timeout.unwrap_or(default.settings.stall_after),
            lost_twice,
            path_ports,
            ..default.settings
        };
        let secrecy = Box::new(move || Secrecy::new(key, clear_text));
        let known_paths = remembers_paths.then(KnownPaths::of_user).flatten();
        HostSetup { settings, secrecy, known_paths, multipath, trace, ..default }
    }
}

impl fmt::Debug for HostOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key stays out of logs.
        out.debug_struct("HostOptions")
            .field("has_key", &self.key.is_some())
            .field("clear_text", &self.clear_text)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// One machine as RDMA sees it: settings, keys, and the threads that work for its devices.
#[derive(Clone)]
pub struct LocalHost {
    inner: Arc<Host>,
}

impl LocalHost {
    /// The host of this process, as its environment says: `WEFT_KEY`, `WEFT_INSECURE`,
    /// `WEFT_THREADS` and the other variables of Weft, which are read once. It follows the forks
    /// of the process, and closes its connections when the process exits.
    pub fn from_environment() -> Self {
        Self { inner: Arc::clone(ProcessHome::host()) }
    }

    /// A host of its own, beside others of the process. Their devices speak to each other as those
    /// of different machines do, if their keys are the same. Its connections end with their
    /// handles, so drop these before the process exits; the child of a fork must not use it.
    pub fn new(options: HostOptions) -> Self {
        Self { inner: Host::new(options.setup()) }
    }

    /// A host of its own to which happens what `plan` says, in the words of `WEFT_FAULT`.
    #[cfg(test)]
    pub(crate) fn with_faults(plan: &str) -> Self {
        let faults = Some(weft_fault::FaultPlan::parse(plan).unwrap());
        Self { inner: Host::new(HostSetup { faults, ..HostOptions::default().setup() }) }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Opens a device, with a bell for its events.
    pub(crate) fn open(&self, kind: DeviceKind, bell: &Arc<Bell>) -> Result<Arc<Context>> {
        let during = "opening a device";
        if let Some(why) = self.inner.secrecy().key_fault() {
            return Err(Error::Invalid { during, why: why.to_owned().into() });
        }
        let wake = weft_host::after_lock(Box::new(Rope(Arc::clone(bell))));
        Context::open(&self.inner, kind, wake).map_err(Error::of(during))
    }

    /// A queue of events of rdma-cm, with a bell for them.
    pub(crate) fn event_channel(
        &self,
        during: &'static str,
        bell: &Arc<Bell>,
    ) -> Result<Arc<EventChannel>> {
        let channel = EventChannel::with_wake(&self.inner, Box::new(Rope(Arc::clone(bell))));
        channel.map_err(|source| Error::System { during, source })
    }

    /// Has the reactor call `source` at `deadline`, if it still exists then.
    pub(crate) fn set_timer(&self, deadline: Moment, source: &Arc<dyn Pollable>) {
        self.inner.reactor().set_timer(deadline, Arc::downgrade(source));
    }
}

impl fmt::Debug for LocalHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LocalHost").finish_non_exhaustive()
    }
}

/// An id of rdma-cm for connections by a device.
pub(crate) fn cm_id(channel: &Arc<EventChannel>, kind: DeviceKind) -> Arc<CmId> {
    let transport = match kind {
        DeviceKind::Iwarp => CmTransport::Iwarp,
        DeviceKind::Roce => CmTransport::Shuttle,
    };
    CmId::new(Arc::clone(channel), PortSpace::Tcp, transport)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn a_key_that_cannot_be_used_is_told_when_a_device_is_opened() {
        let secrecy = Box::new(|| Secrecy::from_value(Some("nonsense".into()), false));
        let host = LocalHost { inner: Host::new(HostSetup { secrecy, ..HostSetup::default() }) };
        for kind in [DeviceKind::Roce, DeviceKind::Iwarp] {
            let error = Device::open(&host, kind).unwrap_err().to_string();
            assert!(error.contains("WEFT_KEY"), "{error}");
        }
    }
}
