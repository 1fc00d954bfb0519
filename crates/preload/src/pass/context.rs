//! Open devices of other providers.

use std::ffi::{CStr, c_int};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use weft_fault::{FaultKind, PlannedFault, Verb, When};
use weft_host::{DeviceChanges, Faults, Outages, ToldDevice};
use weft_os::clock::{self, Moment};
use weft_sync::Mutex;
use weft_verbs::{AsyncKind, WcStatus};
use weft_verbs_abi::*;

use super::events::PassEvents;
use super::table::ObjectTable;
use super::work;

static CONTEXTS: ObjectTable<PassContext> = ObjectTable::new();

/// Notes an open device.
pub fn add(context: *mut ibv_context, pass: Arc<PassContext>) {
    CONTEXTS.add(context, pass);
}

/// Forgets an open device.
pub fn remove(context: *mut ibv_context) -> Option<Arc<PassContext>> {
    CONTEXTS.remove(context)
}

/// Every open device.
pub fn all() -> Vec<Arc<PassContext>> {
    CONTEXTS.all()
}

/// What is known of an open device.
pub fn find(context: *mut ibv_context) -> Option<Arc<PassContext>> {
    CONTEXTS.find(context)
}

/// What the faults of a device need to see of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassNeeds {
    /// Requests and completions.
    pub work: bool,
    /// Calls that make something, or post.
    pub calls: bool,
    /// Memory regions, and how much is posted.
    pub regions: bool,
    /// Asynchronous events, and what is said of the port.
    pub device: bool,
}

impl PassNeeds {
    /// Of the faults that are for the device of this name.
    pub fn of(faults: &Faults, name: &str) -> Self {
        let mut needs = Self::default();
        for (_, fault) in faults.planned().filter(|(_, fault)| fault.on.admits_device(name)) {
            needs.add(fault);
        }
        needs
    }

    fn add(&mut self, fault: &PlannedFault) {
        let limits = matches!(fault.kind, FaultKind::CqOverflow | FaultKind::CqOverrun);
        let stops = matches!(fault.kind, FaultKind::PortDown(_) | FaultKind::DeviceFatal(_));
        self.work |= work::is_of_work(fault) || limits || stops;
        self.regions |= fault.kind == FaultKind::MrInvalid;
        self.calls |= matches!(fault.kind, FaultKind::Call(_) | FaultKind::AllocFail { .. });
        self.device |= fault.kind.is_of_device() || limits || fails_by_event(fault);
    }
}

/// Whether a queue pair may say by an event that it failed.
fn fails_by_event(fault: &PlannedFault) -> bool {
    match (fault.kind, fault.when) {
        (FaultKind::QpError(_), When::AtNs(_)) => true,
        (FaultKind::QpError(status), _) => status.code == WcStatus::FatalErr as u32,
        _ => false,
    }
}

/// The functions of a context that others stand in for.
#[derive(Clone, Copy)]
pub struct RealTable {
    /// Those of `ibv_context`.
    pub ops: ibv_context_ops,
    /// Whether there is a [`verbs_context`] around it.
    pub extended: bool,
    /// `ibv_create_qp_ex`.
    pub create_qp_ex: Option<CreateQpEx>,
    /// `ibv_create_cq_ex`.
    pub create_cq_ex: Option<CreateCqEx>,
    /// `ibv_create_srq_ex`.
    pub create_srq_ex: Option<CreateSrqEx>,
    /// `ibv_alloc_dm`.
    pub alloc_dm: Option<AllocDm>,
    /// `ibv_query_port`.
    pub query_port: Option<QueryPort>,
}

// SAFETY: functions, and slots that nobody uses: none of it is data.
unsafe impl Send for RealTable {}
// SAFETY: as above.
unsafe impl Sync for RealTable {}

/// The type of `ibv_create_qp_ex`.
pub type CreateQpEx =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;
/// The type of `ibv_create_cq_ex`.
pub type CreateCqEx =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex;
/// The type of `ibv_create_srq_ex`.
pub type CreateSrqEx =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq;
/// The type of `ibv_alloc_dm`.
pub type AllocDm = unsafe extern "C" fn(*mut ibv_context, *mut ibv_alloc_dm_attr) -> *mut ibv_dm;
/// The type of `ibv_query_port` in a context.
pub type QueryPort = unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int;

