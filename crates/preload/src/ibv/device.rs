//! The device list: devices are made once, at addresses that never change.
//!
//! Applications keep `ibv_device` pointers after freeing the list and compare them across calls,
//! and libraries made for one vendor's hardware look *behind* the structure to recognise their own,
//! so it is followed by zeroes.

use std::ffi::{c_char, c_int};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::{mem, ptr};

use weft_host::{DeviceId, DeviceKind};

use crate::log::{self, LogLevel};
use crate::net::{self, NetInterface};
use crate::pass;
use crate::real::pass_when_off;
use crate::{asked, errno, rdma};
use weft_verbs_abi::{
    IBV_NODE_CA, IBV_NODE_RNIC, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP, ibv_device,
};

/// Zeroes behind the device: more than any provider's own device structure has before the
/// pointer that identifies it.
const TAIL_WORDS: usize = 64;

#[repr(C)]
struct DeviceObject {
    public: ibv_device,
    tail: [u64; TAIL_WORDS],
}

struct SharedDevice(*mut DeviceObject);
// SAFETY: the object is written before it is shared and only read afterwards.
unsafe impl Send for SharedDevice {}
// SAFETY: as above.
unsafe impl Sync for SharedDevice {}

/// The devices that are visible, in the order of the list.
pub fn visible() -> &'static [DeviceId] {
    rdma::host().devices().visible()
}

/// The device as applications know it.
pub fn device(id: DeviceId) -> *mut ibv_device {
    static DEVICES: [OnceLock<SharedDevice>; DeviceId::SLOTS] =
        [const { OnceLock::new() }; DeviceId::SLOTS];
    DEVICES[id.slot()].get_or_init(|| SharedDevice(Box::into_raw(Box::new(make(id))))).0.cast()
}

/// Which device it is; none if it is of another library.
pub fn id(device: *mut ibv_device) -> Option<DeviceId> {
    visible().iter().copied().find(|id| self::device(*id) == device)
}

/// The name of a device.
pub fn name(id: DeviceId) -> &'static str {
    rdma::host().devices().name(id)
}

/// The interfaces that a device has addresses of, with those.
pub fn interfaces(id: DeviceId) -> Vec<NetInterface> {
    let devices = rdma::host().devices();
    let mut interfaces = net::interfaces().to_vec();
    // Linux takes all of 127.0.0.0/8 for the host's own, and lists one address.
    for given in devices.addresses(id).iter().filter(|given| given.is_loopback()) {
        let owner = interfaces.iter_mut().find(|interface| interface.loopback);
        if let Some(owner) = owner.filter(|owner| !owner.addresses.contains(given)) {
            owner.addresses.push(*given);
        }
    }
    for interface in &mut interfaces {
        interface.addresses.retain(|address| devices.serves(id, *address));
    }
    interfaces.retain(|interface| !interface.addresses.is_empty());
    interfaces
}

/// The entries with a NULL behind them, as the C library's own memory; NULL if there is none.
pub fn list_of<T>(entries: &[*mut T]) -> *mut *mut T {
    // SAFETY: plain arguments; whoever gets the list gives it back to `free`.
    let list: *mut *mut T = unsafe { libc::calloc(entries.len() + 1, size_of::<*mut T>()) }.cast();
    if !list.is_null() {
        // SAFETY: the list has room for the entries; what follows them stays NULL.
        unsafe { ptr::copy_nonoverlapping(entries.as_ptr(), list, entries.len()) };
    }
    list
}

/// Says which addresses devices were given that the host does not have now.
pub fn warn_of_foreign_addresses() {
    let devices = rdma::host().devices();
    for id in visible() {
        let own: Vec<IpAddr> = interfaces(*id).into_iter().flat_map(|i| i.addresses).collect();
        for address in devices.addresses(*id).iter().filter(|given| !own.contains(given)) {
            let line = format_args!(
                "WEFT_DEVICES gives {} the address {address}, which no interface of this host has",
                name(*id)
            );
            log::write(LogLevel::Warn, line);
        }
    }
}

fn make(id: DeviceId) -> DeviceObject {
    // SAFETY: all zeroes is valid: integers, null pointers and empty strings.
    let mut object: DeviceObject = unsafe { mem::zeroed() };
    let device = &mut object.public;
    let name = name(id);
    (device.node_type, device.transport_type) = match id.kind {
        DeviceKind::Iwarp => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
        DeviceKind::Roce => (IBV_NODE_CA, IBV_TRANSPORT_IB),
    };
    copy_text(&mut device.name, name);
    // Not `uverbs<N>`, which may be the node of real hardware.
    let mut node = String::from("uverbs_");
    let _ = node.write_str(name);
    copy_text(&mut device.dev_name, &node);
    copy_text(&mut device.dev_path, &format!("/sys/class/infiniband_verbs/{node}"));
    copy_text(&mut device.ibdev_path, &format!("/sys/class/infiniband/{name}"));
    object
}

/// Copies `text`, cut so that a NUL remains at the end. `to` is zeroed.
pub fn copy_text(to: &mut [c_char], text: &str) {
    let room = to.len() - 1;
    for (to, from) in to.iter_mut().zip(text.bytes().take(room)) {
        *to = from as c_char;
    }
}

