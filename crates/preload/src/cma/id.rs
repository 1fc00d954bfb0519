//! Ids: their making and end, their addresses and options.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::ptr;
use std::time::Duration;

use weft_host::DeviceKind;
use weft_rdmacm::{CmError, CmId, PortSpace};

use super::devices::CmaDevice;
use super::events::{complete, release};
use super::object::{ChannelObject, IdObject};
use super::sockaddr;
use crate::errno::{self, needs_memory};
use crate::rdma;
use crate::real::pass_when_off;
use weft_verbs_abi::cma::{
    RDMA_OPTION_IB, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY,
    RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP, Storage,
    rdma_cm_id, rdma_event_channel,
};

/// The object behind `id`; returns from the calling function with `EINVAL` if there is none.
macro_rules! object {
    ($id:expr) => {
        // SAFETY: the caller passes NULL or a live id.
        match unsafe { $crate::cma::object::IdObject::get($id) } {
            Some(object) => object,
            None => return $crate::errno::minus_one(libc::EINVAL),
        }
    };
}
pub(super) use object;

/// 0, or -1 and `errno`.
pub fn result(result: Result<(), CmError>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => errno::minus_one(error.errno()),
    }
}

/// As [`result`]; where calls wait for their event, waits for it.
pub fn completed(object: &IdObject, outcome: Result<(), CmError>) -> c_int {
    match outcome {
        Ok(()) => complete(object),
        Err(error) => errno::minus_one(error.errno()),
    }
}

/// Makes an id; one without a channel gets its own, and waits in each call.
pub fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    port_space: c_int,
) -> Result<*mut rdma_cm_id, c_int> {
    needs_memory!(Err);
    let space = match port_space {
        RDMA_PS_TCP => PortSpace::Tcp,
        RDMA_PS_UDP | RDMA_PS_IPOIB => PortSpace::Udp,
        // InfiniBand addresses among them: rsockets take this for a kernel without AF_IB.
        _ => return Err(libc::EPROTONOSUPPORT),
    };
    let sync = channel.is_null();
    let channel = if sync { ChannelObject::create()? } else { channel };
    let events = ChannelObject::live(channel).ok_or(libc::EINVAL)?;
    let cm = CmId::new(events, space, rdma::host().settings().transport);
    if let Err(code) = cm.device().ok_or(libc::ENODEV).and_then(CmaDevice::get) {
        if sync {
            ChannelObject::destroy(channel);
        }
        return Err(code);
    }
    let object = IdObject::create(cm, channel, context, port_space);
    // SAFETY: the object was just made.
    unsafe { &*object }.head.sync.set(c_int::from(sync));
    Ok(object.cast())
}

/// `rdma_create_id`.
///
/// # Safety
/// `channel` is NULL or live, `id` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    port_space: c_int,
) -> c_int {
    pass_when_off!(rdma_create_id(channel, id, context, port_space));
    if id.is_null() {
        return errno::minus_one(libc::EINVAL);
    }
    match create(channel, context, port_space) {
        Ok(new) => {
            // SAFETY: the caller passes a writable pointer.
            unsafe { id.write(new) };
            0
        }
        Err(code) => errno::minus_one(code),
    }
}

/// `rdma_destroy_id`: drops the events that were not read, and waits until those that were are
/// acknowledged. A connection ends gracefully.
///
/// # Safety
/// `id` is live and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    pass_when_off!(rdma_destroy_id(id));
    let object = object!(id);
    release(object);
    object.cm.destroy();
    if object.is_sync() {
        ChannelObject::destroy(object.head.id.channel.get());
    }
    // SAFETY: the caller gives the id up, and no event of it is left.
    unsafe { IdObject::free(id.cast()) };
    0
}

/// `rdma_migrate_id`: sends the events of an id to another channel, or, without one, to a channel
/// of its own on which each call waits.
///
/// # Safety
/// `id` is live, `channel` NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    pass_when_off!(rdma_migrate_id(id, channel));
    let object = object!(id);
    let sync = channel.is_null();
    if sync && object.is_sync() {
        return errno::minus_one(libc::EINVAL);
    }
    let channel = match sync {
        true => ChannelObject::create(),
        false => Ok(channel),
    };
    let channel = match channel {
        Ok(channel) => channel,
        Err(code) => return errno::minus_one(code),
    };
    let Some(events) = ChannelObject::live(channel) else {
        return errno::minus_one(libc::EINVAL);
    };
    release(object);
    let old = object.head.id.channel.replace(channel);
    let was_sync = object.head.sync.replace(c_int::from(sync)) != 0;
    object.cm.migrate(&events);
    if was_sync {
        ChannelObject::destroy(old);
    }
    0
}

