//! TUN devices, and what else only the kernel can do: interfaces, addresses, network namespaces,
//! priorities.
//!
//! As root the router's threads have a real-time priority: a path that waits for the applications
//! that use it would be another path.
//!
//! All `unsafe` code of this crate is here.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::ioctl::{self, IntegerSetter, Opcode, Setter, Updater};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::packet::{BundleParts, OFFLOAD_BYTES};

/// A TUN device with segmentation offload both ways. Reading and writing never wait.
#[derive(Debug)]
pub struct Tun(OwnedFd);

/// What an interface is to be.
#[derive(Clone, Copy, Debug)]
pub struct Interface<'a> {
    /// Its name.
    pub name: &'a str,
    /// The largest packet, in bytes.
    pub mtu: u16,
    /// Its address in a network of 24 bits.
    pub v4: Ipv4Addr,
    /// Its address in a network of 64 bits.
    pub v6: Ipv6Addr,
}

// linux/if_tun.h, linux/if.h, linux/sockios.h, linux/ipv6.h
const TUNSETIFF: Opcode = 0x4004_54ca;
const TUNSETOFFLOAD: Opcode = 0x4004_54d0;
const TUNSETVNETLE: Opcode = 0x4004_54dc;
const SIOCSIFFLAGS: Opcode = 0x8914;
const SIOCSIFADDR: Opcode = 0x8916;
const SIOCSIFNETMASK: Opcode = 0x891c;
const SIOCSIFMTU: Opcode = 0x8922;
const SIOCSIFTXQLEN: Opcode = 0x8943;
const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const IFF_UP: u16 = 0x1;
const IFF_RUNNING: u16 = 0x40;
const AF_INET: u16 = 2;
/// Checksums, TCP over both versions of IP with ECN, UDP over both.
const OFFLOADS: usize = 0x01 | 0x02 | 0x04 | 0x08 | 0x20 | 0x40;
/// The same without UDP, for kernels before 6.2.
const OFFLOADS_BEFORE_USO: usize = 0x01 | 0x02 | 0x04 | 0x08;
const NAME_BYTES: usize = 16;
/// How many bundles may wait for the router before the kernel drops them.
const WAITING_BUNDLES_MAX: i32 = 10_000;

/// `struct ifreq`: a name, and one of many things.
#[repr(C)]
#[derive(Clone, Copy)]
struct IfReq {
    name: [u8; NAME_BYTES],
    value: [u8; 24],
}

/// `struct in6_ifreq`.
#[repr(C)]
#[derive(Clone, Copy)]
struct In6IfReq {
    address: [u8; 16],
    prefix: u32,
    index: i32,
}

impl Tun {
    /// Makes a device in the namespace of this thread and gives it its addresses.
    ///
    /// # Errors
    /// There is no `/dev/net/tun`, or this process may not make interfaces.
    pub fn create(interface: Interface<'_>) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let tun = Self(rustix::fs::open("/dev/net/tun", flags, Mode::empty())?);
        let kind = (IFF_TUN | IFF_NO_PI | IFF_VNET_HDR).to_ne_bytes();
        update::<TUNSETIFF, _>(&tun.0, IfReq::new(interface.name, &kind))?;
        set::<TUNSETVNETLE, i32>(&tun.0, 1)?;
        set_number::<TUNSETOFFLOAD>(&tun.0, OFFLOADS)
            .or_else(|_| set_number::<TUNSETOFFLOAD>(&tun.0, OFFLOADS_BEFORE_USO))?;
        configure(interface)?;
        Ok(tun)
    }

