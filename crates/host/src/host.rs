//! A host: one machine as RDMA sees it, with its devices, settings, policy, faults and threads.
//!
//! It is a value, handed as `Arc<Host>` to what needs it: a process may have several, with other
//! keys and settings, which speak to each other like machines.
//!
//! A host outlives the forks of its process. What only one process can have, its threads and
//! connections, is in a place of its own per generation: a child uses the next place and closes the
//! descriptors of its parent ([`Host::forget`]). The threads of the parent are parked where they
//! hold no lock while the process forks (`weft_reactor::fork_gate`).
//!
//! Invariant: nothing here names a connection or a queue pair; those name their host.
//!
//! Order of calls: [`Host::new`] or [`Host::from_environment`], then [`Host::start`] by whoever
//! makes the first object that needs its threads.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::Duration;

use weft_capture::{CaptureSpec, CaptureTap, CapturedQp, EventTrace, PacketCapture};
use weft_fault::{FaultPlan, Verb};
use weft_net::secrecy::Secrecy;
use weft_net::udp::UdpPort;
use weft_observe::place;
use weft_os::{forks, random};
use weft_reactor::{Reactor, ReactorSetup};
use weft_rnic::RdmaDevice;
use weft_rnic::shuttle::Route;
use weft_sync::{Mutex, MutexGuard};
use weft_verbs::{Misuse, Qp, QpType};

use crate::config::{LaneUse, STALL_TIMEOUT_MS_MAX, Settings};
use crate::connections::Connections;
use crate::device_kind::DeviceId;
use crate::devices::Devices;
use crate::diagnostics::OpenAtExit;
use crate::events::Events;
use crate::faults::{DeviceState, DeviceUser, Faults};
use crate::iwarp_ports::IwarpPorts;
use crate::known_paths::KnownPaths;
use crate::multipath::Multipath;
use crate::publish::{PastWork, Publisher};
use crate::tally::Tally;
use crate::tcp_ports::{TcpPortHolder, TcpPorts};
use crate::time_wait::TimeWaits;

/// Processes in a line of forks that have threads of their own; deeper lines share the last's.
const GENERATIONS: usize = 64;

/// Made when it is first needed: what makes no sense in an environment is told then.
type Late<T> = LazyLock<T, Box<dyn FnOnce() -> T + Send>>;

/// Names a directory where a host is seen, when that is first to be seen.
pub type ObservedPlace = Box<dyn Fn() -> PathBuf + Send + Sync>;

/// What a host is made of.
pub struct HostSetup {
    /// What applications could set by the environment.
    pub settings: Settings,
    /// The names of the devices, and which are visible.
    pub devices: Devices,
    /// Whom it speaks to, and under which key.
    pub secrecy: Box<dyn FnOnce() -> Secrecy + Send>,
    /// What is to go wrong.
    pub faults: Option<FaultPlan>,
    /// Where it remembers paths, if it does.
    pub known_paths: Option<KnownPaths>,
    /// Where further paths of a connection begin, if there may be any.
    pub multipath: Option<Multipath>,
    /// Called by each of its threads before anything else.
    pub at_thread_start: Option<fn()>,
    /// The directory where it is seen from outside, if it is: see [`weft_observe`].
    pub observed_in: Option<ObservedPlace>,
    /// Where packets are captured, if they are.
    pub capture: Option<CaptureSpec>,
    /// Where events are written, if they are; `%p` is the process id.
    pub trace: Option<PathBuf>,
}

impl Default for HostSetup {
    /// Clear text on this machine alone, and nothing that deviates from the documented defaults.
    fn default() -> Self {
        Self {
            settings: Settings::read(|_| None),
            devices: Devices::read(|_| None),
            secrecy: Box::new(|| Secrecy::new(None, false)),
            faults: None,
            known_paths: None,
            multipath: None,
            at_thread_start: None,
            observed_in: None,
            capture: None,
            trace: None,
        }
    }
}

impl HostSetup {
    /// As the environment of the process says. Keys are read when they are needed.
    pub fn from_environment() -> Self {
        // What is no text has no meaning either, and is to be told of as that.
        let variable = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
        let devices = Devices::read(variable);
        let settings = Settings::read(variable);
        let transport = devices.transport(settings.transport);
        Self {
            settings: Settings { transport, ..settings },
            devices,
            secrecy: Box::new(Secrecy::from_environment),
            faults: Faults::plan_from_environment(),
            // Connections of applications begin with what they find, unless this is asked for.
            known_paths: match variable("WEFT_PATHS").as_deref() {
                Some("on") => KnownPaths::of_user(),
                _ => None,
            },
            multipath: multipath_from_environment(),
            at_thread_start: None,
            observed_in: observed_in(),
            capture: capture_from_environment(),
            trace: variable("WEFT_TRACE").filter(|path| !path.is_empty()).map(PathBuf::from),
        }
    }
}