/// The node GUID of a device, in memory order: EUI-64 from the first Ethernet address of the
/// machine, or from the machine's identity where there is none. Never zero, and the same in every
/// process.
pub fn guid(id: DeviceId) -> u64 {
    let mut bytes = system_guid().to_ne_bytes();
    // The devices of one machine differ in the bytes that EUI-64 fills up.
    bytes[3] ^= id.index() as u8;
    bytes[4] ^= u8::from(id.kind == DeviceKind::Iwarp);
    u64::from_ne_bytes(bytes)
}

/// The GUID of the machine, which its devices have in common.
pub fn system_guid() -> u64 {
    static GUID: OnceLock<u64> = OnceLock::new();
    *GUID.get_or_init(|| {
        let bytes = match mac() {
            Some([a, b, c, d, e, f]) => [a ^ 2, b, c, 0xff, 0xfe, d, e, f],
            None => machine_bytes(),
        };
        u64::from_ne_bytes(bytes)
    })
}

/// The Ethernet address that names the device.
pub fn mac() -> Option<[u8; 6]> {
    net::first_mac(&net::interfaces())
}

/// A locally administered identifier from the kernel's host identity.
fn machine_bytes() -> [u8; 8] {
    // SAFETY: no arguments.
    let id = unsafe { libc::gethostid() } as u64;
    // Spreads the 32 bits that gethostid gives over the identifier.
    let mut bytes = (id ^ (id << 21)).to_be_bytes();
    bytes[0] = 2;
    bytes
}

/// `ibv_get_device_list`.
///
/// # Safety
/// `count` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    pass_when_off!(ibv_get_device_list(count), pass::query::get_device_list);
    asked::warn_of_absent();
    let there = |id: &&DeviceId| !rdma::host().device_state(**id).resetting;
    let devices: Vec<_> = visible().iter().filter(there).map(|id| device(*id)).collect();
    let list = list_of(&devices);
    if list.is_null() {
        return errno::null(libc::ENOMEM);
    }
    if !count.is_null() {
        // SAFETY: the caller passes NULL or a writable integer.
        unsafe { count.write(devices.len() as c_int) };
    }
    list
}

/// `ibv_free_device_list`. The devices themselves stay.
///
/// # Safety
/// `list` came from [`ibv_get_device_list`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    pass_when_off!(ibv_free_device_list(list));
    // SAFETY: the list was allocated by calloc, or is NULL.
    unsafe { libc::free(list.cast()) };
}

/// `ibv_get_device_name`.
///
/// # Safety
/// `device` came from [`ibv_get_device_list`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    pass_when_off!(ibv_get_device_name(device));
    if device.is_null() {
        return ptr::null();
    }
    // SAFETY: the caller passes a device of ours, which lives for ever.
    unsafe { (&raw const (*device).name).cast() }
}

/// `ibv_get_device_guid`, in network byte order.
///
/// # Safety
/// `device` came from [`ibv_get_device_list`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    pass_when_off!(ibv_get_device_guid(device));
    id(device).map_or(0, guid)
}

/// `ibv_get_device_index`: the kernel does not know these devices.
///
/// # Safety
/// `device` came from [`ibv_get_device_list`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    pass_when_off!(ibv_get_device_index(device));
    -1
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn devices_stay_where_they_are_and_are_followed_by_zeroes() {
        let mut count = 0;
        // SAFETY: a writable integer.
        let list = unsafe { ibv_get_device_list(&raw mut count) };
        assert_eq!(count, 2);
        // SAFETY: the list has three entries.
        let entries = unsafe { *list.cast::<[*mut ibv_device; 3]>() };
        let devices = [DeviceKind::Roce, DeviceKind::Iwarp].map(|kind| device(kind.into()));
        assert_eq!(entries, [devices[0], devices[1], ptr::null_mut()]);
        // SAFETY: the list came from the call above.
        unsafe { ibv_free_device_list(list) };
        for device in devices {
            // SAFETY: the device is the head of a DeviceObject.
            let object = unsafe { &*device.cast::<DeviceObject>() };
            assert_eq!(object.tail, [0; TAIL_WORDS]);
        }
    }

    #[test]
    fn each_device_has_its_name() {
        for (which, name) in [(DeviceKind::Iwarp, c"weft_iw0"), (DeviceKind::Roce, c"weft0")] {
            let which = DeviceId::from(which);
            assert_eq!(id(device(which)), Some(which));
            // SAFETY: a device of ours.
            let shown = unsafe { ibv_get_device_name(device(which)) };
            // SAFETY: names are NUL-terminated.
            assert_eq!(unsafe { CStr::from_ptr(shown) }, name);
        }
        assert_eq!(id(ptr::null_mut()), None);
    }

    #[test]
    fn guids_differ_and_are_never_zero() {
        let mut guids: Vec<u64> =
            (0..DeviceId::SLOTS).map(|slot| guid(DeviceId::of_slot(slot))).collect();
        assert!(!guids.contains(&0));
        guids.sort_unstable();
        guids.dedup();
        assert_eq!(guids.len(), DeviceId::SLOTS);
        assert_ne!(machine_bytes(), [0; 8]);
    }

    #[test]
    fn text_is_cut_before_the_last_byte() {
        let mut to = [0; 4];
        copy_text(&mut to, "abcdef");
        assert_eq!(to, [b'a', b'b', b'c', 0].map(|c| c as c_char));
    }
}