/// An open device.
pub struct PassContext {
    /// Its name.
    pub name: String,
    /// The plan.
    pub faults: Arc<Faults>,
    /// What is needed of it.
    pub needs: PassNeeds,
    /// The functions that were there.
    pub real: RealTable,
    /// Asynchronous events, if they are needed.
    pub events: Option<PassEvents>,
    changes: DeviceChanges,
    told: Mutex<ToldDevice>,
    gid_rows: usize,
    gone: AtomicBool,
    members: Mutex<Vec<Weak<dyn EndsWithContext>>>,
}

/// What ends when its device is reset.
pub trait EndsWithContext: Send + Sync {
    /// Fails, and flushes what was posted, without an event.
    fn end_with_context(&self);
}

/// What is known of a device when it is opened.
pub struct OpenedContext {
    /// Its name.
    pub name: String,
    /// What is needed of it.
    pub needs: PassNeeds,
    /// The functions that are there.
    pub real: RealTable,
    /// Its events, if they are needed.
    pub events: Option<PassEvents>,
    /// What is planned for it.
    pub changes: DeviceChanges,
    /// What it is like.
    pub told: ToldDevice,
    /// Rows of its table of GIDs that are used.
    pub gid_rows: usize,
}

impl PassContext {
    /// A device that is opened.
    pub fn new(faults: &Arc<Faults>, opened: OpenedContext) -> Arc<Self> {
        let OpenedContext { name, needs, real, events, changes, told, gid_rows } = opened;
        Arc::new(Self {
            name,
            faults: Arc::clone(faults),
            needs,
            real,
            events,
            changes,
            told: Mutex::new(told),
            gid_rows,
            gone: AtomicBool::new(false),
            members: Mutex::default(),
        })
    }

    /// Notes a queue pair, which ends with the device.
    pub fn enlist(&self, member: Weak<dyn EndsWithContext>) {
        let mut members = self.members.lock();
        members.retain(|member| member.strong_count() > 0);
        members.push(member);
    }

    /// Does what is planned for the device up to now.
    pub fn tick(&self) {
        if self.changes.is_empty() {
            return;
        }
        let now = clock::now();
        let mut told = self.told.lock();
        let events = told.advance(&self.changes, now, self.gid_rows);
        if events.is_empty() {
            return;
        }
        self.changes.begun(now).for_each(|place| self.faults.note_once(place));
        for kind in events {
            if kind == AsyncKind::DeviceFatal {
                self.gone.store(true, Ordering::Release);
                let members: Vec<_> = std::mem::take(&mut *self.members.lock());
                for member in members.iter().filter_map(Weak::upgrade) {
                    member.end_with_context();
                }
            }
            if let Some(events) = &self.events {
                events.push_of_port(kind);
            }
        }
    }

    /// What the device is said to be like.
    pub fn state(&self) -> weft_host::DeviceState {
        self.tick();
        self.told.lock().state()
    }

    /// When something planned happens next.
    pub fn next_change(&self) -> Option<Moment> {
        let now = clock::now();
        self.changes.times().filter(|at| *at > now).min()
    }

    /// When nothing comes from the device.
    pub fn outages(&self) -> Outages {
        self.changes.outages()
    }

    /// The errno that a call fails with, if it does.
    pub fn errno_of(&self, verb: Verb) -> Option<c_int> {
        self.tick();
        if self.is_gone() {
            return Some(libc::EIO);
        }
        self.faults.errno_of(verb, &self.name)
    }

    /// Whether the device was reset since it was opened: no command succeeds any more.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

/// Makes an object of the device of `context` by `make`, while the structure shows the kernel's
/// descriptor of its events.
///
/// # Safety
/// `context` is open.
pub unsafe fn with_real_events<T>(context: *mut ibv_context, make: impl FnOnce() -> T) -> T {
    let pass = super::faults().and_then(|_| find(context));
    match pass.as_ref().and_then(|pass| pass.events.as_ref()) {
        // SAFETY: open by contract.
        Some(events) => unsafe { events.with_real_fd(context, make) },
        None => make(),
    }
}

/// The number of an object among those of its kind in the process, from 1.
pub fn next_number(counter: &AtomicU32) -> u32 {
    counter.fetch_add(1, Ordering::Relaxed) + 1
}

/// The name of `device`.
///
/// # Safety
/// `device` is one of the list.
pub unsafe fn name_of(device: *mut ibv_device) -> String {
    let name = device.wrapping_byte_add(offset_of!(ibv_device, name)).cast();
    // SAFETY: names are NUL-terminated; the device is alive by contract.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}
