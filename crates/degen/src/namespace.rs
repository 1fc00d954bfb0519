//! Network namespaces, each a host of its own on this machine.
//!
//! [`gain_rights`] comes first, while the process has one thread; then [`Namespace::create`].

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::tun;

/// A network namespace; it lives until this is dropped and no process is left in it.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// A new namespace with its loopback up.
    ///
    /// # Errors
    /// This process may not make one.
    pub fn create() -> Result<Self> {
        let made = on_a_thread(|| {
            tun::leave_network()?;
            tun::start_loopback()?;
            open(Path::new("/proc/thread-self/ns/net"))
        });
        made.map(Self).context("a network namespace cannot be made")
    }

    /// The namespace behind a link such as `/proc/1/ns/net`.
    ///
    /// # Errors
    /// There is none, or this process may not look.
    pub fn open(link: &Path) -> io::Result<Self> {
        open(link).map(Self)
    }

    /// Runs `work` on a thread of its own in this namespace. Sockets that it opens stay there.
    ///
    /// # Errors
    /// The thread may not enter the namespace (`EPERM`).
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| {
            self.enter()?;
            Ok(work())
        })
    }

    /// Moves this thread into the namespace.
    ///
    /// # Errors
    /// It may not.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Sets a sysctl, `net/...` below `/proc/sys`. One that this kernel or user cannot set is left
    /// alone.
    pub fn try_set(&self, settings: &[(&str, String)]) -> io::Result<()> {
        self.within(|| {
            for (name, value) in settings {
                let _ = fs::write(Path::new("/proc/sys").join(name), value);
            }
        })
    }

    /// The descriptor by which other processes find the namespace below `/proc/PID/fd`.
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Makes sure that this process may make network namespaces, if need be by becoming root of a
/// user namespace of its own. The process must have one thread only.
///
/// # Errors
/// The kernel does not allow it; the text says what can be done.
pub fn gain_rights() -> Result<()> {
    if on_a_thread(tun::leave_network).is_ok() {
        return Ok(());
    }
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    if let Err(error) = leave_users() {
        bail!("{}", advice(&error));
    }
    let map = |file: &str, text: String| {
        let path = Path::new("/proc/self").join(file);
        fs::write(&path, text).with_context(|| format!("{}: {}", path.display(), REFUSED))
    };
    map("setgroups", "deny".to_owned())?;
    map("uid_map", format!("0 {user} 1"))?;
    map("gid_map", format!("0 {group} 1"))?;
    on_a_thread(tun::leave_network).with_context(|| REFUSED.to_owned())
}

/// Retried: the thread of an earlier attempt may not have exited yet, and blocks this until then.
fn leave_users() -> io::Result<()> {
    let mut result = tun::leave_users();
    for _ in 0..ATTEMPTS_MAX {
        match &result {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                thread::yield_now();
                result = tun::leave_users();
            }
            _ => break,
        }
    }
    result
}

const ATTEMPTS_MAX: usize = 10_000;
const REFUSED: &str = "user namespaces exist here, but are not allowed to do anything; on Ubuntu, \
    as root: sysctl kernel.apparmor_restrict_unprivileged_userns=0";

fn advice(error: &io::Error) -> String {
    let sysctl = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    let remedy = if sysctl("user/max_user_namespaces").trim() == "0" {
        "as root: sysctl user.max_user_namespaces=10000"
    } else if sysctl("kernel/unprivileged_userns_clone").trim() == "0" {
        "as root: sysctl kernel.unprivileged_userns_clone=1"
    } else if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) {
        "in a container, start it with --cap-add SYS_ADMIN --cap-add NET_ADMIN \
         --device /dev/net/tun and without seccomp's default profile; elsewhere, run this as root"
    } else {
        "run this as root"
    };
    format!("a WAN needs namespaces, and this user cannot make any ({error}); {remedy}")
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