/// What each process in a line of forks has of its own.
pub(crate) struct Local {
    pub reactor: Reactor,
    pub connections: Connections,
    pub time_waits: TimeWaits,
    pub iwarp_ports: IwarpPorts,
    pub tcp_ports: TcpPorts,
    pub open_at_exit: OpenAtExit,
    pub past_work: PastWork,
    /// Set by its exit, which ends connections of which nobody is to hear.
    pub exits: AtomicBool,
    /// Its devices. Threads of a parent may hold locks of that one's for ever.
    pub adapters: [OnceLock<Arc<RdmaDevice>>; DeviceId::SLOTS],
    /// None if it is not to be seen, or cannot be.
    pub publisher: OnceLock<Option<Publisher>>,
}

fn tell_of_loss() {
    log::error!(
        "this program has closed descriptors that Weft had opened: its connections have ended, and \
         it can make no others"
    );
}

/// What names the directory where hosts of this process are seen, unless `WEFT_OBSERVE` says that
/// they are not: that of the user whom the process has when it is first to be seen. It may have
/// given up root by then.
fn observed_in() -> Option<ObservedPlace> {
    let off = std::env::var_os("WEFT_OBSERVE").is_some_and(|value| value == "off");
    (!off).then(|| Box::new(|| place::directory(|name| std::env::var_os(name))) as ObservedPlace)
}

/// Where further paths begin, as `WEFT_MULTIPATH` says.
fn multipath_from_environment() -> Option<Multipath> {
    let value = std::env::var_os("WEFT_MULTIPATH")?;
    let multipath = Multipath::parse(&value.to_string_lossy()).unwrap_or_else(|error| {
        log::warn!("WEFT_MULTIPATH is ignored: {error}");
        None
    });
    for place in multipath.iter().flat_map(Multipath::missing) {
        log::warn!("WEFT_MULTIPATH: this host has neither an address nor an interface {place}");
    }
    multipath
}

/// What `WEFT_PCAP` wants to be captured.
fn capture_from_environment() -> Option<CaptureSpec> {
    let value = std::env::var_os("WEFT_PCAP").filter(|value| !value.is_empty())?;
    let Some(text) = value.to_str() else {
        log::warn!("WEFT_PCAP is ignored: it is not UTF-8");
        return None;
    };
    CaptureSpec::parse(text).inspect_err(|error| log::warn!("WEFT_PCAP is ignored: {error}")).ok()
}

/// One machine as RDMA sees it.
pub struct Host {
    settings: Settings,
    devices: Devices,
    secrecy: Late<Secrecy>,
    faults: Option<Arc<Faults>>,
    gid_rows: OnceLock<fn(DeviceId) -> usize>,
    known_paths: Option<KnownPaths>,
    multipath: Option<Multipath>,
    tally: LazyLock<Option<Tally>>,
    at_thread_start: Option<fn()>,
    observed_in: Option<ObservedPlace>,
    capture: Option<Arc<PacketCapture>>,
    events: Events,
    /// The process that made the present [`Local`].
    owner: AtomicU32,
    generation: AtomicUsize,
    /// Generations up to this one, exclusive, have begun to make their [`Local`].
    begun_before: AtomicUsize,
    locals: [OnceLock<Box<Local>>; GENERATIONS],
    /// What files stand for: domains of extended reliable connections.
    named: Mutex<Named>,
    queue_pairs: AtomicU32,
    completion_queues: AtomicU32,
}

/// Objects by the slot of their device, and the device and inode of the file that stands for them.
pub(crate) type Named = HashMap<(usize, u64, u64), Weak<dyn Any + Send + Sync>>;

impl Host {
    /// A host as `setup` says. It has no threads yet.
    pub fn new(setup: HostSetup) -> Arc<Self> {
        let HostSetup {
            settings,
            devices,
            secrecy,
            faults,
            known_paths,
            multipath,
            at_thread_start,
            observed_in,
            capture,
            trace,
        } = setup;
        let [least, most] = [1, STALL_TIMEOUT_MS_MAX].map(Duration::from_millis);
        let stall_after = settings.stall_after.clamp(least, most);
        Arc::new(Self {
            settings: Settings { stall_after, ..settings },
            faults: faults.map(|plan| Arc::new(Faults::new(plan, &devices))),
            devices,
            secrecy: LazyLock::new(secrecy),
            gid_rows: OnceLock::new(),
            known_paths,
            multipath,
            tally: LazyLock::new(Tally::from_environment),
            at_thread_start,
            observed_in,
            capture: capture.map(PacketCapture::new),
            events: Events::new(trace.map(EventTrace::new)),
            owner: AtomicU32::new(0),
            generation: AtomicUsize::new(0),
            begun_before: AtomicUsize::new(0),
            locals: [const { OnceLock::new() }; GENERATIONS],
            named: Mutex::default(),
            queue_pairs: AtomicU32::new(1),
            completion_queues: AtomicU32::new(1),
        })
    }

