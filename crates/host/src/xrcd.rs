//! Domains of extended reliable connections, and the files by which applications name them.
//!
//! The receiving queue pairs of a domain complete nothing of their own, so who polls where one of
//! its queues completes makes progress on all of them.
//!
//! A file stands for one domain. A process that has it open holds a lock on the file, for domains
//! live in processes: another one that names the same file would wait for messages that go to the
//! first, and is told so instead.

use std::any::Any;
use std::fs::{File, TryLockError};
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};

use weft_net::refused;
use weft_net::report;
use weft_os::fds::HighFd;
use weft_rnic::RdmaDevice;
use weft_sync::{Mutex, MutexGuard};
use weft_verbs::{Misuse, Pd};

use crate::conn_slot::ConnSlot;
use crate::cq::HostCq;
use crate::device_kind::DeviceId;
use crate::host::Host;

/// The file that a domain is named by.
#[derive(Clone, Copy, Debug)]
pub struct XrcdFile {
    /// A descriptor of it.
    pub fd: RawFd,
    /// The domain is made if there is none.
    pub create: bool,
    /// There must be none.
    pub exclusive: bool,
}

/// A domain.
pub struct HostXrcd {
    inner: Arc<weft_verbs::Xrcd>,
    device: Arc<RdmaDevice>,
    /// What queue pairs that have none are made with.
    cq: Arc<HostCq>,
    members: Mutex<Members>,
    /// The lock on its file, which the domains of all devices have in common.
    lock: Option<Arc<HighFd>>,
}

#[derive(Default)]
struct Members {
    /// How often it is open.
    opened: usize,
    /// Its receiving queue pairs.
    slots: Vec<Arc<ConnSlot>>,
    /// Its queues' numbers, and where each completes.
    cqs: Vec<(u32, Arc<HostCq>)>,
}

impl HostXrcd {
    /// Opens a domain of its own, or the one that `file` stands for; `cq` is for nothing else.
    pub(crate) fn open(
        host: &Host,
        (id, device): (DeviceId, &Arc<RdmaDevice>),
        cq: Arc<HostCq>,
        file: Option<XrcdFile>,
    ) -> Result<Arc<Self>, Misuse> {
        let Some(file) = file else { return Ok(Self::new(device, cq, None)) };
        let own = File::open(format!("/proc/self/fd/{}", file.fd)).map_err(refused)?;
        let about = own.metadata().map_err(refused)?;
        let name = (id.slot(), about.dev(), about.ino());
        let mut named = host.named();
        named.retain(|_, domain| domain.strong_count() > 0);
        let domain = |known: &Weak<dyn Any + Send + Sync>| known.upgrade()?.downcast::<Self>().ok();
        if let Some(domain) = named.get(&name).and_then(domain) {
            if file.exclusive {
                return Err(Misuse::Invalid("there is a domain of this file"));
            }
            domain.members().opened += 1;
            return Ok(domain);
        }
        if !file.create {
            return Err(Misuse::System(libc::EAGAIN));
        }
        let mut all = named.iter().filter(|((_, dev, ino), _)| (*dev, *ino) == (name.1, name.2));
        let held = all.find_map(|(_, known)| domain(known)?.lock.clone());
        let held = match held {
            Some(held) => held,
            None => {
                lock(&own)?;
                Arc::new(HighFd::new(own.into()))
            }
        };
        let domain = Self::new(device, cq, Some(held));
        let weak: Weak<Self> = Arc::downgrade(&domain);
        named.insert(name, weak);
        Ok(domain)
    }