/// `rdma_bind_addr`. The wildcard leaves it open which device it will be, and so does loopback.
///
/// # Safety
/// `id` is live, `addr` a whole address of its family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int {
    pass_when_off!(rdma_bind_addr(id, addr));
    needs_memory!(errno::minus_one);
    let object = object!(id);
    // SAFETY: the caller passes a whole address.
    let Some(addr) = (unsafe { sockaddr::read(addr) }) else {
        return errno::minus_one(libc::EINVAL);
    };
    let bound = result(object.cm.bind(addr));
    if bound == 0 {
        object.show_addresses();
        // As in the kernel, loopback is no adapter's own address: libfabric takes a listener that
        // has a device for one whose address peers can reach. Of two devices without one it would
        // take the first, so where iWARP alone is wanted it is told.
        let adapter = object.personality() == DeviceKind::Roce;
        let listener = object.cm.space() == PortSpace::Tcp;
        let given = object.cm.device().is_some_and(|device| {
            rdma::host().devices().addresses(device).contains(&addr.ip().to_canonical())
        });
        if given || !(adapter && listener && addr.ip().is_loopback()) {
            object.show_device();
        }
    }
    bound
}

/// `rdma_resolve_addr`. Within the time limit it is found out which device leads to the peer.
///
/// # Safety
/// `id` is live, `src` NULL or a whole address of its family, `dst` a whole address of its family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src: *mut libc::sockaddr,
    dst: *mut libc::sockaddr,
    timeout_ms: c_int,
) -> c_int {
    pass_when_off!(rdma_resolve_addr(id, src, dst, timeout_ms));
    needs_memory!(errno::minus_one);
    let object = object!(id);
    // SAFETY: the caller passes NULL or a whole address.
    let from: Option<SocketAddr> = unsafe { sockaddr::read(src) };
    // SAFETY: the caller passes a whole address.
    let to: Option<SocketAddr> = unsafe { sockaddr::read(dst) };
    // An address of another family is not the same as none.
    let Some(to) = to.filter(|_| src.is_null() == from.is_none()) else {
        return errno::minus_one(libc::EINVAL);
    };
    object.head.id.route.addr.dst.set(Storage::from(to));
    let limit = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    completed(object, object.cm.resolve_addr(from, to, limit))
}

/// `rdma_resolve_route`. There is nothing to wait for, so the time limit has no use.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int {
    pass_when_off!(rdma_resolve_route(id, timeout_ms));
    needs_memory!(errno::minus_one);
    let object = object!(id);
    completed(object, object.cm.resolve_route())
}

/// `rdma_get_src_port`, in network byte order.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    pass_when_off!(rdma_get_src_port(id));
    // SAFETY: the caller passes NULL or a live id.
    let object = unsafe { IdObject::get(id) };
    object.map_or(0, |object| object.head.id.route.addr.src.get().port_be())
}

/// `rdma_get_dst_port`, in network byte order.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    pass_when_off!(rdma_get_dst_port(id));
    // SAFETY: the caller passes NULL or a live id.
    let object = unsafe { IdObject::get(id) };
    object.map_or(0, |object| object.head.id.route.addr.dst.get().port_be())
}

/// `rdma_set_option`: type of service, sharing of addresses, IPv6 only, acknowledgement timeout.
///
/// # Safety
/// `id` is live, `value` has `len` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    pass_when_off!(rdma_set_option(id, level, option, value, len));
    let object = object!(id);
    if ![RDMA_OPTION_ID, RDMA_OPTION_IB].contains(&level) {
        return errno::minus_one(libc::ENOSYS);
    }
    if level != RDMA_OPTION_ID || value.is_null() {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: the caller passes `len` readable bytes.
    let Some(number) = (unsafe { read_number(value, len) }) else {
        return errno::minus_one(libc::EINVAL);
    };
    match (option, number) {
        (RDMA_OPTION_ID_TOS, OptionNumber::Byte(tos)) => result(object.cm.set_tos(tos)),
        (RDMA_OPTION_ID_ACK_TIMEOUT, OptionNumber::Byte(exponent)) => {
            object.cm.set_ack_timeout(exponent);
            0
        }
        (RDMA_OPTION_ID_REUSEADDR, OptionNumber::Int(on)) => result(object.cm.set_shared(on != 0)),
        (RDMA_OPTION_ID_AFONLY, OptionNumber::Int(on)) => result(object.cm.set_v6_only(on != 0)),
        (RDMA_OPTION_ID_TOS..=RDMA_OPTION_ID_ACK_TIMEOUT, _) => errno::minus_one(libc::EINVAL),
        _ => errno::minus_one(libc::ENOSYS),
    }
}

enum OptionNumber {
    Byte(u8),
    Int(c_int),
}

/// # Safety
/// `value` has `len` readable bytes.
unsafe fn read_number(value: *const c_void, len: usize) -> Option<OptionNumber> {
    const INT: usize = size_of::<c_int>();
    match len {
        1 => {
            // SAFETY: one byte is readable.
            Some(OptionNumber::Byte(unsafe { ptr::read(value.cast()) }))
        }
        INT => {
            // SAFETY: as many bytes as an int has are readable.
            Some(OptionNumber::Int(unsafe { ptr::read_unaligned(value.cast()) }))
        }
        _ => None,
    }
}