    /// A host as the environment of the process says.
    pub fn from_environment() -> Arc<Self> {
        Self::new(HostSetup::from_environment())
    }

    /// Starts its threads, if they do not run.
    ///
    /// # Errors
    /// The errno of the system that has no descriptor, thread or random numbers left for them.
    pub fn start(&self) -> io::Result<()> {
        if self.generation() >= GENERATIONS {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        self.reactor().start().inspect_err(|error| {
            weft_net::tell_if_out_of_descriptors(error);
            weft_net::tell_of_thread(error);
        })
    }

    /// Has it seen from outside, if it is to be and its threads run.
    pub(crate) fn publish(self: &Arc<Self>) {
        let begin = || Publisher::begin(self, &self.observed_in.as_ref()?()).ok();
        self.local().publisher.get_or_init(begin);
    }

    /// Its threads. Whoever makes an object that needs them calls [`Host::start`] first; without,
    /// what is added is watched only if a thread can start now.
    pub fn reactor(&self) -> &Reactor {
        &self.local().reactor
    }

    pub(crate) fn local(&self) -> &Local {
        let slot = self.slot();
        if let Some(local) = slot.get() {
            return local;
        }
        self.begun_before.fetch_max(self.generation() + 1, Ordering::AcqRel);
        slot.get_or_init(|| {
            self.owner.store(std::process::id(), Ordering::Release);
            let reactor = Reactor::new(ReactorSetup {
                threads: self.settings.threads,
                generation: self.generation(),
                at_thread_start: self.at_thread_start,
                at_loss: Some(tell_of_loss),
            });
            Box::new(Local {
                reactor,
                connections: Connections::default(),
                time_waits: TimeWaits::default(),
                tcp_ports: TcpPorts::default(),
                iwarp_ports: IwarpPorts::default(),
                open_at_exit: OpenAtExit::default(),
                past_work: PastWork::default(),
                exits: AtomicBool::new(false),
                adapters: [const { OnceLock::new() }; DeviceId::SLOTS],
                publisher: OnceLock::new(),
            })
        })
    }

    /// What this process has of its own, if it has begun, for who uses one of its objects: that
    /// cannot be a child of `vfork`, so that no system call has to tell.
    pub(crate) fn begun(&self) -> Option<&Local> {
        self.slot().get().map(|local| &**local)
    }

    /// What this process has of its own, if it has begun. A child of `vfork` sees its parent's,
    /// which is none of its own.
    pub(crate) fn running(&self) -> Option<&Local> {
        let owned = self.owner.load(Ordering::Acquire) == std::process::id();
        self.begun().filter(|_| owned)
    }

    /// Whether the process is in its exit: applications may have no memory left for events, which
    /// an adapter does not give them either then.
    pub fn exits(&self) -> bool {
        self.begun().is_some_and(|local| local.exits.load(Ordering::Acquire))
    }

    fn slot(&self) -> &OnceLock<Box<Local>> {
        &self.locals[self.generation().min(GENERATIONS - 1)]
    }

    /// Counts the processes in a line of forks that had threads.
    pub fn generation(&self) -> usize {
        forks::notice();
        self.generation.load(Ordering::Acquire)
    }

    /// Forgets the threads of the parent, in the child of a fork: they are not here. That goes for
    /// what one of them has begun to make too, for which the child would wait for ever.
    pub fn forget(&self) {
        let begun = self.begun_before.load(Ordering::Acquire) > self.generation();
        if begun || self.slot().get().is_some() {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// What is set.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The names of its devices, and which are visible.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Whom it speaks to, and under which key.
    pub fn secrecy(&self) -> &Secrecy {
        &self.secrecy
    }

    /// Whether its connections may go by shared memory.
    pub fn permits_lanes(&self) -> bool {
        self.settings.lane != LaneUse::Off && !self.is_observed()
    }

    /// Whether those may read memory of the peer's process.
    pub fn permits_loans(&self) -> bool {
        self.settings.lane == LaneUse::On
    }

    /// Whether somebody wants to see what goes by the network or goes wrong on it, or to know that
    /// nobody without the key takes part: nothing may bypass the transports then.
    pub fn is_observed(&self) -> bool {
        self.faults.is_some() || self.capture.is_some() || self.secrecy().has_key()
    }

    /// What is written of its events.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// What sees the packets of a connection of `qp` on this device, if they are
    /// captured. The queue pair is the one with this `number` of the process.
    pub(crate) fn tap(&self, device: DeviceId, qp: &Qp, number: u32) -> Option<CaptureTap> {
        self.capture.as_ref()?.tap(CapturedQp {
            device: self.devices.name(device).into(),
            number: qp.num(),
            ordinal: number,
            is_reliable: qp.kind() != QpType::Uc,
        })
    }

    /// Where it remembers paths, if it does.
    pub(crate) fn known_paths(&self) -> Option<&KnownPaths> {
        self.known_paths.as_ref()
    }

    /// Where further paths of a connection begin, if there may be any.
    pub(crate) fn multipath(&self) -> Option<&Multipath> {
        self.multipath.as_ref()
    }

    /// What a device and its port are like, where faults change them.
    pub fn device_state(&self, id: DeviceId) -> DeviceState {
        self.faults().map_or_else(DeviceState::default, |faults| faults.state(id))
    }

    /// Has `count` say how many rows of the GID table of a device stand for addresses, for the
    /// events about them; without it there is one.
    pub fn count_gids_by(&self, count: fn(DeviceId) -> usize) {
        self.gid_rows.get_or_init(|| count);
    }

    /// How many rows of the GID table of a device stand for addresses.
    pub(crate) fn gid_rows(&self, id: DeviceId) -> usize {
        self.gid_rows.get().map_or(1, |count| count(id))
    }

    /// Has `user` told when a device is reset.
    pub fn watch_devices(&self, user: Weak<dyn DeviceUser>) {
        if let Some(faults) = self.faults() {
            faults.add_user(user);
        }
    }

    /// What is to go wrong.
    pub(crate) fn faults(&self) -> Option<&Arc<Faults>> {
        self.faults.as_ref()
    }

    /// What this process adds its work to, if it belongs to a run that counts.
    pub(crate) fn tally(&self) -> Option<&Tally> {
        self.tally.as_ref()
    }

    /// Answers `datagram`, which came to `port` over `route` and is for no connection that there
    /// is, if it may be a Close that comes again.
    pub fn answer_closed(&self, port: &UdpPort, route: &Route, datagram: &[u8]) {
        self.local().time_waits.answer(port, route, datagram);
    }

    /// Gives up the UDP port `number`, where it is kept only for peers of connections that have
    /// ended, so that it can be bound again.
    pub fn free_port(&self, number: u16) {
        if let Some(local) = self.begun() {
            local.time_waits.release_number(self, number);
        }
    }

    /// `holder` has a TCP port that it gives up if the application wants it.
    pub fn note_tcp_port(&self, holder: Weak<dyn TcpPortHolder>) {
        self.local().tcp_ports.note(holder);
    }

    /// Frees the TCP port of `wanted`, where the application wants a socket; whether this process
    /// held it and could do without.
    pub fn free_tcp_port(&self, wanted: SocketAddr) -> bool {
        self.running().is_some_and(|local| local.tcp_ports.free(wanted))
    }

    /// Fails a call for a device that is to fail.
    ///
    /// # Errors
    /// That of the plan.
    pub fn refuse(&self, verb: Verb, id: DeviceId) -> Result<(), Misuse> {
        self.faults().map_or(Ok(()), |faults| faults.refuse(verb, id))
    }

    /// A device of this host, in this process.
    pub(crate) fn adapter(&self, device: DeviceId) -> &Arc<RdmaDevice> {
        let limits = device.kind.limits();
        self.local().adapters[device.slot()]
            .get_or_init(|| Arc::new(RdmaDevice::new(limits, Box::new(random::random))))
    }

    /// What files stand for.
    pub(crate) fn named(&self) -> MutexGuard<'_, Named> {
        self.named.lock()
    }

    /// Counts its queue pairs, from 1.
    pub(crate) fn number_queue_pair(&self) -> u32 {
        self.queue_pairs.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts its completion queues where faults need that, from 1.
    pub(crate) fn number_completion_queue(&self) -> u32 {
        self.completion_queues.fetch_add(1, Ordering::Relaxed)
    }
}

impl Drop for Host {
    /// What the parent of a forked child had is the parent's: its descriptors are closed here, and
    /// their numbers may be the application's.
    fn drop(&mut self) {
        let own = match self.owner.load(Ordering::Acquire) == std::process::id() {
            true => self.generation().min(GENERATIONS - 1),
            false => GENERATIONS,
        };
        if let Some(local) = self.running()
            && let Some(Some(publisher)) = local.publisher.get()
        {
            publisher.end(self);
        }
        for local in self.locals.iter_mut().take(own) {
            std::mem::forget(local.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_does_not_wait_for_what_a_thread_of_its_parent_has_begun_to_make() {
        let host = Host::new(HostSetup::default());
        host.forget();
        assert_eq!(host.generation(), 0, "the parent had nothing");
        // A thread that the child does not have is at it.
        host.begun_before.store(1, Ordering::Release);
        host.forget();
        assert_eq!(host.generation(), 1);
        host.local();
        host.forget();
        assert_eq!(host.generation(), 2);
    }
}