    fn new(device: &Arc<RdmaDevice>, cq: Arc<HostCq>, lock: Option<Arc<HighFd>>) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::new(weft_verbs::Xrcd::new(device.alloc_pd())),
            device: Arc::clone(device),
            cq,
            members: Mutex::new(Members { opened: 1, ..Members::default() }),
            lock,
        })
    }

    /// Closes it once, for the last time only if nothing is in it.
    pub fn close(&self) -> Result<(), Misuse> {
        let mut members = self.members();
        if members.opened == 1 && self.inner.is_used() {
            return Err(Misuse::Busy);
        }
        members.opened -= 1;
        Ok(())
    }

    /// What its queue pairs have for a protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        self.inner.pd()
    }

    /// What its queue pairs have for completion queues.
    pub fn cq(&self) -> &Arc<HostCq> {
        &self.cq
    }

    pub(crate) fn inner(&self) -> &Arc<weft_verbs::Xrcd> {
        &self.inner
    }

    /// Takes a queue in, which completes in `cq`, under a number of its own.
    pub(crate) fn take_in(
        &self,
        srq: weft_verbs::Srq,
        cq: &Arc<HostCq>,
    ) -> Result<Arc<weft_verbs::Srq>, Misuse> {
        let number = self.device.take_srq_number()?;
        let mut members = self.members();
        for cell in &members.slots {
            cq.join(cell);
        }
        members.cqs.push((number, Arc::clone(cq)));
        Ok(srq.join(&self.inner, number, cq.inner()))
    }

    /// The queue of this number is no more.
    pub(crate) fn let_out(&self, number: u32) {
        let mut members = self.members();
        let Some(at) = members.cqs.iter().position(|(known, _)| *known == number) else { return };
        let (_, cq) = members.cqs.swap_remove(at);
        if !members.cqs.iter().any(|(_, other)| Arc::ptr_eq(other, &cq)) {
            for cell in &members.slots {
                cq.leave(cell);
            }
        }
        self.device.release_srq_number(number);
    }

    /// Who polls for one of its queues makes progress on `cell`, a receiving queue pair's.
    pub(crate) fn join(&self, cell: &Arc<ConnSlot>) {
        let mut members = self.members();
        for (_, cq) in &members.cqs {
            cq.join(cell);
        }
        members.slots.push(Arc::clone(cell));
    }

    /// The queue pair is no more.
    pub(crate) fn leave(&self, cell: &Arc<ConnSlot>) {
        let mut members = self.members();
        for (_, cq) in &members.cqs {
            cq.leave(cell);
        }
        members.slots.retain(|known| !Arc::ptr_eq(known, cell));
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock()
    }
}

/// Locks a file for this process.
fn lock(file: &File) -> Result<(), Misuse> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            report::error(
                "ibv_open_xrcd: another process has a domain of this file, and Weft's domains are \
                 not shared between processes: give each process a file of its own, or -1"
                    .into(),
            );
            Err(Misuse::Unsupported("domains that processes share"))
        }
        Err(TryLockError::Error(error)) => Err(refused(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::context::Context;
    use crate::device_kind::DeviceKind;
    use crate::host::HostSetup;

    struct Silent;
    impl weft_verbs::Wake for Silent {
        fn wake(&self) {}
    }

    /// A file without a name.
    fn file(of: &str) -> File {
        let path = std::env::temp_dir().join(format!("weft-{of}-{}", std::process::id()));
        let file = File::create_new(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }

    fn open(
        host: &Arc<Host>,
        fd: RawFd,
        create: bool,
        exclusive: bool,
    ) -> Result<Arc<HostXrcd>, i32> {
        open_on(DeviceKind::Roce.into(), host, fd, create, exclusive)
    }

    fn open_on(
        device: DeviceId,
        host: &Arc<Host>,
        fd: RawFd,
        create: bool,
        exclusive: bool,
    ) -> Result<Arc<HostXrcd>, i32> {
        let context = Context::open(host, device, Box::new(Silent)).unwrap();
        let file = XrcdFile { fd, create, exclusive };
        context.open_xrcd(Some(file)).map_err(|misuse| misuse.errno())
    }

    #[test]
    fn a_file_stands_for_one_domain_until_it_is_closed_as_often_as_opened() {
        let (host, file) = (Host::new(HostSetup::default()), file("domain"));
        let fd = file.as_raw_fd();
        assert_eq!(open(&host, fd, false, false).err(), Some(libc::EAGAIN));
        let first = open(&host, fd, true, true).unwrap();
        let second = open(&host, fd, false, false).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(open(&host, fd, true, true).err(), Some(libc::EINVAL));
        assert_eq!((second.close(), first.close()), (Ok(()), Ok(())));
        drop((first, second));
        assert_eq!(open(&host, fd, false, false).err(), Some(libc::EAGAIN));
        assert!(open(&host, fd, true, true).is_ok());
        assert_eq!(open(&host, -5, true, false).err(), Some(libc::ENOENT));
    }

    #[test]
    fn a_file_stands_for_another_domain_on_another_device() {
        let (host, file) = (Host::new(HostSetup::default()), file("devices"));
        let fd = file.as_raw_fd();
        let first = open(&host, fd, true, true).unwrap();
        let second = DeviceId::new(DeviceKind::Roce, 1);
        assert_eq!(open_on(second, &host, fd, false, false).err(), Some(libc::EAGAIN));
        let other = open_on(second, &host, fd, true, true).unwrap();
        assert!(!Arc::ptr_eq(&first, &other));
    }

    #[test]
    fn a_file_that_somebody_else_has_locked_is_not_shared() {
        let (host, file) = (Host::new(HostSetup::default()), file("locked"));
        let other = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        other.try_lock().unwrap();
        assert_eq!(open(&host, file.as_raw_fd(), true, false).err(), Some(libc::EOPNOTSUPP));
        drop(other);
        assert!(open(&host, file.as_raw_fd(), true, false).is_ok());
    }
}