    /// Reads a packet and the header before it. The result is the length of the packet, or nothing
    /// when none waits.
    ///
    /// # Errors
    /// The device is gone.
    pub fn read(
        &self,
        offload: &mut [u8; OFFLOAD_BYTES],
        packet: &mut [u8],
    ) -> io::Result<Option<usize>> {
        let mut parts = [IoSliceMut::new(offload), IoSliceMut::new(packet)];
        match rustix::io::readv(&self.0, &mut parts) {
            Ok(bytes) => Ok(Some(bytes.saturating_sub(OFFLOAD_BYTES))),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands a bundle to the kernel's IP.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn write(&self, run: &BundleParts<'_>) -> io::Result<()> {
        let parts = [&run.offload, run.headers, run.payload].map(IoSlice::new);
        rustix::io::writev(&self.0, &parts)?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Gives this thread a network namespace of its own, in which nothing is but a loopback that is
/// down.
///
/// # Errors
/// It may not.
pub fn leave_network() -> io::Result<()> {
    // SAFETY: the flag touches neither descriptors nor memory.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}

/// Gives this process, which has one thread, a user namespace of its own.
///
/// # Errors
/// It may not, or it has other threads.
pub fn leave_users() -> io::Result<()> {
    // SAFETY: the flag touches neither descriptors nor memory.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    Ok(())
}

/// Lets this thread run before those of ordinary programs, so that a path stays what it is while
/// they use the CPUs. Only root may; for others nothing changes.
pub fn go_first() {
    // SAFETY: all zeroes is valid: integers, of which some C libraries have more than one.
    let mut priority: libc::sched_param = unsafe { std::mem::zeroed() };
    priority.sched_priority = 1;
    // SAFETY: the kernel reads the structure during the call; 0 is this thread.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &priority) };
}

/// Closes the descriptors that this process inherited, but for the three streams, so that a process
/// that stays keeps nothing from others: a lock, say, or the end of a pipe. The process has one
/// thread.
///
/// # Errors
/// There is no `/proc`.
pub fn close_inherited() -> io::Result<()> {
    let entries = std::fs::read_dir("/proc/self/fd")?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let numbers: Vec<i32> = names.filter_map(|name| name.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // SAFETY: it was open a moment ago, or was that of the directory; the call tells.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        // What this process opened is closed on exec; what is not came through one.
        if rustix::io::fcntl_getfd(fd).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
            // SAFETY: nobody in this process knows it, so nobody uses it.
            unsafe { rustix::io::close(number) };
        }
    }
    Ok(())
}

/// Brings up the loopback of this thread's namespace.
///
/// # Errors
/// It may not.
pub fn start_loopback() -> io::Result<()> {
    let up = (IFF_UP | IFF_RUNNING).to_ne_bytes();
    set::<SIOCSIFFLAGS, _>(any_socket(AddressFamily::INET)?, IfReq::new("lo", &up))
}

fn configure(interface: Interface<'_>) -> io::Result<()> {
    let name = interface.name;
    let v4 = any_socket(AddressFamily::INET)?;
    set::<SIOCSIFMTU, _>(&v4, IfReq::new(name, &i32::from(interface.mtu).to_ne_bytes()))?;
    // Only the real root may; others have the usual 500, which is enough but for the fastest paths.
    let _ = set::<SIOCSIFTXQLEN, _>(&v4, IfReq::new(name, &WAITING_BUNDLES_MAX.to_ne_bytes()));
    set::<SIOCSIFADDR, _>(&v4, IfReq::new(name, &sockaddr(interface.v4)))?;
    set::<SIOCSIFNETMASK, _>(&v4, IfReq::new(name, &sockaddr(Ipv4Addr::new(255, 255, 255, 0))))?;
    let up = (IFF_UP | IFF_RUNNING).to_ne_bytes();
    set::<SIOCSIFFLAGS, _>(&v4, IfReq::new(name, &up))?;
    let index = rustix::net::netdevice::name_to_index(&v4, name)? as i32;
    // A machine without IPv6 is no failure.
    let Ok(v6) = any_socket(AddressFamily::INET6) else { return Ok(()) };
    let request = In6IfReq { address: interface.v6.octets(), prefix: 64, index };
    set::<SIOCSIFADDR, _>(v6, request).or(Ok(()))
}

fn any_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?)
}

fn sockaddr(address: Ipv4Addr) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..2].copy_from_slice(&AF_INET.to_ne_bytes());
    bytes[4..].copy_from_slice(&address.octets());
    bytes
}

impl IfReq {
    fn new(name: &str, value: &[u8]) -> Self {
        let mut request = Self { name: [0; NAME_BYTES], value: [0; 24] };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        request.value[..value.len()].copy_from_slice(value);
        request
    }
}

fn set<const OPCODE: Opcode, T>(fd: impl AsFd, value: T) -> io::Result<()> {
    // SAFETY: each caller names the structure that the kernel reads for its opcode.
    let call = unsafe { Setter::<OPCODE, T>::new(value) };
    // SAFETY: the kernel reads the value during the call and keeps no pointer.
    unsafe { ioctl::ioctl(fd, call) }?;
    Ok(())
}

fn update<const OPCODE: Opcode, T>(fd: impl AsFd, mut value: T) -> io::Result<()> {
    // SAFETY: each caller names the structure that the kernel reads and writes for its opcode.
    let call = unsafe { Updater::<OPCODE, T>::new(&mut value) };
    // SAFETY: the value outlives the call, and the kernel keeps no pointer.
    unsafe { ioctl::ioctl(fd, call) }?;
    Ok(())
}

fn set_number<const OPCODE: Opcode>(fd: impl AsFd, value: usize) -> io::Result<()> {
    // SAFETY: each caller's opcode takes a number and no pointer.
    let call = unsafe { IntegerSetter::<OPCODE>::new_usize(value) };
    // SAFETY: nothing in memory is touched.
    unsafe { ioctl::ioctl(fd, call) }?;
    Ok(())
}
